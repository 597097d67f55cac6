//! The lexical index of a snapshot, with a replacement in memory in case reading it panics.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::{Row, Rows, Searcher};
use crate::error::Result;
use crate::lexical::{
    Analysis, CatalogStatistics, Entry, Frequencies, LexicalIndex, LexicalSearcher,
    LexicalSettings, LexicalWriter,
};

/// Rows analyzed at once, in parallel; only these are in memory twice.
const CHUNK: usize = 1024;

/// The lexical index of a snapshot.
pub(crate) struct Words {
    index: LexicalSearcher,
    /// Built from the tools once reading `index` has panicked, as it does when another program
    /// changes the mapped files.
    rebuilt: OnceLock<LexicalSearcher>,
    /// Where the tools are only some of a catalog's, what is known of all of them.
    whole: Option<Arc<CatalogStatistics>>,
}

impl Words {
    pub(crate) fn new(index: LexicalSearcher) -> Self {
        Words {
            index,
            rebuilt: OnceLock::new(),
            whole: None,
        }
    }

    /// The same for some tools of a catalog with these statistics.
    pub(crate) fn within(index: LexicalSearcher, whole: Arc<CatalogStatistics>) -> Self {
        Words {
            whole: Some(whole),
            ..Words::new(index)
        }
    }

    /// The statistics of the catalog that the tools are some of.
    pub(crate) fn whole(&self) -> Option<&CatalogStatistics> {
        self.whole.as_deref()
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
        match in_memory_within(&self.rows, &self.settings.lexical, self.words.whole.clone()) {
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
pub(crate) fn in_memory(rows: &Rows, settings: &LexicalSettings) -> Result<LexicalSearcher> {
    in_memory_within(rows, settings, None)
}

/// As [`in_memory`], for some tools of a catalog with these statistics.
fn in_memory_within(
    rows: &Rows,
    settings: &LexicalSettings,
    whole: Option<Arc<CatalogStatistics>>,
) -> Result<LexicalSearcher> {
    let index = LexicalIndex::in_memory();
    fill(&index, rows, settings, &settings.stamp())?;
    index.searcher_within(&ordinals(rows.len(), rows.iter()), settings, whole)
}

/// Fills an empty lexical index with all rows.
///
/// # Errors
/// [`crate::Error::Derived`].
pub(crate) fn fill(
    index: &LexicalIndex,
    rows: &Rows,
    settings: &LexicalSettings,
    stamp: &str,
) -> Result<()> {
    let mut writer = index.writer()?;
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut rows = rows.iter().peekable();
    while rows.peek().is_some() {
        chunk.clear();
        chunk.extend(rows.by_ref().take(CHUNK).cloned());
        add(&mut writer, &chunk, settings)?;
    }
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
        add_analyzed(writer, &analyzed(chunk, settings), settings)?;
    }
    Ok(())
}

/// Adds analyzed tools with their keys to an index.
///
/// # Errors
/// [`crate::Error::Derived`].
pub(crate) fn add_analyzed(
    writer: &mut LexicalWriter,
    tools: &[(u64, Analysis)],
    settings: &LexicalSettings,
) -> Result<()> {
    let frequencies = Frequencies::new(&settings.weights);
    for (key, analysis) in tools {
        writer.add(&Entry::new(*key, analysis, &frequencies))?;
    }
    Ok(())
}

/// Analyzes tools in parallel. Rows whose stored JSON is no tool are left out.
pub(crate) fn analyzed(rows: &[Arc<Row>], settings: &LexicalSettings) -> Vec<(u64, Analysis)> {
    let analyzed = rows.par_iter().filter_map(|row| {
        let tool = row.stored.parse().ok()?;
        Some((row.stored.key, Analysis::of(&tool, &settings.weights)))
    });
    analyzed.collect()
}

/// Positions of so many rows by store key. The lexical index names tools by their store key.
pub(crate) fn ordinals<'a>(
    count: usize,
    rows: impl Iterator<Item = &'a Arc<Row>>,
) -> HashMap<u64, u32> {
    let mut ordinals = HashMap::with_capacity(count);
    for (position, row) in rows.enumerate() {
        ordinals.insert(row.stored.key, position as u32);
    }
    ordinals
}
