//! Which hits count as relevant: the judged tools, or near-identical tools too.

use std::collections::{BTreeSet, HashSet};

use toolscout_index::Tool;

use super::dataset::{EvalQuery, EvalSet, ToolIndex};
use super::judgements::{JudgedHits, Judgements};
use super::metrics::{Metric, mean};
use super::run::ArmRun;

/// Least Jaccard similarity of two descriptions that count as identical: at .9 a changed number or
/// product name passes, a changed sentence does not.
const SAME_DESCRIPTION: f64 = 0.9;

/// The values of every metric for every query.
#[derive(Clone, Debug)]
pub struct Scores {
    /// The metrics of the columns.
    pub metrics: Vec<Metric>,
    /// `columns[m][q]` is metric `m` of query `q`; `NaN` where it has no value.
    pub columns: Vec<Vec<f64>>,
}

impl Scores {
    /// Evaluates a run with the judged tools alone.
    pub fn strict(set: &EvalSet, run: &ArmRun, metrics: &[Metric]) -> Self {
        Scores::by(set, run, metrics, EvalQuery::judged_hits)
    }

    /// Evaluates a run where a near-identical tool can replace a judged one.
    pub fn tolerant(set: &EvalSet, run: &ArmRun, metrics: &[Metric], twins: &Twins) -> Self {
        Scores::by(set, run, metrics, |query, ranking| {
            tolerant_hits(query, ranking, twins)
        })
    }

    /// Evaluates a run without its hits that are not judged.
    pub fn condensed(set: &EvalSet, run: &ArmRun, metrics: &[Metric]) -> Self {
        Scores::by(set, run, metrics, |query, ranking| {
            let mut hits = query.judged_hits(ranking);
            hits.retain(Option::is_some);
            hits
        })
    }

    fn by(
        set: &EvalSet,
        run: &ArmRun,
        metrics: &[Metric],
        hits_of: impl Fn(&EvalQuery, &[ToolIndex]) -> JudgedHits,
    ) -> Self {
        let mut hits: Vec<JudgedHits> = Vec::with_capacity(set.queries.len());
        for (query, ranking) in set.queries.iter().zip(&run.rankings) {
            hits.push(hits_of(query, ranking));
        }
        let judgements = set.queries.iter().map(|query| &query.judgements);
        Scores::of_hits(metrics, hits.iter().map(Vec::as_slice).zip(judgements))
    }

    /// Evaluates the hits of each query, by rank, with its judgements.
    pub fn of_hits<'a>(
        metrics: &[Metric],
        queries: impl Iterator<Item = (&'a [Option<usize>], &'a Judgements)>,
    ) -> Self {
        let mut columns = vec![Vec::new(); metrics.len()];
        for (hits, judgements) in queries {
            for (metric, column) in metrics.iter().zip(&mut columns) {
                column.push(metric.of(hits, judgements));
            }
        }
        Scores {
            metrics: metrics.to_vec(),
            columns,
        }
    }

    /// The values of one metric, by query; empty when it was not measured.
    pub fn column(&self, metric: Metric) -> &[f64] {
        match self.metrics.iter().position(|other| *other == metric) {
            Some(index) => &self.columns[index],
            None => &[],
        }
    }

    /// The mean over the queries.
    pub fn mean(&self, metric: Metric) -> f64 {
        mean(self.column(metric))
    }
}

/// As [`EvalQuery::judged_hits`], but a twin stands for the relevant tool. Each relevant tool counts
/// once: a second twin, or the tool itself after its twin, adds nothing.
pub fn tolerant_hits(query: &EvalQuery, ranking: &[ToolIndex], twins: &Twins) -> JudgedHits {
    let mut missing: HashSet<ToolIndex> = query.relevant.iter().copied().collect();
    let mut hits = JudgedHits::new();
    for &hit in ranking {
        // The relevant tool itself, if no twin has stood for it before.
        if missing.remove(&hit) {
            hits.push(query.position(hit));
            continue;
        }
        let twin = query
            .relevant
            .iter()
            .find(|tool| missing.contains(tool) && twins.equal(**tool, hit));
        hits.push(match twin {
            Some(tool) => {
                missing.remove(tool);
                query.position(*tool)
            }
            // A relevant tool that a twin has already stood for counts as not judged.
            None if query.is_relevant(hit) => None,
            None => query.position(hit),
        });
    }
    hits
}

