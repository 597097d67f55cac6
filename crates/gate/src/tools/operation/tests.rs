//! From a document to the request of a call: what was given is sent as the document says.

use serde_json::{Value, json};
use toolscout_index::formats::{self, Parsed, ReadOptions};

use super::files::FileReader;
use super::request::{Parts, parts};
use super::*;
use crate::tools::builtin::files::FilesConfig;

fn read(document: &Value) -> Parsed {
    let parsed = formats::parse(document.to_string().as_bytes(), &ReadOptions::default()).unwrap();
    assert!(parsed.skipped.is_empty(), "{:?}", parsed.skipped);
    parsed
}

/// The tool of a document with this one operation.
fn tool_of(path: &str, method: &str, operation: Value) -> Tool {
    let mut operation = operation;
    operation["operationId"] = json!("one");
    let document = json!({ "openapi": "3.0.3", "info": { "title": "T" }, "paths": { path: { method: operation } } });
    read(&document).tools.remove(0)
}

fn made(tool: &Tool, arguments: &Value) -> Result<Parts, String> {
    let base = Url::parse("https://api.test/v1").unwrap();
    let arguments = arguments.as_object().unwrap();
    parts(&tool.metadata["openapi"], &base, arguments).map_err(|error| error.to_string())
}

fn url(tool: &Tool, arguments: &Value) -> String {
    let url = made(tool, arguments).unwrap().url.to_string();
    url.strip_prefix("https://api.test/v1").unwrap().to_owned()
}

async fn sent(tool: &Tool, arguments: &Value, root: Option<&Root>) -> (String, String) {
    let body = made(tool, arguments).unwrap().body.unwrap();
    let (kind, bytes) = body.sent(&mut FileReader::new(root)).await.unwrap();
    (kind, String::from_utf8(bytes).unwrap())
}

#[test]
fn parameters_of_a_query_are_written_in_their_style() {
    let object = || json!({ "a": 1, "b": "x y" });
    let list = || json!(["x y", "b&c", "d,e"]);
    for (declared, value, expected) in [
        (json!({}), list(), "?q=x%20y&q=b%26c&q=d%2Ce"),
        (json!({ "explode": false }), list(), "?q=x%20y,b%26c,d%2Ce"),
        (
            json!({ "style": "spaceDelimited" }),
            list(),
            "?q=x%20y%20b%26c%20d%2Ce",
        ),
        (
            json!({ "style": "pipeDelimited" }),
            list(),
            "?q=x%20y%7Cb%26c%7Cd%2Ce",
        ),
        (json!({}), object(), "?a=1&b=x%20y"),
        (json!({ "explode": false }), object(), "?q=a,1,b,x%20y"),
        (
            json!({ "style": "deepObject" }),
            json!({ "eq": "x", "size": { "gte": 1 }, "or": [{ "a": 1 }, { "a": 2 }], "none": null }),
            "?q%5Beq%5D=x&q%5Bsize%5D%5Bgte%5D=1&q%5Bor%5D%5B0%5D%5Ba%5D=1&q%5Bor%5D%5B1%5D%5Ba%5D=2",
        ),
        (
            json!({ "content": { "application/json": { "schema": {} } } }),
            json!({ "color": "red", "n": 1 }),
            "?q=%7B%22color%22%3A%22red%22%2C%22n%22%3A1%7D",
        ),
        (
            json!({ "content": { "application/vnd.x+json": { "schema": {} } } }),
            json!([1, 2]),
            "?q=%5B1%2C2%5D",
        ),
        (
            json!({ "allowReserved": true }),
            json!("a/b?c=d&e f%20g%h#i"),
            "?q=a/b?c=d%26e%20f%20g%25h%23i",
        ),
        (json!({ "allowEmptyValue": true }), json!(""), "?q="),
        (json!({}), json!([]), ""),
        (json!({}), json!(null), ""),
    ] {
        let mut parameter = declared.clone();
        parameter["name"] = json!("q");
        parameter["in"] = json!("query");
        if parameter.get("content").is_none() {
            parameter["schema"] = json!({});
        }
        let tool = tool_of("/s", "get", json!({ "parameters": [parameter] }));
        assert_eq!(
            url(&tool, &json!({ "q": value })),
            format!("/s{expected}"),
            "{declared}"
        );
    }
}

