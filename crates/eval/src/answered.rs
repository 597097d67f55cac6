//! Queries with what a catalog answered to them: their figures, and what differs between two
//! answers to the same queries. Pure, and without the tools themselves, so that it can be stored
//! and compared with later answers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use toolscout_index::{Match, Results};

use super::bootstrap::{Interval, intervals, paired};
use super::dataset::Fingerprint;
use super::dataset::pasted::PastedQuery;
use super::judge::Scores;
use super::judgements::{JudgedHits, Worth};
use super::metrics::{Metric, headline, mean};
use super::report::Means;

/// Ranks that are looked at: deeper than any metric.
pub const DEPTH: usize = toolscout_index::query::MAX_K;
/// First hits that are stored, and compared between two answers.
pub const STORED_HITS: usize = 10;
/// Values that differ by less are the same.
const ROUNDING: f64 = 1e-9;
/// The seed of the resampling, as the command line has it.
pub const SEED: u64 = 42;

/// A query with the answer of each arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnsweredQuery {
    /// Unique within its evaluation.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// Where query and judgement came from, if its line said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The ids of its relevant tools; empty if no tool can serve it, `None` without a judgement.
    pub relevant: Option<Vec<String>>,
    /// In the order of the arms.
    pub answers: Vec<Answer>,
}

/// What is judged of a query, in an order of its own: the relevant tools with their grades, and groups of
/// alternatives.
type Judged<'a> = (BTreeMap<&'a str, u64>, BTreeSet<BTreeSet<&'a str>>);

impl AnsweredQuery {
    /// Whether both have the same text and judgement, in whatever order the tools were given.
    fn is_same(&self, other: &Self) -> bool {
        self.text == other.text && self.judged() == other.judged()
    }

    fn judged(&self) -> Option<Judged<'_>> {
        let relevant = self.relevant.as_ref()?;
        let worth = self.worth().cloned().unwrap_or_default();
        let judgements = worth.judgements(relevant.len());
        let mut grades = BTreeMap::new();
        for (id, grade) in relevant.iter().zip(&judgements.grades) {
            grades.insert(id.as_str(), grade.to_bits());
        }
        let mut groups = BTreeSet::new();
        for group in &judgements.groups {
            let ids = group.iter().filter_map(|position| relevant.get(*position));
            groups.insert(ids.map(String::as_str).collect());
        }
        Some((grades, groups))
    }

    /// What its relevant tools are worth: every answer says the same.
    pub(super) fn worth(&self) -> Option<&Worth> {
        Some(&self.answers.first()?.worth)
    }

    /// A query with these answers.
    pub fn new(query: PastedQuery, answers: Vec<Answer>) -> Self {
        AnsweredQuery {
            id: query.id,
            text: query.text,
            source: query.source,
            relevant: query.relevant,
            answers,
        }
    }
}

/// What an arm answered to a query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The ids of the first hits.
    pub hits: Vec<String>,
    /// Their scores; none in an answer of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<f32>,
    /// The 1-based ranks of the relevant tools, in their order; `None` for one that was not found.
    pub ranks: Vec<Option<usize>>,
    /// Whether it was answered with "no match".
    pub no_match: bool,
    /// Whether the answer was degraded.
    pub degraded: bool,
    /// What the relevant tools are worth.
    #[serde(default, skip_serializing_if = "Worth::is_equal")]
    pub worth: Worth,
    /// Its values by the names of the metrics, if a report has them: they win over the ranks, which do not have
    /// all that is judged.
    #[serde(skip)]
    pub values: Option<BTreeMap<String, Option<f64>>>,
}

impl Answer {
    /// The answer with these hits, best first, and nothing else about it.
    pub fn of_hits(hits: &[&str], relevant: Option<&[String]>) -> Self {
        let mut ranks = Vec::new();
        for id in relevant.unwrap_or_default() {
            let place = hits.iter().take(DEPTH).position(|hit| hit == id);
            ranks.push(place.map(|place| place + 1));
        }
        let stored = hits.iter().take(STORED_HITS).copied();
        Answer {
            hits: stored.map(str::to_owned).collect(),
            ranks,
            ..Answer::default()
        }
    }

