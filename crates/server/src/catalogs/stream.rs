//! Bulk upsert as a stream: NDJSON in, and a result for each line out, sent once its tool is
//! committed.
//!
//! Reading the body never waits for the client to read results: these are short, and the number of
//! lines in a request is bounded. So a client may send everything before it reads anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::TaskTracker;
use toolscout_index::Tool;
use toolscout_index::formats::{self, ReadOptions};

use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract;
use crate::request::wire::{ChangeCounts, ItemError, ItemResult, ItemStatus, failed_item};
use crate::served::OpenCatalog;
use toolscout_base::telemetry::Metrics;
use toolscout_state::catalog_writer::Change;

/// Most bodies that are streamed at a time. The results of each, up to 10 MB, may wait in memory.
pub const MAX_STREAMS: usize = 16;
/// Longest line. A description may have 16 MiB; such a tool needs the route for a single tool.
const MAX_LINE_BYTES: usize = 4 << 20;
/// Most lines of one request. All their results, about 100 bytes each, may wait for the client.
const MAX_LINES: usize = 100_000;
/// Bytes of lines in one commit.
const MAX_BATCH_BYTES: usize = 16 << 20;
/// After a pause of this length the batch is committed as it is, for clients that wait for a result
/// before they send the next line.
const PAUSE: Duration = Duration::from_millis(20);

/// Tools in the first commit of a large load, and in each of the later ones at most. Other changes are
/// written between two commits. A commit costs what the catalog is large, so later ones have more tools.
const FIRST_STEP: usize = 500;
const LARGEST_STEP: usize = 8_000;

/// The number of tools in the next commit of a large load.
#[derive(Clone, Copy, Debug)]
pub struct Step(usize);

impl Step {
    /// The first one.
    pub fn first() -> Self {
        Step(FIRST_STEP)
    }

    /// The number of tools.
    pub fn tools(self) -> usize {
        self.0
    }

    /// The one after it.
    pub fn next(self) -> Self {
        Step((2 * self.0).min(LARGEST_STEP))
    }
}

/// The last line of an answer.
#[derive(Debug, Serialize)]
struct Summary {
    /// False when the stream ended early; `error` has the reason.
    done: bool,
    result: ChangeCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// The streamed loads of a server: a bounded number, awaited when it ends.
pub struct Streams {
    permits: Arc<Semaphore>,
    running: TaskTracker,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
}

impl Streams {
    /// None yet; they end with the server.
    pub fn new(metrics: Arc<Metrics>, shutdown: Shutdown) -> Self {
        Streams {
            permits: Arc::new(Semaphore::new(MAX_STREAMS)),
            running: TaskTracker::new(),
            metrics,
            shutdown,
        }
    }

    /// Number of running loads.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Waits for the loads to end, which they do after the batch in progress once the server shuts
    /// down.
    pub async fn finished(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// Upserts the tools of a body as they arrive, and answers with a stream of results.
    ///
    /// # Errors
    /// 503 while too many bodies are streamed.
    pub fn upsert(
        &self,
        catalog: Arc<OpenCatalog>,
        options: ReadOptions,
        body: Body,
    ) -> ApiResult<Response> {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.rejected("streamed_bodies");
            let message =
                format!("{MAX_STREAMS} NDJSON bodies are being read, the most; try again later");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(ApiError::busy(status, "overloaded", message));
        };
        // Room for one result per line and the summary.
        let (results, lines) = mpsc::channel(MAX_LINES + 1);
        let load = StreamedLoad {
            shutdown: self.shutdown.clone(),
            catalog,
            options,
            results,
            counts: ChangeCounts::default(),
            line: 0,
            batch: Vec::new(),
            batch_bytes: 0,
            step: Step::first(),
            _permit: permit,
        };
        self.running.spawn(load.run(body));
        let lines = futures_util::stream::unfold(lines, |mut lines| async {
            let line: Vec<u8> = lines.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(line), lines))
        });
        let mut response = Body::from_stream(lines).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-ndjson"),
        );
        Ok(response)
    }
}

/// A load in progress. It ends after the batch in progress when the body ends, the client leaves or
/// the server shuts down.
struct StreamedLoad {
    shutdown: Shutdown,
    catalog: Arc<OpenCatalog>,
    options: ReadOptions,
    results: mpsc::Sender<Vec<u8>>,
    counts: ChangeCounts,
    /// Lines read.
    line: usize,
    /// Tools to commit next, with their line numbers.
    batch: Vec<(usize, Tool)>,
    /// The bytes of their lines.
    batch_bytes: usize,
    /// The number of tools with which they are committed.
    step: Step,
    _permit: OwnedSemaphorePermit,
}

impl StreamedLoad {
    async fn run(mut self, body: Body) {
        let outcome = self.read(body).await;
        // What arrived before a failure is committed too. A failed commit is the error to report.
        let outcome = match self.commit().await {
            Ok(()) => outcome,
            failed => failed,
        };
        let error = outcome.err().map(|error| ItemError::from(&error));
        let summary = Summary {
            done: error.is_none(),
            result: self.counts,
            error,
        };
        self.send(&summary);
    }

