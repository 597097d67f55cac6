//! One tool from one flat object. The formats differ in the field that holds the schema; the rest
//! is shared.

use serde_json::{Map, Value};

use super::{Format, ReadOptions, Scope, cut, mcp};
use crate::error::{Error, Result};
use crate::tool::{Tool, empty_schema};

/// The position and context of an item, for errors.
pub(super) struct Place<'a> {
    /// For an item without a name.
    pub position: String,
    pub scope: &'a Scope,
    pub options: &'a ReadOptions,
}

/// Builds a tool from an object's fields; unknown ones become metadata.
///
/// # Errors
/// [`Error::InvalidTool`] with the tool's name or position, and the field.
pub(super) fn assemble(fields: Map<String, Value>, format: Format, place: &Place) -> Result<Tool> {
    let mut fields = Fields::new(fields, &place.position)?;
    // What an export has put into `_meta` goes first, so that a tool comes back under the id it
    // had.
    let origin = mcp::Origin::take(&mut fields.map);
    let stated_server = fields.text("server")?.filter(|server| !server.is_empty());
    let server = server(place, origin.server.or(stated_server));
    let mut tool = Tool::new(&server, origin.name.as_deref().unwrap_or(&fields.tool))?;
    tool.title = fields.text("title")?;
    tool.description = fields.text("description")?.unwrap_or_default();
    tool.input_schema = fields
        .object(schema_field(format))?
        .unwrap_or_else(empty_schema);
    tool.output_schema = fields.object("outputSchema")?;
    tool.tags = fields.texts("tags")?;
    tool.tags.extend(origin.tags);
    mcp::take_annotations(&mut fields, &mut tool)?;
    // Answers of the program have the id beside server and name. Any other `id` is the tool's own.
    if fields.map.get("id").and_then(Value::as_str) == Some(tool.id.as_str()) {
        fields.map.shift_remove("id");
    }
    // Later ones win: the item's own fields come last.
    tool.metadata.extend(origin.metadata);
    tool.metadata
        .extend(fields.object("metadata")?.unwrap_or_default());
    tool.metadata.extend(fields.map);
    if !place.scope.namespace.is_empty() {
        tool.metadata.insert(
            "namespace".into(),
            Value::Object((*place.scope.namespace).clone()),
        );
    }
    tool.validate()?;
    Ok(tool)
}

/// The error for a list entry that is not a tool.
pub(super) fn not_a_tool(position: &str, text: &str) -> Error {
    let reason = match text.starts_with('{') {
        true => "it has no name; every tool needs a `name`".to_owned(),
        false => format!("it is {} where an object was expected", cut(text, 80)),
    };
    Error::invalid_tool(position, reason)
}

fn server(place: &Place, stated: Option<String>) -> String {
    let Place { options, scope, .. } = place;
    // An override first, a fallback last; between them the nearer declaration.
    let candidates = [
        options.server.as_deref(),
        stated.as_deref(),
        scope.server.as_deref(),
        options.default_server.as_deref(),
    ];
    candidates
        .into_iter()
        .flatten()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn schema_field(format: Format) -> &'static str {
    match format {
        Format::Openai | Format::OpenaiResponses => "parameters",
        Format::Anthropic => "input_schema",
        Format::Mcp | Format::Native | Format::OpenApi => "inputSchema",
    }
}

/// An object's fields, removed and checked one by one; `null` counts as missing.
pub(super) struct Fields {
    pub map: Map<String, Value>,
    /// The name as it is in the input.
    tool: String,
}

impl Fields {
    fn new(mut map: Map<String, Value>, position: &str) -> Result<Self> {
        match map.shift_remove("name") {
            Some(Value::String(tool)) if !tool.trim().is_empty() => Ok(Fields { map, tool }),
            None | Some(Value::Null | Value::String(_)) => Err(not_a_tool(position, "{")),
            Some(other) => {
                let reason = format!(
                    "its `name` is {}; it must be a string",
                    cut(&other.to_string(), 80)
                );
                Err(Error::invalid_tool(position, reason))
            }
        }
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, &other, "a string")),
        }
    }

    pub fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.wrong(field, &other, "an object")),
        }
    }

    fn texts(&mut self, field: &str) -> Result<Vec<String>> {
        let Some(value) = self.take(field) else {
            return Ok(Vec::new());
        };
        serde_json::from_value(value.clone())
            .map_err(|_| self.wrong(field, &value, "a list of strings"))
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        self.map
            // Keeps the order of the other fields, in which an export writes them.
            .shift_remove(field)
            .filter(|value| !value.is_null())
    }

    pub fn wrong(&self, field: &str, value: &Value, expected: &str) -> Error {
        let reason = format!(
            "its `{field}` is {}; it must be {expected}",
            cut(&value.to_string(), 80)
        );
        Error::invalid_tool(format!("{:?}", self.tool), reason)
    }
}
