//! What is wrong with a step of a plan.

use thiserror::Error;

use super::{MAX_ARGUMENT_BYTES, MAX_PLAN_BYTES, QUOTED_CHARS};
use crate::tools::arguments::ArgumentsError;
use toolscout_base::printable::excerpt;

/// Why a step cannot be executed as it is written, in words for the model.
#[derive(Debug, Error)]
pub enum StepError {
    /// It is no object, but this.
    #[error("{0} is not an action")]
    NotAnAction(String),
    /// It names no tool.
    #[error("it has no `action`; name a tool")]
    NoAction,
    /// Its arguments are no object, but this.
    #[error("`arguments` must be an object, not {0}")]
    NotAnObject(String),
    /// Its arguments are a text that cannot be read.
    #[error(transparent)]
    Arguments(#[from] ArgumentsError),
    /// It refers to a step that is not there.
    #[error(
        "it refers to step {name:?}, which the plan does not have",
        name = excerpt(.0, QUOTED_CHARS)
    )]
    UnknownStep(String),
    /// It refers to itself.
    #[error("it refers to its own result")]
    OwnResult,
    /// It refers to a step after it.
    #[error("it refers to step {0}, which comes after it; steps run in order")]
    LaterStep(String),
    /// Its arguments become too long.
    #[error(
        "its arguments have more than {MAX_ARGUMENT_BYTES} bytes with the results in them; refer to parts of results"
    )]
    LongArguments,
    /// The arguments of the plan become too long.
    #[error(
        "the arguments of the plan's steps have more than {MAX_PLAN_BYTES} bytes with the results in them; make a \
         shorter plan"
    )]
    LongPlan,
    /// A result does not have what is referred to.
    #[error("the result of step {step} has no {path}")]
    NoValue {
        /// The step.
        step: String,
        /// The fields to what is missing.
        path: String,
    },
    /// A step has no result.
    #[error("step {0} has no result")]
    NoResult(String),
}

/// A name that is none of [`super::OnInvalidStep`].
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{name:?} is not one of {known}", known = super::OnInvalidStep::NAMES.join(", "))]
pub struct UnknownChoice {
    pub(super) name: String,
}
