//! Judgings: people grade the pooled hits of queries, one query after the other. What each judge said is kept
//! beside the catalog, exported as judged queries, and compared with what another judge said.

mod files;
mod wire;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde::Deserialize;
use toolscout_index::{Searcher, ToolId};
use uuid::Uuid;

use crate::access::{Grant, Reading, Writing};
use crate::evaluations::{check_name, invalid_queries, searched};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path, QueryString};
use crate::request::threads::blocking;
use crate::served::OpenCatalog;
use files::{Judged, Judgement, JudgingFiles, QueryToJudge};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_eval::dataset::pasted::{self, PastedQuery};
use toolscout_eval::pool::{self, Agreement, MAX_GRADE};
use wire::{
    AgreementParams, Head, JudgeParams, JudgeProgressList, Judging, JudgingList, NewJudgement,
    NewJudgements, NewJudging, PooledQuery, PooledTool,
};

/// Most bytes of a request.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// Most queries of a judging, and judgements of a request.
const MAX_QUERIES: usize = 2000;
/// First hits of each setting.
const DEFAULT_DEPTH: usize = 5;
const MAX_DEPTH: usize = 20;
/// Most judges of a judging.
const MAX_JUDGES: usize = 20;
/// Longest name of a judge, in characters.
const MAX_JUDGE_CHARS: usize = 100;
/// Most tools of a query that its line judges, and that are pooled for it.
const MAX_JUDGED: usize = 100;
/// Most grades of a judgement.
const MAX_GRADES: usize = 200;

/// What judgings of all catalogs share.
#[derive(Clone, Default)]
pub struct Judgings {
    /// Held while a file is read, changed and written, so that no judgement is lost.
    writing: Arc<Mutex<()>>,
}

/// The path of a judging.
#[derive(Debug, Deserialize)]
pub struct JudgingPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    id: String,
}

/// The path of a query of a judging.
#[derive(Debug, Deserialize)]
pub struct PooledPath {
    #[serde(rename = "catalog")]
    _catalog: String,
    id: String,
    number: usize,
}

/// Lists the judgings of a catalog, newest first, with how far each judge is.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/judgings", operation_id = "list_judgings", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = JudgingList, description = "The judgings"))
)]
pub async fn list(Reading(catalog): Reading) -> ApiResult<Json<JudgingList>> {
    let judgings = blocking(move || JudgingFiles::of(&catalog).list()).await??;
    Ok(Json(JudgingList { judgings }))
}

/// Begins a judging: queries whose hits people grade.
///
/// At most 50 judgings of a catalog are kept.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/judgings", operation_id = "begin_judging", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = NewJudging,
    responses((status = 201, body = Judging, description = "The judging"))
)]
pub async fn begin(
    Writing(catalog): Writing,
    grant: Grant,
    State(cpu_pool): State<CpuPool>,
    State(judgings): State<Judgings>,
    Json(request): Json<NewJudging>,
) -> ApiResult<Response> {
    // Only reads and checks the queries: hits are pooled when a query is shown.
    let reading = Arc::clone(&catalog);
    let judged = cpu_pool
        .run(move || new_judging(request, grant.sender(), &reading))
        .await??;
    // Made here, since the closure below takes the judging.
    let body = judged.body();
    blocking(move || {
        let _writing = judgings.writing.lock();
        JudgingFiles::of(&catalog).begin(&judged)
    })
    .await??;
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// Shows a judging with how far each judge is.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/judgings/{id}", operation_id = "show_judging", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id")),
    responses((status = 200, body = Judging, description = "The judging"))
)]
pub async fn show(
    Reading(catalog): Reading,
    Path(JudgingPath { id, .. }): Path<JudgingPath>,
) -> ApiResult<Json<Judging>> {
    let judged = blocking(move || JudgingFiles::of(&catalog).load(&id)).await??;
    Ok(Json(judged.body()))
}

