//! OpenAPI 3.0 to 3.2 and Swagger 2.0: one tool per operation.
//!
//! Parameters and body become one input schema. The tool's metadata stores under `openapi` how to
//! turn arguments back into a request.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::ReadOptions;
use super::cut;
use super::input::weight;
use crate::error::{Error, Result};
use crate::tool::{MAX_NAME_BYTES, Tool, ToolId, empty_schema};

mod bundled;
mod files;
mod names;
mod problem;
mod refs;
mod request;

pub(super) use files::Bundle;
pub use files::OtherFiles;
use names::Wanted;
use problem::DocumentError;
use refs::{Document, Expansion};
pub use request::BodyKind;
use request::Placement;

// The order of the tools of one path, whatever the order in the document.
pub(super) const METHODS: [&str; 9] = [
    "get", "put", "post", "delete", "options", "head", "patch", "trace", "query",
];
/// The keys of a Swagger 2.0 parameter that are not part of its schema.
const PARAMETER_KEYS: [&str; 6] = [
    "name",
    "in",
    "description",
    "required",
    "collectionFormat",
    "allowEmptyValue",
];

/// Operations that are read of one document: many paths may share a path item. The largest public
/// documents have some 20,000.
const MAX_OPERATIONS: usize = 100_000;
/// Longest name of an argument that providers take.
const MAX_ARGUMENT_CHARS: usize = 64;

/// One operation as a tool, or the reason why it cannot be one.
pub(super) struct Operation {
    pub name: String,
    pub tool: Result<Tool>,
    /// Bytes of the tool without its schemas, which have a budget of their own.
    pub copied_bytes: usize,
    /// What of its request is left out, or cannot be built.
    pub warnings: Vec<String>,
}

/// Passes the selected operations to `take` one by one, since a few bytes of paths can stand for
/// many.
///
/// # Errors
/// [`Error::Parse`] for an unsupported version or `paths` that are not an object; errors of `take`.
pub(super) fn read(
    root: &Value,
    options: &ReadOptions,
    mut take: impl FnMut(Operation) -> Result<()>,
) -> Result<()> {
    check_version(root, options)?;
    check_paths(root, options)?;
    // Counted first, since the operations share one budget.
    let operations = endpoints(root, options).take(MAX_OPERATIONS + 1).count();
    if operations > MAX_OPERATIONS {
        let reason =
            format!("it has more than {MAX_OPERATIONS} operations; include fewer paths or tags");
        return Err(unreadable(options, reason));
    }
    let mut document = Document::new(root, operations);
    let server = server(root, options);
    for (path, path_item) in chosen_paths(root, options) {
        if let Some(broken) = broken_path(root, path, path_item) {
            take(broken)?;
        }
    }
    let wanted = endpoints(root, options).map(|endpoint| endpoint.wanted_name());
    let names = names::assign(&server, wanted.collect());
    for (endpoint, named) in endpoints(root, options).zip(names) {
        let mut warnings = Vec::from_iter(named.warning);
        let tool = match ToolId::new(&server, &named.name) {
            Ok(id) => endpoint.tool(id, &mut document, &mut warnings),
            Err(error) => Err(error),
        };
        take(Operation {
            name: named.name,
            tool,
            copied_bytes: endpoint.copied_bytes(),
            warnings,
        })?;
    }
    Ok(())
}

/// A path whose reference is missing or outside the document, so that its operations are unknown;
/// `None` for an intact one.
fn broken_path(root: &Value, path: &str, path_item: &Value) -> Option<Operation> {
    let reason = match refs::follow(root, path_item) {
        Ok(Value::Object(_)) => return None,
        Ok(_) => DocumentError::PathItem,
        Err(reason) => reason,
    };
    Some(Operation {
        name: path.to_owned(),
        tool: Err(Error::invalid_tool(path, reason.to_string())),
        copied_bytes: 0,
        warnings: Vec::new(),
    })
}

fn check_version(root: &Value, options: &ReadOptions) -> Result<()> {
    let version = root
        .get("openapi")
        .or(root.get("swagger"))
        .unwrap_or(&Value::Null);
    let text = match version {
        Value::String(text) => text.clone(),
        // A version without quotes is a number in YAML.
        version => version.to_string(),
    };
    if text.starts_with("3.") || text == "3" || text.starts_with("2.") || text == "2" {
        return Ok(());
    }
    Err(unreadable(
        options,
        format!("OpenAPI version {text:?} is not supported; 3.0, 3.1, 3.2 and Swagger 2.0 are"),
    ))
}

fn unreadable(options: &ReadOptions, reason: String) -> Error {
    Error::Parse {
        source_name: options.source_name.clone(),
        line: None,
        column: None,
        reason,
    }
}

