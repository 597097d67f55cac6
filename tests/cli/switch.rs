//! Embedders of a catalog of its own, several beside each other, and the change from one to another.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::double::{Double, Reply};
use super::run::{Ended, Serving, World, four_tools};

/// Two endpoints, `a` with 16 dimensions and `b` with 24. `b` fails from its nth request on.
struct Two {
    world: World,
    a: Double,
    b: Double,
    b_fails_at: Arc<AtomicUsize>,
}

impl Two {
    fn new() -> Self {
        let world = World::with_tools(&four_tools());
        let b_fails_at = Arc::new(AtomicUsize::new(usize::MAX));
        let fails_at = Arc::clone(&b_fails_at);
        let (a, b) = (
            Double::embedding(16),
            Double::start(move |number, request| {
                if number >= fails_at.load(Ordering::SeqCst) {
                    return Reply::status(500, "b is broken");
                }
                Reply::vectors(request, 24)
            }),
        );
        let endpoint = |name: &str, url: &str, dimensions: usize| {
            format!(
                "[embedders.{name}]\nurl = \"{url}\"\nmodel = \"model-{name}\"\ndimensions = {dimensions}\n\
                 batch = 2\nconcurrency = 1\npatience_s = 0\n"
            )
        };
        let file = endpoint("a", &a.url, 16) + &endpoint("b", &b.url, 24);
        world.file("config.toml", file);
        Two {
            world,
            a,
            b,
            b_fails_at,
        }
    }

    fn command(&self) -> Command {
        let mut command = self.world.command();
        command
            .env("TOOLSCOUT_EMBEDDER", "table")
            .env("TOOLSCOUT_CONFIG", self.world.path("config.toml"));
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        Ended::of(self.command().args(args).output())
    }

    fn json(&self, args: &[&str]) -> Value {
        let ended = self.run(&[args, &["--json"]].concat());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.json()
    }

    /// The models that answer a search, which must lack nothing.
    fn searching(&self, args: &[&str]) -> Vec<String> {
        let answer = self.json(&[args, &["search", "open an issue"]].concat());
        assert_eq!(answer["degraded"], Value::Null, "{answer}");
        models_of(&answer)
    }
}

fn models_of(answer: &Value) -> Vec<String> {
    let ids = answer["embedders"].as_array().expect("an array").iter();
    ids.filter_map(|id| id.as_str()?.split('/').next().map(str::to_owned))
        .collect()
}

#[test]
fn a_catalog_keeps_its_model_until_the_new_one_is_complete() {
    let two = Two::new();
    let refused = two.run(&["catalogs", "settings", "--embedder", "a"]);
    refused.failed(1, &["4 tools have no vectors by a yet", "--switch"]);
    assert_eq!(
        two.json(&["embed", "--embedder", "a", "--switch"])["switched"],
        true
    );
    assert_eq!(two.searching(&[]), ["model-a", "static-table"]);

    // The new model dies in the middle: the old one serves.
    two.b_fails_at.store(2, Ordering::SeqCst);
    let broken = two.run(&["embed", "--embedder", "b", "--switch"]);
    broken.failed(1, &["b is broken", "4 texts embedded before that, 4 left"]);
    assert_eq!(two.searching(&[]), ["model-a", "static-table"]);
    two.b_fails_at.store(usize::MAX, Ordering::SeqCst);
    let rest = two.json(&["embed", "--embedder", "b"]);
    assert_eq!(
        (&rest["embedded"], &rest["switched"]),
        (&json!(4), &json!(false))
    );
    assert_eq!(two.searching(&[]), ["model-a", "static-table"]);
    assert_eq!(
        two.searching(&["--embedder", "b"]),
        ["model-b", "static-table"],
        "a flag wins"
    );

    // Both are complete: changing between them embeds nothing.
    let shown = two.json(&["catalogs", "settings", "--embedder", "b"]);
    assert_eq!(shown["embedder"], "b");
    assert_eq!(two.searching(&[]), ["model-b", "static-table"]);
    let (a, b) = (two.a.requests().len(), two.b.requests().len());
    two.json(&["catalogs", "settings", "--embedder", "a+b"]);
    assert_eq!(two.searching(&[]), ["model-a", "model-b", "static-table"]);
    assert_eq!(
        (two.a.requests().len(), two.b.requests().len()),
        (a + 1, b + 1)
    );
    let reset = two.json(&["catalogs", "settings", "--reset", "embedder"]);
    assert_eq!(reset["embedder"], Value::Null);
    assert_eq!(two.searching(&[]), ["static-table"]);
}

