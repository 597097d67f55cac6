//! Reports that clients send, which are kept beside the server's own evaluations.

use std::collections::BTreeSet;
use std::time::SystemTime;

use serde::Deserialize;
use toolscout_index::{Tool, ToolId};
use uuid::Uuid;

use super::super::served::OpenCatalog;
use super::files::Evaluated;
use super::run::counts;
use super::wire::{ArmFigures, Evaluation, EvaluationSource, SentParams, SentReport, stages};
use super::{MAX_QUERIES, check_name};
use crate::request::error::{ApiError, ApiResult};
use toolscout_base::clock::unix_ms;
use toolscout_eval::answered::{AnsweredQuery, figures, fingerprint};
use toolscout_eval::metrics::{Metric, headline};
use toolscout_eval::report::{ArmReport, FORMAT, ReportProblem, check_format};
use toolscout_eval::reported::{answered, check, pasted};
use toolscout_eval::{EvalSet, Report};

/// Most bytes of a report: those that are kept of an evaluation.
pub const MAX_BODY_BYTES: usize = 32 << 20;
/// Most arms of a report.
const MAX_ARMS: usize = 20;
/// Unknown tools and sets that a message names.
const NAMED: usize = 5;

/// A report as it is sent.
#[derive(Deserialize)]
pub struct SentFile {
    #[serde(default = "current")]
    format: u64,
    sets: Vec<Report>,
}

fn current() -> u64 {
    FORMAT.into()
}

/// The evaluation that a report is kept as.
///
/// # Errors
/// 422 for a report that cannot be read, contradicts itself, is too large, or is of another catalog.
pub fn evaluated(
    file: SentFile,
    params: SentParams,
    sender: String,
    catalog: &OpenCatalog,
) -> ApiResult<Evaluated> {
    check_name(params.name.as_deref())?;
    check_format(file.format).map_err(invalid)?;
    let report = chosen(file.sets, params.set.as_deref())?;
    // The size is checked first, so that no time is spent on a report that is too large.
    check_size(&report)?;
    check(&report).map_err(invalid)?;
    let searcher = catalog.searcher();
    let sent = SentReport {
        by: sender,
        set: report.set.clone(),
        remarks: remarks(&report, catalog)?,
    };
    let queries = answered(&report);
    // All arms of a report have the same metrics.
    let metrics = match report.arms.first() {
        Some(arm) => arm.means.metrics(),
        None => Vec::new(),
    };
    let mut arms = Vec::with_capacity(report.arms.len());
    for (place, arm) in report.arms.iter().enumerate() {
        arms.push(arm_figures(arm, place, &queries, &metrics));
    }
    let evaluation = Evaluation {
        id: Uuid::now_v7().to_string(),
        name: params.name.unwrap_or_else(|| report.set.clone()),
        source: EvaluationSource::Sent,
        sent: Some(sent),
        created_at_ms: unix_ms(SystemTime::now()),
        generation: searcher.generation(),
        changed_meanwhile: false,
        tools: report.tools,
        pending_embeddings: 0,
        version: report.version.clone(),
        fingerprint: fingerprint(&queries),
        set_fingerprint: report.fingerprint.clone(),
        embedder: report.embedder.clone(),
        trained_on: report.trained_on,
        tuned_on: report.tuned_on,
        depths: depths(&metrics),
        main_metric: headline(&metrics).to_string(),
        queries: counts(&queries),
        arms,
    };
    Ok(Evaluated {
        evaluation,
        queries,
        report: Some(report),
    })
}

fn invalid(reason: ReportProblem) -> ApiError {
    let message = format!(
        "this is not a report of `toolscout eval --json` as it was written: {reason}; send the file as it is"
    );
    ApiError::unprocessable("invalid_report", message)
}

/// The set that is asked for, or the only one.
fn chosen(mut sets: Vec<Report>, named: Option<&str>) -> ApiResult<Report> {
    // A report may have hundreds of sets, so the message names only some.
    let names: Vec<String> = sets.iter().take(NAMED).map(|set| set.set.clone()).collect();
    let names = names.join(", ");
    let place = match named {
        Some(named) => sets.iter().position(|report| report.set == named),
        None if sets.len() > 1 => {
            let message = format!(
                "the report has {} sets, and one is kept at a time; choose with ?set=NAME, such as {names}",
                sets.len()
            );
            return Err(ApiError::unprocessable("several_sets", message));
        }
        None if sets.is_empty() => None,
        None => Some(0),
    };
    match place {
        Some(place) => Ok(sets.swap_remove(place)),
        None if sets.is_empty() => Err(invalid(ReportProblem::NoSet)),
        None => {
            let message = format!(
                "set is {:?}, and the report has {names}",
                named.unwrap_or_default()
            );
            Err(ApiError::unprocessable("invalid_value", message))
        }
    }
}

