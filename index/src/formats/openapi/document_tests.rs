//! Documents as they are: references, names, and schemas of other dialects.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::{KnownServers, OtherFiles, Parsed, ReadOptions, parse};
use super::*;

fn read(document: &Value) -> Parsed {
    parse(document.to_string().as_bytes(), &ReadOptions::default()).unwrap()
}

fn document(paths: Value) -> Value {
    json!({"openapi": "3.1.0", "info": {"title": "t"}, "paths": paths, "components": {
        "schemas": {"A": {"type": "object", "properties": {"a": {"type": "string"}}, "$anchor": "an-a"}},
        "parameters": {"p": {"name": "p", "in": "query", "schema": {"type": "string"}}},
        "responses": {"ok": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}}}},
        "x-get": {"operationId": "shared", "parameters": [{"$ref": "#/components/parameters/p"}],
            "responses": {"200": {"$ref": "#/components/responses/ok"}}}})
}

fn names(parsed: &Parsed) -> Vec<&str> {
    assert!(parsed.skipped.is_empty(), "{:?}", parsed.skipped);
    parsed.tools.iter().map(|tool| tool.id.name()).collect()
}

fn arguments(tool: &Tool) -> Vec<&str> {
    let properties = tool.input_schema["properties"].as_object().unwrap();
    properties.keys().map(String::as_str).collect()
}

#[test]
fn local_references_are_followed_wherever_they_stand() {
    let parsed = read(&document(json!({
        "/operation": {"get": {"$ref": "#/x-get"}},
        "/beside": {"get": {"$ref": "#/x-get", "operationId": "own"}},
        "/item": {"$ref": "#/paths/~1operation", "parameters": [{"name": "q", "in": "query", "schema": {}}]},
        "/anchor": {"get": {"operationId": "anchored", "parameters": [
            {"name": "p", "in": "query", "schema": {"$ref": "#an-a"}}]}}})));
    assert_eq!(names(&parsed), ["shared", "own", "shared_2", "anchored"]);
    for tool in &parsed.tools[..3] {
        assert!(arguments(tool).contains(&"p"), "{tool:?}");
        assert!(tool.output_schema.is_some());
    }
    assert_eq!(arguments(&parsed.tools[2]), ["p", "q"]);
    let anchored = &parsed.tools[3].input_schema["properties"]["p"];
    assert_eq!(anchored["properties"]["a"]["type"], "string");
}

#[test]
fn an_anchor_below_a_key_with_a_percent_sign_is_found() {
    let mut document = document(json!({"/a": {"get": {"operationId": "a", "parameters": [
        {"name": "p", "in": "query", "schema": {"$ref": "#here"}}]}}}));
    document["components"]["schemas"]["a%20b"] = json!({"type": "integer", "$anchor": "here"});
    let parsed = read(&document);
    assert_eq!(names(&parsed), ["a"]);
    let p = &parsed.tools[0].input_schema["properties"]["p"];
    assert_eq!(p["type"], "integer");
}

#[test]
fn a_star_in_a_pattern_of_paths_matches_any_text() {
    for (pattern, path, matches) in [
        ("/users", "/users", true),
        ("/users/", "/users/{id}", true),
        ("/users", "/users-old", false),
        ("/users*", "/users-old", true),
        ("*", "/a", true),
        ("/v*/users", "/v2/users/{id}", true),
        ("/v*/users", "/v2/beta/users", true),
        ("/v*/users", "/v2/users-old", false),
        ("*aa", "/aaa", true),
        ("/a*b*c", "/a-b-c/d", true),
        ("/a*b*c", "/a-c-b", false),
        ("/*/b/*/d", "/a/b/b/c/d", true),
        ("/é*", "/éa", true),
    ] {
        assert_eq!(path_matches(pattern, path), matches, "{pattern} {path}");
    }
    // Each star once tried every place of the rest, so this took longer than anyone waits.
    let path = format!("/{}", "a".repeat(5_000));
    assert!(!path_matches(&format!("{}b", "*a".repeat(500)), &path));
}

#[test]
fn extensions_and_examples_are_data() {
    let nowhere = json!({"$ref": "#/nowhere"});
    let elsewhere = json!({"$ref": "elsewhere.yml#/a"});
    let schema = json!({"type": "string", "x-p": nowhere, "example": elsewhere, "default": nowhere, "enum": [nowhere]});
    let parsed = read(&document(json!({"/a": {"x-note": elsewhere, "get": {
        "operationId": "a", "x-samples": [elsewhere], "callbacks": {"c": elsewhere},
        "parameters": [{"name": "p", "in": "query", "schema": schema, "examples": {"e": elsewhere}}]}}})));
    assert_eq!(names(&parsed), ["a"]);
    let read = &parsed.tools[0].input_schema["properties"]["p"];
    assert_eq!(read["x-p"], nowhere);
    assert_eq!(read["enum"], json!([nowhere]));
}

