//! The shadow of a catalog: a copy with other embedders, another ranker, other words or other settings.
//! It is made, kept up to date and asked for second answers in idle time, by a thread of its own.

mod copy;
mod pace;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use toolscout_base::config::{EndpointSettings, RankerChange, ShadowChanges, ShadowSettings};
use toolscout_gate::usage::UsageDatabase;
use toolscout_gate::usage::shadow::{Identity, Shadow};
use toolscout_index::{Catalog, Memory, Options, OwnerWords, Searcher};

/// The folder of shadows, in the data directory. It is no folder of catalogs, so no list shows them.
pub const FOLDER: &str = "shadow";

/// Loads other embedders.
pub type Loader = Box<dyn Fn() -> Options + Send>;

/// The catalog that a shadow is of.
pub trait Original: Send + Sync {
    /// Its newest snapshot.
    fn snapshot(&self) -> Arc<Searcher>;

    /// Its folder.
    fn folder(&self) -> &Path;

    /// How it is opened.
    fn options(&self) -> Options;

    /// Its usage memory.
    fn memory(&self) -> &Memory;

    /// Whether its tools are in a store alone.
    fn is_pushed_down(&self) -> bool {
        false
    }
}

impl Original for Catalog {
    fn snapshot(&self) -> Arc<Searcher> {
        self.searcher()
    }

    fn folder(&self) -> &Path {
        self.path()
    }

    fn options(&self) -> Options {
        Catalog::options(self)
    }

    fn memory(&self) -> &Memory {
        Catalog::memory(self)
    }
}

/// What a shadow is among.
pub trait Surroundings: Send {
    /// The catalog, while it is open.
    fn original(&self) -> Option<Arc<dyn Original>>;

    /// Whether no search waits.
    fn is_idle(&self) -> bool {
        true
    }
}

impl Surroundings for Catalog {
    fn original(&self) -> Option<Arc<dyn Original>> {
        Some(Arc::new(self.clone()))
    }
}

/// What a shadow is to be.
pub struct Plan {
    identity: Identity,
    changes: ShadowChanges,
    embedders: Option<Loader>,
}

impl Plan {
    /// Reads what these settings name. `embedders` loads those that they name.
    ///
    /// # Errors
    /// A file that cannot be read, or does not hold what it should.
    pub fn new(
        settings: &ShadowSettings,
        default_catalog: &str,
        endpoints: &BTreeMap<String, EndpointSettings>,
        embedders: Loader,
    ) -> Result<Self> {
        let changes = settings.read()?;
        let catalog = settings.catalog.as_deref().unwrap_or(default_catalog);
        let identity = Identity {
            id: fingerprint(&changes, endpoints)?,
            catalog: catalog.to_owned(),
            differences: settings.differences(),
            share: settings.share(),
        };
        Ok(Plan {
            identity,
            embedders: changes.embedder.is_some().then_some(embedders),
            changes,
        })
    }

    /// Which shadow it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranked(&self) -> bool {
        !matches!(self.changes.ranker, Some(RankerChange::Without))
    }
}

/// A hash of all that differs, so that figures begin anew when the contents of a file change.
fn fingerprint(
    changes: &ShadowChanges,
    endpoints: &BTreeMap<String, EndpointSettings>,
) -> Result<String> {
    let embedder = changes.embedder.as_ref().map(ToString::to_string);
    // With the settings of endpoints among them: the same name may stand for another model now.
    let names = embedder.iter().flat_map(|names| names.split('+'));
    let named: Vec<_> = names.filter_map(|name| endpoints.get(name)).collect();
    let ranker = match &changes.ranker {
        None => Vec::new(),
        Some(RankerChange::Without) => b"none".to_vec(),
        Some(RankerChange::Other(ranker)) => ranker.to_bytes(Path::new("ranker"))?,
    };
    let words = changes.words.as_ref().map(OwnerWords::to_json);
    let parts = serde_json::json!([embedder, named, words, changes.settings]);
    let mut hasher = blake3::Hasher::new();
    hasher.update(parts.to_string().as_bytes());
    hasher.update(&ranker);
    Ok(hex::encode(&hasher.finalize().as_bytes()[..8]))
}

/// Starts the thread of a shadow. `default_catalog` is that of searches that name none.
///
/// # Errors
/// If the record of use cannot be opened, or there is no thread.
pub fn start(
    data: &Path,
    default_catalog: &str,
    plan: Plan,
    surroundings: Box<dyn Surroundings>,
) -> io::Result<Shadow> {
    let (shadow, events) = Shadow::new(plan.identity.clone(), default_catalog);
    let store = UsageDatabase::open(data).map_err(io::Error::other)?;
    let worker = worker::Worker::new(shadow.clone(), store, data, plan, surroundings);
    let thread = std::thread::Builder::new().name("shadow".into());
    thread.spawn(move || worker.run(&events))?;
    Ok(shadow)
}

/// Deletes shadows other than the one that is planned: no settings name them any more. What another
/// process uses stays.
pub fn discard_all_but(data: &Path, plan: Option<&Plan>) {
    let shadows = copy::shadows(data);
    let planned = plan.map(|plan| plan.identity.id.as_str());
    for name in shadows.catalogs().unwrap_or_default() {
        if planned != Some(name.as_str())
            && let Err(error) = shadows.delete(&name)
        {
            tracing::debug!(shadow = name, %error, "a shadow stays for now");
        }
    }
}

#[cfg(test)]
mod tests;