/// The tools of a set that are near-identical in name and description.
pub struct Twins {
    faces: Vec<Face>,
}

impl Twins {
    /// Compares the tools of a set.
    pub fn of(set: &EvalSet) -> Self {
        Twins {
            faces: set.tools.iter().map(Face::of).collect(),
        }
    }

    /// True when an agent could use one for the other: the names have the same words (case,
    /// separators and server ignored), and the descriptions are near-identical.
    pub fn equal(&self, a: ToolIndex, b: ToolIndex) -> bool {
        let (a, b) = (&self.faces[a as usize], &self.faces[b as usize]);
        a.name == b.name && overlap(&a.description, &b.description) >= SAME_DESCRIPTION
    }
}

struct Face {
    name: String,
    description: BTreeSet<String>,
}

impl Face {
    fn of(tool: &Tool) -> Self {
        // `send_mail` and `sendMail` are one name.
        let letters = tool.id.name().chars().filter(|c| c.is_alphanumeric());
        let words = tool.description.split(|c: char| !c.is_alphanumeric());
        let mut description: BTreeSet<String> = words.map(str::to_lowercase).collect();
        // Between two separators in a row there is an empty word.
        description.remove("");
        Face {
            name: letters.flat_map(char::to_lowercase).collect(),
            description,
        }
    }
}

/// The Jaccard coefficient; 1 for two empty sets.
fn overlap(a: &BTreeSet<String>, b: &BTreeSet<String>) -> f64 {
    let common = a.intersection(b).count();
    match a.len() + b.len() - common {
        0 => 1.0,
        union => common as f64 / union as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use crate::metrics::Measure;

    const MAIL: &str = "Sends a mail to one or several people, with attachments and a subject line";

    fn twins() -> (EvalSet, Twins) {
        let set = set(
            &[
                ("gmail/send_mail", MAIL),
                (
                    "outlook/sendMail",
                    "Sends a mail to one or several people, with attachments and a Subject line.",
                ),
                ("post/send_mail", "Sends a letter"),
                ("gmail/read_mail", MAIL),
            ],
            &[("q", "mail", &["gmail/send_mail", "gmail/read_mail"])],
        );
        let twins = Twins::of(&set);
        (set, twins)
    }

    #[test]
    fn twins_have_equal_names_and_similar_descriptions() {
        let (_, twins) = twins();
        assert!(twins.equal(0, 1) && twins.equal(1, 0));
        assert!(!twins.equal(0, 2), "another description");
        assert!(!twins.equal(0, 3), "another name");
    }

    #[test]
    fn a_twin_counts_once_and_only_when_tolerated() {
        let (set, twins) = twins();
        let query = &set.queries[0];
        // Tools 0 and 3 are judged.
        assert_eq!(
            query.judged_hits(&[1, 0, 2, 3]),
            [None, Some(0), None, Some(1)]
        );
        assert_eq!(
            tolerant_hits(query, &[1, 0, 2, 3], &twins),
            [Some(0), None, None, Some(1)]
        );
        assert_eq!(tolerant_hits(query, &[0, 1], &twins), [Some(0), None]);
    }

    #[test]
    fn a_run_is_judged_query_by_query() {
        let (set, twins) = twins();
        let run = ArmRun {
            name: "x".into(),
            rankings: vec![vec![1, 3]],
            scores: vec![vec![2.0, 1.0]],
            degraded: 0,
            abstained: 0,
            file: None,
        };
        let recall = Metric::new(Measure::Recall, 3);
        assert_eq!(Scores::strict(&set, &run, &[recall]).mean(recall), 0.5);
        assert_eq!(
            Scores::tolerant(&set, &run, &[recall], &twins).mean(recall),
            1.0
        );
    }
}
