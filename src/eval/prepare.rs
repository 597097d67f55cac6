//! The catalogs that are measured: a set's own, kept so that its tools are embedded once, and
//! passing ones beside it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolscout_index::{Catalog, DataDir, EmbedProgress, Embedder, Options, Ranker, Tool, ToolId};

use super::cost::Build;
use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use crate::embed_cache::{CacheCounters, CachedEmbedder};

/// The rankers that sets are measured with.
pub enum Ranking {
    /// The built-in one.
    BuiltIn,
    /// This one for all.
    Same(Ranker),
    /// For each set one that has not seen it: `without-SET.json` in this folder.
    LeftOut(PathBuf),
}

impl Ranking {
    /// By a path: none, a ranker file, or a folder of one for each set.
    ///
    /// # Errors
    /// As [`Ranker::load`].
    pub fn load(path: Option<&Path>) -> Result<Self> {
        Ok(match path {
            None => Ranking::BuiltIn,
            Some(folder) if folder.is_dir() => Ranking::LeftOut(folder.to_owned()),
            Some(file) => Ranking::Same(Ranker::load(file)?),
        })
    }

    /// The ranker for a set; none for the built-in one.
    fn of(&self, set: &str) -> Result<Option<Ranker>> {
        Ok(match self {
            Ranking::BuiltIn => None,
            Ranking::Same(ranker) => Some(ranker.clone()),
            Ranking::LeftOut(folder) => {
                Some(Ranker::load(&folder.join(format!("without-{set}.json")))?)
            }
        })
    }
}

/// Longest part of a set's name in its catalog's name, which may have 64 characters in all.
const NAME_CHARS: usize = 32;
/// Query vectors stored at most: those of the largest public query file with its clauses, 200 MB at
/// 384 dimensions.
const MAX_CACHED_QUERIES: usize = 1 << 17;

/// Where catalogs for measuring are kept, and what embeds them.
pub struct Workspace {
    data: DataDir,
    embedders: Vec<Arc<CachedEmbedder>>,
    ranking: Ranking,
}

impl Workspace {
    /// Keeps catalogs under `data`, apart from those that are searched in earnest.
    pub fn new(data: impl Into<PathBuf>, embedders: Vec<Arc<dyn Embedder>>) -> Self {
        let embedders = embedders
            .into_iter()
            .map(|embedder| {
                Arc::new(CachedEmbedder::new(
                    embedder,
                    MAX_CACHED_QUERIES,
                    CacheCounters::default(),
                ))
            })
            .collect();
        Workspace {
            data: DataDir::new(data),
            embedders,
            ranking: Ranking::BuiltIn,
        }
    }

    /// Measures with these rankers instead of the built-in one.
    pub fn ranked_by(self, ranking: Ranking) -> Self {
        Workspace { ranking, ..self }
    }

    /// True when there is anything to search densely with.
    pub fn embeds(&self) -> bool {
        !self.embedders.is_empty()
    }

    /// Runs something with every query embedded anew, as a service without a cache would.
    pub fn uncached<T>(&self, run: impl FnOnce() -> T) -> T {
        self.embedders.iter().for_each(|embedder| embedder.bypass());
        let result = run();
        self.embedders.iter().for_each(|embedder| embedder.resume());
        result
    }

    /// Drops remembered query vectors: another set has other queries.
    pub fn forget_queries(&self) {
        self.embedders.iter().for_each(|embedder| embedder.clear());
    }

    /// The ids of the embedders, joined with `+`; `none` without.
    pub fn embedder(&self) -> String {
        match self.embedders.as_slice() {
            [] => "none".into(),
            some => some
                .iter()
                .map(|embedder| embedder.id())
                .collect::<Vec<_>>()
                .join("+"),
        }
    }

    /// Brings the set's catalog up to date: its tools and no others, with every vector. Costs
    /// almost nothing when it was there before. `embedded` is told how far embedding is.
    ///
    /// # Errors
    /// The engine's, and [`EvalError::PendingEmbeddings`] when vectors are still missing.
    pub fn prepare(&self, set: &EvalSet, embedded: &mut dyn FnMut(EmbedProgress)) -> Result<Build> {
        let name = catalog_name(set);
        let indexed = self.time_indexing(&name, &set.tools)?;
        let catalog = self.open(&name)?;
        let embedding = fill(&catalog, &set.tools, embedded)?;
        self.set_ranker(&catalog, &set.name)?;
        let pending = catalog.searcher().pending_embeddings();
        if pending > 0 && !self.embedders.is_empty() {
            return Err(EvalError::PendingEmbeddings {
                set: set.name.clone(),
                pending,
                tools: set.tools.len(),
            });
        }
        let disk_bytes = catalog.stats()?.disk_bytes;
        let embed = self.kept_embedding(&name, embedding, set.tools.len())?;
        drop(catalog);
        let start = Instant::now();
        let opened = self.open(&name)?.searcher().len();
        let open_s = start.elapsed().as_secs_f64();
        debug_assert_eq!(opened, set.tools.len());
        Ok(Build {
            index_s: indexed,
            embed_s: embed,
            open_s,
            disk_bytes,
            tools: set.tools.len(),
        })
    }

