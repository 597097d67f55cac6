//! The report of queries that a server has asked: the one that the command line writes of the same
//! queries. And the way back: the queries of a report with their answers.

use std::collections::BTreeMap;

use super::answered::{Answer, AnsweredQuery, SEED, scores};
use super::dataset::pasted::PastedQuery;
use super::judge::Scores;
use super::judgements::Worth;
use super::latency::Latency;
use super::metrics::{self, Metric};
use super::per_query::{self, MAX_RANK, QueryOfArm, QueryReport, ScoredHit};
use super::report::{ArmReport, Report, ReportProblem, by_source, comparisons};
use super::run::ArmRun;

/// An arm of a server.
#[derive(Clone, Debug)]
pub struct AnsweredArm {
    /// Its name in the report.
    pub name: String,
    /// Its latency.
    pub latency: Latency,
}

/// The report of these queries. `facts` has what identifies set and run.
pub fn report_of(
    facts: Report,
    queries: &[AnsweredQuery],
    arms: &[AnsweredArm],
    metrics: &[Metric],
) -> Report {
    let judged: Vec<&AnsweredQuery> = queries.iter().filter(|query| is_judged(query)).collect();
    let mut columns = Vec::with_capacity(arms.len());
    let mut reports = Vec::with_capacity(arms.len());
    for (number, arm) in arms.iter().enumerate() {
        let answers: Vec<&Answer> = judged
            .iter()
            .filter_map(|query| query.answers.get(number))
            .collect();
        let scores = scores(answers.iter().copied(), metrics);
        let run = ArmRun {
            name: arm.name.clone(),
            degraded: answers.iter().filter(|answer| answer.degraded).count(),
            abstained: answers.iter().filter(|answer| answer.no_match).count(),
            // Stored answers name tools by their ids; the report needs no rankings of positions.
            ..ArmRun::default()
        };
        reports.push(ArmReport::of(&run, &scores, Some(arm.latency), SEED));
        columns.push((arm.name.as_str(), scores));
    }
    let named: Vec<(&str, &Scores)> = columns.iter().map(|(name, of)| (*name, of)).collect();
    let mut graded = false;
    let mut per_query = Vec::with_capacity(judged.len());
    for (number, query) in judged.iter().enumerate() {
        graded |= matches!(query.worth(), Some(worth) if !worth.grades.is_empty());
        per_query.push(query_report(query, number, &named));
    }
    Report {
        sources: by_source(&per_query, &reports),
        queries: judged.len(),
        queries_in_set: judged.len(),
        seed: SEED,
        graded,
        main_arm: arms.first().map(|arm| arm.name.clone()).unwrap_or_default(),
        significance: comparisons(&named, SEED),
        per_query,
        arms: reports,
        ..facts
    }
}

/// Most by which the mean of a report may differ from that of its queries.
const ROUNDING: f64 = 1e-6;

/// The queries of a report, with the answers of its arms in their order.
pub fn answered(report: &Report) -> Vec<AnsweredQuery> {
    let mut queries = Vec::with_capacity(report.per_query.len());
    for query in &report.per_query {
        let (relevant, worth) = relevant_of(query, report.relevant_from);
        let mut answers = Vec::with_capacity(report.arms.len());
        for arm in &report.arms {
            answers.push(answer(query.arms.get(&arm.name), &relevant, &worth));
        }
        queries.push(AnsweredQuery {
            id: query.id.clone(),
            text: query.query.clone(),
            source: query.source.clone(),
            relevant: Some(relevant),
            answers,
        });
    }
    queries
}

/// The relevant tools of a query, and what they are worth.
fn relevant_of(query: &QueryReport, from: f64) -> (Vec<String>, Worth) {
    let judgements = query.judgements(from);
    let (mut ids, mut grades) = (Vec::new(), Vec::new());
    for (id, grade) in &query.judged {
        if judgements.is_relevant(*grade, None) {
            ids.push(id.clone());
            grades.push(*grade);
        }
    }
    let mut groups = Vec::with_capacity(query.groups.len());
    for group in &query.groups {
        let known = group.iter();
        let positions = known.filter_map(|id| ids.iter().position(|other| other == id));
        groups.push(positions.collect());
    }
    // An empty list stands for grades that are all 1.
    if grades.iter().all(|grade| *grade == 1.0) {
        grades.clear();
    }
    (ids, Worth { grades, groups })
}

fn answer(arm: Option<&QueryOfArm>, relevant: &[String], worth: &Worth) -> Answer {
    let none = QueryOfArm::default();
    let arm = arm.unwrap_or(&none);
    // Scores of some hits alone are of no use: an earlier version kept hits without them.
    let scores: Option<Vec<f32>> = arm.hits.iter().map(|hit| Some(hit.score? as f32)).collect();
    Answer {
        hits: arm.hits.iter().map(|hit| hit.id.clone()).collect(),
        scores: scores.unwrap_or_default(),
        ranks: relevant
            .iter()
            .map(|id| arm.ranks.get(id).copied())
            .collect(),
        // A report shows "no match" by the lack of hits alone.
        no_match: arm.hits.is_empty(),
        // Reports count degraded answers, but do not say which they are.
        degraded: false,
        worth: worth.clone(),
        values: Some(arm.values.clone()),
    }
}

