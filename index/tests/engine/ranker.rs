//! The ranker: its trees against LightGBM's own predictions, its files, and its effect on answers.

use std::path::Path;

use serde_json::{Value, json};
use toolscout_index::embed::StaticTable;
use toolscout_index::ranker::refit::Judged;
use toolscout_index::ranker::{FILE_NAME, Feature, Forest, Signal};
use toolscout_index::{Catalog, DataDir, Error, Options, Query, Ranker, Tool};

/// A forest of 4 trees on 3 features with LightGBM's own predictions: `scripts/check_ranker.py`
/// wrote it.
const LIGHTGBM: &str = include_str!("lightgbm.json");

#[test]
fn trees_predict_what_lightgbm_predicts() {
    let written: Value = match std::env::var_os("TOOLSCOUT_LIGHTGBM") {
        Some(path) => serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        None => serde_json::from_str(LIGHTGBM).unwrap(),
    };
    let forest: Forest = serde_json::from_value(written["trees"].clone()).unwrap();
    let rows: Vec<Vec<f32>> = serde_json::from_value(written["rows"].clone()).unwrap();
    let expected: Vec<f64> = serde_json::from_value(written["predictions"].clone()).unwrap();
    assert!(expected.len() >= 40 && forest.check(rows[0].len()).is_ok());
    for (found, expected) in forest
        .predict(&rows.concat(), rows[0].len())
        .iter()
        .zip(&expected)
    {
        assert!(
            (found - expected).abs() < 1e-6,
            "{found}, LightGBM says {expected}"
        );
    }
}

#[test]
fn the_bundled_ranker_has_a_model_with_and_without_the_transformer() {
    let ranker = Ranker::bundled().expect("the file that is built in can be read");
    for legs in [
        vec!["static-table/x"],
        vec!["static-table/x", "tool-encoder/y"],
    ] {
        let model = ranker
            .model(legs.iter().copied())
            .unwrap_or_else(|| panic!("no model for {legs:?}"));
        assert!(
            model.mix() > 0.0 && model.trees().trees().len() >= 50,
            "{legs:?}"
        );
    }
    assert!(
        ranker.model(["hashing-64"].into_iter()).is_none(),
        "nothing was learned of this embedder"
    );
}

/// Random numbers from 0 to 1, the same in every run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }
}

#[test]
fn a_better_match_never_lowers_the_rankers_score() {
    let ranker = Ranker::bundled().unwrap();
    let model = ranker.model(["static-table/x"].into_iter()).unwrap();
    let (width, mut chance) = (Feature::ALL.len(), Chance(7));
    for _ in 0..300 {
        let row: Vec<f32> = (0..width).map(|_| chance.next()).collect();
        let before = model.trees().predict(&row, width)[0];
        for feature in Feature::ALL.iter().filter(|feature| feature.is_match()) {
            let mut better = row.clone();
            better[*feature as usize] += chance.next();
            let after = model.trees().predict(&better, width)[0];
            assert!(
                after >= before,
                "{} raised from {row:?}: {before} to {after}",
                feature.name()
            );
        }
    }
}

#[test]
fn more_of_a_signal_never_lowers_confidence() {
    let ranker = Ranker::bundled().unwrap();
    let model = ranker.model(["static-table/x"].into_iter()).unwrap();
    let mut chance = Chance(11);
    for _ in 0..300 {
        let signals: Vec<f32> = Signal::ALL.iter().map(|_| chance.next()).collect();
        let before = model.confidence(&signals);
        assert!((0.0..=1.0).contains(&before));
        for signal in Signal::ALL.iter().filter(|signal| signal.is_match()) {
            let mut better = signals.clone();
            better[*signal as usize] += chance.next();
            assert!(model.confidence(&better) >= before, "{}", signal.name());
        }
    }
}

fn tools() -> Vec<Tool> {
    let tool = |(name, description): &(&str, &str)| {
        serde_json::from_value(json!({"server": "s", "name": name, "description": description}))
            .unwrap()
    };
    [
        (
            "get_forecast",
            "Weather conditions for the coming days in a city.",
        ),
        ("get_history", "Weather conditions of past days in a city."),
        (
            "convert_currency",
            "Converts an amount between two currencies.",
        ),
        (
            "list_currencies",
            "Lists the currencies that can be converted.",
        ),
        ("send_email", "Sends an email to a person."),
        (
            "search_email",
            "Searches a mailbox for an email from a person.",
        ),
        ("create_event", "Creates an event in a calendar."),
        ("play_music", "Plays a song."),
    ]
    .iter()
    .map(tool)
    .collect()
}

