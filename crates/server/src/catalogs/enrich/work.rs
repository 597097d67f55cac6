//! Asks the model about the tools of a catalog and stores what can be used of its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolscout_index::{Enrichment, Tool};

use super::TextWriter;
use super::account::Reserved;
use crate::request::error::{ApiError, ApiResult};
use crate::request::wire::{ItemError, ItemResult, ItemStatus};
use crate::served::OpenCatalog;
use crate::tasks::{MAX_LISTED_FAILURES, Task, TaskBody};
use toolscout_finder::enrich::Batch;
use toolscout_finder::enrich::exchange::{Refused, ids_of, not_stored};
use toolscout_finder::enrich::run::{PARALLEL, Run, Step};
use toolscout_gate::llm::ChatModel;
use toolscout_state::catalog_writer::Change;

/// Texts to be written.
pub struct Work {
    pub writer: TextWriter,
    pub catalog: Arc<OpenCatalog>,
    pub model: Arc<dyn ChatModel>,
    pub batches: Vec<Batch>,
    pub reserved: Reserved,
}

impl Work {
    /// Writes texts until all tools were asked about, the task is cancelled or the budget is used up.
    ///
    /// # Errors
    /// What keeps texts from being stored, and why a run ended early.
    pub async fn run_as_task(self, task: Arc<Task>) -> ApiResult<()> {
        let is_stopped = {
            let task = Arc::clone(&task);
            move || task.is_cancelled()
        };
        let run = self
            .run(is_stopped, |answered| {
                task.update(|body| answered.add_to(body))
            })
            .await?;
        match run.problem {
            Some(problem) => Err(ApiError::busy(
                axum::http::StatusCode::SERVICE_UNAVAILABLE,
                "enrich_ended",
                problem,
            )),
            None => Ok(()),
        }
    }

    /// Writes texts. `progress` is called after each answer.
    ///
    /// # Errors
    /// What keeps texts from being stored.
    pub async fn run(
        self,
        is_stopped: impl Fn() -> bool + Send + Sync,
        mut progress: impl FnMut(&Answered) + Send,
    ) -> ApiResult<Run> {
        let Work {
            writer,
            catalog,
            model,
            batches,
            reserved,
        } = self;
        // If another node has the right to write, the run ends here, before it sends anything.
        let mut turn = reserved.begin().await?;
        let mut run = Run::new(model, batches, PARALLEL, Some(catalog.searcher()));
        if let Some(left) = writer.enriching.left(turn.spent()) {
            run = run.within(left);
        }
        // After this the run still waits for answers under way and counts them.
        let has_failed = AtomicBool::new(false);
        let is_over = || {
            has_failed.load(Ordering::Relaxed)
                || is_stopped()
                || writer.shutdown.is_triggered()
                || !writer.catalogs.holds(&catalog)
        };
        let mut ended = Ok(());
        while let Some(step) = run.next(&is_over).await {
            let Step::Answered {
                tools,
                tokens,
                written,
            } = step
            else {
                continue;
            };
            let before = run.enriched;
            // Held texts are not stored: clients only see them here.
            catalog.held.add(std::mem::take(&mut run.held));
            // Counted first, since the tokens are spent even if the texts cannot be stored.
            let counted = turn.spend(tokens).await;
            if ended.is_ok() {
                ended = store(&catalog, &mut run, written).await.and(counted);
            }
            has_failed.store(ended.is_err(), Ordering::Relaxed);
            progress(&Answered {
                tools,
                stored: run.enriched - before,
                skipped: std::mem::take(&mut run.skipped),
                unanswered: std::mem::take(&mut run.unanswered),
            });
        }
        turn.end().await;
        ended.map(|()| run)
    }
}

/// What came of one answer.
pub struct Answered {
    /// Tools that were asked about.
    tools: usize,
    /// Tools whose texts are stored.
    pub stored: usize,
    /// Tools without a usable text in the answer.
    pub skipped: Vec<Refused>,
    /// Tools of a request that was not answered.
    pub unanswered: Vec<Refused>,
}

impl Answered {
    fn add_to(&self, body: &mut TaskBody) {
        body.done += self.tools;
        body.result.changed += self.stored;
        body.result.failed += self.skipped.len() + self.unanswered.len();
        let room = MAX_LISTED_FAILURES.saturating_sub(body.failures.len());
        let failed = self.skipped.iter().chain(&self.unanswered);
        body.failures.extend(failed.take(room).map(failure));
    }
}

/// Stores texts, and says of which tools they were not.
async fn store(
    catalog: &OpenCatalog,
    run: &mut Run,
    written: Vec<(Arc<Tool>, Enrichment)>,
) -> ApiResult<()> {
    if written.is_empty() {
        run.stored(0, Vec::new());
        return Ok(());
    }
    let ids = ids_of(&written);
    let stored = catalog.writer.write(Change::Enrich(written)).await?;
    let stored = stored.changes.changed;
    run.stored(stored.len(), not_stored(&ids, &stored));
    Ok(())
}

fn failure(refused: &Refused) -> ItemResult {
    ItemResult {
        item: 0,
        id: Some(refused.id.clone()),
        status: ItemStatus::Failed,
        error: Some(ItemError {
            code: "no_text".to_owned(),
            message: refused.reason.clone(),
        }),
    }
}
