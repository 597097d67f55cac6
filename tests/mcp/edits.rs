//! What the owner of a file of servers changes of their tools, in the catalog and in calls.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::time::timeout;
use toolscout::mcp::OnChange;
use toolscout::mcp::tool_edits::ToolEdits;

use super::program::{Served, World};
use super::world::{
    PATIENCE, Upstream, becomes, configuration, double, double_with, replace, text, tool,
};

fn edits(tools: Value) -> ToolEdits {
    ToolEdits::read(Some(tools), None, &|text| Ok(text.to_owned())).unwrap()
}

#[tokio::test]
async fn a_renamed_tool_is_called_with_the_owners_arguments_and_shows_a_part_of_its_result() {
    let mut server = double("s", &["raw"]);
    let issues = json!([{ "number": 1, "body": "long" }, { "number": 2, "body": "longer" }]);
    let result = json!({
        "content": [{ "type": "text", "text": issues.to_string() }], "structuredContent": { "items": issues },
    });
    server.edits = edits(json!({
        "raw": { "name": "issues", "arguments": { "result": result }, "fields": ["number", "items.number"] },
        "echo": { "defaults": { "text": "hello" } },
        "fail": { "hide": true },
    }));
    let upstream = Upstream::start(vec![server]).await;
    let ids = upstream.ids();
    assert!(ids.contains(&"s/issues".to_owned()), "{ids:?}");
    for gone in ["s/raw", "s/fail"] {
        assert!(!ids.contains(&gone.to_owned()), "{gone}");
        let refused = upstream.call(gone, json!({})).await.unwrap_err();
        assert!(
            refused.to_string().contains("cannot be called: the"),
            "{refused}"
        );
    }
    let given = json!({ "result": { "content": [] } });
    let issues = upstream.call("s/issues", given).await.unwrap();
    assert_eq!(
        issues.structured_content,
        Some(json!({ "items": [{ "number": 1 }, { "number": 2 }] }))
    );
    assert_eq!(text(issues), "[{\"number\":1},{\"number\":2}]");
    let echo = upstream.call("s/echo", json!({})).await.unwrap();
    assert_eq!(text(echo), "hello");
}

#[tokio::test]
async fn a_change_of_an_edited_tool_is_seen_and_edits_are_none() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("tools.json");
    replace(
        &state,
        &json!([tool("read", "Reads."), tool("send", "Sends.")]),
    );
    let server = || double_with("s", &[], &[("STATE", state.to_str().unwrap())]);
    let mut edited = server();
    edited.edits = edits(json!({ "read": { "name": "look", "description": "Looks." } }));
    let upstream = Upstream::start_with(vec![edited], |config| {
        config.on_change = OnChange::Block;
    })
    .await;
    assert_eq!(upstream.ids(), ["s/look", "s/send"]);
    assert_eq!(upstream.description("s/look"), "Looks.");
    replace(
        &state,
        &json!([tool("read", "Reads and sends."), tool("send", "Sends.")]),
    );
    becomes("the changed tool is blocked", || {
        upstream.ids() == ["s/send"]
    })
    .await;
    let blocked = upstream.call("s/look", json!({})).await.unwrap_err();
    assert!(
        blocked.to_string().contains("its description changed"),
        "{blocked}"
    );
}

