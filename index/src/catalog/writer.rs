//! The writer of a catalog: collects changes in one transaction, commits them, and publishes a
//! snapshot with them.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::{
    Catalog, LEXICAL, RestingStore, check_dimensions, check_server, check_tools, create_lexical,
    in_memory, spread,
};
use crate::dense::Graph;
use crate::embed::Embedder;
use crate::enrichment::Enrichment;
use crate::error::{Error, Result};
use crate::files::FileState;
use crate::lexical::{Changed, LexicalIndex, LexicalSearcher, LexicalWriter, guarded};
use crate::owner_words::OwnerWords;
use crate::ranker::{self, Ranker};
use crate::search::{Row, Searcher, words};
use crate::settings::Settings;
use crate::snapshot::{Loaded, graph_dir};
use crate::tool::{Tool, ToolId};
use crate::tools_db::{Followed, ToolsDb, Upserted};

/// Up to so many tools, a commit writes to the lexical index with little memory.
const FEW_ADDED: usize = 512;

/// The one writer of a catalog, across processes.
///
/// - Guarantee: changes are collected in one transaction. [`Writer::commit`] makes all of them
///   durable and visible at once.
/// - Cost: a commit of a few tools takes some milliseconds, whatever the catalog's size, and one sync
///   of the database. In a catalog with a graph of vectors, it reads the whole state again. Slow
///   embedders work in [`Writer::embed_pending`] only.
/// - Failure: an error of the store, like dropping the writer without a commit, discards what was
///   not committed. An invalid tool is refused before anything is written, and what was collected
///   before it stays. Another open writer is [`Error::Locked`].
pub struct Writer {
    catalog: Catalog,
    store: ToolsDb,
    /// Open once something was committed.
    lexical: Option<OpenLexical>,
    pending: Pending,
    /// True if its connection is kept for the next writer.
    rests: bool,
    _lock: File,
}

/// The lexical index on disk, open from commit to commit.
struct OpenLexical {
    index: LexicalIndex,
    writer: LexicalWriter,
    /// True if the writer is one for few tools.
    is_small: bool,
    /// The settings it was built with.
    stamp: String,
}

impl OpenLexical {
    /// Opens it for a commit that adds so many tools, and others after it.
    fn open(dir: &Path, stamp: &str, added: usize) -> Result<Self> {
        let index = LexicalIndex::reopen(dir, stamp)?;
        let is_small = added <= FEW_ADDED;
        let writer = match is_small {
            true => index.small_writer()?,
            false => index.writer()?,
        };
        Ok(OpenLexical {
            index,
            writer,
            is_small,
            stamp: stamp.to_owned(),
        })
    }
}

/// The changes of the current transaction.
#[derive(Default)]
struct Pending {
    /// True once the store's transaction has begun.
    open: bool,
    removed: Vec<u64>,
    added: HashSet<u64>,
    ranker: Option<RankerChange>,
    /// True once something of the catalog was changed that it would have from its source.
    is_changed: bool,
    /// True once the source's generation was set that has the changes.
    is_followed: bool,
    /// The tools that were changed or removed.
    tools: BTreeSet<ToolId>,
    /// True once something else was changed that a snapshot has.
    is_more_than_tools: bool,
}

/// A change of the catalog's own ranker.
enum RankerChange {
    Replace(Ranker),
    Delete,
}

