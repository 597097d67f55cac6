//! A whole evaluation of the project's own fixtures, with an embedder that needs no model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;
use toolscout::eval::tune::{Tunable, tune};
use toolscout::eval::{
    Arm, EvalError, EvalSet, Evaluation, Judging, Part, Plan, Progress, Workspace, evaluate,
    run_file, trec,
};
use toolscout_index::embed::Hashing;
use toolscout_index::{Embedder, EmbedderProfile, Fusion, Result};

/// Counts the tool texts it embeds.
struct Counting {
    inner: Hashing,
    texts: AtomicUsize,
}

impl Embedder for Counting {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }
    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        self.inner.embed_tools(texts)
    }
}

struct Silent;

impl Progress for Silent {
    fn stage(&self, _: &str, _: usize) {}
    fn done(&self, _: usize) {}
    fn step(&self) {}
}

struct Bench {
    folder: TempDir,
    embedder: Arc<Counting>,
}

impl Bench {
    fn new() -> Self {
        let embedder = Arc::new(Counting {
            inner: Hashing::new(64),
            texts: AtomicUsize::new(0),
        });
        Bench {
            folder: tempfile::tempdir().unwrap(),
            embedder,
        }
    }

    fn workspace(&self) -> Workspace {
        Workspace::new(self.folder.path(), vec![self.embedder.clone()])
    }

    fn run(&self, plan: &Plan) -> Evaluation {
        evaluate(fixtures().sampled(60, 7), plan, &self.workspace(), &Silent).unwrap()
    }

    fn embedded(&self) -> usize {
        self.embedder.texts.load(Ordering::Relaxed)
    }
}

fn fixtures_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn fixtures() -> EvalSet {
    EvalSet::load(&fixtures_path()).unwrap()
}

fn plan(parts: &[Part]) -> Plan {
    let arms = ["lexical", "dense", "hybrid"].map(String::from);
    Plan {
        arms: Arm::named(&arms, &[Fusion::Convex, Fusion::Rrf], None).unwrap(),
        depths: vec![1, 3, 5, 10],
        metrics: Vec::new(),
        shows_all_depths: false,
        seed: 7,
        parts: parts.to_vec(),
        judging: Judging::AlsoTolerant,
        scale: Vec::new(),
        runs: Vec::new(),
        run_order: run_file::RunOrder::Score,
    }
}

fn json(evaluation: &Evaluation) -> Value {
    serde_json::to_value(&evaluation.report).unwrap()
}