#[test]
fn parameters_of_a_path_are_written_in_their_style() {
    let object = || json!({ "r": 1, "g": "a/b" });
    let list = || json!(["a", "b/c"]);
    for (style, explode, value, expected) in [
        ("simple", false, list(), "a,b%2Fc"),
        ("simple", true, object(), "r=1,g=a%2Fb"),
        ("simple", false, object(), "r,1,g,a%2Fb"),
        ("label", false, json!("a.b"), ".a.b"),
        ("label", true, list(), ".a.b%2Fc"),
        ("label", false, list(), ".a,b%2Fc"),
        ("label", true, object(), ".r=1.g=a%2Fb"),
        ("matrix", false, json!(5), ";p=5"),
        ("matrix", false, list(), ";p=a,b%2Fc"),
        ("matrix", true, list(), ";p=a;p=b%2Fc"),
        ("matrix", true, object(), ";r=1;g=a%2Fb"),
        ("matrix", false, object(), ";p=r,1,g,a%2Fb"),
        ("matrix", false, json!(""), ";p"),
    ] {
        let parameter = json!({ "name": "p", "in": "path", "required": true, "style": style, "explode": explode, "schema": {} });
        let tool = tool_of("/x/{p}/y", "get", json!({ "parameters": [parameter] }));
        let url = url(&tool, &json!({ "p": value }));
        assert_eq!(url, format!("/x/{expected}/y"), "{style} {explode}");
    }
    let parameter =
        json!({ "name": "p", "in": "path", "required": true, "style": "label", "schema": {} });
    let tool = tool_of("/x/{p}", "get", json!({ "parameters": [parameter] }));
    for leaving in ["", "."] {
        let message = made(&tool, &json!({ "p": leaving })).unwrap_err();
        assert!(message.contains("not a valid part"), "{message}");
    }
}

#[test]
fn a_fragment_tells_operations_apart_and_a_query_in_a_path_is_sent_as_one() {
    let path = |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": {} });
    let query = |name: &str| json!({ "name": name, "in": "query", "schema": {} });
    for (declared, parameters, arguments, expected) in [
        (
            "/files/{id}#get_link",
            json!([path("id")]),
            json!({ "id": "a#b" }),
            "/files/a%23b",
        ),
        (
            "/s?kind=x",
            json!([query("q")]),
            json!({ "q": 1 }),
            "/s?kind=x&q=1",
        ),
        (
            "/s?kind=x",
            json!([query("kind")]),
            json!({ "kind": "y" }),
            "/s?kind=y",
        ),
        (
            "/s?kind={kind}",
            json!([query("kind")]),
            json!({ "kind": "y" }),
            "/s?kind=y",
        ),
        (
            "/s?kind={kind}",
            json!([path("kind")]),
            json!({ "kind": "a&b" }),
            "/s?kind=a%26b",
        ),
        (
            "/s{?kind,q}",
            json!([query("kind")]),
            json!({ "kind": "y" }),
            "/s?kind=y",
        ),
        ("/s?beta#two", json!([]), json!({}), "/s?beta"),
        (
            "/a/{id}/b/{id}",
            json!([path("id")]),
            json!({ "id": 7 }),
            "/a/7/b/7",
        ),
    ] {
        let tool = tool_of(declared, "get", json!({ "parameters": parameters }));
        assert_eq!(url(&tool, &arguments), expected, "{declared}");
    }
    for (declared, required, optional) in [
        ("/s?k={kind}", Some("kind"), None),
        ("/s{?q*}", None, Some("q")),
        ("/a/{id}#{part}", Some("id"), None),
    ] {
        let tool = tool_of(declared, "get", json!({}));
        let properties = tool.input_schema["properties"].as_object().unwrap();
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(names, Vec::from_iter(required.or(optional)), "{declared}");
        let is_required = tool.input_schema.contains_key("required");
        assert_eq!(is_required, required.is_some(), "{declared}");
    }
    let tool = |path: &str| json!({ "get": { "operationId": path, "parameters": [] } });
    let document = json!({ "openapi": "3.0.3", "info": { "title": "T" },
        "paths": { "/f#one": tool("one"), "/f#two": tool("two"), "/f": tool("three") } });
    assert_eq!(read(&document).tools.len(), 3);
}