    async fn read(&mut self, body: Body) -> Result<(), ApiError> {
        let mut chunks = body.into_data_stream();
        let mut rest: Vec<u8> = Vec::new();
        loop {
            let shutdown = self.shutdown.clone();
            let chunk = tokio::select! {
                () = shutdown.triggered() => return Err(ApiError::shutting_down()),
                // The client disconnected, so nobody reads results.
                () = self.results.closed() => return Err(ApiError::shutting_down()),
                () = tokio::time::sleep(PAUSE), if !self.batch.is_empty() => {
                    self.commit().await?;
                    continue;
                }
                chunk = chunks.next() => chunk,
            };
            match chunk {
                Some(Ok(bytes)) => self.take(&mut rest, &bytes).await?,
                Some(Err(error)) => return Err(extract::broken_body(&error)),
                // The last line may have no line break.
                None => return self.take_line(&rest).await,
            }
        }
    }

    /// Takes the complete lines. The start of an incomplete one stays in `rest`.
    async fn take(&mut self, rest: &mut Vec<u8>, bytes: &Bytes) -> Result<(), ApiError> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            rest.extend_from_slice(part);
            // Refuse a line that does not end before it fills the memory.
            if part.ends_with(b"\n") {
                self.take_line(rest).await?;
                rest.clear();
            } else if rest.len() > MAX_LINE_BYTES {
                return Err(self.too_long());
            }
        }
        Ok(())
    }

    async fn take_line(&mut self, line: &[u8]) -> Result<(), ApiError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(self.too_long());
        }
        self.line += 1;
        if self.line > MAX_LINES {
            let message =
                format!("a request may have {MAX_LINES} lines; send the rest in another request");
            return Err(ApiError::unprocessable("too_many_lines", message));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        self.parse(line);
        self.batch_bytes += line.len();
        // Only full batches grow the step: others were cut short by a pause or by their bytes.
        let is_full = self.batch.len() >= self.step.tools();
        if is_full {
            self.step = self.step.next();
        }
        if is_full || self.batch_bytes >= MAX_BATCH_BYTES {
            self.commit().await
        } else {
            Ok(())
        }
    }

    /// Parses a line on the async thread: it is small enough.
    fn parse(&mut self, line: &[u8]) {
        let parsed = match formats::parse(line, &self.options) {
            Ok(parsed) => parsed,
            Err(error) => return self.fail(None, ItemError::from(&ApiError::from(error))),
        };
        for skipped in &parsed.skipped {
            let item = failed_item(skipped);
            if let Some(error) = item.error {
                self.fail(item.id, error);
            }
        }
        for tool in parsed.tools {
            self.batch.push((self.line, tool));
        }
    }

    fn fail(&mut self, id: Option<String>, error: ItemError) {
        self.counts.failed += 1;
        self.send(&ItemResult {
            item: self.line,
            id,
            status: ItemStatus::Failed,
            error: Some(error),
        });
    }

    /// Commits the batch and sends the result of each of its lines.
    async fn commit(&mut self) -> Result<(), ApiError> {
        self.batch_bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        // Of two lines with one id the last wins, as it would in two batches.
        let mut ids = Vec::with_capacity(self.batch.len());
        let mut tools = BTreeMap::new();
        for (line, tool) in std::mem::take(&mut self.batch) {
            ids.push((line, tool.id.clone()));
            tools.insert(tool.id.clone(), tool);
        }
        let written = self
            .catalog
            .writer
            .write(Change::Upsert(tools.into_values().collect()))
            .await?;
        self.counts.add(&written.changes);
        for (item, id) in ids {
            self.send(&ItemResult {
                item,
                id: Some(id.to_string()),
                status: ItemStatus::of(&id, &written.changes),
                error: None,
            });
        }
        Ok(())
    }

    fn send(&self, line: &impl Serialize) {
        // Structs of strings and numbers always serialise.
        let mut line = serde_json::to_vec(line).unwrap_or_default();
        line.push(b'\n');
        // Lines with many tools each may produce more results than the channel has room for; the
        // summary still counts them. The client may also have disconnected.
        let _ = self.results.try_send(line);
    }

    fn too_long(&self) -> ApiError {
        let message = format!(
            "line {} is longer than {MAX_LINE_BYTES} bytes; send this tool with PUT",
            self.line + 1
        );
        ApiError::unprocessable("line_too_long", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_to_the_largest() {
        let steps = std::iter::successors(Some(Step::first()), |step| Some(step.next()));
        let sizes: Vec<usize> = steps.map(Step::tools).take(6).collect();
        assert_eq!(sizes, [500, 1_000, 2_000, 4_000, 8_000, 8_000]);
    }
}
