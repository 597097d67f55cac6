//! The state that verbs share: settings, catalogs, embedders and the printer.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use toolscout_index::{Catalog, DataDir, Embedder, Error, Options, Searcher, database};

use super::exit::describe;
use super::globals::Globals;
use super::output::{Printer, print_stderr};
use crate::config::{DEFAULT_CATALOG, EmbedderKind, Settings};
use crate::models::{self, Embedders, Patience, Unavailable};
use crate::shadow::{self, Plan};
use crate::usage::Recorder;
use toolscout_index::suggest::did_you_mean;

/// The folder of the catalogs, in the data directory.
const CATALOGS: &str = "catalogs";

/// The state of one run.
pub struct Context {
    /// The flags that every verb accepts, as given.
    pub globals: Globals,
    /// The settings from flags, environment and file.
    pub settings: Settings,
    /// The embedders of catalogs that name none.
    pub general_embedder: EmbedderKind,
    /// The file that starts this program again, where it is not that of the process.
    pub program: Option<PathBuf>,
    /// Prints results.
    pub printer: Printer,
    /// Loaded on first use and once: loading a model takes a third of a second.
    embedders: OnceCell<Embedders>,
    /// How long embedders may take once they are loaded, and loading an endpoint.
    patience: Cell<Patience>,
}

/// Which legs a catalog is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legs {
    /// The lexical leg alone; no embedder is loaded.
    Lexical,
    /// Every leg. Prints a warning when the model is configured and cannot be loaded.
    All,
}

impl Context {
    /// Resolves the settings, and narrows file permissions that are too wide.
    pub fn new(globals: Globals) -> Result<Self> {
        let mut settings = Settings::resolve(globals.layer(), globals.config(), &|name| {
            std::env::var_os(name)
        })?;
        let general_embedder = settings.embedder.clone();
        if let Some(kind) = settings.embedder_of_catalog() {
            settings.embedder = kind;
        }
        let context = Context {
            program: None,
            printer: Printer::new(globals.output()),
            globals,
            settings,
            general_embedder,
            embedders: OnceCell::new(),
            patience: Cell::new(Patience::of_search(None)),
        };
        // Once for each start: any verb may be the first after a version that wrote wider ones.
        let narrowed = narrow_permissions(&context.settings.data);
        if let Some(first) = narrowed.first() {
            let more = match narrowed.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more of its files"),
            };
            context.warn(format_args!(
                "{}{more} could be read by others; permissions are now restricted to you",
                first.display()
            ));
        }
        Ok(context)
    }

    /// Uses the embedders of the settings, not those of a catalog.
    pub fn use_general_embedder(&mut self) {
        self.settings.embedder = self.general_embedder.clone();
    }

    /// Uses this catalog in place of that of the settings, with its embedders. To be called before they
    /// are loaded.
    pub fn use_catalog(&mut self, name: &str) {
        name.clone_into(&mut self.settings.catalog);
        self.settings.embedder = match self.settings.embedder_of_catalog() {
            Some(kind) => kind,
            None => self.general_embedder.clone(),
        };
    }

    /// Records the use of tools of this catalog, which is that of the settings, into the data directory,
    /// which must exist. If the settings have a shadow of it, its answers are compared.
    pub fn recorder(&self, searched: &Catalog) -> Result<Recorder> {
        let Settings {
            data,
            catalog,
            usage,
            ..
        } = &self.settings;
        let mut shadow = None;
        if let Some(plan) = self.shadow()?
            && plan.identity().catalog == *catalog
        {
            let started = shadow::start(data, catalog, plan, Box::new(searched.clone()));
            shadow = Some(started.context("start the shadow of the settings")?);
        }
        Ok(Recorder::start(data, catalog, usage).with_shadow(shadow))
    }

    /// The shadow of the settings, if they have one.
    pub fn shadow(&self) -> Result<Option<Plan>> {
        let Some(shadow) = &self.settings.shadow else {
            return Ok(None);
        };
        let kind = shadow.embedder.clone().unwrap_or_default();
        let settings = self.settings.clone();
        // Loaded only if the shadow is started; `usage shadow` needs no model.
        let load = move || models::embedders_of(&kind, &settings, Patience::of_server()).options();
        let Settings {
            catalog, embedders, ..
        } = &self.settings;
        Plan::new(shadow, catalog, embedders, Box::new(load)).map(Some)
    }

    /// The directory of the catalogs.
    pub fn data_dir(&self) -> DataDir {
        DataDir::new(&self.settings.data)
    }

    /// Opens the catalog of the settings, which must exist.
    pub fn open(&self, legs: Legs) -> Result<Catalog> {
        self.open_named(&self.settings.catalog, legs)
    }

    /// Opens a catalog, which must exist.
    pub fn open_named(&self, name: &str, legs: Legs) -> Result<Catalog> {
        let dir = self.data_dir();
        // A missing catalog is reported before a model is loaded: at once, and without a warning
        // about the model above the error.
        if legs == Legs::All && !dir.catalogs()?.iter().any(|known| known == name) {
            return Ok(dir.open(name, Options::default())?);
        }
        Ok(dir.open(name, self.options(legs))?)
    }

    /// Opens the catalog of the settings; creates it if it does not exist.
    pub fn open_or_create(&self, legs: Legs) -> Result<Catalog> {
        Ok(self
            .data_dir()
            .open_or_create(&self.settings.catalog, self.options(legs))?)
    }

    /// True when the catalog of the settings exists.
    pub fn has_catalog(&self) -> Result<bool> {
        Ok(self.data_dir().catalogs()?.contains(&self.settings.catalog))
    }

    /// Fails for a catalog that does not exist, unless it is the default one. For verbs that serve
    /// a catalog: a misspelt name would create an empty one.
    pub fn check_catalog(&self) -> Result<()> {
        match self.unknown_catalog()? {
            Some(unknown) => Err(unknown.into()),
            None => Ok(()),
        }
    }

    /// Warns where [`Context::check_catalog`] would fail.
    pub fn warn_of_unknown_catalog(&self) {
        // A data directory that cannot be listed is reported by whatever reads it next.
        if let Ok(Some(unknown)) = self.unknown_catalog() {
            self.warn(describe(&unknown));
        }
    }

    fn unknown_catalog(&self) -> Result<Option<Error>> {
        let name = &self.settings.catalog;
        if name == DEFAULT_CATALOG || self.has_catalog()? {
            return Ok(None);
        }
        Ok(Some(Error::UnknownCatalog {
            name: name.clone(),
            data_dir: self.settings.data.clone(),
        }))
    }

    /// Fails where the data directory is a file.
    pub fn check_data_dir(&self) -> Result<()> {
        let data = &self.settings.data;
        if data.is_file() {
            bail!(
                "{} is a file, not a folder; --data names the folder of the catalogs",
                data.display()
            );
        }
        Ok(())
    }

    /// Warns about servers without tools in the catalog, and suggests similar names.
    pub fn warn_of_unknown_servers(&self, searcher: &Searcher, servers: &[String]) {
        if servers.is_empty() {
            return;
        }
        let items = searcher.items();
        let known: BTreeSet<String> = items.map(|tool| tool.id.server().to_owned()).collect();
        for server in servers {
            if !known.contains(server) {
                self.warn(unknown_server(&self.settings.catalog, server, &known));
            }
        }
    }

    /// Sets how long embedders may take; without it they get the time of a search. To be called
    /// before they are loaded.
    pub fn set_patience(&self, patience: Patience) {
        self.patience.set(patience);
    }

    /// The embedders; loads them on first use.
    pub fn embedders(&self) -> &[Arc<dyn Embedder>] {
        &self.loaded().found
    }

    /// Why there is no embedding model; `None` if there is one. Loads it on first use.
    pub fn without_model(&self) -> Option<&Unavailable> {
        self.loaded().without_model.as_ref()
    }

    /// As [`Context::without_model`], for a verb that fails without a model: where there is none, the
    /// error says so, and no warning is printed above it.
    pub fn required_model(&self) -> Result<(), &Unavailable> {
        let embedders = self.embedders.get_or_init(|| self.load());
        embedders.without_model.as_ref().map_or(Ok(()), Err)
    }

    fn loaded(&self) -> &Embedders {
        self.embedders.get_or_init(|| {
            let embedders = self.load();
            if let Some(unavailable) = &embedders.without_model
                && unavailable.is_problem()
            {
                self.warn(format_args!("{unavailable}; searching without it"));
            }
            embedders
        })
    }

    fn load(&self) -> Embedders {
        let settings = &self.settings;
        models::embedders_of(&settings.embedder, settings, self.patience.get())
    }

    /// Prints a warning on stderr.
    pub fn warn(&self, message: impl std::fmt::Display) {
        print_stderr(format_args!("warning: {message}"));
    }

    /// How a catalog is opened.
    pub fn options(&self, legs: Legs) -> Options {
        match legs {
            Legs::Lexical => Options::default(),
            Legs::All => self.loaded().options(),
        }
    }
}

