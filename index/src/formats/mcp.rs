//! Model Context Protocol tools. Fields that MCP lacks are stored in `_meta`, so that nothing is
//! lost.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::fields::Fields;
use crate::error::Result;
use crate::tool::{Annotations, Tool};

/// The key in `_meta` for fields that MCP lacks. The specification leaves names without a prefix to
/// anyone.
const META_KEY: &str = "toolscout";

/// Metadata with these names cannot be written beside MCP's fields: it would be read as something
/// else.
const RESERVED: [&str; 22] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "input_schema",
    "parameters",
    "function",
    "outputSchema",
    "annotations",
    "_meta",
    "server",
    "tags",
    "metadata",
    "id",
    "type",
    "tools",
    "functions",
    "result",
    "jsonrpc",
    "mcpServers",
    "openapi",
    "swagger",
];

// In the order of the fields of `Annotations`, which `take_annotations` reads by number.
const HINTS: [&str; 4] = [
    "readOnlyHint",
    "destructiveHint",
    "idempotentHint",
    "openWorldHint",
];

/// A tool as in a `tools/list` result. Metadata is written where it was read, the rest goes to
/// `_meta.toolscout`.
pub(super) fn tool(tool: &Tool, name: &str) -> Value {
    let mut fields = Map::new();
    fields.insert("name".into(), name.into());
    if let Some(title) = &tool.title {
        fields.insert("title".into(), title.as_str().into());
    }
    fields.insert("description".into(), tool.shown_description().into());
    let mut origin = Origin::of(tool, name);
    let input_schema = tool.shown_input_schema();
    if input_schema != tool.input_schema {
        origin.input_schema = Some(tool.input_schema.clone());
    }
    fields.insert("inputSchema".into(), input_schema.into());
    let output_schema = tool.shown_output_schema();
    if output_schema != tool.output_schema {
        origin.output_schema.clone_from(&tool.output_schema);
    }
    if let Some(schema) = output_schema {
        fields.insert("outputSchema".into(), schema.into());
    }
    let mut annotations = hints(&tool.annotations);
    let mut meta = Map::new();
    for (key, value) in &tool.metadata {
        match (key.as_str(), value) {
            // Only what cannot be taken for a hint when it is read back.
            ("annotations", Value::Object(more)) if are_annotations(more) => {
                annotations.extend(more.clone())
            }
            ("_meta", Value::Object(more)) if is_meta(more) => meta.extend(more.clone()),
            (key, value) if RESERVED.contains(&key) => {
                drop(origin.metadata.insert(key.into(), value.clone()))
            }
            (key, value) => drop(fields.insert(key.into(), value.clone())),
        }
    }
    if !annotations.is_empty() {
        fields.insert("annotations".into(), annotations.into());
    }
    if origin != Origin::default() {
        meta.insert(META_KEY.into(), origin.to_value());
    }
    if !meta.is_empty() {
        fields.insert("_meta".into(), meta.into());
    }
    Value::Object(fields)
}

/// The fields of a tool that its MCP form cannot hold.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
// Unknown fields are refused, so that a foreign object under the same key is not taken for ours.
pub(super) struct Origin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The name, where it differs from the emitted one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The schemas, where others are written because clients would refuse these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
    /// The part of the metadata whose keys MCP uses itself.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Origin {
    fn of(tool: &Tool, name: &str) -> Self {
        let mut origin = Origin {
            tags: tool.tags.clone(),
            ..Origin::default()
        };
        if !tool.id.server().is_empty() {
            origin.server = Some(tool.id.server().to_owned());
        }
        if tool.id.name() != name {
            origin.name = Some(tool.id.name().to_owned());
        }
        origin
    }

    /// Removes it from a tool's fields. A foreign value under the same key stays.
    pub fn take(fields: &mut Map<String, Value>) -> Self {
        let Some(Value::Object(meta)) = fields.get_mut("_meta") else {
            return Origin::default();
        };
        let Some(Ok(origin)) = meta.get(META_KEY).cloned().map(serde_json::from_value) else {
            return Origin::default();
        };
        meta.shift_remove(META_KEY);
        if meta.is_empty() {
            fields.shift_remove("_meta");
        }
        origin
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("strings and JSON values serialise")
    }
}

/// Reads the hints; other annotations become metadata. Their `title` is used when the tool has
/// none.
///
/// # Errors
/// [`crate::Error::InvalidTool`] for a hint that is not a boolean.
pub(super) fn take_annotations(fields: &mut Fields, tool: &mut Tool) -> Result<()> {
    let Some(mut annotations) = fields.object("annotations")? else {
        return Ok(());
    };
    let mut hint = |name: &str| match annotations.shift_remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(other) => Err(fields.wrong(&format!("annotations.{name}"), &other, "true or false")),
    };
    tool.annotations = Annotations {
        read_only_hint: hint(HINTS[0])?,
        destructive_hint: hint(HINTS[1])?,
        idempotent_hint: hint(HINTS[2])?,
        open_world_hint: hint(HINTS[3])?,
    };
    if tool.title.is_none() {
        tool.title = annotations
            .get("title")
            .and_then(Value::as_str)
            .map(str::to_owned);
    }
    if !annotations.is_empty() {
        tool.metadata
            .insert("annotations".into(), annotations.into());
    }
    Ok(())
}

fn hints(annotations: &Annotations) -> Map<String, Value> {
    match serde_json::to_value(annotations) {
        Ok(Value::Object(hints)) => hints,
        _ => Map::new(),
    }
}

fn are_annotations(fields: &Map<String, Value>) -> bool {
    !fields.is_empty() && !HINTS.iter().any(|hint| fields.contains_key(*hint))
}

fn is_meta(fields: &Map<String, Value>) -> bool {
    !fields.is_empty() && !fields.contains_key(META_KEY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Emit, Format, ReadOptions, emit, parse};

    #[test]
    fn a_tools_list_comes_back_as_it_was() {
        let input = json!({"tools": [{
            "name": "search", "title": "Search", "description": "Searches.",
            "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}},
            "outputSchema": {"type": "object"},
            "icons": [{"src": "a.png"}], "execution": {"taskSupport": "optional"}, "x-vendor": 1,
            "annotations": {"readOnlyHint": true, "openWorldHint": false, "vendorHint": 3},
            "_meta": {"example.com/v": 1}
        }]});
        let parsed = parse(input.to_string().as_bytes(), &ReadOptions::default()).unwrap();
        assert_eq!(parsed.format, Format::Mcp);
        assert_eq!(parsed.tools[0].annotations.read_only_hint, Some(true));
        assert_eq!(emit(&[&parsed.tools[0]], Emit::Mcp), input);
    }

    #[test]
    fn the_title_of_the_annotations_is_used_where_there_is_no_other() {
        let input = br#"{"name": "a", "annotations": {"title": "An A"}}"#;
        let parsed = parse(input, &ReadOptions::default()).unwrap();
        assert_eq!(parsed.tools[0].title.as_deref(), Some("An A"));
    }

    #[test]
    fn a_hint_that_is_no_boolean_is_named() {
        let input = br#"[{"name": "a", "annotations": {"readOnlyHint": "yes"}}]"#;
        let parsed = parse(input, &ReadOptions::default()).unwrap();
        let message = parsed.skipped[0].error.to_string();
        assert!(
            message.contains("annotations.readOnlyHint") && message.contains("\"a\""),
            "{message}"
        );
    }
}