/// The name of the tools' server: the first words of the title, which names the API. Where the caller
/// has tools under the whole title, as earlier versions named it, that name stays.
fn server(root: &Value, options: &ReadOptions) -> String {
    if let Some(server) = &options.server {
        return server.clone();
    }
    let title = root.pointer("/info/title").and_then(Value::as_str);
    let title = title.unwrap_or_default();
    let (whole, short) = (names::slug(title), names::short(title));
    let titled = match short != whole && options.known_servers.has(&whole) {
        true => whole,
        false => short,
    };
    if !titled.is_empty() {
        return titled;
    }
    // For documents without a title.
    options.default_server.clone().unwrap_or_default()
}

/// One method of one path.
struct Endpoint<'a> {
    root: &'a Value,
    path: &'a str,
    method: &'a str,
    path_item: Part<'a>,
    operation: Part<'a>,
}

/// A part of the document where it stands, with what is beside its reference.
#[derive(Clone, Copy)]
struct Part<'a> {
    declared: &'a Value,
    target: &'a Value,
}

impl<'a> Part<'a> {
    /// The part that a value stands for. A reference that leads nowhere stands for itself.
    fn of(root: &'a Value, declared: &'a Value) -> Self {
        let target = refs::follow(root, declared).unwrap_or(declared);
        Part { declared, target }
    }

    fn get(self, field: &str) -> Option<&'a Value> {
        // Since OpenAPI 3.1 fields beside a reference count.
        self.declared.get(field).or(self.target.get(field))
    }
}

fn check_paths(root: &Value, options: &ReadOptions) -> Result<()> {
    match root.get("paths") {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(_) => Err(unreadable(options, "`paths` must be an object".into())),
    }
}

fn endpoints<'a>(root: &'a Value, options: &'a ReadOptions) -> impl Iterator<Item = Endpoint<'a>> {
    let of_paths = chosen_paths(root, options).flat_map(move |(path, path_item)| {
        // A broken reference leads to no methods; `broken_path` has reported it.
        let path_item = Part::of(root, path_item);
        let methods = methods(path_item).into_iter();
        methods.map(move |(method, operation)| Endpoint {
            root,
            path,
            method,
            path_item,
            operation: Part::of(root, operation),
        })
    });
    of_paths.filter(|endpoint| wants_tags(options, &endpoint.tags()))
}

/// The methods of a path with their operations. Since OpenAPI 3.2 a path may have any method.
fn methods(path_item: Part<'_>) -> Vec<(&str, &Value)> {
    let mut methods = Vec::new();
    for method in METHODS {
        methods.extend(path_item.get(method).map(|operation| (method, operation)));
    }
    if let Some(Value::Object(others)) = path_item.get("additionalOperations") {
        for (method, operation) in others {
            methods.push((method.as_str(), operation));
        }
    }
    methods
}

/// The paths that the options include, with their path items. `paths` may also hold extensions,
/// whose names do not begin with `/`.
fn chosen_paths<'a>(
    root: &'a Value,
    options: &'a ReadOptions,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let paths = root.get("paths").map(|paths| Part::of(root, paths).target);
    let paths = paths.and_then(Value::as_object).into_iter().flatten();
    paths.filter(|(path, _)| path.starts_with('/') && wants_path(options, path))
}

fn wants_path(options: &ReadOptions, path: &str) -> bool {
    (options.include_paths.is_empty() || one_matches(&options.include_paths, path))
        && !one_matches(&options.exclude_paths, path)
}

fn one_matches(patterns: &[String], path: &str) -> bool {
    patterns.iter().any(|pattern| path_matches(pattern, path))
}

/// Whether a pattern matches this path or a parent of it; `*` matches any text.
pub fn path_matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.trim_end_matches('/').split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return ends_segment(rest);
    };
    // The first place is the best one for each part in between: it leaves the most text for the others.
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    // The last part has to be at the end of the path or of a segment, so every place of it counts.
    last.is_empty()
        || rest.char_indices().any(|(at, _)| {
            let after = rest[at..].strip_prefix(last);
            after.is_some_and(ends_segment)
        })
}