    /// The answer to a query whose relevant tools are worth this.
    pub fn judged_by(self, worth: &Worth) -> Self {
        Answer {
            worth: worth.clone(),
            ..self
        }
    }

    /// What a search found for a query with these relevant tools.
    pub fn of_results(results: &Results, relevant: Option<&[String]>) -> Self {
        let hits: Vec<&str> = results.hits.iter().map(|hit| hit.id.as_str()).collect();
        let scores = results.hits.iter().take(STORED_HITS).map(|hit| hit.score);
        Answer {
            scores: scores.collect(),
            no_match: results.matched == Match::None,
            degraded: results.degraded.is_some(),
            ..Answer::of_hits(&hits, relevant)
        }
    }

    /// Its value by a metric; `None` for a query without relevant tools, and for a metric that a report does
    /// not have.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        let judgements = self.worth.judgements(self.ranks.len());
        let by_ranks = if self.ranks.is_empty() {
            None
        } else {
            Some(metric.of(&self.judged_hits(), &judgements))
        };
        let Some(values) = &self.values else {
            return by_ranks;
        };
        let value = values.get(&metric.to_string()).copied().flatten()?;
        match by_ranks {
            // Reading a number may change its last digit, which is no difference.
            Some(by_ranks) if (by_ranks - value).abs() < ROUNDING => Some(by_ranks),
            _ => Some(value),
        }
    }

    /// Whether the first hits of both are the same, in the same order.
    pub fn has_hits_of(&self, other: &Answer) -> bool {
        self.hits == other.hits
    }

    /// The share of the first hits that both have; 1 where neither has any.
    pub fn overlap(&self, other: &Answer) -> f64 {
        let most = self.hits.len().max(other.hits.len());
        if most == 0 {
            return 1.0;
        }
        let both = self.hits.iter().filter(|hit| other.hits.contains(hit));
        both.count() as f64 / most as f64
    }

    fn judged_hits(&self) -> JudgedHits {
        let deepest = self.ranks.iter().flatten().copied().max().unwrap_or(0);
        let mut hits = vec![None; deepest.min(DEPTH)];
        for (position, rank) in self.ranks.iter().enumerate() {
            let Some(rank) = rank else { continue };
            // A stored rank of 0 wraps around to a place that no list has.
            if let Some(hit) = hits.get_mut(rank.wrapping_sub(1)) {
                *hit = Some(position);
            }
        }
        hits
    }
}

/// A metric over all judged queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The metric, such as `ndcg@10`.
    pub metric: String,
    /// Its mean.
    pub mean: f64,
    /// The 95% bootstrap interval of the mean.
    pub ci95: Interval,
}

/// The figures of an arm; none without a judged query.
pub fn figures(queries: &[AnsweredQuery], arm: usize, metrics: &[Metric]) -> Vec<Figure> {
    let answers = queries.iter().filter_map(|query| query.answers.get(arm));
    let scores = scores(answers, metrics);
    if scores.columns.first().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    let means = Means::of(&scores).0;
    let mut figures = Vec::with_capacity(means.len());
    for ((metric, mean), ci95) in means.into_iter().zip(intervals(&scores.columns, SEED)) {
        figures.push(Figure {
            metric: metric.to_string(),
            mean,
            ci95,
        });
    }
    figures
}

/// The scores of the answers to queries with relevant tools.
pub(super) fn scores<'a>(answers: impl Iterator<Item = &'a Answer>, metrics: &[Metric]) -> Scores {
    // Without relevant tools there are no ranks, and nothing to measure.
    let judged: Vec<&Answer> = answers.filter(|answer| !answer.ranks.is_empty()).collect();
    let mut columns = Vec::with_capacity(metrics.len());
    for metric in metrics {
        // Means leave out what is not a number, so every column keeps one row per answer.
        let values = judged
            .iter()
            .map(|answer| answer.score(*metric).unwrap_or(f64::NAN));
        columns.push(values.collect());
    }
    Scores {
        metrics: metrics.to_vec(),
        columns,
    }
}