#[test]
fn a_broken_response_costs_a_warning_only() {
    for response in [
        json!({"$ref": "#/components/responses/gone"}),
        json!({"$ref": "gone.yml"}),
        json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/gone"}}}}),
        json!({"content": {"application/json": {"schema":
            {"type": "object", "properties": {"a": {"$ref": "gone.json#/a"}}}}}}),
    ] {
        let parsed = read(&document(
            json!({"/a": {"get": {"operationId": "a", "responses": {"200": response}}}}),
        ));
        assert_eq!(names(&parsed), ["a"]);
        assert!(parsed.tools[0].output_schema.is_none());
        let warning = parsed.warnings[0].to_string();
        assert!(
            warning.starts_with("t/a: the schema of its response is left out: ")
                && warning.contains("gone"),
            "{warning}"
        );
    }
}

/// Reads with these other files.
fn read_with(document: &Value, files: &[(&str, &str)]) -> Result<Parsed> {
    let files: HashMap<String, Vec<u8>> = files
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
        .collect();
    let options = ReadOptions {
        other_files: OtherFiles::by(move |name| {
            files
                .get(name)
                .cloned()
                .ok_or_else(|| "no such file".to_owned())
        }),
        ..ReadOptions::default()
    };
    parse(document.to_string().as_bytes(), &options)
}

#[test]
fn other_files_are_read_from_where_they_are_named() {
    let files = [
        (
            "paths/a.yml",
            "get: {$ref: 'ops/get.yml'}\nparameters: [{$ref: '../params.yml#/p'}]",
        ),
        (
            "paths/ops/get.yml",
            "operationId: a\nrequestBody: {content: {application/json: {schema: {$ref: '../../models.json#/M'}}}}",
        ),
        (
            "params.yml",
            "p: {name: p, in: query, schema: {$ref: '#/s'}}\ns: {type: integer}",
        ),
        (
            "models.json",
            r##"{"M": {"type": "object", "properties": {"$ref": "props.yml"}},
                "T": {"type": "object", "properties": {"next": {"$ref": "#/T"}}}}"##,
        ),
        ("props.yml", "child: {$ref: 'models.json#/T'}"),
    ];
    let parsed = read_with(&document(json!({"/a": {"$ref": "paths/a.yml"}})), &files).unwrap();
    assert_eq!(names(&parsed), ["a"]);
    let tool = &parsed.tools[0];
    assert_eq!(arguments(tool), ["p", "child"]);
    assert_eq!(tool.input_schema["properties"]["p"]["type"], "integer");
    let next = &tool.input_schema["properties"]["child"]["properties"]["next"];
    assert_eq!(next["description"], "not expanded: models.json#/T");
}

