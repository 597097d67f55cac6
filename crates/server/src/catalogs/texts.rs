//! What people say when they need a tool: the texts of a tool and of a catalog, read, changed, brought from
//! elsewhere, and asked for in a file that any assistant answers.

mod writes;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::{Enrichment, Searcher, Tool, ToolId};
use utoipa::{IntoParams, ToSchema};

use super::tools::{ItemPath, find_tool};
use crate::access::{Reading, Writing};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path, QueryString, RawBody};
use crate::request::paging;
use crate::served::held::HeldText;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::enrich::exchange::{Refused, definition_hash, questions};
use toolscout_finder::enrich::wanted::Wanted;
use toolscout_finder::enrich::{self, DEFAULT_BATCH};
use toolscout_state::shared::TextsOf;

/// The texts of a tool.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolTexts {
    /// The tool's id.
    #[schema(example = "outlook/RecallMessage")]
    id: String,
    /// The hash of the tool's definition, which the texts belong to.
    definition: String,
    /// The name of the model that wrote them, or `person`; absent without texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// What people say when they need the tool; empty where nobody wrote any for its present definition.
    #[schema(example = json!(["I mailed the wrong person, undo it"]))]
    texts: Vec<String>,
}

impl ToolTexts {
    fn of(tool: &Tool, enrichment: Option<&Enrichment>) -> Self {
        ToolTexts {
            id: tool.id.to_string(),
            definition: definition_hash(tool),
            model: enrichment.map(|enrichment| enrichment.model().to_owned()),
            texts: enrichment.map_or_else(Vec::new, |enrichment| enrichment.texts().to_vec()),
        }
    }
}

/// New texts of a tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTexts {
    /// At most 8, of at most 200 characters each.
    #[schema(min_items = 1, max_items = 8)]
    texts: Vec<String>,
    /// Who wrote them; `person` without it.
    model: Option<String>,
    /// True once a person has read them: texts that speak of another server's tool are then stored too.
    #[serde(default)]
    reviewed: bool,
}

/// How texts are taken.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TakeParams {
    /// True once a person has read the texts: those that speak of another server's tool are then stored too, and texts
    /// are added to those that a tool has.
    reviewed: Option<bool>,
}

/// Which texts to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Texts of the tools of this server.
    server: Option<String>,
    /// Number of tools on a page, 100 by default, at most 1000.
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of texts.
#[derive(Debug, Serialize, ToSchema)]
pub struct TextsPage {
    /// The texts, by the ids of their tools.
    tools: Vec<ToolTexts>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Whose texts are deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForgetParams {
    /// The tools of this server; without it, `all` has to be true.
    server: Option<String>,
    /// True deletes the texts of every tool.
    all: Option<bool>,
}

/// The result of deleting texts.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForgottenTexts {
    /// Number of tools that had texts.
    forgotten: usize,
    /// The generation of the catalog that holds the change.
    generation: u64,
}

/// Which tools are asked about.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuestionParams {
    /// Only tools of this server.
    server: Option<String>,
    /// Number of tools, 100 by default, at most 1000.
    limit: Option<usize>,
    /// Texts of each tool, in each language: 3, or as many as fit; at most 8 in all.
    texts: Option<usize>,
    /// The languages of the texts, as codes or names, separated by commas; English by default.
    #[param(example = "en,de")]
    languages: Option<String>,
}

/// What came of answers.
#[derive(Debug, Serialize, ToSchema)]
pub struct TakenTexts {
    /// Answers in the body.
    answers: usize,
    /// Number of tools whose texts are stored.
    stored: usize,
    /// Tools that have texts already, which stay.
    kept: Vec<String>,
    /// Tools whose definition is another one by now.
    stale: Vec<String>,
    /// Tools that the catalog does not have.
    unknown: Vec<String>,
    /// Answers that are refused.
    refused: Vec<RefusedText>,
    /// Single texts that are refused, of answers whose other texts are stored.
    refused_texts: Vec<RefusedText>,
    /// Texts that are not stored before a person has read them, since they speak of another server's tool.
    held: Vec<HeldText>,
    /// What of the body was not read, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Tools that still have no texts.
    left: usize,
    /// The generation of the catalog that holds the texts.
    generation: u64,
}