    /// Opens the catalog that [`Workspace::prepare`] left.
    ///
    /// # Errors
    /// The engine's.
    pub fn open_set(&self, set: &EvalSet) -> Result<Catalog> {
        self.open(&catalog_name(set))
    }

    /// A copy of the set's catalog without these tools; its vectors are copied, not computed.
    ///
    /// # Errors
    /// The engine's, [`EvalError::Io`].
    pub fn without(&self, set: &EvalSet, tools: &[ToolId]) -> Result<Passing> {
        let passing = self.copy(set, "held-out")?;
        let mut writer = passing.catalog.writer()?;
        writer.remove(tools)?;
        writer.commit()?;
        drop(writer);
        Ok(passing)
    }

    /// A copy of the set's catalog for as long as it is held; `purpose` keeps copies apart.
    ///
    /// # Errors
    /// The engine's, [`EvalError::Io`].
    pub fn copy(&self, set: &EvalSet, purpose: &str) -> Result<Passing> {
        let name = catalog_name(set);
        let copy = format!("{name}.{purpose}");
        self.discard(&copy)?;
        // Closed before it is copied, so that nothing is left in a log beside the database.
        let from = self.open(&name)?.path().to_owned();
        copy_folder(&from, &from.with_file_name(&copy))?;
        self.passing(copy)
    }

    /// A catalog of these tools for as long as it is held, and what building it cost.
    ///
    /// # Errors
    /// The engine's.
    pub fn of_tools(
        &self,
        set: &EvalSet,
        tools: &[Tool],
        embedded: &mut dyn FnMut(EmbedProgress),
    ) -> Result<(Passing, Build)> {
        let name = format!("{}.scale", catalog_name(set));
        let index_s = self.time_indexing(&name, tools)?;
        self.discard(&name)?;
        let passing = self.passing(name.clone())?;
        let embedding = fill(&passing.catalog, tools, embedded)?;
        let disk_bytes = passing.catalog.stats()?.disk_bytes;
        let start = Instant::now();
        let opened = self.open(&name)?;
        let open_s = start.elapsed().as_secs_f64();
        drop(opened);
        let embed_s = embedding.map(|embedding| embedding.seconds);
        Ok((
            passing,
            Build {
                index_s,
                embed_s,
                open_s,
                disk_bytes,
                tools: tools.len(),
            },
        ))
    }

