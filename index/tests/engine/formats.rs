//! Formats through the public API: detection, errors, and that what is written is read back
//! unchanged.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use toolscout_index::formats::{
    Emit, Format, Parsed, ReadOptions, emit, model_names, parse, parse_owned, signature,
};
use toolscout_index::{Annotations, Error, Tool};

fn read(input: &str) -> Parsed {
    parse(input.as_bytes(), &options()).unwrap()
}

fn options() -> ReadOptions {
    ReadOptions {
        source_name: "tools.json".into(),
        ..ReadOptions::default()
    }
}

fn ids(parsed: &Parsed) -> Vec<&str> {
    parsed.tools.iter().map(|tool| tool.id.as_str()).collect()
}

#[test]
fn every_format_is_detected() {
    for (input, format, expected) in [
        (
            r#"[{"type":"function","function":{"name":"a"}}]"#,
            Format::Openai,
            vec!["a"],
        ),
        (
            r#"{"functions":[{"name":"a","parameters":{}}]}"#,
            Format::Openai,
            vec!["a"],
        ),
        (
            r#"{"model":"m","tools":[{"type":"function","name":"a"}]}"#,
            Format::OpenaiResponses,
            vec!["a"],
        ),
        (
            r#"{"type":"namespace","name":"n","tools":[{"name":"a"}]}"#,
            Format::OpenaiResponses,
            vec!["n/a"],
        ),
        (
            r#"{"name":"a","input_schema":{"type":"object"}}"#,
            Format::Anthropic,
            vec!["a"],
        ),
        (
            r#"{"tools":[{"name":"a"}],"nextCursor":"x"}"#,
            Format::Mcp,
            vec!["a"],
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}]}}"#,
            Format::Mcp,
            vec!["a"],
        ),
        (
            r#"[{"tools":[{"name":"a"}]},{"result":{"tools":[{"name":"b"}]}}]"#,
            Format::Mcp,
            vec!["a", "b"],
        ),
        (
            "{\"tools\":[{\"name\":\"a\"}]}\n{\"tools\":[{\"name\":\"b\"}]}\n",
            Format::Mcp,
            vec!["a", "b"],
        ),
        (
            r#"{"server":"s","tools":[{"name":"a"}]}"#,
            Format::Mcp,
            vec!["s/a"],
        ),
        (
            r#"{"name":"a","server":null,"id":"a","description":null,"inputSchema":null}"#,
            Format::Native,
            vec!["a"],
        ),
        (
            r#"{"name":"a","server":"s","id":"s/a"}"#,
            Format::Native,
            vec!["s/a"],
        ),
        (
            "- name: a\n  inputSchema: {type: object}\n",
            Format::Mcp,
            vec!["a"],
        ),
        (
            r#"{"openapi":"3.1.0","paths":{"/x":{"get":{}}}}"#,
            Format::OpenApi,
            vec!["get_x"],
        ),
        (
            "swagger: 2.0\npaths: {/x: {get: {}}}",
            Format::OpenApi,
            vec!["get_x"],
        ),
        ("\u{feff}[]", Format::Mcp, vec![]),
        (r#"{"tools":[]}"#, Format::Mcp, vec![]),
    ] {
        let parsed = read(input);
        assert!(parsed.skipped.is_empty(), "{input}: {:?}", parsed.skipped);
        assert_eq!((parsed.format, ids(&parsed)), (format, expected), "{input}");
        assert!(
            parsed
                .tools
                .iter()
                .all(|tool| !tool.metadata.contains_key("id")),
            "{input}"
        );
    }
}

#[test]
fn formats_may_be_mixed_item_by_item() {
    let input = "{\"name\":\"a\",\"input_schema\":{}}\n{\"type\":\"function\",\"function\":{\"name\":\"b\"}}\n";
    assert_eq!(ids(&read(input)), ["a", "b"]);
}

#[test]
fn a_given_server_overrides_the_input_and_a_default_does_not() {
    let input = br#"[{"name":"a","server":"own"},{"name":"b"}]"#;
    let with = |server: Option<&str>, default: Option<&str>| {
        let (server, default_server) = (server.map(str::to_owned), default.map(str::to_owned));
        parse(
            input,
            &ReadOptions {
                server,
                default_server,
                ..options()
            },
        )
        .unwrap()
    };
    assert_eq!(
        ids(&with(Some("given"), Some("file"))),
        ["given/a", "given/b"]
    );
    assert_eq!(ids(&with(None, Some("file"))), ["own/a", "file/b"]);
    assert_eq!(ids(&with(None, None)), ["own/a", "b"]);
}

