//! `toolscout mcp test` and `mcp logs` with servers that do as they are told.

use std::io::{BufRead as _, BufReader};

use serde_json::json;
use tokio::task::spawn_blocking;

use super::program::World;
use super::world::{configuration, double};

#[tokio::test]
async fn a_server_is_tested_and_what_it_wrote_is_kept() {
    let world = World::new();
    let secret = "t0ken-of-a-test-2671";
    let mut servers = configuration(&[
        double("s", &["offers"]),
        double("dead", &["quit"]),
        double("loud", &["stderr-flood"]),
    ]);
    servers["mcpServers"]["dead"]["command"] = "sh".into();
    servers["mcpServers"]["dead"]["args"] =
        json!(["-c", "echo key $API_TOKEN is wrong >&2; exit 3"]);
    servers["mcpServers"]["dead"]["env"] = json!({ "API_TOKEN": secret });
    servers["mcpServers"]["s"]["tools"] = json!({ "fail": { "hide": true } });
    let path = world.path("servers.json");
    std::fs::write(&path, servers.to_string()).unwrap();
    let good = world.ok(&["mcp", "test", "s"]).await;
    for line in [
        "s: double 1, protocol 2025-06-18, answered in ",
        "  7 tools: echo, wait, ",
        "  1 tool hidden by the file of servers\n",
        "  1 prompt\n",
    ] {
        assert!(good.contains(line), "{line:?} is not in {good}");
    }
    let none = world.run(&["mcp", "logs", "dead"]).await;
    assert!(
        none.stderr
            .contains("there is no log of the server \"dead\""),
        "{}",
        none.stderr
    );
    let dead = world.run(&["mcp", "test", "dead"]).await;
    assert_eq!(dead.code, 1);
    assert!(
        dead.stderr.contains("`toolscout mcp logs dead`"),
        "{}",
        dead.stderr
    );
    let log = world.ok(&["mcp", "logs", "dead"]).await;
    let lines: Vec<&str> = log.lines().collect();
    assert!(
        lines[0].starts_with("--- started ") && lines[2].starts_with("--- ended "),
        "{log}"
    );
    assert!(
        lines[1].starts_with("key [redacted]") && lines[1].ends_with(" is wrong"),
        "{log}"
    );
    assert!(!log.contains(secret));
    world.ok(&["mcp", "logs", "dead", "--lines", "1"]).await;
    world.ok(&["mcp", "test", "loud"]).await;
    let mut bytes = 0;
    for entry in std::fs::read_dir(world.path("data/mcp-logs")).unwrap() {
        bytes += entry.unwrap().metadata().unwrap().len();
    }
    assert!(bytes < 3 << 20, "{bytes}");
}

#[tokio::test]
async fn a_log_is_followed() {
    let world = World::new();
    let servers = world.servers(&[double("dead", &["quit"])]);
    let mut following = world.spawn(&["mcp", "logs", "dead", "--follow"]);
    let lines = BufReader::new(following.stdout.take().unwrap()).lines();
    world.run(&["mcp", "test", "dead", "--mcp", &servers]).await;
    let seen = spawn_blocking(move || {
        let mut lines = lines.map_while(Result::ok);
        lines.any(|line| line == "a key is missing")
    });
    assert!(seen.await.unwrap());
    following.kill().unwrap();
    following.wait().unwrap();
}
