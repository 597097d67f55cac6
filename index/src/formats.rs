//! Reading and writing tool definitions in every supported format. Pure functions over bytes and
//! values.
//!
//! [`parse`] detects the format and returns [`Tool`]s together with the items it skipped. [`emit`]
//! writes a list, [`emit_tool`] a single tool. Fields that toolscout does not use are stored in
//! [`Tool::metadata`] and written back by the formats that define them.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::schema;
use crate::tool::{Tool, ToolId};

mod agent_card;
mod anthropic;
mod discovery;
mod fields;
mod foreign;
mod input;
mod item;
mod mcp;
mod model_name;
mod openai;
mod openapi;
mod other_names;
mod postman;
mod signature;
mod skill;

pub use agent_card::{ADDRESS, CARD};
pub use model_name::{distinct_model_name, is_called, model_name, model_names};
pub use openapi::{BodyKind, OtherFiles, path_matches};
pub use signature::{call_signature, first_sentence, signature};
pub use skill::{
    BODY, FILES, FOLDER, MAX_SKILL_BYTES, MAX_SKILL_FILES, SKILL_FILE, SkillFolder, parse_skill,
};

use foreign::Convertible;
use input::{Budget, Input, Source};
use item::Place;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// OpenAI chat completions: `{"type":"function","function":{…}}`, or the bare function.
    Openai,
    /// OpenAI Responses: `{"type":"function","name":…}`, also inside `{"type":"namespace"}`.
    OpenaiResponses,
    /// Anthropic messages: `input_schema`.
    Anthropic,
    /// Model Context Protocol: `inputSchema`.
    Mcp,
    /// OpenAPI 3.0 to 3.2 or Swagger 2.0, a Postman collection or a Google discovery document; input only.
    #[serde(rename = "openapi")]
    OpenApi,
    /// MCP's fields plus `server`, `tags` or `metadata`: what [`Tool`] serialises to.
    Native,
    /// A `SKILL.md`, by [`parse_skill`]; input only.
    Skill,
    /// The card of an A2A agent; input only.
    AgentCard,
}

impl Format {
    /// Its name in JSON and for [`FromStr`].
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Openai => "openai",
            Format::OpenaiResponses => "openai_responses",
            Format::Anthropic => "anthropic",
            Format::Mcp => "mcp",
            Format::OpenApi => "openapi",
            Format::Native => "native",
            Format::Skill => "skill",
            Format::AgentCard => "agent_card",
        }
    }

    const ALL: [Format; 8] = [
        Format::Openai,
        Format::OpenaiResponses,
        Format::Anthropic,
        Format::Mcp,
        Format::OpenApi,
        Format::Native,
        Format::Skill,
        Format::AgentCard,
    ];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, &Format::ALL, Format::as_str)
    }
}

/// The formats in which tools are written, for models and programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ToolFormat))]
#[serde(rename_all = "snake_case")]
pub enum Emit {
    /// OpenAI chat completions tools.
    Openai,
    /// OpenAI Responses tools, flat.
    OpenaiResponses,
    /// Anthropic tools.
    Anthropic,
    /// Anthropic `tool_reference` blocks, which name deferred tools.
    AnthropicReference,
    /// A Model Context Protocol `tools/list` result. The only format without loss.
    Mcp,
    /// The names for a model, see [`model_name()`].
    Names,
    /// One line a tool, see [`signature()`].
    Signature,
}

impl Emit {
    /// Every format, in the order they are documented.
    pub const ALL: [Emit; 7] = [
        Emit::Openai,
        Emit::OpenaiResponses,
        Emit::Anthropic,
        Emit::AnthropicReference,
        Emit::Mcp,
        Emit::Names,
        Emit::Signature,
    ];

    /// Its name in JSON and for [`FromStr`].
    pub fn as_str(self) -> &'static str {
        match self {
            Emit::Openai => "openai",
            Emit::OpenaiResponses => "openai_responses",
            Emit::Anthropic => "anthropic",
            Emit::AnthropicReference => "anthropic_reference",
            Emit::Mcp => "mcp",
            Emit::Names => "names",
            Emit::Signature => "signature",
        }
    }
}

