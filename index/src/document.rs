//! The texts of a tool: the fields that BM25 searches, and the views that are embedded.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::text;
use crate::tool::Tool;

/// Must change whenever [`views`] changes, so that catalogs update the hashes of their texts.
/// Unchanged texts keep their vectors.
pub const TEMPLATE_VERSION: u32 = 2;

/// Enum values read per parameter; longer lists would outweigh all other text.
const MAX_ENUM_VALUES: usize = 20;
/// Levels of nested parameters whose enum values are read.
const MAX_ENUM_DEPTH: usize = 3;
/// Fields read per result: those of large results would outweigh all other text.
const MAX_RESULT_NAMES: usize = 12;
/// Levels of a result whose fields are read. A third one found less.
const MAX_RESULT_DEPTH: usize = 2;
/// Texts read of a tool's examples, and bytes of each.
const MAX_EXAMPLE_TEXTS: usize = 20;
const MAX_EXAMPLE_BYTES: usize = 100;

/// The searched fields of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The name within its server, without the kind of an item that is no tool.
    Name,
    /// The server; empty for a tool without one.
    Server,
    /// The title, for people, and the owner's aliases; empty where there are none.
    Title,
    /// The shown description, of at most [`MAX_DESCRIPTION_BYTES`](crate::tool::MAX_DESCRIPTION_BYTES).
    Description,
    /// Names of the parameters.
    ParameterNames,
    /// Descriptions of the parameters.
    ParameterDescriptions,
    /// Values of enumerated parameters.
    EnumValues,
    /// Tags.
    Tags,
    /// Names of the result's fields, the outermost first.
    ResultNames,
    /// Texts in the examples of arguments.
    Examples,
}

impl Field {
    /// Every field, in the order of [`Weights`].
    pub const ALL: [Field; 10] = [
        Field::Name,
        Field::Server,
        Field::Title,
        Field::Description,
        Field::ParameterNames,
        Field::ParameterDescriptions,
        Field::EnumValues,
        Field::Tags,
        Field::ResultNames,
        Field::Examples,
    ];

    /// The field's name in explanations and settings.
    pub fn name(self) -> &'static str {
        match self {
            Field::Name => "name",
            Field::Server => "server",
            Field::Title => "title",
            Field::Description => "description",
            Field::ParameterNames => "parameter_names",
            Field::ParameterDescriptions => "parameter_descriptions",
            Field::EnumValues => "enum_values",
            Field::Tags => "tags",
            Field::ResultNames => "result_names",
            Field::Examples => "examples",
        }
    }
}

/// The weight of an occurrence in each field, relative to the description.
///
/// The defaults were found on nine public sets; one weighted field beats a sum of BM25 per field by
/// 2 to 3 points of nDCG@10.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// Weight of the name.
    pub name: f32,
    /// Weight of the server.
    pub server: f32,
    /// Weight of the title.
    pub title: f32,
    /// Weight of the description.
    pub description: f32,
    /// Weight of the parameter names.
    pub parameter_names: f32,
    /// Weight of the parameter descriptions.
    pub parameter_descriptions: f32,
    /// Weight of the enum values.
    pub enum_values: f32,
    /// Weight of the tags.
    pub tags: f32,
    /// Weight of the names of the result's fields.
    pub result_names: f32,
    /// Weight of the examples of arguments.
    pub examples: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Weights {
            name: 2.5,
            // The server's name is worth 1.7 points of nDCG@10 on average, and 6 on aws_ops.
            server: 2.5,
            title: 1.0,
            description: 1.0,
            // Parameters as fields are worth 3 points on average and 11 where descriptions are
            // empty; enum values .3.
            parameter_names: 0.5,
            parameter_descriptions: 0.4,
            enum_values: 0.4,
            tags: 0.5,
            // Names of results are worth .8 points of words alone, over twelve real catalogs.
            result_names: 0.4,
            examples: 0.4,
        }
    }
}

impl Weights {
    /// The weight of one field.
    pub fn of(&self, field: Field) -> f32 {
        match field {
            Field::Name => self.name,
            Field::Server => self.server,
            Field::Title => self.title,
            Field::Description => self.description,
            Field::ParameterNames => self.parameter_names,
            Field::ParameterDescriptions => self.parameter_descriptions,
            Field::EnumValues => self.enum_values,
            Field::Tags => self.tags,
            Field::ResultNames => self.result_names,
            Field::Examples => self.examples,
        }
    }
}

/// The text of one field; may be empty.
pub fn field_text(tool: &Tool, field: Field) -> String {
    match field {
        Field::Name => tool.bare_name().to_owned(),
        Field::Server => tool.id.server().to_owned(),
        Field::Title => {
            let aliases = tool.owner_texts.aliases().iter();
            joined(tool.title.iter().chain(aliases).map(String::as_str))
        }
        Field::Description => tool.shown_description().to_owned(),
        Field::ParameterNames => {
            joined(properties(&tool.input_schema).map(|(name, _)| name.as_str()))
        }
        Field::ParameterDescriptions => {
            joined(properties(&tool.input_schema).filter_map(|(_, schema)| description(schema)))
        }
        Field::EnumValues => enum_values(&tool.input_schema).join(" "),
        Field::Tags => tool.tags.join(" "),
        Field::ResultNames => joined(result_names(tool)),
        Field::Examples => joined(example_texts(tool)),
    }
}

