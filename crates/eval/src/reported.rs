//! The report of queries that a server has asked: the one that the command line writes of the same
//! queries. And the way back: the queries of a report with their answers.

use std::collections::BTreeMap;

use super::answered::{Answer, AnsweredQuery, SEED, scores};
use super::dataset::pasted::PastedQuery;
use super::judge::Scores;
use super::judgements::Worth;
use super::latency::Latency;
use super::metrics::{self, Metric};
use super::per_query::{self, QueryOfArm, QueryReport, ScoredHit};
use super::report::{ArmReport, Report, by_source, comparisons};
use super::run::ArmRun;

/// The deepest rank of a report: deeper than the run of any system.
const MAX_RANK: usize = 100_000;

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
        let count = |is_so: fn(&Answer) -> bool| answers.iter().filter(|one| is_so(one)).count();
        let run = ArmRun {
            name: arm.name.clone(),
            rankings: Vec::new(),
            scores: Vec::new(),
            degraded: count(|answer| answer.degraded),
            abstained: count(|answer| answer.no_match),
            file: None,
        };
        reports.push(ArmReport::of(&run, &scores, Some(arm.latency), SEED));
        columns.push((arm.name.as_str(), scores));
    }
    let named: Vec<(&str, &Scores)> = columns.iter().map(|(name, of)| (*name, of)).collect();
    let per_query = judged.iter().enumerate();
    let graded = |query: &&AnsweredQuery| {
        let worth = query.answers.first().map(|answer| &answer.worth);
        worth.is_some_and(|worth| !worth.grades.is_empty())
    };
    let per_query: Vec<QueryReport> = per_query
        .map(|(number, query)| query_report(query, number, &named))
        .collect();
    Report {
        sources: by_source(&per_query, &reports),
        queries: judged.len(),
        queries_in_set: judged.len(),
        seed: SEED,
        graded: judged.iter().any(graded),
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
        let arms = report.arms.iter().map(|arm| query.arms.get(&arm.name));
        let answers = arms.map(|arm| answer(arm, &relevant, &worth)).collect();
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
    let judged = query.judged.iter();
    let relevant = judged.filter(|(_, grade)| judgements.is_relevant(**grade, None));
    let (ids, grades): (Vec<String>, Vec<f64>) =
        relevant.map(|(id, grade)| (id.clone(), *grade)).unzip();
    let position = |id: &String| ids.iter().position(|other| other == id);
    let groups = query.groups.iter();
    let worth = Worth {
        groups: groups
            .map(|group| group.iter().filter_map(position).collect())
            .collect(),
        grades: if grades.iter().all(|grade| *grade == 1.0) {
            Vec::new()
        } else {
            grades
        },
    };
    (ids, worth)
}

fn answer(arm: Option<&QueryOfArm>, relevant: &[String], worth: &Worth) -> Answer {
    let none = QueryOfArm::default();
    let arm = arm.unwrap_or(&none);
    let score = |hit: &ScoredHit| hit.score.map(|score| score as f32);
    let scores: Option<Vec<f32>> = arm.hits.iter().map(score).collect();
    Answer {
        hits: arm.hits.iter().map(|hit| hit.id.clone()).collect(),
        scores: scores.unwrap_or_default(),
        ranks: relevant
            .iter()
            .map(|id| arm.ranks.get(id).copied())
            .collect(),
        no_match: arm.hits.is_empty(),
        degraded: false,
        worth: worth.clone(),
        values: Some(arm.values.clone()),
    }
}

/// The queries of a report as a request would have them, with all that is judged.
pub fn pasted(report: &Report) -> Vec<PastedQuery> {
    let query = |query: &QueryReport| {
        let (relevant, worth) = relevant_of(query, 0.0);
        let zeros = query.judged.iter().filter(|(_, grade)| **grade <= 0.0);
        PastedQuery {
            id: query.id.clone(),
            text: query.query.clone(),
            source: query.source.clone(),
            relevant: Some(relevant),
            worth,
            irrelevant: zeros.map(|(id, _)| id.clone()).collect(),
            order: query.order.clone(),
        }
    };
    report.per_query.iter().map(query).collect()
}

/// What in a report cannot be: a mean that its queries do not have, a rank that no search gives.
///
/// # Errors
/// The place and the values.
pub fn check(report: &Report) -> Result<(), String> {
    if report.per_query.len() != report.queries {
        return Err(format!(
            "it says {} queries and has {} in per_query",
            report.queries,
            report.per_query.len()
        ));
    }
    for query in &report.per_query {
        for (name, arm) in &query.arms {
            let mut ranks = arm.ranks.iter();
            if let Some((tool, rank)) = ranks.find(|(_, rank)| !(1..=MAX_RANK).contains(*rank)) {
                return Err(format!(
                    "query {:?} has the rank {rank} for {tool:?} in the arm {name:?}; ranks are 1 to {MAX_RANK}",
                    query.id
                ));
            }
        }
    }
    for arm in &report.arms {
        for (metric, mean) in &arm.means.0 {
            let queries = report.per_query.iter();
            let values: Vec<f64> = queries
                .map(|query| query.value(&arm.name, *metric))
                .collect();
            let of_queries = metrics::mean(&values);
            let differs = (of_queries - mean).abs() > ROUNDING;
            if differs || mean.is_nan() {
                return Err(format!(
                    "{metric} of the arm {:?} is {mean}, and the mean of its queries is {of_queries}",
                    arm.name
                ));
            }
        }
    }
    Ok(())
}

fn is_judged(query: &AnsweredQuery) -> bool {
    query.relevant.as_ref().is_some_and(|ids| !ids.is_empty())
}

fn query_report(query: &AnsweredQuery, number: usize, arms: &[(&str, &Scores)]) -> QueryReport {
    let relevant = query.relevant.as_deref().unwrap_or_default();
    let worth = query.answers.first().map(|answer| answer.worth.clone());
    let judgements = worth.unwrap_or_default().judgements(relevant.len());
    let ids = |group: &Vec<usize>| -> Vec<String> {
        let ids = group.iter().filter_map(|tool| relevant.get(*tool));
        ids.cloned().collect()
    };
    let answers = arms.iter().zip(&query.answers);
    QueryReport {
        id: query.id.clone(),
        query: query.text.clone(),
        source: query.source.clone(),
        judged: relevant.iter().cloned().zip(judgements.grades).collect(),
        groups: judgements.groups.iter().map(ids).collect(),
        order: Vec::new(),
        arms: answers
            .map(|((name, scores), answer)| {
                let values = per_query::values(scores, number);
                ((*name).to_owned(), of_arm(answer, relevant, values))
            })
            .collect(),
    }
}

fn of_arm(
    answer: &Answer,
    relevant: &[String],
    values: BTreeMap<String, Option<f64>>,
) -> QueryOfArm {
    let ranks = relevant.iter().zip(&answer.ranks);
    let hits = answer.hits.iter().enumerate();
    QueryOfArm {
        values,
        ranks: ranks
            .filter_map(|(id, rank)| Some((id.clone(), (*rank)?)))
            .collect(),
        hits: hits
            .map(|(place, id)| ScoredHit {
                id: id.clone(),
                score: answer.scores.get(place).copied().map(f64::from),
            })
            .collect(),
    }
}