fn options() -> Options {
    Options::new(vec![StaticTable::bundled().unwrap()])
}

fn filled(data: &DataDir) -> Catalog {
    let catalog = data.open_or_create("c", options()).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&tools()).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

fn ids(catalog: &Catalog, query: &Query) -> Vec<String> {
    catalog
        .searcher()
        .search(query)
        .unwrap()
        .hits
        .iter()
        .map(|hit| hit.id.to_string())
        .collect()
}

#[test]
fn an_answer_has_a_confidence_and_an_explanation_says_what_moved_a_hit() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let results = catalog
        .searcher()
        .search(&Query::new("will it rain in Oslo tomorrow").explain())
        .unwrap();
    assert!(
        results
            .confidence
            .is_some_and(|confidence| (0.0..=1.0).contains(&confidence))
    );
    let explain = results.hits[0].explain.as_ref().unwrap();
    let reranked = explain.ranker.as_ref().unwrap();
    assert_eq!(reranked.after, 1);
    assert!(
        !reranked.reasons.is_empty()
            && reranked
                .reasons
                .iter()
                .all(|reason| reason.moved.is_finite())
    );
    let formula = catalog
        .searcher()
        .search(&Query::new("will it rain").explain().without_ranker())
        .unwrap();
    assert!(formula.hits[0].explain.as_ref().unwrap().ranker.is_none());
    assert!(
        results
            .hits
            .iter()
            .all(|hit| (0.0..=1.0).contains(&hit.score))
    );
}

#[test]
fn a_tool_asked_for_by_name_has_confidence_1_and_by_default_no_answer_is_withheld() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let named = catalog
        .searcher()
        .search(&Query::new("send_email").min_confidence(1.0))
        .unwrap();
    assert_eq!(
        (named.confidence, named.hits[0].id.as_str()),
        (Some(1.0), "s/send_email")
    );
    let request = "weather of a past day";
    assert!(!ids(&catalog, &Query::new(request)).is_empty());
    let abstained = catalog
        .searcher()
        .search(&Query::new(request).min_confidence(1.0))
        .unwrap();
    let no_match = abstained.no_match.unwrap();
    assert!(
        no_match.reason.to_string().contains("below 1.00") && !no_match.nearest.is_empty(),
        "{no_match:?}"
    );
    let error = catalog
        .searcher()
        .search(&Query::new(request).min_confidence(1.5))
        .unwrap_err();
    assert!(error.to_string().contains("1.5"), "{error}");
}

#[test]
fn unusual_requests_are_ranked_too() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let clauses = "send the first email; ".repeat(200);
    for text in [
        "weather",
        "the of and",
        "?!…",
        "🙂🙃",
        "send 查询 почта",
        &"email ".repeat(20_000),
        &clauses,
    ] {
        let results = catalog
            .searcher()
            .search(&Query::new(text).explain())
            .unwrap();
        assert!(
            results
                .hits
                .iter()
                .all(|hit| (0.0..=1.0).contains(&hit.score)),
            "{text}"
        );
    }
}

fn reason(bytes: &[u8]) -> String {
    match Ranker::read(bytes, Path::new("r")) {
        Err(Error::Ranker { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => "read".to_owned(),
    }
}

#[test]
fn other_versions_damage_and_other_features_are_errors_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.json");
    Ranker::bundled().unwrap().save(&path).unwrap();
    let good = std::fs::read(&path).unwrap();
    assert_eq!(reason(&good), "read");
    assert_eq!(*Ranker::bundled().unwrap(), Ranker::load(&path).unwrap());
    assert!(reason(b"{}").contains("not a ranker"));
    let text = String::from_utf8(good.clone()).unwrap();
    assert!(reason(text.replacen("ranker 2", "ranker 9", 1).as_bytes()).contains("version 9"));
    for place in (90..good.len()).step_by(good.len() / 50) {
        let mut damaged = good.clone();
        damaged[place] ^= 1;
        assert!(reason(&damaged).contains("damaged"), "byte {place}");
    }
    assert!(reason(&good[..good.len() - 1]).contains("damaged"));
}

#[test]
fn a_catalogs_own_ranker_is_used_and_an_unreadable_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = filled(&data);
    let query = Query::new("will it rain in Oslo tomorrow").k(8);
    let before = ids(&catalog, &query);
    let formula = ids(&catalog, &query.clone().without_ranker());
    let mut writer = catalog.writer().unwrap();
    let mut silent = Ranker::clone(&Ranker::bundled().unwrap());
    let model = silent.model_mut(["static-table"].into_iter()).unwrap();
    *model = model.adapted(model.trees().clone(), 0.0);
    writer.set_ranker(Some(&silent)).unwrap();
    writer.commit().unwrap();
    assert_eq!(ids(&catalog, &query), formula);
    std::fs::write(catalog.path().join(FILE_NAME), "toolscout-ranker 9 x\n{}").unwrap();
    let reopened = data.open("c", options()).unwrap();
    let results = reopened.searcher().search(&query).unwrap();
    let degraded = results
        .degraded
        .expect("an unusable ranker is reported")
        .cause
        .to_string();
    assert!(
        degraded.contains("version 9")
            && degraded.contains(FILE_NAME)
            && !degraded.contains(&dir.path().display().to_string()),
        "{degraded}"
    );
    assert_eq!(
        results
            .hits
            .iter()
            .map(|hit| hit.id.to_string())
            .collect::<Vec<_>>(),
        before
    );
    writer.set_ranker(None).unwrap();
    writer.commit().unwrap();
    assert_eq!(ids(&catalog, &query), before);
}

