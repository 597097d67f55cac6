//! The owner's words of a catalog: show, replace, change.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use toolscout_index::owner_words::MAX_BYTES;
use toolscout_index::{OwnerWords, Searcher};
use utoipa::ToSchema;

use crate::access::{Reading, Writing};
use crate::request::error::ApiResult;
use crate::request::extract::Json;
use crate::served::OpenCatalog;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_state::catalog_writer::{Change, WordsChange};

/// Longest body: the longest document with space between its values.
pub const MAX_BODY_BYTES: usize = 2 * MAX_BYTES;

/// The words of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct WordsAnswer {
    /// The document, as PUT takes it.
    #[schema(value_type = WordsDocument)]
    words: OwnerWords,
    /// The generation of the catalog that has them.
    generation: u64,
    /// The places of entries for tools that the catalog does not have, such as `aliases.github/create_issue`.
    /// They take effect once it has them. Absent where the tools are in the store of several nodes alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_tool: Option<Vec<String>>,
}

/// The document of a catalog's words.
#[derive(ToSchema)]
#[schema(as = Words)]
#[expect(dead_code, reason = "describes what the engine reads")]
pub struct WordsDocument {
    /// Other names of tools, by the tool's id: at most 16 a tool.
    #[schema(example = json!({"github/create_pull_request": ["gh pr"]}))]
    aliases: Option<BTreeMap<String, Vec<String>>>,
    /// Words that mean the same, by any name.
    #[schema(example = json!({"leave": {"words": ["pto", "vacation"]}, "k8s": {"from": "k8s", "words": ["kubernetes"]}}))]
    synonyms: Option<BTreeMap<String, SynonymsEntry>>,
    /// Tools that are put at a place or hidden for a query, by any name.
    #[schema(example = json!({"deploy": {"query": "deploy", "match": "contains", "tool": "ci/deploy"}}))]
    pins: Option<BTreeMap<String, PinEntry>>,
    /// Factors of scores; those of a tool, its server and its tags are multiplied.
    boosts: Option<BoostsEntry>,
    /// What is searched and shown in place of a tool's description, by the tool's id: at most 4,000
    /// characters. Calls and their policies go by the server's definition.
    #[schema(example = json!({"ci/rollback": "Undoes the last release."}))]
    descriptions: Option<BTreeMap<String, String>>,
}

/// Words that mean the same.
#[derive(ToSchema)]
#[schema(as = Synonyms)]
#[expect(dead_code, reason = "describes what the engine reads")]
pub struct SynonymsEntry {
    /// Where it is given, only this one stands for the words, and they do not stand for it.
    from: Option<String>,
    /// The words, each of one word or a few; at least two without `from`.
    #[schema(min_items = 1, max_items = 16)]
    words: Vec<String>,
}

/// Puts a tool at a place among the hits of a query, or hides it from them.
#[derive(ToSchema)]
#[schema(as = Pin)]
#[expect(dead_code, reason = "describes what the engine reads")]
pub struct PinEntry {
    /// The words of the query; case and punctuation do not count.
    query: String,
    /// `exact`, the default: the query is these words; `contains`: it has them, one after another.
    #[schema(pattern = "^(exact|contains)$")]
    r#match: Option<String>,
    /// The tool's id.
    tool: String,
    /// The place, 1 by default.
    #[schema(minimum = 1, maximum = 50)]
    place: Option<usize>,
    /// Hides the tool instead.
    hide: Option<bool>,
}

/// Factors of scores, from 0.1 to 10, or 0 to switch off.
#[derive(ToSchema)]
#[schema(as = Boosts)]
#[expect(dead_code, reason = "describes what the engine reads")]
pub struct BoostsEntry {
    /// By the tool's id.
    tools: Option<BTreeMap<String, f32>>,
    /// By the server.
    #[schema(example = json!({"legacy": 0.5}))]
    servers: Option<BTreeMap<String, f32>>,
    /// By the tag.
    tags: Option<BTreeMap<String, f32>>,
}

/// Shows the words of a catalog's owner: aliases, synonyms, pins, boosts and descriptions.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/words", operation_id = "catalog_words", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = WordsAnswer, description = "The words"))
)]
pub async fn show(
    Reading(catalog): Reading,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Json<WordsAnswer>> {
    answer(&cpu_pool, &catalog).await
}

/// Replaces the words of a catalog's owner.
///
/// They are kept apart from what servers send, so that no sync loses them, and take effect at once. Tools
/// with another description or other aliases are embedded again.
#[utoipa::path(
    put, path = "/v1/catalogs/{catalog}/words", operation_id = "set_catalog_words", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = WordsDocument,
    responses((status = 200, body = WordsAnswer, description = "The new words"))
)]
pub async fn replace(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Json(document): Json<Value>,
) -> ApiResult<Json<WordsAnswer>> {
    let words = OwnerWords::read(document.to_string().as_bytes())?;
    let change = WordsChange::Replace(Arc::new(words));
    write(&cpu_pool, &catalog, change).await
}

/// Changes the words of a catalog's owner by a JSON merge patch (RFC 7396).
///
/// What the patch does not name stays; `null` removes an entry. Two patches at one time are both applied.
#[utoipa::path(
    patch, path = "/v1/catalogs/{catalog}/words", operation_id = "patch_catalog_words", tag = "catalogs",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body(content((Object = "application/merge-patch+json"), (Object = "application/json"))),
    responses((status = 200, body = WordsAnswer, description = "The new words"))
)]
pub async fn patch(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    Json(patch): Json<Value>,
) -> ApiResult<Json<WordsAnswer>> {
    write(&cpu_pool, &catalog, WordsChange::Patch(Arc::new(patch))).await
}

async fn write(
    cpu_pool: &CpuPool,
    catalog: &Arc<OpenCatalog>,
    change: WordsChange,
) -> ApiResult<Json<WordsAnswer>> {
    let written = catalog.writer.try_write(Change::OwnerWords(change)).await?;
    // With a store, this node may not have the change yet.
    catalog.reach(written.generation).await?;
    answer(cpu_pool, catalog).await
}

async fn answer(cpu_pool: &CpuPool, catalog: &Arc<OpenCatalog>) -> ApiResult<Json<WordsAnswer>> {
    let (searcher, has_tools) = (catalog.searcher(), catalog.has_all_tools());
    // Off the async threads: every entry is looked up.
    let answer = cpu_pool.run(move || words_of(&searcher, has_tools));
    Ok(Json(answer.await?))
}

fn words_of(searcher: &Searcher, has_tools: bool) -> WordsAnswer {
    let words = searcher.owner_words().cloned().unwrap_or_default();
    WordsAnswer {
        without_tool: match has_tools {
            true => Some(searcher.entries_without_tool(&words)),
            false => None,
        },
        generation: searcher.generation(),
        words,
    }
}
