//! An open catalog, with the embedders and the settings that the command line opens it with.

use std::mem::ManuallyDrop;
use std::path::PathBuf;

use pyo3::prelude::*;
use tempfile::TempDir;
use toolscout::config::{EmbedderKind, EmbedderLayer, Layer, Settings};
use toolscout::models::{self, Patience};
use toolscout_index::{Catalog, DataDir, Mode, SearchOptions};

use crate::errors::{OrRaise, error};
use crate::process;

/// An open catalog.
pub struct Open {
    parts: ManuallyDrop<Parts>,
}

/// What is open.
pub struct Parts {
    /// The catalog.
    pub catalog: Catalog,
    /// Its settings.
    pub settings: Settings,
    /// Deletes its folder when it is dropped.
    _folder: Option<TempDir>,
}

impl std::ops::Deref for Open {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // In a forked process the threads that it would wait for are not there, and the folder is the
        // parent's.
        if process::is_owner() {
            // SAFETY: the parts are not used after this.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}

impl Parts {
    /// The defaults of a search: those of the settings, and of the catalog for what they leave open.
    pub fn search_defaults(&self) -> SearchOptions {
        let mut options = self.settings.search;
        if self.settings.embedder == EmbedderKind::None {
            // The user chose words alone, so the answer is not degraded.
            options.mode = Some(
                options
                    .mode
                    .filter(|mode| *mode != Mode::Auto)
                    .unwrap_or(Mode::Lexical),
            );
        }
        options
    }
}

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
}

impl Opening {
    /// Opens the catalog.
    ///
    /// # Errors
    /// `invalid_settings`, `unknown_catalog`, and others of the engine.
    pub fn open(self, py: Python<'_>) -> PyResult<Open> {
        self.open_in(py, None)
    }

    /// Opens a catalog in a folder that is deleted with it.
    ///
    /// # Errors
    /// As [`Opening::open`]; `io_failed` where no folder can be created.
    pub fn temporary(mut self, py: Python<'_>) -> PyResult<Open> {
        let folder = TempDir::with_prefix("toolscout-").map_err(|failure| {
            let message = format!(
                "create a folder in {}: {failure}",
                std::env::temp_dir().display()
            );
            error(py, "io_failed", message)
        })?;
        self.data = Some(folder.path().to_owned());
        self.open_in(py, Some(folder))
    }

    fn open_in(self, py: Python<'_>, folder: Option<TempDir>) -> PyResult<Open> {
        process::claim(py)?;
        let mut settings = self.settings().or_raise(py)?;
        // The process may change its working directory.
        settings.data = std::path::absolute(&settings.data).unwrap_or(settings.data);
        let opened = py.detach(|| -> toolscout_index::Result<Catalog> {
            let data = DataDir::new(&settings.data);
            if !self.create && !data.may_have(&settings.catalog)? {
                // Before a model is loaded.
                return data.open(&settings.catalog, toolscout_index::Options::default());
            }
            let embedders =
                models::embedders_of(&settings.embedder, &settings, Patience::of_server());
            match self.create {
                true => data.open_or_create(&settings.catalog, embedders.options()),
                false => data.open(&settings.catalog, embedders.options()),
            }
        });
        Ok(Open {
            parts: ManuallyDrop::new(Parts {
                catalog: opened.or_raise(py)?,
                settings,
                _folder: folder,
            }),
        })
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let embedder: Option<EmbedderKind> =
            self.embedder.as_deref().map(str::parse).transpose()?;
        let flags = Layer {
            data: self.data.clone(),
            catalog: self.name.clone(),
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