/// What is refused of a tool's texts.
#[derive(Debug, Serialize, ToSchema)]
pub struct RefusedText {
    /// The tool's id.
    id: String,
    /// The reason.
    reason: String,
}

impl From<Refused> for RefusedText {
    fn from(Refused { id, reason }: Refused) -> Self {
        RefusedText { id, reason }
    }
}

/// Shows the texts of a tool.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/texts/{*id}", operation_id = "show_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 200, body = ToolTexts, description = "The texts"))
)]
pub async fn show(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<Json<ToolTexts>> {
    let tool = find_tool(&cpu_pool, &catalog, &id).await?;
    let one = TextsOf {
        tools: Some(vec![tool.id.to_string()]),
        limit: 1,
        ..TextsOf::default()
    };
    let searcher = catalog.with_texts(one).await?;
    Ok(Json(ToolTexts::of(&tool, searcher.enrichment(&tool.id))))
}

/// Replaces the texts of a tool.
///
/// They belong to its present definition: if its server changes it, they are deleted. Texts that speak of another
/// server's tool are refused with the code `texts_held`, unless `reviewed` is true.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/texts/{*id}", operation_id = "set_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    request_body = NewTexts,
    responses((status = 200, body = ToolTexts, description = "The new texts"))
)]
pub async fn put(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
    Json(new): Json<NewTexts>,
) -> ApiResult<Json<ToolTexts>> {
    let tool = find_tool(&cpu_pool, &catalog, &id).await?;
    let enrichment = writes::replace(&cpu_pool, &catalog, &tool, new).await?;
    Ok(Json(ToolTexts::of(&tool, Some(&enrichment))))
}

/// Deletes the texts of a tool.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/texts/{*id}", operation_id = "delete_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), ("id" = String, Path, description = "The tool's id, `server/name`; the slash may stay unescaped")),
    responses((status = 204, description = "The texts were deleted"))
)]
pub async fn remove(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Path(ItemPath { id, .. }): Path<ItemPath>,
) -> ApiResult<StatusCode> {
    let tool = find_tool(&cpu_pool, &catalog, &id).await?;
    let written = writes::forget(&catalog, vec![tool.id.clone()]).await?;
    if written.changes.changed.is_empty() {
        return Err(no_texts(&tool.id));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the texts of a catalog, page by page. A catalog with the same tools takes the pages as they are.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/texts", operation_id = "list_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), ListParams),
    responses((status = 200, body = TextsPage, description = "A page of texts"))
)]
pub async fn list(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<TextsPage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let servers: Vec<String> = params.server.into_iter().collect();
    let read = catalog.with_texts(TextsOf {
        servers: servers.clone(),
        have_texts: Some(true),
        after: after.clone(),
        // One more says whether there is another page.
        limit: limit + 1,
        ..TextsOf::default()
    });
    let searcher = read.await?;
    let page = cpu_pool.run(move || page(&searcher, &servers, after.as_deref(), limit));
    Ok(Json(page.await?))
}

/// Stores texts: answers of an assistant to the questions, or the texts of another catalog.
///
/// The body is text in which the answers are found: JSON lines, JSON, or prose with JSON in it. Each answer has
/// `id`, `definition` and `texts`. Texts are stored for tools with this definition that have none. Texts that speak of
/// another server's tool are held, unless `reviewed` is true.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/texts", operation_id = "take_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), TakeParams),
    request_body(content((String = "text/plain"), (String = "application/x-ndjson"), (serde_json::Value = "application/json"))),
    responses((status = 200, body = TakenTexts, description = "What came of each answer"))
)]
pub async fn take(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    QueryString(TakeParams { reviewed }): QueryString<TakeParams>,
    RawBody(body): RawBody,
) -> ApiResult<Json<TakenTexts>> {
    catalog.keeps_texts()?;
    let text = body_text(body)?;
    let reviewed = reviewed == Some(true);
    let taken = writes::take(&cpu_pool, &catalog, text, reviewed).await?;
    Ok(Json(taken))
}