#[test]
fn parts_of_a_document_may_be_files() {
    let files = [
        (
            "paths.yml",
            "/a: {post: {operationId: a, parameters: [{$ref: 'openapi.yml#/components/parameters/p'}],\n  requestBody: {$ref: 'my%20bodies/b.yml'}}}",
        ),
        (
            "my bodies/b.yml",
            "content: {application/json: {schema: {$ref: '../schemas.yml#/S'}}}",
        ),
        (
            "schemas.yml",
            "S: {type: object, properties: {s: {$ref: '#/links'}}}\nlinks: {$ref: 't.yml'}",
        ),
        ("t.yml", "type: integer"),
        (
            "openapi.yml",
            "components: {parameters: {$ref: 'parameters.yml'}}",
        ),
        (
            "parameters.yml",
            "p: {name: p, in: query, schema: {type: boolean}}",
        ),
    ];
    let parsed = read_with(
        &json!({"openapi": "3.0.0", "info": {"title": "t"}, "paths": {"$ref": "paths.yml"}}),
        &files,
    );
    let parsed = parsed.unwrap();
    assert_eq!(names(&parsed), ["a"]);
    let properties = &parsed.tools[0].input_schema["properties"];
    assert_eq!(
        (&properties["p"]["type"], &properties["s"]["type"]),
        (&json!("boolean"), &json!("integer"))
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named_where_it_is_needed() {
    let schema = |reference: &str| {
        document(json!({"/a": {"post": {"operationId": "a", "requestBody":
            {"content": {"application/json": {"schema": {"$ref": reference}}}}}}}))
    };
    for (reference, expected) in [
        (
            "gone.yml#/a",
            "\"gone.yml#/a\", which cannot be read: no such file",
        ),
        (
            "bad.json#/a",
            "\"bad.json#/a\", which cannot be read: bad.json:1:",
        ),
        (
            "bad.json",
            "\"bad.json\", which cannot be read: bad.json:1:",
        ),
        (
            "good.json#/b",
            "\"good.json#/b\", which is not in the document",
        ),
        (
            "../up.json",
            "\"../up.json\" lies outside the document and its folder",
        ),
        (
            "/etc/passwd",
            "\"/etc/passwd\" lies outside the document and its folder",
        ),
        (
            "https://other.test/a.json",
            "lies outside the document and its folder",
        ),
    ] {
        let files = [("bad.json", "{"), ("good.json", "{\"a\": {}}")];
        let parsed = read_with(&schema(reference), &files).unwrap();
        let message = parsed.skipped[0].error.to_string();
        assert!(message.contains(expected), "{message}");
    }
    let chain: Vec<(String, String)> = (0..80)
        .map(|n| (format!("f{n}.yml"), format!("$ref: f{}.yml", n + 1)))
        .collect();
    let chain: Vec<(&str, &str)> = chain
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let message = read_with(&schema("f0.yml"), &chain)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("more than 64 files name each other in a row"),
        "{message}"
    );
}

#[test]
fn names_never_refuse_a_document() {
    let parsed = read(&document(json!({
        "/pets": {"get": {}}, "/pets/": {"get": {}},
        "/a-b": {"get": {}}, "/a_b": {"get": {}},
        "/x": {"get": {"operationId": "get_a_b"}},
        "/f/{a}.{b}": {"get": {}}, "/control\u{1}": {"get": {}}})));
    assert_eq!(
        names(&parsed),
        [
            "get_pets",
            "get_pets_2",
            "get_a_b_2",
            "get_a_b_3",
            "get_a_b",
            "get_f_by_a_by_b",
            "get_control_"
        ]
    );
    let said = |name: &str| {
        parsed
            .warnings
            .iter()
            .any(|warning| warning.tool.name() == name)
    };
    assert!(said("get_pets_2") && said("get_a_b_2") && !said("get_pets"));
}

#[test]
fn paths_that_share_many_operations_are_bounded() {
    let others: Map<String, Value> = (0..400).map(|n| (format!("M{n}"), json!({}))).collect();
    let mut paths: Map<String, Value> = (0..400)
        .map(|n| (format!("/{n}"), json!({"$ref": "#/x-item"})))
        .collect();
    let mut large = document(Value::Null);
    large["x-item"] = json!({ "additionalOperations": others });
    large["paths"] = paths.clone().into();
    let error = parse(large.to_string().as_bytes(), &ReadOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("more than 100000 operations"),
        "{error}"
    );
    paths.retain(|path, _| path.len() < 3);
    large["x-item"] = json!({"get": {"operationId": "n".repeat(2000)}});
    large["paths"] = paths.into();
    let parsed = read(&large);
    assert_eq!(parsed.tools[1].id.name(), "get_1");
    assert!(parsed.warnings[0].reason.len() < 300);
}

#[test]
fn a_parameter_of_the_path_that_is_not_declared_is_a_required_text() {
    let parsed = read(&document(json!({
        "/a/{x}/{y}": {"get": {"operationId": "one", "parameters": [
            {"name": "y", "in": "path", "schema": {"type": "integer"}}]}},
        "/b/{x}/c/{x}": {"get": {"operationId": "two"}},
        "/d/{x}.{y}": {"get": {"operationId": "three"}}})));
    let required: Vec<_> = parsed
        .tools
        .iter()
        .map(|tool| tool.input_schema["required"].clone())
        .collect();
    assert_eq!(
        required,
        [json!(["y", "x"]), json!(["x"]), json!(["x", "y"])]
    );
    let one = &parsed.tools[0].input_schema["properties"];
    assert_eq!(
        (&one["x"], &one["y"]),
        (&json!({"type": "string"}), &json!({"type": "integer"}))
    );
    assert_eq!(parsed.warnings.len(), 4);
}

#[test]
fn headers_are_the_same_in_any_case_and_other_parameters_are_not() {
    let parameter =
        |name: &str, place: &str| json!({"name": name, "in": place, "schema": {"type": "string"}});
    let parsed = read(&document(json!({"/a": {
        "parameters": [parameter("X-Tenant", "header"), parameter("Q", "query")],
        "get": {"operationId": "a", "parameters": [
            {"name": "x-tenant", "in": "header", "required": true, "schema": {"type": "integer"}},
            parameter("q", "query")]}}})));
    assert_eq!(arguments(&parsed.tools[0]), ["x-tenant", "q", "Q"]);
    assert_eq!(
        parsed.tools[0].input_schema["required"],
        json!(["x-tenant"])
    );
}

#[test]
fn methods_of_openapi_3_2_are_tools() {
    let mut newer = document(
        json!({"/a": {"query": {"operationId": "q"}, "get": {"operationId": "g"},
        "additionalOperations": {"COPY": {"operationId": "c"}, "LINK": {"$ref": "#/x-get"}}}}),
    );
    newer["openapi"] = "3.2.0".into();
    let parsed = read(&newer);
    assert_eq!(names(&parsed), ["g", "q", "c", "shared"]);
    let methods: Vec<_> = parsed
        .tools
        .iter()
        .map(|tool| &tool.metadata["openapi"]["method"])
        .collect();
    assert_eq!(methods, ["GET", "QUERY", "COPY", "LINK"]);
    assert_eq!(parsed.tools[1].annotations.read_only_hint, Some(true));
}

#[test]
fn names_that_providers_refuse_are_spelled_otherwise_and_sent_as_they_are() {
    let names = [
        "fields[]",
        "filter[eq]",
        "$top",
        "StartTime<",
        "StartTime>",
        "a b",
        "日",
    ];
    let parameters: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}))
        .collect();
    let body = json!({"content": {"application/json": {"schema":
        {"type": "object", "properties": {"@type": {"type": "string"}}}}}});
    let parsed = read(&document(
        json!({"/a": {"post": {"operationId": "a", "parameters": parameters, "requestBody": body}}}),
    ));
    let tool = &parsed.tools[0];
    let expected = [
        "fields",
        "filter_eq",
        "top",
        "StartTime_lt",
        "StartTime_gt",
        "a_b",
        "argument",
        "body",
    ];
    assert_eq!(arguments(tool), expected);
    let places = tool.metadata["openapi"]["parameters"].as_object().unwrap();
    let sent: Vec<&Value> = places.values().map(|place| &place["name"]).collect();
    assert_eq!(sent, names);
}

