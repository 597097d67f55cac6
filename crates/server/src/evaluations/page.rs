//! Pages of the queries of an evaluation.

use std::cmp::Ordering;

use super::compare::{Against, main_metric};
use super::files::Evaluated;
use super::wire::{AnswerBefore, QueriesParams, QueryAnswer, QueryPage, QueryRow, QuerySort};
use crate::request::error::{ApiError, ApiResult};
use crate::request::paging;
use toolscout_eval::answered::{Answer, AnsweredQuery};
use toolscout_eval::metrics::Metric;

/// Lists the queries that pass the filter, in the order of the request.
///
/// # Errors
/// 422 for an unknown arm, or a limit out of its range.
pub fn page(
    evaluated: &Evaluated,
    against: &Against,
    params: &QueriesParams,
) -> ApiResult<QueryPage> {
    let limit = paging::limit(params.limit)?;
    // An evaluation does not change, so a position stays valid.
    let start: usize = paging::after(params.cursor.as_deref())?.unwrap_or(0);
    let arm = arm_of(evaluated, params.arm.as_deref())?;
    let (metric, before) = (main_metric(evaluated), against.answers());
    let mut rows: Vec<Compared<'_>> = Vec::new();
    for (index, query) in evaluated.queries.iter().enumerate() {
        let Some(answer) = query.answers.get(arm) else {
            continue;
        };
        let row = Compared::new(index, query, answer, before.of(query, arm), metric);
        if params.changed != Some(true) || row.is_changed() {
            rows.push(row);
        }
    }
    match params.sort.unwrap_or_default() {
        // Stable sorts: equal ones stay in the order of the queries.
        QuerySort::Loss => rows.sort_by(|a, b| a.by_loss(b)),
        QuerySort::Change => rows.sort_by(|a, b| a.by_change(b)),
        QuerySort::Order => {}
    }
    let end = start.saturating_add(limit).min(rows.len());
    let chosen = rows.get(start..end).unwrap_or_default();
    let mut queries = Vec::with_capacity(chosen.len());
    for row in chosen {
        queries.push(row_of(row, metric, |arm| before.of(row.query, arm)));
    }
    Ok(QueryPage {
        queries,
        next_cursor: match end < rows.len() {
            true => Some(paging::cursor_after(&end)),
            false => None,
        },
        total: rows.len(),
        against: against.id().map(str::to_owned),
    })
}

fn arm_of(evaluated: &Evaluated, named: Option<&str>) -> ApiResult<usize> {
    let arms = &evaluated.evaluation.arms;
    let Some(named) = named else { return Ok(0) };
    if let Some(place) = arms.iter().position(|arm| arm.name == named) {
        return Ok(place);
    }
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    let message = format!(
        "arm is {named:?}, this evaluation has {}",
        names.join(" and ")
    );
    Err(ApiError::unprocessable("invalid_value", message))
}

/// A query with the answer of the arm that it is sorted by.
struct Compared<'a> {
    index: usize,
    query: &'a AnsweredQuery,
    score: Option<f64>,
    /// Now minus before.
    difference: Option<f64>,
    overlap: Option<f64>,
    has_other_hits: bool,
}

impl<'a> Compared<'a> {
    fn new(
        index: usize,
        query: &'a AnsweredQuery,
        answer: &Answer,
        before: Option<&Answer>,
        metric: Metric,
    ) -> Self {
        let mut row = Compared {
            index,
            query,
            score: answer.score(metric),
            difference: None,
            overlap: None,
            has_other_hits: false,
        };
        let Some(before) = before else { return row };
        // A query that was not judged has no score, and then there is no difference.
        if let (Some(now), Some(earlier)) = (row.score, before.score(metric)) {
            row.difference = Some(now - earlier);
        }
        row.overlap = Some(answer.overlap(before));
        row.has_other_hits = !answer.has_hits_of(before);
        row
    }

    fn is_changed(&self) -> bool {
        self.has_other_hits || self.difference.is_some_and(|difference| difference != 0.0)
    }

    /// Lowest score first; queries without one last.
    fn by_loss(&self, other: &Self) -> Ordering {
        least_first(self.score, other.score)
    }

    /// Largest drop first, then the least common hits, then the rest.
    fn by_change(&self, other: &Self) -> Ordering {
        // A query without judgement has not dropped.
        let (one, two) = (self.difference, other.difference);
        one.unwrap_or(0.0)
            .total_cmp(&two.unwrap_or(0.0))
            .then(least_first(self.overlap, other.overlap))
    }
}

fn least_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        // `false` sorts before `true`, so a value comes before `None`.
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn row_of<'a>(
    row: &Compared<'_>,
    metric: Metric,
    before: impl Fn(usize) -> Option<&'a Answer>,
) -> QueryRow {
    let mut arms = Vec::with_capacity(row.query.answers.len());
    for (arm, answer) in row.query.answers.iter().enumerate() {
        arms.push(answer_of(answer, before(arm), metric));
    }
    QueryRow {
        number: row.index + 1,
        id: row.query.id.clone(),
        query: row.query.text.clone(),
        relevant: row.query.relevant.clone(),
        arms,
    }
}

fn answer_of(answer: &Answer, before: Option<&Answer>, metric: Metric) -> QueryAnswer {
    QueryAnswer {
        score: answer.score(metric),
        ranks: answer.ranks.clone(),
        hits: answer.hits.clone(),
        no_match: answer.no_match,
        degraded: answer.degraded,
        before: before.map(|before| AnswerBefore {
            score: before.score(metric),
            ranks: before.ranks.clone(),
            hits: before.hits.clone(),
            overlap: answer.overlap(before),
            first_changed: answer.hits.first() != before.hits.first(),
        }),
    }
}
