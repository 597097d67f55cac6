//! Pages of the queries of an evaluation.

use std::cmp::Ordering;

use super::super::error::{ApiError, ApiResult};
use super::super::paging;
use super::compare::{Against, main_metric};
use super::store::Evaluated;
use super::wire::{AnswerBefore, QueriesParams, QueryAnswer, QueryPage, QueryRow, QuerySort};
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
    let mut rows: Vec<Compared<'_>> = evaluated
        .queries
        .iter()
        .enumerate()
        .filter_map(|(index, query)| {
            let answer = query.answers.get(arm)?;
            let before = before.of(query, arm);
            Some(Compared::new(index, query, answer, before, metric))
        })
        .filter(|row| params.changed != Some(true) || row.is_changed())
        .collect();
    match params.sort.unwrap_or_default() {
        // Stable sorts: equal ones stay in the order of the queries.
        QuerySort::Loss => rows.sort_by(|a, b| a.by_loss(b)),
        QuerySort::Change => rows.sort_by(|a, b| a.by_change(b)),
        QuerySort::Order => {}
    }
    let end = start.saturating_add(limit).min(rows.len());
    let chosen = rows.get(start..end).unwrap_or_default();
    let queries = chosen
        .iter()
        .map(|row| row_of(row, metric, |arm| before.of(row.query, arm)))
        .collect();
    Ok(QueryPage {
        queries,
        next_cursor: (end < rows.len()).then(|| paging::cursor_after(&end)),
        total: rows.len(),
        against: against.id().map(str::to_owned),
    })
}

fn arm_of(evaluated: &Evaluated, named: Option<&str>) -> ApiResult<usize> {
    let arms = &evaluated.evaluation.arms;
    let Some(named) = named else { return Ok(0) };
    arms.iter()
        .position(|arm| arm.name == named)
        .ok_or_else(|| {
            let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
            let message = format!(
                "arm is {named:?}, this evaluation has {}",
                names.join(" and ")
            );
            ApiError::unprocessable("invalid_value", message)
        })
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
        let score = answer.score(metric);
        let earlier = before.and_then(|before| before.score(metric));
        Compared {
            index,
            query,
            score,
            difference: score.zip(earlier).map(|(now, before)| now - before),
            overlap: before.map(|before| answer.overlap(before)),
            has_other_hits: before.is_some_and(|before| !answer.has_hits_of(before)),
        }
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
        let drop = |row: &Self| row.difference.unwrap_or(0.0);
        drop(self)
            .total_cmp(&drop(other))
            .then_with(|| least_first(self.overlap, other.overlap))
    }
}

fn least_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn row_of<'a>(
    row: &Compared<'_>,
    metric: Metric,
    before: impl Fn(usize) -> Option<&'a Answer>,
) -> QueryRow {
    let answers = row.query.answers.iter().enumerate();
    QueryRow {
        number: row.index + 1,
        id: row.query.id.clone(),
        query: row.query.text.clone(),
        relevant: row.query.relevant.clone(),
        arms: answers
            .map(|(arm, answer)| answer_of(answer, before(arm), metric))
            .collect(),
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
