use std::path::Path;

use serde_json::json;

use super::run::{World, text};

fn fixtures(name: &str) -> String {
    text(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures")
            .join(name),
    )
    .to_owned()
}

fn with_fixtures() -> World {
    let world = World::new();
    world.ok(&["add", "--embedder", "table", &fixtures("tools")]);
    world
}

#[test]
fn a_fitted_ranker_is_written_only_with_a_gain_on_held_out_tools() {
    let world = with_fixtures();
    let fit = [
        "--embedder",
        "table",
        "tune",
        "--ranker",
        "--queries",
        &fixtures("queries.jsonl"),
        "--seed",
        "3",
    ];
    let fitted = world.json(&fit);
    let [before, after] =
        ["before", "after"].map(|key| fitted["test"][key].as_f64().expect("a figure"));
    let is_gain = after > before && fitted["test_gain_p"].as_f64() < Some(0.05);
    assert_eq!(fitted["accepted"], json!(is_gain), "{fitted}");
    let ended = world.run(&[fit.as_slice(), &["--apply"]].concat());
    let kept = world.path("data/catalogs/default/ranker.json");
    assert_eq!(
        (ended.code == 0, kept.exists()),
        (is_gain, is_gain),
        "{}",
        ended.stderr
    );
    if is_gain {
        let eval = ["--catalog", "default", "eval", &fixtures("queries.jsonl")];
        let eval = [&["--embedder", "table"], &eval[..], &["--queries", "60"]].concat();
        let table = world.ok(&eval);
        assert!(table.contains("the figures are in-sample"), "{table}");
        // Also on a machine that has the tools and settings alone.
        let catalogs = world.path("data/catalogs");
        let copy = world.path("copy/catalogs/default");
        std::fs::create_dir_all(&copy).expect("a folder");
        std::fs::copy(catalogs.join("default/tools.db"), copy.join("tools.db")).expect("copied");
        let table = world.ok(&[&["--data", "copy"], &eval[..]].concat());
        assert!(table.contains("the figures are in-sample"), "{table}");
    }
    let said = if is_gain {
        "wrote a ranker fitted to"
    } else {
        "so nothing was written"
    };
    assert!(
        format!("{}{}", ended.stdout, ended.stderr).contains(said),
        "{}",
        ended.stderr
    );
}

#[test]
fn too_few_queries_and_unknown_tools_are_named() {
    let world = with_fixtures();
    let few = world.file(
        "few.jsonl",
        r#"{"id":"1","query":"send a mail","relevant":["gmail/send_email"]}"#,
    );
    world
        .run(&[
            "--embedder",
            "table",
            "tune",
            "--ranker",
            "--queries",
            text(&few),
        ])
        .failed(
            1,
            &[
                "tuning needs at least 20 queries in each half",
                "of default has",
                "of its 1; judge more queries, at least 40",
            ],
        );
    let gone = world.file(
        "gone.jsonl",
        r#"{"id":"1","query":"send a mail","relevant":["no/such"]}"#,
    );
    world
        .run(&[
            "--embedder",
            "table",
            "tune",
            "--ranker",
            "--queries",
            text(&gone),
        ])
        .failed(1, &["no/such"]);
    assert_eq!(world.run(&["tune", "--ranker"]).code, 2);
}

#[test]
fn settings_without_a_gain_are_not_written() {
    let world = World::new();
    // A tool for each query, which is its name: nothing can be better.
    let names: Vec<String> = (100..150).map(|n| format!("tool{n}")).collect();
    let tools = names
        .iter()
        .map(|name| json!({"name": name, "description": name}));
    let tools = json!(tools.collect::<Vec<_>>()).to_string();
    let queries: String = names
        .iter()
        .map(|name| {
            format!(
                "{}\n",
                json!({"id": name, "query": name, "relevant": [name]})
            )
        })
        .collect();
    world.file("set/queries.jsonl", queries);
    let tools = world.file("set/tools.json", tools);
    world.ok(&["add", "--embedder", "table", text(&tools)]);
    let ended = world.run(&["--embedder", "table", "tune", "set", "--apply"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let note = "there is no gain on the test half, so nothing was written";
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
}

#[test]
fn a_ranker_of_another_version_falls_back_to_the_built_in_one() {
    let world = with_fixtures();
    let search = ["--embedder", "table", "search", "open a ticket about a bug"];
    let before = world.json(&search)["hits"].clone();
    world.file(
        "data/catalogs/default/ranker.json",
        "toolscout-ranker 9 abc\n{}",
    );
    let answer = world.json(&search);
    let reason = answer["degraded"]["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        reason.contains("version 9") && reason.contains("ranker.json"),
        "{reason}"
    );
    assert_eq!(answer["hits"], before);
}