/// A digest of the queries and their judgements: the same for the same queries.
pub fn fingerprint(queries: &[AnsweredQuery]) -> String {
    let mut digest = Fingerprint::default();
    for query in queries {
        digest.feed(&query.id);
        digest.feed(&query.text);
        match &query.relevant {
            None => digest.feed("not judged"),
            Some(relevant) => {
                digest.feed(&relevant.len().to_string());
                // Sorted, because the order in which tools are named changes no judgement.
                let mut sorted: Vec<&String> = relevant.iter().collect();
                sorted.sort_unstable();
                for id in sorted {
                    digest.feed(id);
                }
                // Nothing is added for the usual worth: such digests are those of earlier versions.
                if let Some(worth) = query.worth()
                    && !worth.is_equal()
                {
                    digest.feed(&format!("{relevant:?} {worth:?}"));
                }
            }
        }
    }
    digest.finish()
}

/// The answers of an earlier evaluation to queries, by their ids.
pub struct Earlier<'a>(HashMap<&'a str, &'a AnsweredQuery>);

impl<'a> Earlier<'a> {
    /// The answers to these queries.
    pub fn new(queries: &'a [AnsweredQuery]) -> Self {
        let mut by_id = HashMap::with_capacity(queries.len());
        for query in queries {
            by_id.insert(query.id.as_str(), query);
        }
        Earlier(by_id)
    }

    /// What an arm answered to the same query with the same judgement.
    pub fn answer(&self, query: &AnsweredQuery, arm: usize) -> Option<&'a Answer> {
        let earlier = self.0.get(query.id.as_str())?;
        // The same id with another judgement is another query.
        if !earlier.is_same(query) {
            return None;
        }
        earlier.answers.get(arm)
    }
}

/// The difference of a metric between two answers to the same queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The metric.
    pub metric: Metric,
    /// Mean of now minus before.
    pub difference: f64,
    /// Its 95% interval, paired by query.
    pub ci95: Interval,
    /// Two-sided p-value of the randomisation test, for the main metric.
    pub p: Option<f64>,
}

/// What differs between two answers to each of several queries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Compared queries.
    pub queries: usize,
    /// Those of them with relevant tools.
    pub judged: usize,
    /// By metric; empty without judged queries.
    pub differences: Vec<Difference>,
    /// Judged queries whose main metric rose.
    pub better: usize,
    /// Judged queries whose main metric fell.
    pub worse: usize,
    /// Mean share of the first ten hits that both have.
    pub overlap: f64,
    /// Queries whose first ten hits are not the same.
    pub hits_changed: usize,
    /// Queries whose first hit is another one.
    pub first_changed: usize,
}

/// Compares answers, given in pairs of now and before.
pub fn change(pairs: &[(&Answer, &Answer)], metrics: &[Metric]) -> Change {
    let now = scores(pairs.iter().map(|(now, _)| *now), metrics);
    let before = scores(pairs.iter().map(|(_, before)| *before), metrics);
    let main = headline(metrics);
    let mut change = Change {
        queries: pairs.len(),
        judged: now.column(main).len(),
        differences: differences(&now, &before),
        ..Change::default()
    };
    for (now, before) in now.column(main).iter().zip(before.column(main)) {
        // `NaN` compares as neither: a query without a value counts as unchanged.
        change.better += usize::from(now > before);
        change.worse += usize::from(now < before);
    }
    let mut overlaps = Vec::with_capacity(pairs.len());
    for (now, before) in pairs {
        overlaps.push(now.overlap(before));
        change.hits_changed += usize::from(!now.has_hits_of(before));
        change.first_changed += usize::from(now.hits.first() != before.hits.first());
    }
    change.overlap = mean(&overlaps);
    change
}