/// Deletes the texts of a server's tools, or of all tools.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/texts", operation_id = "delete_all_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), ForgetParams),
    responses((status = 200, body = ForgottenTexts, description = "How many tools had texts"))
)]
pub async fn remove_all(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    QueryString(ForgetParams { server, all }): QueryString<ForgetParams>,
) -> ApiResult<Json<ForgottenTexts>> {
    if server.is_none() && all != Some(true) {
        let message = "name a server, or give all=true to delete the texts of every tool";
        return Err(ApiError::unprocessable("empty_filter", message));
    }
    let servers: Vec<String> = server.into_iter().collect();
    let forgotten = writes::forget_all(&cpu_pool, &catalog, servers).await?;
    Ok(Json(forgotten))
}

/// Asks about tools without texts, in one file that any chat or coding agent answers.
///
/// POST the answers to `/v1/catalogs/{catalog}/texts`.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/questions", operation_id = "ask_for_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), QuestionParams),
    responses((status = 200, body = String, content_type = "text/markdown", description = "The questions; empty where every tool has texts"))
)]
pub async fn ask(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
    QueryString(params): QueryString<QuestionParams>,
) -> ApiResult<Response> {
    let limit = paging::limit(params.limit)?;
    let wanted = wanted(&params)?;
    let servers: Vec<String> = params.server.into_iter().collect();
    let read = catalog.with_texts(TextsOf {
        servers: servers.clone(),
        have_texts: Some(false),
        limit,
        ..TextsOf::default()
    });
    let searcher = read.await?;
    let sending = format!("POST it to /v1/catalogs/{}/texts", catalog.name);
    let asked =
        cpu_pool.run(move || questions_about(&searcher, &servers, limit, &wanted, &sending));
    let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
    Ok((kind, asked.await?).into_response())
}

fn no_texts(id: &ToolId) -> ApiError {
    let message = format!("{id} has no texts for its present definition");
    ApiError::not_found("no_texts", message)
}

fn page(searcher: &Searcher, servers: &[String], after: Option<&str>, limit: usize) -> TextsPage {
    let (mut tools, mut last) = (Vec::new(), None);
    let mut next_cursor = None;
    for id in searcher.ids_after(after) {
        if !enrich::is_of(servers, id) {
            continue;
        }
        let Some(enrichment) = searcher.enrichment(id) else {
            continue;
        };
        // One more passes, so this is not the last page.
        if tools.len() == limit {
            next_cursor = last.map(paging::cursor_after);
            break;
        }
        last = Some(id.as_str());
        if let Some(tool) = searcher.tool(id) {
            tools.push(ToolTexts::of(&tool, Some(enrichment)));
        }
    }
    TextsPage { tools, next_cursor }
}

fn wanted(params: &QuestionParams) -> ApiResult<Wanted> {
    let languages: Vec<String> = match &params.languages {
        Some(languages) => languages.split(',').map(str::to_owned).collect(),
        None => Vec::new(),
    };
    Wanted::new(params.texts, &languages)
        .map_err(|error| ApiError::unprocessable("invalid_value", error.to_string()))
}

/// The questions about the tools without texts; empty if every tool has some.
fn questions_about(
    searcher: &Searcher,
    servers: &[String],
    limit: usize,
    wanted: &Wanted,
    sending: &str,
) -> String {
    // Only a catalog that is pushed down respects the limit by itself.
    let mut tools = enrich::missing(searcher, servers);
    tools.truncate(limit);
    if tools.is_empty() {
        return String::new();
    }
    questions(&enrich::batches(&tools, DEFAULT_BATCH, wanted), sending)
}

fn body_text(body: Bytes) -> ApiResult<String> {
    String::from_utf8(body.into()).map_err(|error| {
        let message = format!("the body is not UTF-8: {error}");
        ApiError::invalid(StatusCode::BAD_REQUEST, "invalid_body", message)
    })
}