impl fmt::Display for Emit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Emit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, &Emit::ALL, Emit::as_str)
    }
}

/// How input is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The file, URL or stream, for error messages.
    pub source_name: String,
    /// The server of every tool; overrides the input.
    pub server: Option<String>,
    /// The server of tools for which the input names none.
    pub default_server: Option<String>,
    /// OpenAPI: only operations with one of these tags; empty means all.
    pub include_tags: Vec<String>,
    /// OpenAPI: no operation with one of these tags.
    pub exclude_tags: Vec<String>,
    /// OpenAPI: only these paths and their subpaths; `*` matches any text. Empty means
    /// all.
    pub include_paths: Vec<String>,
    /// OpenAPI: none of these paths.
    pub exclude_paths: Vec<String>,
    /// OpenAPI: what reads the other files that a document refers to. None by default, and then a
    /// document that needs them is refused.
    pub other_files: OtherFiles,
    /// OpenAPI: which servers the caller has tools of. One that is named by the whole title, as earlier
    /// versions named it, keeps that name.
    pub known_servers: KnownServers,
}

/// The servers of which somebody has tools; none by default.
#[derive(Clone, Default)]
pub struct KnownServers(Option<Arc<HasServer>>);

type HasServer = dyn Fn(&str) -> bool + Send + Sync;

impl KnownServers {
    /// Those for which this is true. It is asked only where a name depends on it.
    pub fn by(has: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        KnownServers(Some(Arc::new(has)))
    }

    fn has(&self, server: &str) -> bool {
        match &self.0 {
            Some(has) => has(server),
            None => false,
        }
    }
}

impl fmt::Debug for KnownServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "asked" } else { "none" })
    }
}

/// The result of reading an input.
#[derive(Debug)]
pub struct Parsed {
    /// The format of the first tool, or of the document; [`Format::Mcp`] where there is neither.
    pub format: Format,
    /// The valid tools, in input order, with unique ids.
    pub tools: Vec<Tool>,
    /// The invalid items, in input order. The caller decides whether they make the whole input
    /// invalid.
    pub skipped: Vec<Skipped>,
    /// What of the valid tools is left out or will not work, the first [`MAX_WARNINGS`] of it.
    pub warnings: Vec<Warning>,
    /// The servers of an `mcpServers` configuration, where the input is one. Their tools are known only
    /// after connecting.
    pub servers_to_connect: Option<Vec<String>>,
    /// True for one page of a `tools/list` that says that others follow.
    pub is_part: bool,
}

impl Parsed {
    /// Why the input has no tools, where it is a document of another kind than a list of tools. An empty
    /// list is one.
    pub fn without_tools(&self) -> Option<String> {
        if !self.tools.is_empty() || !self.skipped.is_empty() {
            return None;
        }
        match self.servers_to_connect.as_deref() {
            None if self.format == Format::OpenApi => {
                Some("it is an OpenAPI document without operations, or none is included".into())
            }
            None => None,
            Some([]) => Some("its `mcpServers` object names no servers".into()),
            Some(servers) => {
                let count = servers.len();
                let noun = if count == 1 { "server" } else { "servers" };
                let servers = servers.join(", ");
                Some(format!(
                    "it names {count} MCP {noun} ({servers}) and has no tools itself; `toolscout sync --mcp FILE` \
                     imports the servers' tools"
                ))
            }
        }
    }
}

/// A skipped item, and the reason.
#[derive(Debug)]
pub struct Skipped {
    /// 1-based position among the input's tools.
    pub index: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its 1-based line, in NDJSON.
    pub line: Option<usize>,
    /// Why it is no valid tool.
    pub error: Error,
}

/// Something about a valid tool that whoever adds it should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The tool.
    pub tool: ToolId,
    /// What is left out or will not work, and why.
    pub reason: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tool, self.reason)
    }
}

