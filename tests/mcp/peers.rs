//! Servers and clients that others wrote, as they come from npm and PyPI.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use toolscout::budget;
use toolscout::mcp::config::Transport;
use toolscout::mcp::config::parse_server;
use toolscout::mcp::login::{LoggedOut, Logins, begin, logout, remote};
use toolscout::mcp::{CallContext, ServerConfig};
use toolscout_index::formats::{self, Emit};

use super::ports::free_port;
use super::program::World;
use super::world::{Upstream, becomes, double, root, text, until};

/// The folder that `scripts/mcp_peers.sh` fills.
pub struct Peers(PathBuf);

impl Peers {
    fn installed() -> Self {
        let folder =
            std::env::var_os("TOOLSCOUT_TEST_MCP_PEERS").expect("TOOLSCOUT_TEST_MCP_PEERS is set");
        let folder = root().join(folder);
        assert!(
            folder.join("venv/bin/python").exists(),
            "run scripts/mcp_peers.sh first"
        );
        Peers(folder)
    }

    fn python(&self) -> String {
        self.0.join("venv/bin/python").display().to_string()
    }

    fn script(name: &str) -> String {
        root()
            .join("tests/mcp/peers")
            .join(name)
            .display()
            .to_string()
    }

    fn server(&self, name: &str, command: &[&str]) -> ServerConfig {
        let words = command
            .iter()
            .map(|word| format!("'{word}'"))
            .collect::<Vec<_>>()
            .join(" ");
        parse_server(&format!("{name}={words}"), &|_| None).expect("a command line")
    }

    fn node(&self, name: &str, program: &str, args: &[&str]) -> ServerConfig {
        let program = self
            .0
            .join("node_modules/.bin")
            .join(program)
            .display()
            .to_string();
        self.server(name, &[&["node", &program], args].concat())
    }

    pub fn everything(&self) -> ServerConfig {
        self.node("everything", "mcp-server-everything", &[])
    }

    pub fn filesystem(&self, folder: &Path) -> ServerConfig {
        self.node(
            "filesystem",
            "mcp-server-filesystem",
            &[folder.to_str().expect("UTF-8")],
        )
    }

    pub fn time(&self) -> ServerConfig {
        self.server(
            "time",
            &[
                &self
                    .0
                    .join("venv/bin/mcp-server-time")
                    .display()
                    .to_string(),
                "--local-timezone=UTC",
            ],
        )
    }

    pub fn git(&self, repository: &Path) -> ServerConfig {
        let program = self.0.join("venv/bin/mcp-server-git").display().to_string();
        self.server(
            "git",
            &[
                &program,
                "--repository",
                repository.to_str().expect("UTF-8"),
            ],
        )
    }

    pub fn generated(&self) -> ServerConfig {
        self.server(
            "generated",
            &[&self.python(), &Peers::script("fastmcp_server.py")],
        )
    }
}

/// A folder with a file, and a repository with one commit in it.
fn workspace(world: &World) -> PathBuf {
    let folder = world.path("workspace");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("notes.txt"), "buy umbrellas").unwrap();
    for words in [
        vec!["init", "--quiet"],
        vec!["add", "."],
        vec![
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=ada@example.com",
            "commit",
            "--quiet",
            "-m",
            "Begin with umbrellas",
        ],
    ] {
        let done = Command::new("git")
            .args(words)
            .current_dir(&folder)
            .status()
            .expect("git runs");
        assert!(done.success());
    }
    folder.canonicalize().unwrap()
}

fn five(peers: &Peers, folder: &Path) -> Vec<ServerConfig> {
    vec![
        peers.everything(),
        peers.filesystem(folder),
        peers.time(),
        peers.git(folder),
        peers.generated(),
    ]
}

