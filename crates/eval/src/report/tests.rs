use super::testing::report;
use super::*;
use crate::metrics::Measure;

#[test]
fn json_has_the_published_shape() {
    let text = to_json(&[report("metatool", "lexical", 0.5)], None).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["sets"].as_array().map(Vec::len), Some(1));
    let json = &json["sets"][0];
    for key in [
        "set", "tools", "queries", "seed", "embedder", "arms", "no_match", "cost", "tokens",
    ] {
        assert!(json.get(key).is_some(), "{key} is missing in {text}");
    }
    assert_eq!(json["arms"]["lexical"]["ndcg@10"], 0.5);
    assert_eq!(
        json["arms"]["lexical"]["ci95"]["ndcg@10"],
        serde_json::json!([0.5, 0.5])
    );
    assert!(json["arms"]["lexical"].get("p95_ms").is_some());
}

#[test]
fn one_set_and_several_have_the_same_shape_and_earlier_ones_are_read() {
    let (a, b) = (report("a", "lexical", 0.5), report("b", "lexical", 0.7));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let one = serde_json::to_string(&a).unwrap();
    for (text, sets) in [
        (to_json(std::slice::from_ref(&a), None).unwrap(), 1),
        (to_json(&[a.clone(), b], None).unwrap(), 2),
        (to_json(&[a], Some("set b: it failed")).unwrap(), 1),
        (format!("[{one},{one}]"), 2),
        (format!("\u{feff}{one}"), 1),
    ] {
        std::fs::write(&path, &text).unwrap();
        let reports = read_reports(&path).unwrap();
        assert_eq!(
            (reports.len(), reports[0].set.as_str()),
            (sets, "a"),
            "{text}"
        );
        assert_eq!(text.contains("it failed"), text.contains("unfinished"));
    }
}

#[test]
fn sets_have_equal_weights_in_the_average() {
    let sets = [report("a", "lexical", 0.5), report("b", "lexical", 0.7)];
    let average = macro_average(&sets);
    assert_eq!(average.len(), 1);
    assert!((average[0].1.value(Metric::new(Measure::Ndcg, 10)).unwrap() - 0.6).abs() < 1e-12);
    assert!(macro_average(&[report("a", "lexical", 0.5), report("b", "dense", 0.7)]).is_empty());
}

#[test]
fn every_pair_of_arms_is_compared() {
    let metric = Metric::new(Measure::Ndcg, 10);
    let scores = |value: f64| Scores {
        metrics: vec![metric],
        columns: vec![vec![value; 20]],
    };
    let (low, high) = (scores(0.2), scores(0.6));
    let found = comparisons(&[("lexical", &low), ("dense", &high), ("hybrid", &high)], 1);
    let pairs: Vec<(&str, &str)> = found.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
    assert_eq!(
        pairs,
        [
            ("lexical", "dense"),
            ("lexical", "hybrid"),
            ("dense", "hybrid")
        ]
    );
    assert!((found[0].difference + 0.4).abs() < 1e-12 && found[0].p < 0.001);
    assert_eq!((found[2].difference, found[2].p), (0.0, 1.0));
}

#[test]
fn a_report_of_a_later_shape_is_refused() {
    let one = serde_json::to_value(report("a", "lexical", 0.5)).unwrap();
    for (format, is_read) in [
        (serde_json::json!(null), true),
        (serde_json::json!(0), true),
        (serde_json::json!(1), true),
        (serde_json::json!(2), false),
        (serde_json::json!(99), false),
    ] {
        let file = serde_json::json!({ "format": format, "sets": [one.clone()] });
        let read = reports_of::<Report>(file);
        assert_eq!(read.is_ok(), is_read, "{format}");
        if let Err(reason) = read {
            assert!(
                reason.to_string().contains(&format!("format {format}")),
                "{reason}"
            );
        }
    }
}
