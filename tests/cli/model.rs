//! The real embedding model, end to end. `TOOLSCOUT_TEST_MODELS` names a cache that `toolscout models
//! pull` has filled; `make test` sets it.

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
