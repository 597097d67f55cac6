//! Reads the tools of a request body.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use tokio::sync::Semaphore;
use toolscout_index::formats::{self, Parsed, ReadOptions};
use toolscout_index::{Tool, ToolId};

use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{self, RawBody};
use crate::request::wire::{ItemResult, failed_item};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::media_type::is_json;
use toolscout_base::telemetry::Metrics;

/// Reads bodies of tools. A bounded number is read at one time, since they may be large.
pub struct BulkBodies {
    permits: Semaphore,
    metrics: Arc<Metrics>,
    cpu_pool: CpuPool,
}

impl BulkBodies {
    /// Reads at most this many bodies at one time.
    pub fn new(most: usize, metrics: Arc<Metrics>, cpu_pool: CpuPool) -> Self {
        BulkBodies {
            permits: Semaphore::new(most),
            metrics,
            cpu_pool,
        }
    }

    /// Reads the tools of a body.
    ///
    /// # Errors
    /// 415 for another media type, 503 while too many bodies are read, 400 for an unknown format, 422 for a
    /// document that is no list of tools.
    pub async fn read(&self, request: Request, options: ReadOptions) -> ApiResult<Parsed> {
        let media_type = extract::media_type(request.headers())?;
        let yaml = ["application/yaml", "application/x-yaml", "text/yaml"];
        if !is_json(&media_type) && !yaml.contains(&media_type.as_str()) {
            return Err(extract::unsupported(
                "application/json, application/yaml or application/x-ndjson",
            ));
        }
        let Ok(_permit) = self.permits.try_acquire() else {
            self.metrics.rejected("bulk_bodies");
            return Err(ApiError::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "the server is reading as many bodies of tools as it can; try again later",
            ));
        };
        let RawBody(bytes) = RawBody::from_request(request, &()).await?;
        let parsed = self
            .cpu_pool
            .run(move || formats::parse(&bytes, &options))
            .await??;
        // Whoever sends all tools of a server, and sends another file by mistake, would remove them.
        if let Some(reason) = parsed.without_tools() {
            let message = format!("the body has no tools: {reason} (nothing was changed)");
            return Err(ApiError::unprocessable("no_valid_tools", message));
        }
        Ok(parsed)
    }
}

/// The tools of a body in which every item must be valid and none may be missing.
///
/// # Errors
/// 422 with the first invalid item, and for one page of a list that others follow.
pub fn all_valid(parsed: Parsed) -> ApiResult<Vec<Tool>> {
    if parsed.is_part {
        let message = "the body is one page of a `tools/list` and says that others follow (nothing was changed: their \
                       tools would be removed); send the tools of all pages";
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    match parsed.skipped.into_iter().next() {
        Some(skipped) => Err(ApiError::from(skipped.error)),
        None => Ok(parsed.tools),
    }
}

/// Refuses a body that has items, none of them valid.
///
/// # Errors
/// 422 with the error of each item.
pub fn require_valid_item(parsed: &Parsed) -> ApiResult<()> {
    if !parsed.tools.is_empty() || parsed.skipped.is_empty() {
        return Ok(());
    }
    let items: Vec<ItemResult> = parsed.skipped.iter().map(failed_item).collect();
    let message = match items.len() {
        1 => "the item of the body is not a valid tool; error.items has the reason".to_owned(),
        count => format!(
            "none of the {count} items of the body is a valid tool; error.items has the reasons"
        ),
    };
    Err(ApiError {
        items,
        ..ApiError::unprocessable("no_valid_tools", message)
    })
}

/// The tool of a body that has just this one.
///
/// # Errors
/// 422 for an invalid tool, several tools, or one with another id.
pub fn only_tool(parsed: Parsed, id: &ToolId) -> ApiResult<Tool> {
    let tool = match <[Tool; 1]>::try_from(all_valid(parsed)?) {
        Ok([tool]) => tool,
        Err(tools) => {
            let count = tools.len();
            let message = format!("the body has {count} tools, this route takes exactly one");
            return Err(ApiError::unprocessable("invalid_tool", message));
        }
    };
    if tool.id != *id {
        let message = format!(
            "the tool in the body is {:?} and the path is of {:?}; make them equal",
            tool.id, id
        );
        return Err(ApiError::unprocessable("id_mismatch", message));
    }
    Ok(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &[u8]) -> Parsed {
        formats::parse(body, &ReadOptions::default()).unwrap()
    }

    #[test]
    fn a_body_needs_a_valid_item_unless_it_is_empty() {
        let error = require_valid_item(&parse(br#"[{"nome":"a"},{"nome":"b"}]"#)).unwrap_err();
        assert_eq!((error.code, error.items.len()), ("no_valid_tools", 2));
        assert!(error.message.contains("2 items"), "{}", error.message);
        assert!(require_valid_item(&parse(br#"[{"nome":"a"},{"name":"b"}]"#)).is_ok());
        assert!(require_valid_item(&parse(b"[]")).is_ok());
    }

    #[test]
    fn one_page_of_a_list_is_not_all_of_it() {
        let page = parse(br#"{"tools": [{"name": "a"}], "nextCursor": "2"}"#);
        assert!(all_valid(page).unwrap_err().message.contains("one page"));
        let whole = parse(br#"{"tools": [{"name": "a"}], "nextCursor": ""}"#);
        assert_eq!(all_valid(whole).unwrap().len(), 1);
    }
}