/// Reads tools in any accepted format.
///
/// A bad item, or the second of two with one id, goes to [`Parsed::skipped`]; so does a malformed
/// line of NDJSON.
///
/// # Errors
/// [`Error::Parse`] when the input as a whole cannot be read: it is empty, not UTF-8, malformed,
/// nested too deeply, in an unknown format, has more than [`MAX_SKIPPED`] invalid items, or would
/// need far more memory than its length.
pub fn parse(bytes: &[u8], options: &ReadOptions) -> Result<Parsed> {
    let mut reader = Reader::new(options, bytes.len());
    match input::read(bytes, reader.source())? {
        Input::Document(text) => reader.read_document(&text)?,
        Input::Lines(text) => reader.read_lines(text, 0)?,
    }
    Ok(reader.finish())
}

/// As [`parse`], but NDJSON is freed while it is read, so that a large input and its tools are not in
/// memory together.
///
/// # Errors
/// As [`parse`].
pub fn parse_owned(mut bytes: Vec<u8>, options: &ReadOptions) -> Result<Parsed> {
    let mut reader = Reader::new(options, bytes.len());
    let before_lines = match input::read(&bytes, reader.source())? {
        Input::Document(text) => {
            reader.read_document(&text)?;
            return Ok(reader.finish());
        }
        Input::Lines(text) => bytes.len() - text.len(),
    };
    bytes.drain(..before_lines);
    let mut lines_above = 0;
    while !bytes.is_empty() {
        let end = leading_lines(&bytes);
        let part = &bytes[..end];
        // The whole was decoded above, so a part that ends with a line is valid too.
        reader.read_lines(&String::from_utf8_lossy(part), lines_above)?;
        lines_above += part.iter().filter(|&&byte| byte == b'\n').count();
        bytes.drain(..end);
        bytes.shrink_to_fit();
    }
    Ok(reader.finish())
}

/// The length of the first half of the lines, or of all where they are short.
// Half, so that moving the rest to the front takes as long as copying the whole once.
fn leading_lines(bytes: &[u8]) -> usize {
    if bytes.len() < MIN_FREED_BYTES {
        return bytes.len();
    }
    let half = bytes.len() / 2;
    let line_end = bytes[half..].iter().position(|&byte| byte == b'\n');
    match line_end {
        Some(end) => half + end + 1,
        None => bytes.len(),
    }
}

/// A whole list in one format: an array, for [`Emit::Mcp`] the `{"tools":[…]}` around it. Every
/// tool is named by [`model_names`].
pub fn emit(tools: &[&Tool], format: Emit) -> Value {
    let names = model_names(tools.iter().map(|tool| &tool.id));
    let mut items = Vec::with_capacity(tools.len());
    for (tool, name) in tools.iter().zip(&names) {
        items.push(emit_tool(tool, name, format));
    }
    match format {
        Emit::Mcp => json!({ "tools": items }),
        _ => Value::Array(items),
    }
}

/// One tool in one format, under this name.
pub fn emit_tool(tool: &Tool, name: &str, format: Emit) -> Value {
    match format {
        Emit::Openai => openai::chat(tool, name),
        Emit::OpenaiResponses => openai::responses(tool, name),
        Emit::Anthropic => anthropic::tool(tool, name),
        Emit::AnthropicReference => anthropic::reference(name),
        Emit::Mcp => mcp::tool(tool, name),
        Emit::Names => name.into(),
        Emit::Signature => signature(tool).into(),
    }
}

fn by_name<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
    let mut names = Vec::new();
    for &format in all {
        if name(format) == text {
            return Ok(format);
        }
        names.push(name(format));
    }
    Err(Error::UnknownName {
        kind: "format",
        name: text.to_owned(),
        known: format!("one of {}", names.join(", ")),
    })
}

/// What an item inherits from the lists and namespaces around it.
#[derive(Clone)]
struct Scope<'t> {
    /// The whole text, for the places of errors.
    text: &'t str,
    server: Option<Rc<str>>,
    /// The namespace's fields other than its name.
    namespace: Rc<Map<String, Value>>,
    /// Bytes that these fields take in every tool of the namespace.
    namespace_bytes: usize,
    /// Lists and wrappers around it.
    depth: usize,
}

impl<'t> Scope<'t> {
    fn of(text: &'t str) -> Self {
        Scope {
            text,
            server: None,
            namespace: Rc::default(),
            namespace_bytes: 0,
            depth: 0,
        }
    }