/// Deletes a judging with all its judgements.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/judgings/{id}", operation_id = "delete_judging", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id")),
    responses((status = 204, description = "The judging was deleted"))
)]
pub async fn delete(
    Writing(catalog): Writing,
    State(judgings): State<Judgings>,
    Path(JudgingPath { id, .. }): Path<JudgingPath>,
) -> ApiResult<StatusCode> {
    let deleted = blocking(move || {
        let _writing = judgings.writing.lock();
        JudgingFiles::of(&catalog).delete(&id)
    });
    deleted.await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows a query of a judging with the tools to grade, and what a judge has said of them.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/judgings/{id}/queries/{number}", operation_id = "show_pooled_query", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id"), ("number" = usize, Path, description = "The query's number, from 1"), JudgeParams),
    responses((status = 200, body = PooledQuery, description = "The query"))
)]
pub async fn pooled(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(PooledPath { id, number, .. }): Path<PooledPath>,
    QueryString(JudgeParams { judge }): QueryString<JudgeParams>,
) -> ApiResult<Json<PooledQuery>> {
    let pooled = cpu_pool.run(move || {
        let searcher = searched(&catalog)?;
        let judged = JudgingFiles::of(&catalog).load(&id)?;
        pooled_query(&judged, number, judge.as_deref(), &searcher)
    });
    pooled.await?.map(Json)
}

/// Keeps judgements: of one query, as a person judges, or of many, as `eval judge` has written them.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/judgings/{id}/judgements", operation_id = "judge", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id")),
    request_body = NewJudgements,
    responses((status = 200, body = JudgeProgressList, description = "How far these judges are"))
)]
pub async fn judge(
    Writing(catalog): Writing,
    State(judgings): State<Judgings>,
    Path(JudgingPath { id, .. }): Path<JudgingPath>,
    Json(request): Json<NewJudgements>,
) -> ApiResult<Json<JudgeProgressList>> {
    let judges = blocking(move || {
        // Checked before the lock is taken, so that a request that fails does not make others wait.
        let searcher = searched(&catalog)?;
        let _writing = judgings.writing.lock();
        let files = JudgingFiles::of(&catalog);
        let mut judged = files.load(&id)?;
        let judgements = judgements_of(&request, &judged, &searcher)?;
        // The answer has only the judges of this request.
        let judges: BTreeSet<String> = judgements.iter().map(|one| one.judge.clone()).collect();
        files.add(&mut judged, judgements)?;
        Ok::<_, ApiError>(judges.iter().map(|judge| judged.progress(judge)).collect())
    });
    let judges = judges.await??;
    Ok(Json(JudgeProgressList { judges }))
}

