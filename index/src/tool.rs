//! A tool: its id, description, schemas and hints.
//!
//! Its fields are public; [`Writer::upsert`](crate::Writer::upsert) checks them before a tool is stored.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::schema;

/// Longest accepted tool name, in bytes. Names are identifiers; the longest in 33,000 public tools
/// has 132.
pub const MAX_NAME_BYTES: usize = 512;
/// Longest accepted description, in bytes. A longer one is an error; it is not cut, since a cut
/// description is no longer the tool's.
pub const MAX_DESCRIPTION_BYTES: usize = 16 << 20;
/// Deepest accepted nesting of a schema. serde_json itself stops at 128.
pub const MAX_SCHEMA_DEPTH: usize = 100;

/// Identifies a tool within a catalog: `server/name`, or `name` alone for a tool without a server.
///
/// The text is the identity: where a server or a name contains `/`, an id read back with
/// [`ToolId::parse`] is split elsewhere and still equal. Ordered by its text, which is the
/// tie-break of every ranked list.
#[derive(Clone)]
pub struct ToolId {
    text: Box<str>,
    /// Bytes of `text` that are the server; 0 for a tool without one.
    server_len: usize,
}

impl ToolId {
    /// Joins a server (may be empty) and a name.
    ///
    /// # Errors
    /// [`Error::InvalidTool`] for an empty or overlong name, or control characters.
    pub fn new(server: &str, name: &str) -> Result<Self> {
        if let Some(reason) = refusal(server, name) {
            return Err(Error::invalid_tool(format!("{name:?}"), reason));
        }
        let text = if server.is_empty() {
            name.into()
        } else {
            format!("{server}/{name}").into()
        };
        Ok(ToolId {
            text,
            server_len: server.len(),
        })
    }

    /// Reads `server/name`, split at the first `/`; without one the whole text is the name.
    ///
    /// # Errors
    /// As [`ToolId::new`].
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once('/') {
            // `/name` has no server, so its slash belongs to the name.
            Some((server, name)) if !server.is_empty() => ToolId::new(server, name),
            _ => ToolId::new("", text),
        }
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The server, empty for a tool without one.
    pub fn server(&self) -> &str {
        &self.text[..self.server_len]
    }

    /// The name within its server.
    pub fn name(&self) -> &str {
        match self.server_len {
            0 => &self.text,
            len => &self.text[len + 1..],
        }
    }
}

impl PartialEq for ToolId {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for ToolId {}

impl PartialOrd for ToolId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ToolId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for ToolId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl Serialize for ToolId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The MCP annotation hints. `None` means that the tool does not declare the hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// The tool does not change its environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Calling it twice with the same arguments has the same effect as once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches beyond its own system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// What the owner of a catalog says of a tool beside its definition: see [`crate::OwnerWords`].
///
/// It is no part of the definition: neither written with it nor compared.
#[derive(Clone, Debug, Default)]
pub struct OwnerTexts(Option<Arc<Texts>>);

#[derive(Debug)]
struct Texts {
    description: Option<String>,
    aliases: Vec<String>,
}

impl OwnerTexts {
    /// A description to show in place of the tool's own, and other names.
    pub fn new(description: Option<String>, aliases: Vec<String>) -> Self {
        // Most tools have neither, and should take no memory for it.
        if description.is_none() && aliases.is_empty() {
            return OwnerTexts(None);
        }
        OwnerTexts(Some(Arc::new(Texts {
            description,
            aliases,
        })))
    }

    /// What is shown in place of the tool's description.
    pub fn description(&self) -> Option<&str> {
        self.0.as_ref()?.description.as_deref()
    }

    /// Other names of the tool.
    pub fn aliases(&self) -> &[String] {
        match &self.0 {
            Some(texts) => &texts.aliases,
            None => &[],
        }
    }

