//! Keeps the figures of this server by minute, hour and day, so that they survive a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::sleep;

use super::gauges::Gauges;
use super::stats::ALL_STAGES;
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::threads::blocking;
use crate::served::tokens::{SavedTokens, Source, TokenSavings};
use toolscout_base::telemetry::process;
use toolscout_state::kept_figures::{Figures, KeptFigures, Step};

/// How often the figures are kept. A server that is killed loses those since the last time.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Keeps what the counters of a server count. Cheap to clone.
#[derive(Clone)]
pub struct FigureKeeper(Arc<Keeper>);

struct Keeper {
    /// `None` if the database cannot be used: a server runs without these figures.
    kept: Option<KeptFigures>,
    counters: Counters,
    /// What had been counted when figures were last kept.
    last: Mutex<Figures>,
}

/// What counts.
struct Counters {
    gauges: Gauges,
    token_savings: TokenSavings,
}

impl FigureKeeper {
    /// Keeps the figures in this data directory.
    pub fn open(data_dir: &Path, gauges: Gauges, token_savings: TokenSavings) -> Self {
        let kept = KeptFigures::open(data_dir);
        let kept = kept.inspect_err(|error| {
            tracing::warn!("figures of this server are not kept: {error:#}");
        });
        FigureKeeper(Arc::new(Keeper {
            kept: kept.ok(),
            counters: Counters {
                gauges,
                token_savings,
            },
            last: Mutex::default(),
        }))
    }

    /// Keeps the figures again and again until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let keeping = async {
            loop {
                sleep(KEEP_EVERY).await;
                self.keep().await;
            }
        };
        shutdown.token().run_until_cancelled(keeping).await;
    }

    /// The kept periods of this length, the oldest first, with what was counted up to now.
    ///
    /// # Errors
    /// If the database fails.
    pub async fn read(&self, step: Step) -> ApiResult<Vec<(i64, Figures)>> {
        let keeper = self.clone();
        blocking(move || keeper.0.read(step)).await?
    }

    /// Adds what was counted since the last time.
    pub async fn keep(&self) {
        let keeper = self.clone();
        let keeping = blocking(move || keeper.0.keep());
        if let Ok(Err(error)) | Err(error) = keeping.await {
            not_kept(error);
        }
    }
}

impl Keeper {
    /// Adds what was counted since the last time. Blocks.
    fn keep(&self) -> ApiResult<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        // Locked until the end, so that two at once do not both add the same.
        let mut last = self.last.lock();
        let total = self.counters.read();
        let since = since(&total, &last);
        kept.add(SystemTime::now(), &since)
            .map_err(ApiError::internal)?;
        *last = total;
        Ok(())
    }

    fn read(&self, step: Step) -> ApiResult<Vec<(i64, Figures)>> {
        // What was kept can be read even if nothing can be written, as on a full disk.
        if let Err(error) = self.keep() {
            not_kept(error);
        }
        match &self.kept {
            Some(kept) => kept
                .read(step, SystemTime::now())
                .map_err(ApiError::internal),
            None => Ok(Vec::new()),
        }
    }
}

impl Counters {
    /// What was counted since the start.
    fn read(&self) -> Figures {
        let mut figures = Figures {
            memory_bytes: process::resident_bytes().unwrap_or(0),
            ..Figures::default()
        };
        let metrics = &self.gauges.metrics;
        for (labels, latencies) in metrics.stage_seconds.all() {
            if labels.stage == ALL_STAGES {
                figures.searches.add(&latencies.read());
            }
        }
        for (_, count) in metrics.no_match.all() {
            figures.no_match += count.get();
        }
        for (_, count) in metrics.degraded.all() {
            figures.degraded += count.get();
        }
        for (labels, count) in metrics.requests.all() {
            figures.requests += count.get();
            if labels.status >= 500 {
                figures.errors += count.get();
            }
        }
        for source in [Source::Search, Source::Mcp] {
            figures.saved_tokens += saved(self.token_savings.read(source));
        }
        if let Some(agent) = self.gauges.default_catalog.agent() {
            let turns = agent.tool_tokens();
            figures.saved_tokens += turns.catalog.saturating_sub(turns.shown);
        }
        figures
    }
}

fn not_kept(error: ApiError) {
    let reason = error.detail.unwrap_or(error.message);
    tracing::warn!(reason, "figures of this server were not kept this time");
}

/// What came to these figures since earlier ones; the memory is that of now.
fn since(now: &Figures, earlier: &Figures) -> Figures {
    Figures {
        searches: now.searches.since(&earlier.searches),
        no_match: now.no_match.saturating_sub(earlier.no_match),
        degraded: now.degraded.saturating_sub(earlier.degraded),
        requests: now.requests.saturating_sub(earlier.requests),
        errors: now.errors.saturating_sub(earlier.errors),
        saved_tokens: now.saved_tokens.saturating_sub(earlier.saved_tokens),
        memory_bytes: now.memory_bytes,
    }
}

fn saved(tokens: SavedTokens) -> u64 {
    tokens.catalog_tokens.saturating_sub(tokens.answered_tokens)
}
