//! Models that are used by name: finds their files, in the layout of the hub's cache, and loads them.

use std::path::{Path, PathBuf};

use fastembed::{
    InitOptionsUserDefined, ModelTrait, TextEmbedding, TokenizerFiles, UserDefinedEmbeddingModel,
};
use parking_lot::Mutex;
use serde::Serialize;
use toolscout_index::{Embedder, EmbedderProfile, Error, Languages, Result};

use super::hub_cache::{self, OnHub, is_commit, is_revision};
use super::manifest::Manifest;
use super::{Depth, Part, runtime};
use toolscout_base::config::Settings;
use toolscout_base::known_models::{KnownModel, TOKENIZER_FILES, check_revision, split_revision};

/// Tokens read of a text. A tool's first sentences state its purpose, and time grows with each.
const MAX_TOKENS: usize = 256;
/// Share beside the table, as that of MiniLM.
const SHARE: f32 = 0.65;
/// Letters of a revision in an id, and of the hash of all that decides a vector.
const REVISION_CHARS: usize = 8;
const HASH_CHARS: usize = 8;

/// A model and the revision that the settings ask for, if any.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub model: &'static KnownModel,
    pub revision: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// From a name, with or without `@REVISION`; `None` also for a revision that cannot be one.
    pub fn named(name: &'a str) -> Option<Self> {
        check_revision(name).ok()?;
        Some(Wanted {
            model: KnownModel::find(name)?,
            revision: split_revision(name).1,
        })
    }

    /// Where the hub has it.
    pub fn on_hub(&self) -> OnHub<'a> {
        OnHub {
            name: &self.model.name,
            id: &self.model.hub_id,
            revision: self.revision,
        }
    }
}

/// The state of a model that can be used by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedStatus {
    /// Its short name.
    pub name: String,
    /// Its name on the hub.
    pub hub_id: String,
    /// Length of its vectors.
    pub dimensions: usize,
    /// Its files.
    #[serde(flatten)]
    pub files: Part,
}

/// The state of every known model.
pub fn statuses(settings: &Settings) -> Vec<NamedStatus> {
    let mut statuses = Vec::new();
    for model in KnownModel::all() {
        let wanted = Wanted {
            model,
            revision: None,
        };
        statuses.push(NamedStatus {
            name: model.name.clone(),
            hub_id: model.hub_id.clone(),
            dimensions: model.dimensions,
            // The weights of many models are too much to hash for a list.
            files: locate(wanted, settings, Depth::Sizes),
        });
    }
    statuses
}

/// Finds the folder with a model's files.
pub fn locate(wanted: Wanted<'_>, settings: &Settings, depth: Depth) -> Part {
    let homes = homes(settings);
    let mut parts = Vec::new();
    for home in &homes {
        let repository = home.join(wanted.on_hub().repository());
        if let Some(folder) = snapshot(&repository, wanted.revision) {
            parts.push(check(wanted.model, &folder, depth));
        }
    }
    if parts.is_empty() {
        return Part::Missing { looked_in: homes };
    }
    // Where none is complete, the first says what it lacks.
    let ready = parts.iter().position(|part| part.ready().is_some());
    parts.swap_remove(ready.unwrap_or(0))
}

/// The hub caches that are searched.
fn homes(settings: &Settings) -> Vec<PathBuf> {
    let mut homes: Vec<PathBuf> = settings.models_dir.iter().cloned().collect();
    homes.extend(hub_cache::homes(settings));
    homes
}

/// Where a download is written.
pub fn home(settings: &Settings) -> PathBuf {
    match &settings.models_dir {
        Some(dir) => dir.clone(),
        None => hub_cache::home(settings),
    }
}

/// The folder of a revision: the one asked for by its number or by a name, that of `refs/main`, or
/// the only one.
fn snapshot(repository: &Path, revision: Option<&str>) -> Option<PathBuf> {
    let snapshots = repository.join("snapshots");
    let named = snapshot_named(repository, revision.unwrap_or("main"));
    if named.is_some() {
        return named;
    }
    if let Some(revision) = revision {
        let by_number = snapshots.join(revision);
        return by_number.is_dir().then_some(by_number);
    }
    // Of several folders without a `main`, none is better than another.
    let mut folders = std::fs::read_dir(&snapshots).ok()?.flatten();
    match (folders.next(), folders.next()) {
        (Some(only), None) => Some(only.path()),
        _ => None,
    }
}

/// The folder of the commit that a branch or tag stands for.
fn snapshot_named(repository: &Path, name: &str) -> Option<PathBuf> {
    let commit = std::fs::read_to_string(repository.join("refs").join(name)).ok()?;
    let commit = commit.trim();
    // The file may hold anything, and the commit becomes a part of a path.
    is_revision(commit).then(|| repository.join("snapshots").join(commit))
}

