//! Opens catalogs of the store: each is a copy in the data directory that follows it.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolscout_index::{Catalog, Error, Followed, Summary};

use super::catalog::{Home, OpenCatalog, Shared};
use super::{Created, NotOpened, Opener, too_many};
use crate::request::error::{store_unavailable, unknown_catalog};
use toolscout_state::catalog_writer::WriteError;
use toolscout_state::shared::{CreatedCatalog, SharedStore, StoreError, StoredCatalog};

impl From<StoreError> for NotOpened {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Catalog(error) => NotOpened::Engine(error),
            error => NotOpened::Refused(store_unavailable(error)),
        }
    }
}

impl Opener {
    pub(super) fn open_shared(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
    ) -> Result<OpenCatalog, NotOpened> {
        let copy = self.copy(name)?;
        match store.block_on(store.find(name)) {
            Ok(Some(stored)) => self.open_stored(store, name, &stored, copy),
            Ok(None) => {
                self.forget_copy(name)?;
                Err(NotOpened::Refused(unknown_catalog(name)))
            }
            Err(error) => {
                // Searches go on from what this node has.
                let Some(followed) = copy else {
                    return Err(error.into());
                };
                let stored = self.as_followed(name, followed)?;
                self.open_copy(store, name, &stored)
            }
        }
    }

    pub(super) fn create_shared(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
        max_catalogs: usize,
    ) -> Result<(OpenCatalog, Created), NotOpened> {
        let copy = self.copy(name)?;
        let (stored, created) = match store.block_on(store.create(name, max_catalogs)) {
            Ok(CreatedCatalog::Now(stored)) => (stored, Created::Now),
            Ok(CreatedCatalog::Before(stored)) => (stored, Created::Before),
            Ok(CreatedCatalog::TooMany) => return Err(too_many(max_catalogs)),
            Err(error) => {
                // This node has a copy, so it assumes that the catalog still exists.
                let Some(followed) = copy else {
                    return Err(error.into());
                };
                let stored = self.as_followed(name, followed)?;
                return Ok((self.open_copy(store, name, &stored)?, Created::Before));
            }
        };
        Ok((self.open_stored(store, name, &stored, copy)?, created))
    }

    pub(super) fn delete_shared(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
    ) -> Result<(), NotOpened> {
        // This only checks that the name is valid.
        self.copy(name)?;
        let deleted = store.block_on(store.delete(name))?;
        // The store comes first: a copy that stays behind is swept later, but a copy that is deleted
        // first would be made again.
        self.forget_copy(name)?;
        if deleted {
            Ok(())
        } else {
            Err(NotOpened::Refused(unknown_catalog(name)))
        }
    }

    /// The names of the store's catalogs; `None` without a store, and before it was reached.
    pub(super) fn shared_names(&self) -> Option<Arc<BTreeSet<String>>> {
        let store = self.store.as_ref()?;
        if let Ok(names) = store.block_on(store.names()) {
            return Some(Arc::new(names.into_iter().collect()));
        }
        let known = store.known_names()?;
        Some(Arc::new(known.keys().cloned().collect()))
    }

    /// What the store has of a catalog, or this node's copy while the store is away.
    pub(super) fn shared_summary(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
    ) -> Result<Summary, NotOpened> {
        match store.block_on(store.summary(name)) {
            Ok(summary) => summary.ok_or_else(|| NotOpened::Refused(unknown_catalog(name))),
            Err(error) => self.data.summary(name).map_err(|_| error.into()),
        }
    }

    /// Deletes this node's copy of a catalog, if there is one.
    pub(super) fn forget_copy(&self, name: &str) -> toolscout_index::Result<()> {
        match self.data.delete(name) {
            Err(Error::UnknownCatalog { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// What this node's copy of a catalog follows; `None` without a copy that can be used.
    fn copy(&self, name: &str) -> toolscout_index::Result<Option<Followed>> {
        match self.data.followed(name) {
            Ok(followed) => Ok(followed),
            Err(error @ Error::InvalidCatalogName { .. }) => Err(error),
            // A damaged copy is replaced.
            Err(_) => Ok(None),
        }
    }

    /// What a copy knows of the catalog in the store, while that cannot be asked.
    fn as_followed(
        &self,
        name: &str,
        followed: Followed,
    ) -> toolscout_index::Result<StoredCatalog> {
        Ok(StoredCatalog::of_copy(&followed, self.data.settings(name)?))
    }

    /// Opens a catalog of the store with this node's copy, or with a new one where that is of another
    /// catalog or damaged.
    fn open_stored(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
        stored: &StoredCatalog,
        copy: Option<Followed>,
    ) -> Result<OpenCatalog, NotOpened> {
        let is_of_it = match &copy {
            Some(copy) => copy.source == stored.source_of_copy(),
            None => false,
        };
        if !is_of_it {
            self.forget_copy(name)?;
        }
        match self.open_copy(store, name, stored) {
            Err(NotOpened::Engine(error @ (Error::Store { .. } | Error::Derived { .. }))) => {
                tracing::warn!(catalog = name, %error, "this node's copy is damaged and made anew");
                self.forget_copy(name)?;
                self.open_copy(store, name, stored)
            }
            outcome => outcome,
        }
    }

    fn open_copy(
        &self,
        store: &Arc<dyn SharedStore>,
        name: &str,
        stored: &StoredCatalog,
    ) -> Result<OpenCatalog, NotOpened> {
        let named = stored.settings.embedder.clone();
        let options = self.options(named.as_deref());
        let catalog: Catalog = self.data.open_or_create(name, options)?;
        let mut opened = Arc::clone(store).open(catalog.clone(), stored);
        match opened.writer.refresh() {
            Ok(_) => {}
            Err(WriteError::Deleted) => return Err(NotOpened::Refused(unknown_catalog(name))),
            Err(WriteError::Catalog(error)) => return Err(error.into()),
            // Without a copy there is nothing to search.
            Err(error) if catalog.searcher().followed().is_none() => {
                return Err(NotOpened::Refused(store_unavailable(error)));
            }
            // The copy can be searched, and it catches up once the store is back.
            Err(_) => {}
        }
        let shared = Shared {
            store: Arc::clone(store),
            catalog: opened.catalog,
        };
        Ok(self.serve(name, catalog, named, opened.writer, Home::Store(shared))?)
    }
}
