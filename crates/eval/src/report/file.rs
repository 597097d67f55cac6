//! Files of reports.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use utoipa::ToSchema;

use super::Report;
use crate::error::{EvalError, Result, read_text};
use crate::metrics::Metric;

/// The version of the shape of a report. A later one cannot be read.
pub const FORMAT: u32 = 1;

/// A file of reports: one shape for one set and for several.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationReportFile)]
pub struct ReportFile {
    /// Version of the shape of the reports: 1, also without it.
    #[serde(default = "format")]
    pub format: u32,
    /// Version of the program that wrote it.
    #[serde(default)]
    pub version: String,
    /// The reports.
    pub sets: Vec<Report>,
}

fn format() -> u32 {
    FORMAT
}

/// Refuses a report of a later shape.
///
/// # Errors
/// [`ReportProblem::LaterFormat`].
pub fn check_format(format: u64) -> Result<(), ReportProblem> {
    if format <= u64::from(FORMAT) {
        return Ok(());
    }
    Err(ReportProblem::LaterFormat(format))
}

/// What is wrong with a report.
#[derive(Debug, Error)]
pub enum ReportProblem {
    /// A later version wrote it.
    #[error("it has the format {0}, and this version reads up to {FORMAT}; use a newer version")]
    LaterFormat(u64),
    /// It is no JSON, or not that of a report.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is neither an object nor a list.
    #[error("it is no object")]
    NoObject,
    /// Its sets are no list.
    #[error("`sets` is no list")]
    SetsAreNoList,
    /// It has no set.
    #[error("it has no set")]
    NoSet,
    /// It does not have the queries that it says.
    #[error("it says {said} queries and has {found} in per_query")]
    Queries {
        /// The number that it says.
        said: usize,
        /// The queries that it has.
        found: usize,
    },
    /// No search gives this rank.
    #[error(
        "query {query:?} has the rank {rank} for {tool:?} in the arm {arm:?}; ranks are 1 to {most}"
    )]
    Rank {
        /// The query's id.
        query: String,
        /// The arm.
        arm: String,
        /// The tool.
        tool: String,
        /// Its rank.
        rank: usize,
        /// The last rank that a search gives.
        most: usize,
    },
    /// A mean is not that of the queries.
    #[error("{metric} of the arm {arm:?} is {mean}, and the mean of its queries is {of_queries}")]
    Mean {
        /// The metric.
        metric: Metric,
        /// The arm.
        arm: String,
        /// The mean that the report has.
        mean: f64,
        /// The mean of its queries.
        of_queries: f64,
    },
}

/// A file of reports of any kind.
#[derive(Serialize)]
struct File<'a, T> {
    format: u32,
    version: &'static str,
    /// Why sets are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<&'a str>,
    sets: &'a [T],
}

/// The JSON of a file of reports. `unfinished` says why sets are missing.
///
/// # Errors
/// None that these types have.
pub fn to_json<T: Serialize>(
    reports: &[T],
    unfinished: Option<&str>,
) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&File {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        unfinished,
        sets: reports,
    })
}

/// Reads a file of reports, also those of earlier versions: one report, or an array.
///
/// # Errors
/// [`EvalError::Io`], [`EvalError::Baseline`] for a file that has no reports.
pub fn read_reports(path: &Path) -> Result<Vec<Report>> {
    reports_of(read_json(path)?).map_err(|error| not_a_report(path, &error))
}

/// Reads a file of JSON.
///
/// # Errors
/// As [`read_reports`].
pub fn read_json(path: &Path) -> Result<Value> {
    let text = read_text(path)?;
    serde_json::from_str(&text).map_err(|error| not_a_report(path, &error.into()))
}

/// The reports of a JSON value, of any kind.
///
/// # Errors
/// [`ReportProblem`] for what is no report.
pub fn reports_of<T: DeserializeOwned>(value: Value) -> Result<Vec<T>, ReportProblem> {
    if let Some(format) = value.get("format").and_then(Value::as_u64) {
        check_format(format)?;
    }
    let sets = match value {
        // Earlier versions wrote an array, and one report without a list around it.
        Value::Array(reports) => reports,
        Value::Object(mut file) => match file.remove("sets") {
            Some(Value::Array(reports)) => reports,
            Some(_) => return Err(ReportProblem::SetsAreNoList),
            None => vec![Value::Object(file)],
        },
        _ => return Err(ReportProblem::NoObject),
    };
    if sets.is_empty() {
        return Err(ReportProblem::NoSet);
    }
    let mut reports = Vec::with_capacity(sets.len());
    for report in sets {
        reports.push(serde_json::from_value(report)?);
    }
    Ok(reports)
}

/// The error for a file without reports.
pub fn not_a_report(path: &Path, reason: &ReportProblem) -> EvalError {
    EvalError::Baseline {
        path: path.to_owned(),
        reason: format!(
            "it is not a report of `toolscout eval --json` ({reason}); write a new one"
        ),
    }
}