    /// The scope of a list or namespace within this one.
    fn within(&self) -> Result<Self> {
        if self.depth == MAX_GROUPS {
            // Reading recurses, so this bounds the stack.
            let reason = format!("it lies within more than {MAX_GROUPS} lists; flatten them");
            return Err(Error::invalid_tool("an item", reason));
        }
        Ok(Scope {
            depth: self.depth + 1,
            ..self.clone()
        })
    }
}

/// The kind of a JSON value, determined by its fields.
enum Shape {
    List,
    /// A list of tools under this field.
    Wrapper(&'static str),
    Namespace,
    RpcResult,
    RpcError,
    ServerConfig,
    OpenApi,
    /// A document that is read as an OpenAPI document.
    Foreign(Convertible),
    /// A document of another kind, and what to do with it.
    Unusable(String),
    Tool(Format),
    Unknown,
}

impl Shape {
    fn of(text: &str, outline: &Outline<'_>) -> Shape {
        match text.as_bytes().first() {
            Some(b'[') => Shape::List,
            Some(b'{') => Shape::of_object(outline),
            _ => Shape::Unknown,
        }
    }

    fn of_object(fields: &Outline<'_>) -> Shape {
        if fields.is_type("namespace") {
            return Shape::Namespace;
        }
        // Before the tools, since such a document may have a name too.
        if let Some(kind) = foreign::convertible(fields) {
            return Shape::Foreign(kind);
        }
        if let Some(reason) = foreign::unusable(fields) {
            return Shape::Unusable(reason);
        }
        if agent_card::is_card(fields) {
            return Shape::Tool(Format::AgentCard);
        }
        if let Some(format) = fields.tool_format() {
            return Shape::Tool(format);
        }
        match () {
            () if fields.is_openapi() => Shape::OpenApi,
            () if fields.begins("result", '{') => Shape::RpcResult,
            () if fields.has("jsonrpc") && fields.has("error") => Shape::RpcError,
            () if fields.begins("mcpServers", '{') => Shape::ServerConfig,
            () if fields.begins("tools", '[') => Shape::Wrapper("tools"),
            () if fields.begins("functions", '[') => Shape::Wrapper("functions"),
            () if fields.begins("functionDeclarations", '[') => {
                Shape::Wrapper("functionDeclarations")
            }
            () if fields.begins("function_declarations", '[') => {
                Shape::Wrapper("function_declarations")
            }
            () if fields.begins("toolConfig", '{') => Shape::Wrapper("toolConfig"),
            () if fields.begins("collection", '{') => Shape::Wrapper("collection"),
            () => Shape::Unknown,
        }
    }
}

/// The fields that determine a shape.
// All fields that `Shape` or `tool_format` asks for: another one would never be found.
const SHAPE_FIELDS: [&str; 50] = [
    "name",
    "type",
    "function",
    "parameters",
    "inputSchema",
    "input_schema",
    "server",
    "tags",
    "metadata",
    "tools",
    "functions",
    "openapi",
    "swagger",
    "result",
    "jsonrpc",
    "error",
    "mcpServers",
    "description",
    "parameter_definitions",
    "args_schema",
    "args",
    "toolSpec",
    "functionDeclarations",
    "function_declarations",
    "toolConfig",
    "nextCursor",
    "kind",
    "resources",
    "methods",
    "item",
    "info",
    "collection",
    "log",
    "asyncapi",
    "arazzo",
    "overlay",
    "actions",
    "_type",
    "__schema",
    "data",
    "requests",
    "order",
    "values",
    "_postman_variable_scope",
    "$schema",
    "properties",
    "skills",
    "capabilities",
    "url",
    "supportedInterfaces",
];
/// Field names that an error lists at most.
const MAX_LISTED_FIELDS: usize = 8;

/// The fields of an object that determine its kind. Takes constant memory.
#[derive(Default)]
struct Outline<'t> {
    shape_fields: Vec<(&'static str, &'t str)>,
    first_names: Vec<String>,
}

