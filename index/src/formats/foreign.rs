//! Documents that are no lists of tools: those that can be read become OpenAPI documents, the others
//! are refused by name with the next step.

use serde_json::{Map, Value, json};

use super::Outline;

/// Levels of a document that are converted; the parser refuses deeper ones.
pub(super) const MAX_LEVELS: usize = 130;

/// A document of another kind, that is read as an OpenAPI document.
#[derive(Clone, Copy)]
pub(super) enum Convertible {
    Postman,
    Discovery,
}

/// What an object is that is no tool and no list of tools, and what to do with it.
pub(super) fn unusable(fields: &Outline<'_>) -> Option<String> {
    // An object with a schema of arguments is a tool, whatever else it has.
    let schemas = ["inputSchema", "input_schema", "parameters", "function"];
    if schemas.iter().any(|schema| fields.has(schema)) {
        return None;
    }
    let (name, next_step) = unusable_kind(fields)?;
    Some(format!("it is {name} and has no tools: {next_step}"))
}

/// The name of a kind of document that has no tools, and what to do with one.
fn unusable_kind(fields: &Outline<'_>) -> Option<(&'static str, &'static str)> {
    let is_insomnia = fields.text("_type").as_deref() == Some("export");
    let is_schema = fields.text("$schema").is_some() && fields.begins("properties", '{');
    let kind = match () {
        () if fields.begins("log", '{') && fields.is_nested("log", "entries") => (
            "a HAR recording of HTTP requests",
            "it has requests and no definitions; give the OpenAPI document of the API, or a Postman collection",
        ),
        () if fields.has("asyncapi") => (
            "an AsyncAPI document",
            "its operations are messages and not requests; give the OpenAPI document of the API, if it has one",
        ),
        () if fields.has("arazzo") => (
            "an Arazzo document",
            "it describes steps; give the OpenAPI documents that its `sourceDescriptions` name",
        ),
        () if fields.has("overlay") && fields.has("actions") => (
            "an OpenAPI overlay",
            "apply it to its OpenAPI document, and give that",
        ),
        () if is_insomnia => (
            "an Insomnia export",
            "export the collection as OpenAPI, or import it in Postman and export a collection v2.1",
        ),
        () if fields.has("__schema") || fields.is_nested("data", "__schema") => (
            "a GraphQL schema",
            "its fields are no tools; connect an MCP server for GraphQL, or give an OpenAPI document",
        ),
        () if fields.begins("requests", '[') && fields.has("order") => (
            "a Postman collection v1",
            "export it from Postman as a collection v2.1",
        ),
        () if fields.has("values") && fields.text("_postman_variable_scope").is_some() => (
            "a Postman environment",
            "give the collection; its variables can be written into the collection itself",
        ),
        () if is_schema && !fields.has("name") => (
            "a JSON schema",
            "a tool needs a `name` and has the schema as its `inputSchema`",
        ),
        () => return None,
    };
    Some(kind)
}

/// Why a file that could not be read has no tools, by the ending of its name: it is the source of something else.
pub(super) fn file_without_tools(name: &str) -> Option<String> {
    const PROGRAM: &str = "write its tools as JSON (`name`, `description`, `inputSchema`), or run it as an MCP server and \
                           take its tools with `toolscout sync --mcp`";
    let (_, ending) = name.rsplit_once('.')?;
    let (kind, next_step) = match ending.to_ascii_lowercase().as_str() {
        "py" => (
            "Python source",
            "the Python package takes functions as tools (docs/python.md); otherwise write the tools as JSON",
        ),
        "ts" | "tsx" | "js" | "mjs" | "cjs" | "jsx" => ("JavaScript or TypeScript source", PROGRAM),
        "rs" | "go" | "java" | "kt" | "cs" | "rb" | "php" | "swift" => ("program source", PROGRAM),
        "graphql" | "gql" | "graphqls" => (
            "a GraphQL schema",
            "its fields are no tools; connect an MCP server for GraphQL, or give an OpenAPI document",
        ),
        "proto" => (
            "a Protocol Buffers definition",
            "give the OpenAPI document of the API, if it has one",
        ),
        "md" | "markdown" | "rst" | "html" | "txt" => (
            "a text",
            "give a file with definitions of tools; of texts, `add` reads only `SKILL.md`",
        ),
        _ => return None,
    };
    Some(format!("it is {kind} and has no tools: {next_step}"))
}

/// The kind of a document that can be read as an OpenAPI document.
pub(super) fn convertible(fields: &Outline<'_>) -> Option<Convertible> {
    let kind = fields.text("kind").unwrap_or_default();
    let is_discovery = kind.starts_with("discovery#rest");
    let is_collection = fields.begins("item", '[') && fields.begins("info", '{');
    match () {
        () if is_discovery && (fields.has("resources") || fields.has("methods")) => {
            Some(Convertible::Discovery)
        }
        () if is_collection => Some(Convertible::Postman),
        () => None,
    }
}

