//! The report of an evaluation, as the command line writes it, and its page.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::compare::metrics;
use super::files::Evaluated;
use super::wire::latency;
use crate::request::error::{ApiError, ApiResult};
use toolscout_base::known_secrets;
use toolscout_eval::dataset::LeftOut;
use toolscout_eval::reported::{AnsweredArm, report_of};
use toolscout_eval::{Report, html};

/// A page of a report has a style sheet of its own and loads nothing.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
);

/// The report of an evaluation of the catalog with this name; one that was sent as it came.
///
/// # Errors
/// 422 for an evaluation without judged queries.
pub fn of(evaluated: &Evaluated, catalog: &str) -> ApiResult<Report> {
    if let Some(report) = &evaluated.report {
        return Ok(report.clone());
    }
    let evaluation = &evaluated.evaluation;
    let counts = evaluation.queries;
    if counts.judged == 0 {
        let message = "none of the queries names relevant tools, so there are no figures to report; judge some of them";
        return Err(ApiError::unprocessable("not_judged", message.to_owned()));
    }
    let mut arms = Vec::with_capacity(evaluation.arms.len());
    for (name, arm) in evaluation.report_names().into_iter().zip(&evaluation.arms) {
        let latency = latency(&arm.latency, counts.total);
        arms.push(AnsweredArm { name, latency });
    }
    let facts = Report {
        set: catalog.to_owned(),
        tools: evaluation.tools,
        embedder: evaluation.embedder.clone(),
        fingerprint: evaluation.set_fingerprint.clone(),
        left_out: LeftOut {
            unjudged_queries: counts.unjudged,
            ..LeftOut::default()
        },
        trained_on: evaluation.trained_on,
        tuned_on: evaluation.tuned_on,
        version: evaluation.version.clone(),
        ..Report::default()
    };
    Ok(report_of(
        facts,
        &evaluated.queries,
        &arms,
        &metrics(evaluated),
    ))
}

/// The page of a report. Secrets in it are masked here, because pages are not masked elsewhere.
pub fn page(report: &Report) -> Response {
    let page = html::page(std::slice::from_ref(report));
    let page = known_secrets::mask(&page).into_owned();
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    (StatusCode::OK, headers, page).into_response()
}