#[test]
fn headers_and_cookies_are_written_in_their_style() {
    let parameters = json!([
        { "name": "X-List", "in": "header", "schema": {} },
        { "name": "X-Object", "in": "header", "explode": true, "schema": {} },
        { "name": "X-Json", "in": "header", "content": { "application/json": { "schema": {} } } },
        { "name": "sid", "in": "cookie", "schema": {} },
        { "name": "Content-Length", "in": "header", "required": true, "schema": {} },
        { "name": "Accept", "in": "header", "required": true, "schema": {} },
    ]);
    let tool = tool_of("/s", "get", json!({ "parameters": parameters }));
    assert!(tool.input_schema.get("required").is_none());
    let arguments = json!({ "X-List": ["a", 1], "X-Object": { "r": 1, "g": 2 }, "X-Json": { "a": [1] }, "sid": ["1;2", 3] });
    let headers = made(&tool, &arguments).unwrap().headers;
    for (name, expected) in [
        ("x-list", "a,1"),
        ("x-object", "r=1,g=2"),
        ("x-json", r#"{"a":[1]}"#),
        ("cookie", "sid=1%3B2%2C3"),
    ] {
        assert_eq!(headers[name], expected, "{name}");
    }
}

#[tokio::test]
async fn fields_of_a_form_keep_their_names_and_are_encoded_as_declared() {
    let body = |encoding: Value| {
        let schema = json!({ "type": "object", "properties": { "amount": {}, "metadata": {}, "items": {}, "expand": {} } });
        let media = json!({ "schema": schema, "encoding": encoding });
        json!({ "requestBody": { "content": { "application/x-www-form-urlencoded": media } } })
    };
    let deep = || json!({ "style": "deepObject", "explode": true });
    for (encoding, arguments, expected) in [
        (
            json!({ "metadata": deep(), "expand": deep() }),
            json!({ "amount": 5, "metadata": { "k": "v w" }, "expand": ["a", "b"] }),
            "amount=5&expand%5B0%5D=a&expand%5B1%5D=b&metadata%5Bk%5D=v%20w",
        ),
        (
            json!({ "metadata": deep() }),
            json!({ "metadata": { "a": { "b": [1] } } }),
            "metadata%5Ba%5D%5Bb%5D%5B0%5D=1",
        ),
        (
            json!({}),
            json!({ "metadata": { "k": "v" }, "expand": ["a", "b"] }),
            "expand=a&expand=b&metadata=%7B%22k%22%3A%22v%22%7D",
        ),
        (
            json!({}),
            json!({ "items": [{ "price": "x" }] }),
            "items=%7B%22price%22%3A%22x%22%7D",
        ),
        (
            json!({ "expand": { "contentType": "application/json" } }),
            json!({ "expand": ["a"] }),
            "expand=%5B%22a%22%5D",
        ),
        (
            json!({ "expand": { "style": "form", "explode": false }, "items": { "style": "pipeDelimited" } }),
            json!({ "expand": ["a", "b"], "items": ["c", "d"] }),
            "expand=a,b&items=c%7Cd",
        ),
        (
            json!({ "amount": { "allowReserved": true } }),
            json!({ "amount": "a/b" }),
            "amount=a/b",
        ),
    ] {
        let tool = tool_of("/f", "post", body(encoding.clone()));
        let (kind, text) = sent(&tool, &arguments, None).await;
        let mut fields: Vec<&str> = text.split('&').collect();
        fields.sort_unstable();
        assert_eq!(kind, "application/x-www-form-urlencoded");
        assert_eq!(fields.join("&"), expected, "{encoding}");
    }
}

#[tokio::test]
async fn swagger_parameters_are_written_as_swagger_says() {
    let list = |name: &str, place: &str, format: Option<&str>| {
        let mut parameter =
            json!({ "name": name, "in": place, "type": "array", "items": { "type": "string" } });
        if let Some(format) = format {
            parameter["collectionFormat"] = json!(format);
        }
        parameter
    };
    let form = json!([list("tags", "formData", Some("multi")), list("csv", "formData", None),
        { "name": "note", "in": "formData", "type": "string" }]);
    let file = json!([{ "name": "note", "in": "formData", "type": "string" },
        { "name": "file", "in": "formData", "type": "file", "required": true }]);
    let payload = json!([{ "name": "payload", "in": "body", "schema": { "type": "object", "properties": { "t": {} } } }]);
    let operation = |name: &str, consumes: &[&str], parameters: &Value| json!({ "operationId": name, "consumes": consumes, "parameters": parameters });
    let multipart = "multipart/form-data";
    let urlencoded = "application/x-www-form-urlencoded";
    let document = json!({ "swagger": "2.0", "info": { "title": "T" }, "consumes": [multipart], "paths": {
        "/q": { "get": { "operationId": "q", "parameters": [list("a", "query", None), list("b", "query", Some("multi")),
            list("c", "query", Some("pipes")), list("d", "query", Some("ssv"))] } },
        "/both": { "post": operation("both", &[multipart, urlencoded], &form) },
        "/multi": { "post": operation("multi", &[multipart], &form) },
        "/file": { "post": operation("file", &[urlencoded], &file) },
        "/none": { "post": { "operationId": "none", "parameters": form, "consumes": [] } },
        "/json": { "put": operation("json", &["application/xml", "text/json", "application/json"], &payload) },
    } });
    let tools = read(&document).tools;
    let tool = |name: &str| tools.iter().find(|tool| tool.id.name() == name).unwrap();
    let both = json!(["x", "y,z"]);
    let arguments = json!({ "a": both, "b": both, "c": both, "d": both });
    assert_eq!(
        url(tool("q"), &arguments),
        "/q?a=x,y%2Cz&b=x&b=y%2Cz&c=x%7Cy%2Cz&d=x%20y%2Cz"
    );
    let fields = json!({ "tags": both, "csv": both, "note": "n" });
    for name in ["both", "none"] {
        let (kind, text) = sent(tool(name), &fields, None).await;
        assert_eq!(kind, urlencoded, "{name}");
        let mut fields: Vec<&str> = text.split('&').collect();
        fields.sort_unstable();
        assert_eq!(fields, ["csv=x,y%2Cz", "note=n", "tags=x", "tags=y%2Cz"]);
    }
    let (kind, text) = sent(tool("multi"), &fields, None).await;
    assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
    for part in [
        "name=\"tags\"\r\n\r\ny,z\r\n",
        "name=\"csv\"\r\n\r\nx,y,z\r\n",
        "name=\"note\"\r\n\r\nn\r\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let file = json!({ "note": "n", "file": { "base64": "aGk=", "filename": "a\"b.txt" } });
    let (kind, text) = sent(tool("file"), &file, None).await;
    assert!(kind.starts_with("multipart/form-data; boundary="), "{kind}");
    let part = "name=\"file\"; filename=\"a%22b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nhi\r\n";
    assert!(text.contains(part), "{text}");
    let (kind, text) = sent(tool("json"), &json!({ "t": 1 }), None).await;
    assert_eq!((kind.as_str(), text.as_str()), ("text/json", r#"{"t":1}"#));
}

#[tokio::test]
async fn a_multipart_body_has_fields_and_files_by_path_or_content() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "from disk").unwrap();
    let root = Root::open(&FilesConfig {
        root: folder.path().to_str().unwrap().to_owned(),
        write: false,
        max_write_bytes: 0,
    })
    .unwrap();
    let file = || json!({ "type": "string", "format": "binary" });
    let schema = json!({ "type": "object", "properties": {
        "name": { "type": "string" }, "meta": { "type": "object" }, "file": file(), "rows": { "type": "array", "items": {} },
        "more": { "type": "array", "items": file() }, "either": { "oneOf": [file(), { "type": "array", "items": file() }] },
        "links": { "type": "object" },
    } });
    let encoding = json!({ "file": { "contentType": "text/plain" }, "links": { "style": "deepObject", "explode": true } });
    let media = json!({ "multipart/form-data": { "schema": schema, "encoding": encoding } });
    let tool = tool_of("/u", "post", json!({ "requestBody": { "content": media } }));
    let properties = &tool.input_schema["properties"];
    for given in [
        "file",
        "more/items",
        "either/oneOf/0",
        "either/oneOf/1/items",
    ] {
        let schema = properties.pointer(&format!("/{given}")).unwrap();
        assert_eq!(schema["type"], json!(["string", "object"]), "{given}");
    }
    let arguments = json!({ "name": "n", "meta": { "a": [1] }, "rows": [1, { "b": 2 }], "file": "a.txt",
        "more": [{ "path": "a.txt", "filename": "b.txt" }, { "base64": "aGk=", "content_type": "image/png" }],
        "either": "data:text/csv;base64,aGk=", "links": { "create": true } });
    let (_, text) = sent(&tool, &arguments, Some(&root)).await;
    for part in [
        "name=\"name\"\r\n\r\nn\r\n",
        "name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{\"a\":[1]}\r\n",
        "name=\"rows\"\r\n\r\n1\r\n",
        "name=\"rows\"\r\nContent-Type: application/json\r\n\r\n{\"b\":2}\r\n",
        "name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nfrom disk\r\n",
        "name=\"more\"; filename=\"b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\nfrom disk\r\n",
        "name=\"more\"; filename=\"file\"\r\nContent-Type: image/png\r\n\r\nhi\r\n",
        "name=\"either\"; filename=\"file\"\r\nContent-Type: text/csv\r\n\r\nhi\r\n",
        "name=\"links[create]\"\r\n\r\ntrue\r\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    for (root, path, expected) in [
        (Some(&root), "../etc/passwd", "outside"),
        (Some(&root), "none.txt", "there is no \"none.txt\""),
        (None, "a.txt", "no folder for files is set"),
    ] {
        let body = made(&tool, &json!({ "file": path })).unwrap().body.unwrap();
        let failure = body.sent(&mut FileReader::new(root)).await.unwrap_err();
        assert!(failure.message.contains(expected), "{failure}");
    }
}

