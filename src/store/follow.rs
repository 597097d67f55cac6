//! A node's catalog that follows the one of the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use toolscout_index::{Catalog, Followed, Ranker, Searcher, Writer};

use super::SharedStore;
use super::catalogs::StoredCatalog;
use super::error::StoreError;
use super::hub::FollowedCatalog;
use super::read::{Part, Since};
use crate::catalog_writer::{CatalogStore, Change, WriteError, Written};

/// Writes to a catalog of the store, and keeps the node's copy of it in step.
pub struct FollowingStore {
    store: Arc<SharedStore>,
    catalog: Catalog,
    followed: Arc<FollowedCatalog>,
    /// True until the store was asked once, and after the ranker could not be written: its file is
    /// not in the transaction of the rest.
    is_unsure: bool,
}

impl FollowingStore {
    /// Follows `stored` with `catalog`, which must be new or have followed it before.
    pub fn new(store: Arc<SharedStore>, catalog: Catalog, stored: &StoredCatalog) -> Self {
        let followed = FollowedCatalog::new(stored.id, stored.source.clone(), catalog.clone());
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

    /// Applies what changed in the store, in one transaction of the node's catalog.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        let searcher = self.catalog.searcher();
        let generation = searcher.followed().map(|followed| followed.generation);
        let since = Since {
            generation,
            with_ranker: self.is_unsure,
        };
        let mut applied = Applied {
            catalog: &self.catalog,
            searcher: Arc::clone(&searcher),
            writer: None,
        };
        let mut apply = |part| applied.apply(part);
        let changes =
            self.store
                .changes_since((self.followed.id, &self.followed.source), since, &mut apply);
        let head = match self.store.runtime.block_on(changes) {
            // A backup was put back: what this node has may never have been.
            Ok(head) if generation.is_some_and(|generation| head < generation) => {
                self.followed.set_deleted();
                return Err(StoreError::Deleted);
            }
            Err(StoreError::Deleted) => {
                self.followed.set_deleted();
                return Err(StoreError::Deleted);
            }
            head => head?,
        };
        if generation != Some(head) || applied.writer.is_some() {
            self.is_unsure = true;
            let writer = applied.writer()?;
            writer.set_followed(&Followed {
                source: self.followed.source.clone(),
                generation: head,
            })?;
            writer.commit()?;
        }
        self.is_unsure = false;
        self.followed.generation.store(head, Ordering::Release);
        self.followed.head.store(head, Ordering::Release);
        Ok(())
    }
}

/// A transaction of the node's catalog, begun with the first change.
struct Applied<'a> {
    catalog: &'a Catalog,
    searcher: Arc<Searcher>,
    writer: Option<Writer>,
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
        let ranker = self.searcher.ranker().map(Arc::as_ref);
        ranker.filter(|_| self.searcher.has_own_ranker())
    }

    fn apply(&mut self, part: Part) -> Result<(), StoreError> {
        match part {
            Part::Tools(tools) if !tools.is_empty() => {
                self.writer()?.upsert(&tools)?;
            }
            Part::Removed(ids) if !ids.is_empty() => {
                self.writer()?.remove(&ids)?;
            }
            Part::Settings(settings) => self.writer()?.set_settings(&settings)?,
            Part::Ranker(ranker) if ranker.as_ref() != self.ranker() => {
                self.writer()?.set_ranker(ranker.as_ref())?;
            }
            Part::Tools(_) | Part::Removed(_) | Part::Ranker(_) => {}
        }
        Ok(())
    }
}

impl CatalogStore for FollowingStore {
    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
        let commit = self.store.commit(self.followed.id, changes);
        let (changes, generation) = match self.store.runtime.block_on(commit) {
            Ok(committed) => committed,
            Err(error) => {
                if matches!(error, StoreError::Deleted) {
                    self.followed.set_deleted();
                }
                return Err(error.into());
            }
        };
        // It is written, whatever becomes of this node's copy.
        if generation > self.catalog.searcher().generation()
            && let Err(error) = self.catch_up()
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
            self.catch_up()?;
        }
        // Vectors that another process has embedded.
        Ok(self.catalog.refresh()?)
    }

    fn may_have_news(&self) -> bool {
        if self.followed.is_deleted() {
            return false;
        }
        // While the store is away, the hub waits for it, and wakes this once it is back.
        let is_to_ask = self.is_unsure || self.followed.is_behind();
        (is_to_ask && self.store.problem().is_none()) || self.catalog.may_be_behind()
    }
}
