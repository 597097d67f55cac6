//! What an evaluation is compared with.

use super::super::error::{ApiError, ApiResult};
use super::store::{Evaluated, Store};
use super::wire::AgainstBody;
use crate::eval::answered::{Answer, AnsweredQuery, Change, Earlier, change};
use crate::eval::metrics::{Metric, headline};

/// What an evaluation is compared with.
pub enum Against {
    /// Nothing.
    Nothing,
    /// Arm `b` with arm `a` of the same evaluation.
    ArmA,
    /// Each arm with the same arm of another one.
    Other(Box<Evaluated>),
}

impl Against {
    /// What a request names; the last evaluation before over the same queries if it names nothing.
    ///
    /// # Errors
    /// 404 for an unknown evaluation.
    pub fn find(store: &Store, evaluated: &Evaluated, named: Option<&str>) -> ApiResult<Self> {
        match named.unwrap_or("last") {
            "none" => Ok(Against::Nothing),
            "a" => Ok(Against::ArmA),
            "last" => Ok(match store.before(&evaluated.evaluation)? {
                // It may be deleted at this moment.
                Some(id) => store
                    .load(&id)
                    .map_or(Against::Nothing, |other| Against::Other(Box::new(other))),
                None => Against::Nothing,
            }),
            id => store.load(id).map(|other| Against::Other(Box::new(other))),
        }
    }

    /// The id of the other evaluation.
    pub fn id(&self) -> Option<&str> {
        match self {
            Against::Other(other) => Some(&other.evaluation.id),
            _ => None,
        }
    }

    /// How arm `b` differs from arm `a`, whatever else is compared.
    pub fn between_arms(&self, evaluated: &Evaluated) -> Option<Change> {
        let pairs: Vec<(&Answer, &Answer)> = evaluated
            .queries
            .iter()
            .filter_map(|query| Some((query.answers.get(1)?, query.answers.first()?)))
            .collect();
        (!pairs.is_empty()).then(|| change(&pairs, &metrics(evaluated)))
    }

    /// How an evaluation differs from the other one.
    ///
    /// # Errors
    /// 422 where the two have no query in common.
    pub fn body(&self, evaluated: &Evaluated) -> ApiResult<Option<AgainstBody>> {
        let Against::Other(other) = self else {
            return Ok(None);
        };
        let earlier = Earlier::new(&other.queries);
        let metrics = metrics(evaluated);
        let arms = evaluated.evaluation.arms.len();
        let mut changes = Vec::new();
        for arm in 0..arms.min(other.evaluation.arms.len()) {
            let pairs: Vec<(&Answer, &Answer)> = evaluated
                .queries
                .iter()
                .filter_map(|query| Some((query.answers.get(arm)?, earlier.answer(query, arm)?)))
                .collect();
            if pairs.is_empty() {
                let message = format!(
                    "the evaluations {} and {} have no query with the same judgement in common; compare others, or use against=none",
                    evaluated.evaluation.id, other.evaluation.id
                );
                return Err(ApiError::unprocessable("nothing_in_common", message));
            }
            changes.push(change(&pairs, &metrics).into());
        }
        Ok(Some(AgainstBody {
            evaluation: other.evaluation.clone(),
            arms: changes,
        }))
    }

    /// Looks up what each answer is compared with.
    pub fn answers(&self) -> Before<'_> {
        match self {
            Against::Nothing => Before::Nothing,
            Against::ArmA => Before::ArmA,
            Against::Other(other) => Before::Other(Earlier::new(&other.queries)),
        }
    }
}

/// Looks up what an answer is compared with.
pub enum Before<'a> {
    Nothing,
    ArmA,
    Other(Earlier<'a>),
}

impl<'a> Before<'a> {
    /// What the answer of an arm to a query is compared with.
    pub fn of<'q: 'a>(&self, query: &'q AnsweredQuery, arm: usize) -> Option<&'a Answer> {
        match self {
            Before::Nothing => None,
            Before::ArmA => query.answers.first().filter(|_| arm > 0),
            Before::Other(earlier) => earlier.answer(query, arm),
        }
    }
}

/// Every metric of an evaluation.
pub fn metrics(evaluated: &Evaluated) -> Vec<Metric> {
    Metric::all(&evaluated.evaluation.depths)
}

/// Its main metric.
pub fn main_metric(evaluated: &Evaluated) -> Metric {
    headline(&metrics(evaluated))
}