/// The message about a server without tools, with similar names.
pub fn unknown_server(catalog: &str, server: &str, known: &BTreeSet<String>) -> String {
    let hint = match did_you_mean(server, known.iter().map(String::as_str)) {
        Some(similar) => similar,
        None => "`toolscout stats` lists the servers".to_owned(),
    };
    format!("no tool of server {server:?} in catalog {catalog:?}; {hint}")
}

/// Restricts our files to their owner, where an earlier version or a wide umask left them readable
/// by others, and returns the paths that changed. The data directory itself is only restricted when
/// it holds nothing but our files.
fn narrow_permissions(data: &Path) -> Vec<PathBuf> {
    let all = entries(data);
    let mut ours: Vec<PathBuf> = all.iter().filter(|path| is_ours(path)).cloned().collect();
    if !ours.is_empty() && ours.len() == all.len() {
        ours.insert(0, data.to_owned());
    }
    for catalog in entries(&data.join(CATALOGS)) {
        for path in entries(&catalog) {
            if path.is_dir() || is_database(&path) {
                ours.push(path);
            }
        }
        ours.push(catalog);
    }
    // An error means that the file belongs to another user, who chose its permissions.
    ours.retain(|path| database::narrow(path).unwrap_or(false));
    ours
}

fn is_ours(path: &Path) -> bool {
    is_database(path) || path.file_name() == Some(OsStr::new(CATALOGS))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}

fn is_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [
        ".db", ".sqlite", "-wal", "-shm", "-journal", ".key", ".anchor",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}
