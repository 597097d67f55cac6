use super::*;

#[track_caller]
fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-12, "{left} is not {right}");
}

/// A metric of hits that are relevant or not judged, with so many relevant tools.
fn value(metric: &str, gains: &[bool], relevant: usize) -> f64 {
    let mut next = 0..;
    let hits: JudgedHits = gains
        .iter()
        .map(|gain| gain.then(|| next.next().unwrap()))
        .collect();
    of(metric, &hits, &Judgements::binary(relevant))
}

fn of(metric: &str, hits: &[Option<usize>], judgements: &Judgements) -> f64 {
    metric.parse::<Metric>().unwrap().of(hits, judgements)
}

/// Hits at ranks 2 and 4 of five, three relevant tools in all.
const SECOND_AND_FOURTH: [bool; 5] = [false, true, false, true, false];

#[test]
fn ndcg_discounts_by_the_logarithm_of_the_rank() {
    // DCG@5 = 1/log2(3) + 1/log2(5) = 0.6309297536 + 0.4306765581; ideal of 3 = 1 +
    // 0.6309297536 + 0.5.
    close(
        value("ndcg@5", &SECOND_AND_FOURTH, 3),
        1.061_606_311_644_851 / 2.130_929_753_571_457_4,
    );
    // Only rank 2 is within the first 3.
    close(
        value("ndcg@3", &SECOND_AND_FOURTH, 3),
        0.630_929_753_571_457_4 / 2.130_929_753_571_457_4,
    );
    close(value("ndcg@1", &SECOND_AND_FOURTH, 3), 0.0);
}

#[test]
fn the_ideal_of_ndcg_is_cut_at_the_depth() {
    close(value("ndcg@1", &[true, false], 7), 1.0);
    close(value("ndcg@3", &[true, true, true, false], 7), 1.0);
    close(value("ndcg@10", &[true], 1), 1.0);
    close(value("ndcg@10", &[false, true], 1), 0.630_929_753_571_457_4);
}

#[test]
fn binary_metrics_follow_their_definitions() {
    for (metric, expected) in [
        ("recall@1", 0.0),
        ("recall@3", 1.0 / 3.0),
        ("recall@10", 2.0 / 3.0),
        ("mrr@10", 0.5),
        ("mrr@1", 0.0),
        ("precision@1", 0.0),
        ("precision@4", 0.5),
        ("success@1", 0.0),
        ("success@3", 1.0),
        ("complete@5", 0.0),
        // Half of the first two and half of the first four, of three.
        ("ap", (0.5 + 0.5) / 3.0),
        ("ap@3", 0.5 / 3.0),
        ("rprec", 1.0 / 3.0),
        ("rbp(p=0.5)", 0.25 + 0.0625),
        ("rbp(p=0.5)@3", 0.25),
        ("judged@5", 0.4),
        ("unjudged@5", 0.6),
    ] {
        close(value(metric, &SECOND_AND_FOURTH, 3), expected);
    }
    close(value("mrr@10", &[false; 10], 1), 0.0);
    close(value("precision@1", &[true], 3), 1.0);
    close(value("complete@5", &SECOND_AND_FOURTH, 2), 1.0);
    close(value("complete@3", &SECOND_AND_FOURTH, 2), 0.0);
    close(value("complete@1", &[true, true], 2), 0.0);
}

/// Tools of the grades 3, 1 and 2, and two that are judged as not relevant.
fn graded() -> Judgements {
    Judgements {
        grades: vec![3.0, 1.0, 2.0, 0.0, -1.0],
        ..Judgements::default()
    }
}

#[test]
fn grades_count_in_gains_and_decide_what_is_relevant() {
    // Grade 1, not judged, grade 0, grade 3.
    let hits = [Some(1), None, Some(3), Some(0)];
    let best = 3.0 + 2.0 / 3_f64.log2() + 0.5;
    close(
        of("ndcg@4", &hits, &graded()),
        (1.0 + 3.0 / 5_f64.log2()) / best,
    );
    let best = 7.0 + 3.0 / 3_f64.log2() + 0.5;
    close(
        of("nDCG(dcg='exp-log2')@4", &hits, &graded()),
        (1.0 + 7.0 / 5_f64.log2()) / best,
    );
    close(of("recall@4", &hits, &graded()), 2.0 / 3.0);
    close(of("R(rel=2)@4", &hits, &graded()), 0.5);
    close(of("RR(rel=2)@4", &hits, &graded()), 0.25);
    // Without the hit that is not judged, grade 3 is at rank 3.
    let expected = 3.0 / 4_f64.log2();
    let condensed = "ndcg(judged_only=True)@4";
    close(
        of(condensed, &hits, &graded()),
        (1.0 + expected) / (3.0 + 2.0 / 3_f64.log2() + 0.5),
    );
    // Of three relevant tools one comes before and one after the only irrelevant hit.
    close(of("bpref", &hits, &graded()), (1.0 + (1.0 - 0.5)) / 3.0);
    // (2^1 - 1) / 16 at rank 1, (2^3 - 1) / 16 at rank 4.
    close(
        of("err@4", &hits, &graded()),
        1.0 / 16.0 + 15.0 / 16.0 * 7.0 / 16.0 / 4.0,
    );
    let from_two = Judgements {
        relevant_from: 2.0,
        ..graded()
    };
    close(of("recall@4", &hits, &from_two), 0.5);
    close(of("R(rel=3)@4", &hits, &from_two), 1.0);
    close(of("R(rel=4)@4", &hits, &from_two), 0.0);
}