impl<'t> Outline<'t> {
    /// Scans an object; empty for any other value.
    fn of(text: &'t str) -> Self {
        let mut outline = Outline::default();
        for (name, value) in input::fields(text) {
            if let Some(&field) = SHAPE_FIELDS.iter().find(|field| **field == name) {
                // Of two fields with one name the last one counts, as in a map.
                outline.shape_fields.retain(|(known, _)| *known != field);
                outline.shape_fields.push((field, value));
            }
            if outline.first_names.len() < MAX_LISTED_FIELDS {
                outline.first_names.push(cut(&name, 200));
            }
        }
        outline
    }

    fn get(&self, field: &str) -> Option<&'t str> {
        for (name, value) in &self.shape_fields {
            if *name == field {
                return Some(*value);
            }
        }
        None
    }

    fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    fn begins(&self, field: &str, first: char) -> bool {
        self.get(field).unwrap_or_default().starts_with(first)
    }

    /// Whether the value of a field is an object with this field.
    fn is_nested(&self, field: &str, inner: &str) -> bool {
        let object = self.get(field).unwrap_or_default();
        input::fields(object).any(|(name, _)| name == inner)
    }

    fn text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.get(field)?).ok()
    }

    fn is_type(&self, name: &str) -> bool {
        self.text("type").as_deref() == Some(name)
    }

    /// Whether this is an OpenAPI document of any version.
    fn is_openapi(&self) -> bool {
        let version = [self.get("openapi"), self.get("swagger")];
        version
            .into_iter()
            .flatten()
            .any(|value| value.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()))
    }

    /// The format of a tool, recognised by the name of its schema field. An object with a name only
    /// is an MCP tool.
    fn tool_format(&self) -> Option<Format> {
        // The order below decides for objects with the fields of several formats. The name of the
        // schema is the surest sign; groups have names too, so they come before the tests by name.
        let is_group = self.begins("tools", '[') || self.begins("functions", '[');
        let native = self.has("server") || self.has("tags") || self.has("metadata");
        match () {
            () if self.begins("function", '{') => Some(Format::Openai),
            () if self.begins("toolSpec", '{') => Some(Format::Mcp),
            () if self.has("input_schema") => Some(Format::Anthropic),
            () if self.has("inputSchema") && native => Some(Format::Native),
            () if self.has("inputSchema") => Some(Format::Mcp),
            () if self.is_type("function") => Some(Format::OpenaiResponses),
            () if is_group => None,
            () if self.has("name") && other_names::has_schema(self) => Some(Format::Mcp),
            () if self.has("name") && self.has("parameters") => Some(Format::Openai),
            () if self.has("name") && self.has("type") => Some(Format::Anthropic),
            () if self.has("name") && native => Some(Format::Native),
            () if self.has("name") => Some(Format::Mcp),
            () => None,
        }
    }
}

/// Invalid items that are reported one by one; the next one ends the reading. An input with more is
/// in an unknown format, or was generated wrongly.
pub const MAX_SKIPPED: usize = 1_000;
/// Warnings that are kept of one input.
pub const MAX_WARNINGS: usize = 1_000;
/// Levels of nested lists and wrappers. Four occur in practice: a response, its list, a namespace,
/// its list.
const MAX_GROUPS: usize = 8;
/// Memory of a tool beyond its text: the struct, its id twice, an empty schema.
const TOOL_BYTES: usize = 1_500;
/// Bytes of NDJSON from which on it is worth freeing what was read.
const MIN_FREED_BYTES: usize = 1 << 20;

/// Reads the tools of one input.
struct Reader<'a> {
    options: &'a ReadOptions,
    budget: Budget,
    format: Option<Format>,
    tools: Vec<Tool>,
    skipped: Vec<Skipped>,
    warnings: Vec<Warning>,
    servers_to_connect: Option<Vec<String>>,
    is_part: bool,
    /// Where each id was first seen, 1-based.
    positions: HashMap<ToolId, usize>,
    /// Items read so far, valid and invalid.
    items: usize,
    /// The line being read, in NDJSON.
    line: Option<usize>,
    /// True once reading has ended early.
    given_up: bool,
}

impl<'a> Reader<'a> {
    fn new(options: &'a ReadOptions, input_bytes: usize) -> Self {
        Reader {
            options,
            budget: Budget::of(input_bytes),
            format: None,
            tools: Vec::new(),
            skipped: Vec::new(),
            warnings: Vec::new(),
            servers_to_connect: None,
            is_part: false,
            positions: HashMap::new(),
            items: 0,
            line: None,
            given_up: false,
        }
    }