#[test]
fn a_server_keeps_the_whole_title_where_it_is_known() {
    let mut long = document(json!({"/a": {"get": {"operationId": "a"}}}));
    long["info"]["title"] = "The official API of the Warehouse".into();
    for (known, server) in [
        ("", "the-official-api-of"),
        (
            "the-official-api-of-the-warehouse",
            "the-official-api-of-the-warehouse",
        ),
    ] {
        let options = ReadOptions {
            known_servers: KnownServers::by(move |server| server == known),
            ..ReadOptions::default()
        };
        let parsed = parse(long.to_string().as_bytes(), &options).unwrap();
        assert_eq!(parsed.tools[0].id.server(), server);
    }
}

#[test]
fn schemas_of_other_dialects_are_read_as_2020_12() {
    let old = json!({"swagger": "2.0", "info": {"title": "t"}, "paths": {"/a": {"get": {"operationId": "a", "parameters": [
        {"name": "n", "in": "query", "type": "integer", "minimum": 0, "exclusiveMinimum": true, "x-nullable": true}]}}}});
    let n = &read(&old).tools[0].input_schema["properties"]["n"];
    assert_eq!(
        *n,
        json!({"type": ["integer", "null"], "exclusiveMinimum": 0})
    );
    let parsed = read(&document(
        json!({"/a": {"post": {"operationId": "a", "requestBody": {"required": true, "content":
        {"application/json": {"schema": {"type": "object", "properties": {
            "who": {"nullable": true, "allOf": [{"$ref": "#/components/schemas/A"}]},
            "kind": {"$ref": "#/components/schemas/A", "nullable": true},
            "deep": {"type": "object", "properties": {"label": {"type": "string", "nullable": true, "enum": ["a"]}}}}}}}}}}}),
    ));
    let properties = &parsed.tools[0].input_schema["properties"];
    assert_eq!(properties["who"]["anyOf"][1], json!({"type": "null"}));
    assert_eq!(properties["kind"]["type"], json!(["object", "null"]));
    assert_eq!(
        properties["deep"]["properties"]["label"]["enum"],
        json!(["a", null])
    );
}