/// The queries of a report as a request would have them, with all that is judged.
pub fn pasted(report: &Report) -> Vec<PastedQuery> {
    report.per_query.iter().map(pasted_query).collect()
}

fn pasted_query(query: &QueryReport) -> PastedQuery {
    // Every grade above 0, so that the request can start relevance where it likes.
    let (relevant, worth) = relevant_of(query, 0.0);
    let mut irrelevant = Vec::new();
    for (id, grade) in &query.judged {
        if *grade <= 0.0 {
            irrelevant.push(id.clone());
        }
    }
    PastedQuery {
        id: query.id.clone(),
        text: query.query.clone(),
        source: query.source.clone(),
        relevant: Some(relevant),
        worth,
        irrelevant,
        order: query.order.clone(),
    }
}

/// What in a report cannot be: a mean that its queries do not have, a rank that no search gives.
///
/// # Errors
/// [`ReportProblem`] with the place and the values.
pub fn check(report: &Report) -> Result<(), ReportProblem> {
    if report.per_query.len() != report.queries {
        return Err(ReportProblem::Queries {
            said: report.queries,
            found: report.per_query.len(),
        });
    }
    for query in &report.per_query {
        for (name, arm) in &query.arms {
            check_ranks(&query.id, name, arm)?;
        }
    }
    for arm in &report.arms {
        check_means(report, arm)?;
    }
    Ok(())
}

/// Refuses ranks that no search gives: a list as long as a huge rank would take all memory.
fn check_ranks(query: &str, name: &str, arm: &QueryOfArm) -> Result<(), ReportProblem> {
    for (tool, rank) in &arm.ranks {
        if !(1..=MAX_RANK).contains(rank) {
            return Err(ReportProblem::Rank {
                query: query.to_owned(),
                arm: name.to_owned(),
                tool: tool.clone(),
                rank: *rank,
                most: MAX_RANK,
            });
        }
    }
    Ok(())
}

fn check_means(report: &Report, arm: &ArmReport) -> Result<(), ReportProblem> {
    for (metric, mean) in &arm.means.0 {
        let queries = report.per_query.iter();
        let values: Vec<f64> = queries
            .map(|query| query.value(&arm.name, *metric))
            .collect();
        let of_queries = metrics::mean(&values);
        let differs = (of_queries - mean).abs() > ROUNDING;
        // `NaN` differs from nothing, and would pass as equal.
        if differs || mean.is_nan() {
            return Err(ReportProblem::Mean {
                metric: *metric,
                arm: arm.name.clone(),
                mean: *mean,
                of_queries,
            });
        }
    }
    Ok(())
}

fn is_judged(query: &AnsweredQuery) -> bool {
    matches!(&query.relevant, Some(ids) if !ids.is_empty())
}

fn query_report(query: &AnsweredQuery, number: usize, arms: &[(&str, &Scores)]) -> QueryReport {
    let relevant = query.relevant.as_deref().unwrap_or_default();
    let worth = query.worth().cloned().unwrap_or_default();
    let judgements = worth.judgements(relevant.len());
    let mut groups = Vec::with_capacity(judgements.groups.len());
    for group in &judgements.groups {
        let ids = group.iter().filter_map(|tool| relevant.get(*tool));
        groups.push(ids.cloned().collect());
    }
    let mut of_arms = BTreeMap::new();
    for ((name, scores), answer) in arms.iter().zip(&query.answers) {
        let values = per_query::values(scores, number);
        of_arms.insert((*name).to_owned(), of_arm(answer, relevant, values));
    }
    QueryReport {
        id: query.id.clone(),
        query: query.text.clone(),
        source: query.source.clone(),
        judged: relevant.iter().cloned().zip(judgements.grades).collect(),
        groups,
        order: Vec::new(),
        arms: of_arms,
    }
}

fn of_arm(
    answer: &Answer,
    relevant: &[String],
    values: BTreeMap<String, Option<f64>>,
) -> QueryOfArm {
    let mut ranks = BTreeMap::new();
    for (id, rank) in relevant.iter().zip(&answer.ranks) {
        if let Some(rank) = rank {
            ranks.insert(id.clone(), *rank);
        }
    }
    let mut hits = Vec::with_capacity(answer.hits.len());
    for (place, id) in answer.hits.iter().enumerate() {
        hits.push(ScoredHit {
            id: id.clone(),
            // An answer of an earlier version has hits without scores.
            score: answer.scores.get(place).copied().map(f64::from),
        });
    }
    QueryOfArm {
        values,
        ranks,
        hits,
    }
}