/// `/users` is a parent of `/users/{id}`, and not of `/users-old`.
fn ends_segment(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

fn wants_tags(options: &ReadOptions, tags: &[String]) -> bool {
    (options.include_tags.is_empty() || has_one(tags, &options.include_tags))
        && !has_one(tags, &options.exclude_tags)
}

fn has_one(tags: &[String], wanted: &[String]) -> bool {
    tags.iter().any(|tag| wanted.contains(tag))
}

/// The texts of a list; none for any other value.
fn texts(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

impl Endpoint<'_> {
    fn wanted_name(&self) -> Wanted {
        let id = match self.text("operationId") {
            // Many paths may share one operation, and no tool has an endless name anyway.
            Some(id) if !id.trim().is_empty() => Some(cut(id, MAX_NAME_BYTES + 1)),
            _ => None,
        };
        Wanted {
            id,
            made: names::made_of(self.method, self.path),
        }
    }

    /// What may declare something for the operation, the nearest first.
    fn owners(&self) -> [Part<'_>; 3] {
        let root = Part {
            declared: self.root,
            target: self.root,
        };
        [self.operation, self.path_item, root]
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.operation.get(field)?.as_str()
    }

    fn tags(&self) -> Vec<String> {
        let tags = texts(self.operation.get("tags"));
        tags.into_iter().map(str::to_owned).collect()
    }

    fn tool(
        &self,
        id: ToolId,
        document: &mut Document,
        warnings: &mut Vec<String>,
    ) -> Result<Tool> {
        let mut expansion = document.expansion();
        let mut request = match self.request(&mut expansion) {
            Ok(request) => request,
            Err(reason) => return Err(Error::invalid_tool(id.to_string(), reason.to_string())),
        };
        let mut tool = Tool::of_id(id);
        warnings.append(&mut request.warnings);
        tool.output_schema = self.output(&mut expansion, warnings);
        tool.title = self.text("summary").map(str::to_owned);
        let description = match self.text("description") {
            Some(text) if !text.trim().is_empty() => text,
            _ => self.text("summary").unwrap_or_default(),
        };
        tool.description = description.to_owned();
        tool.tags = self.tags();
        // From the meaning of HTTP methods. The other methods have no hint rather than `false`: a
        // POST may only read.
        tool.annotations.read_only_hint =
            matches!(self.method, "get" | "head" | "options" | "query").then_some(true);
        tool.annotations.destructive_hint = (self.method == "delete").then_some(true);
        tool.annotations.idempotent_hint = matches!(self.method, "put" | "delete").then_some(true);
        tool.metadata
            .insert("openapi".into(), self.call(&request, expansion).into());
        tool.input_schema = request.into_schema();
        tool.validate()?;
        Ok(tool)
    }

    /// The request of the operation, or why no tool can make it.
    fn request(&self, expansion: &mut Expansion) -> Result<OperationRequest, DocumentError> {
        if !self.operation.target.is_object() {
            return Err(DocumentError::Operation);
        }
        // `Part::of` takes a broken reference for itself, which is an object too.
        refs::follow(self.root, self.operation.declared)?;
        let mut request = OperationRequest::default();
        self.add_parameters(&mut request, expansion)?;
        self.add_body(&mut request, expansion)?;
        Ok(request)
    }

    /// Bytes copied unchanged from the document. Several paths may share one operation, and all
    /// share the fields of the root.
    fn copied_bytes(&self) -> usize {
        const OWN: [&str; 4] = ["summary", "description", "tags", "operationId"];
        const INHERITED: [&str; 5] = [
            "security",
            "schemes",
            "securityDefinitions",
            "host",
            "basePath",
        ];
        let schemes = self.root.pointer("/components/securitySchemes");
        let mut bytes = schemes.map_or(0, weight);
        for field in OWN {
            bytes += self.operation.get(field).map_or(0, weight);
        }
        for owner in self.owners() {
            bytes += owner.get("servers").map_or(0, weight);
        }
        for field in INHERITED {
            let nearest = self.operation.get(field).or(self.root.get(field));
            bytes += nearest.map_or(0, weight);
        }
        bytes
    }

    /// Parameters of the path, then those of the operation, which replace parameters with the same
    /// name and location.
    fn add_parameters(
        &self,
        request: &mut OperationRequest,
        expansion: &mut Expansion,
    ) -> Result<(), DocumentError> {
        // The operation's list comes first, and `seen` keeps the first of two.
        let lists = [self.operation, self.path_item]
            .map(|owner| owner.get("parameters").and_then(Value::as_array));
        let mut seen = HashSet::new();
        for declared in lists.into_iter().flatten().flatten() {
            let parameter = refs::follow(self.root, declared)?;
            let (Some(name), Some(place)) = (
                parameter.get("name").and_then(Value::as_str),
                parameter.get("in").and_then(Value::as_str),
            ) else {
                return Err(DocumentError::NamelessParameter);
            };
            match Placement::of(name, place) {
                Placement::Ignored => {}
                Placement::LeftOut(warning) => request.warnings.push(warning),
                Placement::Argument if !seen.insert((known_as(name, place), place)) => {}
                Placement::Argument => {
                    let value = parameter;
                    self.add_parameter(request, expansion, Parameter { name, place, value })?;
                }
            }
        }
        self.add_undeclared(request, &mut seen);
        Ok(())
    }

    /// Adds the parameters that only the path names. Without them nothing can be called.
    fn add_undeclared<'p>(
        &'p self,
        request: &mut OperationRequest,
        seen: &mut HashSet<(Cow<'p, str>, &'p str)>,
    ) {
        for named in names::parameters(self.path) {
            let (name, place) = (named.name, named.place);
            let is_of_query =
                named.is_in_query && seen.contains(&(known_as(name, "query"), "query"));
            if is_of_query || !seen.insert((known_as(name, place), place)) {
                continue;
            }
            let schema = json!({ "type": "string" });
            let value = &json!({ "name": name, "in": place, "schema": schema });
            request.add_parameter(&Parameter { name, place, value }, schema, false);
            let need = match place {
                "path" => "a required",
                _ => "an optional",
            };
            let warning =
                format!("its path has {{{name}}}, which is not declared, so it is {need} text");
            request.warnings.push(warning);
        }
    }

    fn add_parameter(
        &self,
        request: &mut OperationRequest,
        expansion: &mut Expansion,
        parameter: Parameter,
    ) -> Result<(), DocumentError> {
        if let Some(text) = parameter.value.get("description") {
            expansion.spend_all(text)?;
        }
        if parameter.place == "body" {
            let schema = expansion.expand(parameter.value.get("schema").unwrap_or(&Value::Null))?;
            request.add_body(Body {
                schema,
                is_required: parameter.is_required(),
                content_type: request::body_type(&self.consumes()),
                encoding: None,
                description: parameter.description(),
            });
            return Ok(());
        }
        let mut schema = expansion.expand(&parameter.schema())?;
        add_description(&mut schema, parameter.description());
        // In Swagger 2.0 each field of a form is a parameter; `form` makes the caller put them
        // together.
        let is_file = parameter.place == "formData" && request::replace_files(&mut schema);
        if parameter.place == "formData" {
            request.has_file |= is_file;
            let content_type = request::form_type(&self.consumes(), request.has_file);
            request.body = Some(json!({ "content_type": content_type, "form": true }));
        }
        request.add_parameter(&parameter, schema, is_file);
        Ok(())
    }

    /// Swagger 2.0's types of a body.
    fn consumes(&self) -> Vec<&str> {
        texts(self.operation.get("consumes").or(self.root.get("consumes")))
    }

    fn add_body(
        &self,
        request: &mut OperationRequest,
        expansion: &mut Expansion,
    ) -> Result<(), DocumentError> {
        let Some(declared) = self.operation.get("requestBody") else {
            return Ok(());
        };
        let body = refs::follow(self.root, declared)?;
        let Some((content_type, media)) = preferred_content(body) else {
            let warning = "its request body names no media type, so no body is sent";
            request.warnings.push(warning.to_owned());
            return Ok(());
        };
        let schema = expansion.expand(media.get("schema").unwrap_or(&Value::Null))?;
        let encoding = media.get("encoding");
        for copied in [encoding, body.get("description")].into_iter().flatten() {
            expansion.spend_all(copied)?;
        }
        request.add_body(Body {
            schema,
            is_required: body.get("required") == Some(&Value::Bool(true)),
            content_type,
            encoding,
            description: body.get("description").and_then(Value::as_str),
        });
        Ok(())
    }

    /// The JSON schema of the response, if it is an object. The tool can be called without one, so a
    /// broken one costs a warning.
    fn output(
        &self,
        expansion: &mut Expansion,
        warnings: &mut Vec<String>,
    ) -> Option<Map<String, Value>> {
        match self.declared_output(expansion) {
            Ok(schema) => schema,
            Err(reason) => {
                warnings.push(format!("the schema of its response is left out: {reason}"));
                None
            }
        }
    }

    fn declared_output(
        &self,
        expansion: &mut Expansion,
    ) -> Result<Option<Map<String, Value>>, DocumentError> {
        let responses = self.operation.get("responses").unwrap_or(&Value::Null);
        let Some(declared) = responses.get("200").or(responses.get("201")) else {
            return Ok(None);
        };
        let response = refs::follow(self.root, declared)?;
        let owner = match preferred_content(response) {
            Some((kind, media)) if is_json(kind) => media,
            // Swagger 2.0 has the schema in the response itself.
            _ => response,
        };
        let Some(schema) = owner.get("schema") else {
            return Ok(None);
        };
        Ok(match expansion.expand(schema)? {
            // MCP's structured results are objects.
            Value::Object(fields) if is_object_schema(&fields) => Some(fields),
            _ => None,
        })
    }

    /// The metadata needed to make the call.
    fn call(&self, request: &OperationRequest, expansion: Expansion) -> Map<String, Value> {
        let mut call = Map::new();
        call.insert("method".into(), self.method.to_uppercase().into());
        call.insert("path".into(), self.path.into());
        call.insert("servers".into(), self.servers().into());
        call.insert("parameters".into(), request.places.clone().into());
        if let Some(body) = &request.body {
            call.insert("body".into(), body.clone());
        }
        if let Some(used) = self.operation.get("security").or(self.root.get("security")) {
            call.insert("security".into(), used.clone());
            call.insert(
                "security_schemes".into(),
                self.security_schemes(used).into(),
            );
        }
        if self.operation.get("deprecated") == Some(&Value::Bool(true)) {
            call.insert("deprecated".into(), true.into());
        }
        if !expansion.cut.is_empty() {
            let cut = Vec::from_iter(expansion.cut);
            call.insert("unexpanded".into(), cut.into());
        }
        call
    }

    fn servers(&self) -> Vec<String> {
        // The nearest declaration counts, and an empty list is none.
        for owner in self.owners() {
            if let Some(Value::Array(servers)) = owner.get("servers")
                && !servers.is_empty()
            {
                return servers.iter().filter_map(server_url).collect();
            }
        }
        self.swagger_servers()
    }

    fn swagger_servers(&self) -> Vec<String> {
        let base = self.root.get("basePath").and_then(Value::as_str);
        let base = base.unwrap_or_default();
        let Some(host) = self.root.get("host").and_then(Value::as_str) else {
            // Without a host, an address is relative to that of the document.
            return match base {
                "" => Vec::new(),
                base => vec![base.to_owned()],
            };
        };
        let mut schemes = texts(self.operation.get("schemes").or(self.root.get("schemes")));
        if schemes.is_empty() {
            // The default is the scheme by which the document was read, which is unknown here.
            schemes.push("https");
        }
        schemes
            .iter()
            .map(|scheme| format!("{scheme}://{host}{base}"))
            .collect()
    }

    fn security_schemes(&self, used: &Value) -> Map<String, Value> {
        let declared = self
            .root
            .pointer("/components/securitySchemes")
            .or(self.root.get("securityDefinitions"))
            .unwrap_or(&Value::Null);
        let mut found = Map::new();
        let alternatives = used.as_array().into_iter().flatten();
        for name in alternatives
            .filter_map(Value::as_object)
            .flat_map(Map::keys)
        {
            if let Some(scheme) = declared.get(name)
                && let Ok(scheme) = refs::follow(self.root, scheme)
            {
                found.insert(name.clone(), scheme.clone());
            }
        }
        found
    }
}