#[test]
fn a_field_of_a_multipart_body_that_can_only_be_a_file_is_one() {
    for (name, property, encoding) in [
        ("file", json!({ "type": "string" }), json!({})),
        (
            "x",
            json!({}),
            json!({ "x": { "contentType": "image/png, image/jpeg" } }),
        ),
        (
            "x",
            json!({ "type": "string", "contentMediaType": "application/pdf" }),
            json!({}),
        ),
        (
            "x",
            json!({ "type": ["string", "null"], "format": "binary" }),
            json!({}),
        ),
    ] {
        let schema = json!({ "type": "object", "properties": { name: property } });
        for schema in [
            schema.clone(),
            json!({ "allOf": [{ "type": "object" }, schema] }),
        ] {
            let media =
                json!({ "multipart/form-data": { "schema": schema, "encoding": encoding } });
            let tool = tool_of("/u", "post", json!({ "requestBody": { "content": media } }));
            let files = &tool.metadata["openapi"]["body"]["files"];
            assert_eq!(files, &json!([name]), "{schema}");
        }
    }
    for property in [
        json!({ "type": "string", "contentEncoding": "base64", "contentMediaType": "image/png" }),
        json!({ "type": "string", "format": "byte" }),
        json!({ "type": "string", "contentMediaType": "application/json" }),
        json!({}),
    ] {
        let schema = json!({ "type": "object", "properties": { "x": property } });
        let media = json!({ "multipart/form-data": { "schema": schema } });
        let tool = tool_of("/u", "post", json!({ "requestBody": { "content": media } }));
        assert!(
            tool.metadata["openapi"]["body"].get("files").is_none(),
            "{schema}"
        );
    }
}

