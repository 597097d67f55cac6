//! What every verb needs: the settings, the catalogs and the printer.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use toolscout_index::{Catalog, DataDir, Embedder, Options, database};

use super::output::{Output, Printer, tell};
use crate::config::{Layer, Settings};
use crate::models::{self, Embedders, Unavailable};

/// The folder of the catalogs, in the data directory.
const CATALOGS: &str = "catalogs";

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
        let context = Context {
            settings,
            printer: Printer::new(output),
            embedders: OnceCell::new(),
        };
        let narrowed = narrowed(&context.settings.data);
        if let Some(first) = narrowed.first() {
            let more = match narrowed.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more of ours"),
            };
            context.warn(format_args!(
                "{}{more} could be read by others; now only by you",
                first.display()
            ));
        }
        Ok(context)
    }

    /// The directory of the catalogs.
    pub fn data_dir(&self) -> DataDir {
        DataDir::new(&self.settings.data)
    }

    /// Opens the catalog in question, which must exist.
    pub fn open(&self, legs: Legs) -> Result<Catalog> {
        // First without a model: a catalog that is not there should be told at once and without a
        // warning before it.
        let dir = self.data_dir();
        if legs == Legs::All && !dir.catalogs()?.contains(&self.settings.catalog) {
            return Ok(dir.open(&self.settings.catalog, Options::default())?);
        }
        Ok(dir.open(&self.settings.catalog, self.options(legs))?)
    }

    /// Opens the catalog in question, created when it is not there.
    pub fn open_or_create(&self, legs: Legs) -> Result<Catalog> {
        Ok(self
            .data_dir()
            .open_or_create(&self.settings.catalog, self.options(legs))?)
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
        tell(format_args!("warning: {message}"));
    }

    fn options(&self, legs: Legs) -> Options {
        let embedders = match legs {
            Legs::Lexical => Vec::new(),
            Legs::All => self.embedders().to_vec(),
        };
        Options { embedders }
    }
}

/// Takes from others what an earlier version, or a wider umask, has let them do with the data, and
/// names what that was. The data folder itself is left alone where somebody else's files are in it
/// too.
fn narrowed(data: &Path) -> Vec<PathBuf> {
    let here = entries(data);
    let is_ours =
        |path: &PathBuf| is_database(path) || path.file_name().is_some_and(|name| name == CATALOGS);
    let mut ours: Vec<PathBuf> = here.iter().filter(|path| is_ours(path)).cloned().collect();
    if !ours.is_empty() && ours.len() == here.len() {
        ours.insert(0, data.to_owned());
    }
    for catalog in entries(&data.join(CATALOGS)) {
        let inside = entries(&catalog)
            .into_iter()
            .filter(|path| path.is_dir() || is_database(path));
        ours.extend(inside);
        ours.push(catalog);
    }
    // What cannot be narrowed belongs to somebody else, who has decided about it.
    ours.retain(|path| database::narrow(path).unwrap_or(false));
    ours
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn is_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [
        ".db", ".sqlite", "-wal", "-shm", "-journal", ".key", ".anchor",
    ]
    .iter()
    .any(|end| name.ends_with(end))
}