    /// True where the owner says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl PartialEq for OwnerTexts {
    /// Always true, so that tools are equal if their definitions are.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What filters read of a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    pub(crate) tags: Box<[String]>,
    pub(crate) annotations: Annotations,
}

impl Labels {
    pub(crate) fn of(tool: &Tool) -> Self {
        Labels {
            tags: tool.tags.clone().into(),
            annotations: tool.annotations,
        }
    }
}

/// The key of a tool's metadata that holds its flags.
pub(crate) const FLAGS: &str = "toolscout_flags";

/// The definition of a tool, or of another [`Kind`] of item.
///
/// - Guarantee: every tool of a catalog is valid, as [`Writer::upsert`](crate::Writer::upsert)
///   checks it by [`Tool::validate`]. One whose fields were set by hand may not be.
/// - Cost: a clone copies all texts and schemas; searches share tools by [`Arc`].
/// - Failure: [`Error::InvalidTool`] from [`Tool::new`], from `validate` and when read from JSON.
///
/// Its JSON, which is also its stored form, is MCP's with `server`, `tags` and `metadata` added. Where it is
/// no tool, `kind` is the first field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawTool", into = "RawTool")]
pub struct Tool {
    /// What it is; most items of a catalog are tools.
    pub kind: Kind,
    /// Server and name.
    pub id: ToolId,
    /// A name to show to people.
    pub title: Option<String>,
    /// What the tool does; may be empty.
    pub description: String,
    /// JSON Schema of the arguments: always an object.
    pub input_schema: Map<String, Value>,
    /// JSON Schema of the structured result, where declared.
    pub output_schema: Option<Map<String, Value>>,
    /// Hints about effects.
    pub annotations: Annotations,
    /// Labels to search and filter by.
    pub tags: Vec<String>,
    /// All other fields of the tool, stored so that an export loses nothing.
    pub metadata: Map<String, Value>,
    /// What the owner of the catalog says of it; empty for a tool that was not read from a catalog.
    pub owner_texts: OwnerTexts,
}

impl Tool {
    /// A tool with this server (may be empty) and name, an empty description and a schema without
    /// parameters.
    ///
    /// # Errors
    /// As [`ToolId::new`].
    pub fn new(server: &str, name: &str) -> Result<Self> {
        Ok(Tool::of_id(ToolId::new(server, name)?))
    }

    /// As [`Tool::new`], with this id.
    pub(crate) fn of_id(id: ToolId) -> Self {
        Tool {
            kind: Kind::Tool,
            id,
            title: None,
            description: String::new(),
            input_schema: empty_schema(),
            output_schema: None,
            annotations: Annotations::default(),
            tags: Vec::new(),
            metadata: Map::new(),
            owner_texts: OwnerTexts::default(),
        }
    }

    /// The same tool with this description.
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The same item as one of this kind. [`Kind::item_name`] makes the name that it should have.
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The name within its server as its source gives it: for a tool that of its id, for all others
    /// without the kind before it.
    pub fn bare_name(&self) -> &str {
        self.kind.bare_name(self.id.name())
    }

    /// Whether it takes any arguments.
    pub fn has_parameters(&self) -> bool {
        let properties = self.input_schema.get("properties");
        properties
            .and_then(Value::as_object)
            .is_some_and(|properties| !properties.is_empty())
    }

    /// What is suspicious about it until a person has decided. Empty for most tools. A search puts a
    /// flagged tool behind all others that match.
    pub fn flags(&self) -> Vec<String> {
        let flags = self.metadata.get(FLAGS).and_then(Value::as_array);
        let flags = flags.into_iter().flatten().filter_map(Value::as_str);
        flags.map(str::to_owned).collect()
    }

    /// The same tool with these flags alone.
    pub fn with_flags(mut self, flags: impl IntoIterator<Item = String>) -> Self {
        let flags: Vec<Value> = flags.into_iter().map(Value::from).collect();
        self.metadata.shift_remove(FLAGS);
        if !flags.is_empty() {
            self.metadata.insert(FLAGS.to_owned(), flags.into());
        }
        self
    }

    /// The description for models and people: the owner's, or else the tool's own.
    pub fn shown_description(&self) -> &str {
        self.owner_texts.description().unwrap_or(&self.description)
    }

    /// The schema of the arguments for models, their providers and MCP clients: JSON Schema 2020-12 with an
    /// object at the root. Providers refuse a whole request for one schema that is not.
    ///
    /// Where the root has `anyOf`, `oneOf` or `allOf`, their properties are properties of the object, and
    /// its description says which go together.
    pub fn shown_input_schema(&self) -> Map<String, Value> {
        schema::of_arguments(&self.input_schema)
    }

    /// The schema of the result for MCP clients, of which the same is true. `None` also for a result that
    /// is no object, which MCP does not have.
    pub fn shown_output_schema(&self) -> Option<Map<String, Value>> {
        self.output_schema.as_ref().and_then(schema::of_result)
    }

    /// The schema by which arguments are checked: it accepts what the tool's own does, in JSON Schema
    /// 2020-12.
    pub fn checked_schema(&self) -> Map<String, Value> {
        schema::modern(&self.input_schema)
    }

    /// Checks sizes, NUL characters and schema depth, which the types do not.
    ///
    /// # Errors
    /// [`Error::InvalidTool`] naming the tool and the limit.
    pub fn validate(&self) -> Result<()> {
        match self.refusal() {
            Some(reason) => Err(Error::invalid_tool(self.id.to_string(), reason)),
            None => Ok(()),
        }
    }