    /// Gives a set's catalog the ranker that is measured, or takes back one of an earlier
    /// measurement.
    fn set_ranker(&self, catalog: &Catalog, set: &str) -> Result<()> {
        let ranker = self.ranking.of(set)?;
        if ranker.is_some() || catalog.searcher().has_own_ranker() {
            let mut writer = catalog.writer()?;
            writer.set_ranker(ranker.as_ref())?;
            writer.commit()?;
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Catalog> {
        let embedders = self
            .embedders
            .iter()
            .map(|embedder| embedder.clone() as Arc<dyn Embedder>)
            .collect();
        Ok(self.data.open_or_create(name, Options { embedders })?)
    }

    fn passing(&self, name: String) -> Result<Passing> {
        let catalog = self.open(&name)?;
        Ok(Passing {
            catalog,
            _folder: Discarded {
                data: self.data.clone(),
                name,
            },
        })
    }

    fn discard(&self, name: &str) -> Result<()> {
        match self.data.delete(name) {
            Ok(()) | Err(toolscout_index::Error::UnknownCatalog { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Seconds to register and index all tools from nothing, without vectors.
    fn time_indexing(&self, name: &str, tools: &[Tool]) -> Result<f64> {
        let name = format!("{name}.timed");
        self.discard(&name)?;
        let catalog = self.data.open_or_create(&name, Options::default())?;
        let start = Instant::now();
        let mut writer = catalog.writer()?;
        writer.upsert(tools)?;
        writer.commit()?;
        let seconds = start.elapsed().as_secs_f64();
        drop((writer, catalog));
        self.discard(&name)?;
        Ok(seconds)
    }

    /// The seconds that embedding the whole set took: now, or when its vectors were computed.
    fn kept_embedding(
        &self,
        name: &str,
        now: Option<Embedding>,
        tools: usize,
    ) -> Result<Option<f64>> {
        let path = self.data.path().join(format!("{name}.embedding.json"));
        let whole = |embedding: &Embedding| {
            embedding.tools == tools && embedding.embedder == self.embedder()
        };
        if let Some(mut embedding) = now {
            embedding.embedder = self.embedder();
            let text = serde_json::to_string(&embedding).unwrap_or_default();
            super::error::write(&path, &text)?;
            return Ok(Some(embedding)
                .filter(whole)
                .map(|embedding| embedding.seconds));
        }
        let kept = std::fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Embedding>(&bytes).ok());
        Ok(kept.filter(whole).map(|embedding| embedding.seconds))
    }
}

/// A catalog that is deleted when it is dropped.
pub struct Passing {
    /// The catalog.
    pub catalog: Catalog,
    // Dropped after the catalog, whose files are open until then.
    _folder: Discarded,
}

struct Discarded {
    data: DataDir,
    name: String,
}

impl Drop for Discarded {
    fn drop(&mut self) {
        if let Err(error) = self.data.delete(&self.name) {
            tracing::warn!(catalog = self.name, %error, "a catalog for measuring was left behind");
        }
    }
}

/// One pass of embedding, as it is kept beside the catalog.
#[derive(Serialize, Deserialize)]
struct Embedding {
    embedder: String,
    tools: usize,
    seconds: f64,
}

/// Makes the catalog hold exactly these tools and embeds what has no vectors. Returns nothing when
/// nothing had to be embedded.
fn fill(
    catalog: &Catalog,
    tools: &[Tool],
    embedded: &mut dyn FnMut(EmbedProgress),
) -> Result<Option<Embedding>> {
    let wanted: HashSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
    let strangers: Vec<ToolId> = catalog
        .searcher()
        .tools()
        .map(|tool| tool.id.clone())
        .filter(|id| !wanted.contains(id))
        .collect();
    let mut writer = catalog.writer()?;
    writer.remove(&strangers)?;
    writer.upsert(tools)?;
    writer.commit()?;
    let pending = catalog.searcher().pending_embeddings();
    let start = Instant::now();
    let done = writer.embed_pending(&mut |progress| {
        embedded(progress);
        ControlFlow::Continue(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((done > 0).then(|| Embedding {
        embedder: String::new(),
        tools: pending,
        seconds,
    }))
}

/// The set's name made fit for a folder, and a digest of its path: two sets of one name have two
/// catalogs.
fn catalog_name(set: &EvalSet) -> String {
    let path = set.path.canonicalize().unwrap_or_else(|_| set.path.clone());
    let digest = Sha256::digest(path.to_string_lossy().as_bytes());
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') {
            c
        } else {
            '-'
        }
    };
    let name: String = set.name.chars().map(fit).take(NAME_CHARS).collect();
    let name = name.trim_start_matches(['-', '_']);
    format!(
        "eval-{name}-{:02x}{:02x}{:02x}{:02x}",
        digest[0], digest[1], digest[2], digest[3]
    )
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let read = |source| EvalError::io("read", from, source);
    std::fs::create_dir_all(to).map_err(|source| EvalError::io("create", to, source))?;
    for entry in std::fs::read_dir(from).map_err(read)? {
        let entry = entry.map_err(read)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            std::fs::copy(&source, &target)
                .map_err(|error| EvalError::io("copy", &source, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::dataset::testing::set;

    #[test]
    fn a_catalog_is_named_after_its_set_and_path() {
        let mut set = set(&[("a", "x")], &[("q", "x", &["a"])]);
        set.name = "Ünïcode set/with.everything, and a very long name".into();
        let name = catalog_name(&set);
        assert!(name.len() <= 54 && name.starts_with("eval-"), "{name}");
        assert!(
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'),
            "{name}"
        );
        set.path = "elsewhere".into();
        assert_ne!(catalog_name(&set), name);
    }

    #[test]
    fn a_folder_is_copied_with_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir_all(from.join("deep")).unwrap();
        std::fs::write(from.join("deep/file"), "x").unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("deep/file")).unwrap(), "x");
    }
}