impl RankerChange {
    fn apply(&self, path: &Path) -> Result<()> {
        match self {
            RankerChange::Replace(ranker) => ranker.save(path),
            RankerChange::Delete => match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::io("delete", path, error))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Writer {
    pub(super) fn new(catalog: Catalog, store: ToolsDb, lock: File) -> Self {
        Writer {
            catalog,
            store,
            lexical: None,
            pending: Pending::default(),
            rests: false,
            _lock: lock,
        }
    }

    /// Adds tools, or replaces those with the same id.
    ///
    /// # Errors
    /// [`Error::DuplicateTool`] for one id twice, [`Error::InvalidTool`]; both before anything is
    /// written. [`Error::Store`].
    pub fn upsert(&mut self, tools: &[Tool]) -> Result<Changes> {
        check_tools(tools)?;
        self.write(|writer| {
            let mut changes = Changes::default();
            for (tool, upserted) in tools.iter().zip(writer.store.upsert(tools)?) {
                match upserted {
                    Upserted::Added(key) => {
                        writer.pending.tools.insert(tool.id.clone());
                        writer.pending.added.insert(key);
                        changes.added.push(tool.id.clone());
                    }
                    Upserted::Changed(old, new) => {
                        writer.pending.tools.insert(tool.id.clone());
                        writer.pending.replace(old, new);
                        changes.changed.push(tool.id.clone());
                    }
                    Upserted::Unchanged => changes.unchanged += 1,
                }
            }
            writer.pending.is_changed |= changes.unchanged < tools.len();
            changes.sort();
            Ok(changes)
        })
    }

    /// Removes tools; unknown ids are ignored.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remove(&mut self, ids: &[ToolId]) -> Result<Changes> {
        self.write(|writer| {
            let mut changes = Changes::default();
            for id in ids {
                if let Some(key) = writer.store.remove(id)? {
                    writer.pending.tools.insert(id.clone());
                    writer.pending.remove(key);
                    changes.removed.push(id.clone());
                }
            }
            writer.pending.is_changed |= !changes.removed.is_empty();
            changes.sort();
            Ok(changes)
        })
    }

    /// Replaces all tools of a server by these.
    ///
    /// # Errors
    /// [`Error::InvalidTool`] for a tool of another server, else as [`Writer::upsert`].
    pub fn sync(&mut self, server: &str, tools: &[Tool]) -> Result<Changes> {
        check_server(server, tools)?;
        let mut changes = self.upsert(tools)?;
        let wanted: HashSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
        let mut gone = self.write(|writer| writer.store.ids_of_server(server))?;
        gone.retain(|id| !wanted.contains(id));
        changes.removed = self.remove(&gone)?.removed;
        Ok(changes)
    }

    /// Stores when to use a tool, in a language model's words, for the dense legs. False where the
    /// catalog no longer has the tool, or has another definition of it than this one, for which the
    /// texts were not written.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_enrichment(&mut self, tool: &Tool, enrichment: &Enrichment) -> Result<bool> {
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            writer.store.set_enrichment(tool, enrichment)
        })
    }

    /// Deletes the enrichments of these tools. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn clear_enrichments(&mut self, ids: &[ToolId]) -> Result<usize> {
        self.write(|writer| {
            let mut cleared = 0;
            for id in ids {
                cleared += usize::from(writer.store.clear_enrichment(id)?);
            }
            writer.pending.is_changed |= cleared > 0;
            writer.pending.is_more_than_tools |= cleared > 0;
            Ok(cleared)
        })
    }

    /// The catalog's settings, as this writer has set them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn settings(&self) -> Result<Settings> {
        crate::snapshot::settings(&self.store)
    }

    /// Replaces the catalog's settings from the next commit on.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`], [`Error::Store`].
    pub fn set_settings(&mut self, settings: &Settings) -> Result<()> {
        settings.validate()?;
        let json = serde_json::to_string(settings).unwrap_or_default();
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            writer.store.set_meta("settings", &json)
        })
    }

    /// The owner's words, as this writer has set them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn owner_words(&self) -> Result<OwnerWords> {
        Ok(self.store.owner_words()?.unwrap_or_default())
    }

    /// Replaces the owner's words from the next commit on. Tools with another description or other
    /// aliases than before are indexed and embedded again.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`], [`Error::Store`].
    pub fn set_owner_words(&mut self, words: &OwnerWords) -> Result<()> {
        words.validate()?;
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            for (old, new) in writer.store.set_owner_words(words)? {
                writer.pending.replace(old, new);
            }
            Ok(())
        })
    }

    /// Stores vectors of texts from the next commit on, which were computed elsewhere: by this model,
    /// each with this many dimensions, under the hashes of [`crate::tools_db::text_hash`].
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::Store`].
    pub fn put_vectors(
        &mut self,
        model: &str,
        dimensions: usize,
        vectors: &[(crate::dense::TextHash, Vec<f32>)],
    ) -> Result<()> {
        check_dimensions(model, dimensions, vectors.iter().map(|(_, vector)| vector))?;
        self.write(|writer| {
            writer.pending.is_more_than_tools = true;
            let model = writer.store.register_model(model, dimensions)?;
            for (text, vector) in vectors {
                writer.store.put_vector(model, text, vector)?;
            }
            Ok(())
        })
    }

    /// Stores, with the changes of this transaction, up to which generation of its source the catalog
    /// holds everything. From then on it follows that source: its snapshots have the generation of
    /// the source, and changes are committed only together with the generation that has them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_followed(&mut self, followed: &Followed) -> Result<()> {
        self.write(|writer| {
            writer.pending.is_followed = true;
            writer.store.set_followed(followed)
        })
    }

    /// Gives the catalog a ranker of its own, or with `None` the bundled one, from the next commit
    /// on.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_ranker(&mut self, ranker: Option<&Ranker>) -> Result<()> {
        self.begin()?;
        self.pending.ranker = Some(match ranker {
            Some(ranker) => RankerChange::Replace(ranker.clone()),
            None => RankerChange::Delete,
        });
        self.pending.is_changed = true;
        self.pending.is_more_than_tools = true;
        Ok(())
    }

    /// Makes the changes durable, publishes a snapshot with them, and returns the new generation.
    /// Embeds with instant embedders only.
    ///
    /// # Errors
    /// [`Error::Store`]; the changes are then discarded, as with [`Error::Followed`] for changes to a
    /// catalog that follows another one. [`Error::Io`] if a new ranker cannot be written; all other
    /// changes are then durable.
    pub fn commit(&mut self) -> Result<u64> {
        self.begin()?;
        self.check_follows()?;
        // Taken first: a failed commit discards all changes, and the next change begins a new
        // transaction.
        let pending = std::mem::take(&mut self.pending);
        let generation = self.store.commit()?;
        // The ranker is a file of its own. It is written after the store, so that a writer dropped
        // without a commit leaves it alone, and published with the rest even if that fails.
        let ranker_written = match &pending.ranker {
            Some(change) => change.apply(&self.catalog.shared.dir.join(ranker::FILE_NAME)),
            None => Ok(()),
        };
        let previous = self.catalog.searcher();
        let mut loaded = self.load_after(&previous, generation, &pending)?;
        loaded.save(&self.store, &self.catalog.shared.dir);
        // The store is committed. A lexical index that cannot be updated to it is rebuilt, if
        // necessary in memory.
        let lexical_dir = self.catalog.shared.dir.join(LEXICAL);
        let lexical = match guarded(&lexical_dir, || {
            self.update_lexical(&loaded, &pending, &previous)
        }) {
            Ok(lexical) => lexical,
            Err(_) => {
                self.lexical = None;
                match create_lexical(&self.catalog.shared.dir, &loaded) {
                    Ok(lexical) => lexical,
                    Err(_) => in_memory(&loaded)?,
                }
            }
        };
        let searcher = self.catalog.publish(loaded.into_searcher(lexical));
        if searcher.may_rank() {
            // Now, so that the first search after the change does not have to.
            searcher.with_words(|words| words.rarities());
        }
        ranker_written?;
        Ok(generation)
    }

    /// Ends the writer, as dropping it does, and keeps its connection to the database for the next one:
    /// opening it, and moving its log into the database when it is closed, take longer than a commit of
    /// one tool. [`Catalog::close_resting`] closes it.
    pub fn rest(mut self) {
        self.rests = true;
    }

    /// Commits, embeds texts without vectors, builds missing or damaged graphs, and publishes a
    /// snapshot. Every batch of vectors is durable when the next one begins. Ends early when
    /// `progress` breaks. Returns how many texts were embedded.
    ///
    /// # Errors
    /// [`Error::Embedder`], [`Error::DimensionMismatch`], [`Error::Store`]; [`Error::Io`] or
    /// [`Error::Derived`] for a graph that cannot be written.
    pub fn embed_pending(
        &mut self,
        progress: &mut dyn FnMut(EmbedProgress) -> ControlFlow<()>,
    ) -> Result<usize> {
        if self.pending.open {
            self.commit()?;
        }
        let work = self.load()?.pending_texts();
        let mut state = EmbedProgress {
            done: 0,
            total: work.iter().map(|(texts, _)| texts.len()).sum(),
        };
        let mut result = Ok(());
        'legs: for (texts, embedder) in &work {
            for batch in spread(texts.chunks(embedder.batch().max(1))) {
                if progress(state).is_break() {
                    break 'legs;
                }
                if let Err(error) = self.embed_batch(embedder.as_ref(), batch) {
                    // The first error is returned; the other embedders may work.
                    result = result.and(Err(error));
                    continue 'legs;
                }
                state.done += batch.len();
            }
        }
        if state.total > 0 {
            let _ = progress(state);
        }
        let graphs = self.build_graphs();
        // Also without new texts: the published snapshot does not have the new graphs. Only a snapshot
        // that is read as a whole loads them.
        let has_new_graphs = matches!(graphs, Ok(1..));
        self.pending.is_more_than_tools |= has_new_graphs;
        if state.done > 0 || has_new_graphs {
            self.commit()?;
        }
        result.and(graphs)?;
        Ok(state.done)
    }

    /// Runs a change within the transaction. If it fails, all changes since the last commit are
    /// discarded. SQLite does so itself when the disk is full, so half a change must never be
    /// continued.
    fn write<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin()?;
        let changed = change(self);
        if changed.is_err() {
            self.discard();
        }
        changed
    }

    /// Discards all changes since the last commit.
    fn discard(&mut self) {
        self.store.rollback();
        self.pending = Pending::default();
    }

    /// Discards changes of its own to a catalog that follows another one.
    fn check_follows(&mut self) -> Result<()> {
        let has_own_changes = self.pending.is_changed && !self.pending.is_followed;
        if !has_own_changes || self.store.followed()?.is_none() {
            return Ok(());
        }
        self.discard();
        Err(Error::Followed {
            path: self.catalog.shared.dir.clone(),
        })
    }

    fn begin(&mut self) -> Result<()> {
        if !self.pending.open {
            self.store.begin_write()?;
            self.pending.open = true;
        }
        Ok(())
    }

    /// The state after this commit.
    fn load_after(
        &self,
        previous: &Searcher,
        generation: u64,
        pending: &Pending,
    ) -> Result<Loaded> {
        if !pending.is_more_than_tools {
            let _observed = self.catalog.shared.observed.lock();
            let options = self.catalog.options();
            let dir = &self.catalog.shared.dir;
            let tools = &pending.tools;
            if let Some(loaded) =
                Loaded::after(&self.store, dir, &options, previous, generation, tools)?
            {
                return Ok(loaded);
            }
        }
        self.load()
    }

    fn load(&self) -> Result<Loaded> {
        let _observed = self.catalog.shared.observed.lock();
        Loaded::read(
            &self.catalog.read_only()?,
            &self.catalog.shared.dir,
            &self.catalog.options(),
            Some(&self.catalog.searcher()),
        )
    }

    fn update_lexical(
        &mut self,
        loaded: &Loaded,
        pending: &Pending,
        previous: &Searcher,
    ) -> Result<LexicalSearcher> {
        let stamp = loaded.lexical_stamp();
        let dir = self.catalog.shared.dir.join(LEXICAL);
        let is_few = pending.added.len() <= FEW_ADDED;
        let open = match self.lexical.take() {
            Some(open) if open.stamp == stamp && (is_few || !open.is_small) => open,
            // Dropped before the index is opened again: tantivy allows one writer a folder.
            previous => {
                drop(previous);
                OpenLexical::open(&dir, &stamp, pending.added.len())?
            }
        };
        let OpenLexical { index, writer, .. } = self.lexical.insert(open);
        for &key in &pending.removed {
            writer.remove(key);
        }
        let settings = &loaded.settings.lexical;
        let Some(change) = &loaded.change else {
            let mut rows = Vec::new();
            for row in loaded.rows.iter() {
                if pending.added.contains(&row.stored.key) {
                    rows.push(Arc::clone(row));
                }
            }
            words::add(writer, &rows, settings)?;
            if !pending.removed.is_empty() || !rows.is_empty() {
                writer.commit(&stamp)?;
            }
            let small = LexicalIndex::read_small(&dir, &stamp)?;
            let index = small.as_ref().unwrap_or(index);
            return index.searcher(&loaded.ordinals(), settings);
        };
        let added = words::analyzed(&change.added, settings);
        words::add_analyzed(writer, &added, settings)?;
        if !pending.removed.is_empty() || !added.is_empty() {
            writer.commit(&stamp)?;
        }
        if let Some(small) = LexicalIndex::read_small(&dir, &stamp)? {
            return small.searcher(&loaded.ordinals(), settings);
        }
        let removed: Vec<Arc<Row>> = change
            .removed
            .iter()
            .map(|(_, row)| Arc::clone(row))
            .collect();
        let changed = Changed {
            moves: &change.moves,
            added: &added,
            removed: &words::analyzed(&removed, settings),
            key_of: &|position| previous.rows[position].stored.key,
        };
        previous.with_words(|former| index.searcher_after(former, settings, &changed))
    }

    fn embed_batch(
        &mut self,
        embedder: &dyn Embedder,
        batch: &[(crate::dense::TextHash, String)],
    ) -> Result<()> {
        let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
        let vectors = embedder.embed_tools(&texts)?;
        let expected = embedder.dimensions();
        check_dimensions(embedder.id(), expected, vectors.iter())?;
        self.write(|writer| {
            let model = writer.store.register_model(embedder.id(), expected)?;
            for ((hash, _), vector) in batch.iter().zip(&vectors) {
                writer.store.put_vector(model, hash, vector)?;
            }
            writer.store.commit()?;
            writer.pending.open = false;
            Ok(())
        })
    }

    /// Builds the graphs of legs that are large enough and have no usable one. Returns how many.
    fn build_graphs(&self) -> Result<usize> {
        let loaded = self.load()?;
        let mut built = 0;
        for leg in loaded.legs_without_graph() {
            let Some(model) = self
                .store
                .model(leg.embedder.id(), leg.embedder.dimensions())?
            else {
                continue;
            };
            Graph::build(leg.vectors.get()).save(
                &graph_dir(&self.catalog.shared.dir, model),
                leg.embedder.id(),
            )?;
            built += 1;
        }
        Ok(built)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.rollback();
        if let Some(lexical) = self.lexical.take() {
            lexical.writer.finish();
        }
        let file = FileState::of(&self.catalog.database());
        if self.rests
            && let Some(file) = file
            && let Ok(none) = ToolsDb::none()
        {
            let resting = RestingStore {
                store: std::mem::replace(&mut self.store, none),
                file,
                since: Instant::now(),
            };
            *self.catalog.shared.resting.lock() = Some(resting);
            return;
        }
        self.store.checkpoint();
    }
}

impl Pending {
    fn remove(&mut self, key: u64) {
        // A key that was added in this transaction is not in the index yet.
        if !self.added.remove(&key) {
            self.removed.push(key);
        }
    }

    fn replace(&mut self, old: u64, new: u64) {
        self.remove(old);
        self.added.insert(new);
    }
}

/// The progress of embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedProgress {
    /// Texts embedded so far.
    pub done: usize,
    /// Texts to embed in all.
    pub total: usize,
}

/// The effect of a write, by id, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// New tools.
    pub added: Vec<ToolId>,
    /// Replaced tools.
    pub changed: Vec<ToolId>,
    /// Removed tools.
    pub removed: Vec<ToolId>,
    /// Tools that were already stored as they are.
    pub unchanged: usize,
}

impl Changes {
    fn sort(&mut self) {
        self.added.sort_unstable();
        self.changed.sort_unstable();
        self.removed.sort_unstable();
    }
}
