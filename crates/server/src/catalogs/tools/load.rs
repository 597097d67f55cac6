//! Writes the tools of a body: at once, or as a task in steps.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use toolscout_index::formats::Parsed;
use toolscout_index::{Changes, Tool, ToolId};

use super::UpsertAnswer;
use crate::catalogs::stream::Step;
use crate::request::error::ApiResult;
use crate::request::extract::Json;
use crate::request::wire::{ChangeCounts, ItemResult, ItemStatus, ToolWarning, failed_item};
use crate::served::OpenCatalog;
use crate::tasks::{MAX_LISTED_FAILURES, Task, Tasks};
use toolscout_state::catalog_writer::{Change, Written};

/// A body with more tools than this becomes a task.
const MAX_TOOLS_IN_REQUEST: usize = 1000;

/// Writes the valid tools and answers with the outcome of each item, or with a task.
///
/// # Errors
/// 429 for a full queue or too many tasks.
pub async fn upsert(
    tasks: &Arc<Tasks>,
    catalog: &Arc<OpenCatalog>,
    parsed: Parsed,
    headers: &HeaderMap,
) -> ApiResult<Response> {
    if runs_as_task(parsed.tools.len(), headers) {
        return start_upsert(tasks, catalog, parsed).await;
    }
    let (ids, failures) = positions(&parsed);
    let warnings = parsed.warnings.iter().map(ToolWarning::from).collect();
    let Written {
        changes,
        generation,
    } = catalog
        .writer
        .try_write(Change::Upsert(parsed.tools))
        .await?;
    let mut result = ChangeCounts {
        failed: failures.len(),
        ..ChangeCounts::default()
    };
    result.add(&changes);
    Ok(Json(UpsertAnswer {
        result,
        items: item_results(ids, failures, &changes),
        warnings,
        generation,
    })
    .into_response())
}

async fn start_upsert(
    tasks: &Arc<Tasks>,
    catalog: &Arc<OpenCatalog>,
    parsed: Parsed,
) -> ApiResult<Response> {
    let (_, mut failures) = positions(&parsed);
    let catalog = Arc::clone(catalog);
    let task = tasks.start(
        &catalog.name.clone(),
        parsed.tools.len(),
        move |task| async move {
            task.update(|body| {
                body.result.failed = failures.len();
                failures.truncate(MAX_LISTED_FAILURES);
                body.failures = failures;
                body.warnings = parsed.warnings.iter().map(ToolWarning::from).collect();
            });
            upsert_in_steps(&task, &catalog, parsed.tools).await
        },
    )?;
    Ok(tasks.accepted(&task).await)
}

async fn upsert_in_steps(
    task: &Task,
    catalog: &OpenCatalog,
    mut tools: Vec<Tool>,
) -> ApiResult<()> {
    let mut step = Step::first();
    // In steps, so that other changes get their turn and a cancellation takes effect soon.
    while !tools.is_empty() {
        if task.is_cancelled() {
            return Ok(());
        }
        let rest = tools.split_off(step.tools().min(tools.len()));
        let count = tools.len();
        let written = catalog.writer.write(Change::Upsert(tools)).await?;
        task.update(|body| {
            body.done += count;
            body.result.add(&written.changes);
        });
        tools = rest;
        step = step.next();
    }
    Ok(())
}

/// Whether the load is answered with 202 and runs as a task: large ones do, and those of clients
/// that ask for it.
pub fn runs_as_task(tools: usize, headers: &HeaderMap) -> bool {
    tools > MAX_TOOLS_IN_REQUEST || prefers_async(headers)
}

fn prefers_async(headers: &HeaderMap) -> bool {
    let Some(prefer) = headers.get("prefer").and_then(|value| value.to_str().ok()) else {
        return false;
    };
    prefer
        .split(',')
        .any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
}

/// The ids of the valid tools with their positions in the body, and the results of invalid items.
fn positions(parsed: &Parsed) -> (Vec<(usize, ToolId)>, Vec<ItemResult>) {
    let failures: Vec<ItemResult> = parsed.skipped.iter().map(failed_item).collect();
    let items = parsed.tools.len() + failures.len();
    // The parser keeps tools and invalid items apart, both in order: the tools have the positions
    // that no invalid item has.
    let mut invalid = failures.iter().map(|failure| failure.item).peekable();
    let mut tools = parsed.tools.iter();
    let mut ids = Vec::with_capacity(parsed.tools.len());
    for position in 1..=items {
        if invalid.next_if_eq(&position).is_some() {
            continue;
        }
        if let Some(tool) = tools.next() {
            ids.push((position, tool.id.clone()));
        }
    }
    (ids, failures)
}

fn item_results(
    ids: Vec<(usize, ToolId)>,
    failures: Vec<ItemResult>,
    changes: &Changes,
) -> Vec<ItemResult> {
    let mut results = failures;
    for (item, id) in ids {
        results.push(ItemResult {
            item,
            status: ItemStatus::of(&id, changes),
            id: Some(id.to_string()),
            error: None,
        });
    }
    results.sort_by_key(|result| result.item);
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    use toolscout_index::formats::{self, ReadOptions};

    fn parse(body: &[u8]) -> Parsed {
        formats::parse(body, &ReadOptions::default()).unwrap()
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let body = br#"[{"name":"a"},{"nome":"b"},{"name":"c"},{"name":"a"}]"#;
        let (ids, failures) = positions(&parse(body));
        let changes = Changes {
            added: vec![ToolId::parse("a").unwrap()],
            ..Changes::default()
        };
        let results = item_results(ids, failures, &changes);
        let statuses: Vec<_> = results
            .iter()
            .map(|result| (result.item, result.status))
            .collect();
        use ItemStatus::{Added, Failed, Unchanged};
        assert_eq!(
            statuses,
            [(1, Added), (2, Failed), (3, Unchanged), (4, Failed)]
        );
        assert_eq!(results[3].error.as_ref().unwrap().code, "duplicate_tool");
    }
}
