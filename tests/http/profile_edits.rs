//! What a profile changes of its tools, for its clients alone, and a server that follows a roll-back.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use toolscout::mcp::{Pool, PoolConfig};
use toolscout::profiles::ToolProfile;

use super::profiles::{Client, Person, connect, mcp_server, offered};
use super::program::Program;
use super::server::{PATIENCE, Server};

const BELT: &str = r#"
[profiles.belt.tools]
"crm/*" = {}
"crm/drop" = { hide = true }
"crm/raw" = { fields = ["number"] }

[profiles.belt.tools."crm/echo"]
title = "Refund"
description = "Refunds what a customer has paid."
arguments = { text = "eu" }
pin = true

[profiles.plain]
servers = ["crm"]
"#;

fn tools() -> Value {
    let mut echo = offered("echo", "Echoes a text.", true);
    echo["inputSchema"] = json!({
        "type": "object", "required": ["text"],
        "properties": { "text": { "type": "string" }, "note": { "type": "string" } },
    });
    json!([
        echo,
        offered("drop", "Drops an issue.", false),
        offered("list", "Lists issues.", true),
        offered("raw", "Reads an issue.", true)
    ])
}

fn profiles(text: &str) -> Vec<ToolProfile> {
    let file: BTreeMap<String, BTreeMap<String, _>> = toml::from_str(text).unwrap();
    let tables = file["profiles"].iter();
    let profiles = tables.map(|(name, settings)| ToolProfile::new(name, settings));
    profiles.collect()
}

struct Desk {
    server: Server,
    belt: ToolProfile,
    _folder: TempDir,
}

impl Desk {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::new(PoolConfig {
            servers: vec![mcp_server("crm", folder.path(), &tools())],
            ..PoolConfig::default()
        });
        let profiles = profiles(BELT);
        let belt = profiles[0].clone();
        let server = Server::start_with(|settings| {
            settings.mcp_pool = pool.clone();
            settings.profiles = profiles;
        })
        .await;
        pool.settled(PATIENCE).await;
        Desk {
            server,
            belt,
            _folder: folder,
        }
    }

    async fn client(&self, profile: &str) -> Client {
        let url = format!("{}/mcp/p/{profile}", self.server.url);
        connect(url, "", Person { can_be_asked: true }).await
    }
}

fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

#[tokio::test]
async fn edits_of_a_profile_are_for_its_clients_alone() {
    let desk = Desk::start().await;
    let (belt, plain) = tokio::join!(desk.client("belt"), desk.client("plain"));

    let listed: Value = serde_json::from_str(&belt.list().await).unwrap();
    let listed = listed.as_array().unwrap().iter();
    let pinned: Vec<&Value> = listed.filter(|tool| tool["name"] == "crm__echo").collect();
    assert_eq!(pinned.len(), 1, "its pin is listed");
    assert_eq!(pinned[0]["title"], "Refund");
    assert!(
        pinned[0]["description"]
            .to_string()
            .contains("Refunds what")
    );
    let schema = &pinned[0]["inputSchema"];
    assert!(schema["properties"].get("text").is_none(), "{schema}");
    assert!(!plain.list().await.contains("crm__echo"));

    // Searches know the texts of the profile.
    let query = json!({ "query": "refund a customer" });
    let found = belt.ask("tool_search", query.clone()).await;
    assert!(
        found.contains("crm/echo") && found.contains("Refunds what"),
        "{found}"
    );
    let elsewhere = plain.ask("tool_search", query).await;
    assert!(!elsewhere.contains("Refunds"), "{elsewhere}");
    let names = json!({ "names": ["crm/echo"] });
    let described = belt.ask("describe_tool", names.clone()).await;
    assert!(described.contains("Refunds what"), "{described}");
    assert!(!described.contains("\"text\""), "{described}");
    let described = plain.ask("describe_tool", names).await;
    assert!(described.contains("Echoes a text."), "{described}");

    // What the model gives for a fixed argument does not count, on no way to the tool.
    let given = call("crm/echo", &json!({ "text": "us" }));
    assert_eq!(belt.ask("call_tool", given.clone()).await, "eu");
    assert_eq!(plain.ask("call_tool", given).await, "us");
    assert_eq!(belt.ask("crm__echo", json!({})).await, "eu");
    let plan = json!({ "steps": [{ "tool": "crm/echo", "arguments": {} }] });
    let done = belt.ask("run_plan", plan).await;
    assert!(done.contains("\"eu\"") || done.contains("eu"), "{done}");

    let issue = json!({ "number": 7, "body": "long" }).to_string();
    let result = json!({ "content": [{ "type": "text", "text": issue }] });
    let given = call("crm/raw", &json!({ "result": result }));
    assert_eq!(belt.ask("call_tool", given.clone()).await, "{\"number\":7}");
    assert_eq!(plain.ask("call_tool", given).await, issue);

    let dropped = call("crm/drop", &json!({}));
    let answer = belt.ask("call_tool", dropped.clone()).await;
    assert!(answer.contains("no tool is called"), "{answer}");
    assert_eq!(plain.ask("call_tool", dropped).await, "drop was called");
}

