//! A catalog of the store as a copy in a temporary folder, for verbs that need all of it.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use toolscout_index::{Catalog, Changes, DataDir, Options, Ranker, Settings, ToolId};

use super::StoreArgs;
use crate::catalog_writer::Change;
use crate::cli::context::Context;
use crate::clock::unix_ms;
use crate::config::StoreSettings;
use crate::feedback::FeedbackStore;
use crate::shared::StoredCatalog;
use crate::store::{OwnContent, PostgresStore, StoredImprovement};

/// The catalog that a verb works on: that of the data directory, or of the store that the flags or the
/// settings name.
pub enum Place {
    /// The catalog itself.
    Local(Catalog),
    /// A copy of one of the store, to which changes are sent.
    Shared(CatalogCopy),
}

/// The store, with the runtime of its connections.
pub struct Connected {
    /// The store.
    pub store: Arc<PostgresStore>,
    runtime: Runtime,
}

impl Connected {
    /// The store of these settings. It is connected to when it is first asked.
    pub fn to(settings: &StoreSettings) -> Result<Self> {
        // Its thread does the work, since this one waits.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let store = PostgresStore::new(settings, runtime.handle().clone())?;
        Ok(Connected { store, runtime })
    }

    /// Waits for an answer of the store.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// The error for a catalog that the store does not have.
pub fn no_shared_catalog(name: &str) -> anyhow::Error {
    anyhow!("the store has no catalog {name:?}; `toolscout store status` lists them")
}

/// A copy of a catalog of the store.
pub struct CatalogCopy {
    catalog: Catalog,
    name: String,
    id: i64,
    store: Arc<PostgresStore>,
    runtime: Runtime,
    _folder: TempDir,
}

impl Place {
    /// The catalog of the settings. `options` are those of opening it.
    pub fn open(
        store: &StoreArgs,
        context: &Context,
        options: impl FnOnce() -> Options,
    ) -> Result<Self> {
        let name = &context.settings.catalog;
        let settings = store.settings(context)?;
        if settings.store.is_some() {
            let copy = CatalogCopy::open(&settings, name, options)?;
            return Ok(Place::Shared(copy));
        }
        // One that is missing is reported before a model is loaded.
        let catalog = context.data_dir().open_with(name, |_| options())?;
        Ok(Place::Local(catalog))
    }

    /// The catalog, or the copy of it.
    pub fn catalog(&self) -> &Catalog {
        match self {
            Place::Local(catalog) => catalog,
            Place::Shared(copy) => &copy.catalog,
        }
    }
}

impl CatalogCopy {
    fn open(
        settings: &StoreSettings,
        name: &str,
        options: impl FnOnce() -> Options,
    ) -> Result<Self> {
        let Connected { store, runtime } = Connected::to(settings)?;
        let Some(stored) = runtime.block_on(store.find(name))? else {
            return Err(no_shared_catalog(name));
        };
        // Outside the data directory, whose catalogs are others.
        let folder = tempfile::tempdir().context("make a folder for a copy of the catalog")?;
        let data = DataDir::new(folder.path());
        runtime.block_on(store.export(&data, name))?;
        Ok(CatalogCopy {
            catalog: data.open(name, options())?,
            name: name.to_owned(),
            id: stored.id,
            store,
            runtime,
            _folder: folder,
        })
    }

    /// Commits a change to the store. The copy stays as it is.
    pub fn commit(&self, change: &Change) -> Result<Changes> {
        let commit = self
            .store
            .commit(self.id, std::slice::from_ref(&change), &[]);
        let (mut all, _) = self.runtime.block_on(commit)?;
        Ok(all.pop().unwrap_or_default())
    }

    /// Gives the catalog what `change` makes of its present settings.
    pub fn change_settings(&self, change: impl FnOnce(Settings) -> Settings) -> Result<()> {
        // Read again, because they may have changed since the copy was made.
        let stored: StoredCatalog = self
            .runtime
            .block_on(self.store.find(&self.name))?
            .with_context(|| format!("the catalog {:?} was deleted meanwhile", self.name))?;
        let set = async {
            let settings = change(stored.settings);
            self.store.set_settings(self.id, &settings).await
        };
        Ok(self.runtime.block_on(set)?)
    }

    /// Commits what `change` makes of the present content, with a line of the log. Only texts of `tools` may
    /// change. Returns the line's number.
    pub fn improve(
        &self,
        tools: &[ToolId],
        what: &str,
        change: impl FnOnce(&OwnContent) -> OwnContent,
    ) -> Result<u64> {
        let line = (unix_ms(SystemTime::now()), what);
        let improve = self.store.improve(self.id, tools, line, change);
        Ok(self.runtime.block_on(improve)?)
    }

    /// The log of changes.
    pub fn improvements(&self) -> Result<Vec<StoredImprovement>> {
        Ok(self.runtime.block_on(self.store.improvements(self.id))?)
    }

    /// Gives the catalog a ranker of its own.
    pub fn set_ranker(&self, ranker: Ranker) -> Result<()> {
        self.commit(&Change::Ranker(Some(Arc::new(ranker))))?;
        Ok(())
    }

    /// The feedback in the store.
    pub fn feedback(&self, local: FeedbackStore) -> FeedbackStore {
        self.store.feedback(local)
    }
}
