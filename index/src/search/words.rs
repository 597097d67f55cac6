//! The lexical index of a snapshot, with a replacement in memory in case reading it panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::{Row, Searcher};
use crate::document::Weights;
use crate::error::Result;
use crate::lexical::{Entry, LexicalIndex, LexicalSearcher, LexicalSettings, LexicalWriter};

/// Rows analyzed at once, in parallel; only these are in memory twice.
const CHUNK: usize = 1024;

/// The lexical index of a snapshot.
pub(crate) struct Words {
    index: LexicalSearcher,
    /// Built from the tools once reading `index` has panicked, as it does when another program
    /// changes the mapped files.
    rebuilt: OnceLock<LexicalSearcher>,
}

impl Words {
    pub(crate) fn new(index: LexicalSearcher) -> Self {
        Words {
            index,
            rebuilt: OnceLock::new(),
        }
    }
}

impl Searcher {
    /// Reads the lexical index. If that panics, the index is rebuilt in memory, once for the
    /// snapshot, and read again.
    pub(crate) fn with_words<'a, T>(&'a self, read: impl Fn(&'a LexicalSearcher) -> T) -> T {
        if let Some(rebuilt) = self.words.rebuilt.get() {
            return read(rebuilt);
        }
        // The index is only read, so a panic leaves nothing half changed.
        let panic = match catch_unwind(AssertUnwindSafe(|| read(&self.words.index))) {
            Ok(result) => return result,
            Err(panic) => panic,
        };
        match in_memory(&self.rows, &self.settings.lexical) {
            // Two threads may both have built one; the first stays.
            Ok(rebuilt) => read(self.words.rebuilt.get_or_init(|| rebuilt)),
            Err(_) => resume_unwind(panic),
        }
    }
}

/// A lexical index of these rows in memory.
///
/// # Errors
/// [`crate::Error::Derived`].
pub(crate) fn in_memory(rows: &[Arc<Row>], settings: &LexicalSettings) -> Result<LexicalSearcher> {
    let index = LexicalIndex::in_memory();
    fill(&index, rows, settings, &settings.stamp())?;
    index.searcher(&ordinals(rows), settings)
}

/// Fills an empty lexical index with all rows.
///
/// # Errors
/// [`crate::Error::Derived`].
pub(crate) fn fill(
    index: &LexicalIndex,
    rows: &[Arc<Row>],
    settings: &LexicalSettings,
    stamp: &str,
) -> Result<()> {
    let mut writer = index.writer()?;
    add(&mut writer, rows, settings)?;
    writer.commit(stamp)?;
    writer.finish();
    Ok(())
}

/// Adds rows to an index.
///
/// # Errors
/// [`crate::Error::Derived`].
pub(crate) fn add(
    writer: &mut LexicalWriter,
    rows: &[Arc<Row>],
    settings: &LexicalSettings,
) -> Result<()> {
    for chunk in rows.chunks(CHUNK) {
        for entry in entries(chunk, &settings.weights) {
            writer.add(&entry)?;
        }
    }
    Ok(())
}

/// Analyzes tools in parallel.
fn entries(rows: &[Arc<Row>], weights: &Weights) -> Vec<Entry> {
    let analyzed = rows.par_iter().filter_map(|row| {
        Some(Entry::new(
            row.stored.key,
            &row.stored.parse().ok()?,
            weights,
        ))
    });
    analyzed.collect()
}

/// Positions by store key. The lexical index names tools by their store key.
pub(crate) fn ordinals(rows: &[Arc<Row>]) -> HashMap<u64, u32> {
    rows.iter()
        .enumerate()
        .map(|(position, row)| (row.stored.key, position as u32))
        .collect()
}