fn check(model: &KnownModel, folder: &Path, depth: Depth) -> Part {
    let manifest = Manifest::read(folder);
    for name in model.files() {
        let path = folder.join(name);
        if let Err(reason) = manifest.check(&path, name, depth) {
            return Part::Broken { path, reason };
        }
    }
    Part::Ready {
        path: folder.to_owned(),
        version: revision_of(folder),
    }
}

fn revision_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// All that decides the vector of a text.
#[derive(Clone, Copy)]
struct ModelIdentity<'a> {
    name: &'a str,
    /// The commit, or the hash of the weights.
    version: &'a str,
    /// The hash of the tokenizer's files.
    tokenizer: &'a str,
    /// What is written before requests and before texts of tools.
    prefixes: (&'a str, &'a str),
    pooling: &'a str,
    max_tokens: usize,
}

impl ModelIdentity<'_> {
    /// The id under which vectors are stored: another one wherever a vector may be another one.
    fn id(&self) -> String {
        let all = serde_json::json!([
            self.version,
            self.tokenizer,
            self.prefixes,
            self.pooling,
            self.max_tokens
        ]);
        let digest = blake3::hash(all.to_string().as_bytes()).to_hex();
        let version: String = self.version.chars().take(REVISION_CHARS).collect();
        format!("{}/{version}/{}", self.name, &digest[..HASH_CHARS])
    }
}

/// A loaded model. One inference at a time, on all cores.
pub struct NamedModel {
    id: String,
    model: &'static KnownModel,
    session: Mutex<TextEmbedding>,
}

impl NamedModel {
    /// Loads a model from its folder, and ONNX Runtime from a library file.
    ///
    /// # Errors
    /// [`Error::Embedder`] with the file that is missing or no model.
    pub fn load(model: &'static KnownModel, folder: &Path, library: &Path) -> Result<Self> {
        runtime::load(library)?;
        let weights = read(folder, &model.weights)?;
        let mut digest = blake3::Hasher::new();
        digest.update(&weights);
        let mut tokenizer_digest = blake3::Hasher::new();
        let mut read_tokenizer = |name: &str| -> Result<Vec<u8>> {
            let bytes = read(folder, name)?;
            // The length separates files of which one ends as the next begins.
            tokenizer_digest.update(&(bytes.len() as u64).to_le_bytes());
            tokenizer_digest.update(&bytes);
            Ok(bytes)
        };
        let [tokenizer, config, special_tokens, tokenizer_config] = TOKENIZER_FILES;
        let tokenizer_files = TokenizerFiles {
            tokenizer_file: read_tokenizer(tokenizer)?,
            config_file: read_tokenizer(config)?,
            special_tokens_map_file: read_tokenizer(special_tokens)?,
            tokenizer_config_file: read_tokenizer(tokenizer_config)?,
        };
        let mut files = UserDefinedEmbeddingModel::new(weights, tokenizer_files)
            .with_quantization(TextEmbedding::get_quantization_mode(&model.model));
        files.pooling = TextEmbedding::get_default_pooling_method(&model.model);
        let pooling = format!("{:?}", files.pooling);
        if let Some(info) = fastembed::EmbeddingModel::get_model_info(&model.model) {
            files.output_key = info.output_key.clone();
        }
        for name in &model.more_weights {
            let bytes = read(folder, name)?;
            digest.update(&bytes);
            // The weights name their further files without a folder.
            let file = name.rsplit('/').next().unwrap_or(name);
            files = files.with_external_initializer(file.to_owned(), bytes);
        }
        let options = InitOptionsUserDefined::new().with_max_length(MAX_TOKENS);
        let session = TextEmbedding::try_new_from_user_defined(files, options)
            .map_err(|error| unusable(folder, error.to_string()))?;
        let revision = revision_of(folder);
        // A commit names the exact weights; of any other folder only its content does.
        let version = if is_commit(&revision) {
            revision
        } else {
            digest.finalize().to_hex().to_string()
        };
        let identity = ModelIdentity {
            name: &model.name,
            version: &version,
            tokenizer: &tokenizer_digest.finalize().to_hex(),
            prefixes: model.prefixes(),
            pooling: &pooling,
            max_tokens: MAX_TOKENS,
        };
        Ok(NamedModel {
            id: identity.id(),
            model,
            session: Mutex::new(session),
        })
    }

    fn embed(&self, texts: &[&str], prefix: &str) -> Result<Vec<Vec<f32>>> {
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            match self.vector(&format!("{prefix}{text}")) {
                Ok(vector) => vectors.push(vector),
                Err(reason) => {
                    let model = self.model.name.clone();
                    return Err(Error::Embedder { model, reason });
                }
            }
        }
        Ok(vectors)
    }

    fn vector(&self, text: &str) -> std::result::Result<Vec<f32>, String> {
        // For one text only: a search need not wait for a batch of tools.
        let mut session = self.session.lock();
        // One by one: the vector of a text must not depend on those beside it, which padding and
        // 8-bit arithmetic would make it do.
        let embedded = session.embed([text], Some(1));
        match embedded.map_err(|error| error.to_string())?.pop() {
            Some(vector) if vector.iter().all(|value| value.is_finite()) => Ok(vector),
            _ => Err("it gave no vector of numbers".to_owned()),
        }
    }
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>> {
    let path = folder.join(name);
    std::fs::read(&path).map_err(|error| unusable(&path, error.to_string()))
}

