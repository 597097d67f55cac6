//! An open catalog, with the embedders and the settings that the command line opens it with.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use toolscout::config::{EmbedderKind, EmbedderLayer, Fetch, Layer, Settings};
use toolscout::models::{self, Patience};
use toolscout_index::{Catalog, DataDir, Mode, SearchOptions, Searcher};

use crate::error::{Error, Result};

/// Where a catalog is, and how it is opened.
pub struct Opening {
    /// The data directory; that of the settings where not given.
    pub data: Option<PathBuf>,
    /// Its name; that of the settings where not given.
    pub name: Option<String>,
    /// Its embedders; its own or those of the settings where not given.
    pub embedder: Option<String>,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Whether it is created where it does not exist.
    pub create: bool,
    /// Whether it is in a folder that is deleted with it.
    pub temporary: bool,
}

impl Opening {
    /// Reads the settings. Opening is a step of its own, since this one reads the environment, which
    /// Python protects with its lock, and that one takes long.
    ///
    /// # Errors
    /// `invalid_settings`; `io_failed` where no folder can be created.
    pub fn resolve(mut self) -> Result<Resolved> {
        let folder = self.temporary.then(temporary_folder).transpose()?;
        if let Some(folder) = &folder {
            self.data = Some(folder.path().to_owned());
        }
        let create = self.create;
        let mut settings = self
            .settings()
            .map_err(|failure| Error::new("invalid_settings", format!("{failure:#}")))?;
        // The process may change its working directory.
        settings.data = std::path::absolute(&settings.data).unwrap_or(settings.data);
        Ok(Resolved {
            settings,
            create,
            folder,
        })
    }

    fn settings(self) -> anyhow::Result<Settings> {
        let embedder: Option<EmbedderKind> =
            self.embedder.as_deref().map(str::parse).transpose()?;
        let flags = Layer {
            data: self.data,
            catalog: self.name,
            embedder: embedder.map(EmbedderLayer::Named),
            ..Layer::default()
        };
        let mut settings = Settings::resolve(flags, self.config.as_deref(), &|name| {
            std::env::var_os(name)
        })?;
        if let Some(own) = settings.embedder_of_catalog() {
            settings.embedder = own;
        }
        Ok(settings)
    }
}

/// The limits of fetching a URL, from the environment and the configuration file.
///
/// # Errors
/// `invalid_settings`.
pub fn fetch_limits() -> Result<Fetch> {
    let settings = Settings::resolve(Layer::default(), None, &|name| std::env::var_os(name));
    let settings =
        settings.map_err(|failure| Error::new("invalid_settings", format!("{failure:#}")))?;
    Ok(settings.fetch)
}

fn temporary_folder() -> Result<TempDir> {
    TempDir::with_prefix("toolscout-").map_err(|failure| {
        let parent = std::env::temp_dir();
        let message = format!("create a folder in {}: {failure}", parent.display());
        Error::new("io_failed", message)
    })
}

/// A catalog whose settings are read.
pub struct Resolved {
    settings: Settings,
    create: bool,
    folder: Option<TempDir>,
}

impl Resolved {
    /// Opens the catalog.
    ///
    /// # Errors
    /// `unknown_catalog`, and others of the engine.
    pub fn open(self) -> Result<Open> {
        Ok(Open {
            catalog: self.catalog()?,
            settings: self.settings,
            _folder: self.folder,
        })
    }

    fn catalog(&self) -> toolscout_index::Result<Catalog> {
        let settings = &self.settings;
        let data = DataDir::new(&settings.data);
        if !self.create && !data.may_have(&settings.catalog)? {
            // Before a model is loaded.
            return data.open(&settings.catalog, toolscout_index::Options::default());
        }
        let embedders = models::embedders_of(&settings.embedder, settings, Patience::of_server());
        match self.create {
            true => data.open_or_create(&settings.catalog, embedders.options()),
            false => data.open(&settings.catalog, embedders.options()),
        }
    }
}

/// What is open.
pub struct Open {
    /// The catalog.
    pub catalog: Catalog,
    /// Its settings.
    pub settings: Settings,
    /// Deletes its folder when it is dropped.
    _folder: Option<TempDir>,
}

impl Open {
    /// The defaults of a search: those of the settings, and of the catalog for what they leave open.
    pub fn search_defaults(&self) -> SearchOptions {
        let mut options = self.settings.search;
        if self.settings.embedder == EmbedderKind::None {
            // The user chose words alone, so the answer is not degraded.
            let mode = options.mode.filter(|mode| *mode != Mode::Auto);
            options.mode = Some(mode.unwrap_or(Mode::Lexical));
        }
        options
    }

    /// The newest snapshot: what other processes have written is read.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn newest(&self) -> toolscout_index::Result<Arc<Searcher>> {
        match self.catalog.may_be_behind() {
            true => self.catalog.refresh(),
            false => Ok(self.catalog.searcher()),
        }
    }
}