    fn finish(self) -> Parsed {
        Parsed {
            format: self.format.unwrap_or(Format::Mcp),
            tools: self.tools,
            skipped: self.skipped,
            warnings: self.warnings,
            servers_to_connect: self.servers_to_connect,
            is_part: self.is_part,
        }
    }

    fn read_document(&mut self, text: &str) -> Result<()> {
        // The first byte determines the shape.
        self.read(text.trim_start(), &Scope::of(text))
    }

    /// Reads lines of NDJSON, which follow so many others.
    fn read_lines(&mut self, text: &str, lines_above: usize) -> Result<()> {
        for (number, line) in input::lines(text) {
            let number = lines_above + number;
            self.line = Some(number);
            match self.source().check_line(line, number) {
                Ok(()) => self.read_item(line, &Scope::of(line))?,
                Err(error) => self.skip(None, error)?,
            }
        }
        Ok(())
    }

    /// Reads the input, or a container within it.
    fn read(&mut self, text: &str, scope: &Scope<'_>) -> Result<()> {
        let outline = Outline::of(text);
        let shape = Shape::of(text, &outline);
        self.read_shape(shape, text, &outline, scope)
    }

    fn read_shape(
        &mut self,
        shape: Shape,
        text: &str,
        outline: &Outline<'_>,
        scope: &Scope<'_>,
    ) -> Result<()> {
        match shape {
            Shape::List => self.read_list(text, scope),
            Shape::Wrapper(field) => self.read_wrapper(field, outline, scope),
            Shape::Namespace => self.read_namespace(text, outline, scope),
            // A response as servers send it, so that a recorded one can be read.
            Shape::RpcResult => self.read(outline.get("result").unwrap_or("[]"), &scope.within()?),
            Shape::RpcError => Err(self.unreadable(format!(
                "the server answered with an error in place of tools: {}",
                cut(outline.get("error").unwrap_or_default(), 300)
            ))),
            Shape::ServerConfig => {
                self.read_config(outline.get("mcpServers").unwrap_or_default());
                Ok(())
            }
            Shape::OpenApi => {
                let document = self.value(text, scope)?;
                self.read_openapi(document)
            }
            Shape::Foreign(kind) => {
                let document = self.value(text, scope)?;
                // Converting copies it.
                self.spend(input::weight(&document))?;
                self.read_openapi(match kind {
                    Convertible::Postman => postman::to_openapi(&document),
                    Convertible::Discovery => discovery::to_openapi(&document),
                })
            }
            Shape::Unusable(reason) => Err(self.unreadable(reason)),
            Shape::Tool(format) => self.read_tool(format, text, scope),
            Shape::Unknown => Err(self.unknown(text, outline)),
        }
    }

    fn read_wrapper(
        &mut self,
        field: &str,
        outline: &Outline<'_>,
        scope: &Scope<'_>,
    ) -> Result<()> {
        // An empty cursor ends a list too, for some servers.
        let cursor = outline.get("nextCursor").unwrap_or("null");
        self.is_part |= !matches!(cursor, "null" | "\"\"");
        let server = match outline.text("server") {
            Some(server) => Some(server.into()),
            None => scope.server.clone(),
        };
        let scope = Scope {
            server,
            ..scope.within()?
        };
        self.read(outline.get(field).unwrap_or("[]"), &scope)
    }

    fn read_list(&mut self, text: &str, scope: &Scope<'_>) -> Result<()> {
        let scope = scope.within()?;
        for item in input::items(text) {
            self.read_item(item, &scope)?;
        }
        Ok(())
    }

    /// Reads one entry of a list. An invalid entry is skipped; an error ends the reading.
    fn read_item(&mut self, text: &str, scope: &Scope<'_>) -> Result<()> {
        let outline = Outline::of(text);
        let result = match Shape::of(text, &outline) {
            Shape::Unknown => Err(fields::not_a_tool(&self.next_position(), text)),
            shape => self.read_shape(shape, text, &outline, scope),
        };
        match result {
            // Once reading has ended, an error is about the input and not about the item.
            Err(error) if !self.given_up => self.skip(None, error),
            result => result,
        }
    }

