//! The lexical index of a snapshot, and another one in memory should reading the first panic.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::{Row, Searcher};
use crate::document::Weights;
use crate::error::Result;
use crate::lexical::{Entry, LexicalIndex, LexicalSearcher, LexicalSettings};

/// Rows analyzed at once: in parallel, and only these are in memory twice.
const CHUNK: usize = 4096;

/// What a snapshot finds words in.
pub(crate) struct Words {
    index: LexicalSearcher,
    /// Built from the tools where reading `index` panicked: its files were changed under it.
    anew: OnceLock<LexicalSearcher>,
}

impl Words {
    pub(crate) fn new(index: LexicalSearcher) -> Self {
        Words {
            index,
            anew: OnceLock::new(),
        }
    }
}

impl Searcher {
    /// Asks the lexical index. Where that panics it is built anew in memory, once for the snapshot,
    /// and asked again.
    pub(crate) fn ask_words<'a, T>(&'a self, ask: impl Fn(&'a LexicalSearcher) -> T) -> T {
        if let Some(anew) = self.words.anew.get() {
            return ask(anew);
        }
        let panic = match catch_unwind(AssertUnwindSafe(|| ask(&self.words.index))) {
            Ok(answer) => return answer,
            Err(panic) => panic,
        };
        match in_memory(&self.rows, &self.settings.lexical) {
            Ok(built) => ask(self.words.anew.get_or_init(|| built)),
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
    for chunk in rows.chunks(CHUNK) {
        for entry in entries(chunk, &settings.weights) {
            writer.add(&entry)?;
        }
    }
    writer.commit(stamp)?;
    writer.finish();
    Ok(())
}

/// Analyzes tools in parallel.
pub(crate) fn entries(rows: &[Arc<Row>], weights: &Weights) -> Vec<Entry> {
    let analyzed = rows.par_iter().filter_map(|row| {
        Some(Entry::new(
            row.stored.key,
            &row.stored.parse().ok()?,
            weights,
        ))
    });
    analyzed.collect()
}

/// Tool position by store key, which is how the lexical index names tools.
pub(crate) fn ordinals(rows: &[Arc<Row>]) -> HashMap<u64, u32> {
    rows.iter()
        .enumerate()
        .map(|(place, row)| (row.stored.key, place as u32))
        .collect()
}
