//! `add` and `sync` of documents of APIs.

use serde_json::json;

use super::run::{World, says, text};

const DOCUMENT: &str = "
openapi: 3.0.3
info: {title: 'The official API of the Warehouse, extended', version: '1'}
servers: [{url: 'https://warehouse.test/v1'}]
security: [{key: []}]
components: {securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}}
paths:
  /shelves/{id}: {$ref: 'parts/shelf.yml'}
  /shelves: {get: {operationId: list}}
  /areas: {get: {operationId: list}}
";
const SHELF: &str = "get: {operationId: getShelf, parameters: [{name: id, in: path, required: true, schema: {type: string}}]}";

#[test]
fn other_files_are_read_where_they_may_be() {
    let world = World::new();
    let file = world.file("api/openapi.yaml", DOCUMENT);
    world.fails(
        1,
        &["add", text(&file)],
        &["parts/shelf.yml", "--follow-refs", "nothing was changed"],
    );
    world.file("outside.yml", SHELF);
    world.file("api/parts/shelf.yml", SHELF);
    world.ok(&["add", text(&file), "--follow-refs"]);
    let server = "the-official-api-of";
    assert_eq!(
        world.ids(),
        ["getShelf", "list", "list_2"].map(|name| format!("{server}/{name}"))
    );
    for reference in ["../outside.yml", "parts/gone.yml"] {
        let document = DOCUMENT.replace("parts/shelf.yml", reference);
        let file = world.file("api/other.yaml", document);
        world.fails(1, &["add", text(&file), "--follow-refs"], &[reference]);
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_not_read() {
    let world = World::new();
    let file = world.file("api/openapi.yaml", DOCUMENT);
    let outside = world.file("outside.yml", SHELF);
    std::fs::create_dir(world.path("api/parts")).unwrap();
    std::os::unix::fs::symlink(outside, world.path("api/parts/shelf.yml")).unwrap();
    world.fails(
        1,
        &["add", text(&file), "--follow-refs"],
        &["a link to a file outside the folder"],
    );
}

#[test]
fn what_a_person_needs_to_call_an_api_is_said() {
    let world = World::new();
    world.file("api/parts/shelf.yml", SHELF);
    let file = world.file("api/openapi.yaml", DOCUMENT);
    let ended = world.run(&["add", text(&file), "--follow-refs"]);
    for expected in [
        "to call the 3 tools of the-official-api-of:",
        "address: https://warehouse.test/v1",
        "authentication key (a key in the header X-Key): auth = { header = { name = \"X-Key\", env = \"THE_OFFICIAL_API_OF_TOKEN\" } }",
        "server = \"the-official-api-of\"",
        "--server NAME names it otherwise",
    ] {
        assert!(
            ended.stdout.contains(expected),
            "{expected}: {}",
            ended.stdout
        );
    }
    says(&ended.stderr, "the tool is called \"list_2\"");

    let report = world.json(&["add", text(&file), "--follow-refs", "--server", "w"]);
    assert_eq!(report["services"][0]["server"], "w");
    assert_eq!(
        report["services"][0]["base_urls"],
        json!(["https://warehouse.test/v1"])
    );
    assert_eq!(report["warnings"][0]["tool"], "w/list_2");
}

#[test]
fn tools_under_the_whole_title_stay_there() {
    let world = World::new();
    world.file("api/parts/shelf.yml", SHELF);
    let file = world.file("api/openapi.yaml", DOCUMENT);
    let whole = "the-official-api-of-the-warehouse-extended";
    world.ok(&["add", text(&file), "--follow-refs", "--server", whole]);
    let report = world.json(&["add", text(&file), "--follow-refs"]);
    assert_eq!(
        (&report["added"], &report["unchanged"]),
        (&json!([]), &json!(3))
    );
}

#[test]
fn one_page_of_a_list_is_no_whole_server() {
    let world = World::new();
    let page =
        json!({"tools": [{"name": "a", "inputSchema": {"type": "object"}}], "nextCursor": "2"});
    let file = world.file("page.json", page.to_string());
    world.fails(
        1,
        &["sync", text(&file), "--server", "s"],
        &["page.json is one page", "nothing was changed"],
    );
    let ended = world.run(&["add", text(&file), "--server", "s"]);
    says(&ended.stderr, "page.json is one page");
    assert_eq!(world.ids(), ["s/a"]);
}

#[test]
fn what_is_exported_is_valid_for_providers_and_comes_back_as_it_was() {
    let world = World::new();
    let tools = json!([
        {"name": "none", "inputSchema": {}},
        {"name": "any", "inputSchema": {"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, "outputSchema": {"properties": {}}},
        {"name": "old", "inputSchema": {"type": ["object", "null"],
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}},
            "outputSchema": {"type": "array"}},
        {"name": "a__b", "inputSchema": {"type": "object"}}]);
    let file = world.file("t.json", tools.to_string());
    world.ok(&["add", text(&file)]);
    for (format, key) in [
        ("anthropic", "input_schema"),
        ("mcp", "inputSchema"),
        ("openai_responses", "parameters"),
    ] {
        let exported: serde_json::Value =
            serde_json::from_str(&world.ok(&["export", "--format", format])).unwrap();
        let list = exported
            .get("tools")
            .unwrap_or(&exported)
            .as_array()
            .unwrap();
        assert_eq!(list[0]["name"], "a__b");
        for tool in list {
            let schema = &tool[key];
            assert_eq!(schema["type"], "object", "{tool}");
            assert!(schema.get("anyOf").is_none(), "{tool}");
            assert!(
                tool.get("outputSchema")
                    .is_none_or(|schema| schema["type"] == "object")
            );
        }
    }
    let mcp = world.file("mcp.json", world.ok(&["export", "--format", "mcp"]));
    let again = world.json(&["add", text(&mcp), "--dry-run"]);
    assert_eq!(
        (&again["added"], &again["changed"]),
        (&json!([]), &json!([]))
    );
}

#[test]
fn an_api_of_the_same_title_is_told_from_the_one_before() {
    let world = World::new();
    let document = DOCUMENT.replace("  /shelves/{id}: {$ref: 'parts/shelf.yml'}\n", "");
    let first = world.file("first.yaml", &document);
    let other = world.file(
        "other.yaml",
        document.replace("warehouse.test", "other.test"),
    );
    let warning = "from a document for https://warehouse.test/v1";
    let add = |file: &std::path::Path, more: &[&str]| {
        let ended = world.run(&[&["add", text(file)], more].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr
    };
    assert!(!add(&first, &[]).contains(warning));
    assert!(!add(&first, &[]).contains(warning));
    assert!(!add(&other, &["--server", "other"]).contains(warning));
    let said = add(&other, &[]);
    assert!(
        said.contains(warning) && said.contains("--server NAME keeps them apart"),
        "{said}"
    );
}