#[test]
fn groups_of_alternatives_are_needs() {
    let judgements = Judgements {
        groups: vec![vec![0, 1], vec![2]],
        ..Judgements::binary(3)
    };
    for (hits, recall, complete) in [
        (&[Some(0)][..], 0.5, 0.0),
        (&[Some(0), Some(1)], 0.5, 0.0),
        (&[Some(1), Some(2)], 1.0, 1.0),
        (&[None, None], 0.0, 0.0),
    ] {
        close(of("recall@5", hits, &judgements), recall);
        close(of("complete@5", hits, &judgements), complete);
    }
    // The other metrics count tools.
    close(of("precision@2", &[Some(0), Some(1)], &judgements), 1.0);
}

#[test]
fn the_order_of_a_chain_is_measured_where_there_is_one() {
    let chain = Judgements {
        order: vec![0, 1, 2],
        ..Judgements::binary(3)
    };
    for (hits, tau, prefix) in [
        (&[Some(0), Some(1), Some(2)][..], 1.0, 1.0),
        (&[Some(2), Some(1), Some(0)], -1.0, 0.0),
        (&[Some(0), None, Some(1)], 1.0, 1.0 / 3.0),
        (&[Some(0), Some(2)], 1.0 / 3.0, 1.0 / 3.0),
        (&[None], 0.0, 0.0),
    ] {
        close(of("tau@10", hits, &chain), tau);
        close(of("prefix", hits, &chain), prefix);
    }
    assert!(value("tau@10", &[true], 3).is_nan() && value("prefix", &[true], 3).is_nan());
    close(mean(&[f64::NAN, 1.0, 0.5]), 0.75);
}

#[test]
fn an_empty_result_scores_zero() {
    for metric in Metric::all(&DEFAULT_DEPTHS) {
        close(metric.of(&[], &Judgements::binary(2)), 0.0);
        let value = metric.of(&[], &Judgements::binary(2));
        assert!(value.is_sign_positive(), "{metric}");
    }
    for name in [
        "ap",
        "rprec",
        "rbp",
        "err@5",
        "bpref",
        "judged@5",
        "unjudged@5",
    ] {
        close(value(name, &[], 2), 0.0);
        close(value(name, &[], 0), 0.0);
    }
}

#[test]
fn every_metric_is_read_back_as_written_and_lies_between_0_and_1() {
    for metric in Metric::all(&DEFAULT_DEPTHS) {
        assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
        for relevant in 2..6 {
            let worth = value(&metric.to_string(), &SECOND_AND_FOURTH, relevant);
            assert!(
                (0.0..=1.0).contains(&worth),
                "{metric} of {relevant}: {worth}"
            );
        }
    }
    for (written, canonical) in [
        ("nDCG@10", "ndcg@10"),
        ("nDCG(dcg='exp-log2')@10", "ndcg(dcg='exp-log2')@10"),
        ("nDCG(dcg=\"log2\")", "ndcg"),
        ("P(rel=2)@5", "precision(rel=2)@5"),
        (
            "R(judged_only=True,rel=2)@5",
            "recall(rel=2,judged_only=True)@5",
        ),
        ("MAP", "ap"),
        ("RR@10", "mrr@10"),
        ("Rprec", "rprec"),
        ("RBP", "rbp(p=0.8)"),
        ("RBP(p=0.95)@20", "rbp(p=0.95)@20"),
        ("Bpref", "bpref"),
    ] {
        let metric: Metric = written.parse().unwrap();
        assert_eq!(metric.to_string(), canonical);
        assert_eq!(canonical.parse::<Metric>().unwrap(), metric);
    }
    for wrong in [
        "recall",
        "ndcg@0",
        "ndcg@x",
        "Rprec@10",
        "RBP(p=1)",
        "nDCG(rel=2)@5",
        "P(x=1)@5",
        "P(rel=2@5",
        "nothing@3",
    ] {
        let message = wrong.parse::<Metric>().unwrap_err().to_string();
        assert!(message.contains(wrong), "{message}");
    }
    let listed = read_list("ndcg@10,R(judged_only=True,rel=2)@5, nDCG@10,AP").unwrap();
    assert_eq!(listed.len(), 3);
}

#[test]
fn percentiles_are_of_the_nearest_rank() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    assert_eq!(
        (
            percentile(&values, 0.5),
            percentile(&values, 0.95),
            percentile(&values, 0.99)
        ),
        (50.0, 95.0, 99.0)
    );
    assert_eq!(
        (
            percentile(&[7.0], 0.99),
            percentile(&[7.0], 0.0),
            percentile(&[], 0.5)
        ),
        (7.0, 7.0, 0.0)
    );
}