/// Longest URL of a server with its variables filled in; browsers and proxies refuse longer ones.
const MAX_SERVER_URL_BYTES: usize = 8 << 10;

/// A server's URL with the defaults of its variables filled in, or unchanged where that would be
/// too long.
fn server_url(server: &Value) -> Option<String> {
    let declared = server.get("url")?.as_str()?;
    let variables = server.get("variables").and_then(Value::as_object);
    let mut url = declared.to_owned();
    for (name, variable) in variables.into_iter().flatten() {
        let Some(default) = variable.get("default").and_then(Value::as_str) else {
            continue;
        };
        let placeholder = format!("{{{name}}}");
        // Before replacing: a default may hold other placeholders, so a few variables could double
        // the URL again and again.
        if url.len() + url.matches(&placeholder).count() * default.len() > MAX_SERVER_URL_BYTES {
            return Some(declared.to_owned());
        }
        url = url.replace(&placeholder, default);
    }
    Some(url)
}

/// The JSON content of a body or response, or else the one that is built best.
fn preferred_content(owner: &Value) -> Option<(&str, &Value)> {
    let content = owner.get("content")?.as_object()?;
    let (kind, media) = content
        .iter()
        .min_by_key(|(kind, _)| request::preference(kind))?;
    Some((kind.as_str(), media))
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind == "application/json" || kind.ends_with("+json")
}

