//! Every wire format of tool definitions, in and out. Pure functions over bytes and values.
//!
//! Reading: [`parse`] detects the format and gives [`Tool`]s, and beside them what it had to leave out. Writing:
//! [`emit`] for a list, [`emit_tool`] for one. What a format has no field for waits in [`Tool::metadata`] and is
//! written back by the format that has one.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::tool::{Tool, ToolId};

mod anthropic;
mod input;
mod item;
mod mcp;
mod names;
mod openai;
mod openapi;
mod signature;

pub use names::{answers_to, emitted_names};
pub use signature::signature;

use input::Input;
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
    /// OpenAPI 3.0, 3.1 or Swagger 2.0; read only.
    #[serde(rename = "openapi")]
    OpenApi,
    /// MCP's shape with `server`, `tags` or `metadata` beside it: what [`Tool`] serialises to.
    Native,
}

impl Format {
    /// Its name on the command line and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Openai => "openai",
            Format::OpenaiResponses => "openai_responses",
            Format::Anthropic => "anthropic",
            Format::Mcp => "mcp",
            Format::OpenApi => "openapi",
            Format::Native => "native",
        }
    }

    const ALL: [Format; 6] =
        [Format::Openai, Format::OpenaiResponses, Format::Anthropic, Format::Mcp, Format::OpenApi, Format::Native];
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name(text, &Format::ALL, |format| format.as_str())
    }
}

/// The formats that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// A Model Context Protocol `tools/list` result. The one that loses nothing.
    Mcp,
    /// The emitted names alone.
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

    /// Its name on the command line and in JSON.
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
        by_name(text, &Emit::ALL, |format| format.as_str())
    }
}

/// How input is to be taken.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The file, URL or stream, for error messages.
    pub source_name: String,
    /// The server of every tool, whatever the input says.
    pub server: Option<String>,
    /// The server where the input names none.
    pub default_server: Option<String>,
    /// OpenAPI: only operations with one of these tags; empty means all.
    pub include_tags: Vec<String>,
    /// OpenAPI: no operation with one of these tags.
    pub exclude_tags: Vec<String>,
    /// OpenAPI: only these paths and what lies below them; `*` stands for any text. Empty means all.
    pub include_paths: Vec<String>,
    /// OpenAPI: none of these paths.
    pub exclude_paths: Vec<String>,
}

/// What an input held.
#[derive(Debug)]
pub struct Parsed {
    /// The format of the first tool; [`Format::Mcp`] where there is none.
    pub format: Format,
    /// The valid tools, in input order, with unique ids.
    pub tools: Vec<Tool>,
    /// The items that are no valid tools, in input order. Whether they spoil the rest is the caller's decision.
    pub skipped: Vec<Skipped>,
    /// The servers of an `mcpServers` configuration, which has no tools of its own until someone connects.
    pub servers_to_connect: Vec<String>,
}

/// An item that was left out, and why.
#[derive(Debug)]
pub struct Skipped {
    /// 1-based position among the input's tools.
    pub index: usize,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Its 1-based line, in NDJSON.
    pub line: Option<usize>,
    /// What is wrong with it.
    pub error: Error,
}

/// Reads tools in any accepted format.
///
/// A bad item, or the second of two with one id, goes to [`Parsed::skipped`]; so does a malformed line of NDJSON.
///
/// # Errors
/// [`Error::Parse`] where the input as a whole cannot be read: empty, not UTF-8, malformed, nested too deep, or in no
/// known format.
pub fn parse(bytes: &[u8], options: &ReadOptions) -> Result<Parsed> {
    let mut reader = Reader::new(options);
    match input::read(bytes, &options.source_name)? {
        Input::Document(value) => reader.read(value, &Scope::default())?,
        Input::Lines(lines) => lines.into_iter().for_each(|line| reader.read_line(line)),
    }
    Ok(reader.finish())
}

/// A whole list in one format: an array, for [`Emit::Mcp`] the `{"tools":[…]}` around it. Names are
/// [`emitted_names`]. A tool that is in the list twice is written twice, under one name.
pub fn emit(tools: &[&Tool], format: Emit) -> Value {
    let names = emitted_names(tools);
    let items: Vec<Value> = tools.iter().zip(&names).map(|(tool, name)| emit_tool(tool, name, format)).collect();
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
    let unknown = || Error::InvalidQuery {
        reason: format!(
            "unknown format {text:?}; use one of {}",
            all.iter().map(|&format| name(format)).collect::<Vec<_>>().join(", ")
        ),
    };
    all.iter().copied().find(|&format| name(format) == text).ok_or_else(unknown)
}