/// A process that is killed at the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn listens(address: &str) {
    until("it listens", || async {
        TcpStream::connect(address).await.is_ok()
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn real_servers_are_taken_in_searched_and_called() {
    let peers = Peers::installed();
    let world = World::new();
    let folder = workspace(&world);
    let upstream = Upstream::start(five(&peers, &folder)).await;
    assert!(
        upstream
            .pool
            .statuses()
            .iter()
            .all(|status| status.available),
        "{:?}",
        upstream.pool.statuses()
    );
    assert!(upstream.ids().len() > 1_035, "{}", upstream.ids().len());

    let searcher = upstream.catalog.searcher();
    for (words, expected) in [
        (
            "what time is it in another timezone",
            "time/get_current_time",
        ),
        ("show the commit logs", "git/git_log"),
        ("read the text of a file", "filesystem/read_text_file"),
        (
            "archive the parcels of the hills branch",
            "generated/archive_parcels_hills",
        ),
    ] {
        let hits = searcher
            .search(&toolscout_index::Query::new(words).k(3))
            .unwrap()
            .hits;
        assert!(
            hits.iter().any(|hit| hit.id.as_str() == expected),
            "{words}: {hits:?}"
        );
    }
    for (id, arguments, expected) in [
        ("everything/echo", json!({ "message": "hi" }), "Echo: hi"),
        (
            "filesystem/read_text_file",
            json!({ "path": folder.join("notes.txt") }),
            "buy umbrellas",
        ),
        (
            "git/git_log",
            json!({ "repo_path": folder }),
            "Begin with umbrellas",
        ),
        (
            "generated/archive_parcels_hills",
            json!({ "text": "now" }),
            "archive parcels hills now",
        ),
    ] {
        let result = upstream
            .call(id, arguments)
            .await
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        let said = format!("{} {:?}", text(result.clone()), result.structured_content);
        assert!(said.contains(expected), "{id}: {said}");
    }
    let image = upstream
        .call("everything/get-tiny-image", json!({}))
        .await
        .unwrap();
    assert_eq!(
        toolscout::mcp::outcome::Outcome::of(&image).images[0].mime_type,
        "image/png"
    );
    upstream.pool.close().await;
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn a_real_server_says_that_its_list_changed_and_comes_back_after_a_kill() {
    let peers = Peers::installed();
    let world = World::new();
    let pid_file = world.path("pid");
    let start = format!(
        "echo $$ > {}; exec {} {}",
        pid_file.display(),
        peers.python(),
        Peers::script("fastmcp_server.py")
    );
    let upstream = Upstream::start(vec![peers.server("generated", &["sh", "-c", &start])]).await;
    let pid = || {
        std::fs::read_to_string(&pid_file)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    assert_eq!(upstream.ids().len(), 1_001);

    upstream.call("generated/grow", json!({})).await.unwrap();
    becomes("the new tool is there", || upstream.ids().len() == 1_002).await;
    let first = pid();
    assert!(
        Command::new("kill")
            .args(["-s", "KILL", &first])
            .status()
            .unwrap()
            .success()
    );
    becomes("it is started again", || {
        !pid().is_empty() && pid() != first
    })
    .await;
    becomes("its tools are what they were", || {
        upstream.ids().len() == 1_001
    })
    .await;
    let call = async || {
        upstream
            .call("generated/count_songs_city", json!({ "text": "?" }))
            .await
            .map(text)
    };
    until("it can be called", || async { call().await.is_ok() }).await;
    assert_eq!(call().await.unwrap(), "count songs city ?");
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn real_servers_over_http_are_called_and_come_back_after_a_restart() {
    let peers = Peers::installed();
    let port = free_port();
    let serve = || {
        let mut command = Command::new(peers.python());
        command
            .args([Peers::script("fastmcp_server.py"), port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Running(command.spawn().expect("it starts"))
    };
    let first = serve();
    listens(&format!("127.0.0.1:{port}")).await;
    let everything_port = free_port();
    let everything = Command::new("node")
        .args([
            peers
                .0
                .join("node_modules/.bin/mcp-server-everything")
                .to_str()
                .unwrap(),
            "streamableHttp",
        ])
        .env("PORT", everything_port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _everything = Running(everything.expect("it starts"));
    listens(&format!("127.0.0.1:{everything_port}")).await;

    let url = |name: &str, port: u16| {
        parse_server(&format!("{name}=http://127.0.0.1:{port}/mcp"), &|_| None).unwrap()
    };
    let servers = vec![url("generated", port), url("everything", everything_port)];
    let upstream = Upstream::start_with(servers, |config| {
        config.limits.first_pause = Duration::from_millis(50)
    })
    .await;
    assert!(
        upstream
            .pool
            .statuses()
            .iter()
            .all(|status| status.available),
        "{:?}",
        upstream.pool.statuses()
    );
    assert!(
        text(
            upstream
                .call("everything/echo", json!({ "message": "hi" }))
                .await
                .unwrap()
        )
        .contains("hi")
    );
    let call = async || {
        upstream
            .call("generated/count_songs_city", json!({ "text": "!" }))
            .await
            .map(text)
    };
    assert_eq!(call().await.unwrap(), "count songs city !");

    upstream.call("generated/grow", json!({})).await.unwrap();
    becomes("the new tool is there", || {
        upstream
            .ids()
            .iter()
            .any(|id| id == "generated/photograph_comets_sky")
    })
    .await;
    drop(first);
    assert!(call().await.is_err(), "a server that is gone cannot answer");
    let _second = serve();
    listens(&format!("127.0.0.1:{port}")).await;
    until("it comes back", || async { call().await.is_ok() }).await;
    upstream.pool.close().await;
}

/// A client of others, and whether it has a list of its own where the style is `inject`.
fn clients(peers: &Peers) -> Vec<(Vec<String>, bool)> {
    let python = |script: &str, more: &[&str]| {
        let words = [peers.python(), Peers::script(script)].into_iter();
        words
            .chain(more.iter().map(|word| word.to_string()))
            .collect::<Vec<_>>()
    };
    let node = |generation: &str| {
        vec![
            "node".into(),
            Peers::script("typescript_sdk.mjs"),
            generation.into(),
        ]
    };
    vec![
        (python("python_sdk.py", &["legacy"]), true),
        (python("python_sdk.py", &["auto"]), false),
        (python("fastmcp_client.py", &[]), false),
        (node("v1"), true),
        (node("v2"), false),
    ]
}

async fn reported(peers: &Peers, world: &World, words: Vec<String>) -> Value {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&peers.0)
        .stdin(Stdio::null());
    command
        .env("TOOLSCOUT_DATA", world.path("data"))
        .env("TOOLSCOUT_CACHE", world.path("cache"));
    command
        .env("TOOLSCOUT_EMBEDDER", "none")
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = spawn_blocking(move || command.output())
        .await
        .unwrap()
        .expect("the client runs");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{words:?}: {stdout}\n{stderr}");
    let last = stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {stdout}\n{stderr}"))
}

fn check(words: &[String], report: &Value, has_list: bool) {
    let begins_with_own = report["before"]
        .as_array()
        .is_some_and(|names| names.len() == 5);
    assert!(
        begins_with_own && report["found"][0] == "time/get_current_time",
        "{words:?}: {report}"
    );
    assert!(
        report["called"].as_str().unwrap().contains("Europe/Berlin"),
        "{words:?}: {report}"
    );
    assert_eq!(report["bad"][0], true, "{words:?}: {report}");
    if has_list {
        let after = report["after"].as_array().unwrap();
        assert!(
            after.contains(&json!("time__get_current_time")),
            "{words:?}: {report}"
        );
    }
    if let Some(steps) = report["progress"].as_array() {
        assert!(!steps.is_empty(), "{words:?}: {report}");
    }
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn real_clients_use_us_over_stdio() {
    let peers = Peers::installed();
    let world = World::new();
    let servers = world.servers(&[peers.time(), peers.everything()]);
    world.ok(&["sync", "--mcp", &servers]).await;
    // Some of these clients cannot ask a person, and some of these servers' tools say nothing of
    // themselves.
    let program = env!("CARGO_BIN_EXE_toolscout");
    let ours = [
        program, "mcp", "--style", "inject", "--allow", "*", "--mcp", &servers,
    ]
    .map(str::to_owned);
    for (client, has_list) in clients(&peers) {
        // Over stdio even the newest protocol has one handler for the whole connection, so the list
        // is its own.
        let words = [client.clone(), vec!["stdio".into()], ours.to_vec()].concat();
        let report = reported(&peers, &world, words.clone()).await;
        check(&words, &report, has_list);
    }
    let inspected = inspect_time(&peers, &world, &ours).await;
    assert!(
        inspected.to_string().contains("Europe/Berlin"),
        "{inspected}"
    );
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn the_model_of_a_real_client_writes_texts_once_its_person_agrees() {
    let peers = Peers::installed();
    for (answer, requests, with_texts) in [
        ("no", 0, 0),
        ("unticked", 0, 0),
        ("refuse", 1, 0),
        ("yes", 1, 2),
    ] {
        let world = World::new();
        let servers = world.servers(&[peers.time()]);
        world.ok(&["sync", "--mcp", &servers]).await;
        let program = env!("CARGO_BIN_EXE_toolscout");
        let words = [
            &peers.python(),
            &Peers::script("python_sampling.py"),
            answer,
            program,
            "mcp",
            "--client-texts",
            "5",
        ]
        .map(str::to_owned);
        let report = reported(&peers, &world, words.to_vec()).await;
        let question = report["questions"][0].as_str().unwrap();
        assert!(
            question.contains("2 tools") && question.contains("1 request"),
            "{report}"
        );
        assert_eq!(report["prompts"], requests, "{answer}: {report}");
        let texts = world.ok(&["enrich", "--export", "-"]).await;
        assert_eq!(texts.lines().count(), with_texts, "{answer}: {texts}");
        assert_eq!(texts.contains("model of "), with_texts > 0, "{texts}");
    }
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn what_a_real_server_offers_besides_tools_arrives_as_it_was_sent() {
    let peers = Peers::installed();
    let world = World::new();
    let everything = peers.everything();
    let Transport::Stdio { command, args, .. } = &everything.transport else {
        unreachable!("it is a process")
    };
    let servers = world.servers(&[peers.everything()]);
    let program = env!("CARGO_BIN_EXE_toolscout");
    for mode in ["legacy", "auto"] {
        let client = [
            peers.python(),
            Peers::script("python_offers.py"),
            mode.to_owned(),
        ];
        let mut direct = client.to_vec();
        direct.extend([String::new(), command.clone()]);
        direct.extend(args.iter().cloned());
        let direct = reported(&peers, &world, direct).await;
        let gateway = [
            "everything__",
            program,
            "mcp",
            "--mcp",
            &servers,
            "--allow",
            "everything/*",
        ];
        let mut through = client.to_vec();
        through.extend(gateway.map(str::to_owned));
        let through = reported(&peers, &world, through).await;
        for kind in ["prompts", "resources", "templates", "read", "said"] {
            assert_eq!(through[kind], direct[kind], "{mode}: {kind}");
            let is_asked = mode == "legacy" || kind != "said";
            assert_eq!(
                direct[kind].as_array().unwrap().is_empty(),
                !is_asked,
                "{kind}"
            );
        }
        if mode == "legacy" {
            assert!(through["said"][0].to_string().contains("Ada"), "{through}");
            assert!(
                through["said"][1].to_string().contains("sampled"),
                "{through}"
            );
        }
    }
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn real_clients_use_us_over_http() {
    let peers = Peers::installed();
    let world = World::new();
    let servers = world.servers(&[peers.time(), peers.everything()]);
    world.ok(&["sync", "--mcp", &servers]).await;
    let key = world
        .ok(&["keys", "create", "--scope", "call", "--catalogs", "default"])
        .await;
    let key = key
        .split_whitespace()
        .find(|word| word.len() > 20)
        .expect("a key")
        .to_owned();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let calls = ["--mcp", &servers, "--mcp-style", "inject", "--allow", "*"];
    let mut command = world.command(
        &[
            &["serve", "--listen", &address, "--log", "error"],
            &calls[..],
        ]
        .concat(),
    );
    let _serving = Running(command.stdout(Stdio::null()).spawn().expect("it starts"));
    listens(&address).await;
    let url = format!("http://{address}/mcp");
    ready(&format!("http://{address}/readyz")).await;
    for (client, has_list) in clients(&peers) {
        let words = [client, vec!["http".into(), url.clone(), key.clone()]].concat();
        let report = reported(&peers, &world, words.clone()).await;
        check(&words, &report, has_list);
    }
    let inspected = inspect_time(&peers, &world, &over_http(&url, &key)).await;
    assert!(
        inspected.to_string().contains("Europe/Berlin"),
        "{inspected}"
    );
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn real_clients_on_two_profiles_see_and_call_what_is_theirs() {
    let peers = Peers::installed();
    let world = World::new();
    let servers = world.servers(&[double("a", &[]), double("b", &[])]);
    world.ok(&["sync", "--mcp", &servers]).await;
    let config = world.path("config.toml");
    let profiles = "[profiles.of-a]\nservers = ['a']\n[profiles.of-b]\ntools = ['b/*']";
    std::fs::write(&config, profiles).expect("written");
    let config = config.display().to_string();
    let key_of = async |profile: &str| {
        let create = ["--config", &config, "keys", "create", "--scope", "call"];
        let made = [&create[..], &["--profile", profile]].concat();
        world.ok(&made).await.trim().to_owned()
    };
    let (key_a, key_b) = (key_of("of-a").await, key_of("of-b").await);
    let address = format!("127.0.0.1:{}", free_port());
    let serve = ["--config", &config, "serve", "--listen", &address];
    let serve = [&serve[..], &["--log", "error", "--mcp", &servers]].concat();
    let mut command = world.command(&serve);
    let _serving = Running(command.stdout(Stdio::null()).spawn().expect("it starts"));
    listens(&address).await;
    ready(&format!("http://{address}/readyz")).await;
    let use_profile = async |client: &[String], key: &str, path: &str, own: &str, other: &str| {
        let url = format!("http://{address}{path}");
        let words = [client, &[&url, key, own, other].map(str::to_owned)].concat();
        let report = reported(&peers, &world, words).await;
        assert_eq!(report["called"], format!("hello {own}"), "{report}");
        assert_eq!(report["asked"], 1, "the person was asked once: {report}");
        let of_missing = report["missing"].as_str().expect("text");
        let of_other = report["other"].as_str().expect("text");
        assert_eq!(
            of_other.replace(&format!("{other}/echo"), "none/echo"),
            of_missing
        );
        for part in ["listed", "servers", "found"] {
            let text = report[part].to_string();
            assert!(!text.contains(&format!("{other}/")), "{part}: {report}");
        }
        let servers: Value =
            serde_json::from_str(report["servers"].as_str().expect("text")).unwrap();
        assert_eq!(
            servers["servers"].as_array().map(Vec::len),
            Some(1),
            "{servers}"
        );
        assert_eq!(servers["servers"][0]["server"], own, "{servers}");
    };
    let python = |script: &str| vec![peers.python(), Peers::script(script)];
    let typescript = |generation: &str| {
        let script = Peers::script("typescript_profile.mjs");
        vec!["node".to_owned(), script, generation.to_owned()]
    };
    for client in [
        [python("python_profile.py"), vec!["legacy".to_owned()]].concat(),
        [python("python_profile.py"), vec!["auto".to_owned()]].concat(),
        python("fastmcp_profile.py"),
        typescript("v1"),
        typescript("v2"),
    ] {
        tokio::join!(
            use_profile(&client, &key_a, "/mcp/p/of-a", "a", "b"),
            use_profile(&client, &key_b, "/mcp", "b", "a")
        );
    }
    for (key, path, own, other) in [
        (&key_a, "/mcp/p/of-a", "a", "b"),
        (&key_b, "/mcp", "b", "a"),
    ] {
        let target = over_http(&format!("http://{address}{path}"), key);
        let ask = async |tool: &str, argument: String| {
            let answer = inspect(&peers, &world, &target, tool, &[argument]).await;
            answer.to_string()
        };
        let found = ask("tool_search", "query=says it again".into()).await;
        assert!(found.contains(&format!("{own}/echo")), "{found}");
        assert!(!found.contains(&format!("{other}/")), "{found}");
        let described = ask("describe_tool", format!("names=[\"{other}/echo\"]")).await;
        let missing = ask("describe_tool", "names=[\"none/echo\"]".into()).await;
        assert_eq!(
            described.replace(&format!("{other}/echo"), "none/echo"),
            missing
        );
    }
}

async fn ready(url: &str) {
    let client = toolscout::tls::client().no_proxy().build().unwrap();
    until("it is ready", || async {
        let answer = client.get(url).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    })
    .await;
}

/// The inspector's words for a server over HTTP.
fn over_http(url: &str, key: &str) -> Vec<String> {
    let header = format!("Authorization: Bearer {key}");
    [url, "--transport", "http", "--header", &header]
        .map(str::to_owned)
        .to_vec()
}

/// A call of a server's tool through us by the inspector.
async fn inspect_time(peers: &Peers, world: &World, target: &[String]) -> Value {
    let arguments = [
        "name=time/get_current_time",
        r#"arguments={"timezone":"Europe/Berlin"}"#,
    ];
    inspect(
        peers,
        world,
        target,
        "call_tool",
        &arguments.map(str::to_owned),
    )
    .await
}

/// A call by the inspector's command line.
async fn inspect(
    peers: &Peers,
    world: &World,
    target: &[String],
    tool: &str,
    arguments: &[String],
) -> Value {
    let mut command = Command::new("node");
    command
        .arg(
            peers
                .0
                .join("node_modules/@modelcontextprotocol/inspector/cli/build/cli.js"),
        )
        .arg("--cli");
    for (key, value) in [
        ("TOOLSCOUT_DATA", world.path("data").display().to_string()),
        ("TOOLSCOUT_EMBEDDER", "none".into()),
    ] {
        command.arg("-e").arg(format!("{key}={value}"));
    }
    command
        .args(target)
        .args(["--method", "tools/call", "--tool-name", tool]);
    for argument in arguments {
        command.args(["--tool-arg", argument]);
    }
    command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::null());
    let output = spawn_blocking(move || command.output())
        .await
        .unwrap()
        .expect("the inspector runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn the_agent_answers_a_question_whose_tools_live_on_two_servers() {
    let peers = Peers::installed();
    let world = World::new();
    let folder = workspace(&world);
    let servers = world.servers(&five(&peers, &folder));
    let script = world.path("script.jsonl");
    let lines = [
        json!({ "expect_tools": ["tool_search"], "reply": { "calls": [{ "name": "tool_search", "arguments": {
            "queries": ["current time in a timezone", "show the commit logs"], "limit": 3
        } }] } }),
        json!({ "reply": { "calls": [
            { "name": "time__get_current_time", "arguments": { "timezone": "Asia/Tokyo" } },
            { "name": "git__git_log", "arguments": { "repo_path": folder } }
        ] } }),
        json!({ "reply": { "text": "The last commit begins with umbrellas; in Tokyo it is later." } }),
    ];
    std::fs::write(&script, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let llm = format!("script:{}", script.display());
    let question = "What was committed last, and what time is it in Tokyo?";
    // Nobody sits here whom the gate could ask.
    let ended = world
        .run(&[
            "agent", "--llm", &llm, "--allow", "*", "--mcp", &servers, question,
        ])
        .await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("in Tokyo it is later"),
        "{}",
        ended.stdout
    );
    for expected in [
        "[loaded]",
        "[result] time__get_current_time",
        "Asia/Tokyo",
        "[result] git__git_log",
        "Begin with umbrellas",
    ] {
        assert!(
            ended.stderr.contains(expected),
            "{expected:?} is not in {}",
            ended.stderr
        );
    }
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn these_servers_cost_far_fewer_tokens_through_us() {
    let peers = Peers::installed();
    let world = World::new();
    let folder = workspace(&world);
    let upstream = Upstream::start(five(&peers, &folder)).await;
    let searcher = upstream.catalog.searcher();
    let tools: Vec<_> = searcher.tools().collect();
    let as_model = |tools: &[&toolscout_index::Tool]| {
        budget::count(&formats::emit(tools, Emit::Anthropic).to_string())
    };
    let direct = as_model(&tools.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let gateway = super::gateway::Cost::of(&upstream).await;
    eprintln!(
        "{} tools directly: {direct} tokens; through us: {} for its own tools, {} for a search of 5 with signatures, \
         {} with schemas",
        tools.len(),
        gateway.tools,
        gateway.search,
        gateway.with_schemas
    );
    assert!(gateway.search < 700, "{gateway:?}");
    assert!(
        direct > 20 * (gateway.tools + gateway.search),
        "{direct} against {gateway:?}"
    );
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn a_hundred_concurrent_calls_over_four_servers_are_all_answered() {
    let peers = Peers::installed();
    let world = World::new();
    let folder = workspace(&world);
    let servers = vec![
        peers.everything(),
        peers.filesystem(&folder),
        peers.time(),
        peers.generated(),
    ];
    let upstream = Upstream::start(servers).await;
    let (upstream, folder) = (&upstream, &folder);
    let call = |number: usize| async move {
        let (id, arguments, expected) = match number % 4 {
            0 => (
                "everything/echo",
                json!({ "message": format!("n{number}") }),
                format!("n{number}"),
            ),
            1 => (
                "filesystem/read_text_file",
                json!({ "path": folder.join("notes.txt") }),
                "umbrellas".to_owned(),
            ),
            2 => (
                "time/get_current_time",
                json!({ "timezone": "Asia/Tokyo" }),
                "Asia/Tokyo".to_owned(),
            ),
            _ => (
                "generated/tag_trees_west",
                json!({ "text": format!("n{number}") }),
                format!("west n{number}"),
            ),
        };
        let result = upstream
            .call(id, arguments)
            .await
            .unwrap_or_else(|error| panic!("{id}: {error}"));
        assert!(
            format!("{result:?}").contains(&expected),
            "{id} {number}: {result:?}"
        );
    };
    futures_util::future::join_all((0..100).map(call)).await;
    upstream.pool.close().await;
}

impl Peers {
    /// Starts a program in the folder of the peers, and waits until it listens on the port.
    async fn start(&self, program: &str, script: &str, port: u16, args: &[&str]) -> Running {
        let running = Command::new(program)
            .arg(Peers::script(script))
            .args(args)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Running)
            .expect("it starts");
        listens(&format!("127.0.0.1:{port}")).await;
        running
    }

    /// A FastMCP server over HTTP.
    async fn fastmcp_http(&self, kind: &str, port: u16, more: &[&str]) -> Running {
        let number = port.to_string();
        let args = [&[kind, &number], more].concat();
        self.start(&self.python(), "fastmcp_http.py", port, &args)
            .await
    }

    /// Visits a page as a person with a browser does.
    async fn visit(&self, page: String) {
        let mut browser = Command::new(self.python());
        browser.args([Peers::script("visit.py"), page]);
        let visited = spawn_blocking(move || browser.output()).await;
        let visited = visited.expect("no panic").expect("it runs");
        let said = String::from_utf8_lossy(&visited.stdout).into_owned();
        assert!(
            said.starts_with("200 ") && said.contains("/callback"),
            "{said} {}",
            String::from_utf8_lossy(&visited.stderr)
        );
    }
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn a_real_server_of_the_old_transport_is_recognised_and_called() {
    let peers = Peers::installed();
    let port = free_port();
    let _server = peers.fastmcp_http("sse", port, &[]).await;
    let without_type = parse_server(&format!("old=http://127.0.0.1:{port}/sse"), &|_| None);
    let upstream = Upstream::start(vec![without_type.expect("a URL")]).await;
    assert_eq!(upstream.reason("old"), "");
    let calls = (0..50).map(|n| upstream.call("old/add", json!({ "a": n, "b": 1 })));
    let sums = futures_util::future::join_all(calls).await;
    for (n, sum) in sums.into_iter().enumerate() {
        assert_eq!(text(sum.expect("a sum")), (n + 1).to_string());
    }
    let (sender, mut progress) = tokio::sync::mpsc::channel(16);
    let context = CallContext {
        progress: Some(sender),
        ..CallContext::default()
    };
    let counted = upstream.call_in("old/count", json!({ "to": 5 }), &context);
    assert_eq!(text(counted.await.expect("an answer")), "done");
    assert_eq!(progress.recv().await.expect("progress").total, Some(5.0));
}

#[tokio::test]
#[ignore = "needs the servers and clients that scripts/mcp_peers.sh installs; .ci/run runs it"]
async fn tokens_of_a_real_authorization_server_are_renewed_while_hundreds_of_calls_run() {
    let peers = Peers::installed();
    let (at, guarded) = (free_port(), free_port());
    let issuer = format!("http://127.0.0.1:{at}");
    let url = format!("http://127.0.0.1:{guarded}/mcp");
    let number = at.to_string();
    let _authorization = peers
        .start("node", "oidc_provider.mjs", at, &[&number, &url])
        .await;
    let _server = peers.fastmcp_http("guarded", guarded, &[&issuer]).await;
    let config = parse_server(&format!("guarded={url}"), &|_| None).expect("a URL");
    let data = tempfile::tempdir().expect("a folder");
    let logins = Logins::in_data_dir(data.path());
    let upstream = Upstream::start_with(vec![config.clone()], |config| {
        config.logins = logins.clone();
    })
    .await;
    assert!(upstream.reason("guarded").contains("mcp login guarded"));

    let (address, settings) = remote(&config).expect("a URL");
    let file = logins.file(address).expect("a file");
    let page = begin(address, settings, &[], file.clone())
        .await
        .expect("a page");
    let visiting = peers.visit(page.page().to_string());
    let (login, ()) = tokio::join!(page.finish(Duration::from_secs(60)), visiting);
    let first = login.expect("a login");
    assert_eq!(first.lifetime(), Some(Duration::from_secs(3)));
    becomes("it is connected", || upstream.reason("guarded").is_empty()).await;

    // Ten seconds of calls, three times the life of a token and more.
    let begun = Instant::now();
    let (upstream, mut calls) = (Arc::new(upstream), 0);
    let callers = (0..8).map(|caller| {
        let upstream = Arc::clone(&upstream);
        tokio::spawn(async move {
            let mut calls = 0;
            while begun.elapsed() < Duration::from_secs(10) {
                let sum = upstream.call("guarded/add", json!({ "a": calls, "b": caller }));
                assert_eq!(
                    text(sum.await.expect("no call fails")),
                    (calls + caller).to_string()
                );
                calls += 1;
            }
            calls
        })
    });
    for caller in futures_util::future::join_all(callers).await {
        calls += caller.expect("no call fails");
    }
    assert!(calls >= 100, "{calls} calls");
    let last = file.read().expect("readable").expect("a login");
    assert_ne!(first.access_token(), last.access_token());
    assert_ne!(first.refresh_token(), last.refresh_token());
    eprintln!("{calls} calls with tokens of three seconds");

    let ended = logout(address, settings, &file).await.expect("a logout");
    assert_eq!(ended, LoggedOut::Revoked);
    // The token itself is valid for up to three seconds more.
    until("a login is asked for", async || {
        let sum = upstream
            .call("guarded/add", json!({ "a": 1, "b": 1 }))
            .await;
        sum.is_err_and(|error| error.to_string().contains("mcp login guarded"))
    })
    .await;
}
