//! One tool from one flat object. The formats differ in the field that holds the schema; the rest
//! is shared.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::{Format, ReadOptions, Scope, mcp};
use crate::error::Result;
use crate::kind::Kind;
use crate::tool::{Tool, empty_schema};

/// The position and context of an item, for errors.
pub(super) struct Place<'a> {
    /// For an item without a name.
    pub position: String,
    pub scope: &'a Scope<'a>,
    pub options: &'a ReadOptions,
}

/// Builds a tool from an object's fields; unknown ones become metadata.
///
/// # Errors
/// [`crate::Error::InvalidTool`] with the tool's name or position, and the field.
pub(super) fn assemble(fields: Map<String, Value>, format: Format, place: &Place) -> Result<Tool> {
    let mut fields = Fields::new(fields, &place.position)?;
    // What an export has put into `_meta` goes first, so that a tool comes back under the id it
    // had.
    let origin = mcp::Origin::take(&mut fields.map);
    let stated_server = fields.text("server")?.filter(|server| !server.is_empty());
    let server = server(place, origin.server.or(stated_server));
    let mut tool = Tool::new(&server, origin.name.as_deref().unwrap_or(&fields.name))?;
    tool.kind = kind(&mut fields, format);
    tool.title = fields.text("title")?;
    tool.description = fields.text("description")?.unwrap_or_default();
    tool.input_schema = fields
        .object(schema_field(format))?
        .unwrap_or_else(empty_schema);
    tool.output_schema = fields.object("outputSchema")?;
    tool.input_schema = origin.input_schema.unwrap_or(tool.input_schema);
    tool.output_schema = origin.output_schema.or(tool.output_schema);
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

/// What the item is. A `kind` that is none of ours is a field like any other, and so is one in the formats of
/// others.
fn kind(fields: &mut Fields, format: Format) -> Kind {
    if format != Format::Native {
        return Kind::Tool;
    }
    let stated = fields.map.get("kind").and_then(Value::as_str);
    let Some(kind) = stated.and_then(|name| name.parse().ok()) else {
        return Kind::Tool;
    };
    fields.map.shift_remove("kind");
    kind
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
    let nearest = candidates.into_iter().flatten().next();
    nearest.unwrap_or_default().to_owned()
}

fn schema_field(format: Format) -> &'static str {
    match format {
        Format::Openai | Format::OpenaiResponses => "parameters",
        Format::Anthropic => "input_schema",
        // The last two have no schema.
        Format::Mcp | Format::Native | Format::OpenApi | Format::Skill | Format::AgentCard => {
            "inputSchema"
        }
    }
}
