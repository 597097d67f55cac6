//! Catalogs whose tools are in a search engine that somebody else runs. The data directory has the rest of such a
//! catalog: its settings, the owner's words and the usage memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::runtime::Handle;
use toolscout_index::{Error, Searcher, Weights};
use toolscout_state::catalog_writer::{CatalogStore, Change, LocalStore, WriteError, Written};
use toolscout_state::shared::{PushedTools, StoreError};

use super::catalog::{Home, OpenCatalog, ToolsElsewhere};
use super::{NotOpened, Opener};
use crate::request::error::{ApiError, ApiResult};
use crate::served::settings;

/// Opens the tools of the catalog of this name, whose fields have these weights.
pub type OpenElsewhere =
    Box<dyn Fn(&str, Weights) -> Result<Arc<dyn PushedTools>, StoreError> + Send + Sync>;

/// Catalogs whose tools are elsewhere, and how they are opened.
pub struct Elsewhere {
    /// The names of the catalogs.
    pub names: BTreeSet<String>,
    /// Opens one of them.
    pub open: OpenElsewhere,
    /// Where their connections run.
    pub runtime: Handle,
}

impl Opener {
    /// Whether the tools of the catalog of this name are elsewhere.
    pub(super) fn is_elsewhere(&self, name: &str) -> bool {
        let elsewhere = self.elsewhere.as_ref();
        elsewhere.is_some_and(|elsewhere| elsewhere.names.contains(name))
    }

    /// Opens a catalog whose tools are elsewhere, and creates what the data directory has of it.
    pub(super) fn open_elsewhere(
        &self,
        elsewhere: &Elsewhere,
        name: &str,
    ) -> Result<OpenCatalog, NotOpened> {
        let options = |named: Option<&str>| self.options(named);
        let opened = self
            .data
            .open_with(name, |settings| options(settings.embedder.as_deref()));
        let catalog = match opened {
            Err(Error::UnknownCatalog { .. }) => self.data.open_or_create(name, options(None))?,
            opened => opened?,
        };
        settings::adopt_former_file(&catalog)?;
        let searcher = catalog.searcher();
        if !searcher.is_empty() {
            let tools = searcher.len();
            tracing::info!(
                catalog = name,
                tools,
                "the data directory has tools of a catalog whose tools are elsewhere; they answer if the engine fails"
            );
        }
        let weights = searcher.settings().lexical.weights;
        let tools = ToolsElsewhere {
            tools: (elsewhere.open)(name, weights)?,
            runtime: elsewhere.runtime.clone(),
        };
        let named = searcher.settings().embedder.clone();
        let store = Box::new(SettingsOnly(LocalStore(catalog.clone())));
        Ok(self.serve(name, catalog, named, store, Home::External(tools))?)
    }
}

impl OpenCatalog {
    /// Refuses texts about its tools that could not be stored.
    ///
    /// # Errors
    /// 409 if an external engine has the tools.
    pub fn keeps_texts(&self) -> ApiResult<()> {
        match &self.home {
            Home::External(_) => Err(WriteError::Elsewhere.into()),
            Home::Local | Home::Store(_) => Ok(()),
        }
    }
}

/// Why the catalog of this name is not deleted.
pub(super) fn not_deleted(name: &str) -> NotOpened {
    NotOpened::Refused(ApiError::invalid(
        StatusCode::CONFLICT,
        "tools_elsewhere",
        format!("the catalog {name} is in the configuration of the server; remove its table there"),
    ))
}

/// Commits everything but tools.
struct SettingsOnly(LocalStore);

impl CatalogStore for SettingsOnly {
    fn commit(&mut self, changes: &[&Change]) -> Result<Vec<Written>, WriteError> {
        for change in changes {
            match change {
                Change::Settings { .. } | Change::Ranker(_) | Change::OwnerWords(_) => {}
                Change::Upsert(_)
                | Change::Remove(_)
                | Change::Sync { .. }
                | Change::Enrich(_)
                | Change::ForgetTexts(_) => return Err(WriteError::Elsewhere),
            }
        }
        self.0.commit(changes)
    }

    fn refresh(&mut self) -> Result<Arc<Searcher>, WriteError> {
        self.0.refresh()
    }

    fn may_have_news(&self) -> bool {
        self.0.may_have_news()
    }
}
