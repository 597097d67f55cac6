//! A node's catalog that follows the one of the store.

use std::collections::HashSet;
use std::sync::Arc;

use toolscout_index::{Catalog, Embedder, Followed, Ranker, Searcher, ToolId, Writer};

use super::PostgresStore;
use super::enrichments::Enriched;
use super::error::StoreError;
use super::hub::FollowedCatalog;
use super::read::{Part, Since, ToolsOf};
use super::row::StoredGeneration;
use toolscout_state::catalog_writer::{CatalogStore, Change, WriteError, Written};
use toolscout_state::shared::{StoredCatalog, is_without_tools, source_of_copy};

/// Writes to a catalog of the store, and keeps the node's copy of it in step.
pub struct FollowingStore {
    store: Arc<PostgresStore>,
    catalog: Catalog,
    followed: Arc<FollowedCatalog>,
    /// True until the store was asked once, and after the ranker could not be written: its file is
    /// not in the transaction of the rest.
    is_unsure: bool,
}

impl FollowingStore {
    /// Follows `stored` with `catalog`, which must be new or have followed it before.
    pub fn new(store: Arc<PostgresStore>, catalog: Catalog, stored: &StoredCatalog) -> Self {
        let searcher = catalog.searcher();
        let state = searcher.followed().map(state_of);
        let followed = FollowedCatalog::new(stored, state, catalog.clone());
        if let Some(copied) = searcher.followed() {
            followed.set_pushed_down(is_without_tools(copied));
        }
        store.hub.register(&followed);
        FollowingStore {
            store,
            catalog,
            followed,
            is_unsure: true,
        }
    }

    /// What the node knows of the catalog in the store.
    pub fn followed(&self) -> &Arc<FollowedCatalog> {
        &self.followed
    }

    /// Applies what changed in the store, in one transaction of the node's catalog: up to this
    /// generation at least.
    fn catch_up(&mut self, least: u64) -> Result<(), StoreError> {
        let searcher = self.catalog.searcher();
        let before = searcher.followed().map(state_of);
        let since = Since {
            state: before,
            least,
            with_ranker: self.is_unsure,
            tools: match searcher.followed().is_some_and(is_without_tools) {
                true => ToolsOf::PushedDown,
                false => ToolsOf::Copied,
            },
        };
        // Reset before the store is asked, so that a notification that comes meanwhile is not lost.
        self.followed.set_told(false);
        let mut applied = Applied {
            catalog: &self.catalog,
            searcher: Arc::clone(&searcher),
            writer: None,
            all: None,
            enriched: HashSet::new(),
        };
        let mut apply = |part| applied.apply(part);
        let changes =
            self.store
                .changes_since((self.followed.id, &self.followed.source), since, &mut apply);
        let reached = match self.store.runtime.block_on(changes) {
            Err(StoreError::Deleted) => {
                self.followed.set_deleted();
                return Err(StoreError::Deleted);
            }
            Err(error) => {
                self.followed.set_told(true);
                return Err(error);
            }
            Ok(reached) => reached,
        };
        let head = reached.state;
        self.followed.set_total(reached.total);
        if reached.is_pushed_down {
            // Set before the copy loses its tools, so that searches already go to the store.
            self.followed.set_pushed_down(true);
        }
        if before != Some(head) || applied.writer.is_some() {
            // If the commit fails, the ranker's file may be newer than the rest of the catalog.
            self.is_unsure = true;
            applied.remove_others()?;
            let writer = applied.writer()?;
            writer.set_followed(&Followed {
                source: source_of_copy(&self.followed.source, reached.is_pushed_down),
                generation: head.generation,
                mark: head.mark,
            })?;
            writer.commit()?;
        }
        if let Some(before) = before
            && before.generation > head.generation
        {
            let (from, to) = (before.generation, head.generation);
            tracing::warn!(
                from,
                to,
                "the store was put back to an older state, and this node with it"
            );
        }
        self.is_unsure = false;
        self.followed.set_pushed_down(reached.is_pushed_down);
        self.followed.set_state(head);
        Ok(())
    }
}

fn state_of(followed: &Followed) -> StoredGeneration {
    StoredGeneration {
        generation: followed.generation,
        mark: followed.mark,
    }
}

/// A transaction of the node's catalog, begun with the first change.
struct Applied<'a> {
    catalog: &'a Catalog,
    searcher: Arc<Searcher>,
    writer: Option<Writer>,
    /// The tools that the store told of, where it tells everything.
    all: Option<HashSet<ToolId>>,
    /// Those of them that something is written about.
    enriched: HashSet<ToolId>,
}