fn is_object_schema(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.contains(&json!("object")),
        Some(kind) => kind == "object",
        None => schema.contains_key("properties"),
    }
}

/// Adds a description to a schema that has none of its own.
fn add_description(schema: &mut Value, text: Option<&str>) {
    if let (Value::Object(fields), Some(text)) = (schema, text)
        && !fields.contains_key("description")
    {
        fields.insert("description".into(), text.into());
    }
}

/// What makes a parameter the same as another at its place: names of headers have no case.
fn known_as<'a>(name: &'a str, place: &str) -> Cow<'a, str> {
    match place {
        "header" => name.to_ascii_lowercase().into(),
        _ => name.into(),
    }
}

/// The name of an argument for a parameter: its own, as far as providers take it.
fn argument_name(name: &str) -> String {
    if is_argument_name(name) {
        return name.to_owned();
    }
    let spelled = name.replace('<', "_lt").replace('>', "_gt");
    let words = spelled.split(|c: char| !is_argument_char(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut made = words.join("_");
    made.truncate(MAX_ARGUMENT_CHARS);
    if made.is_empty() {
        "argument".into()
    } else {
        made
    }
}

/// Anthropic refuses properties with other names.
fn is_argument_name(name: &str) -> bool {
    (1..=MAX_ARGUMENT_CHARS).contains(&name.len()) && name.chars().all(is_argument_char)
}

fn is_argument_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// A declared parameter.
struct Parameter<'a> {
    name: &'a str,
    /// `path`, `query`, `header`, `cookie`, `formData` or `body`.
    place: &'a str,
    value: &'a Value,
}

impl Parameter<'_> {
    fn is_required(&self) -> bool {
        // A path lacks a segment without its parameter, whatever the document says.
        self.place == "path" || self.value.get("required") == Some(&Value::Bool(true))
    }

    fn description(&self) -> Option<&str> {
        self.value.get("description")?.as_str()
    }

    /// Its schema: declared, by content type, or (Swagger 2.0) among the parameter's own fields.
    fn schema(&self) -> Value {
        if let Some(schema) = self.value.get("schema") {
            return schema.clone();
        }
        if let Some((_, media)) = preferred_content(self.value)
            && let Some(schema) = media.get("schema")
        {
            return schema.clone();
        }
        let mut fields = self.value.as_object().cloned().unwrap_or_default();
        fields.retain(|key, _| !PARAMETER_KEYS.contains(&key.as_str()) && key != "content");
        Value::Object(fields)
    }

    /// The location of an argument in the request.
    fn target(&self, warnings: &mut Vec<String>) -> Map<String, Value> {
        let mut target = Map::new();
        target.insert("in".into(), self.place.into());
        target.insert("name".into(), self.name.into());
        let content_type = preferred_content(self.value).map(|(kind, _)| kind);
        warnings.extend(request::add_style(&mut target, self.value, content_type));
        target
    }
}

