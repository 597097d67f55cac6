//! Evaluations of a catalog: judged queries are searched for as a task, and the figures are kept
//! beside the catalog and compared with those of earlier evaluations.

mod kept_files;
pub mod judgings;
mod compare;
mod page;
mod report;
mod run;
mod sent;
mod files;
mod wire;

use std::sync::Arc;

use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolscout_index::{Searcher, ToolId};

use crate::access::{Grant, Reading, Writing};
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path, QueryString};
use crate::request::threads::blocking;
use crate::served::{OpenCatalog, ServedCatalogs};
use crate::tasks::{self, Tasks};
use compare::Against;
use files::{Evaluated, EvaluationFiles};
use run::Plan;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_eval::dataset::pasted;
use toolscout_eval::metrics::default_depths;
use toolscout_eval::report::{FORMAT, ReportFile};
use wire::{
    AgainstParams, Evaluation, EvaluationBody, EvaluationList, EvaluationRequest, QueriesParams,
    QueryPage, ReportFormat, ReportParams, SentParams,
};

pub use sent::MAX_BODY_BYTES as MAX_REPORT_BYTES;

/// Most bytes of a request.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// Most queries of an evaluation.
const MAX_QUERIES: usize = 5000;
/// Most evaluations at one time. Each makes one search after the other.
const MAX_RUNNING: usize = 2;
/// Longest name, in characters.
const MAX_NAME_CHARS: usize = 200;
/// Most bytes of the settings of an arm, as JSON.
const MAX_SETTINGS_BYTES: usize = 16 << 10;

/// What evaluations of all catalogs share.
pub struct Evaluations {
    running: Arc<Semaphore>,
    /// Held while a file is written, so that a draft that is found then is one left behind.
    writing: Mutex<()>,
    catalogs: Arc<ServedCatalogs>,
    cpu_pool: CpuPool,
    shutdown: Shutdown,
}

impl Evaluations {
    /// None yet, of these catalogs. Searches run on the threads of this pool until the shutdown.
    pub fn new(catalogs: Arc<ServedCatalogs>, cpu_pool: CpuPool, shutdown: Shutdown) -> Self {
        Evaluations {
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            writing: Mutex::default(),
            catalogs,
            cpu_pool,
            shutdown,
        }
    }

    /// A place among the running evaluations. It is taken before the body is read, so that the
    /// memory for bodies is bounded too.
    fn begin(&self) -> ApiResult<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() {
            return Ok(permit);
        }
        let message =
            format!("{MAX_RUNNING} evaluations are running, the maximum; wait for one to end");
        let status = StatusCode::TOO_MANY_REQUESTS;
        Err(ApiError::busy(status, "too_many_evaluations", message))
    }

    /// Stores an evaluation. Blocks.
    fn keep(&self, catalog: &OpenCatalog, evaluated: &Evaluated) -> ApiResult<()> {
        let _writing = self.writing.lock();
        EvaluationFiles::of(catalog).keep(evaluated)
    }
}

/// The path of an evaluation.
#[derive(Debug, Deserialize)]
pub struct EvaluationPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    id: String,
}

/// Lists the kept evaluations of a catalog, newest first.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/evaluations", operation_id = "list_evaluations", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = EvaluationList, description = "The evaluations"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Json<EvaluationList>> {
    let list = cpu_pool.run(move || {
        Ok(Json(EvaluationList {
            evaluations: EvaluationFiles::of(&catalog).list()?,
            current_generation: catalog.searcher().generation(),
        }))
    });
    list.await?
}