#[tokio::test]
async fn an_open_session_follows_other_rules() {
    let desk = Desk::start().await;
    let client = desk.client("belt").await;
    assert!(client.list().await.contains("Refunds what"));
    let other = BELT.replace("Refunds what a customer has paid.", "Pays a customer back.");
    desk.belt.replace(&profiles(&other)[0].settings());
    let found = client
        .ask("tool_search", json!({ "query": "pays back" }))
        .await;
    assert!(found.contains("Pays a customer back"), "{found}");
    let listed = client.list().await;
    assert!(listed.contains("Pays a customer back") && !listed.contains("Refunds what"));
    let whole = format!("[profiles.belt]\ndetail = 'schema'{other}");
    desk.belt.replace(&profiles(&whole)[0].settings());
    // In another session, since this one has been shown the tool.
    let another = desk.client("belt").await;
    let shown = another
        .ask("tool_search", json!({ "query": "pays back" }))
        .await;
    let has_schema = |answer: &str| answer.contains("properties");
    assert!(has_schema(&shown) && !has_schema(&found), "{shown}");
    let unpinned = other.replace("pin = true", "");
    desk.belt.replace(&profiles(&unpinned)[0].settings());
    assert!(!client.list().await.contains("Pays a customer back"));
    desk.belt.replace(&profiles(&other)[0].settings());
    assert!(client.list().await.contains("Pays a customer back"));
    // A tool that is hidden now is gone, although the session has it in its list.
    let hidden = other.replace("pin = true", "hide = true");
    desk.belt.replace(&profiles(&hidden)[0].settings());
    let answer = client.ask("call_tool", call("crm/echo", &json!({}))).await;
    assert!(answer.contains("no tool is called"), "{answer}");
}

fn toolscout(data: &Path, config: &str, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
    command.args(["--embedder", "none", "--config", config, "--data"]);
    let output = command
        .arg(data)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let problems = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {problems}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[tokio::test]
async fn a_running_server_follows_a_roll_back_and_keeps_it_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let config = folder.path().join("team.toml");
    let config = config.to_str().unwrap();
    let server = mcp_server("crm", folder.path(), &tools());
    let toolscout::mcp::config::Transport::Stdio {
        command, args, env, ..
    } = server.transport
    else {
        panic!("it is a process");
    };
    let servers =
        json!({ "mcpServers": { "crm": { "command": command, "args": args, "env": env } } });
    let file = folder.path().join("servers.json");
    std::fs::write(&file, servers.to_string()).unwrap();
    let arguments = ["--config", config, "--mcp", file.to_str().unwrap()];
    let description = async |program: &Program| {
        let url = format!("{}/mcp/p/belt", program.url);
        let client = connect(url, "", Person { can_be_asked: true }).await;
        client
            .ask("describe_tool", json!({ "names": ["crm/echo"] }))
            .await
    };

    std::fs::write(config, BELT).unwrap();
    let first = Program::start(&data, &arguments).await;
    assert!(description(&first).await.contains("Refunds what"));
    drop(first);
    let changed = BELT.replace("Refunds what a customer has paid.", "Pays a customer back.");
    std::fs::write(config, changed).unwrap();
    let second = Program::start(&data, &arguments).await;
    let url = format!("{}/mcp/p/belt", second.url);
    let client = connect(url, "", Person { can_be_asked: true }).await;
    let described = async || {
        let names = json!({ "names": ["crm/echo"] });
        client.ask("describe_tool", names).await
    };
    assert!(described().await.contains("Pays a customer back"));

    let (at, file) = (data.clone(), config.to_owned());
    let words = ["profiles", "rollback", "belt", "1"];
    let said = spawn_blocking(move || toolscout(&at, &file, &words))
        .await
        .unwrap();
    assert!(said.contains("version 3 is in use"), "{said}");
    let following = async {
        while !described().await.contains("Refunds what") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, following)
        .await
        .expect("the server follows");
    drop(client);
    drop(second);
    let third = Program::start(&data, &arguments).await;
    assert!(description(&third).await.contains("Refunds what"));
}