/// A declared body with its references expanded.
struct Body<'a> {
    schema: Value,
    is_required: bool,
    content_type: &'a str,
    /// How the document says that its fields are written.
    encoding: Option<&'a Value>,
    description: Option<&'a str>,
}

/// An input schema being built, and where each argument belongs in the request.
#[derive(Default)]
struct OperationRequest {
    properties: Map<String, Value>,
    required: Vec<String>,
    places: Map<String, Value>,
    body: Option<Value>,
    /// Whether a field of a Swagger 2.0 form is a file.
    has_file: bool,
    warnings: Vec<String>,
}

impl OperationRequest {
    fn add_parameter(&mut self, parameter: &Parameter, schema: Value, is_file: bool) {
        let argument = self.free_name(parameter.name, parameter.place);
        if parameter.is_required() {
            self.required.push(argument.clone());
        }
        let mut target = parameter.target(&mut self.warnings);
        if is_file {
            target.insert("file".into(), true.into());
        }
        self.places.insert(argument.clone(), target.into());
        self.properties.insert(argument, schema);
    }

    /// Flattens the body into the arguments where that is unambiguous.
    fn add_body(&mut self, mut body: Body<'_>) {
        let mut target = Map::new();
        target.insert("content_type".into(), body.content_type.into());
        target.insert("required".into(), body.is_required.into());
        let warning = request::add_content(&mut target, &mut body.schema, body.encoding);
        self.warnings.extend(warning);
        let flattened = self.flatten(&body);
        match flattened {
            Some(names) => drop(target.insert("properties".into(), names.into())),
            None => {
                let mut schema = body.schema;
                add_description(&mut schema, body.description);
                let argument = self.free_name("body", "content");
                target.insert("argument".into(), argument.as_str().into());
                if body.is_required {
                    self.required.push(argument.clone());
                }
                self.properties
                    .insert(argument, if schema.is_null() { json!({}) } else { schema });
            }
        }
        self.body = Some(target.into());
    }

    /// The names of the body's properties, which become arguments; `None` if the body stays whole.
    fn flatten(&mut self, body: &Body<'_>) -> Option<Vec<String>> {
        const KEYS_OF_A_PLAIN_OBJECT: [&str; 8] = [
            "type",
            "properties",
            "required",
            "title",
            "description",
            "example",
            "additionalProperties",
            "xml",
        ];
        let schema = body.schema.as_object()?;
        let properties = schema.get("properties")?.as_object()?;
        // Other properties could have the name of an argument, so such a body stays whole.
        let closed = !matches!(
            schema.get("additionalProperties"),
            Some(Value::Bool(true) | Value::Object(_))
        );
        // Keywords such as `oneOf` apply to the object as a whole and would be lost.
        let plain = schema
            .keys()
            .all(|key| KEYS_OF_A_PLAIN_OBJECT.contains(&key.as_str()) || key.starts_with("x-"));
        // A parameter and a property of one name must stay apart, and what is sent has the body's own names.
        let collides = properties
            .keys()
            .any(|name| self.properties.contains_key(name) || !is_argument_name(name));
        if !is_object_schema(schema) || !closed || !plain || collides || properties.is_empty() {
            return None;
        }
        self.properties.extend(properties.clone());
        // In a body that may be missing no property is required.
        if body.is_required {
            let required = texts(schema.get("required"));
            self.required
                .extend(required.into_iter().map(str::to_owned));
        }
        Some(properties.keys().cloned().collect())
    }

    fn free_name(&self, name: &str, place: &str) -> String {
        let name = argument_name(name);
        if !self.properties.contains_key(&name) {
            return name;
        }
        let placed = format!("{name}_{place}");
        let mut free = placed.clone();
        let mut number = 2;
        while self.properties.contains_key(&free) {
            free = format!("{placed}_{number}");
            number += 1;
        }
        free
    }

    fn into_schema(self) -> Map<String, Value> {
        let mut schema = empty_schema();
        schema.insert("properties".into(), self.properties.into());
        if !self.required.is_empty() {
            schema.insert("required".into(), self.required.into());
        }
        schema
    }
}

#[cfg(test)]
mod document_tests;

#[cfg(test)]
mod tests {
    use super::super::{Format, Parsed, ReadOptions, parse};
    use super::*;
    use crate::tool::Annotations;

