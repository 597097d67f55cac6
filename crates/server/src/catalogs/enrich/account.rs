//! The tokens that writing texts takes in a day, and who may write now: one run at a time, on all nodes.

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::request::error::{ApiError, ApiResult, store_unavailable};
use crate::request::threads::blocking;
use toolscout_base::clock::unix_ms;
use toolscout_finder::enrich::Tokens;
use toolscout_state::shared::SharedStore;

/// The file in the data directory.
const FILE: &str = "enrich-tokens.json";
const DAY_MS: i64 = 86_400_000;
/// The code of the answer while another run writes.
pub const ALREADY_ENRICHING: &str = "already_enriching";

/// Where tokens are counted.
pub struct Account {
    running: Arc<Semaphore>,
    kept: Kept,
}

#[derive(Clone)]
enum Kept {
    File(PathBuf),
    /// All nodes have one count.
    Store(Arc<dyn SharedStore>),
}

/// A place for one run of this node.
pub struct Reserved {
    kept: Kept,
    permit: OwnedSemaphorePermit,
}

/// The right to write texts, on all nodes.
pub struct Turn {
    kept: Kept,
    /// Tokens of this day before this turn and within it.
    spent: usize,
    _permit: OwnedSemaphorePermit,
}

/// The tokens of a day.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Day {
    /// Days since 1970, in UTC.
    day: i64,
    tokens: usize,
}

impl Account {
    /// In the data directory, or in the store.
    pub fn new(data: &std::path::Path, store: Option<&Arc<dyn SharedStore>>) -> Self {
        let kept = match store {
            Some(store) => Kept::Store(Arc::clone(store)),
            None => Kept::File(data.join(FILE)),
        };
        Account {
            running: Arc::new(Semaphore::new(1)),
            kept,
        }
    }

    /// The tokens of this day, in UTC.
    ///
    /// # Errors
    /// 503 without the store, 500 when the file cannot be read.
    pub async fn spent(&self) -> ApiResult<usize> {
        self.kept.spent().await
    }

    /// A place for a run of this node; `None` while another run has it.
    pub fn reserve(&self) -> Option<Reserved> {
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        Some(Reserved {
            kept: self.kept.clone(),
            permit,
        })
    }
}

impl Reserved {
    /// The right to write.
    ///
    /// # Errors
    /// As [`Account::spent`], and 409 while another node has it.
    pub async fn begin(self) -> ApiResult<Turn> {
        // In a data directory the permit is enough. With a store, only one of the nodes may write.
        let spent = match &self.kept {
            Kept::File(_) => self.kept.spent().await?,
            Kept::Store(store) => {
                let spent = store.begin_enriching().await.map_err(store_unavailable)?;
                spent.ok_or_else(busy)?
            }
        };
        Ok(Turn {
            kept: self.kept,
            spent,
            _permit: self.permit,
        })
    }
}

impl Turn {
    /// Tokens of this day.
    pub fn spent(&self) -> usize {
        self.spent
    }

    /// Counts tokens, and keeps the right.
    ///
    /// # Errors
    /// As [`Account::spent`], and 409 once another node has the right.
    pub async fn spend(&mut self, tokens: Tokens) -> ApiResult<()> {
        let tokens = tokens.sum();
        // Added first: the tokens are spent even if storing the number fails.
        self.spent += tokens;
        match &self.kept {
            Kept::File(file) => {
                let file = file.clone();
                match blocking(move || add(&file, tokens)).await? {
                    Ok(()) => Ok(()),
                    Err(error) => Err(ApiError::internal(format!("write {FILE}: {error}"))),
                }
            }
            Kept::Store(store) => {
                let is_ours = store.count_enriching(tokens).await;
                if is_ours.map_err(store_unavailable)? {
                    return Ok(());
                }
                Err(busy())
            }
        }
    }

    /// Gives the right back.
    pub async fn end(self) {
        if let Kept::Store(store) = &self.kept
            && let Err(error) = store.end_enriching().await
        {
            tracing::warn!(%error, "other nodes wait ten minutes before they write texts");
        }
    }
}

/// The answer while another run writes.
pub fn busy() -> ApiError {
    ApiError::busy(
        axum::http::StatusCode::CONFLICT,
        ALREADY_ENRICHING,
        "texts are being written already; wait for that task to end, or cancel it",
    )
}

impl Kept {
    async fn spent(&self) -> ApiResult<usize> {
        match self {
            Kept::File(file) => {
                let file = file.clone();
                match blocking(move || read(&file)).await? {
                    Ok(day) => Ok(day.tokens),
                    Err(error) => Err(ApiError::internal(format!("read {FILE}: {error}"))),
                }
            }
            Kept::Store(store) => store.enriching_tokens().await.map_err(store_unavailable),
        }
    }
}

/// This day's count; 0 where the file is of another day, or there is none.
fn read(file: &std::path::Path) -> io::Result<Day> {
    let today = Day {
        day: unix_ms(SystemTime::now()).div_euclid(DAY_MS),
        tokens: 0,
    };
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(today),
        Err(error) => return Err(error),
    };
    let kept: Day = serde_json::from_slice(&text)?;
    Ok(if kept.day == today.day { kept } else { today })
}

fn add(file: &std::path::Path, tokens: usize) -> io::Result<()> {
    let mut day = read(file)?;
    day.tokens = day.tokens.saturating_add(tokens);
    let folder = file.parent().unwrap_or_else(|| std::path::Path::new("."));
    // Written to a draft that replaces the file, so that a crash never leaves half a count.
    let mut draft = NamedTempFile::new_in(folder)?;
    draft.write_all(&serde_json::to_vec(&day)?)?;
    draft.persist(file)?;
    Ok(())
}