#[tokio::test]
async fn show_says_where_fields_come_from_and_sync_what_the_edits_name_in_vain() {
    let world = World::new();
    let mut servers = configuration(&[double("s", &[])]);
    servers["mcpServers"]["s"]["tools"] = json!({
        "echo": { "name": "say", "description": "Says it.", "arguments": { "text": "${WORD:-hi}" } },
        "ecko": { "hide": true },
    });
    let path = world.path("servers.json");
    std::fs::write(&path, servers.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let synced = world.run(&["sync", "--mcp", path]).await;
    assert_eq!(synced.code, 0, "{}", synced.stderr);
    assert!(
        synced.stderr.contains("names \"ecko\"") && synced.stderr.contains("did you mean \"echo\""),
        "{}",
        synced.stderr
    );
    let shown = world.ok(&["show", "s/say"]).await;
    for line in [
        "  from the owner: description, input_schema, name\n",
        "  from the server: output_schema, title\n",
        "  the server's name: echo\n",
        "  the server's description: Says it again.\n",
        "  fixed arguments: text",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    let shown: Value = serde_json::from_str(&world.ok(&["show", "s/say", "--json"]).await).unwrap();
    assert_eq!(shown[0]["origins"]["server_name"], "echo");
    assert_eq!(world.ok(&["review"]).await, "");
    // Without the edits it is the server's tool again, and nothing has changed.
    let plain = world.servers(&[double("s", &[])]);
    let again = world.run(&["sync", "--mcp", &plain]).await;
    assert!(
        again.stdout.contains("+ s/echo\n- s/say\n"),
        "{}",
        again.stdout
    );
    assert_eq!(again.stderr, "");
    assert_eq!(world.ok(&["review"]).await, "");
}

#[tokio::test]
async fn a_person_decides_about_a_renamed_tool_under_either_name() {
    let world = World::new();
    let state = world.path("tools.json");
    replace(
        &state,
        &json!([tool("read", "Reads."), tool("send", "Sends.")]),
    );
    let server = double_with("s", &[], &[("STATE", state.to_str().unwrap())]);
    let mut servers = configuration(&[server]);
    servers["mcpServers"]["s"]["tools"] = json!({ "read": { "name": "look" } });
    let path = world.path("edited.json");
    std::fs::write(&path, servers.to_string()).unwrap();
    let sync = ["sync", "--mcp", path.to_str().unwrap()];
    world.ok(&sync).await;
    replace(
        &state,
        &json!([tool("read", "Reads more."), tool("send", "Sends.")]),
    );
    world.run(&sync).await;
    let listed = world.ok(&["review"]).await;
    assert!(listed.starts_with("~ s/read: description\n"), "{listed}");
    world.ok(&["review", "--accept", "s/look"]).await;
    assert!(world.ok(&["show", "s/look"]).await.contains("Reads more."));
    world.ok(&["review", "--block", "s/read"]).await;
    assert_ne!(world.run(&["show", "s/look"]).await.code, 0);
}

#[tokio::test]
async fn secrets_in_results_are_masked_over_stdio() {
    let world = World::new();
    let mut servers = configuration(&[double("s", &["raw"])]);
    let key = "${NESTED_KEY:-s3cret-of-nested-5}";
    let text = format!("key {key}, EMP-7");
    servers["mcpServers"]["s"]["tools"] = json!({ "raw": {
        "pin": true,
        "arguments": {
            "result": { "content": [{ "type": "text", "text": text }] },
            "auth": [{ "api_key": key }],
        },
    } });
    servers["mcpServers"]["s"]["mask"] = json!({ "patterns": ["EMP-\\d+"] });
    let path = world.path("masked.json");
    std::fs::write(&path, servers.to_string()).unwrap();
    let args = ["mcp", "--mcp", path.to_str().unwrap(), "--allow", "s/*"];
    let served = Served::start(&world, &args, Stdio::null()).await;
    served.lists("s__raw").await;
    let said = served.ask("s__raw", json!({})).await;
    assert_eq!(said, "key [redacted]********, [redacted]");
    served.end().await;
}

#[tokio::test]
async fn tools_that_are_always_loaded_are_in_the_list_of_a_client() {
    let world = World::new();
    let state = world.path("tools.json");
    let mut asks = tool("asks", "Wants to be loaded.");
    asks["_meta"] = json!({ "anthropic/alwaysLoad": true });
    replace(
        &state,
        &json!([asks, tool("plain", ""), tool("pinned", "")]),
    );
    let server = double_with("s", &[], &[("STATE", state.to_str().unwrap())]);
    let mut servers = configuration(&[server]);
    servers["mcpServers"]["s"]["tools"] = json!({ "pinned": { "name": "kept", "pin": true } });
    let path = world.path("edited.json");
    std::fs::write(&path, servers.to_string()).unwrap();
    let args = ["mcp", "--mcp", path.to_str().unwrap(), "--allow", "s/*"];
    let served = Served::start(&world, &args, Stdio::null()).await;
    served.lists("s__kept").await;
    let listed = timeout(PATIENCE, served.client.list_all_tools()).await;
    let listed = listed.unwrap().unwrap();
    let names: Vec<&str> = listed.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(&names[5..], ["s__asks", "s__kept"]);
    let said = served.ask("s__kept", json!({})).await;
    assert_eq!(said, "pinned was called");
    served.end().await;
}