    const SHOP: &str = r##"
openapi: 3.0.3
info: {title: The Pet Shop!, version: 1.0.0}
servers: [{url: "https://{region}.shop.test/v1", variables: {region: {default: eu}}}]
security: [{key: []}]
paths:
  /pets/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: integer}}
      - {name: lang, in: query, schema: {type: string}}
    get:
      summary: Get a pet
      tags: [pets]
      parameters:
        - {name: lang, in: query, description: Of the answer, schema: {type: string, enum: [en, zh]}}
        - {name: Authorization, in: header, schema: {type: string}}
      responses:
        200: {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}
    put:
      operationId: replacePet
      tags: [pets, admin]
      requestBody: {$ref: "#/components/requestBodies/a~1b%20c"}
    delete: {operationId: sellPet, description: Sells it., tags: [admin]}
  /pets/{id}/photo:
    post:
      operationId: addPhoto
      parameters: [{name: url, in: query, schema: {type: string}}]
      requestBody: {content: {application/json: {schema: {type: object, properties: {url: {type: string}}}}}}
components:
  securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}
  requestBodies:
    a/b c:
      required: true
      content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}
  schemas:
    Pet:
      type: object
      required: [name]
      properties:
        name: {type: string}
        mother: {$ref: "#/components/schemas/Pet", description: Its mother}
        tag: {type: object, properties: {$ref: {type: string}}}