/// What surrounds an item and speaks for it.
#[derive(Clone, Default)]
struct Scope {
    server: Option<String>,
    /// What a namespace says of itself beyond its name.
    namespace: Map<String, Value>,
}

/// What one JSON value is, by its fields.
enum Shape {
    List,
    /// A list of tools under this field.
    Wrapper(&'static str),
    Namespace,
    RpcResult,
    RpcError,
    ServerConfig,
    OpenApi,
    Tool(Format),
    Unknown,
}

impl Shape {
    fn of(value: &Value) -> Shape {
        match value {
            Value::Array(_) => Shape::List,
            Value::Object(fields) => Shape::of_object(fields),
            _ => Shape::Unknown,
        }
    }

    fn of_object(fields: &Map<String, Value>) -> Shape {
        let has = |field: &str| fields.contains_key(field);
        let has_list = |field: &str| fields.get(field).is_some_and(Value::is_array);
        if is_type(fields, "namespace") {
            return Shape::Namespace;
        }
        if let Some(format) = tool_format(fields) {
            return Shape::Tool(format);
        }
        match () {
            () if openapi::is_document(fields) => Shape::OpenApi,
            () if fields.get("result").is_some_and(Value::is_object) => Shape::RpcResult,
            () if has("jsonrpc") && has("error") => Shape::RpcError,
            () if fields.get("mcpServers").is_some_and(Value::is_object) => Shape::ServerConfig,
            () if has_list("tools") => Shape::Wrapper("tools"),
            () if has_list("functions") => Shape::Wrapper("functions"),
            () => Shape::Unknown,
        }
    }
}

/// The format of an object that is one tool. Schemas tell formats apart, and a name alone makes an MCP tool.
fn tool_format(fields: &Map<String, Value>) -> Option<Format> {
    let has = |field: &str| fields.contains_key(field);
    let is_group = ["tools", "functions"].iter().any(|list| fields.get(*list).is_some_and(Value::is_array));
    let native = ["server", "tags", "metadata"].into_iter().any(has);
    match () {
        () if fields.get("function").is_some_and(Value::is_object) => Some(Format::Openai),
        () if has("input_schema") => Some(Format::Anthropic),
        () if has("inputSchema") && native => Some(Format::Native),
        () if has("inputSchema") => Some(Format::Mcp),
        () if is_type(fields, "function") => Some(Format::OpenaiResponses),
        () if is_group => None,
        () if has("name") && has("parameters") => Some(Format::Openai),
        () if has("name") && has("type") => Some(Format::Anthropic),
        () if has("name") && native => Some(Format::Native),
        () if has("name") => Some(Format::Mcp),
        () => None,
    }
}

fn is_type(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get("type").and_then(Value::as_str) == Some(name)
}

/// Gathers the tools of one input.
struct Reader<'a> {
    options: &'a ReadOptions,
    format: Option<Format>,
    tools: Vec<Tool>,
    skipped: Vec<Skipped>,
    servers_to_connect: Vec<String>,
    /// Where each id was first seen, 1-based.
    positions: HashMap<ToolId, usize>,
    /// Items seen so far, good and bad.
    items: usize,
    /// The line being read, in NDJSON.
    line: Option<usize>,
}

impl<'a> Reader<'a> {
    fn new(options: &'a ReadOptions) -> Self {
        Reader {
            options,
            format: None,
            tools: Vec::new(),
            skipped: Vec::new(),
            servers_to_connect: Vec::new(),
            positions: HashMap::new(),
            items: 0,
            line: None,
        }
    }

    fn finish(self) -> Parsed {
        Parsed {
            format: self.format.unwrap_or(Format::Mcp),
            tools: self.tools,
            skipped: self.skipped,
            servers_to_connect: self.servers_to_connect,
        }
    }

    /// Reads a value that is the input, or a container within it.
    fn read(&mut self, value: Value, scope: &Scope) -> Result<()> {
        let shape = Shape::of(&value);
        match (shape, value) {
            (Shape::List, Value::Array(items)) => items.into_iter().for_each(|item| self.read_item(item, scope)),
            (Shape::Wrapper(field), Value::Object(fields)) => return self.read_wrapper(fields, field, scope),
            (Shape::Namespace, Value::Object(fields)) => return self.read_namespace(fields),
            (Shape::RpcResult, Value::Object(mut fields)) => {
                return self.read(fields.remove("result").unwrap_or_default(), scope);
            }
            (Shape::RpcError, value) => {
                return Err(self.unreadable(format!(
                    "the server answered with an error in place of tools: {}",
                    cut(&value["error"].to_string(), 300)
                )));
            }
            (Shape::ServerConfig, value) => self.read_config(&value["mcpServers"]),
            (Shape::OpenApi, value) => return self.read_openapi(&value),
            (Shape::Tool(format), Value::Object(fields)) => self.read_tool(format, fields, scope),
            (_, value) => return Err(self.unknown(&value)),
        }
        Ok(())
    }

