//! What an evaluation is compared with.

use super::files::{Evaluated, EvaluationFiles};
use super::wire::{AgainstBody, ArmChange};
use crate::request::error::{ApiError, ApiResult};
use toolscout_eval::answered::{Answer, AnsweredQuery, Change, Earlier, change};
use toolscout_eval::metrics::{Metric, headline};

/// What an evaluation is compared with.
pub enum Against {
    /// Nothing.
    Nothing,
    /// Arm `b` with arm `a` of the same evaluation.
    ArmA,
    /// Each arm with its counterpart in another one.
    Other {
        /// The other one.
        other: Box<Evaluated>,
        /// For each arm the position of its counterpart, if it has one.
        arms: Vec<Option<usize>>,
    },
}

impl Against {
    /// What a request names; the last evaluation before over the same queries if it names nothing.
    ///
    /// # Errors
    /// 404 for an unknown evaluation.
    pub fn find(
        store: &EvaluationFiles,
        evaluated: &Evaluated,
        named: Option<&str>,
    ) -> ApiResult<Self> {
        match named.unwrap_or("last") {
            "none" => Ok(Against::Nothing),
            "a" => Ok(Against::ArmA),
            "last" => {
                let Some(id) = store.before(&evaluated.evaluation)? else {
                    return Ok(Against::Nothing);
                };
                match store.load(&id) {
                    Ok(other) => Ok(Against::other(evaluated, other)),
                    // It may be deleted at this moment.
                    Err(_) => Ok(Against::Nothing),
                }
            }
            id => Ok(Against::other(evaluated, store.load(id)?)),
        }
    }

    fn other(evaluated: &Evaluated, other: Evaluated) -> Self {
        Against::Other {
            arms: evaluated.evaluation.counterparts(&other.evaluation),
            other: Box::new(other),
        }
    }

    /// The id of the other evaluation.
    pub fn id(&self) -> Option<&str> {
        match self {
            Against::Other { other, .. } => Some(&other.evaluation.id),
            _ => None,
        }
    }

    /// How arm `b` differs from arm `a`, whatever else is compared.
    pub fn between_arms(&self, evaluated: &Evaluated) -> Option<Change> {
        let mut pairs: Vec<(&Answer, &Answer)> = Vec::new();
        for query in &evaluated.queries {
            if let [a, b, ..] = &query.answers[..] {
                pairs.push((b, a));
            }
        }
        match pairs.is_empty() {
            true => None,
            false => Some(change(&pairs, &metrics(evaluated))),
        }
    }

    /// How an evaluation differs from the other one.
    ///
    /// # Errors
    /// 422 where the two have no arm or no query in common.
    pub fn body(&self, evaluated: &Evaluated) -> ApiResult<Option<AgainstBody>> {
        let Against::Other { other, arms } = self else {
            return Ok(None);
        };
        let earlier = Earlier::new(&other.queries);
        // Only metrics that both evaluations have can be compared.
        let of_other = metrics(other);
        let mut metrics = metrics(evaluated);
        metrics.retain(|metric| of_other.contains(metric));
        let mut changes = Vec::new();
        for (arm, counterpart) in arms.iter().enumerate() {
            let Some(counterpart) = *counterpart else {
                continue;
            };
            let mut pairs: Vec<(&Answer, &Answer)> = Vec::new();
            for query in &evaluated.queries {
                if let Some(before) = earlier.answer(query, counterpart)
                    && let Some(answer) = query.answers.get(arm)
                {
                    pairs.push((answer, before));
                }
            }
            if pairs.is_empty() {
                let message = format!(
                    "the evaluations {} and {} have no query with the same judgement in common; compare others, or use against=none",
                    evaluated.evaluation.id, other.evaluation.id
                );
                return Err(ApiError::unprocessable("nothing_in_common", message));
            }
            changes.push(ArmChange {
                arm: evaluated.evaluation.arms[arm].name.clone(),
                other: other.evaluation.arms[counterpart].name.clone(),
                change: change(&pairs, &metrics).into(),
            });
        }
        if changes.is_empty() {
            let message = format!(
                "the arms of {} are {}, and those of {} are {}, so none is compared; compare evaluations with an arm of the \
                 same name, or use against=none",
                evaluated.evaluation.id,
                evaluated.evaluation.report_names().join(", "),
                other.evaluation.id,
                other.evaluation.report_names().join(", ")
            );
            return Err(ApiError::unprocessable("nothing_in_common", message));
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
            Against::Other { other, arms } => Before::Other {
                earlier: Earlier::new(&other.queries),
                arms,
            },
        }
    }
}

/// Looks up what an answer is compared with.
pub enum Before<'a> {
    Nothing,
    ArmA,
    Other {
        earlier: Earlier<'a>,
        arms: &'a [Option<usize>],
    },
}

impl<'a> Before<'a> {
    /// What the answer of an arm to a query is compared with.
    pub fn of<'q: 'a>(&self, query: &'q AnsweredQuery, arm: usize) -> Option<&'a Answer> {
        match self {
            Before::Nothing => None,
            Before::ArmA => query.answers.first().filter(|_| arm > 0),
            Before::Other { earlier, arms } => {
                earlier.answer(query, arms.get(arm).copied().flatten()?)
            }
        }
    }
}

/// Every metric of an evaluation.
pub fn metrics(evaluated: &Evaluated) -> Vec<Metric> {
    match &evaluated.report {
        None => Metric::all(&evaluated.evaluation.depths),
        Some(report) => match report.arms.first() {
            Some(arm) => arm.means.metrics(),
            None => Vec::new(),
        },
    }
}

/// Its main metric.
pub fn main_metric(evaluated: &Evaluated) -> Metric {
    headline(&metrics(evaluated))
}