#[tokio::test]
async fn of_several_media_types_the_one_that_is_built_best_is_taken() {
    let text = || json!({ "schema": { "type": "string" } });
    let binary = json!({ "schema": { "type": "string", "format": "binary" } });
    let object = || json!({ "schema": { "type": "object", "properties": { "a": {} } } });
    for (content, arguments, expected) in [
        (
            json!({ "application/xml": object(), "application/json": object() }),
            json!({ "a": 1 }),
            ("application/json", r#"{"a":1}"#),
        ),
        (
            json!({ "application/x-www-form-urlencoded": object(), "application/vnd.x+json; v=1": object() }),
            json!({ "a": 1 }),
            ("application/vnd.x+json", r#"{"a":1}"#),
        ),
        (
            json!({ "multipart/form-data": object(), "application/x-www-form-urlencoded": object() }),
            json!({ "a": 1 }),
            ("application/x-www-form-urlencoded", "a=1"),
        ),
        (
            json!({ "*/*": object() }),
            json!({ "a": 1 }),
            ("application/json", r#"{"a":1}"#),
        ),
        (
            json!({ "text/plain": text() }),
            json!({ "body": "x" }),
            ("text/plain", "x"),
        ),
        (
            json!({ "image/png": binary }),
            json!({ "body": { "base64": "aGk=" } }),
            ("image/png", "hi"),
        ),
    ] {
        let operation = json!({ "requestBody": { "required": true, "content": content } });
        let tool = tool_of("/b", "post", operation);
        let (kind, text) = sent(&tool, &arguments, None).await;
        assert_eq!((kind.as_str(), text.as_str()), expected, "{content}");
    }
}

#[test]
fn what_only_the_server_writes_is_neither_asked_for_nor_sent() {
    let read_only = || json!({ "type": "string", "readOnly": true, "default": "d" });
    let base = json!({ "type": "object", "required": ["id", "a"], "properties": { "id": read_only(), "a": {} } });
    for schema in [
        base.clone(),
        json!({ "allOf": [base.clone(), { "required": ["id"] }] }),
        json!({ "required": ["id"], "allOf": [{ "properties": { "id": { "allOf": [{ "type": "string" }, { "readOnly": true }] } } }] }),
        json!({ "type": "object", "properties": { "inner": base.clone(), "list": { "type": "array", "items": base } } }),
    ] {
        let content = json!({ "application/json": { "schema": schema } });
        let operation = json!({ "requestBody": { "required": true, "content": content } });
        let tool = tool_of("/r", "post", operation);
        let shown = Value::Object(tool.input_schema.clone()).to_string();
        assert!(!shown.contains("\"id\""), "{shown}");
    }
    let property = json!({ "type": "object", "properties": { "readOnly": { "type": "boolean" } } });
    let content = json!({ "application/json": { "schema": property } });
    let tool = tool_of(
        "/r",
        "post",
        json!({ "requestBody": { "content": content } }),
    );
    assert!(tool.input_schema["properties"].get("readOnly").is_some());
}

#[test]
fn what_cannot_be_built_is_said_when_the_document_is_read() {
    let body = |content: Value| json!({ "requestBody": { "content": content } });
    let object = json!({ "schema": { "type": "object", "properties": { "a": {} } } });
    let parameter = |parameter: Value| json!({ "parameters": [parameter] });
    for (operation, expected) in [
        (
            body(json!({ "application/xml": object })),
            Some("its body is application/xml"),
        ),
        (
            body(json!({ "multipart/mixed": object })),
            Some("its body is multipart/mixed"),
        ),
        (
            body(json!({ "multipart/form-data": { "schema": { "type": "string" } } })),
            Some("whose fields are those of an object"),
        ),
        (body(json!({})), Some("names no media type")),
        (
            parameter(json!({ "name": "Host", "in": "header" })),
            Some("the parameter `Host` is left out"),
        ),
        (
            parameter(json!({ "name": "a b", "in": "header" })),
            Some("no header can have this name"),
        ),
        (
            parameter(json!({ "name": "q", "in": "fragment" })),
            Some("a request has no place \"fragment\""),
        ),
        (
            parameter(json!({ "name": "q", "in": "query", "style": "matrix", "schema": {} })),
            Some("its style \"matrix\" does not exist there"),
        ),
        (
            parameter(json!({ "name": "Authorization", "in": "header" })),
            None,
        ),
        (body(json!({ "application/json": object })), None),
        (
            body(json!({ "text/csv": { "schema": { "type": "string" } } })),
            None,
        ),
    ] {
        let mut operation = operation;
        operation["operationId"] = json!("one");
        let document = json!({ "openapi": "3.0.3", "info": { "title": "T" }, "paths": { "/x": { "post": operation } } });
        let warnings = read(&document).warnings;
        match expected {
            None => assert_eq!(warnings, [], "{operation}"),
            Some(expected) => {
                let warning = warnings[0].to_string();
                assert!(warning.starts_with("t/one: "), "{warning}");
                assert!(warning.contains(expected), "{warning}");
            }
        }
    }
}

#[test]
fn no_path_leaves_the_base() {
    let base = Url::parse("https://api.test/v1").unwrap();
    for path in [
        "/../v1-admin",
        "/a/../../x",
        "/./x",
        "/%2e%2e/admin",
        "/a/%252e%252e/admin",
        "/..;x=1/admin",
        "/a\\..\\..\\admin",
        "/.\t./admin",
        "/a%2f..%2f..%2fadmin",
    ] {
        let refused = parts(&json!({ "path": path }), &base, &Arguments::new());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("leads out of"), "{path}: {refused}");
    }
    let filled = json!({ "path": "/files/{name}", "parameters": { "name": { "in": "path", "name": "name" } } });
    for name in ["../admin", "%2e%2e", "..\\x", "a/../../b"] {
        let given = json!({ "name": name });
        assert!(
            parts(&filled, &base, given.as_object().unwrap()).is_err(),
            "{name}"
        );
    }
    for (path, expected) in [
        ("@evil.test/x", "https://api.test/v1/@evil.test/x"),
        ("//evil.test/x", "https://api.test/v1//evil.test/x"),
        (":8080/x", "https://api.test/v1/:8080/x"),
        ("/a..b/...", "https://api.test/v1/a..b/..."),
        ("", "https://api.test/v1"),
    ] {
        let made = parts(&json!({ "path": path }), &base, &Arguments::new()).unwrap();
        assert_eq!(made.url.as_str(), expected, "{path}");
    }
}

#[test]
fn a_secret_goes_only_where_the_operator_says() {
    let both = r#"["https://a.test/v1", "https://b.test"]"#;
    for (settings, address, is_sent) in [
        ("", "https://evil.test/v1/x", false),
        (
            "base_url = 'https://a.test/v1'",
            "https://a.test/v1/x",
            true,
        ),
        ("base_url = 'https://a.test/v1'", "https://a.test/v1", true),
        (
            "base_url = 'https://a.test/v1'",
            "https://a.test/v1-admin",
            false,
        ),
        (
            "base_url = 'https://a.test/v1'",
            "https://a.test:8443/v1/x",
            false,
        ),
        (
            "base_url = 'https://a.test/v1'",
            "http://a.test/v1/x",
            false,
        ),
        (
            "base_url = 'https://a.test/v1'",
            "https://a.test.evil.test/v1/x",
            false,
        ),
        (
            format!("auth_for = {both}").as_str(),
            "https://a.test/v1/x",
            true,
        ),
        (
            format!("auth_for = {both}").as_str(),
            "https://b.test/any",
            true,
        ),
        (
            format!("auth_for = {both}").as_str(),
            "https://a.test/v2",
            false,
        ),
    ] {
        let text = format!("server = 's'\nauth = {{ bearer_env = 'T' }}\n{settings}");
        let config: ServiceConfig = toml::from_str(&text).unwrap();
        let service = Service::new(&config, &|_| Some("token".into()), Arc::new(SystemLookup));
        let address = Url::parse(address).unwrap();
        let sent = service.unwrap().secret_for(&address).is_some();
        assert_eq!(sent, is_sent, "{settings} {address}");
    }
}