#[test]
fn every_part_is_measured_within_its_range() {
    let bench = Bench::new();
    let all = Plan {
        scale: vec![50, 600],
        ..plan(&[Part::Cost, Part::NoMatch, Part::Tokens])
    };
    let json = json(&bench.run(&all));
    let arms = json["arms"].as_object().unwrap();
    assert_eq!(
        arms.keys().collect::<Vec<_>>(),
        ["lexical", "dense", "hybrid", "hybrid-rrf"]
    );
    for (arm, figures) in arms {
        for metric in [
            "ndcg@5",
            "ndcg@10",
            "recall@1",
            "recall@5",
            "recall@10",
            "mrr@10",
            "success@5",
            "complete@5",
            "precision@1",
        ] {
            let (value, tolerant) = (
                figures[metric].as_f64().unwrap(),
                figures["duplicate_tolerant"][metric].as_f64(),
            );
            assert!((0.0..=1.0).contains(&value), "{arm} {metric}: {value}");
            assert!(
                tolerant.unwrap() >= value,
                "{arm} {metric}: {tolerant:?} tolerant, {value} strict"
            );
            let interval = figures["ci95"][metric].as_array().unwrap();
            assert!(
                interval[0].as_f64().unwrap() <= value && value <= interval[1].as_f64().unwrap(),
                "{arm} {metric}"
            );
        }
        assert!(figures["p50_ms"].as_f64().unwrap() <= figures["p95_ms"].as_f64().unwrap());
    }
    assert!(
        arms["lexical"]["ndcg@10"].as_f64().unwrap() > 0.3,
        "words find most of the fixtures' tools"
    );
    assert_eq!(json["significance"].as_array().unwrap().len(), 6);
    assert!(json["no_match"]["unanswerable"].as_u64().unwrap() > 0);
    assert!(
        json["no_match"]["signals"]["score"]["auc"]
            .as_f64()
            .is_some()
    );
    assert!(
        json["cost"]["index_s"].as_f64().unwrap() > 0.0
            && json["cost"]["embed_s"].as_f64().unwrap() > 0.0
    );
    assert!(
        json["tokens"]["catalog"].as_f64().unwrap() > json["tokens"]["answer"].as_f64().unwrap()
    );
    let scaled = json["scale"].as_array().unwrap();
    assert_eq!(
        scaled
            .iter()
            .map(|point| point["tools"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [50, 600]
    );
}

#[test]
fn a_second_run_embeds_nothing_and_gives_equal_results() {
    let bench = Bench::new();
    let quality = plan(&[Part::NoMatch, Part::Tokens]);
    let first = bench.run(&quality);
    let embedded = bench.embedded();
    assert!(embedded >= first.set.tools.len());
    let second = bench.run(&quality);
    assert_eq!(bench.embedded(), embedded);
    assert_eq!(json(&first), json(&second));
    assert_eq!(first.report.worst, second.report.worst);
}

#[test]
fn held_out_tools_leave_the_catalog_unchanged() {
    let bench = Bench::new();
    let evaluation = bench.run(&plan(&[Part::NoMatch]));
    let catalog = bench.workspace().open_set(&evaluation.set).unwrap();
    assert_eq!(catalog.searcher().len(), evaluation.set.tools.len());
    let siblings = std::fs::read_dir(catalog.path().parent().unwrap())
        .unwrap()
        .count();
    assert_eq!(siblings, 1, "only the set's own catalog is kept");
}

#[test]
fn a_run_file_has_the_scores_of_its_run() {
    let bench = Bench::new();
    let quality = plan(&[]);
    let evaluation = bench.run(&quality);
    let files = trec::write_all(
        &bench.folder.path().join("out.trec"),
        &evaluation.set,
        &evaluation.runs,
    )
    .unwrap();
    let hybrid = files
        .iter()
        .find(|file| file.to_string_lossy().ends_with(".hybrid.trec"))
        .unwrap();
    let again = json(&bench.run(&Plan {
        runs: vec![hybrid.clone()],
        ..quality
    }));
    let arms = again["arms"].as_object().unwrap();
    assert_eq!(
        arms["out.fixtures.hybrid"]["ndcg@10"],
        arms["hybrid"]["ndcg@10"]
    );
    assert_eq!(arms["out.fixtures.hybrid"]["ci95"], arms["hybrid"]["ci95"]);
}

#[test]
fn a_plan_that_does_not_fit_is_refused() {
    let bench = Bench::new();
    let deep = Plan {
        depths: vec![5, 10_000],
        ..plan(&[])
    };
    let error = evaluate(fixtures(), &deep, &bench.workspace(), &Silent).unwrap_err();
    assert!(
        matches!(error, EvalError::DepthExceedsCatalog { k: 10_000, .. }),
        "{error}"
    );
    let without = Workspace::new(bench.folder.path(), Vec::new());
    let error = evaluate(fixtures(), &plan(&[]), &without, &Silent).unwrap_err();
    assert!(
        matches!(&error, EvalError::NoEmbedder { arm } if arm == "dense"),
        "{error}"
    );
    assert_eq!(bench.embedded(), 0, "refused before anything was computed");
}

#[test]
fn tuning_never_lowers_the_train_half_and_gives_valid_settings() {
    let bench = Bench::new();
    let set = fixtures().sampled(150, 3);
    let workspace = bench.workspace();
    workspace.prepare(&set, &mut |_| ()).unwrap();
    let tunable = Tunable::new(workspace.copy(&set, "tuned").unwrap());
    let tuned = tune(&set, &tunable, 3, &|| ()).unwrap();
    assert!(tuned.train.after >= tuned.train.before, "{tuned:?}");
    assert!(tuned.train.queries + tuned.test.queries + tuned.left_out == 150);
    tunable.settings(&tuned).validate().unwrap();
}