"##;

    fn read_with(text: &str, options: &ReadOptions) -> Parsed {
        parse(text.as_bytes(), options).unwrap()
    }

    fn shop() -> Vec<Tool> {
        let parsed = read_with(SHOP, &ReadOptions::default());
        assert_eq!(
            (parsed.format, parsed.skipped.len()),
            (Format::OpenApi, 0),
            "{:?}",
            parsed.skipped
        );
        parsed.tools
    }

    fn ids(tools: &[Tool]) -> Vec<&str> {
        tools.iter().map(|tool| tool.id.as_str()).collect()
    }

    #[test]
    fn every_operation_is_a_tool_with_its_hints() {
        let tools = shop();
        assert_eq!(
            ids(&tools),
            [
                "the-pet-shop/get_pets_by_id",
                "the-pet-shop/replacePet",
                "the-pet-shop/sellPet",
                "the-pet-shop/addPhoto"
            ]
        );
        let hints = |tool: &Tool| {
            let Annotations {
                read_only_hint,
                destructive_hint,
                idempotent_hint,
                ..
            } = tool.annotations;
            (read_only_hint, destructive_hint, idempotent_hint)
        };
        let all: Vec<_> = tools.iter().map(hints).collect();
        let yes = Some(true);
        assert_eq!(
            all,
            [
                (yes, None, None),
                (None, None, yes),
                (None, yes, yes),
                (None, None, None)
            ]
        );
        assert_eq!(
            (tools[0].title.as_deref(), tools[0].description.as_str()),
            (Some("Get a pet"), "Get a pet")
        );
        assert_eq!(tools[1].tags, ["pets", "admin"]);
    }

    #[test]
    fn the_operations_parameter_replaces_the_paths_and_the_call_can_be_made() {
        let tool = &shop()[0];
        assert_eq!(tool.input_schema["required"], json!(["id"]));
        assert_eq!(
            tool.input_schema["properties"]["lang"]["enum"],
            json!(["en", "zh"])
        );
        assert_eq!(
            tool.input_schema["properties"]["lang"]["description"],
            "Of the answer"
        );
        assert!(
            tool.input_schema["properties"]
                .get("Authorization")
                .is_none()
        );
        let call = &tool.metadata["openapi"];
        assert_eq!(call["method"], "GET");
        assert_eq!(call["path"], "/pets/{id}");
        assert_eq!(call["servers"], json!(["https://eu.shop.test/v1"]));
        assert_eq!(
            call["parameters"]["id"],
            json!({"in": "path", "name": "id"})
        );
        assert_eq!(call["security_schemes"]["key"]["name"], "X-Key");
    }

    #[test]
    fn bodies_are_flattened_unless_a_name_collides() {
        let tools = shop();
        let (replace, photo) = (&tools[1], &tools[3]);
        assert_eq!(replace.input_schema["required"], json!(["id", "name"]));
        assert_eq!(
            replace.metadata["openapi"]["body"]["properties"],
            json!(["name", "mother", "tag"])
        );
        assert_eq!(
            photo.input_schema["properties"]["body"]["properties"]["url"]["type"],
            "string"
        );
        assert_eq!(photo.metadata["openapi"]["body"]["argument"], "body");
    }

    #[test]
    fn recursive_references_are_cut_and_reported() {
        let tool = &shop()[1];
        let mother = &tool.input_schema["properties"]["mother"];
        assert_eq!(
            mother["description"],
            "not expanded: #/components/schemas/Pet"
        );
        assert_eq!(
            tool.metadata["openapi"]["unexpanded"],
            json!(["#/components/schemas/Pet"])
        );
        let tag = &tool.input_schema["properties"]["tag"];
        assert_eq!(tag["properties"]["$ref"]["type"], "string");
    }

    #[test]
    fn tags_and_paths_choose() {
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        for ([include_tags, exclude_tags, include_paths, exclude_paths], expected) in [
            ([&["pets"][..], &["admin"], &[], &[]], 1),
            ([&[], &[], &["/pets"], &[]], 4),
            ([&[], &[], &["/pets/*/photo"], &[]], 1),
            ([&[], &[], &[], &["/pets/{id}/photo"]], 3),
            ([&[], &[], &["/pe"], &[]], 0),
        ] {
            let options = ReadOptions {
                include_tags: list(include_tags),
                exclude_tags: list(exclude_tags),
                include_paths: list(include_paths),
                exclude_paths: list(exclude_paths),
                ..Default::default()
            };
            let read = read_with(SHOP, &options).tools.len();
            assert_eq!(read, expected, "{options:?}");
        }
    }

    #[test]
    fn swagger_parameters_are_schemas_themselves() {
        let text = json!({"swagger": "2.0", "info": {"title": "T"}, "host": "h.test", "basePath": "/v2",
            "schemes": ["https", "http"], "paths": {"/a": {
                "post": {"operationId": "a", "parameters": [
                    {"name": "n", "in": "query", "type": "integer", "maximum": 9, "description": "How many"},
                    {"name": "it", "in": "body", "required": true, "schema": {"$ref": "#/definitions/It"}}],
                    "responses": {"201": {"schema": {"type": "object"}}}},
                "put": {"operationId": "b", "parameters": [{"name": "f", "in": "formData", "type": "file"}]}}},
            "definitions": {"It": {"type": "object", "properties": {"x": {}}, "required": ["x"]}}});
        let parsed = read_with(
            &text.to_string(),
            &ReadOptions {
                server: Some("s".into()),
                ..Default::default()
            },
        );
        assert_eq!(ids(&parsed.tools), ["s/b", "s/a"]);
        let tool = &parsed.tools[1];
        let n = json!({"type": "integer", "maximum": 9, "description": "How many"});
        assert_eq!(
            Value::from(tool.input_schema.clone()),
            json!({"type": "object", "properties": {"n": n, "x": {}}, "required": ["x"]})
        );
        assert_eq!(
            tool.metadata["openapi"]["servers"],
            json!(["https://h.test/v2", "http://h.test/v2"])
        );
        assert!(tool.output_schema.is_some());
        assert_eq!(parsed.tools[0].metadata["openapi"]["body"]["form"], true);
    }

    #[test]
    fn unreadable_operations_are_reported() {
        let paths = |paths: Value| json!({"openapi": "3.1.0", "paths": paths}).to_string();
        for (text, expected) in [
            (
                paths(json!({"/a": {"get": {"parameters": [{"$ref": "#/nowhere"}]}}})),
                "\"#/nowhere\", which is not",
            ),
            (paths(json!({"/a": {"$ref": "#/paths/~1a"}})), "in a circle"),
            (paths(json!({"/a": {"get": 1}})), "operation is no object"),
            (
                paths(json!({"/a": {"get": {"parameters": [{"in": "query"}]}}})),
                "no `name`",
            ),
        ] {
            let parsed = read_with(&text, &ReadOptions::default());
            let message = parsed.skipped[0].error.to_string();
            assert!(message.contains(expected), "{message}");
        }
        for (text, expected) in [
            (
                json!({"openapi": "4.0.0"}).to_string(),
                "\"4.0.0\" is not supported",
            ),
            (paths(json!([])), "`paths` must be an object"),
            (
                paths(json!({"/a": {"$ref": "other.yaml"}})),
                "refers to another file, without which its tools are not whole: other.yaml; `toolscout add --follow-refs`",
            ),
            (
                paths(
                    json!({"/a": {"get": {"$ref": "b.yml"}, "put": {"parameters": [{"$ref": "../c.yml#/d"}]}}}),
                ),
                "other files, without which its tools are not whole: ../c.yml, b.yml;",
            ),
        ] {
            let message = parse(text.as_bytes(), &ReadOptions::default())
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_small_document_stays_small() {
        let mut schemas = Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/components/schemas/s{}", level + 1)});
            let schema = json!({"type": "object", "properties": {"a": next, "b": next, "c": next}});
            schemas.insert(format!("s{level}"), schema);
        }
        schemas.insert("s60".into(), json!({"type": "string"}));
        let body = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/s0"}}}});
        let document = json!({"openapi": "3.0.0", "info": {"title": "bomb"},
            "paths": {"/x": {"post": {"requestBody": body}}}, "components": {"schemas": schemas}});
        let parsed = read_with(&document.to_string(), &ReadOptions::default());
        let tool = &parsed.tools[0];
        assert!(serde_json::to_string(tool).unwrap().len() < 1_000_000);
        assert!(
            !tool.metadata["openapi"]["unexpanded"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
}