    /// Reads a text into a value, within the budget.
    fn value(&mut self, text: &str, scope: &Scope<'_>) -> Result<Value> {
        let line = self.line.unwrap_or(1);
        let value = self.source().value(text, (scope.text, line), &self.budget);
        // serde only says that the value is bad; the budget knows that the input is too large.
        self.given_up |= self.budget.is_exceeded();
        value
    }

    fn source(&self) -> Source<'a> {
        Source {
            name: &self.options.source_name,
        }
    }

    fn read_namespace(
        &mut self,
        text: &str,
        outline: &Outline<'_>,
        scope: &Scope<'_>,
    ) -> Result<()> {
        let (Some(name), Some(tools), true) = (
            outline.text("name"),
            outline.get("tools"),
            outline.begins("tools", '['),
        ) else {
            let reason = "a namespace needs a `name` that is a string and `tools` that are a list";
            return Err(Error::invalid_tool(self.next_position(), reason));
        };
        let before = self.budget.spent();
        let mut namespace = Map::new();
        for (field, value) in input::fields(text) {
            if ["name", "tools", "type"].contains(&field.as_str()) {
                continue;
            }
            namespace.insert(field, self.value(value, scope)?);
        }
        let namespace_bytes = self.budget.spent() - before;
        self.format.get_or_insert(Format::OpenaiResponses);
        self.read(
            tools,
            &Scope {
                server: Some(name.into()),
                namespace: namespace.into(),
                namespace_bytes,
                ..scope.within()?
            },
        )
    }

    fn read_config(&mut self, servers: &str) {
        let named = self.servers_to_connect.get_or_insert_default();
        for (name, _) in input::fields(servers) {
            named.push(name);
        }
    }

    fn read_openapi(&mut self, mut document: Value) -> Result<()> {
        self.complete(&mut document)?;
        self.format.get_or_insert(Format::OpenApi);
        let options = self.options;
        openapi::read(&document, options, |operation| {
            // Several operations may share one text of the document; each tool gets a copy.
            self.spend(operation.copied_bytes)?;
            let tools = self.tools.len();
            self.add(Format::OpenApi, Some(operation.name), operation.tool)?;
            // A tool that was refused needs no warning beside its error.
            if let Some(tool) = self.tools.get(tools) {
                let id = tool.id.clone();
                for reason in operation.warnings {
                    self.warn(&id, reason);
                }
            }
            Ok(())
        })
    }

    /// Puts the other files that a document refers to into it.
    fn complete(&mut self, document: &mut Value) -> Result<()> {
        let mut read = read_other_file;
        let bundle = openapi::Bundle::new(&self.options.other_files, &mut read);
        match bundle.complete(document) {
            Ok(()) => Ok(()),
            Err(reason) => Err(self.unreadable(reason.to_string())),
        }
    }

    fn read_tool(&mut self, format: Format, text: &str, scope: &Scope<'_>) -> Result<()> {
        let before = self.budget.spent();
        let Value::Object(fields) = self.value(text, scope)? else {
            return Err(fields::not_a_tool(&self.next_position(), text));
        };
        let fields = match format {
            Format::Openai | Format::OpenaiResponses => openai::flatten(fields),
            Format::Mcp => other_names::as_mcp(fields),
            _ => fields,
        };
        let name = fields
            .get("name")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let place = Place {
            position: self.next_position(),
            scope,
            options: self.options,
        };
        let tool = match format {
            // The name of the file says nothing about an agent.
            Format::AgentCard => {
                agent_card::agent(fields, self.options.server.as_deref().unwrap_or_default())
            }
            _ => item::assemble(fields, format, &place),
        };
        match &tool {
            // Every tool of a namespace has its own copy of the namespace's fields.
            Ok(_) => self.spend(scope.namespace_bytes)?,
            // The refused item is dropped, and its memory is free again.
            Err(_) => self.budget.return_to(before),
        }
        self.add(format, name, tool)
    }

    fn add(&mut self, format: Format, name: Option<String>, tool: Result<Tool>) -> Result<()> {
        self.format.get_or_insert(format);
        let tool = match tool {
            Ok(tool) => tool,
            Err(error) => return self.skip(name, error),
        };
        let second = self.items + 1;
        // The first tool of an id stays, so that what was read does not depend on what follows.
        if let Some(&first) = self.positions.get(&tool.id) {
            return self.skip(
                name,
                Error::DuplicateTool {
                    id: tool.id.to_string(),
                    first,
                    second,
                },
            );
        }
        // A tool of a few bytes takes far more memory than its text.
        self.spend(TOOL_BYTES)?;
        self.items = second;
        self.positions.insert(tool.id.clone(), second);
        if let Some(keyword) = schema::refused(&tool.input_schema) {
            let reason = format!(
                "its schema has `{keyword}` at the root, which providers refuse; models see one object with all \
                 arguments, whose description says which go together"
            );
            self.warn(&tool.id, reason);
        }
        if let Some(mistake) = schema::mistake(&tool.input_schema) {
            let reason = format!("{mistake}; providers refuse requests with such a tool");
            self.warn(&tool.id, reason);
        }
        self.tools.push(tool);
        Ok(())
    }

    fn warn(&mut self, tool: &ToolId, reason: String) {
        if self.warnings.len() < MAX_WARNINGS {
            let tool = tool.clone();
            self.warnings.push(Warning { tool, reason });
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        match self.budget.spend(bytes) {
            Ok(()) => Ok(()),
            Err(reason) => {
                self.given_up = true;
                Err(self.unreadable(reason))
            }
        }
    }

    /// Records an invalid item.
    ///
    /// # Errors
    /// For the item after [`MAX_SKIPPED`], which ends the reading.
    fn skip(&mut self, name: Option<String>, error: Error) -> Result<()> {
        if self.skipped.len() == MAX_SKIPPED {
            self.given_up = true;
            let first = cut(&self.skipped[0].error.to_string(), 300);
            return Err(self.unreadable(format!(
                "more than {MAX_SKIPPED} of its items are no valid tools, so the rest was not read; the first: {first}"
            )));
        }
        self.items += 1;
        self.skipped.push(Skipped {
            index: self.items,
            name,
            line: self.line,
            error,
        });
        Ok(())
    }

    fn next_position(&self) -> String {
        match self.line {
            Some(line) => format!("item {} (line {line})", self.items + 1),
            None => format!("item {}", self.items + 1),
        }
    }

    fn unknown(&self, text: &str, outline: &Outline<'_>) -> Error {
        if let Some(reason) = foreign::file_without_tools(&self.options.source_name) {
            return self.unreadable(reason);
        }
        let what = match text.starts_with('{') {
            true => format!(
                "an object with the fields [{}]",
                cut(&outline.first_names.join(", "), 200)
            ),
            false => format!("the value {}", cut(text, 80)),
        };
        self.unreadable(format!(
            "{what} is in no known tool format; accepted are OpenAI, Anthropic and MCP tools (one, a list, \
             {{\"tools\": […]}} or one a line), OpenAPI documents and Postman collections"
        ))
    }

    fn unreadable(&self, reason: String) -> Error {
        Error::Parse {
            source_name: self.options.source_name.clone(),
            line: self.line,
            column: None,
            reason,
        }
    }
}

/// Reads another file of an OpenAPI document, which has this name.
fn read_other_file(bytes: &[u8], name: &str) -> Result<Value, String> {
    // What these files take is added to what the document may take.
    let budget = Budget::of(bytes.len());
    let source = Source { name };
    let read = match input::read(bytes, source) {
        Ok(Input::Document(text)) => source.value(&text, (&text, 1), &budget),
        Ok(Input::Lines(_)) => return Err("it has several values, one a line".into()),
        Err(error) => Err(error),
    };
    read.map_err(|error| error.to_string())
}

/// The text, or its first `chars` characters and an ellipsis.
fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// Copies the named entries of a tool's metadata into the object being written.
fn write_back(tool: &Tool, fields: &[&str], into: &mut Map<String, Value>) {
    for &field in fields {
        if let Some(value) = tool.metadata.get(field) {
            into.insert(field.to_owned(), value.clone());
        }
    }
}