/// Evaluates a catalog as a task: searches for each query under one or two settings.
///
/// The task's `evaluation` is the id under which the result is kept once it has succeeded. The
/// newest 50 evaluations of a catalog are kept, and 64 MiB of them.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/evaluations", operation_id = "start_evaluation", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = EvaluationRequest,
    responses((status = 202, body = tasks::TaskBody, description = "The task that searches"))
)]
pub async fn start(
    Writing(catalog): Writing,
    State(evaluations): State<Arc<Evaluations>>,
    State(cpu_pool): State<CpuPool>,
    State(tasks): State<Arc<Tasks>>,
    request: Request,
) -> ApiResult<Response> {
    // The task holds the permit until it ends.
    let permit = evaluations.begin()?;
    let Json(request) = Json::<EvaluationRequest>::from_request(request, &()).await?;
    let reading = Arc::clone(&catalog);
    let plan = cpu_pool.run(move || plan_of(request, &reading));
    let plan = plan.await??;
    let (name, total) = (catalog.name.clone(), plan.searches());
    let task = tasks.start(&name, total, move |task| {
        // Set before the first search, so that the answer to the request already has the id.
        task.update(|body| body.evaluation = Some(plan.id()));
        async move {
            let _permit = permit;
            evaluations.run(catalog, plan, &task).await
        }
    })?;
    Ok(tasks.accepted(&task).await)
}

/// Keeps a report of `toolscout eval --json`, or of another server, beside the evaluations of this server.
///
/// It is checked, and compared with the catalog. The console and these routes show it and compare it with others.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/evaluations/reports", operation_id = "send_report", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), SentParams),
    request_body = Object,
    responses((status = 201, body = Evaluation, description = "The evaluation that the report is kept as"))
)]
pub async fn send(
    Writing(catalog): Writing,
    grant: Grant,
    State(evaluations): State<Arc<Evaluations>>,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<SentParams>,
    request: Request,
) -> ApiResult<Response> {
    let _permit = evaluations.begin()?;
    let Json(file) = Json::<sent::SentFile>::from_request(request, &()).await?;
    let reading = Arc::clone(&catalog);
    let evaluated = cpu_pool
        .run(move || sent::evaluated(file, params, grant.sender(), &reading))
        .await??;
    // The answer leaves out the report, which the client just sent.
    let evaluation = evaluated.evaluation.clone();
    blocking(move || evaluations.keep(&catalog, &evaluated)).await??;
    Ok((StatusCode::CREATED, Json(evaluation)).into_response())
}

/// Shows an evaluation: its figures, and how they differ from an earlier one.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/evaluations/{id}", operation_id = "show_evaluation", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The evaluation's id"), AgainstParams),
    responses((status = 200, body = EvaluationBody, description = "The evaluation"))
)]
pub async fn show(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(EvaluationPath { id, .. }): Path<EvaluationPath>,
    QueryString(AgainstParams { against }): QueryString<AgainstParams>,
) -> ApiResult<Json<EvaluationBody>> {
    let body = cpu_pool.run(move || {
        let files = EvaluationFiles::of(&catalog);
        let evaluated = files.load(&id)?;
        let against = Against::find(&files, &evaluated, against.as_deref())?;
        Ok(EvaluationBody {
            current_generation: catalog.searcher().generation(),
            b_against_a: against.between_arms(&evaluated).map(Into::into),
            against: against.body(&evaluated)?,
            evaluation: evaluated.evaluation,
        })
    });
    body.await?.map(Json)
}

/// The report of an evaluation: what the command line writes and reads.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/evaluations/{id}/report", operation_id = "report_evaluation", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The evaluation's id"), ReportParams),
    responses((status = 200, description = "The report", content(
        (ReportFile = "application/json"),
        (String = "text/html"),
    )))
)]
pub async fn report(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(EvaluationPath { id, .. }): Path<EvaluationPath>,
    QueryString(params): QueryString<ReportParams>,
) -> ApiResult<Response> {
    let format = params.format.unwrap_or_default();
    let response = cpu_pool.run(move || {
        let report = report::of(&EvaluationFiles::of(&catalog).load(&id)?, &catalog.name)?;
        Ok(match format {
            ReportFormat::Json => Json(ReportFile {
                format: FORMAT,
                version: report.version.clone(),
                sets: vec![report],
            })
            .into_response(),
            ReportFormat::Html => report::page(&report),
        })
    });
    response.await?
}

/// Lists the queries of an evaluation with what was expected and what was found, page by page.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/evaluations/{id}/queries", operation_id = "list_evaluation_queries", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The evaluation's id"), QueriesParams),
    responses((status = 200, body = QueryPage, description = "A page of queries"))
)]
pub async fn queries(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(EvaluationPath { id, .. }): Path<EvaluationPath>,
    QueryString(params): QueryString<QueriesParams>,
) -> ApiResult<Json<QueryPage>> {
    let page = cpu_pool.run(move || {
        let files = EvaluationFiles::of(&catalog);
        let evaluated = files.load(&id)?;
        let against = Against::find(&files, &evaluated, params.against.as_deref())?;
        page::page(&evaluated, &against, &params)
    });
    page.await?.map(Json)
}