fn check_size(report: &Report) -> ApiResult<()> {
    let (queries, arms) = (report.per_query.len(), report.arms.len());
    let message = if queries > MAX_QUERIES {
        format!(
            "the report has {queries} queries, {MAX_QUERIES} are kept at most; measure a sample with --queries {MAX_QUERIES}"
        )
    } else if !(1..=MAX_ARMS).contains(&arms) {
        format!("the report has {arms} arms, 1 to {MAX_ARMS} are kept; measure fewer with --arms")
    } else {
        return Ok(());
    };
    Err(ApiError::unprocessable("report_too_large", message))
}

/// How the catalog differs from what was measured.
fn remarks(report: &Report, catalog: &OpenCatalog) -> ApiResult<Vec<String>> {
    if !catalog.has_all_tools() {
        let remark =
            "The tools of this catalog are in the store; the report was not compared with them.";
        return Ok(vec![remark.to_owned()]);
    }
    let mut remarks = Vec::new();
    let searcher = catalog.searcher();
    // A difference is no error: the catalog may have changed since it was measured.
    if searcher.tool_count() != report.tools {
        remarks.push(format!(
            "The report is of {} tools, and the catalog has {}.",
            report.tools,
            searcher.tool_count()
        ));
    }
    remarks.extend(unknown_tools(report, catalog)?);
    if report.embedder != searcher.embedder_ids() {
        remarks.push(format!(
            "The report was measured with the embedder {}, and the catalog has {}.",
            report.embedder,
            searcher.embedder_ids()
        ));
    }
    if remarks.is_empty() && report.relevant_from == 0.0 && !has_same_digest(report, catalog) {
        remarks.push(
            "The digest of tools and judgements is not the one of this catalog: definitions differ, or the set has queries \
             that no tool can serve, which a report does not list."
                .to_owned(),
        );
    }
    if let Some(reason) = &report.unfinished {
        remarks.push(format!("The measurement is not finished: {reason}."));
    }
    Ok(remarks)
}

/// Says which judged tools the catalog does not have.
fn unknown_tools(report: &Report, catalog: &OpenCatalog) -> ApiResult<Option<String>> {
    let searcher = catalog.searcher();
    let mut judged: BTreeSet<&str> = BTreeSet::new();
    for query in &report.per_query {
        judged.extend(query.judged.keys().map(String::as_str));
    }
    let mut unknown: Vec<&str> = judged.iter().copied().collect();
    unknown.retain(|id| !ToolId::parse(id).is_ok_and(|id| searcher.has(&id)));
    if unknown.is_empty() {
        return Ok(None);
    }
    // Some tools may have been removed since. If none is left, the report is of another catalog.
    if unknown.len() == judged.len() {
        let message = format!(
            "none of the {} judged tools is in the catalog {:?}, such as {}; send the report to the catalog that it is of",
            judged.len(),
            catalog.name,
            named(&unknown)
        );
        return Err(ApiError::unprocessable(
            "report_of_another_catalog",
            message,
        ));
    }
    Ok(Some(format!(
        "The catalog does not have {} of {} judged tools: {}.",
        unknown.len(),
        judged.len(),
        named(&unknown)
    )))
}

/// Whether the catalog with the queries of the report has the digest of the report. It is of all definitions,
/// which a report does not have.
fn has_same_digest(report: &Report, catalog: &OpenCatalog) -> bool {
    let searcher = catalog.searcher();
    let tools = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
    match EvalSet::of_pasted(&catalog.name, tools, &pasted(report)) {
        Ok(set) => set.fingerprint() == report.fingerprint,
        Err(_) => false,
    }
}

fn named(ids: &[&str]) -> String {
    let shown = ids.iter().take(NAMED).copied();
    let more = (ids.len() > NAMED).then_some("…");
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// The cut-offs of these metrics, ascending.
fn depths(metrics: &[Metric]) -> Vec<usize> {
    let mut depths: Vec<usize> = metrics.iter().filter_map(|metric| metric.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

fn arm_figures(
    arm: &ArmReport,
    place: usize,
    queries: &[AnsweredQuery],
    metrics: &[Metric],
) -> ArmFigures {
    ArmFigures {
        name: arm.name.clone(),
        search: None,
        figures: figures(queries, place, metrics),
        abstained: arm.abstained,
        no_tool_abstained: 0,
        degraded: arm.degraded,
        latency: arm.latency.as_ref().map(stages).unwrap_or_default(),
    }
}