#[test]
fn a_ranker_that_is_not_committed_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = filled(&data);
    let file = catalog.path().join(FILE_NAME);
    let bundled = Ranker::bundled().unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.set_ranker(Some(&bundled)).unwrap();
    drop(writer);
    assert!(!file.exists(), "a dropped writer left its ranker");

    let mut writer = catalog.writer().unwrap();
    writer.set_ranker(Some(&bundled)).unwrap();
    writer.commit().unwrap();
    writer.set_ranker(None).unwrap();
    drop(writer);
    assert!(file.exists(), "a dropped writer deleted the ranker");
    assert!(
        data.open("c", options())
            .unwrap()
            .searcher()
            .has_own_ranker()
    );
}

#[test]
fn a_ranker_sample_has_a_row_for_every_candidate() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let measured = catalog
        .searcher()
        .ranker_sample(&Query::new("send an email"))
        .unwrap()
        .unwrap();
    assert_eq!(measured.legs, ["static-table"]);
    assert_eq!(
        measured.rows.len(),
        measured.tools.len() * Feature::ALL.len()
    );
    assert_eq!(measured.signals.len(), Signal::ALL.len());
    assert!(
        measured
            .rows
            .iter()
            .chain(&measured.signals)
            .all(|value| value.is_finite())
    );
    let send = measured
        .tools
        .iter()
        .position(|id| id.as_str() == "s/send_email")
        .unwrap();
    assert_eq!(
        measured.rows[send * Feature::ALL.len() + Feature::NameRecall as usize],
        1.0
    );
}

#[test]
fn refitting_raises_the_scores_of_right_tools() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let ranker = Ranker::bundled().unwrap();
    let model = ranker.model(["static-table"].into_iter()).unwrap();
    let measured = catalog
        .searcher()
        .ranker_sample(&Query::new("weather in a city"))
        .unwrap()
        .unwrap();
    let wanted = measured
        .tools
        .iter()
        .position(|id| id.as_str() == "s/get_history")
        .unwrap();
    let lesson = Judged {
        relevant: (0..measured.tools.len())
            .map(|place| place == wanted)
            .collect(),
        base: vec![0.0; measured.tools.len()],
        rows: measured.rows.clone(),
    };
    let refitted = toolscout_index::ranker::refit::refit(model.trees(), &vec![lesson; 30], 0.2);
    let lead = |forest: &Forest| {
        let given = forest.predict(&measured.rows, Feature::ALL.len());
        let other = measured
            .tools
            .iter()
            .position(|id| id.as_str() == "s/get_forecast")
            .unwrap();
        given[wanted] - given[other]
    };
    assert!(lead(&refitted) > lead(model.trees()));
}

#[test]
fn a_budget_used_up_before_ranking_skips_it_and_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()));
    let ask = |query: Query| catalog.searcher().search(&query).unwrap();
    // A few tools are expected to take nanoseconds; no search takes less than a microsecond.
    let short = ask(Query::new("send a message").budget_ms(0.001));
    assert!(
        short.embedders.len() == 1 && !short.hits.is_empty(),
        "{short:?}"
    );
    assert!(
        short
            .degraded
            .unwrap()
            .cause
            .to_string()
            .contains("used up before ranking")
    );
    assert_eq!(short.confidence, None);

    let long = ask(Query::new("send a message").budget_ms(1e9));
    assert!(long.degraded.is_none() && long.confidence.is_some());
    assert_eq!(
        long.confidence,
        ask(Query::new("send a message")).confidence
    );
}