    fn read_line(&mut self, line: input::Line) {
        self.line = Some(line.number);
        match line.value {
            Ok(value) => self.read_item(value, &Scope::default()),
            Err(error) => self.skip(None, error),
        }
    }

    /// Reads one entry of a list, whose failure is its own.
    fn read_item(&mut self, value: Value, scope: &Scope) {
        let result = match Shape::of(&value) {
            Shape::Unknown => Err(item::not_a_tool(&self.next_position(), &value)),
            _ => self.read(value, scope),
        };
        if let Err(error) = result {
            self.skip(None, error);
        }
    }

    fn read_wrapper(&mut self, mut fields: Map<String, Value>, field: &str, scope: &Scope) -> Result<()> {
        let tools = fields.remove(field).unwrap_or_default();
        let server = fields.get("server").and_then(Value::as_str).map(str::to_owned);
        self.read(tools, &Scope { server: server.or_else(|| scope.server.clone()), ..scope.clone() })
    }

    fn read_namespace(&mut self, mut fields: Map<String, Value>) -> Result<()> {
        let (Some(Value::String(name)), Some(tools @ Value::Array(_))) =
            (fields.remove("name"), fields.remove("tools"))
        else {
            let reason = "a namespace needs a `name` that is a string and `tools` that are a list";
            return Err(Error::invalid_tool(self.next_position(), reason));
        };
        fields.remove("type");
        self.format.get_or_insert(Format::OpenaiResponses);
        self.read(tools, &Scope { server: Some(name), namespace: fields })
    }

    fn read_config(&mut self, servers: &Value) {
        let names = servers.as_object().into_iter().flat_map(Map::keys).cloned();
        self.servers_to_connect.extend(names);
    }

    fn read_openapi(&mut self, document: &Value) -> Result<()> {
        let operations = openapi::read(document, self.options)?;
        self.format.get_or_insert(Format::OpenApi);
        for operation in operations {
            self.add(Format::OpenApi, Some(operation.name), operation.tool);
        }
        Ok(())
    }

    fn read_tool(&mut self, format: Format, fields: Map<String, Value>, scope: &Scope) {
        let fields = match format {
            Format::Openai | Format::OpenaiResponses => openai::flatten(fields),
            _ => fields,
        };
        let name = fields.get("name").and_then(Value::as_str).map(str::to_owned);
        let place = Place { position: self.next_position(), scope, options: self.options };
        self.add(format, name, item::assemble(fields, format, &place));
    }

    fn add(&mut self, format: Format, name: Option<String>, tool: Result<Tool>) {
        self.format.get_or_insert(format);
        let tool = match tool {
            Ok(tool) => tool,
            Err(error) => return self.skip(name, error),
        };
        let second = self.items + 1;
        if let Some(&first) = self.positions.get(&tool.id) {
            return self.skip(name, Error::DuplicateTool { id: tool.id.to_string(), first, second });
        }
        self.items = second;
        self.positions.insert(tool.id.clone(), second);
        self.tools.push(tool);
    }

    fn skip(&mut self, name: Option<String>, error: Error) {
        self.items += 1;
        self.skipped.push(Skipped { index: self.items, name, line: self.line, error });
    }

    fn next_position(&self) -> String {
        match self.line {
            Some(line) => format!("item {} (line {line})", self.items + 1),
            None => format!("item {}", self.items + 1),
        }
    }

    fn unknown(&self, value: &Value) -> Error {
        let what = match value {
            Value::Object(fields) => {
                let names: Vec<&str> = fields.keys().take(8).map(String::as_str).collect();
                format!("an object with the fields [{}]", cut(&names.join(", "), 200))
            }
            other => format!("the value {}", cut(&other.to_string(), 80)),
        };
        self.unreadable(format!(
            "{what} is in no known tool format; accepted are OpenAI, Anthropic and MCP tools (one, a list, \
             {{\"tools\": […]}} or one a line) and OpenAPI documents"
        ))
    }

    fn unreadable(&self, reason: String) -> Error {
        Error::Parse { source_name: self.options.source_name.clone(), line: self.line, column: None, reason }
    }
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