/// Adds an operation to the paths of an OpenAPI document. One of a path and method that another has too
/// gets a path with a fragment, which is not sent.
pub(super) fn insert_operation(
    paths: &mut Map<String, Value>,
    path: String,
    method: &str,
    operation: Value,
) {
    let mut free = path.clone();
    // From the number of paths on, so that a thousand operations of one path are no million tries.
    let mut number = paths.len();
    while matches!(paths.get(&free), Some(item) if item.get(method).is_some()) {
        free = format!("{path}#{number}");
        number += 1;
    }
    let item = paths.entry(free).or_insert(json!({}));
    item[method] = operation;
}

/// A field that is a text, or an empty one.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Parsed, ReadOptions, parse};
    use super::*;

    fn read(document: &Value) -> Parsed {
        let parsed = parse(document.to_string().as_bytes(), &ReadOptions::default()).unwrap();
        assert!(parsed.skipped.is_empty(), "{:?}", parsed.skipped);
        parsed
    }

    fn shop(schema: &str) -> Value {
        json!({
        "info": {"name": "Shop", "schema": schema},
        "variable": [{"key": "base", "value": "https://{{host}}/v1"}, {"key": "host", "value": "shop.test"}],
        "auth": {"type": "bearer", "bearer": [{"key": "token", "value": "{{token}}"}]},
        "item": [
            {"name": "Orders", "item": [
                {"name": "List orders", "request": {"method": "GET",
                    "header": [{"key": "X-Tenant", "value": "a"}, {"key": "Authorization", "value": "b"},
                        {"key": "X-Off", "value": "c", "disabled": true}],
                    "url": {"raw": "{{base}}/orders/:id?limit=5", "query": [
                        {"key": "limit", "value": "5", "description": "How many"}],
                        "variable": [{"key": "id", "value": "7", "description": "Of the order"}]}}},
                {"name": "List orders", "request": {"method": "GET", "url": "{{base}}/orders/:id"}}]},
            {"name": "Add order", "request": {"method": "POST", "url": "{{base}}/orders",
                "auth": {"type": "apikey", "apikey": [{"key": "key", "value": "X-Key"}]},
                "body": {"mode": "raw", "raw": "{\"sku\": \"a\", \"count\": {{n}}, \"tags\": [\"x\"]}",
                    "options": {"raw": {"language": "json"}}}}},
            {"name": "Upload", "request": {"method": "PUT", "url": "{{elsewhere}}/files/{{file}}",
                "auth": {"type": "noauth"},
                "body": {"mode": "formdata", "formdata": [
                    {"key": "f", "type": "file"}, {"key": "note", "type": "text", "value": "n"}]}}},
            {"name": "Copy", "request": {"method": "COPY", "url": "https://other.test/a?b=c&d",
                "body": {"mode": "urlencoded", "urlencoded": [{"key": "k", "value": "v"}]}}}
        ]})
    }

    #[test]
    fn a_postman_collection_becomes_tools() {
        for version in ["v2.0.0", "v2.1.0"] {
            let schema =
                format!("https://schema.getpostman.com/json/collection/{version}/collection.json");
            let parsed = read(&shop(&schema));
            let ids: Vec<&str> = parsed.tools.iter().map(|tool| tool.id.as_str()).collect();
            assert_eq!(
                ids,
                [
                    "shop/list_orders",
                    "shop/list_orders_2",
                    "shop/add_order",
                    "shop/upload",
                    "shop/copy"
                ]
            );
            let [list, _, add, upload, copy] = parsed.tools.as_slice() else {
                panic!("five tools")
            };
            let call = |tool: &crate::Tool| tool.metadata["openapi"].clone();
            assert_eq!(list.tags, ["Orders"]);
            assert_eq!(call(list)["servers"], json!(["https://shop.test/v1"]));
            assert_eq!(call(list)["path"], "/orders/{id}");
            assert_eq!(call(list)["security_schemes"]["bearer"]["scheme"], "bearer");
            let properties = &list.input_schema["properties"];
            assert_eq!(
                *properties,
                json!({
                    "id": {"type": "string", "examples": ["7"], "description": "Of the order"},
                    "limit": {"type": "string", "examples": ["5"], "description": "How many"},
                    "X-Tenant": {"type": "string", "examples": ["a"]}})
            );
            assert_eq!(list.input_schema["required"], json!(["id"]));
            assert_eq!(call(add)["security_schemes"]["apikey"]["name"], "X-Key");
            assert_eq!(call(upload)["servers"], json!([]));
            assert_eq!(call(upload)["path"], "/files/{file}");
            assert_eq!(call(upload)["security"], json!([]));
            assert_eq!(call(copy)["method"], "COPY");
            assert_eq!(call(copy)["servers"], json!(["https://other.test"]));
            assert!(copy.input_schema["properties"]["k"].is_object());
        }
        let answered = json!({ "collection": shop("v2.1.0") });
        assert_eq!(read(&answered).tools.len(), 5);
    }

    #[test]
    fn a_discovery_document_has_a_tool_for_each_method() {
        let method = |id: &str, path: &str| json!({"id": id, "httpMethod": "GET", "path": path});
        let mut get = method("drive.files.get", "files/{fileId}");
        get["parameters"] = json!({"fileId": {"type": "string", "required": true, "location": "path"},
            "size": {"type": "integer", "format": "int32", "minimum": "1", "location": "query", "default": "10"},
            "parts": {"type": "string", "repeated": true, "location": "query", "description": "d"}});
        get["response"] = json!({"$ref": "File"});
        let mut create = method("drive.files.create", "files");
        create["httpMethod"] = "POST".into();
        create["request"] = json!({"$ref": "File"});
        let document = json!({"kind": "discovery#restDescription", "name": "drive", "title": "Google Drive API",
            "rootUrl": "https://www.googleapis.test/", "servicePath": "drive/v3/",
            "schemas": {"File": {"id": "File", "type": "object", "properties": {
                "name": {"type": "string"}, "parent": {"$ref": "File"}}}},
            "methods": {"about": method("drive.about", "about")},
            "resources": {"files": {"methods": {"get": get, "create": create},
                "resources": {"comments": {"methods": {"list": method("drive.files.comments.list", "{+parent}/comments")}}}}}});
        let parsed = read(&document);
        let ids: Vec<&str> = parsed.tools.iter().map(|tool| tool.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "drive/drive.about",
                "drive/drive.files.get",
                "drive/drive.files.create",
                "drive/drive.files.comments.list"
            ]
        );
        let get = &parsed.tools[1];
        assert_eq!(
            get.metadata["openapi"]["servers"],
            json!(["https://www.googleapis.test/drive/v3"])
        );
        assert_eq!(get.input_schema["required"], json!(["fileId"]));
        let properties = &get.input_schema["properties"];
        assert_eq!(
            properties["size"],
            json!({"type": "integer", "format": "int32", "minimum": 1})
        );
        assert_eq!(properties["parts"]["items"], json!({"type": "string"}));
        assert!(get.output_schema.is_some());
        assert_eq!(
            parsed.tools[2].input_schema["properties"]["name"]["type"],
            "string"
        );
        assert_eq!(parsed.tools[3].tags, ["files", "comments"]);
    }

    #[test]
    fn what_has_no_tools_is_refused_by_name_with_the_next_step() {
        for (document, name, next_step) in [
            (
                json!({"log": {"version": "1.2", "entries": []}}),
                "HAR",
                "OpenAPI document",
            ),
            (
                json!({"asyncapi": "3.0.0", "info": {}}),
                "AsyncAPI",
                "OpenAPI document",
            ),
            (
                json!({"arazzo": "1.0.0", "info": {}}),
                "Arazzo",
                "sourceDescriptions",
            ),
            (
                json!({"overlay": "1.0.0", "actions": []}),
                "overlay",
                "apply it",
            ),
            (
                json!({"_type": "export", "resources": []}),
                "Insomnia",
                "as OpenAPI",
            ),
            (json!({"data": {"__schema": {}}}), "GraphQL", "MCP server"),
            (
                json!({"id": "x", "name": "", "order": [], "requests": []}),
                "Postman collection v1",
                "v2.1",
            ),
            (
                json!({"values": [], "_postman_variable_scope": "environment"}),
                "environment",
                "collection",
            ),
            (
                json!({"$schema": "x", "type": "object", "properties": {}}),
                "JSON schema",
                "inputSchema",
            ),
        ] {
            let error = parse(document.to_string().as_bytes(), &ReadOptions::default());
            let message = error.unwrap_err().to_string();
            assert!(
                message.contains(name) && message.contains(next_step),
                "{message}"
            );
        }
    }

    #[test]
    fn a_page_that_others_follow_is_a_part() {
        let tools = json!([{"name": "a", "inputSchema": {"type": "object"}}]);
        for (document, is_part) in [
            (json!({"tools": tools, "nextCursor": "2"}), true),
            (
                json!({"jsonrpc": "2.0", "id": 1, "result": {"nextCursor": "x", "tools": tools}}),
                true,
            ),
            (json!({"tools": tools, "nextCursor": 2}), true),
            (json!({"tools": tools, "nextCursor": ""}), false),
            (json!({"tools": tools, "nextCursor": null}), false),
            (json!({"tools": tools}), false),
        ] {
            let parsed = read(&document);
            assert_eq!(
                (parsed.is_part, parsed.format),
                (is_part, Format::Mcp),
                "{document}"
            );
        }
    }
}