/// Exports judgements as lines of a `queries.jsonl`, each with the name of its judge.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/judgings/{id}/judgements", operation_id = "export_judgements", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id"), JudgeParams),
    responses((status = 200, content_type = "application/x-ndjson", body = String, description = "One query per line"))
)]
pub async fn export(
    Reading(catalog): Reading,
    Path(JudgingPath { id, .. }): Path<JudgingPath>,
    QueryString(JudgeParams { judge }): QueryString<JudgeParams>,
) -> ApiResult<Response> {
    let judged = blocking(move || JudgingFiles::of(&catalog).load(&id)).await??;
    if let Some(judge) = &judge
        && !judged.judges.contains_key(judge)
    {
        return Err(unknown_judge(judge, &judged));
    }
    let mut lines = String::new();
    for name in judged.judges.keys() {
        if judge.as_ref().is_none_or(|judge| judge == name) {
            for line in judged.lines(name) {
                lines += &line.line();
            }
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

/// How far two judges agree: the share of equal grades, and Cohen's kappa.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/judgings/{id}/agreement", operation_id = "judges_agreement", tag = "evaluations",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The judging's id"), AgreementParams),
    responses((status = 200, body = Agreement, description = "The agreement"))
)]
pub async fn agreement(
    Reading(catalog): Reading,
    Path(JudgingPath { id, .. }): Path<JudgingPath>,
    QueryString(AgreementParams { a, b }): QueryString<AgreementParams>,
) -> ApiResult<Json<Agreement>> {
    let judged = blocking(move || JudgingFiles::of(&catalog).load(&id)).await??;
    for judge in [&a, &b] {
        if !judged.judges.contains_key(judge) {
            return Err(unknown_judge(judge, &judged));
        }
    }
    Ok(Json(pool::agreement(&judged.lines(&a), &judged.lines(&b))))
}

/// Reads a request whole, so that a mistake in it is answered at once.
fn new_judging(request: NewJudging, sender: String, catalog: &OpenCatalog) -> ApiResult<Judged> {
    let searcher = searched(catalog)?;
    check_name(request.name.as_deref())?;
    let depth = request.depth.unwrap_or(DEFAULT_DEPTH);
    if !(1..=MAX_DEPTH).contains(&depth) {
        let message = format!("depth is {depth}, it may be 1 to {MAX_DEPTH}");
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    let lines = request.queries.lines();
    let count = lines.filter(|line| !line.trim().is_empty()).count();
    if count > MAX_QUERIES {
        let message = format!(
            "queries has {count} lines, a judging takes at most {MAX_QUERIES}; begin several"
        );
        return Err(invalid_queries(message));
    }
    // The queries are checked against the tools that are in the catalog now.
    let tools: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
    let queries = match pasted::read(&request.queries, None, &tools) {
        Ok(queries) => queries,
        Err(error) => return Err(invalid_queries(error.to_string())),
    };
    let queries: Vec<QueryToJudge> = queries.into_iter().map(to_judge).collect();
    let head = Head {
        id: Uuid::now_v7().to_string(),
        name: request.name.unwrap_or_default(),
        created_at_ms: unix_ms(SystemTime::now()),
        by: sender,
        queries: queries.len(),
        depth,
    };
    Ok(Judged::new(head, queries))
}

fn to_judge(query: PastedQuery) -> QueryToJudge {
    let mut judged = query.relevant.unwrap_or_default();
    judged.extend(query.irrelevant);
    judged.truncate(MAX_JUDGED);
    QueryToJudge {
        id: query.id,
        query: query.text,
        source: query.source,
        judged,
    }
}

fn pooled_query(
    judged: &Judged,
    number: usize,
    judge: Option<&str>,
    searcher: &Searcher,
) -> ApiResult<PooledQuery> {
    // Numbers start at 1. 0 wraps to a position that no list has.
    let place = number.wrapping_sub(1);
    let Some(query) = judged.queries.get(place) else {
        let message = format!(
            "no query {number}; the judging has 1 to {}",
            judged.queries.len()
        );
        return Err(ApiError::not_found("unknown_query", message));
    };
    // The hits of several settings are pooled, since those of one would favour that one.
    let arms = pool::arms(searcher).map_err(ApiError::internal)?;
    let tools = pool::tools(
        searcher,
        &arms,
        &query.query,
        judged.head.depth,
        &query.judged,
    )?;
    let judgement = judge.and_then(|judge| judged.judgement(judge, place));
    let (relevant, done) = match judgement {
        Some(judgement) => (judgement.grades.clone(), judgement.done),
        None => (BTreeMap::new(), false),
    };
    Ok(PooledQuery {
        number,
        id: query.id.clone(),
        query: query.query.clone(),
        tools: tools.iter().map(|tool| PooledTool::from(&**tool)).collect(),
        relevant,
        done,
    })
}

/// The judgements of a request, all of them right.
fn judgements_of(
    request: &NewJudgements,
    judged: &Judged,
    searcher: &Searcher,
) -> ApiResult<Vec<Judgement>> {
    if request.judgements.len() > MAX_QUERIES {
        let message = format!(
            "judgements has {} items, a request takes at most {MAX_QUERIES}; send several",
            request.judgements.len()
        );
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    if let Some(judge) = &request.judge
        && judge.chars().count() > MAX_JUDGE_CHARS
    {
        let message = format!(
            "judge has {} characters; give a name of 1 to {MAX_JUDGE_CHARS}",
            judge.chars().count()
        );
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    let positions = judged.positions();
    let mut judges: BTreeSet<&str> = judged.judges.keys().map(String::as_str).collect();
    let known = judges.len();
    let mut judgements = Vec::with_capacity(request.judgements.len());
    for (place, line) in request.judgements.iter().enumerate() {
        let judge = line.judge.as_deref().or(request.judge.as_deref());
        let judge = judge.map(str::trim).unwrap_or_default();
        judges.insert(judge);
        match judgement_of(line, judge, judged, &positions, searcher) {
            Ok(judgement) => judgements.push(judgement),
            Err(message) => {
                let message = format!("judgements[{place}]: {message}");
                return Err(ApiError::unprocessable("invalid_judgement", message));
            }
        }
    }
    // A judging that already has more judges keeps them.
    // Checked at the end, when the new judges of the request are known.
    if judges.len() > MAX_JUDGES.max(known) {
        let message = format!(
            "the judging would have {} judges, {MAX_JUDGES} at most; begin another one",
            judges.len()
        );
        return Err(ApiError::unprocessable("too_many_judges", message));
    }
    Ok(judgements)
}

/// The judgement of a line, or what is wrong with it.
fn judgement_of(
    line: &NewJudgement,
    judge: &str,
    judged: &Judged,
    positions: &HashMap<&str, usize>,
    searcher: &Searcher,
) -> Result<Judgement, String> {
    if !(1..=MAX_JUDGE_CHARS).contains(&judge.chars().count()) {
        return Err(format!(
            "the judge is {judge:?}; give a name of 1 to {MAX_JUDGE_CHARS} characters"
        ));
    }
    let Some(query) = positions.get(line.id.as_str()).copied() else {
        return Err(format!("the judging has no query {:?}", line.id));
    };
    let text = &judged.queries[query].query;
    // In another judging the same id may stand for another query.
    if let Some(other) = &line.query
        && other != text
    {
        let id = &line.id;
        return Err(format!("query {id:?} is {text:?} here, and not {other:?}"));
    }
    Ok(Judgement {
        judge: judge.to_owned(),
        query,
        grades: grades_of(line, searcher)?,
        done: line.done,
    })
}

fn grades_of(line: &NewJudgement, searcher: &Searcher) -> Result<BTreeMap<String, u8>, String> {
    if line.relevant.len() > MAX_GRADES {
        return Err(format!(
            "{} grades; a judgement has at most {MAX_GRADES}",
            line.relevant.len()
        ));
    }
    let mut grades = BTreeMap::new();
    for (tool, grade) in &line.relevant {
        if !ToolId::parse(tool).is_ok_and(|id| searcher.has(&id)) {
            return Err(format!("the catalog has no tool {tool:?}"));
        }
        let Some(whole) = (0..=MAX_GRADE).find(|whole| f64::from(*whole) == *grade) else {
            return Err(format!(
                "the grade of {tool:?} is {grade}; grades are 0 to {MAX_GRADE}"
            ));
        };
        grades.insert(tool.clone(), whole);
    }
    Ok(grades)
}

fn unknown_judge(judge: &str, judged: &Judged) -> ApiError {
    let names: Vec<&str> = judged.judges.keys().map(String::as_str).collect();
    let message = if names.is_empty() {
        format!("{judge:?} has judged nothing here, and neither has anybody else")
    } else {
        format!(
            "{judge:?} has judged nothing here; the judges are {}",
            names.join(", ")
        )
    };
    ApiError::not_found("unknown_judge", message)
}