    /// Why the tool is not accepted; `None` for a valid one.
    fn refusal(&self) -> Option<String> {
        // Only so can none of them replace a tool.
        let bare = self.bare_name();
        if !self.kind.is_tool() && (bare.is_empty() || bare.len() == self.id.name().len()) {
            let kind = self.kind;
            return Some(format!(
                "it is of the kind {kind}, so its name must begin with `{kind}:`"
            ));
        }
        let bytes = self.description.len();
        if bytes > MAX_DESCRIPTION_BYTES {
            return Some(format!(
                "its description has {bytes} bytes, {MAX_DESCRIPTION_BYTES} are allowed"
            ));
        }
        let schemas = std::iter::once(&self.input_schema).chain(&self.output_schema);
        for value in schemas.flat_map(Map::values) {
            if deeper_than(value, MAX_SCHEMA_DEPTH) {
                return Some(format!(
                    "its schema is nested deeper than {MAX_SCHEMA_DEPTH} levels"
                ));
            }
        }
        None
    }
}

/// Why there is no id of this server and name; `None` where there is one.
fn refusal(server: &str, name: &str) -> Option<String> {
    if name.trim().is_empty() {
        return Some("its name is empty; every tool needs a `name`".into());
    }
    let bytes = server.len() + name.len();
    if bytes > MAX_NAME_BYTES {
        return Some(format!(
            "server and name have {bytes} bytes, {MAX_NAME_BYTES} are allowed"
        ));
    }
    // They could forge lines in logs and on terminals.
    let control = server
        .chars()
        .chain(name.chars())
        .find(|c| c.is_control())?;
    Some(format!(
        "server or name contains the control character {control:?}; remove it"
    ))
}

/// The schema of a tool that takes no arguments.
pub(crate) fn empty_schema() -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), Value::Object(Map::new()));
    schema
}

fn deeper_than(value: &Value, levels: usize) -> bool {
    let mut children: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => return false,
    };
    // Stops at the limit, so that no schema can exhaust the stack.
    levels == 0 || children.any(|child| deeper_than(child, levels - 1))
}

/// The serialised form, unchecked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawTool {
    // The first field, where `Kind::of_json` looks for it. Tools are stored without it, as ever.
    #[serde(default, skip_serializing_if = "Kind::is_tool")]
    kind: Kind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    server: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default = "empty_schema")]
    input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "is_default")]
    annotations: Annotations,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
}

fn is_default(annotations: &Annotations) -> bool {
    *annotations == Annotations::default()
}

impl TryFrom<RawTool> for Tool {
    type Error = Error;

    fn try_from(raw: RawTool) -> Result<Self> {
        let tool = Tool {
            kind: raw.kind,
            id: ToolId::new(&raw.server, &raw.name)?,
            title: raw.title,
            description: raw.description,
            input_schema: raw.input_schema,
            output_schema: raw.output_schema,
            annotations: raw.annotations,
            tags: raw.tags,
            metadata: raw.metadata,
            owner_texts: OwnerTexts::default(),
        };
        tool.validate()?;
        Ok(tool)
    }
}

impl From<Tool> for RawTool {
    fn from(tool: Tool) -> Self {
        RawTool {
            kind: tool.kind,
            server: tool.id.server().to_owned(),
            name: tool.id.name().to_owned(),
            title: tool.title,
            description: tool.description,
            input_schema: tool.input_schema,
            output_schema: tool.output_schema,
            annotations: tool.annotations,
            tags: tool.tags,
            metadata: tool.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_splits_at_its_first_slash() {
        let id = ToolId::parse("github/issues/create").unwrap();
        assert_eq!(
            (id.server(), id.name(), id.as_str()),
            ("github", "issues/create", "github/issues/create")
        );
        let bare = ToolId::parse("find_symbol").unwrap();
        assert_eq!((bare.server(), bare.name()), ("", "find_symbol"));
    }

    #[test]
    fn a_server_with_a_slash_is_kept_and_equals_its_parsed_text() {
        let id = ToolId::new("io.example/mail", "send").unwrap();
        assert_eq!((id.server(), id.name()), ("io.example/mail", "send"));
        assert_eq!(ToolId::parse(id.as_str()).unwrap(), id);
    }

    #[test]
    fn bad_ids_are_named() {
        for (server, name, expected) in [
            ("", " ", "name is empty"),
            ("", "a\0b", "control character"),
            ("", &"x".repeat(600), "600 bytes"),
        ] {
            let message = ToolId::new(server, name).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_schema_of_fifty_levels_is_kept_and_one_of_two_hundred_refused() {
        let nested = |levels: usize| {
            (0..levels).fold(
                Value::Null,
                |inner, _| serde_json::json!({ "properties": inner }),
            )
        };
        let mut tool = Tool::new("s", "deep").unwrap();
        tool.input_schema.insert("properties".into(), nested(50));
        assert!(tool.validate().is_ok());
        tool.input_schema.insert("properties".into(), nested(200));
        assert!(
            tool.validate()
                .unwrap_err()
                .to_string()
                .contains("100 levels")
        );
    }
}