/// The error about a file, or about the folder of a model.
fn unusable(path: &Path, reason: String) -> Error {
    Error::Embedder {
        model: path.display().to_string(),
        reason,
    }
}

impl Embedder for NamedModel {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            languages: self.model.languages(),
            share: SHARE,
            ..EmbedderProfile::new(&self.id, self.model.dimensions)
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed(texts, self.model.prefixes().0)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed(texts, self.model.prefixes().1)
    }
}

/// For the summary of a model: what its requests may be written in.
pub fn languages(model: &KnownModel) -> &'static str {
    match model.languages() {
        Languages::English => "English",
        _ if model.name.contains("-zh") => "Chinese",
        Languages::OtherThanEnglish | Languages::All => "many",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(home: &Path, wanted: Wanted<'_>) -> PathBuf {
        home.join(wanted.on_hub().repository())
    }

    fn write_snapshot(home: &Path, wanted: Wanted<'_>, revision: &str) -> PathBuf {
        let folder = repository(home, wanted).join("snapshots").join(revision);
        for name in wanted.model.files() {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        folder
    }

    #[test]
    fn a_revision_is_found_by_name_by_refs_or_as_the_only_one() {
        let home = tempfile::tempdir().unwrap();
        let wanted = Wanted::named("multilingual-e5-small").unwrap();
        let repository = repository(home.path(), wanted);
        assert!(repository.ends_with("models--intfloat--multilingual-e5-small"));
        assert_eq!(snapshot(&repository, None), None);
        let first = write_snapshot(home.path(), wanted, "a1");
        assert_eq!(snapshot(&repository, None), Some(first.clone()));
        let second = write_snapshot(home.path(), wanted, "b2");
        assert_eq!(
            snapshot(&repository, None),
            None,
            "which of the two is not known"
        );
        std::fs::create_dir(repository.join("refs")).unwrap();
        std::fs::write(repository.join("refs/main"), "b2\n").unwrap();
        assert_eq!(snapshot(&repository, None), Some(second));
        assert_eq!(snapshot(&repository, Some("a1")), Some(first));
        assert_eq!(snapshot(&repository, Some("c3")), None);
        std::fs::write(repository.join("refs/v1.0"), "a1").unwrap();
        assert_eq!(
            snapshot(&repository, Some("v1.0")),
            Some(repository.join("snapshots/a1"))
        );
        std::fs::write(repository.join("refs/v2.0"), "../../b2").unwrap();
        assert_eq!(snapshot(&repository, Some("v2.0")), None);
        assert!(Wanted::named("multilingual-e5-small@../b2").is_none());
    }

    #[test]
    fn the_id_is_another_one_where_vectors_may_be_others() {
        let identity = ModelIdentity {
            name: "m",
            version: "0123456789",
            tokenizer: "t",
            prefixes: ("query: ", "passage: "),
            pooling: "Mean",
            max_tokens: 256,
        };
        let id = identity.id();
        assert!(id.starts_with("m/01234567/"), "{id}");
        let others = [
            ModelIdentity {
                version: "01234567ff",
                ..identity
            },
            ModelIdentity {
                tokenizer: "u",
                ..identity
            },
            ModelIdentity {
                prefixes: ("query: ", ""),
                ..identity
            },
            ModelIdentity {
                pooling: "Cls",
                ..identity
            },
            ModelIdentity {
                max_tokens: 128,
                ..identity
            },
        ];
        for other in others {
            assert_ne!(other.id(), id);
        }
    }

    #[test]
    fn missing_and_empty_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let wanted = Wanted::named("bge-m3").unwrap();
        let folder = write_snapshot(home.path(), wanted, "a1");
        assert!(check(wanted.model, &folder, Depth::Sizes).ready().is_some());
        std::fs::write(folder.join("onnx/model.onnx_data"), "").unwrap();
        let Part::Broken { path, reason } = check(wanted.model, &folder, Depth::Sizes) else {
            panic!("it is empty");
        };
        assert!(
            path.ends_with("onnx/model.onnx_data") && reason.contains("empty"),
            "{reason}"
        );
        std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
        std::fs::write(folder.join("onnx/model.onnx_data"), "x").unwrap();
        let problem = check(wanted.model, &folder, Depth::Sizes)
            .problem("bge-m3")
            .unwrap();
        assert!(
            problem.contains("tokenizer.json cannot be read"),
            "{problem}"
        );
    }
}
