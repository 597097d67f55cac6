//! The snapshot after a commit of a few tools: the former one with these tools changed. What it takes
//! depends on what was changed; only short lists of numbers are copied whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::legs::leg_after;
use super::{Change, Loaded, bytes_of, row};
use crate::error::Result;
use crate::moves::{Edit, Moves};
use crate::search::{OwnRanker, Searcher};
use crate::settings::Options;
use crate::tool::ToolId;
use crate::tools_db::ToolsDb;

/// The state after a commit that changed many tools is read as a whole: more than one tool in
/// [`MAX_CHANGED_SHARE`], but 64 in a small catalog and 1,024 in a large one.
const MAX_CHANGED_SHARE: usize = 16;
const MIN_MANY: usize = 64;
const MAX_FEW: usize = 1024;

impl Loaded {
    /// The state after the commit of this generation, which changed these tools and nothing else but
    /// what the catalog follows. `None` if it has to be read as a whole.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub(crate) fn after(
        store: &ToolsDb,
        dir: &Path,
        options: &Options,
        previous: &Searcher,
        generation: u64,
        tools: &BTreeSet<ToolId>,
    ) -> Result<Option<Self>> {
        let most = (previous.len() / MAX_CHANGED_SHARE).clamp(MIN_MANY, MAX_FEW);
        let is_same_ranker = !matches!(previous.own_ranker, OwnRanker::Unusable(_));
        let embedders = options.embedders.iter().map(|embedder| embedder.id());
        let is_same_embedders = embedders.eq(previous.legs.iter().map(|leg| leg.embedder.id()))
            && options.missing_embedder == previous.missing_embedder;
        // The rows of a graph are those of all vectors.
        let has_graph = previous.legs.iter().any(|leg| leg.graph.is_some());
        let is_few = tools.len() <= most && !previous.is_empty();
        if !is_few || !is_same_ranker || !is_same_embedders || has_graph {
            return Ok(None);
        }
        store.begin_read()?;
        let loaded = after_in_transaction(store, dir, previous, generation, tools);
        store.end();
        loaded
    }
}

fn after_in_transaction(
    store: &ToolsDb,
    dir: &Path,
    previous: &Searcher,
    generation: u64,
    tools: &BTreeSet<ToolId>,
) -> Result<Option<Loaded>> {
    let version = store.state()?;
    let follows = version.identity == previous.version.identity
        && !version.identity.is_empty()
        && version.generation == generation
        && previous.version.generation + 1 == generation;
    if !follows || store.is_of_former_version()? {
        return Ok(None);
    }
    let change = change(store, previous, tools)?;
    let rows = previous.rows.moved(&change.moves, &change.added);
    let mut legs = Vec::with_capacity(previous.legs.len());
    for leg in &previous.legs {
        legs.push(leg_after(store, dir, leg, &rows, &change)?);
    }
    let added_bytes: usize = change.added.iter().map(|row| bytes_of(row)).sum();
    let removed_bytes: usize = change.removed.iter().map(|(_, row)| bytes_of(row)).sum();
    Ok(Some(Loaded {
        followed: store.followed()?,
        version,
        settings: previous.settings.clone(),
        row_bytes: previous.row_bytes + added_bytes - removed_bytes,
        tool_rows: Arc::new(previous.tool_rows.moved(&change.moves, &change.added)),
        unsaved_tools: previous.unsaved_tools + change.added.len(),
        is_verified: previous.is_verified.load(Ordering::Relaxed),
        is_of_former_version: false,
        languages: Arc::new(previous.languages.moved(&change.moves, &change.added)),
        names: change.names(previous),
        duplicates: change.duplicates(previous),
        companions: change.companions(previous),
        legs,
        ranker: previous.ranker.clone(),
        own_ranker: previous.own_ranker.clone(),
        missing_embedder: previous.missing_embedder.clone(),
        cost_model: Arc::clone(&previous.cost_model),
        owner_words: previous.owner_words.clone(),
        rows,
        change: Some(change),
    }))
}

fn change(store: &ToolsDb, previous: &Searcher, tools: &BTreeSet<ToolId>) -> Result<Change> {
    let (mut edits, mut added, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    // In the order of ids, which is that of rows.
    for id in tools {
        let at = previous.rows.first_not(|other| other < id);
        let former = (at < previous.len())
            .then(|| &previous.rows[at])
            .filter(|former| former.stored.id == *id);
        let key = store.key(id)?;
        if former.map(|former| former.stored.key) == key {
            continue;
        }
        if let Some(former) = former {
            removed.push((at, Arc::clone(former)));
        }
        if let Some(key) = key {
            let words = previous.owner_words.as_deref();
            added.push(row(store, store.tool(key)?, words, true)?);
        }
        edits.push(Edit {
            at,
            removes: former.is_some(),
            adds: key.is_some(),
        });
    }
    Ok(Change {
        moves: Moves::new(previous.len(), &edits),
        added,
        removed,
    })
}
