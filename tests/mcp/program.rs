//! The program itself: `sync --mcp`, `mcp`, `mcp install` and `agent` with MCP servers, and what is
//! left of them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rmcp::model::CallToolRequestParams;
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use toolscout::mcp::ServerConfig;
use toolscout_index::ToolId;
use toolscout_index::formats::model_name;

use super::world::{
    Lifeline, configuration, double, double_with, object, replace, text, tool, until,
};

/// A data directory and files of its own.
pub struct World {
    pub dir: TempDir,
}

impl World {
    pub fn new() -> Self {
        World {
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes an `mcpServers` file.
    pub fn servers(&self, servers: &[ServerConfig]) -> String {
        let path = self.path("servers.json");
        std::fs::write(&path, configuration(servers).to_string()).expect("written");
        path.display().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path());
        command
            .env("TOOLSCOUT_DATA", self.path("data"))
            .env("TOOLSCOUT_CACHE", self.path("cache"));
        command
            .env("TOOLSCOUT_EMBEDDER", "none")
            .current_dir(self.dir.path())
            .args(args);
        command
    }

    pub async fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        let output = spawn_blocking(move || command.stdin(Stdio::null()).output())
            .await
            .expect("no panic");
        Ended::of(output.expect("the program runs"))
    }

    pub async fn ok(&self, args: &[&str]) -> String {
        let ended = self.run(args).await;
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    }

    /// The program as a client starts it, with pipes.
    pub fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command.spawn().expect("the program starts")
    }
}

pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn of(output: Output) -> Self {
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

#[tokio::test]
async fn sync_continues_after_a_dead_server_and_reports_it() {
    let world = World::new();
    let servers = world.servers(&[
        double("a", &[]),
        double("b", &["bad-tools"]),
        double("dead", &["quit"]),
    ]);
    let first = world.run(&["sync", "--mcp", &servers]).await;
    assert_eq!(first.code, 1, "{}", first.stderr);
    assert!(
        first.stdout.contains("+ a/echo\n") && first.stdout.contains("+ b/good\n"),
        "{}",
        first.stdout
    );
    assert!(
        first
            .stdout
            .contains("default: 10 added, 0 changed, 0 removed, 0 unchanged · 3 servers asked")
    );
    for expected in [
        "server dead: it ended before the handshake; its last output: a key is missing",
        "left out tool \"no_object\"",
    ] {
        assert!(
            first.stderr.contains(expected),
            "{expected:?} is not in {}",
            first.stderr
        );
    }
    let again = world
        .run(&["sync", "--mcp", &servers, "--server", "a", "--json"])
        .await;
    let report: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(
        (again.code, &report["servers"][0]["unchanged"]),
        (0, &json!(8)),
        "{report}"
    );
}

#[tokio::test]
async fn sync_flags_what_changed_after_it_was_approved() {
    let world = World::new();
    let state = world.path("tools.json");
    replace(&state, &json!([tool("read", "Reads."), tool("gone", "")]));
    let servers = world.servers(&[double_with("s", &[], &[("STATE", state.to_str().unwrap())])]);
    world.ok(&["sync", "--mcp", &servers]).await;

    replace(
        &state,
        &json!([tool("read", "Reads and sends."), tool("new", "")]),
    );
    let preview = world.run(&["sync", "--mcp", &servers, "--dry-run"]).await;
    assert!(
        preview.stdout.contains("+ s/new\n~ s/read\n- s/gone\n"),
        "{}",
        preview.stdout
    );
    let blocked = world
        .run(&["sync", "--mcp", &servers, "--on-change", "block"])
        .await;
    assert!(
        blocked.stdout.contains("+ s/new\n- s/gone\n- s/read\n"),
        "{}",
        blocked.stdout
    );
    assert!(blocked.stderr.contains(
        "s/read: its description changed after it was approved; it is kept out of the catalog"
    ));
    assert_ne!(world.run(&["show", "s/read"]).await.code, 0);
    let accepted = world
        .run(&["sync", "--mcp", &servers, "--on-change", "accept"])
        .await;
    assert_eq!(
        (
            accepted.stdout.contains("+ s/read\n"),
            accepted.stderr.as_str()
        ),
        (true, "")
    );
    assert!(
        world
            .ok(&["show", "s/read"])
            .await
            .contains("Reads and sends.")
    );
}

#[tokio::test]
async fn review_lists_changes_accepts_them_and_blocks_tools() {
    let world = World::new();
    let state = world.path("tools.json");
    replace(&state, &json!([tool("read", "Reads."), tool("gone", "")]));
    let servers = world.servers(&[double_with("s", &[], &[("STATE", state.to_str().unwrap())])]);
    world.ok(&["sync", "--mcp", &servers]).await;
    assert_eq!(world.ok(&["review"]).await, "");
    let changed = json!([tool("read", "Reads and sends."), tool("new", "")]);
    replace(&state, &changed);
    world.run(&["sync", "--mcp", &servers]).await;
    assert_eq!(
        world.ok(&["review"]).await,
        "- s/gone\n+ s/new\n~ s/read: description\n  - Reads.\n  + Reads and sends.\n"
    );
    let decided = ["review", "--accept", "s/read", "--block", "s/new"];
    assert_eq!(world.ok(&decided).await, "blocked s/new\naccepted s/read\n");
    // Not even whoever accepts everything brings it back.
    let all = ["sync", "--mcp", &servers, "--on-change", "accept"];
    world.run(&all).await;
    assert_ne!(world.run(&["show", "s/new"]).await.code, 0);
    let left: Value = serde_json::from_str(&world.ok(&["review", "--json"]).await).unwrap();
    assert_eq!(
        (
            left["changes"].as_array().unwrap().len(),
            &left["changes"][0]["blocked_by"]
        ),
        (1, &json!("person"))
    );
    world.ok(&["review", "--accept", "s/new"]).await;
    world.ok(&["show", "s/new"]).await;
    let log = world.ok(&["audit", "export"]).await;
    assert_eq!(log.matches(r#""event":"reviewed""#).count(), 3, "{log}");
    let nothing = world.run(&["review", "--accept", "s/read"]).await;
    assert!(nothing.stderr.contains("s/read has no change to accept"));
}

#[tokio::test]
async fn an_invalid_command_line_is_reported() {
    let world = World::new();
    let servers = world.servers(&[double("a", &[])]);
    for (args, expected) in [
        (
            vec!["sync"],
            "name files of tools, or MCP servers with --mcp",
        ),
        (
            vec!["sync", "x.json", "--mcp", &servers],
            "files and MCP servers at once",
        ),
        (
            vec!["sync", "--mcp", &servers, "--server", "b"],
            "no MCP server is called \"b\"",
        ),
        (
            vec!["sync", "--mcp-server", "a"],
            "--mcp-server a: write NAME=URL",
        ),
        (
            vec!["sync", "--mcp", &servers, "--mcp-header", "b:K=secret"],
            "--mcp-header b:K=…: there is no server \"b\"",
        ),
        (
            vec!["mcp", "install", "--client", "vim"],
            "known clients are claude-desktop",
        ),
    ] {
        let ended = world.run(&args).await;
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(expected) && !ended.stderr.contains("secret"),
            "{}",
            ended.stderr
        );
    }
    let ended = world.run(&["mcp", "--mcp", "nowhere.json"]).await;
    assert!(
        ended.code == 1 && ended.stderr.contains("read nowhere.json"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn no_process_is_left_when_the_client_leaves_or_the_program_is_terminated_or_killed() {
    for end in ["leave", "terminate", "kill"] {
        let (world, lifeline) = (World::new(), Lifeline::new().await);
        let port = lifeline.port();
        let server = double_with("s", &["grandchild", "stubborn"], &[("LIFELINE", &port)]);
        let servers = world.servers(&[server]);
        let mut program = world.spawn(&["mcp", "--mcp", &servers]);
        let lives = [lifeline.begun().await, lifeline.begun().await];
        match end {
            "leave" => drop(program.stdin.take()),
            "terminate" => {
                let pid = program.id().to_string();
                assert!(
                    Command::new("kill")
                        .args(["-s", "TERM", &pid])
                        .status()
                        .expect("kill runs")
                        .success()
                );
            }
            _ => program.kill().expect("killed"),
        }
        for life in lives {
            life.ended().await;
        }
        spawn_blocking(move || program.wait())
            .await
            .expect("no panic")
            .expect("ended");
    }
}

#[tokio::test]
async fn the_agent_uses_tools_of_two_servers() {
    let world = World::new();
    let servers = world.servers(&[double("a", &[]), double("b", &[])]);
    let script = world.path("script.jsonl");
    let mut file = std::fs::File::create(&script).unwrap();
    for line in [
        json!({ "reply": { "calls": [
            { "name": "a__echo", "arguments": { "text": "from a" } }, { "name": "b__mixed", "arguments": {} },
            { "name": "a__fail", "arguments": {} }
        ] } }),
        json!({ "reply": { "text": "both answered" } }),
    ] {
        writeln!(file, "{line}").unwrap();
    }
    let llm = format!("script:{}", script.display());
    let agent = [
        "agent", "--llm", &llm, "--allow", "*", "--mcp", &servers, "ask both",
    ];
    let ended = world.run(&agent).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "both answered\n"),
        "{}",
        ended.stderr
    );
    for expected in [
        "[result] a__echo",
        "from a",
        "[result] b__mixed",
        "words",
        "[failed] a__fail",
        "no, not today",
    ] {
        assert!(
            ended.stderr.contains(expected),
            "{expected:?} is not in {}",
            ended.stderr
        );
    }
}

#[tokio::test]
async fn install_shows_or_merges_and_keeps_a_backup() {
    let world = World::new();
    let settings = world.path(".cursor/mcp.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    std::fs::write(&settings, r#"{"mcpServers":{"other":{"command":"x"}}}"#).unwrap();
    let servers = world.servers(&[]);
    let words = [
        "mcp",
        "install",
        "--client",
        "cursor",
        "--dry-run",
        "--",
        "--mcp",
        "servers.json",
    ];
    let shown: Value = serde_json::from_str(&world.ok(&words).await).unwrap();
    assert_eq!(
        shown["mcpServers"]["toolscout"]["args"],
        json!(["mcp", "--mcp", servers])
    );
    assert!(
        !std::fs::read_to_string(&settings)
            .unwrap()
            .contains("toolscout")
    );
    let said = world.ok(&["mcp", "install", "--client", "cursor"]).await;
    assert!(said.contains("mcp.json.backup-1; restart cursor"), "{said}");
    let said = world.ok(&["mcp", "install", "--client", "cursor"]).await;
    assert!(said.contains("is up to date"), "{said}");
}

#[tokio::test]
async fn a_server_of_the_registry_is_added_to_a_file_and_listed() {
    let world = World::new();
    let file = world.path("servers.json");
    std::fs::write(&file, "// mine\n{\"mcpServers\": {}}\n").unwrap();
    let package =
        json!({ "registryType": "oci", "identifier": "img", "transport": { "type": "stdio" } });
    let remote = json!({ "type": "streamable-http", "url": "http://127.0.0.1:1/mcp",
        "headers": [{ "name": "X-Key", "isRequired": true, "isSecret": true }] });
    let list = json!({ "servers": [
        { "server": { "name": "io.example/remote", "remotes": [remote] } },
        { "server": { "name": "io.example/image", "packages": [package] } },
    ] });
    std::fs::write(world.path("list.json"), list.to_string()).unwrap();

    let add = ["mcp", "add", "list.json", "--server", "remote"];
    let shown = world.ok(&[&add[..], &["--dry-run"]].concat()).await;
    assert!(
        shown.starts_with("// mine\n") && shown.contains("${X_KEY}"),
        "{shown}"
    );
    let before = std::fs::read_to_string(&file).unwrap();
    assert!(!before.contains("remote"), "{before}");
    let added = world.run(&add).await;
    assert!(
        added.stdout.contains("servers.json.backup-1") && added.stderr.contains("X_KEY (secret)"),
        "{}{}",
        added.stdout,
        added.stderr
    );
    assert!(world.ok(&add).await.contains("is up to date"));

    for (args, expected) in [
        (
            &["mcp", "add", "list.json"][..],
            "choose one with --server NAME",
        ),
        (
            &["mcp", "add", "list.json", "--server", "no"],
            "there is no server \"no\"",
        ),
        (
            &[
                "mcp",
                "add",
                "list.json",
                "--server",
                "remote",
                "--name",
                "a/b",
            ],
            "contains '/'",
        ),
        (
            &[
                "mcp",
                "add",
                "list.json",
                "--server",
                "remote",
                "--use",
                "npm",
            ],
            "offers no \"npm\"",
        ),
        (
            &["mcp", "add", "servers.json"],
            "no server.json of the MCP registry",
        ),
        (&["mcp", "add", "gone.json"], "gone.json: no such file"),
    ] {
        let refused = world.run(args).await;
        assert_ne!(refused.code, 0, "{args:?}");
        assert!(
            refused.stderr.contains(expected),
            "{args:?}: {}",
            refused.stderr
        );
    }
    // Without a container runtime in PATH.
    let mut command = world.command(&["mcp", "add", "list.json", "--server", "image"]);
    command.env("PATH", world.dir.path());
    let refused = spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("install Docker or Podman"), "{said}");
}

/// The program as a client's server.
pub struct Served {
    process: tokio::process::Child,
    pub client: RunningService<RoleClient, ()>,
}

impl Served {
    pub async fn start(world: &World, args: &[&str], stderr: Stdio) -> Self {
        let mut process = tokio::process::Command::from(world.command(args))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let pipes = process.stdout.take().zip(process.stdin.take());
        let client = ().serve(pipes.expect("pipes")).await.expect("a handshake");
        Served { process, client }
    }

    /// Waits until it lists this tool: on a busy machine, its server may take longer than a list waits for it.
    pub async fn lists(&self, name: &str) {
        let is_listed = async || {
            let listed = self.client.list_all_tools().await.expect("a list");
            listed.iter().any(|tool| tool.name == name)
        };
        until(name, is_listed).await;
    }

    pub async fn ask(&self, name: &'static str, given: Value) -> String {
        let params = CallToolRequestParams::new(name).with_arguments(object(given));
        text(self.client.call_tool(params).await.expect("a result"))
    }

    pub async fn end(mut self) {
        self.client.cancel().await.expect("it ends");
        self.process.wait().await.expect("it ends");
    }
}

#[tokio::test]
async fn what_a_client_used_is_recorded() {
    let world = World::new();
    let state = world.path("tools.json");
    let mut look = tool("look", "Looks at a picture.");
    look["annotations"] = json!({ "readOnlyHint": true });
    replace(&state, &json!([look, tool("wipe", "Wipes a disk.")]));
    let servers = world.servers(&[double_with("s", &[], &[("STATE", state.to_str().unwrap())])]);
    let served = Served::start(&world, &["mcp", "--mcp", &servers], Stdio::null()).await;
    let search = json!({ "query": "look at a picture", "limit": 1 });
    served.ask("tool_search", search).await;
    served.ask("call_tool", json!({ "name": "s/look" })).await;
    served.end().await;
    let report: Value = serde_json::from_str(&world.ok(&["usage", "--json"]).await).unwrap();
    let used = &report["tools"][0];
    let names = ["searches", "first", "calls", "successes", "injections"];
    let figures: Vec<&Value> = names.iter().map(|name| &used[*name]).collect();
    assert_eq!(used["tool"], "s/look", "{report}");
    assert_eq!(
        figures,
        [&json!(1), &json!(1), &json!(1), &json!(1), &json!(0)]
    );
    assert!(
        used["definition_tokens"].as_u64() > Some(5),
        "its line: {used}"
    );
}

/// What the program answers as a client's server, and what it says about its settings at the end.
async fn narrowed(world: &World, args: &[&str], calls: &[&str]) -> (String, Vec<String>, String) {
    let stderr = world.path("stderr");
    let file = std::fs::File::create(&stderr).expect("a file");
    let served = Served::start(world, args, file.into()).await;
    // It waits for servers that start.
    let listed = served.ask("list_tools", json!({ "server": "s" })).await;
    let mut answers = Vec::new();
    for call in calls {
        answers.push(served.ask("call_tool", json!({ "name": call })).await);
    }
    served.end().await;
    let said = std::fs::read_to_string(&stderr).expect("its messages");
    (listed, answers, said)
}

#[tokio::test]
async fn flags_and_profiles_narrow_what_a_client_sees_and_calls() {
    let world = World::new();
    let state = world.path("tools.json");
    let offered = |name: &str, reads: bool| {
        let mut offered = tool(name, "Does it.");
        offered["annotations"] = json!({ "readOnlyHint": reads });
        offered
    };
    replace(
        &state,
        &json!([
            offered("look", true),
            offered("find", true),
            offered("wipe", false)
        ]),
    );
    let server = double_with("s", &[], &[("STATE", state.to_str().expect("UTF-8"))]);
    let servers = world.servers(&[server]);
    let config = world.path("config.toml");
    let settings = "[profiles.team]\nservers = ['s', 'gone']\nexclude = ['*find']\n[profiles.other]\ntags = ['x']";
    std::fs::write(&config, settings).expect("written");
    let config = config.display().to_string();
    let base = [
        "--config", &config, "mcp", "--mcp", &servers, "--allow", "*",
    ];
    let run = async |more: &[&str], calls: &[&str]| {
        narrowed(&world, &[&base[..], more].concat(), calls).await
    };

    let (listed, answers, _) = run(&["--read-only"], &["s/look", "s/wipe"]).await;
    assert!(
        listed.contains("find") && !listed.contains("wipe"),
        "{listed}"
    );
    assert_eq!(answers[0], "look was called");
    assert!(answers[1].contains("no tool is called"), "{answers:?}");

    let (listed, answers, _) = run(&["--only", "s/w*"], &["s/look", "s/wipe"]).await;
    assert!(
        listed.contains("wipe") && !listed.contains("look"),
        "{listed}"
    );
    assert!(answers[0].contains("no tool is called"), "{answers:?}");
    assert_eq!(answers[1], "wipe was called");

    let profile = ["--profile", "team"];
    let (listed, answers, said) = run(&profile, &["s/find", "s/wipe"]).await;
    assert!(
        listed.contains("wipe") && !listed.contains("find"),
        "{listed}"
    );
    assert!(answers[0].contains("no tool is called"), "{answers:?}");
    assert_eq!(answers[1], "wipe was called");
    assert!(
        said.contains("profiles.team.servers has \"gone\""),
        "{said}"
    );
    assert!(!said.contains("--allow"), "every tool fits *: {said}");
    let mistyped = ["--deny", "s/wpie", "--pin", "s/lok"];
    let (.., said) = run(&mistyped, &["s/look"]).await;
    for warning in [
        "warning: --deny s/wpie fits no tool of the catalog",
        "warning: pin \"s/lok\": no tool is called \"s/lok\"; pin another one, such as s/look",
    ] {
        assert!(said.contains(warning), "{said}");
    }
    let (listed, ..) = run(&["--profile", "team", "--read-only"], &[]).await;
    assert!(
        listed.contains("look") && !listed.contains("wipe"),
        "{listed}"
    );

    for (args, expected) in [
        (
            &["mcp", "--profile", "team", "--profile", "other"][..],
            "give one of them",
        ),
        (&["mcp", "--profile", "taem"], "no profile \"taem\""),
        (&["serve", "--profile", "team"], "at /mcp/p/team"),
    ] {
        let args = [&["--config", &config][..], args].concat();
        let ended = world.run(&args).await;
        assert_ne!(ended.code, 0, "{args:?}");
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn calls_of_a_client_over_standard_streams_teach_the_memory() {
    let world = World::new();
    let servers = world.servers(&[double("a", &[])]);
    world.ok(&["sync", "--mcp", &servers]).await;
    world.ok(&["memory", "on"]).await;
    let args = ["mcp", "--mcp", &servers, "--allow", "a/echo"];
    let served = Served::start(&world, &args, Stdio::null()).await;
    let query = json!({ "query": "says it again" });
    served.ask("tool_search", query).await;
    let call = json!({ "name": "a/echo", "arguments": { "text": "hi" } });
    assert_eq!(served.ask("call_tool", call).await, "hi");
    served.end().await;
    let listed = world.ok(&["memory", "list"]).await;
    assert!(listed.contains("a/echo\tsays it again"), "{listed}");
}

#[tokio::test]
async fn disabled_servers_are_listed_and_are_no_failure() {
    let world = World::new();
    let mut servers = configuration(&[double("a", &[])]);
    servers["mcpServers"]["shop"] = json!({ "command": "shop", "disabled": true });
    std::fs::write(world.path("servers.json"), servers.to_string()).expect("written");
    let listed = world.ok(&["mcp", "list"]).await;
    assert!(listed.contains("a\tstdio\tok"), "{listed}");
    let disabled = "shop\t\tdisabled\tnone\t`toolscout mcp enable shop` uses it again";
    assert!(listed.contains(disabled), "{listed}");
}

#[tokio::test]
async fn a_server_without_its_variable_holds_up_no_other() {
    let world = World::new();
    let mut servers = configuration(&[double("a", &[])]);
    servers["mcpServers"]["shop"] = json!({ "command": "shop", "args": ["${SHOP_REGION}"] });
    std::fs::write(world.path("servers.json"), servers.to_string()).expect("written");
    // The file of `mcp add` is the one that is meant.
    let listed = world.run(&["mcp", "servers"]).await;
    assert_eq!(listed.code, 1, "{}", listed.stderr);
    assert!(listed.stdout.contains("a\tstdio\tok"), "{}", listed.stdout);
    let reason = "the environment variable SHOP_REGION is not set";
    assert!(listed.stdout.contains(reason), "{}", listed.stdout);
    let synced = world.run(&["sync", "--mcp", "servers.json"]).await;
    assert!(
        synced.stdout.contains("+ a/echo") && synced.stderr.contains(reason),
        "{}{}",
        synced.stdout,
        synced.stderr
    );
}

#[tokio::test]
async fn an_invalid_entry_or_a_name_that_no_tool_can_have_holds_up_no_other() {
    let world = World::new();
    let mut servers = configuration(&[double("a", &[]), double("github.com/acme/tool", &[])]);
    for (name, entry) in [
        ("both", json!({ "command": "x", "url": "http://a" })),
        ("number", json!({ "command": 3 })),
        ("neither", json!({})),
        ("ftp", json!({ "url": "ftp://a" })),
    ] {
        servers["mcpServers"][name] = entry;
    }
    std::fs::write(world.path("servers.json"), servers.to_string()).expect("written");
    let listed = world.run(&["mcp", "servers"]).await;
    assert_eq!(listed.code, 1, "{}", listed.stderr);
    let note =
        "the server github.com/acme/tool of servers.json is called github.com-acme-tool here";
    assert!(listed.stderr.contains(note), "{}", listed.stderr);
    for expected in [
        "a\tstdio\tok",
        "github.com-acme-tool\tstdio\tok",
        "both a `command` and a `url`",
        "invalid type: integer",
        "neither a `command` nor a `url`",
        "must be http or https",
    ] {
        assert!(listed.stdout.contains(expected), "{}", listed.stdout);
    }
    let args = [
        "sync",
        "--mcp",
        "servers.json",
        "--server",
        "github.com/acme/tool",
    ];
    let synced = world.ok(&args).await;
    assert!(synced.contains("+ github.com-acme-tool/echo"), "{synced}");
    let args = ["mcp", "--mcp", "servers.json", "--allow", "*"];
    let served = Served::start(&world, &args, Stdio::null()).await;
    let id = ToolId::new("github.com-acme-tool", "echo").unwrap();
    for name in [id.to_string(), model_name(&id)] {
        let call = json!({ "name": name, "arguments": { "text": "hi" } });
        assert_eq!(served.ask("call_tool", call).await, "hi");
    }
    served.end().await;
}

#[tokio::test]
async fn tools_with_spaces_and_of_other_scripts_are_found_and_called_by_safe_names() {
    let world = World::new();
    let names = ["Get Weather", "查询天气", "отправить письмо"];
    let tools: Vec<Value> = names
        .iter()
        .map(|name| tool(name, "Tells the weather."))
        .collect();
    let state = world.path("tools.json");
    std::fs::write(&state, json!(tools).to_string()).expect("written");
    let servers = world.servers(&[double_with("s", &[], &[("STATE", state.to_str().unwrap())])]);
    world.ok(&["sync", "--mcp", &servers]).await;
    let listed = world.ok(&["list", "--json"]).await;
    let args = ["mcp", "--mcp", &servers, "--allow", "*"];
    let served = Served::start(&world, &args, Stdio::null()).await;
    for name in names {
        assert!(listed.contains(name), "{listed}");
        let id = ToolId::new("s", name).unwrap();
        let safe = model_name(&id);
        assert!(safe.is_ascii() && !safe.contains(' '), "{safe}");
        for called in [safe, id.to_string()] {
            let call = json!({ "name": called, "arguments": {} });
            let said = served.ask("call_tool", call).await;
            assert_eq!(said, format!("{name} was called"));
        }
    }
    served.end().await;
}

#[tokio::test]
async fn what_is_said_of_a_client_that_errs_is_words() {
    let world = World::new();
    let servers = world.servers(&[double("a", &[])]);
    world.ok(&["sync", "--mcp", &servers]).await;
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    } });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let unknown =
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "x" } });
    let cases = [
        (vec![&begin, &initialized, &unknown], "no tool is called", 0),
        (vec![&unknown], "error", 0),
        (
            vec![&initialized],
            "did not begin with the request `initialize`",
            1,
        ),
    ];
    for (messages, expected, code) in cases {
        let mut command = world.command(&["mcp"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut input = child.stdin.take().expect("a pipe");
        for message in messages {
            writeln!(input, "{message}").expect("written");
        }
        drop(input);
        let ended = spawn_blocking(|| child.wait_with_output()).await;
        let ended = Ended::of(ended.expect("no panic").expect("it ends"));
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains(expected), "{said}");
        assert_eq!(ended.code, code, "{said}");
        for dump in ["Some(", "ErrorData {", "Request(", "panicked"] {
            assert!(!ended.stderr.contains(dump), "{}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn operations_of_a_profile_are_called_over_standard_streams() {
    let api = axum::Router::new().route(
        "/pets/{id}",
        axum::routing::get(
            async |axum::extract::Path(id): axum::extract::Path<String>| {
                axum::Json(json!({ "pet": id }))
            },
        ),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, api).await });
    let world = World::new();
    let document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Pets", "version": "1" },
        "servers": [{ "url": format!("http://{address}") }],
        "paths": { "/pets/{id}": { "get": {
            "operationId": "getPet",
            "parameters": [{ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } }],
        } } },
    });
    std::fs::write(world.path("pets.json"), document.to_string()).expect("written");
    let printed = world.ok(&["add", "pets.json"]).await;
    assert!(
        printed.contains("save these lines as pets.toml"),
        "{printed}"
    );
    let profile = format!("[[operations]]\nserver = \"pets\"\nbase_url = \"http://{address}\"\n");
    std::fs::write(
        world.path("pets.toml"),
        profile + "[tools.shell]\nallow = [\"ls\"]\n",
    )
    .expect("written");

    let call = json!({ "name": "pets/getPet", "arguments": { "id": "7" } });
    let ask = async |args: &[&str]| {
        let stderr = world.path("stderr");
        let file = std::fs::File::create(&stderr).expect("a file");
        let served = Served::start(&world, args, file.into()).await;
        let found = served
            .ask("tool_search", json!({ "query": "get pet" }))
            .await;
        let called = served.ask("call_tool", call.clone()).await;
        served.end().await;
        let said = std::fs::read_to_string(&stderr).expect("its messages");
        (found, called, said)
    };
    let (found, called, said) = ask(&["mcp", "--profile", "pets.toml", "--allow", "*"]).await;
    assert!(called.contains(r#""pet":"7""#), "{called}");
    assert!(!found.contains("unavailable"), "{found}");
    assert!(said.contains("switches on built-in tools"), "{said}");

    let (found, called, said) = ask(&["mcp", "--allow", "*"]).await;
    assert!(found.contains("unavailable"), "{found}");
    assert!(
        called.contains("`[[operations]]` of a profile (--profile FILE)"),
        "{called}"
    );
    assert!(!said.contains("built-in"), "{said}");
}