/// Deletes an evaluation.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/evaluations/{id}", operation_id = "delete_evaluation", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The evaluation's id")),
    responses((status = 204, description = "The evaluation was deleted"))
)]
pub async fn delete(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Path(EvaluationPath { id, .. }): Path<EvaluationPath>,
) -> ApiResult<StatusCode> {
    let deleted = cpu_pool.run(move || EvaluationFiles::of(&catalog).delete(&id));
    deleted.await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a request whole, so that a mistake in it is answered at once.
fn plan_of(request: EvaluationRequest, catalog: &OpenCatalog) -> ApiResult<Plan> {
    let searcher = searched(catalog)?;
    check_name(request.name.as_deref())?;
    let lines = request.queries.lines();
    let count = lines.filter(|line| !line.trim().is_empty()).count();
    if count > MAX_QUERIES {
        let message = format!(
            "queries has {count} lines, an evaluation takes at most {MAX_QUERIES}; send a sample of them"
        );
        return Err(invalid_queries(message));
    }
    let mut arms = vec![request.search];
    arms.extend(request.compare);
    for (name, arm) in ["search", "compare"].iter().zip(&arms) {
        if let Err(error) = arm.check(MAX_SETTINGS_BYTES) {
            let message = format!("field `{name}`: {}", error.message);
            return Err(ApiError { message, ..error });
        }
    }
    let depths = depths_of(request.depths, searcher.len())?;
    let tools: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
    match pasted::read(&request.queries, request.qrels.as_deref(), &tools) {
        Ok(queries) => Ok(Plan::new(request.name, searcher, queries, arms, depths)),
        Err(error) => Err(invalid_queries(error.to_string())),
    }
}

/// What an evaluation searches.
///
/// # Errors
/// 422 for a catalog without tools, or whose tools are in the store alone.
pub(super) fn searched(catalog: &OpenCatalog) -> ApiResult<Arc<Searcher>> {
    let instead = "evaluate a part of them in a catalog of its own";
    let searcher = catalog.with_all_tools("an evaluation", instead)?;
    if searcher.is_empty() {
        let message = format!(
            "the catalog {:?} has no tools, so there is nothing to find; add tools first",
            catalog.name
        );
        return Err(ApiError::unprocessable("empty_catalog", message));
    }
    Ok(searcher)
}

pub(super) fn invalid_queries(message: String) -> ApiError {
    ApiError::unprocessable("invalid_queries", message)
}

/// # Errors
/// 422 for a name that is too long.
pub(super) fn check_name(name: Option<&str>) -> ApiResult<()> {
    let chars = name.unwrap_or_default().chars().count();
    if chars <= MAX_NAME_CHARS {
        return Ok(());
    }
    let message = format!("name has {chars} characters, it may have {MAX_NAME_CHARS}");
    Err(ApiError::unprocessable("invalid_value", message))
}

/// The cut-offs of the metrics; by default those of the command line.
fn depths_of(mut depths: Vec<usize>, tools: usize) -> ApiResult<Vec<usize>> {
    if depths.is_empty() {
        return Ok(default_depths(tools).0);
    }
    depths.sort_unstable();
    depths.dedup();
    let most = tools.min(toolscout_eval::answered::DEPTH);
    // Hits beyond `most` are not recorded, so a metric of a greater depth would be wrong.
    match depths.iter().find(|depth| !(1..=most).contains(*depth)) {
        None => Ok(depths),
        Some(depth) => {
            let message = format!(
                "depths has {depth}, a metric of this catalog is cut off at 1 to {most}: hits beyond are not looked at"
            );
            Err(ApiError::unprocessable("invalid_value", message))
        }
    }
}

fn unknown_evaluation(id: &str) -> ApiError {
    ApiError::not_found(
        "unknown_evaluation",
        format!(
            "no evaluation {id:?} of this catalog; GET …/evaluations lists those that are kept"
        ),
    )
}
