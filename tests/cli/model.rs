//! The real embedding model, end to end. `TOOLSCOUT_TEST_MODELS` names a cache that `toolscout models
//! pull` has filled; `make test` sets it.

use std::path::Path;

use serde_json::{Value, json};
use toolscout_index::Embedder;
use toolscout_index::embed::MiniLm;

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
        ended.json()
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

#[test]
#[ignore = "needs the embedding model: `make test` runs it where it can be fetched"]
fn a_model_that_is_damaged_embeds_nothing() {
    let cache = std::env::var_os("TOOLSCOUT_TEST_MODELS").expect("TOOLSCOUT_TEST_MODELS is set");
    let snapshot = "models--sentence-transformers--all-MiniLM-L6-v2/snapshots/local";
    let published = Path::new(&cache).join(snapshot);
    let world = World::with_tools(&four_tools());
    let copied = format!("cache/{snapshot}");
    world.file(
        "cache/models--sentence-transformers--all-MiniLM-L6-v2/refs/main",
        "local",
    );
    for name in ["model.safetensors", "tokenizer.json"] {
        let mut bytes = std::fs::read(published.join(name)).expect("a file of the model");
        if name == "model.safetensors" {
            bytes[40_000_000] ^= 1;
        }
        world.file(&format!("{copied}/{name}"), bytes);
    }
    for args in [["embed"].as_slice(), &["search", "open an issue"]] {
        let mut command = world.command();
        command.env("TOOLSCOUT_EMBEDDER", "minilm").args(args);
        let said = Ended::of(command.output()).stderr;
        assert!(
            said.contains("is damaged") && said.contains("models pull --force"),
            "{said}"
        );
    }
}

/// Of twenty texts the first numbers of the vector, and its cosine with that of the next text, as the
/// published floats give them.
#[test]
#[ignore = "needs the embedding model: `make test` runs it where it can be fetched"]
fn vectors_are_close_to_those_of_the_published_floats() {
    let long: Vec<String> = (0..60)
        .map(|i| format!("word{i} and number {}", i * 37))
        .collect();
    let long = long.join(" ");
    let expected: [(&str, [f32; 4], f32); 20] = [
        ("weather", [-0.053, 0.065, 0.113, 0.114], 0.567),
        (
            "What is the weather like in Paris tomorrow?",
            [0.031, 0.020, 0.087, 0.013],
            0.536,
        ),
        (
            "will it rain this afternoon",
            [-0.018, 0.043, 0.112, 0.025],
            0.388,
        ),
        (
            "weather get Forecast: Returns the forecast of a place. place Name days",
            [0.007, 0.032, 0.074, 0.142],
            -0.056,
        ),
        (
            "Create a new issue in the repository and assign it to Maria.",
            [0.002, -0.057, 0.013, 0.047],
            0.185,
        ),
        (
            "git Hub create Pull Request",
            [-0.040, -0.051, -0.006, 0.029],
            0.132,
        ),
        ("open a bug report", [-0.026, 0.019, -0.065, 0.057], -0.018),
        (
            "spin up a new linux server",
            [0.032, -0.107, -0.040, -0.116],
            -0.088,
        ),
        (
            "aws ec2 Describe Instances: Describes the specified instances or all instances. Instance Ids filters",
            [0.012, 0.069, -0.027, -0.003],
            0.009,
        ),
        (
            "who deleted my database yesterday",
            [0.009, -0.044, 0.002, -0.013],
            0.068,
        ),
        (
            "São Paulo, naïve café, Zürich, Łódź",
            [0.024, 0.034, -0.026, 0.082],
            0.152,
        ),
        ("Привет, мир", [0.021, 0.048, 0.002, 0.000], 0.198),
        (
            "创建一个新的日程 in my calendar",
            [-0.018, 0.097, 0.102, 0.008],
            0.171,
        ),
        (
            "send the plan to my colleague by e-mail before noon",
            [0.003, 0.111, 0.007, -0.020],
            0.335,
        ),
        (
            "mail send Message: Sends a message to one or several people.",
            [0.031, -0.048, 0.003, 0.029],
            -0.002,
        ),
        (
            "convert 2,000 euros to yen",
            [0.045, 0.028, -0.051, 0.027],
            0.462,
        ),
        (
            "exchange rate of the dollar",
            [0.044, 0.017, -0.061, 0.070],
            0.067,
        ),
        ("192.168.0.1:8080", [-0.013, 0.071, -0.017, -0.031], 0.033),
        (
            "https://example.com/a/b?c=d&e=f#g",
            [-0.071, -0.007, 0.018, -0.016],
            0.180,
        ),
        (&long, [-0.006, 0.009, -0.049, -0.074], 0.009),
    ];
    let cache = std::env::var_os("TOOLSCOUT_TEST_MODELS").expect("TOOLSCOUT_TEST_MODELS is set");
    let repository = Path::new(&cache).join("models--sentence-transformers--all-MiniLM-L6-v2");
    let revision = std::fs::read_to_string(repository.join("refs/main")).expect("a revision");
    let folder = repository.join("snapshots").join(revision.trim());
    let model = MiniLm::load(&folder).expect("a model");
    assert_eq!(model.id(), "all-MiniLM-L6-v2/8087e9bf/128");
    let texts = expected.map(|(text, ..)| text);
    let vectors = model.embed_queries(&texts).expect("vectors");
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    for (place, (text, _, cosine)) in expected.iter().enumerate() {
        let found = product(&vectors[place], &vectors[(place + 1) % vectors.len()]);
        assert!((found - cosine).abs() < 0.02, "{text}: {found}");
    }
    let found = vectors.iter().flat_map(|vector| vector[..4].to_vec());
    let (found, expected): (Vec<f32>, Vec<f32>) = found
        .zip(expected.iter().flat_map(|(_, first, _)| *first))
        .unzip();
    let lengths = product(&found, &found) * product(&expected, &expected);
    let cosine = product(&found, &expected) / lengths.sqrt();
    assert!(cosine > 0.998, "{cosine}");
}