/// The beginning of a field's text, at most so many bytes of it, which bounds the time a large tool
/// takes.
pub fn field_head(tool: &Tool, field: Field, max_bytes: usize) -> String {
    // Cut before it is copied: a description may have 16 MiB.
    if field == Field::Description {
        let description = tool.shown_description();
        return description[..description.floor_char_boundary(max_bytes)].to_owned();
    }
    let mut text = field_text(tool, field);
    text.truncate(text.floor_char_boundary(max_bytes));
    text
}

/// A text of a tool that is embedded. An embedder chooses its views; the similarity of a tool to a
/// request is that of its nearest view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Server, name, description and names of parameters.
    Everything,
    /// Server and name, to which short requests are more similar.
    Name,
    /// The description alone; server and name where it is empty.
    Description,
}

/// Number of views.
pub const VIEWS: usize = 3;

/// The texts of a tool that are embedded, in the order of [`View`].
pub fn views(tool: &Tool) -> [String; VIEWS] {
    let name = text::spaced(tool.bare_name());
    let full_name = joined([text::spaced(tool.id.server()).as_str(), name.as_str()]);
    let parameters: Vec<String> = properties(&tool.input_schema)
        .map(|(name, _)| text::spaced(name))
        .collect();
    // Names first: a transformer reads 128 tokens.
    let shown = tool.shown_description();
    let all = format!("{full_name}: {shown} {}", parameters.join(" "));
    // Never an empty text, so that every tool has all views and a view can be found by its number.
    let description = if shown.is_empty() { &full_name } else { shown }.to_owned();
    [all.trim().to_owned(), full_name, description]
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

fn properties(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let declared = schema.get("properties").and_then(Value::as_object);
    declared.into_iter().flatten()
}

fn description(schema: &Value) -> Option<&str> {
    schema.get("description")?.as_str()
}

fn enum_values(schema: &Map<String, Value>) -> Vec<String> {
    let mut values = Vec::new();
    let mut level: Vec<&Map<String, Value>> = vec![schema];
    for _ in 0..MAX_ENUM_DEPTH {
        let parameters: Vec<&Map<String, Value>> = level
            .into_iter()
            .flat_map(properties)
            .filter_map(|(_, parameter)| parameter.as_object())
            .collect();
        for parameter in &parameters {
            let listed = parameter.get("enum").and_then(Value::as_array);
            for value in listed.into_iter().flatten().take(MAX_ENUM_VALUES) {
                values.push(match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
            }
        }
        level = parameters;
    }
    values
}

/// The names of the result's fields, level by level, each once.
fn result_names(tool: &Tool) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let mut level: Vec<&Map<String, Value>> = tool.output_schema.iter().collect();
    for _ in 0..MAX_RESULT_DEPTH {
        let mut below = Vec::new();
        for schema in level {
            for (name, field) in properties(schema) {
                if names.len() == MAX_RESULT_NAMES {
                    return names;
                }
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
                below.extend(field.as_object());
            }
            below.extend(schema.get("items").and_then(Value::as_object));
        }
        level = below;
    }
    names
}

/// The texts in a tool's examples of arguments, as Anthropic's `input_examples` has them.
fn example_texts(tool: &Tool) -> Vec<&str> {
    let mut texts = Vec::new();
    let mut level: Vec<&Value> = tool.metadata.get("input_examples").into_iter().collect();
    while !level.is_empty() {
        let mut below = Vec::new();
        for value in level {
            match value {
                Value::String(_) if texts.len() == MAX_EXAMPLE_TEXTS => return texts,
                Value::String(text) => {
                    texts.push(&text[..text.floor_char_boundary(MAX_EXAMPLE_BYTES)]);
                }
                Value::Array(values) => below.extend(values),
                Value::Object(fields) => below.extend(fields.values()),
                _ => {}
            }
        }
        level = below;
    }
    texts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn weather() -> Tool {
        serde_json::from_value(json!({
            "server": "met", "name": "getForecast", "description": "Weather to come.", "tags": ["outdoor"],
            "inputSchema": {"type": "object", "properties": {
                "placeName": {"type": "string", "description": "A town."},
                "options": {"type": "object", "properties": {"unit": {"enum": ["metric", "imperial", 3]}}},
            }},
            "outputSchema": {"type": "object", "properties": {
                "days": {"type": "object", "properties": {"high": {"properties": {"unit": {}}}}},
                "station": {"properties": {"name": {}, "days": {}}},
            }},
            "metadata": {"input_examples": [
                {"placeName": "Oslo", "options": {"unit": "metric"}, "hours": 3}, {"placeName": "Bergen"},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn every_field_is_read() {
        let text = |field| field_text(&weather(), field);
        assert_eq!(text(Field::Name), "getForecast");
        assert_eq!(text(Field::Server), "met");
        assert_eq!(text(Field::Description), "Weather to come.");
        assert_eq!(text(Field::ParameterNames), "placeName options");
        assert_eq!(text(Field::ParameterDescriptions), "A town.");
        assert_eq!(text(Field::EnumValues), "metric imperial 3");
        assert_eq!(text(Field::Tags), "outdoor");
        assert_eq!(text(Field::ResultNames), "days station high name");
        assert_eq!(text(Field::Examples), "Oslo Bergen metric");
    }

    #[test]
    fn views_read_as_text() {
        let all = "met get Forecast: Weather to come. place Name options";
        assert_eq!(
            views(&weather()),
            [all, "met get Forecast", "Weather to come."]
        );
        let bare = Tool {
            description: String::new(),
            ..weather()
        };
        assert_eq!(views(&bare)[View::Description as usize], "met get Forecast");
    }
}
