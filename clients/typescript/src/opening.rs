//! An open catalog, with the embedders and the settings that the command line opens it with.

use std::path::PathBuf;

use napi::Result;
use napi_derive::napi;
use tempfile::TempDir;
use toolscout::config::{EmbedderKind, EmbedderLayer, Layer, Settings};
use toolscout::models::{self, Patience};
use toolscout_index::{Catalog, DataDir, Mode, SearchOptions};

use crate::errors::{OrReject, error};

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
}

/// Where a catalog is, and how it is opened.
#[napi(object)]
pub struct Opening {
    /// The data directory; that of the settings where not given.
    pub data: Option<String>,
    /// Its name; that of the settings where not given.
    pub name: Option<String>,
    /// Its embedders; its own or those of the settings where not given.
    pub embedder: Option<String>,
    /// The configuration file.
    pub config: Option<String>,
    /// Whether it is created where it does not exist.
    pub create: bool,
    /// Whether it is in a folder that is deleted with it.
    pub temporary: bool,
}

impl Opening {
    /// Opens the catalog.
    ///
    /// # Errors
    /// `invalid_settings`, `unknown_catalog`, `io_failed` where no folder can be created, and others
    /// of the engine.
    pub fn open(mut self) -> Result<Open> {
        let folder = match self.temporary {
            true => Some(temporary_folder()?),
            false => None,
        };
        if let Some(folder) = &folder {
            self.data = Some(folder.path().display().to_string());
        }
        let mut settings = self.settings().or_reject()?;
        // The process may change its working directory.
        settings.data = std::path::absolute(&settings.data).unwrap_or(settings.data);
        Ok(Open {
            catalog: self.catalog(&settings).or_reject()?,
            settings,
            _folder: folder,
        })
    }

    fn catalog(&self, settings: &Settings) -> toolscout_index::Result<Catalog> {
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

    fn settings(&self) -> anyhow::Result<Settings> {
        let embedder: Option<EmbedderKind> =
            self.embedder.as_deref().map(str::parse).transpose()?;
        let flags = Layer {
            data: self.data.clone().map(PathBuf::from),
            catalog: self.name.clone(),
            embedder: embedder.map(EmbedderLayer::Named),
            ..Layer::default()
        };
        let config = self.config.as_deref().map(PathBuf::from);
        let mut settings =
            Settings::resolve(flags, config.as_deref(), &|name| std::env::var_os(name))?;
        if let Some(own) = settings.embedder_of_catalog() {
            settings.embedder = own;
        }
        Ok(settings)
    }
}

fn temporary_folder() -> Result<TempDir> {
    TempDir::with_prefix("toolscout-").map_err(|failure| {
        let parent = std::env::temp_dir();
        let message = format!("create a folder in {}: {failure}", parent.display());
        error("io_failed", message)
    })
}
