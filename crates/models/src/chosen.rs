//! The embedders that the settings name: endpoints, and models by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolscout_index::Embedder;

use super::endpoint::{Endpoint, Identity};
use super::named::{self, NamedModel, Wanted};
use super::{Depth, Patience, Unavailable, Usage, runtime};
use toolscout_base::config::{EndpointSettings, Settings, is_url, masked};

/// The file in the cache that says what endpoints were asked once.
const REMEMBERED: &str = "endpoints.json";

/// The embedders that could be loaded.
#[derive(Default)]
pub struct Chosen {
    pub found: Vec<Arc<dyn Embedder>>,
    /// The first problem.
    pub problem: Option<Unavailable>,
    /// By the embedder's id.
    pub usage: Vec<(String, Arc<Usage>)>,
}

/// Loads embedders by name, in this order.
pub fn load(names: &[String], settings: &Settings, patience: Patience) -> Chosen {
    let mut chosen = Chosen::default();
    for name in names {
        if let Err(problem) = chosen.add(name, settings, patience) {
            // The others may still be of use, and one problem is enough for a warning.
            chosen.problem.get_or_insert(problem);
        }
    }
    chosen
}

impl Chosen {
    fn add(
        &mut self,
        name: &str,
        settings: &Settings,
        patience: Patience,
    ) -> Result<(), Unavailable> {
        let built_in = match name {
            "encoder" => Some(super::encoder()?),
            "minilm" => Some(super::minilm(settings)?),
            _ => None,
        };
        if let Some(model) = built_in {
            self.found.push(model);
            return Ok(());
        }
        let endpoint = match settings.embedders.get(name) {
            Some(endpoint) => endpoint.clone(),
            None if is_url(name) => EndpointSettings::of_url(name),
            None => {
                self.found.push(Arc::new(by_name(name, settings)?));
                return Ok(());
            }
        };
        let endpoint = connect(endpoint, &settings.cache, patience)
            .map_err(|error| failed(error.to_string()))?;
        self.usage
            .push((endpoint.id().to_owned(), endpoint.usage()));
        self.found.push(Arc::new(endpoint));
        Ok(())
    }
}

/// Loads a model by its name.
fn by_name(name: &str, settings: &Settings) -> Result<NamedModel, Unavailable> {
    let Some(wanted) = Wanted::named(name) else {
        let reason = format!("the embedder {name:?} is unknown on this machine");
        return Err(failed(reason));
    };
    let (files, library) = (
        named::locate(wanted, settings, Depth::Sizes),
        runtime::locate(settings, Depth::Sizes),
    );
    let (Some(folder), Some(library)) = (files.ready(), library.ready()) else {
        let problems = [
            files.problem(&format!("the embedding model {name}")),
            library.problem("the ONNX Runtime"),
        ];
        let problems: Vec<String> = problems.into_iter().flatten().collect();
        return Err(failed(format!(
            "{} (`toolscout models pull {name}` fetches what it needs)",
            problems.join(" and ")
        )));
    };
    NamedModel::load(wanted.model, folder, library).map_err(|error| failed(error.to_string()))
}

fn failed(reason: String) -> Unavailable {
    Unavailable::Failed { reason }
}

fn connect(
    settings: EndpointSettings,
    cache: &Path,
    patience: Patience,
) -> toolscout_index::Result<Endpoint> {
    let remembered = Remembered {
        file: cache.join(REMEMBERED),
        key: key(&settings),
    };
    let identity = match (&settings.model, settings.dimensions) {
        (Some(model), Some(dimensions)) => Identity {
            model: model.clone(),
            dimensions,
        },
        _ => match remembered.read() {
            Some(known) if agrees(&settings, &known) => known,
            _ => {
                let found = Endpoint::discover(&settings, patience.discovery())?;
                remembered.write(&found);
                found
            }
        },
    };
    // The model behind the address was changed, so the next start asks again.
    let endpoint = Endpoint::new(patience.bound(settings), identity)?
        .on_other_length(move || remembered.forget());
    Ok(if patience.is_measuring() {
        endpoint.patient()
    } else {
        endpoint
    })
}

/// Whether what is remembered is still what the settings say; they may have got other dimensions since.
fn agrees(settings: &EndpointSettings, known: &Identity) -> bool {
    match settings.dimensions {
        Some(dimensions) => dimensions == known.dimensions,
        None => true,
    }
}

/// The key under which it is remembered what an endpoint was asked: by its whole address, of which
/// the file gets nothing that may be a key.
fn key(settings: &EndpointSettings) -> String {
    let digest = blake3::hash(settings.url.as_bytes()).to_hex();
    let model = settings.model.as_deref().unwrap_or("*");
    format!("{} {} {model}", masked(&settings.url), &digest[..16])
}

/// What an endpoint was asked once, in a file: a search need not ask again, and works while the
/// endpoint is down.
struct Remembered {
    file: PathBuf,
    key: String,
}

/// The file: by address and model.
type Known = BTreeMap<String, KnownEndpoint>;

#[derive(Serialize, Deserialize)]
struct KnownEndpoint {
    model: String,
    dimensions: usize,
}

impl Remembered {
    fn read(&self) -> Option<Identity> {
        let known = self.read_all().remove(&self.key)?;
        Some(Identity {
            model: known.model,
            dimensions: known.dimensions,
        })
    }

    fn write(&self, identity: &Identity) {
        let mut known = self.read_all();
        let (model, dimensions) = (identity.model.clone(), identity.dimensions);
        known.insert(self.key.clone(), KnownEndpoint { model, dimensions });
        self.write_all(&known);
    }

    fn forget(&self) {
        let mut known = self.read_all();
        if known.remove(&self.key).is_some() {
            self.write_all(&known);
        }
    }

    fn read_all(&self) -> Known {
        let bytes = std::fs::read(&self.file).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// A failure costs no more than asking again.
    fn write_all(&self, known: &Known) {
        let partial = self
            .file
            // Renamed once it is complete, because other processes may read it at any time.
            .with_extension(format!("{}.partial", std::process::id()));
        let write = || -> std::io::Result<()> {
            if let Some(folder) = self.file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&partial, serde_json::to_vec(known)?)?;
            std::fs::rename(&partial, &self.file)
        };
        if let Err(error) = write() {
            // No warning: the endpoint is asked once more, and that is all.
            tracing::debug!(%error, file = %self.file.display(), "not remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_differ_by_their_whole_address_which_is_not_stored() {
        let [a, b] = ["a", "b"].map(|word| {
            key(&EndpointSettings::of_url(&format!(
                "https://h/v1?key={word}-secret#m"
            )))
        });
        assert_ne!(a, b);
        assert!(a.starts_with("https://h/v1?… ") && a.ends_with(" m"), "{a}");
        assert!(!a.contains("secret"), "{a}");
    }

    #[test]
    fn what_was_asked_once_is_remembered_until_it_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = |key: &str| Remembered {
            file: folder.path().join("cache").join(REMEMBERED),
            key: key.to_owned(),
        };
        let identity = Identity {
            model: "m".to_owned(),
            dimensions: 3,
        };
        assert_eq!(remembered("a").read(), None);
        remembered("a").write(&identity);
        remembered("b").write(&identity);
        remembered("b").forget();
        assert_eq!(
            (remembered("a").read(), remembered("b").read()),
            (Some(identity), None)
        );
    }
}