#[test]
fn a_configuration_names_the_servers_to_connect_to() {
    let parsed =
        read(r#"{"mcpServers":{"git":{"command":"git-mcp"},"web":{"url":"http://localhost"}}}"#);
    assert_eq!(
        (parsed.servers_to_connect, parsed.tools.len()),
        (Some(vec!["git".into(), "web".into()]), 0)
    );
    assert_eq!(read("[]").servers_to_connect, None);
    for (input, reason) in [
        ("[]", None),
        (r#"{"tools":[]}"#, None),
        (r#"[{"name":"a"}]"#, None),
        (r#"{"mcpServers":{}}"#, Some("names no servers")),
        (r#"{"openapi":"3.0.0"}"#, Some("without operations")),
    ] {
        let said = read(input).without_tools();
        assert_eq!(said.is_some(), reason.is_some(), "{input}: {said:?}");
        assert!(
            said.unwrap_or_default()
                .contains(reason.unwrap_or_default())
        );
    }
}

#[test]
fn lines_that_are_freed_as_they_are_read_are_read_the_same() {
    let mut text = "\u{feff}".to_owned();
    for number in 1..=6_000 {
        let description = "x".repeat(number % 700);
        text += &match number % 1_000 {
            100 => "{\"name\":}\r\n".to_owned(),
            200 => "\n\n".to_owned(),
            300 => format!(
                "{{\"name\":\"deep\",\"inputSchema\":{}\n",
                "[".repeat(150) + &"]".repeat(150) + "}"
            ),
            400 => "{\"name\":\"tool-1\"}\n".to_owned(),
            _ => format!("{{\"name\":\"tool-{number}\",\"description\":\"{description}\"}}\n"),
        };
    }
    assert!(text.len() > 2 << 20);
    let options = ReadOptions {
        source_name: "in".into(),
        ..ReadOptions::default()
    };
    let described = |parsed: Parsed| {
        let skipped: Vec<_> = parsed
            .skipped
            .iter()
            .map(|item| (item.index, item.line, item.error.to_string()))
            .collect();
        (parsed.format, parsed.tools, skipped)
    };
    let whole = described(parse(text.as_bytes(), &options).unwrap());
    let freed = described(parse_owned(text.into_bytes(), &options).unwrap());
    assert_eq!(freed.2.len(), 18);
    let (_, line, error) = &freed.2[16];
    assert_eq!(*line, Some(5_306));
    assert!(error.starts_with("in:5306:"), "{error}");
    assert_eq!(freed, whole);
}

#[test]
fn a_bad_item_is_skipped_and_reported() {
    for (bad, expected) in [
        (r#"{"description":"x"}"#, "item 2: it has no name"),
        (r#"{"name":"  "}"#, "item 2: it has no name"),
        (r#"{"name":7}"#, "item 2: its `name` is 7"),
        (r#"17"#, "item 2: it is 17 where an object was expected"),
        (r#"{"name":"a\u0000b"}"#, "control character '\\0'"),
        (
            r#"{"name":"x","inputSchema":[]}"#,
            "\"x\": its `inputSchema` is []; it must be an object",
        ),
        (
            r#"{"name":"x","input_schema":true}"#,
            "\"x\": its `input_schema` is true",
        ),
        (
            r#"{"type":"function","function":{"name":"x","parameters":"{}"}}"#,
            "its `parameters` is \"{}\"",
        ),
        (
            r#"{"name":"x","description":["y"]}"#,
            "its `description` is [\"y\"]; it must be a string",
        ),
        (
            r#"{"name":"x","tags":"y"}"#,
            "its `tags` is \"y\"; it must be a list of strings",
        ),
        (
            r#"{"type":"namespace","tools":[]}"#,
            "item 2: a namespace needs a `name`",
        ),
        (
            r#"{"name":"first"}"#,
            "tool id first occurs twice in the input (items 1 and 2)",
        ),
    ] {
        let parsed = read(&format!(r#"[{{"name":"first"}},{bad},{{"name":"last"}}]"#));
        assert_eq!(ids(&parsed), ["first", "last"], "{bad}");
        let message = parsed.skipped[0].error.to_string();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert_eq!((parsed.skipped[0].index, parsed.skipped[0].line), (2, None));
    }
}

#[test]
fn a_bad_line_is_skipped_and_reported_with_its_number() {
    let parsed = read("{\"name\":\"a\"}\n\n{\"name\":\n{\"inputSchema\":{}}\n{\"name\":\"b\"}\n");
    assert_eq!(ids(&parsed), ["a", "b"]);
    let lines: Vec<_> = parsed
        .skipped
        .iter()
        .map(|skipped| (skipped.index, skipped.line))
        .collect();
    assert_eq!(lines, [(2, Some(3)), (3, Some(4))]);
    assert!(
        parsed.skipped[0]
            .error
            .to_string()
            .starts_with("tools.json:3:8: malformed JSON")
    );
    assert!(
        parsed.skipped[1]
            .error
            .to_string()
            .contains("item 3 (line 4): it has no name")
    );
}

#[test]
fn input_without_any_tool_is_an_error() {
    for (input, expected) in [
        ("", "the input is empty"),
        ("{}", "in no known tool format"),
        ("hello", "the value \"hello\" is in no known tool format"),
        (r#"{"tools":{}}"#, "the fields [tools]"),
        (
            r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"no"}}"#,
            "answered with an error",
        ),
    ] {
        let error = parse(input.as_bytes(), &options()).unwrap_err();
        assert!(matches!(error, Error::Parse { .. }));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn ten_megabytes_of_description_and_fifty_levels_of_schema_are_read() {
    let schema = (0..50).fold(
        json!({"type": "string"}),
        |inner, _| json!({"items": inner}),
    );
    let tool = json!({"name": "big", "description": "x".repeat(10 << 20), "inputSchema": schema});
    assert_eq!(read(&tool.to_string()).tools[0].description.len(), 10 << 20);
    let deep = (0..110).fold(json!(1), |inner, _| json!([inner]));
    let parsed = read(&json!([{"name": "deep", "inputSchema": {"x": deep}}]).to_string());
    assert!(
        parsed.skipped[0]
            .error
            .to_string()
            .contains("deep: its schema is nested deeper")
    );
}

#[test]
fn names_of_formats_are_parsed() {
    for format in Emit::ALL {
        assert_eq!(format.to_string().parse::<Emit>().unwrap(), format);
        assert_eq!(serde_json::to_value(format).unwrap(), format.as_str());
    }
    assert_eq!(serde_json::to_value(Format::OpenApi).unwrap(), "openapi");
    let message = "yaml".parse::<Emit>().unwrap_err().to_string();
    assert!(
        message.contains("\"yaml\"") && message.contains("openai_responses"),
        "{message}"
    );
}

fn json_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((field(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Keys, most of which formats know.
fn field() -> impl Strategy<Value = String> {
    let known = [
        "name",
        "type",
        "function",
        "tools",
        "parameters",
        "input_schema",
        "inputSchema",
        "description",
        "result",
        "_meta",
        "toolscout",
        "annotations",
        "title",
        "server",
        "tags",
        "metadata",
        "id",
        "strict",
        "cache_control",
        "openapi",
        "swagger",
        "paths",
        "/a",
        "get",
        "$ref",
        "requestBody",
        "content",
        "schema",
        "properties",
        "icons",
    ];
    prop_oneof![4 => prop::sample::select(known.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec((field(), json_value()), 0..5)
        .prop_map(|fields| fields.into_iter().collect())
}

prop_compose! {
    fn tool()(
        server in "([a-c]|[a-zA-Z0-9 ./_é天]{0,20})",
        name in "([a-c_.]{1,3}|\\PC{1,80})".prop_filter("a name", |name: &String| !name.trim().is_empty()),
        title in prop::option::of("\\PC{0,10}"),
        description in "\\PC{0,30}",
        input_schema in object(),
        output_schema in prop::option::of(object()),
        hints in any::<[Option<bool>; 4]>(),
        tags in prop::collection::vec("\\PC{0,5}", 0..3),
        metadata in object(),
    ) -> Tool {
        let mut tool = Tool::new(&server, &name).unwrap().with_description(description);
        let [read_only_hint, destructive_hint, idempotent_hint, open_world_hint] = hints;
        tool.annotations = Annotations { read_only_hint, destructive_hint, idempotent_hint, open_world_hint };
        Tool { title, input_schema, output_schema, tags, metadata, ..tool }
    }
}

/// A few tools of different ids.
fn tools() -> impl Strategy<Value = Vec<Tool>> {
    prop::collection::vec(tool(), 0..8).prop_map(|mut tools| {
        tools.sort_by(|a, b| a.id.cmp(&b.id));
        tools.dedup_by(|a, b| a.id == b.id);
        tools
    })
}

/// The part of a tool that a function-calling API has fields for: name, description, schema, and
/// these metadata.
fn reduced(tool: &Tool, name: &str, kept: &[&str]) -> Tool {
    let mut reduced = Tool::new("", name)
        .unwrap()
        .with_description(tool.description.clone());
    reduced.input_schema = tool.shown_input_schema();
    let metadata = tool.metadata.clone().into_iter();
    reduced.metadata = metadata
        .filter(|(key, _)| kept.contains(&key.as_str()))
        .collect();
    reduced
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn mcp_and_native_lose_nothing(tools in tools()) {
        let references: Vec<&Tool> = tools.iter().collect();
        let native = serde_json::to_string(&tools).unwrap();
        for text in [emit(&references, Emit::Mcp).to_string(), native] {
            let parsed = parse(text.as_bytes(), &ReadOptions::default()).unwrap();
            prop_assert!(parsed.skipped.is_empty(), "{:?}", parsed.skipped);
            for (read, tool) in parsed.tools.iter().zip(&tools) {
                prop_assert_eq!(with_title_of(read, tool), tool.clone());
            }
            prop_assert_eq!(parsed.tools.len(), tools.len());
        }
    }

    #[test]
    fn function_calling_formats_lose_only_what_they_cannot_hold(tools in tools()) {
        let references: Vec<&Tool> = tools.iter().collect();
        for (format, kept) in [
            (Emit::Openai, &["strict"][..]),
            (Emit::OpenaiResponses, &["strict", "defer_loading"]),
            (Emit::Anthropic, &["strict", "cache_control", "defer_loading"]),
        ] {
            let text = emit(&references, format).to_string();
            let parsed = parse(text.as_bytes(), &ReadOptions::default()).unwrap();
            let names = model_names(tools.iter().map(|tool| &tool.id));
            let expected: Vec<Tool> = tools.iter().zip(&names).map(|(tool, name)| reduced(tool, name, kept)).collect();
            let strict_false = (format == Emit::OpenaiResponses).then_some(Value::Bool(false));
            for (read, mut expected) in parsed.tools.into_iter().zip(expected) {
                if let Some(default) = &strict_false {
                    expected.metadata.entry("strict").or_insert_with(|| default.clone());
                }
                prop_assert_eq!(read, expected);
            }
        }
    }

    #[test]
    fn model_names_are_valid_and_unique(tools in tools()) {
        let names = model_names(tools.iter().map(|tool| &tool.id));
        for name in &names {
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!((1..=64).contains(&name.len()) && name.chars().all(is_allowed), "{name}");
        }
        let unique: std::collections::HashSet<&String> = names.iter().collect();
        prop_assert_eq!(unique.len(), tools.len());
    }

    #[test]
    fn signatures_are_one_bounded_line(tool in tool()) {
        let line = signature(&tool);
        prop_assert!(!line.contains('\n') && line.chars().count() <= 650);
    }

    #[test]
    fn no_json_makes_it_panic(value in json_value(), wrapped in any::<bool>()) {
        let value = if wrapped { json!({"openapi": "3.0.0", "paths": {"/a": {"get": value}}}) } else { value };
        let _ = parse(value.to_string().as_bytes(), &ReadOptions::default());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}:,&*#!|>\"' a\n-]{0,60}") {
        let _ = parse(&bytes, &ReadOptions::default());
        let _ = parse(text.as_bytes(), &ReadOptions::default());
    }
}

/// Without the title that was read from the annotations: reading uses it where a tool has none.
fn with_title_of(read: &Tool, written: &Tool) -> Tool {
    let borrowed = written.title.is_none() && read.metadata.get("annotations").is_some();
    Tool {
        title: if borrowed { None } else { read.title.clone() },
        ..read.clone()
    }
}
