use std::sync::Arc;

use toolscout_index::Embedder;

use super::*;
use crate::dataset::testing::set;

struct Silent;

impl Progress for Silent {
    fn stage(&self, _: &str, _: usize) {}
    fn done(&self, _: usize) {}
    fn step(&self) {}
}

/// Twelve pairs of tools, each with words of its own, and a query for each pair.
fn pairs() -> EvalSet {
    let word = |number: usize| ["alpha", "bravo", "cedar", "delta", "ember", "fjord"][number % 6];
    let place = |number: usize| ["harbour", "island"][number / 6];
    let names: Vec<[String; 2]> = (0..12)
        .map(|n| [format!("s/open{n}"), format!("s/close{n}")])
        .collect();
    let texts: Vec<[String; 2]> = (0..12)
        .map(|n| {
            [
                format!("Opens the {} {} gate", word(n), place(n)),
                format!("Closes the {} {} gate", word(n), place(n)),
            ]
        })
        .collect();
    let tools: Vec<(&str, &str)> = names
        .iter()
        .zip(&texts)
        .flat_map(|(name, text)| [0, 1].map(|at| (name[at].as_str(), text[at].as_str())))
        .collect();
    let asked: Vec<(String, String)> = (0..12)
        .map(|n| {
            (
                format!("q{n}"),
                format!(
                    "Please open the {0} {1} gate now. Then close the {0} {1} gate.",
                    word(n),
                    place(n)
                ),
            )
        })
        .collect();
    let relevant: Vec<[&str; 2]> = names
        .iter()
        .map(|pair| [pair[0].as_str(), pair[1].as_str()])
        .collect();
    let queries: Vec<(&str, &str, &[&str])> = asked
        .iter()
        .zip(&relevant)
        .map(|((id, text), tools)| (id.as_str(), text.as_str(), &tools[..]))
        .collect();
    set(&tools, &queries)
}

fn plan(budgets: &[usize]) -> AgentPlan {
    AgentPlan {
        budgets: budgets.to_vec(),
        turns: 8,
        queries: None,
        seed: 7,
    }
}

fn simulated(set: EvalSet, plan: &AgentPlan) -> Result<AgentReport> {
    let folder = tempfile::tempdir().unwrap();
    let none: Vec<Arc<dyn Embedder>> = Vec::new();
    simulate(set, plan, &Workspace::new(folder.path(), none), &Silent)
}

fn arm<'a>(report: &'a AgentReport, name: &str) -> &'a ArmFigures {
    report
        .arms
        .iter()
        .find(|arm| arm.name() == name)
        .unwrap_or_else(|| panic!("no arm {name}"))
}

#[test]
fn every_policy_runs_the_same_turns_within_its_budget() {
    let report = simulated(pairs(), &plan(&[250, 5_000])).unwrap();
    let names: Vec<String> = report.arms.iter().map(ArmFigures::name).collect();
    assert_eq!(
        names,
        [
            "lru 250",
            "lfu 250",
            "no eviction 250",
            "lru 5000",
            "lfu 5000",
            "no eviction 5000",
            "all visible",
            "relevant only"
        ]
    );
    assert!(
        report.queries == 12 && report.turns >= 12 && report.recurring > 0.2,
        "{report:?}"
    );
    // Who sees all or just the right tools needs one round to call them and one to answer, and
    // never fails.
    for name in ["all visible", "relevant only"] {
        let figures = arm(&report, name);
        assert_eq!(
            (
                figures.success,
                figures.rounds,
                figures.searches,
                figures.calls_refused
            ),
            (1.0, 2.0, 0.0, 0),
            "{name}"
        );
    }
    let (relevant, lru, all) = (
        arm(&report, "relevant only"),
        arm(&report, "lru 250"),
        arm(&report, "all visible"),
    );
    // Naming eleven of 24 tools in each answer costs about as much as showing them all.
    assert!(
        relevant.tokens_in < lru.tokens_in && relevant.tokens_in < all.tokens_in,
        "{report:?}"
    );
    assert!(
        report
            .arms
            .iter()
            .all(|arm| arm.tokens_in_fresh <= arm.tokens_in && arm.success <= arm.needs_met)
    );
}

#[test]
fn eviction_succeeds_where_a_full_budget_fails() {
    let report = simulated(pairs(), &plan(&[250])).unwrap();
    let (lru, none) = (arm(&report, "lru 250"), arm(&report, "no eviction 250"));
    assert!(lru.success > 0.9, "{lru:?}");
    assert!(
        none.success < lru.success && none.tools_evicted == 0.0 && lru.tools_evicted > 0.0,
        "{none:?}"
    );
}

#[test]
fn a_seed_gives_the_same_figures_each_time() {
    let run = |seed| {
        let plan = AgentPlan {
            seed,
            ..plan(&[250])
        };
        let report = simulated(pairs(), &plan).unwrap();
        crate::report::to_json(&[report], None).unwrap()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn a_set_of_single_tool_queries_cannot_be_simulated() {
    let single = set(&[("a", "x"), ("b", "y")], &[("q", "x", &["a"])]);
    let message = simulated(single, &plan(&[250])).unwrap_err().to_string();
    assert!(message.contains("none of the 1 queries"), "{message}");
}