#[test]
fn other_catalogs_keep_theirs() {
    let two = Two::new();
    two.json(&["embed", "--embedder", "a", "--switch"]);
    let tools = two.world.path("tools.json");
    let added = two.run(&["--catalog", "other", "add", tools.to_str().expect("UTF-8")]);
    assert_eq!(added.code, 0, "{}", added.stderr);
    assert_eq!(two.searching(&["--catalog", "other"]), ["static-table"]);
    assert_eq!(two.searching(&[]), ["model-a", "static-table"]);
    // What is added later is embedded by the catalog's own model.
    let asked = two.a.texts();
    let file = two.world.file(
        "more.json",
        json!([{"name": "t", "description": "New."}]).to_string(),
    );
    two.json(&["add", file.to_str().expect("UTF-8")]);
    assert_eq!(two.a.texts(), asked + 2);
}

#[test]
fn a_folder_is_measured_by_the_embedders_of_the_settings() {
    let two = Two::new();
    two.json(&["embed", "--embedder", "a", "--switch"]);
    two.world
        .file("set/tools.json", json!(four_tools()).to_string());
    two.world.file(
        "set/queries.jsonl",
        r#"{"id": "q", "query": "open an issue", "relevant": ["github/create_issue"]}"#,
    );
    let (a, b) = (two.a.texts(), two.b.texts());
    let eval = ["eval", "set", "--parts", ""];
    assert_eq!(two.run(&eval).code, 0);
    assert_eq!((two.a.texts(), two.b.texts()), (a, b), "by the table");
    let ended = two.run(&[&["--embedder", "b"], &eval[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(two.a.texts() == a && two.b.texts() > b);
}

#[test]
fn a_name_that_this_machine_does_not_know_leaves_the_table() {
    let two = Two::new();
    two.json(&["embed", "--embedder", "a", "--switch"]);
    let mut command = two.world.command();
    command.env("TOOLSCOUT_EMBEDDER", "table");
    let ended = Ended::of(command.args(["search", "open an issue", "--json"]).output());
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(answer["degraded"]["code"], "embedder_not_loaded");
    assert!(
        answer["degraded"]["reason"]
            .to_string()
            .contains("\\\"a\\\" is unknown"),
        "{answer}"
    );
    assert_eq!(models_of(&answer), ["static-table"]);
}

#[test]
fn a_server_follows_the_change_without_a_gap() {
    let two = Two::new();
    two.json(&["embed", "--embedder", "a", "--switch"]);
    let mut serve = two.command();
    serve.args(["serve", "--listen", "127.0.0.1:0"]);
    let server = Serving::start(serve);
    let client = server.client();
    let search = || -> Value {
        let request = client
            .post(format!("{}/v1/search", server.address))
            .json(&json!({ "query": "open an issue" }));
        request.send().expect("an answer").json().expect("JSON")
    };
    assert_eq!(models_of(&search()), ["model-a", "static-table"]);
    two.json(&["embed", "--embedder", "b", "--switch"]);
    let start = Instant::now();
    loop {
        let answer = search();
        assert_eq!(answer["degraded"], Value::Null, "{answer}");
        match models_of(&answer)[0].as_str() {
            "model-a" => assert!(start.elapsed() < Duration::from_secs(20), "{answer}"),
            "model-b" => break,
            _ => panic!("{answer}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // Tools that come later are embedded by the new one.
    let body = json!([{ "name": "t", "server": "s", "description": "Opens the garage door." }]);
    let url = format!("{}/v1/catalogs/default/tools", server.address);
    let before = two.b.texts();
    assert!(
        client
            .post(url)
            .json(&body)
            .send()
            .expect("an answer")
            .status()
            .is_success()
    );
    let start = Instant::now();
    while two.b.texts() < before + 2 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "it is not embedded"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
