//! What every verb needs: the settings, the catalogs and the printer.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use toolscout_index::{Catalog, DataDir, Embedder, Options};

use super::output::{Output, Printer};
use crate::config::{Layer, Settings};
use crate::models::{self, Embedders, Unavailable};

/// Settings, catalogs and printer of one run.
pub struct Context {
    /// What flags, environment and file say.
    pub settings: Settings,
    /// Where results go.
    pub printer: Printer,
    /// Loading takes a third of a second, so it happens when first needed, and once.
    embedders: OnceCell<Embedders>,
}

/// Which legs a catalog is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legs {
    /// Lexical alone: nothing is loaded.
    Lexical,
    /// With all that embeds; a warning says when the model was asked for and cannot be had.
    All,
}

impl Context {
    /// Resolves the settings.
    pub fn new(flags: &Layer, config: Option<&Path>, output: Option<Output>) -> Result<Self> {
        let settings = Settings::resolve(flags.clone(), config, &|name| std::env::var_os(name))?;
        Ok(Context { settings, printer: Printer::new(output), embedders: OnceCell::new() })
    }

    /// The directory of the catalogs.
    pub fn data_dir(&self) -> DataDir {
        DataDir::new(&self.settings.data)
    }

    /// Opens the catalog in question, which must exist.
    pub fn open(&self, legs: Legs) -> Result<Catalog> {
        // First without a model: a catalog that is not there should be told at once and without a warning before it.
        let dir = self.data_dir();
        if legs == Legs::All && !dir.catalogs()?.contains(&self.settings.catalog) {
            return Ok(dir.open(&self.settings.catalog, Options::default())?);
        }
        Ok(dir.open(&self.settings.catalog, self.options(legs))?)
    }

    /// Opens the catalog in question, created when it is not there.
    pub fn open_or_create(&self, legs: Legs) -> Result<Catalog> {
        Ok(self.data_dir().open_or_create(&self.settings.catalog, self.options(legs))?)
    }

    /// What embeds, loaded now if it was not.
    pub fn embedders(&self) -> &[Arc<dyn Embedder>] {
        &self.loaded().found
    }

    /// Why there is no embedding model, if there is none; loads it if that was not tried yet.
    pub fn without_model(&self) -> Option<&Unavailable> {
        self.loaded().without_model.as_ref()
    }

    /// Why there is no embedding model, if one was wanted and could not be had.
    pub fn missing_model(&self) -> Option<&Unavailable> {
        let without = self.embedders.get()?.without_model.as_ref();
        without.filter(|unavailable| matches!(unavailable, Unavailable::Unusable { .. }))
    }

    fn loaded(&self) -> &Embedders {
        self.embedders.get_or_init(|| {
            let embedders = models::embedders(&self.settings);
            if let Some(unavailable @ Unavailable::Unusable { .. }) = &embedders.without_model {
                self.warn(unavailable);
            }
            embedders
        })
    }

    /// Says something on stderr that does not stop the work.
    pub fn warn(&self, message: impl std::fmt::Display) {
        eprintln!("warning: {message}");
    }

    fn options(&self, legs: Legs) -> Options {
        let embedders = match legs {
            Legs::Lexical => Vec::new(),
            Legs::All => self.embedders().to_vec(),
        };
        Options { embedders }
    }
}
