//! The report of queries that a server has asked: the one that the command line writes of the same
//! queries.

use std::collections::BTreeMap;

use super::answered::{Answer, AnsweredQuery, SEED, scores};
use super::judge::Scores;
use super::latency::Latency;
use super::metrics::Metric;
use super::per_query::{self, QueryOfArm, QueryReport, ScoredHit};
use super::report::{ArmReport, Report, by_source, comparisons};
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
