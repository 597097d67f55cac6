//! Changes of texts: those of one tool, those that a body answers with, and deleting them.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::Value;
use toolscout_index::{Enrichment, MAX_ENRICHMENT_TEXTS, Searcher, Tool, ToolId};

use super::{ForgottenTexts, NewTexts, TakenTexts};
use crate::request::error::{ApiError, ApiResult};
use crate::served::OpenCatalog;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::enrich;
use toolscout_finder::enrich::check::checked;
use toolscout_finder::enrich::exchange::{Answers, Matched, ids_of, not_stored};
use toolscout_finder::enrich::held::{Held, Review};
use toolscout_state::catalog_writer::{Change, Written};
use toolscout_state::shared::TextsOf;

/// The model's name of texts that a person writes.
const PERSON: &str = "person";
/// The model's name of answers that name none.
const ASSISTANT: &str = "assistant";

/// Most tools of a catalog that is pushed down which are read for the ids and names of answers.
const MAX_NAMED: usize = 20_000;
/// Tools of such a catalog whose texts are deleted in one commit.
const FORGOTTEN_AT_ONCE: usize = 2_000;

/// Replaces the texts of a tool.
///
/// # Errors
/// 422 for texts that are refused or held, and 409 for a tool that changes meanwhile.
pub async fn replace(
    cpu_pool: &CpuPool,
    catalog: &OpenCatalog,
    tool: &Arc<Tool>,
    new: NewTexts,
) -> ApiResult<Enrichment> {
    let enrichment = checked_texts(cpu_pool, catalog, tool, new).await?;
    let change = Change::Enrich(vec![(Arc::clone(tool), enrichment.clone())]);
    let written = catalog.writer.try_write(change).await?;
    // Texts are stored only if the tool still has the definition that they were checked with.
    if written.changes.changed.is_empty() {
        let message = format!(
            "{} was changed or removed meanwhile; read it again",
            tool.id
        );
        return Err(ApiError::invalid(
            StatusCode::CONFLICT,
            "tool_changed",
            message,
        ));
    }
    catalog.reach(written.generation).await?;
    Ok(enrichment)
}

async fn checked_texts(
    cpu_pool: &CpuPool,
    catalog: &OpenCatalog,
    tool: &Arc<Tool>,
    new: NewTexts,
) -> ApiResult<Enrichment> {
    let NewTexts {
        texts,
        model,
        reviewed,
    } = new;
    let model = model.unwrap_or_else(|| PERSON.to_owned());
    let (searcher, tool) = (catalog.searcher(), Arc::clone(tool));
    let check = move || {
        // The review compares the texts with all other tools.
        let review = Review::of(reviewed, &searcher);
        let texts = Value::from(texts);
        checked(&tool, &texts, MAX_ENRICHMENT_TEXTS, &model, review)
    };
    let read = cpu_pool.run(check).await?;
    if !read.held.is_empty() {
        let reasons: Vec<String> = read.held.iter().map(Held::reason).collect();
        let message = format!(
            "{}; once a person has read the texts, send them with \"reviewed\": true",
            reasons.join("; ")
        );
        return Err(ApiError::unprocessable("texts_held", message));
    }
    let enrichment = read.enrichment.map_err(invalid_texts)?;
    // One refused text refuses all, so that the writer learns of it.
    match read.refused.into_iter().next() {
        Some(reason) => Err(invalid_texts(reason)),
        None => Ok(enrichment),
    }
}

fn invalid_texts(reason: String) -> ApiError {
    ApiError::unprocessable("invalid_texts", reason)
}

/// Stores the texts that are found in a text.
///
/// # Errors
/// 422 if there are none.
pub async fn take(
    cpu_pool: &CpuPool,
    catalog: &Arc<OpenCatalog>,
    text: String,
    reviewed: bool,
) -> ApiResult<TakenTexts> {
    // The body may be megabytes of prose that has to be searched for answers.
    let answers = cpu_pool.run(move || Answers::read(&text)).await?;
    let asked_about = catalog.with_texts(TextsOf {
        tools: Some(answers.ids()),
        with_namesakes: true,
        limit: MAX_NAMED,
        ..TextsOf::default()
    });
    let searcher = asked_about.await?;
    let read = cpu_pool.run(move || {
        let review = Review::of(reviewed, &searcher);
        let matched = answers.matched(&searcher, ASSISTANT, MAX_ENRICHMENT_TEXTS, review);
        (matched, answers.problem)
    });
    let (matched, problem) = read.await?;
    // Success with nothing stored would hide the mistake.
    if matched.answers == 0 {
        let message = "the body has no texts of tools; they are lines like {\"id\": \"server/name\", \"definition\": \
                       \"…\", \"texts\": [\"…\"]}, and GET /v1/catalogs/{catalog}/questions asks for them";
        return Err(ApiError::unprocessable("no_texts_in_body", message));
    }
    store(cpu_pool, catalog, matched, problem).await
}

async fn store(
    cpu_pool: &CpuPool,
    catalog: &Arc<OpenCatalog>,
    mut matched: Matched,
    problem: Option<String>,
) -> ApiResult<TakenTexts> {
    let usable = std::mem::take(&mut matched.usable);
    let ids = ids_of(&usable);
    // Tools that changed since the match are not stored, and are reported as refused.
    let written = catalog.writer.try_write(Change::Enrich(usable)).await?;
    catalog.reach(written.generation).await?;
    let stored = &written.changes.changed;
    matched.refused.extend(not_stored(&ids, stored));
    // Counted after the commit, so that `left` is up to date.
    let with_texts = catalog.count_texts(cpu_pool).await?;
    Ok(TakenTexts {
        answers: matched.answers,
        stored: stored.len(),
        kept: matched.kept,
        stale: matched.stale,
        unknown: matched.unknown,
        refused: matched.refused.into_iter().map(Into::into).collect(),
        refused_texts: matched.refused_texts.into_iter().map(Into::into).collect(),
        held: matched.held.into_iter().map(Into::into).collect(),
        problem,
        left: catalog.tool_count().saturating_sub(with_texts),
        generation: written.generation,
    })
}

/// Deletes the texts of the tools of these servers, or of all tools.
///
/// # Errors
/// Those of the catalog's writer and of its store.
pub async fn forget_all(
    cpu_pool: &CpuPool,
    catalog: &Arc<OpenCatalog>,
    servers: Vec<String>,
) -> ApiResult<ForgottenTexts> {
    let mut forgotten = 0;
    loop {
        let read = catalog.with_texts(TextsOf {
            servers: servers.clone(),
            have_texts: Some(true),
            limit: FORGOTTEN_AT_ONCE,
            ..TextsOf::default()
        });
        let (searcher, servers) = (read.await?, servers.clone());
        let ids = cpu_pool.run(move || enriched(&searcher, &servers));
        let Written {
            changes,
            generation,
        } = forget(catalog, ids.await?).await?;
        forgotten += changes.changed.len();
        // A catalog without all of them here gives some at a time.
        if changes.changed.is_empty() || catalog.has_all_tools() {
            return Ok(ForgottenTexts {
                forgotten,
                generation,
            });
        }
    }
}

fn enriched(searcher: &Searcher, servers: &[String]) -> Vec<ToolId> {
    enrich::ids_with_texts(searcher, servers).cloned().collect()
}

/// Deletes the texts of these tools.
///
/// # Errors
/// Those of the catalog's writer.
pub async fn forget(catalog: &OpenCatalog, ids: Vec<ToolId>) -> ApiResult<Written> {
    let written = catalog.writer.try_write(Change::ForgetTexts(ids)).await?;
    catalog.reach(written.generation).await?;
    Ok(written)
}
