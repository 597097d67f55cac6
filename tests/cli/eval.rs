//! `toolscout eval` from outside, on the project's own fixtures, by the lexical arm.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use toolscout_index::ranker::Forest;

use super::double::{Double, Reply};
use super::run::{World, says};

fn fixtures() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .to_str()
        .expect("UTF-8")
        .to_owned()
}

/// A set of two tools with these queries.
fn small(world: &World, queries: &str) -> String {
    let tools = json!([{"name": "send_mail", "description": "Sends a mail"}, {"name": "weather", "description": "Tells the weather"}]);
    world.file("small/tools.json", tools.to_string());
    let queries = world.file("small/queries.jsonl", queries);
    queries
        .parent()
        .expect("a folder")
        .to_str()
        .expect("UTF-8")
        .to_owned()
}

/// One query that the lexical arm answers.
const MAIL: &str = r#"{"id":"q","query":"send a mail","relevant":["send_mail"]}"#;

/// The report of the only set in a file.
fn only_set(world: &World, file: &str) -> Value {
    let report = parsed(&std::fs::read_to_string(world.path(file)).expect("written"));
    let sets = report["sets"].as_array().expect("an array");
    assert_eq!(sets.len(), 1, "{report}");
    sets[0].clone()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_table_is_printed_and_the_json_has_the_published_shape() {
    let world = World::new();
    let table = world.ok(&["eval", &fixtures(), "--queries", "40", "--json", "out.json"]);
    assert!(
        table.contains("ndcg@10") && table.contains("lexical") && table.contains("AUC"),
        "{table}"
    );
    let report = only_set(&world, "out.json");
    assert_eq!(
        (
            report["set"].as_str(),
            report["queries"].as_u64(),
            report["embedder"].as_str()
        ),
        (Some("fixtures"), Some(40), Some("none"))
    );
    for (part, field) in [
        ("no_match", "accuracy"),
        ("no_match", "false_no_match"),
        ("cost", "index_s"),
        ("cost", "embed_s"),
        ("cost", "rss_mb"),
        ("cost", "disk_mb"),
        ("cost", "open_s"),
        ("tokens", "catalog"),
        ("tokens", "answer"),
    ] {
        assert!(
            report[part].get(field).is_some(),
            "{part}.{field} is missing in {report}"
        );
    }
    assert!(
        report["arms"]["lexical"]["p95_ms"]
            .as_f64()
            .is_some_and(|ms| ms > 0.0)
    );
}

#[test]
fn json_on_stdout_stands_alone_and_is_the_same_every_time() {
    let world = World::new();
    let run = || {
        world.ok(&[
            "eval",
            &fixtures(),
            "--queries",
            "25",
            "--parts",
            "no-match",
            "--json",
            "-",
        ])
    };
    let (first, second) = (run(), run());
    assert_eq!(parsed(&first), parsed(&second));
    let other = world.ok(&[
        "eval",
        &fixtures(),
        "--queries",
        "25",
        "--parts",
        "",
        "--seed",
        "1",
        "--json",
        "-",
    ]);
    let fingerprint = |text: &str| parsed(text)["sets"][0]["fingerprint"].clone();
    assert_ne!(fingerprint(&first), fingerprint(&other));
}

#[test]
fn several_sets_give_an_array_and_a_macro_row() {
    let world = World::new();
    let small = small(
        &world,
        r#"{"id":"q","query":"send a mail","relevant":["send_mail"]}"#,
    );
    let args = [
        "eval",
        &fixtures(),
        &small,
        "--queries",
        "20",
        "--parts",
        "",
        "--k",
        "1,2",
        "--json",
        "out.json",
    ];
    assert!(world.ok(&args).contains("macro average"));
    let sets = parsed(&std::fs::read_to_string(world.path("out.json")).expect("written"));
    assert_eq!(sets["sets"][1]["arms"]["lexical"]["ndcg@2"], 1.0);
}

#[test]
fn a_baseline_passes_on_the_same_figures_and_fails_on_a_drop() {
    let world = World::new();
    let measure = ["eval", &fixtures(), "--queries", "30", "--parts", ""];
    world.ok(&[&measure[..], &["--json", "before.json"]].concat());
    world.ok(&[
        &measure[..],
        &["--baseline", "before.json", "--max-drop", "0"],
    ]
    .concat());

    let mut better = parsed(&std::fs::read_to_string(world.path("before.json")).expect("written"));
    let figure = &mut better["sets"][0]["arms"]["lexical"]["ndcg@10"];
    *figure = json!(figure.as_f64().expect("a figure") + 0.02);
    world.file("better.json", better.to_string());
    let ended = world.run(
        &[
            &measure[..],
            &["--baseline", "better.json", "--max-drop", ".5"],
        ]
        .concat(),
    );
    assert_eq!(ended.code, 1);
    assert!(
        ended
            .stderr
            .contains("1 of 6 figures dropped by more than 0.5 points"),
        "{}",
        ended.stderr
    );
    assert_eq!(
        world
            .run(
                &[
                    &measure[..],
                    &["--baseline", "better.json", "--max-drop", "2.5"]
                ]
                .concat()
            )
            .code,
        0
    );
}

#[test]
fn the_ablation_covers_every_step() {
    let world = World::new();
    let args = [
        "--embedder",
        "table",
        "eval",
        &fixtures(),
        "--queries",
        "60",
        "--parts",
        "",
        "--ablate",
        "--markdown",
    ];
    let table = world.ok(&args);
    let cells =
        |row: &str| -> Vec<String> { row.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let rows: Vec<Vec<String>> = table.lines().skip(2).map(cells).collect();
    let steps: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
    assert_eq!(
        (steps.len(), steps[0], steps[6]),
        (7, "words", "+ ranker: no-download tier"),
        "{table}"
    );
    let figure =
        |row: usize, column: usize| -> f64 { rows[row][column].parse().expect("a figure") };
    // Each step's mean is the mean of the step before it and what it added, but for rounding.
    for step in 1..rows.len() {
        assert!(
            (figure(step - 1, 3) + figure(step, 5) - figure(step, 3)).abs() < 0.0021,
            "{table}"
        );
    }
}

/// The project's own gates: the figures of the whole query file by words, and with the built-in
/// table.
#[test]
fn the_quality_on_the_fixtures_does_not_drop() {
    for (file, embedder, arm) in [
        ("baseline.json", "none", "lexical"),
        ("baseline-table.json", "table", "hybrid"),
    ] {
        let baseline = format!("{}/{file}", fixtures());
        let args = [
            "--embedder",
            embedder,
            "eval",
            &fixtures(),
            "--arms",
            arm,
            "--parts",
            "",
            "--baseline",
            &baseline,
        ];
        let ended = World::new().run(&args);
        assert_eq!(ended.code, 0, "{file}: {}", ended.stderr);
    }
}

#[test]
fn a_baseline_of_another_set_is_named() {
    let world = World::new();
    let small = small(
        &world,
        r#"{"id":"q","query":"send a mail","relevant":["send_mail"]}"#,
    );
    world.ok(&[
        "eval",
        &small,
        "--k",
        "1,2",
        "--parts",
        "",
        "--json",
        "small.json",
    ]);
    let ended = world.run(&[
        "eval",
        &fixtures(),
        "--queries",
        "5",
        "--parts",
        "",
        "--baseline",
        "small.json",
    ]);
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
    assert!(
        ended
            .stderr
            .contains("of the set small and this run of fixtures"),
        "{}",
        ended.stderr
    );
}

#[test]
fn bad_sets_are_errors_without_output() {
    let world = World::new();
    for (queries, args, code, expected) in [
        (
            r#"{"id":"q","query":"x","relevant":["nothing"]}"#,
            &[][..],
            3,
            "\"nothing\"",
        ),
        (
            r#"{"id":"q","query":"x","relevant":[]}"#,
            &[],
            3,
            "no relevant tools",
        ),
        ("", &[], 3, "has no queries"),
        (
            r#"{"id":"q","query":"x","relevant":["weather"]}"#,
            &["--k", "1,10"],
            2,
            "k = 10",
        ),
        (
            r#"{"id":"q","query":"x","relevant":["weather"]}"#,
            &["--arms", "dense", "--k", "1"],
            3,
            "embedding model",
        ),
    ] {
        let set = small(&world, queries);
        let ended = world.run(&[&["eval", &set][..], args].concat());
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (code, ""),
            "{}",
            ended.stderr
        );
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[test]
fn a_small_set_is_measured_at_the_depths_that_it_allows() {
    let world = World::new();
    let set = small(
        &world,
        r#"{"id":"q","query":"send a mail","relevant":["send_mail"]}"#,
    );
    let ended = world.run(&["eval", &set, "--json", "out.json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let note = "small: no metrics at k = 3, 5, 10, since it has 2 tools";
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
    let report = only_set(&world, "out.json");
    let arm = &report["arms"]["lexical"];
    assert_eq!(
        (arm["ndcg@1"].as_f64(), arm.get("ndcg@3")),
        (Some(1.0), None)
    );
    // No tool can be held out of two, so there is nothing to say on abstention.
    let table = ended.stdout;
    assert!(
        table.contains("small: fewer than 50") && !table.contains("AUC"),
        "{table}"
    );

    let asked = world.run(&["eval", &set, "--k", "1,10"]);
    asked.failed(
        2,
        &["error: set small: metrics at k = 10 mean nothing with 2 tools; use --k"],
    );
}

#[test]
fn columns_are_explained_and_intervals_of_few_queries_marked() {
    let world = World::new();
    let args = ["--embedder", "table", "eval", &fixtures(), "--parts"];
    let few = world.ok(&[&args[..], &["no-match", "--queries", "12"]].concat());
    for text in [
        "accuracy, false:",
        "AUC:",
        "small: fewer than 50 queries, so intervals are wide (fixtures has 12)",
        "fixtures (small)",
    ] {
        assert!(few.contains(text), "{text} is missing in {few}");
    }
    let enough = world.ok(&[&args[..], &["", "--queries", "50"]].concat());
    assert!(
        enough.contains("p: how often chance") && !enough.contains("small"),
        "{enough}"
    );
}

#[test]
fn a_report_is_one_page_that_loads_nothing() {
    let world = World::new();
    world.ok(&[
        "eval",
        &fixtures(),
        "--queries",
        "30",
        "--html",
        "report.html",
    ]);
    let page = std::fs::read_to_string(world.path("report.html")).expect("written");
    assert!(
        page.contains("Worst queries")
            && page.contains("Recall over k")
            && page.contains("Latency")
    );
    assert!(!page.contains("<script") && !page.contains("http://") && !page.contains("src="));
}

#[test]
fn an_agent_is_simulated_under_every_policy() {
    let world = World::new();
    let simulate = [
        "eval",
        &fixtures(),
        "--agent",
        "--queries",
        "12",
        "--turns",
        "6",
        "--budgets",
        "1000,4000",
    ];
    let table = world.ok(&[&simulate[..], &["--json", "out.json"]].concat());
    assert!(
        table.contains("no eviction") && table.contains("relevant only"),
        "{table}"
    );
    let report = only_set(&world, "out.json");
    assert_eq!(
        (
            report["queries"].as_u64(),
            report["arms"].as_object().map(|arms| arms.len())
        ),
        (Some(12), Some(8))
    );
    let success = |arm: &str| report["arms"][arm]["success"].as_f64().expect("a figure");
    assert_eq!(
        (success("all visible"), success("relevant only")),
        (1.0, 1.0),
        "{report}"
    );
    assert!(
        success("lru 4000") > 0.3
            && report["arms"]["lru 1000"]["tools_evicted"].as_f64() > Some(0.0),
        "{report}"
    );
}

#[test]
fn conflicting_options_of_a_simulation_are_errors() {
    let world = World::new();
    let one = small(&world, r#"{"id":"q","query":"x","relevant":["weather"]}"#);
    for (args, code, expected) in [
        (
            vec!["--agent"],
            3,
            "none of the 1 queries of small needs several tools",
        ),
        (
            vec!["--agent", "--turns", "0"],
            2,
            "--turns \"0\": it must be from 1 to 200",
        ),
        (
            vec!["--agent", "--mode", "dense"],
            2,
            "the agent always uses the embedders it has",
        ),
        (
            vec!["--agent", "--trec", "x.trec"],
            2,
            "cannot be used with",
        ),
        (vec!["--turns", "3"], 2, "--agent"),
    ] {
        let ended = world.run(&[&["eval", &one][..], &args].concat());
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(
            ended.stderr.contains(expected),
            "{args:?}: {}",
            ended.stderr
        );
    }
}

#[test]
fn tuning_without_a_model_is_an_error() {
    let ended = World::new().run(&["tune", &fixtures()]);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("embedding model"), "{}", ended.stderr);
}

/// The fixtures' tools with other judgements: grades from -1 to 4, tools judged as not relevant,
/// groups of alternatives and chains, in turns.
fn many_judgements(world: &World) -> String {
    let folder = world.path("mixed/tools");
    std::fs::create_dir_all(&folder).expect("a folder");
    for file in std::fs::read_dir(Path::new(&fixtures()).join("tools")).expect("tools") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), folder.join(file.file_name())).expect("copied");
    }
    let text = std::fs::read_to_string(Path::new(&fixtures()).join("queries.jsonl"));
    let text = text.expect("queries");
    let queries: Vec<Value> = text.lines().map(parsed).collect();
    let served = || queries.iter().filter(|query| query["kind"] != "none");
    let all: Vec<&Value> = served()
        .flat_map(|query| query["relevant"].as_array().unwrap())
        .collect();
    let mut lines = Vec::new();
    for (number, query) in served().enumerate() {
        let own = query["relevant"].as_array().expect("tools");
        let mut query = query.clone();
        let other = |n: usize| {
            all[(number * 7 + n * 13) % all.len()]
                .as_str()
                .expect("an id")
        };
        match number % 4 {
            0 => {
                let mut grades = json!({});
                for n in 0..12 {
                    grades[other(n)] = json!(n % 3);
                }
                for (n, id) in own.iter().enumerate() {
                    grades[id.as_str().expect("an id")] = json!(1 + (number + n) % 4);
                }
                query["relevant"] = grades;
            }
            1 => query["groups"] = json!([own, [other(1)]]),
            2 => {
                query["relevant"] = json!([own[0], other(1), other(2)]);
                query["order"] = json!(true);
            }
            _ => {}
        }
        lines.push(query.to_string());
    }
    world.file("mixed/queries.jsonl", lines.join("\n"));
    "mixed".to_owned()
}

/// Compares figures, query by query, with those of ir-measures, pytrec_eval, gdeval and ranx.
#[test]
#[ignore = "installs ir-measures and ranx from PyPI; .ci/run runs it"]
fn figures_equal_those_of_public_implementations() {
    let world = World::new();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(world.dir.path())
            .output()
            .expect("Python starts");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{program} {args:?}: {text}");
        text
    };
    run("python3", &["-m", "venv", "venv"]);
    let packages = [
        "ir-measures==0.4.3",
        "pytrec_eval-terrier==0.5.11",
        "ranx==0.3.21",
    ];
    run(
        "venv/bin/pip",
        &[&["install", "--quiet"][..], &packages[..]].concat(),
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check_metrics.py");
    let every = "nDCG@5,nDCG@10,nDCG,nDCG(dcg='exp-log2')@10,nDCG(judged_only=True)@10,AP,AP@10,AP(rel=2),\
        P@5,P(rel=2)@5,P(judged_only=True)@5,R@10,R(rel=2)@10,RR,RR@10,Rprec,Success@5,ERR@10,Bpref,Judged@10,\
        unjudged@10,complete@5,RBP(p=0.8),tau@10,prefix";
    let mixed = many_judgements(&world);
    for (set, flags) in [
        (fixtures(), &[][..]),
        (mixed.clone(), &[]),
        (mixed.clone(), &["--metrics", every]),
        (mixed, &["--relevant-from", "2", "--metrics", every]),
    ] {
        let outputs = ["--parts", "", "--json", "out.json", "--trec", "out.trec"];
        world.ok(&[&["eval", &set][..], &outputs[..], flags].concat());
        let check = [
            script.to_str().expect("UTF-8"),
            "out.json",
            "out.trec",
            "--ranx",
        ];
        let text = run("venv/bin/python", &check);
        assert!(
            text.contains(" values compared, 0 differ"),
            "{set} {flags:?}: {text}"
        );
    }
    world.file("ties.trec", run_with_ties(&only_set(&world, "out.json")));
    let of_others = ["eval", "mixed", "--arms", "lexical", "--run", "ties.trec"];
    let outputs = ["--parts", "", "--json", "out.json", "--trec", "out.trec"];
    world.ok(&[&of_others[..], &outputs[..], &["--metrics", every]].concat());
    let check = [
        script.to_str().expect("UTF-8"),
        "out.json",
        "out.trec",
        "--run=ties:ties.trec",
    ];
    let text = run("venv/bin/python", &check);
    assert!(text.contains(" values compared, 0 differ"), "{text}");
}

/// A run with three scores for eight hits of each query, in another order than by id, and without
/// every fifth query.
fn run_with_ties(report: &Value) -> String {
    let queries = report["per_query"].as_array().expect("queries");
    let judged = |query: &Value| -> Vec<String> {
        let judged = query["judged"].as_object().expect("judged");
        judged.keys().cloned().collect()
    };
    let all: Vec<String> = queries.iter().flat_map(judged).collect();
    let mut lines = String::new();
    for (number, query) in queries.iter().enumerate().filter(|(n, _)| n % 5 != 4) {
        let mut hits = judged(query);
        hits.extend((0..8).map(|n| all[(number * 5 + n * 11) % all.len()].clone()));
        let mut seen = std::collections::HashSet::new();
        hits.retain(|id| seen.insert(id.clone()));
        for (place, id) in hits.iter().take(8).enumerate() {
            let (id_of_query, score) = (query["id"].as_str().expect("an id"), 3 - place % 3);
            lines += &format!("{id_of_query} Q0 {id} {place} {score} ties\n");
        }
    }
    lines
}

/// Trains on what this program exports and ranks with what that gives; and LightGBM's own
/// predictions for a forest of twenty trees are those of the crate's walker.
#[test]
#[ignore = "installs LightGBM from PyPI; .ci/run runs it"]
fn predictions_equal_those_of_lightgbm() {
    let world = World::new();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let script = |name: &str| scripts.join(name).to_str().expect("UTF-8").to_owned();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(world.dir.path())
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{program} {args:?}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    run("python3", &["-m", "venv", "venv"]);
    run(
        "venv/bin/pip",
        &[
            "install",
            "--quiet",
            "-r",
            &script("requirements-ranker.txt"),
        ],
    );
    let check = [
        "--trees",
        "20",
        "--leaves",
        "12",
        "--features",
        "5",
        "--rows",
        "500",
        "--seed",
        "7",
    ];
    let output = run(
        "venv/bin/python",
        &[&[script("check_ranker.py").as_str()], check.as_slice()].concat(),
    );
    let predicted: Value = serde_json::from_str(&output).expect("JSON");
    let forest: Forest = serde_json::from_value(predicted["trees"].clone()).expect("trees");
    let rows: Vec<Vec<f32>> = serde_json::from_value(predicted["rows"].clone()).expect("rows");
    let expected: Vec<f64> =
        serde_json::from_value(predicted["predictions"].clone()).expect("predictions");
    let found = forest.predict(&rows.concat(), rows[0].len());
    assert!(
        found.len() == 500
            && found
                .iter()
                .zip(&expected)
                .all(|(a, b)| (a - b).abs() < 1e-6)
    );

    let eval = |args: &[&str]| {
        world.ok(&[
            &["eval", &fixtures(), "--embedder", "table", "--parts", ""],
            args,
        ]
        .concat())
    };
    eval(&[
        "--arms",
        "hybrid",
        "--queries",
        "80",
        "--features",
        "features.jsonl",
    ]);
    let train = [
        "features.jsonl",
        "--trees",
        "5",
        "--confidence-trees",
        "5",
        "--each-left-out",
        "left-out",
    ];
    let train = [train.as_slice(), &["--out", "ranker.json"]].concat();
    run(
        "venv/bin/python",
        &[&[script("train_ranker.py").as_str()], train.as_slice()].concat(),
    );
    eval(&[
        "--arms",
        "hybrid,formula",
        "--queries",
        "20",
        "--ranker",
        "ranker.json",
    ]);
    eval(&[
        "--arms",
        "hybrid,formula",
        "--queries",
        "20",
        "--ranker",
        "left-out",
    ]);
    let absent = [
        "eval",
        &fixtures(),
        "--embedder",
        "table",
        "--parts",
        "",
        "--ranker",
        "venv",
    ];
    world
        .run(&absent)
        .failed(2, &["venv", "it has no without-fixtures.json"]);
}

#[test]
fn embedders_are_compared_with_time_and_price() {
    let world = World::new();
    let set = small(
        &world,
        "{\"id\":\"q1\",\"query\":\"tell me the weather\",\"relevant\":[\"weather\"]}\n\
         {\"id\":\"q2\",\"query\":\"write a mail\",\"relevant\":[\"send_mail\"]}\n",
    );
    let (a, b) = (Double::embedding(16), Double::embedding(32));
    let config = format!(
        "[embedders.a]\nurl = \"{}\"\nmodel = \"a\"\nprice_per_million_tokens = 2.0\n\
         [embedders.b]\nurl = \"{}\"\nmodel = \"b\"\n",
        a.url, b.url
    );
    let config = world.file("c.toml", config);
    let config = config.to_str().expect("UTF-8");
    let args = [
        "--config",
        config,
        "--embedder",
        "table,a,table+b,none",
        "eval",
        &set,
        "--json",
        "-",
    ];
    let compared = parsed(&world.ok(&args));
    let compared = compared["sets"].as_array().expect("an array");
    let figures = |number: usize, field: &str| compared[number]["embedding"][field].clone();
    let names: Vec<Value> = (0..4).map(|number| figures(number, "embedder")).collect();
    assert_eq!(names, ["table", "table+a", "table+b", "none"]);
    assert_eq!(
        (figures(0, "difference"), figures(0, "tools_price")),
        (Value::Null, Value::Null)
    );
    assert!(
        figures(1, "difference").is_number(),
        "{}",
        compared[1]["embedding"]
    );
    assert!(
        figures(1, "tools_price")
            .as_f64()
            .is_some_and(|price| price > 0.0)
    );
    assert!(
        figures(1, "thousand_requests_price")
            .as_f64()
            .is_some_and(|price| price > 0.0)
    );
    assert!(figures(1, "request_ms").as_f64().is_some_and(|ms| ms > 0.0));
    assert_eq!(figures(1, "degraded"), 0);
    assert_eq!(
        (figures(2, "tools_price"), figures(3, "dense")),
        (Value::Null, Value::Null)
    );
    let table = world.ok(&args[..6]);
    assert!(
        table.contains("1,000 requests") && table.contains("ndcg@1 hybrid"),
        "{table}"
    );
    world.fails(
        2,
        &[
            "--config",
            config,
            "--embedder",
            "a,b",
            "eval",
            &set,
            "--html",
            "x.html",
        ],
        &["--html", "one embedder only"],
    );
    world.fails(
        3,
        &["--embedder", "minilm,table+minilm", "eval", &set],
        &["table+minilm twice", "part of every embedder"],
    );
    world.fails(
        2,
        &["--embedder", "a,b", "search", "x"],
        &["only `eval` compares"],
    );
}

#[test]
fn a_set_that_the_ranker_was_trained_on_is_marked() {
    let world = World::new();
    let queries = |of: &str| -> String {
        let query = |n| {
            let text = format!("send mail {n} to {of}");
            json!({"id": format!("q{n}"), "query": text, "relevant": ["send_mail"]}).to_string()
        };
        (0..40).map(|n| query(n) + "\n").collect()
    };
    let mut ranker = toolscout_index::Ranker::clone(&toolscout_index::Ranker::bundled().unwrap());
    let seen: Vec<String> = (0..40).map(|n| format!("Send mail {n} to ann")).collect();
    ranker.add_seen(seen.iter().map(String::as_str));
    let file = world.path("ranker.json");
    ranker.save(&file).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let measured = |of: &str, flags: &[&str]| {
        let set = small(&world, &queries(of));
        let mut arguments = vec![
            "eval",
            &set,
            "--embedder",
            "table",
            "--parts",
            "",
            "--k",
            "1",
            "--json",
            "out.json",
        ];
        arguments.extend(flags);
        let table = world.ok(&arguments);
        let report = only_set(&world, "out.json");
        (
            table.contains("the ranker was trained on small"),
            report["trained_on"].as_bool(),
        )
    };
    assert_eq!(measured("ann", &["--ranker", &file]), (true, Some(true)));
    assert_eq!(measured("bob", &["--ranker", &file]), (false, Some(false)));
    // Not by the ranker that ships, and not where none takes part.
    assert_eq!(measured("ann", &[]), (false, Some(false)));
    assert_eq!(
        measured("ann", &["--ranker", &file, "--arms", "formula"]).1,
        Some(false)
    );
    // A ranker that was trained without the set, by the name of the set.
    let folder = world.path("left-out");
    std::fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let set = small(&world, &queries("ann"));
    let missing = world.run(&["eval", &set, "--embedder", "table", "--left-out", folder]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(
        missing.stderr.contains("without-small.json")
            && missing.stderr.contains("--leave-out small"),
        "{}",
        missing.stderr
    );
    let bundled = toolscout_index::Ranker::bundled().unwrap();
    let without = world.path("left-out/without-small.json");
    toolscout_index::Ranker::clone(&bundled)
        .save(&without)
        .unwrap();
    assert_eq!(
        measured("ann", &["--left-out", folder]),
        (false, Some(false))
    );
    // A file of that name that was trained on the set after all is found out.
    ranker.save(&without).unwrap();
    assert_eq!(measured("ann", &["--left-out", folder]), (true, Some(true)));
}

/// A set that fails while it is measured: at k = 2 a catalog of one tool has no figures.
fn of_one_tool(world: &World) -> String {
    world.file("one/tools.json", r#"[{"name": "weather"}]"#);
    let query = r#"{"id":"q","query":"weather","relevant":["weather"]}"#;
    let file = world.file("one/queries.jsonl", query);
    let folder = file.parent().expect("a folder");
    folder.to_str().expect("UTF-8").to_owned()
}

#[test]
fn outputs_are_checked_and_their_folders_made_before_the_work() {
    let world = World::new();
    let set = small(&world, MAIL);
    for flag in ["--json", "--html", "--trec", "--features"] {
        let args = ["eval", &set, "--parts", "", flag];
        // A file stands where a folder is needed, and a folder where a file is.
        world.file("file", "");
        for bad in ["file/below", "small"] {
            let ended = world.run(&[&args[..], &[bad]].concat());
            assert_eq!(ended.stdout, "", "{flag} {bad}");
            ended.failed(3, &[flag, "cannot be written"]);
        }
    }
    let made = ["eval", &set, "--parts", "", "--json", "new/deep/out.json"];
    world.ok(&[
        &made[..],
        &["--html", "new/page/a.html", "--trec", "new/runs/a.trec"],
    ]
    .concat());
    for file in ["deep/out.json", "page/a.html", "runs/a.small.lexical.trec"] {
        assert!(world.path("new").join(file).is_file(), "{file}");
    }
    // An earlier report stays as it is until there is one to replace it.
    let before = std::fs::read(world.path("new/deep/out.json")).expect("written");
    world.fails(2, &[&made[..], &["--k", "9"]].concat(), &["k = 9"]);
    assert_eq!(
        std::fs::read(world.path("new/deep/out.json")).unwrap(),
        before
    );
}

#[test]
fn what_was_measured_is_kept_if_a_later_set_fails() {
    let world = World::new();
    let (first, second) = (small(&world, MAIL), of_one_tool(&world));
    for outputs in [
        &["--json", "out.json"][..],
        &["--json", "out.json", "--html", "page.html"],
        &["--json", "out.json", "--trec", "run.trec"],
    ] {
        let args = ["eval", &first, &second, "--parts", "", "--k", "1,2"];
        let ended = world.run(&[&args[..], outputs].concat());
        ended.failed(2, &["error: set one: metrics at k = 2"]);
        assert!(ended.stdout.contains("small"), "{}", ended.stdout);
        let report = parsed(&std::fs::read_to_string(world.path("out.json")).expect("written"));
        assert!(report.to_string().contains("\"small\""), "{report}");
    }
    assert!(world.path("page.html").is_file() && world.path("run.small.qrels").is_file());
}

#[test]
fn a_baseline_is_compared_before_the_work_and_exit_codes_tell_why() {
    let world = World::new();
    let set = small(&world, MAIL);
    let args = [
        "eval", &set, "--parts", "", "--k", "1,2", "--gate", "ndcg@2",
    ];
    let with = |baseline: &str, more: &[&str]| {
        world.run(&[&args[..], &["--baseline", baseline], more].concat())
    };
    world.ok(&[&args[..6], &["--json", "a.json"]].concat());
    assert_eq!(with("a.json", &[]).code, 0);
    let text = std::fs::read_to_string(world.path("a.json")).expect("written");
    for (from, to) in [
        ("\"set\": \"small\"", "\"set\": \"other\""),
        ("\"embedder\": \"none\"", "\"embedder\": \"other\""),
        ("\"fingerprint\": \"", "\"fingerprint\": \"0"),
        ("\"queries\": 1", "\"queries\": 7"),
        ("\"lexical\": {", "\"dense\": {"),
    ] {
        assert!(text.contains(from), "{from}");
        world.file("other.json", text.replace(from, to));
        let ended = with("other.json", &[]);
        // Nothing was measured, so nothing is printed.
        assert_eq!(ended.stdout, "", "{from}");
        ended.failed(3, &["cannot be compared"]);
    }
    let better = text.replace("\"ndcg@2\": 1.0", "\"ndcg@2\": 2.0");
    world.file("better.json", better);
    let dropped = with("better.json", &[]);
    assert_eq!(dropped.code, 1, "{}", dropped.stderr);
    assert!(dropped.stderr.contains("DROP"), "{}", dropped.stderr);
    with("absent.json", &[]).failed(3, &["absent.json"]);
    with("a.json", &["--max-drop=-1"]).failed(2, &["--max-drop"]);
}

/// A set with grades, groups, a chain, a query judged with 0 only, and one that nobody judged.
fn judged(world: &World) -> String {
    let tools = ["send_mail", "read_mail", "weather", "translate"];
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| json!({"name": name, "description": name.replace('_', " ")}))
        .collect();
    world.file("judged/tools.json", json!(tools).to_string());
    let queries = [
        json!({"id": "g", "query": "send mail", "relevant": {"send_mail": 2, "read_mail": 1, "weather": 0}}),
        json!({"id": "a", "query": "read mail", "relevant": ["send_mail", "read_mail"], "groups": [["send_mail", "read_mail"]]}),
        json!({"id": "o", "query": "translate weather", "relevant": ["translate", "weather"], "order": true}),
        json!({"id": "z", "query": "knit", "relevant": {"weather": 0}}),
        json!({"id": "u", "query": "nobody judged this"}),
    ];
    let lines: Vec<String> = queries.iter().map(Value::to_string).collect();
    let file = world.file("judged/queries.jsonl", lines.join("\n"));
    let folder = file.parent().expect("a folder");
    folder.to_str().expect("UTF-8").to_owned()
}

#[test]
fn judgements_of_every_kind_are_measured_and_what_is_left_out_is_said() {
    let world = World::new();
    let set = judged(&world);
    let args = [
        "eval", &set, "--parts", "", "--k", "1,2", "--json", "out.json",
    ];
    let ended = world.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for line in [
        "judged: 1 query left out: nothing is judged about them",
        "judged: 1 query judged with 0 only",
    ] {
        assert!(ended.stderr.contains(line), "{}", ended.stderr);
    }
    for column in [
        "ndcg@1",
        "ndcg@2",
        "recall@1",
        "unjudged@2",
        "tau@2",
        "prefix",
        "judgements alone say",
    ] {
        assert!(ended.stdout.contains(column), "{column}: {}", ended.stdout);
    }
    let report = only_set(&world, "out.json");
    assert_eq!(
        (&report["queries"], &report["graded"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(report["left_out"]["unjudged_queries"], 1);
    assert!(report["arms"]["lexical"]["condensed"]["ndcg@2"].is_number());
    let query = |id: &str| -> Value {
        let queries = report["per_query"].as_array().expect("queries");
        let query = queries.iter().find(|query| query["id"] == id);
        query.expect("a query").clone()
    };
    let value = |id: &str, metric: &str| query(id)["arms"]["lexical"]["values"][metric].clone();
    // One of the alternatives is enough; a chain has an order, other queries have none.
    assert_eq!(value("a", "recall@1"), 1.0);
    assert_eq!(
        (value("o", "tau@2").is_number(), value("a", "tau@2")),
        (true, Value::Null)
    );
    assert_eq!(query("g")["judged"]["send_mail"], 2.0);
    assert!(query("g")["arms"]["lexical"]["hits"][0]["score"].is_number());

    let strict = [&args[..], &["--relevant-from", "2"]].concat();
    world.ok(&strict);
    let of_two = only_set(&world, "out.json");
    let recall = |report: &Value| report["arms"]["lexical"]["recall@2"].as_f64().unwrap();
    assert!(recall(&of_two) < recall(&report), "{of_two}");
    world.fails(
        2,
        &[&args[..], &["--relevant-from", "0"]].concat(),
        &["--relevant-from"],
    );
}

#[test]
fn unknown_tools_are_an_error_or_counted() {
    let world = World::new();
    for (queries, left_out, code) in [
        (
            r#"{"id":"q","query":"send a mail","relevant":["send_mail","gone"]}"#,
            1,
            3,
        ),
        (
            r#"{"id":"q","query":"send a mail","relevant":{"send_mail":1,"gone":2}}"#,
            1,
            3,
        ),
        (
            r#"{"id":"q","query":"send a mail","relevant":{"send_mail":1,"gone":0}}"#,
            1,
            0,
        ),
    ] {
        let set = small(&world, queries);
        let args = [
            "eval", &set, "--parts", "", "--k", "1", "--json", "out.json",
        ];
        assert_eq!(world.run(&args).code, code, "{queries}");
        let ended = world.run(&[&args[..], &["--skip-unknown"]].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        says(&ended.stderr, "the set has no such tools");
        let report = only_set(&world, "out.json");
        assert_eq!(report["left_out"]["unknown_tools"], left_out);
    }
    let none_left = "{\"id\":\"a\",\"query\":\"x\",\"relevant\":[\"gone\"]}\n".to_owned() + MAIL;
    let set = small(&world, &none_left);
    let ended = world.run(&["eval", &set, "--parts", "", "--k", "1", "--skip-unknown"]);
    assert!(
        ended
            .stderr
            .contains("1 query left out: the set has none of their"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_set_is_measured_with_texts_of_its_tools() {
    let world = World::new();
    let set = small(
        &world,
        r#"{"id":"q","query":"will I get wet on the way home","relevant":["weather"]}"#,
    );
    let text = json!({"id": "weather", "texts": ["will I get wet on the way home", "rain?"]});
    world.file("small/texts.jsonl", text.to_string());
    let args = [
        "eval",
        &set,
        "--embedder",
        "table",
        "--mode",
        "dense",
        "--parts",
        "",
        "--k",
        "1",
        "--json",
        "out.json",
    ];
    assert_eq!(world.run(&args).code, 0);
    let without = only_set(&world, "out.json");
    let texts = ["--texts", "texts.jsonl"];
    let ended = world.run(&[&args[..], &texts].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    says(&ended.stderr, "small: 1 of 2 tools have texts");
    let with = only_set(&world, "out.json");
    // Reports with and without texts can be compared.
    assert_eq!(with["fingerprint"], without["fingerprint"], "{with}");
    // Texts of no tool are the set without texts, and nothing is left of an earlier run.
    let none = [&texts[..], &["--texts-share", "0"]].concat();
    assert_eq!(world.run(&[&args[..], &none].concat()).code, 0);
    let again = only_set(&world, "out.json");
    assert_eq!(again["fingerprint"], without["fingerprint"]);
    for (flags, told) in [
        (&["--texts-share", "1.5"][..], "from 0 to 1"),
        (&["--texts-share", "x"], "from 0 to 1"),
        (&["--texts", "nowhere.jsonl"], "nowhere.jsonl"),
        (&["--texts-each", "0"], "texts"),
    ] {
        let file: &[&str] = if flags[0] == "--texts" { &[] } else { &texts };
        let ended = world.run(&[&args[..], file, flags].concat());
        assert_ne!(ended.code, 0, "{flags:?}");
        assert!(ended.stderr.contains(told), "{flags:?}: {}", ended.stderr);
    }
}

#[test]
fn metrics_have_the_names_of_ir_measures_and_every_cut_off_is_printed() {
    let world = World::new();
    let args = ["eval", &fixtures(), "--queries", "40", "--parts", ""];
    let metrics =
        "nDCG@10,AP,nDCG(dcg='exp-log2')@5,P(rel=1)@5,RBP(p=0.8),ERR@10,Bpref,Rprec,RR@10";
    let table = world.ok(&[&args[..], &["--metrics", metrics, "--json", "out.json"]].concat());
    let report = only_set(&world, "out.json");
    for name in [
        "ndcg@10",
        "ap",
        "ndcg(dcg='exp-log2')@5",
        "precision(rel=1)@5",
        "rbp(p=0.8)",
        "err@10",
        "bpref",
        "rprec",
        "mrr@10",
    ] {
        assert!(table.contains(name), "{name}: {table}");
        assert!(report["arms"]["lexical"][name].is_number(), "{name}");
    }
    let several = world.ok(&[&args[..], &["--k", "10,50"]].concat());
    for name in [
        "ndcg@10",
        "ndcg@50",
        "recall@10",
        "recall@50",
        "complete@50",
        "mrr@50",
    ] {
        assert!(several.contains(name), "{name}: {several}");
    }
    world.fails(
        2,
        &[&args[..], &["--metrics", "nothing@3"]].concat(),
        &["nothing@3"],
    );
    world.fails(
        2,
        &[&args[..], &["--metrics", "ndcg@51"]].concat(),
        &["1 to 50"],
    );
}

#[test]
fn two_reports_are_compared_query_by_query() {
    let world = World::new();
    let args = [
        "eval",
        &fixtures(),
        "--queries",
        "60",
        "--parts",
        "",
        "--json",
    ];
    world.ok(&[&args[..], &["words.json"]].concat());
    world.ok(&[
        &["--embedder", "table"],
        &args[..],
        &["table.json", "--arms", "lexical,hybrid"],
    ]
    .concat());
    let table = world.ok(&[
        "eval",
        "diff",
        "words.json",
        "table.json",
        "--arms",
        "lexical:hybrid",
    ]);
    for text in ["b - a", "p Holm", "smallest", "better", "first hits of a"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    let same = world.ok(&["eval", "diff", "words.json", "words.json", "--json", "-"]);
    let same = &parsed(&same)["sets"][0];
    assert_eq!((&same["queries"], &same["moved"]), (&json!(60), &json!([])));
    for compared in same["comparisons"].as_array().expect("rows") {
        assert_eq!(
            (&compared["difference"], &compared["p"]),
            (&json!(0.0), &json!(1.0))
        );
    }
    world.ok(&[
        "eval",
        "diff",
        "words.json",
        "table.json",
        "--arms",
        "lexical:hybrid",
        "--metrics",
        "ndcg@10,mrr@10",
        "--json",
        "diff.json",
    ]);
    let found = parsed(&std::fs::read_to_string(world.path("diff.json")).expect("written"));
    let rows = found["sets"][0]["comparisons"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let figure = |name: &str| row[name].as_f64().expect("a figure");
        assert!(
            (figure("b") - figure("a") - figure("difference")).abs() < 1e-9,
            "{row}"
        );
        assert!(
            figure("p_holm") >= figure("p") && figure("smallest_difference") > 0.0,
            "{row}"
        );
    }
    let other = small(&world, MAIL);
    world.ok(&[
        "eval",
        &other,
        "--parts",
        "",
        "--k",
        "1",
        "--json",
        "other.json",
    ]);
    for (args, code, expected) in [
        (
            vec!["words.json", "other.json"],
            3,
            "compare reports of one set",
        ),
        (vec!["words.json", "absent.json"], 3, "absent.json"),
        (
            vec!["words.json", "table.json", "--arms", "dense"],
            3,
            "no arm dense",
        ),
        (
            vec!["words.json", "table.json", "--arms", ":x"],
            2,
            "ARM:ARM",
        ),
        (
            vec!["words.json", "table.json", "--metrics", "AP"],
            3,
            "it has no ap",
        ),
    ] {
        world.fails(
            code,
            &[&["eval", "diff"][..], &args[..]].concat(),
            &[expected],
        );
    }
    let baseline = format!("{}/baseline.json", fixtures());
    let without = world.run(&["eval", "diff", &baseline, "words.json"]);
    without.failed(3, &["no values by query"]);
}

#[test]
fn folders_of_beir_and_mteb_are_read_in_every_format() {
    let world = World::new();
    let corpus = "{\"_id\":\"send mail\",\"text\":\"Sends a mail\"}\n{\"_id\":\"weather\",\"text\":\"Tells the weather\"}\n";
    let queries =
        "{\"_id\":\"q 1\",\"text\":\"send a mail\"}\n{\"_id\":\"q2\",\"text\":\"train\"}\n";
    for (number, (corpus_at, queries_at, qrels_at, qrels)) in [
        (
            "corpus.jsonl",
            "queries.jsonl",
            "qrels/test.tsv",
            "query-id\tcorpus-id\tscore\nq 1\tsend mail\t1\n",
        ),
        (
            "corpus/test.jsonl",
            "queries/test.jsonl",
            "qrels/test.jsonl",
            "{\"query-id\":\"q 1\",\"corpus-id\":\"send mail\",\"score\":1}\n",
        ),
        (
            "corpus.jsonl",
            "queries.jsonl",
            "qrels.csv",
            "query,tool,grade\n\"q 1\",send mail,1\n",
        ),
        (
            "corpus.jsonl",
            "queries.jsonl",
            "qrels.txt",
            "q%201 0 send%20mail 1\n",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let at = |file: &str| format!("set{number}/{file}");
        world.file(&at(corpus_at), format!("\u{feff}{corpus}"));
        world.file(&at(queries_at), format!("\u{feff}{queries}"));
        world.file(&at(qrels_at), format!("\u{feff}{qrels}"));
        let set = format!("set{number}");
        let ended = world.run(&[
            "eval", &set, "--parts", "", "--k", "1", "--json", "out.json", "--trec", "run.trec",
        ]);
        assert_eq!(ended.code, 0, "{qrels_at}: {}", ended.stderr);
        assert_eq!(
            only_set(&world, "out.json")["arms"]["lexical"]["ndcg@1"],
            1.0,
            "{qrels_at}"
        );
        // What was written is read back, with its judgements.
        let run = format!("run.set{number}.lexical.trec");
        let again = world.run(&[
            "eval", &set, "--parts", "", "--k", "1", "--run", &run, "--json", "out.json",
        ]);
        assert!(again.stderr.contains("a query"), "{}", again.stderr);
        let arms = only_set(&world, "out.json")["arms"].clone();
        let name = run.trim_end_matches(".trec");
        assert_eq!(arms[name]["ndcg@1"], 1.0, "{arms}");
        assert_eq!(arms[name]["run_file"]["missing_queries"], 0);
    }
    world.file("parquet/corpus/a.parquet", "PAR1");
    world.fails(3, &["eval", "parquet"], &["a.parquet is not JSONL"]);
}

#[test]
fn a_catalog_is_measured_as_it_is_in_use() {
    let world = World::with_tools(&[
        json!({"name": "send_mail", "description": "Sends a mail", "server": "post"}),
        json!({"name": "weather", "description": "Tells the weather", "server": "sky"}),
    ]);
    let queries = "{\"id\":\"a\",\"query\":\"qwxzt\",\"relevant\":[\"post/send_mail\"]}\n";
    world.file("queries.jsonl", queries);
    let args = [
        "--catalog",
        "default",
        "eval",
        "queries.jsonl",
        "--parts",
        "",
        "--k",
        "1",
        "--json",
        "out.json",
    ];
    let figure = |flags: &[&str]| {
        world.ok(&[&args[..], flags].concat());
        only_set(&world, "out.json")["arms"]["in use"]["ndcg@1"].as_f64()
    };
    assert_eq!(figure(&[]), Some(0.0));
    world.ok(&["words", "add", "synonym", "qwxzt", "mail"]);
    assert_eq!(figure(&[]), Some(1.0), "its words count");
    assert_eq!(figure(&["--server", "sky"]), Some(0.0), "filters count");
    for (flags, code, expected) in [
        (
            vec!["--catalog", "absent", "eval", "queries.jsonl"],
            3,
            "absent",
        ),
        (
            vec!["--catalog", "default", "eval"],
            2,
            "one file of judged queries",
        ),
        (
            vec!["--catalog", "default", "eval", "queries.jsonl", "--ablate"],
            2,
            "--ablate",
        ),
        (vec!["eval"], 2, "name the folder of a set"),
    ] {
        world.fails(code, &flags, &[expected]);
    }
}

#[test]
fn settings_are_compared_in_one_report() {
    let world = World::new();
    let args = ["eval", &fixtures(), "--queries", "40", "--parts", ""];
    let settings = [
        "--compare",
        "embedder=none",
        "--compare",
        "embedder=table",
        "--compare",
        "embedder=table,ranker=off,name=formula",
    ];
    let outputs = [
        "--json",
        "out.json",
        "--html",
        "page.html",
        "--trec",
        "run.trec",
    ];
    let table = world.ok(&[&args[..], &settings, &outputs].concat());
    assert!(
        table.contains("p Holm") && table.contains("embedder=none"),
        "{table}"
    );
    let report = only_set(&world, "out.json");
    let arms: Vec<&String> = report["arms"].as_object().expect("arms").keys().collect();
    assert_eq!(arms.len(), 3, "{arms:?}");
    assert_eq!(report["significance"].as_array().map(Vec::len), Some(3));
    assert!(report["per_query"][0]["arms"]["formula"]["values"]["ndcg@10"].is_number());
    assert!(world.path("page.html").is_file());
    assert!(world.path("run.fixtures.embedder=none.trec").is_file());
    for (setting, expected) in [
        ("table", "KEY=VALUE"),
        ("embeder=table", "embeder"),
        ("mode=sparse", "sparse"),
    ] {
        world.fails(
            2,
            &[&args[..], &["--compare", setting]].concat(),
            &[expected],
        );
    }
    let twice = ["--compare", "embedder=none", "--compare", "embedder=none"];
    world.fails(
        2,
        &[&args[..], &twice].concat(),
        &["two settings have this name"],
    );
}

#[test]
fn json_output_is_json() {
    let world = World::new();
    let set = small(&world, MAIL);
    let args = ["eval", &set, "--parts", "", "--k", "1"];
    for flags in [&["--output", "json"][..], &["--json", "-"]] {
        let json = parsed(&world.ok(&[&args[..], flags].concat()));
        assert_eq!(json["sets"][0]["set"], "small", "{flags:?}");
    }
    let json = parsed(&world.ok(&[&args[..], &[set.as_str(), "--output", "json"]].concat()));
    assert_eq!(json["sets"].as_array().map(Vec::len), Some(2));
}

#[test]
fn an_endpoint_that_goes_away_ends_the_run_with_what_was_measured() {
    let world = World::new();
    let query = |n: usize| {
        json!({"id": format!("q{n}"), "query": format!("send mail {n}"), "relevant": ["send_mail"]})
            .to_string()
            + "\n"
    };
    let set = small(&world, &(0..20).map(query).collect::<String>());
    // It embeds the tools and a request, and then answers no more.
    let double = Double::start(|number, request| {
        if number < 4 {
            Reply::vectors(request, 16)
        } else {
            Reply::status(400, "gone")
        }
    });
    let config = format!("[embedders.a]\nurl = \"{}\"\nmodel = \"a\"\n", double.url);
    let config = world.file("c.toml", config);
    let config = config.to_str().expect("UTF-8");
    let args = [
        "--config",
        config,
        "--embedder",
        "a",
        "eval",
        &set,
        "--k",
        "1",
        "--json",
        "out.json",
    ];
    let started = std::time::Instant::now();
    let ended = world.run(&args);
    assert!(started.elapsed().as_secs() < 60);
    ended.failed(3, &["in a row failed, so the measurement ends"]);
    assert!(ended.stdout.contains("lexical"), "{}", ended.stdout);
    let report = only_set(&world, "out.json");
    assert_eq!(report["arms"]["lexical"]["ndcg@1"], 1.0);
    assert!(report["arms"].get("hybrid").is_none());
    assert!(
        report["unfinished"]
            .as_str()
            .is_some_and(|text| text.contains("arm dense")),
        "{report}"
    );
}
