//! The real embedding model, end to end. `TOOLSCOUT_TEST_MODELS` names a cache that `toolscout models
//! pull` has filled; `make test` sets it.

use std::path::Path;

use serde_json::{Value, json};

use super::run::{Ended, World, four_tools};

#[test]
#[ignore = "needs the embedding model: `make test` runs it where it can be fetched"]
fn semantic_matches_share_no_words_and_texts_are_embedded_once() {
    let cache = std::env::var_os("TOOLSCOUT_TEST_MODELS").expect("TOOLSCOUT_TEST_MODELS is set");
    let world = World::new();
    let file = world.file("tools.json", json!(four_tools()).to_string());
    let run = |args: &[&str]| -> Value {
        let mut command = world.command();
        command
            .env("TOOLSCOUT_CACHE", &cache)
            .env("TOOLSCOUT_EMBEDDER", "minilm")
            .args(args)
            .arg("--json");
        let ended = Ended::of(command.output());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
    };
    let file = file.to_str().expect("UTF-8");
    let embedded = |answer: &Value| {
        answer["embedded"]
            .as_u64()
            .unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(embedded(&run(&["add", file])), 8, "two texts a tool");
    assert_eq!(embedded(&run(&["add", file])), 0);
    let answer = run(&["search", "write a letter to my aunt", "--mode", "hybrid"]);
    assert_eq!(
        (&answer["mode"], &answer["degraded"]),
        (&json!("hybrid"), &Value::Null),
        "{answer}"
    );
    assert_eq!(answer["hits"][0]["id"], "mail/sendMessage", "{answer}");
}

/// A model of the catalogue, as a program of others would leave it: a revision by its number, without
/// a note which one is the newest.
#[test]
#[ignore = "needs the embedding model: `make test` runs it where it can be fetched"]
fn a_model_by_name_is_loaded_from_a_folder_in_the_layout_of_the_hub() {
    let cache = std::env::var_os("TOOLSCOUT_TEST_MODELS").expect("TOOLSCOUT_TEST_MODELS is set");
    let world = World::with_tools(&four_tools());
    let repository = "models--Qdrant--all-MiniLM-L6-v2-onnx/snapshots";
    let (from, revision) = (
        Path::new(&cache).join(repository).join("local"),
        "ab".repeat(20),
    );
    for file in std::fs::read_dir(from).expect("a model") {
        let file = file.expect("an entry");
        let name = file.file_name().into_string().expect("UTF-8");
        let bytes = std::fs::read(file.path()).expect("a file");
        world.file(&format!("models/{repository}/{revision}/{name}"), bytes);
    }
    let run = |args: &[&str]| -> Value {
        let mut command = world.command();
        command
            // The ONNX Runtime is there; the model is not looked for there first.
            .env("TOOLSCOUT_CACHE", &cache)
            .env("TOOLSCOUT_MODELS_DIR", world.path("models"))
            .env(
                "TOOLSCOUT_EMBEDDER",
                "sentence-transformers/all-MiniLM-L6-v2",
            )
            .args(args)
            .arg("--json");
        let ended = Ended::of(command.output());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", ended.stdout))
    };
    assert_eq!(run(&["embed"])["embedded"], 8);
    let first = run(&["search", "write a letter to my aunt"]);
    assert_eq!(
        (&first["mode"], &first["degraded"]),
        (&json!("hybrid"), &Value::Null)
    );
    assert_eq!(first["hits"][0]["id"], "mail/sendMessage", "{first}");
    let embedders = first["embedders"].to_string();
    assert!(
        embedders.contains("all-minilm-l6-v2/abababab/"),
        "{embedders}"
    );
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
}
