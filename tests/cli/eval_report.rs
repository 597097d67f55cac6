//! One JSON for reports, whoever writes it, and the pages that are made of it.

use std::path::Path;

use serde_json::{Value, json};

use super::run::World;

fn fixtures() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    path.to_str().expect("UTF-8").to_owned()
}

fn page(world: &World, file: &str) -> String {
    let page = std::fs::read_to_string(world.path(file)).expect("written");
    assert!(
        !page.contains("<script") && !page.contains("src=") && !page.contains("href="),
        "{file} loads something"
    );
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    page
}

#[test]
fn a_written_report_has_every_plot_and_gives_the_same_page_again() {
    let world = World::new();
    let eval = [
        "--embedder",
        "table",
        "eval",
        &fixtures(),
        "--queries",
        "45",
    ];
    let table = world.ok(&[&eval[..], &["--json", "a.json", "--html", "a.html"]].concat());
    let first = page(&world, "a.html");
    for part in [
        "Recall over k",
        "Precision over recall",
        "lexical against hybrid",
        "dense against hybrid",
        "Scores of hybrid",
        "No match",
        "Latency",
        "Worst queries of hybrid",
        "fixtures (small)",
        "Small set of 45 queries",
    ] {
        assert!(first.contains(part), "{part} is missing");
    }
    let again = world.ok(&["eval", "report", "a.json", "--html", "b.html"]);
    assert_eq!(page(&world, "b.html"), first);
    // The columns of a run that chose none, and the same figures. Then every figure.
    let every = again
        .strip_prefix(table.trim_end())
        .expect("the tables of the run");
    let report = std::fs::read_to_string(world.path("a.json")).expect("written");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let hybrid = report["sets"][0]["arms"]["hybrid"]
        .as_object()
        .expect("an arm");
    let metrics: Vec<&String> = hybrid.keys().filter(|key| key.contains('@')).collect();
    assert!(
        metrics.iter().any(|metric| *metric == "complete@10"),
        "{hybrid:?}"
    );
    for metric in metrics {
        let value = format!("{:.3} (", hybrid[metric].as_f64().expect("a mean"));
        let row = every
            .lines()
            .find(|line| line.contains(&format!(" {metric} ")));
        assert!(
            row.is_some_and(|row| row.contains(&value)),
            "{metric} in {every}"
        );
        assert!(first.contains(&format!("<th>{metric} ")), "{metric}");
    }
    let json = world.ok(&["--output", "json", "eval", "report", "a.json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let query = &json["sets"][0]["per_query"][0];
    let judged = query["judged"].as_object().expect("judged");
    let ranks = query["arms"]["hybrid"]["ranks"].as_object().expect("ranks");
    assert!(ranks.keys().all(|id| judged.contains_key(id)), "{query}");
    assert!(json["sets"][0]["worst"][0]["hits"].is_array());
}

#[test]
fn small_sets_are_marked_in_every_table_and_page() {
    let world = World::new();
    let eval = |count: &str, name: &str| {
        let table = world.ok(&[
            "eval",
            &fixtures(),
            "--queries",
            count,
            "--json",
            &format!("{name}.json"),
            "--html",
            &format!("{name}.html"),
        ]);
        let rows = table.lines();
        let (marked, all) = rows
            .filter(|row| row.trim_start().starts_with("fixtures"))
            .fold((0, 0), |(marked, all), row| {
                (marked + usize::from(row.contains("(small)")), all + 1)
            });
        (marked, all, page(&world, &format!("{name}.html")))
    };
    for (count, is_small) in [("12", true), ("49", true), ("50", false), ("80", false)] {
        let (marked, all, page) = eval(count, count);
        assert!(all >= 5, "quality, no match, latency, cost, tokens: {all}");
        assert_eq!(marked, if is_small { all } else { 0 }, "{count}");
        assert_eq!(page.contains("(small)"), is_small, "{count}");
    }
    let diff = world.ok(&["eval", "diff", "12.json", "12.json", "--html", "diff.html"]);
    assert!(diff.contains("fixtures (small)"), "{diff}");
    let diff = page(&world, "diff.html");
    for part in [
        "fixtures (small)",
        "lexical of a against lexical of b",
        "on it 12",
    ] {
        assert!(diff.contains(part), "{part} is missing in {diff}");
    }
}

#[test]
fn simulations_are_pages_too() {
    let world = World::new();
    let simulate = [
        "eval",
        &fixtures(),
        "--agent",
        "--queries",
        "12",
        "--turns",
        "3",
    ];
    let usual = ["--budgets", "1000", "--json", "a.json", "--html", "a.html"];
    world.ok(&[&simulate[..], &usual].concat());
    let first = page(&world, "a.html");
    for part in ["Success", "Tokens", "relevant only", "lru 1000", "(small)"] {
        assert!(first.contains(part), "{part} is missing");
    }
    world.ok(&["eval", "report", "a.json", "--html", "b.html"]);
    assert_eq!(page(&world, "b.html"), first);
    let learning = ["--remember", "4", "--json", "l.json", "--html", "l.html"];
    world.ok(&[&simulate[..], &learning].concat());
    let first = page(&world, "l.html");
    assert!(first.contains("Search of the held-out queries") && first.contains("after"));
    let table = world.ok(&["eval", "report", "l.json", "--html", "m.html"]);
    assert_eq!(page(&world, "m.html"), first);
    assert!(table.contains("after 4 conversations"), "{table}");
}

#[test]
fn what_is_no_report_is_named() {
    let world = World::new();
    for (text, expected) in [
        ("{}", "missing field `set`"),
        ("[]", "it has no set"),
        ("7", "it is no object"),
        (r#"{"sets": 3}"#, "`sets` is no list"),
        ("no json", "expected"),
    ] {
        world.file("other.json", text);
        let ended = world.run(&["eval", "report", "other.json"]);
        assert_eq!(ended.code, 3, "{text}");
        assert!(ended.stderr.contains(expected), "{text}: {}", ended.stderr);
    }
    // A report of another program with figures alone.
    let other = json!({"set": "own", "tools": 9, "queries": 60, "embedder": "theirs",
        "arms": {"bm25": {"ndcg@10": 0.5, "ci95": {"ndcg@10": [0.4, 0.6]}, "ours": "other"}}});
    world.file("other.json", other.to_string());
    let table = world.ok(&["eval", "report", "other.json", "--html", "other.html"]);
    assert!(table.contains("bm25") && table.contains("0.500"), "{table}");
    assert!(page(&world, "other.html").contains("bm25"));
}
