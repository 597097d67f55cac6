//! `toolscout preflight` with servers that do as they are told.

use serde_json::{Value, json};

use super::program::{Ended, World};
use super::world::{configuration, double, double_with, replace, tool};

/// A world with a server `s` whose tools are in a file.
struct Job {
    world: World,
    servers: String,
}

impl Job {
    fn new() -> Self {
        let world = World::new();
        let job = Job {
            servers: world.path("servers.json").display().to_string(),
            world,
        };
        job.offer(&[tool("read", "Reads."), tool("send", "Sends.")]);
        let state = job.world.path("tools.json").display().to_string();
        job.write(&configuration(&[double_with(
            "s",
            &[],
            &[("STATE", &state)],
        )]));
        job
    }

    fn offer(&self, tools: &[Value]) {
        replace(&self.world.path("tools.json"), &json!(tools));
    }

    fn write(&self, servers: &Value) {
        std::fs::write(&self.servers, servers.to_string()).unwrap();
    }

    async fn preflight(&self, more: &[&str]) -> Ended {
        let args = [&["preflight", "--mcp", &self.servers], more].concat();
        self.world.run(&args).await
    }

    async fn sync(&self) {
        self.world.run(&["sync", "--mcp", &self.servers]).await;
    }
}

#[tokio::test]
async fn tools_are_ready_once_they_are_approved_and_until_they_change() {
    let job = Job::new();
    let unknown = job.preflight(&[]).await;
    assert_eq!(unknown.code, 4, "{}", unknown.stderr);
    assert!(
        unknown
            .stdout
            .starts_with("not approved s: 2 tools; none was ever taken in here"),
        "{}",
        unknown.stdout
    );
    job.sync().await;
    let ready = job.preflight(&["--require", "s/read"]).await;
    assert_eq!(
        (ready.code, ready.stdout.as_str()),
        (0, "ready s: 2 tools, as approved\nready s/read: there\n")
    );
    let missing = job
        .preflight(&["--require", "s/reed", "--require", "t/x"])
        .await;
    assert_eq!(missing.code, 5);
    assert!(
        missing
            .stdout
            .contains("missing s/reed: its server does not offer it")
            && missing.stdout.contains("did you mean \"s/read\"")
            && missing
                .stdout
                .contains("missing t/x: no server \"t\" is used here"),
        "{}",
        missing.stdout
    );
    job.offer(&[tool("read", "Reads and sends."), tool("new", "")]);
    let changed = job.preflight(&["--json"]).await;
    assert_eq!(changed.code, 4);
    let report: Value = serde_json::from_str(&changed.stdout).unwrap();
    assert_eq!(report["ready"], false);
    assert_eq!(
        report["servers"][0]["differences"],
        json!({ "changed": ["s/read"], "new": ["s/new"], "gone": ["s/send"], "blocked": [] })
    );
    // Taken in with a warning is not accepted.
    job.sync().await;
    assert_eq!(job.preflight(&[]).await.code, 4);
    job.world.ok(&["review", "--accept-all", "s"]).await;
    let accepted = job.preflight(&[]).await;
    assert_eq!(accepted.code, 0, "{}", accepted.stdout);
    job.world.ok(&["review", "--block", "s/new"]).await;
    let blocked = job.preflight(&["--require", "s/new"]).await;
    assert_eq!(blocked.code, 4);
    assert!(
        blocked
            .stdout
            .contains("missing s/new: a person has blocked it"),
        "{}",
        blocked.stdout
    );
}

#[tokio::test]
async fn a_lock_file_needs_no_catalog() {
    let job = Job::new();
    let lock = ["--lock", "tools.lock"];
    let missing = job.preflight(&lock).await;
    assert_eq!(missing.code, 1, "{}", missing.stdout);
    let written = job
        .preflight(&["--lock", "tools.lock", "--write-lock"])
        .await;
    assert_eq!(written.code, 0, "{}", written.stderr);
    let ready = job.preflight(&lock).await;
    assert_eq!(ready.stdout, "ready s: 2 tools, as approved\n");
    job.offer(&[tool("read", "Reads more."), tool("send", "Sends.")]);
    let changed = job.preflight(&lock).await;
    assert_eq!(
        (changed.code, changed.stdout.as_str()),
        (4, "changed s: 2 tools; changed: read\n")
    );
}

#[tokio::test]
async fn a_tool_that_a_person_has_blocked_is_not_there_whatever_the_lock_file_has() {
    let job = Job::new();
    job.sync().await;
    job.world.ok(&["review", "--block", "s/send"]).await;
    let lock = ["--lock", "tools.lock", "--require", "s/send"];
    job.preflight(&[&lock[..], &["--write-lock"]].concat())
        .await;
    let blocked = job.preflight(&lock).await;
    assert_eq!(
        (blocked.code, blocked.stdout.as_str()),
        (
            4,
            "changed s: 2 tools; blocked: send\nmissing s/send: a person has blocked it\n"
        )
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_in_time() {
    let job = Job::new();
    job.sync().await;
    let state = job.world.path("tools.json").display().to_string();
    let mut servers = configuration(&[
        double_with("s", &[], &[("STATE", &state)]),
        double("mute", &["mute"]),
        double("dead", &["quit"]),
    ]);
    servers["mcpServers"]["s"]["tools"] = json!({ "read": { "name": "look" } });
    job.write(&servers);
    let ended = job
        .preflight(&["--timeout", "5", "--require", "s/look"])
        .await;
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for line in [
        "ready s: 2 tools, as approved\n",
        "unavailable mute: no list of its tools within 5 s (--timeout)\n",
        "unavailable dead: it ended before the handshake; its last output: a key is missing\n",
        "ready s/look: there\n",
    ] {
        assert!(
            ended.stdout.contains(line),
            "{line:?} is not in {}",
            ended.stdout
        );
    }
}
