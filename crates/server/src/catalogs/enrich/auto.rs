//! Writes texts by itself for new and changed tools of every open catalog, within the tokens of a day.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use toolscout_index::{Searcher, Tool};

use super::TextWriter;
use super::account::ALREADY_ENRICHING;
use super::work::{Answered, Work};
use crate::request::error::ApiResult;
use crate::served::OpenCatalog;
use toolscout_base::config::EnrichMode;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::enrich::exchange::definition_hash;
use toolscout_finder::enrich::{self, DEFAULT_BATCH};
use toolscout_state::shared::TextsOf;

/// How often catalogs are looked at.
const PAUSE: Duration = Duration::from_secs(5);
/// The wait after a request that was not answered; it doubles with each further turn.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LAST_WAIT: Duration = Duration::from_secs(3600);
/// Most tools of a catalog before another one has its turn.
const TURN_TOOLS: usize = 100;
/// Tools that are read at once of a catalog that is pushed down.
const PAGE_TOOLS: usize = 1_000;
/// Most tools that got no text and are remembered; beyond them all are asked about once more.
const MAX_SKIPPED: usize = 100_000;

/// What is known of the catalogs.
#[derive(Default)]
struct Seen {
    /// The generation in which no tool of a catalog was left to ask about.
    finished: HashMap<String, u64>,
    /// Definitions for which the model wrote nothing that can be used. They are not paid for twice.
    skipped: HashSet<String>,
    /// The wait after requests that were not answered, and its end.
    pause: Option<Duration>,
    resume: Option<Instant>,
}

/// Writes until the shutdown, if the settings say so.
pub async fn write_by_itself(writer: TextWriter, cpu_pool: CpuPool) {
    if writer.enriching.settings.mode() != EnrichMode::Auto {
        return;
    }
    if writer.enriching.model.is_none() {
        tracing::warn!("enrich.mode is auto, and there is no model; start with --llm and --model");
        return;
    }
    let writing = async {
        let mut seen = Seen::default();
        loop {
            sleep(PAUSE).await;
            for catalog in writer.catalogs.all_open() {
                // Texts about tools that somebody else keeps are not stored, and would be paid for again and again.
                if catalog.keeps_texts().is_err() {
                    continue;
                }
                if let Err(error) = seen.write(&writer, &cpu_pool, &catalog).await
                    // Another node is writing, which is no problem.
                    && error.code != ALREADY_ENRICHING
                {
                    let reason = error.detail.unwrap_or(error.message);
                    tracing::warn!(catalog = catalog.name, reason, "texts are not written");
                }
            }
        }
    };
    writer.shutdown.token().run_until_cancelled(writing).await;
}

impl Seen {
    /// Writes texts for some tools of a catalog.
    async fn write(
        &mut self,
        writer: &TextWriter,
        cpu_pool: &CpuPool,
        catalog: &Arc<OpenCatalog>,
    ) -> ApiResult<()> {
        let generation = catalog.searcher().generation();
        // Finding tools without texts reads the whole catalog, so it is done only after a change.
        let is_finished = self.finished.get(&catalog.name) == Some(&generation);
        if is_finished || self.is_waiting() {
            return Ok(());
        }
        let Some(model) = writer.enriching.model.clone() else {
            return Ok(());
        };
        let spent = writer.enriching.account.spent().await?;
        if writer.enriching.left(spent) == Some(0) {
            return Ok(());
        }
        let tools = self.missing(cpu_pool, catalog).await?;
        if tools.is_empty() {
            self.finished.insert(catalog.name.clone(), generation);
            return Ok(());
        }
        let Some(reserved) = writer.enriching.account.reserve() else {
            return Ok(());
        };
        let mut hashes = HashMap::with_capacity(tools.len());
        for tool in &tools {
            hashes.insert(tool.id.to_string(), definition_hash(tool));
        }
        let work = Work {
            writer: writer.clone(),
            catalog: Arc::clone(catalog),
            model,
            batches: enrich::batches(&tools, DEFAULT_BATCH, &writer.enriching.wanted),
            reserved,
        };
        let (mut stored, mut unanswered) = (0, 0);
        let skipped = &mut self.skipped;
        let progress = |answered: &Answered| {
            stored += answered.stored;
            unanswered += answered.unanswered.len();
            // Remembered by hash, so that the tool is asked about again once its definition changes.
            for refused in &answered.skipped {
                skipped.extend(hashes.get(&refused.id).cloned());
            }
        };
        let run = work.run(|| false, progress).await?;
        self.pause = match unanswered {
            0 => None,
            _ => Some(wait_after(self.pause)),
        };
        self.resume = self.pause.map(|wait| Instant::now() + wait);
        tracing::info!(
            catalog = catalog.name,
            tools = stored,
            tokens = run.tokens.sum(),
            unanswered,
            problem = run.problem,
            "texts were written"
        );
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        match self.resume {
            Some(resume) => Instant::now() < resume,
            None => false,
        }
    }

    /// Tools without texts that were not asked about in vain.
    async fn missing(
        &mut self,
        cpu_pool: &CpuPool,
        catalog: &OpenCatalog,
    ) -> ApiResult<Vec<Arc<Tool>>> {
        let mut after = None;
        loop {
            let page = catalog.with_texts(TextsOf {
                have_texts: Some(false),
                after: after.take(),
                limit: PAGE_TOOLS,
                ..TextsOf::default()
            });
            let page = page.await?;
            let missing = self.missing_of(cpu_pool, Arc::clone(&page)).await?;
            // A catalog without all of them here gives some at a time.
            let last = page.ids_after(None).last().map(ToString::to_string);
            if !missing.is_empty() || catalog.has_all_tools() || last.is_none() {
                return Ok(missing);
            }
            after = last;
        }
    }

    async fn missing_of(
        &mut self,
        cpu_pool: &CpuPool,
        searcher: Arc<Searcher>,
    ) -> ApiResult<Vec<Arc<Tool>>> {
        let mut skipped = std::mem::take(&mut self.skipped);
        if skipped.len() > MAX_SKIPPED {
            skipped.clear();
        }
        let look = move || {
            let mut missing = Vec::new();
            for id in enrich::ids_without_texts(&searcher, &[]) {
                if missing.len() == TURN_TOOLS {
                    break;
                }
                if let Some(tool) = searcher.tool(id)
                    && !skipped.contains(&definition_hash(&tool))
                {
                    missing.push(tool);
                }
            }
            (missing, skipped)
        };
        // If the pool is full, `skipped` is lost, and its tools are asked about once more.
        let (missing, skipped) = cpu_pool.run(look).await?;
        self.skipped = skipped;
        Ok(missing)
    }
}

/// The wait after requests that were not answered, and the wait before them.
fn wait_after(before: Option<Duration>) -> Duration {
    match before {
        Some(wait) => (2 * wait).min(LAST_WAIT),
        None => FIRST_WAIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_away_is_asked_less_and_less_often() {
        let mut waits = Vec::new();
        let mut wait = None;
        for _ in 0..8 {
            wait = Some(wait_after(wait));
            waits.extend(wait.map(|wait| wait.as_secs() / 60));
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