fn differences(now: &Scores, before: &Scores) -> Vec<Difference> {
    let mut columns: Vec<Vec<f64>> = Vec::with_capacity(now.columns.len());
    for (now, before) in now.columns.iter().zip(&before.columns) {
        columns.push(now.iter().zip(before).map(|(a, b)| a - b).collect());
    }
    if columns.first().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    let main = headline(&now.metrics);
    let p = paired(now.column(main), before.column(main), SEED).p;
    let intervals = intervals(&columns, SEED);
    let mut differences = Vec::with_capacity(columns.len());
    for ((metric, column), ci95) in now.metrics.iter().zip(&columns).zip(intervals) {
        differences.push(Difference {
            metric: *metric,
            difference: mean(column),
            ci95,
            p: (*metric == main).then_some(p),
        });
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRIC: Metric = Metric::new(super::super::metrics::Measure::Ndcg, 10);

    fn query(id: &str, relevant: Option<&[&str]>, answers: &[&[&str]]) -> AnsweredQuery {
        let relevant: Option<Vec<String>> =
            relevant.map(|ids| ids.iter().map(|id| (*id).to_owned()).collect());
        AnsweredQuery {
            id: id.into(),
            text: id.into(),
            source: None,
            answers: answers
                .iter()
                .map(|hits| Answer::of_hits(hits, relevant.as_deref()))
                .collect(),
            relevant,
        }
    }

    #[test]
    fn figures_are_of_judged_queries_alone() {
        let queries = [
            query("a", Some(&["x"]), &[&["x", "y"]]),
            query("b", Some(&["x", "z"]), &[&["y", "x"]]),
            query("none", Some(&[]), &[&["x"]]),
            query("unjudged", None, &[&["x"]]),
        ];
        let found = figures(&queries, 0, &[METRIC]);
        // 1, and (1/log2(3)) / (1 + 1/log2(3)).
        assert!(
            (found[0].mean - (1.0 + 0.386_852_807) / 2.0).abs() < 1e-6,
            "{found:?}"
        );
        assert!(found[0].ci95[0] <= found[0].mean && found[0].mean <= found[0].ci95[1]);
        assert!(figures(&queries[2..], 0, &[METRIC]).is_empty());
        assert_eq!(queries[2].answers[0].score(METRIC), None);
    }

    #[test]
    fn answers_are_compared_with_those_to_the_same_query() {
        let now = [
            query("a", Some(&["x"]), &[&["y", "x"]]),
            query("b", None, &[&["x", "y"]]),
            query("c", Some(&["x"]), &[&["x"]]),
            query("d", Some(&["x"]), &[&["x"]]),
        ];
        let before = [
            query("a", Some(&["x"]), &[&["x", "y"]]),
            query("b", None, &[&["x", "z"]]),
            query("c", Some(&["x", "y"]), &[&["x"]]),
        ];
        let earlier = Earlier::new(&before);
        let pairs: Vec<(&Answer, &Answer)> = now
            .iter()
            .filter_map(|query| Some((&query.answers[0], earlier.answer(query, 0)?)))
            .collect();
        let change = change(&pairs, &[METRIC]);
        assert_eq!(
            (change.queries, change.judged),
            (2, 1),
            "another judgement is another query"
        );
        assert_eq!((change.better, change.worse), (0, 1));
        assert_eq!((change.hits_changed, change.first_changed), (2, 1));
        assert!((change.overlap - 0.75).abs() < 1e-12);
        assert!((change.differences[0].difference + 0.369_070_246).abs() < 1e-6);
        assert_eq!(change.differences[0].p, Some(1.0));
    }

    #[test]
    fn the_fingerprint_is_of_queries_and_judgements() {
        let of = |query: AnsweredQuery| fingerprint(&[query]);
        let base = of(query("a", Some(&["x", "y"]), &[&["x"]]));
        assert_eq!(base, of(query("a", Some(&["y", "x"]), &[&["y"]])));
        for other in [
            query("b", Some(&["x", "y"]), &[]),
            query("a", Some(&["x"]), &[]),
            query("a", Some(&[]), &[]),
            query("a", None, &[]),
        ] {
            assert_ne!(base, of(other));
        }
    }
}