impl Applied<'_> {
    fn writer(&mut self) -> Result<&mut Writer, StoreError> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.catalog.writer()?,
        };
        Ok(self.writer.insert(writer))
    }

    /// The catalog's own ranker.
    fn ranker(&self) -> Option<&Ranker> {
        match self.searcher.has_own_ranker() {
            true => self.searcher.ranker().map(Arc::as_ref),
            false => None,
        }
    }

    fn apply(&mut self, part: Part) -> Result<(), StoreError> {
        match part {
            Part::Everything => self.all = Some(HashSet::new()),
            Part::Tools(tools) if !tools.is_empty() => {
                if let Some(all) = &mut self.all {
                    for tool in &tools {
                        all.insert(tool.id.clone());
                    }
                }
                self.writer()?.upsert(&tools)?;
            }
            Part::Removed(ids) if !ids.is_empty() => {
                self.writer()?.remove(&ids)?;
            }
            Part::Enrichments(all) => {
                for enriched in all {
                    self.enrich(enriched)?;
                }
            }
            Part::Settings(settings) => self.writer()?.set_settings(&settings)?,
            Part::OwnerWords(words) => self.writer()?.set_owner_words(&words)?,
            Part::Ranker(ranker) if ranker.as_ref() != self.ranker() => {
                self.writer()?.set_ranker(ranker.as_ref())?;
            }
            // Nothing changes, so no writer is needed, and with it no lock on the node's catalog.
            Part::Tools(_) | Part::Removed(_) | Part::Ranker(_) => {}
        }
        Ok(())
    }

    fn enrich(&mut self, Enriched { tool, enrichment }: Enriched) -> Result<(), StoreError> {
        let writer = self.writer()?;
        match enrichment {
            Some(enrichment) => {
                writer.set_enrichment(&tool, &enrichment)?;
                self.enriched.insert(tool.id);
            }
            None => {
                writer.clear_enrichments(&[tool.id])?;
            }
        }
        Ok(())
    }

    /// Removes what the store did not tell of when it told everything.
    fn remove_others(&mut self) -> Result<(), StoreError> {
        let Some(all) = self.all.take() else {
            return Ok(());
        };
        let mut others: Vec<ToolId> = Vec::new();
        // By id, so that a tool whose row cannot be read goes too.
        for id in self.searcher.ids_after(None) {
            if !all.contains(id) {
                others.push(id.clone());
            }
        }
        if !others.is_empty() {
            self.writer()?.remove(&others)?;
        }
        let mut forgotten: Vec<ToolId> = Vec::new();
        for id in self.searcher.ids_after(None) {
            if self.searcher.enrichment(id).is_some() && !self.enriched.contains(id) {
                forgotten.push(id.clone());
            }
        }
        if !forgotten.is_empty() {
            self.writer()?.clear_enrichments(&forgotten)?;
        }
        Ok(())
    }
}

impl CatalogStore for FollowingStore {
    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
        let searcher = self.catalog.searcher();
        let embedders: Vec<Arc<dyn Embedder>> = searcher.embedders().cloned().collect();
        let commit = self.store.commit(self.followed.id, changes, &embedders);
        let (changes, generation) = match self.store.runtime.block_on(commit) {
            Ok(committed) => committed,
            Err(error) => {
                if matches!(error, StoreError::Deleted) {
                    self.followed.set_deleted();
                }
                return Err(error.into());
            }
        };
        // The change is stored, even if this node's copy cannot follow now.
        if generation != self.catalog.searcher().generation()
            && let Err(error) = self.catch_up(generation)
        {
            tracing::warn!(%error, "a change is in the store, and this node does not show it yet");
        }
        Ok(Written::all(changes, generation))
    }

    fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError> {
        if self.followed.is_deleted() {
            return Err(WriteError::Deleted);
        }
        if self.is_unsure || self.followed.is_behind() {
            self.catch_up(self.followed.told())?;
        }
        // Another process may have embedded vectors.
        Ok(self.catalog.refresh()?)
    }

    fn may_have_news(&self) -> bool {
        if self.followed.is_deleted() {
            return false;
        }
        // While the store is away there is no point: the hub wakes this once it is back.
        let is_to_ask = self.is_unsure || self.followed.is_behind();
        (is_to_ask && self.store.problem().is_none()) || self.catalog.may_be_behind()
    }
}
