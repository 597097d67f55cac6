//! The catalogs that are measured: one per set, stored so that its tools are embedded once, and
//! temporary ones.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolscout_index::memory::Switch;
use toolscout_index::{
    Catalog, DataDir, EmbedProgress, Embedder, Enrichment, Options, Ranker, Tool, ToolId, Writer,
};

use super::cost::Build;
use super::dataset::{EvalSet, ToolIndex};
use super::error::{EvalError, Result};
use toolscout_base::embed_cache::{CacheCounters, CachedEmbedder};

/// The ranker that sets are measured with.
pub enum Ranking {
    /// The built-in one.
    BuiltIn,
    /// One ranker for all sets.
    Same(Ranker),
    /// For each set a ranker that was trained without it: `without-SET.json` in this folder.
    LeftOut(PathBuf),
}

impl Ranking {
    /// Loads a ranker file, or a folder of one file per set; the built-in ranker without a path.
    ///
    /// # Errors
    /// As [`Ranker::load`].
    pub fn load(path: Option<&Path>) -> Result<Self> {
        Ok(match path {
            None => Ranking::BuiltIn,
            Some(path) if !path.exists() => {
                let reason = "there is no such file or folder; scripts/ranker writes rankers, and one without each set into WORK_DIR/left-out";
                return Err(EvalError::option(
                    "--ranker",
                    path.display().to_string(),
                    reason,
                ));
            }
            Some(folder) if folder.is_dir() => Ranking::LeftOut(folder.to_owned()),
            Some(file) => Ranking::Same(Ranker::load(file)?),
        })
    }

    /// The ranker for a set; `None` for the built-in one.
    fn of(&self, set: &str) -> Result<Option<Ranker>> {
        Ok(match self {
            Ranking::BuiltIn => None,
            Ranking::Same(ranker) => Some(ranker.clone()),
            Ranking::LeftOut(folder) => {
                let file = folder.join(format!("without-{set}.json"));
                if !file.exists() {
                    let reason = format!(
                        "it has no without-{set}.json; train a ranker without the set: scripts/train_ranker.py --leave-out {set}; a set of your own needs none"
                    );
                    return Err(EvalError::option(
                        "--left-out",
                        folder.display().to_string(),
                        reason,
                    ));
                }
                Some(Ranker::load(&file)?)
            }
        })
    }
}

/// Characters of a set's name in the name of its catalog, which has at most 64.
const NAME_CHARS: usize = 32;
/// Query vectors stored at most: those of the largest public query file with its clauses, 200 MB at
/// 384 dimensions.
const MAX_CACHED_QUERIES: usize = 1 << 17;

/// The folder of measured catalogs, and their embedders.
pub struct Workspace {
    data: DataDir,
    embedders: Vec<Arc<CachedEmbedder>>,
    ranking: Ranking,
}

impl Workspace {
    /// Stores catalogs under `data`, separate from those of the user.
    pub fn new(data: impl Into<PathBuf>, embedders: Vec<Arc<dyn Embedder>>) -> Self {
        // Every arm asks the same queries, so that all but the first find their vectors here.
        let mut cached = Vec::with_capacity(embedders.len());
        for embedder in embedders {
            let counters = CacheCounters::default();
            let embedder = CachedEmbedder::new(embedder, MAX_CACHED_QUERIES, counters);
            cached.push(Arc::new(embedder));
        }
        Workspace {
            data: DataDir::new(data),
            embedders: cached,
            ranking: Ranking::BuiltIn,
        }
    }

    /// Measures with this ranker instead of the built-in one.
    pub fn ranked_by(self, ranking: Ranking) -> Self {
        Workspace { ranking, ..self }
    }

    /// True when there is an embedder.
    pub fn embeds(&self) -> bool {
        !self.embedders.is_empty()
    }

    /// Runs a measurement without the cache of query vectors.
    pub fn uncached<T>(&self, run: impl FnOnce() -> T) -> T {
        for embedder in &self.embedders {
            embedder.bypass();
        }
        let result = run();
        for embedder in &self.embedders {
            embedder.resume();
        }
        result
    }

    /// True if the ranker that this set is measured with was trained on its queries, and ranks
    /// answers of these embedders.
    ///
    /// # Errors
    /// As [`Ranker::load`].
    pub fn ranker_has_seen(&self, set: &EvalSet) -> Result<bool> {
        let own = self.ranking.of(&set.name)?;
        let Some(ranker) = own.map(Arc::new).or_else(Ranker::bundled) else {
            return Ok(false);
        };
        // A ranker that has no forest for these embedders takes no part, whatever it has seen.
        let has_forest = ranker.model_or_stand_in(self.embedder_ids()).is_some();
        Ok(has_forest && ranker.seen().include(set.query_texts()))
    }

    fn embedder_ids(&self) -> impl Iterator<Item = &str> + Clone {
        self.embedders.iter().map(|embedder| embedder.id())
    }

    /// Clears the cache of query vectors: another set has other queries.
    pub fn forget_queries(&self) {
        for embedder in &self.embedders {
            embedder.clear();
        }
    }

    /// The ids of the embedders, joined with `+`; `none` without embedders.
    pub fn embedder(&self) -> String {
        if !self.embeds() {
            return "none".to_owned();
        }
        self.embedder_ids().collect::<Vec<_>>().join("+")
    }

    /// Brings the catalog of a set up to date: exactly its tools, with every vector. Costs almost
    /// nothing when the catalog exists. Calls `embedded` with the progress of embedding.
    ///
    /// # Errors
    /// Errors of the engine, and [`EvalError::PendingEmbeddings`] when vectors are missing
    /// afterwards.
    pub fn prepare(&self, set: &EvalSet, embedded: &mut dyn FnMut(EmbedProgress)) -> Result<Build> {
        let name = catalog_name(set);
        // Timed on a catalog of its own: the stored one may be up to date already.
        let index_s = self.time_indexing(&name, &set.tools)?;
        let catalog = self.open(&name)?;
        let texts = |tool: usize| set.texts.get(&(tool as ToolIndex));
        let embedding = fill(&catalog, &set.tools, texts, embedded)?;
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
        let embed_s = self.embedding_seconds(&name, embedding, set.tools.len())?;
        // Closed first, so that the next line measures an opening from the files.
        drop(catalog);
        let start = Instant::now();
        let opened = self.open(&name)?.searcher().len();
        let open_s = start.elapsed().as_secs_f64();
        debug_assert_eq!(opened, set.tools.len());
        Ok(Build {
            index_s,
            embed_s,
            open_s,
            disk_bytes,
            tools: set.tools.len(),
        })
    }

    /// Opens the catalog that [`Workspace::prepare`] wrote.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn open_set(&self, set: &EvalSet) -> Result<Catalog> {
        self.open(&catalog_name(set))
    }

    /// A copy of the set's catalog without these tools; its vectors are copied, not computed.
    ///
    /// # Errors
    /// Errors of the engine, [`EvalError::Io`].
    pub fn without(&self, set: &EvalSet, tools: &[ToolId]) -> Result<TemporaryCatalog> {
        let temporary = self.copy(set, "held-out")?;
        let mut writer = temporary.catalog.writer()?;
        writer.remove(tools)?;
        writer.commit()?;
        drop(writer);
        Ok(temporary)
    }

    /// A temporary copy of the set's catalog; `purpose` makes its name unique.
    ///
    /// # Errors
    /// Errors of the engine, [`EvalError::Io`].
    pub fn copy(&self, set: &EvalSet, purpose: &str) -> Result<TemporaryCatalog> {
        let name = catalog_name(set);
        let copy = format!("{name}.{purpose}");
        // A process that was killed may have left one.
        self.discard(&copy)?;
        // Closed before it is copied: SQLite then moves its write-ahead log into the database.
        let from = self.open(&name)?.path().to_owned();
        copy_folder(&from, &from.with_file_name(&copy))?;
        self.temporary(copy)
    }

    /// A temporary copy of a catalog in use, without its usage memory: what was called for a request must
    /// not answer it.
    ///
    /// # Errors
    /// Errors of the engine, among them `Locked`; [`EvalError::Io`].
    pub fn copy_in_use(&self, catalog: &Catalog) -> Result<TemporaryCatalog> {
        let name = format!("in-use-{}", std::process::id());
        self.discard(&name)?;
        // Nobody writes while its files are copied.
        let writer = catalog.writer()?;
        copy_folder(catalog.path(), &self.data.catalog_dir(&name)?)?;
        drop(writer);
        let copy = self.temporary(name)?;
        copy.catalog.memory().set_switch(Switch::Off)?;
        Ok(copy)
    }

    /// A temporary catalog of these tools, and the cost of building it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn of_tools(
        &self,
        set: &EvalSet,
        tools: &[Tool],
        embedded: &mut dyn FnMut(EmbedProgress),
    ) -> Result<(TemporaryCatalog, Build)> {
        let name = format!("{}.scale", catalog_name(set));
        let index_s = self.time_indexing(&name, tools)?;
        self.discard(&name)?;
        let temporary = self.temporary(name.clone())?;
        // Without texts: they are of the tools of the set, and some of these are variations.
        let embedding = fill(&temporary.catalog, tools, |_| None, embedded)?;
        let disk_bytes = temporary.catalog.stats()?.disk_bytes;
        let start = Instant::now();
        let opened = self.open(&name)?;
        let open_s = start.elapsed().as_secs_f64();
        drop(opened);
        let embed_s = embedding.map(|embedding| embedding.seconds);
        Ok((
            temporary,
            Build {
                index_s,
                embed_s,
                open_s,
                disk_bytes,
                tools: tools.len(),
            },
        ))
    }

    /// Writes the measured ranker to the catalog of a set, or removes that of an earlier
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
        Ok(self.data.open_or_create(name, Options::new(embedders))?)
    }

    fn temporary(&self, name: String) -> Result<TemporaryCatalog> {
        let catalog = self.open(&name)?;
        Ok(TemporaryCatalog {
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

    /// Seconds to store and index all tools in an empty catalog, without vectors.
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

    /// Seconds to embed the whole set, measured when its vectors were computed.
    fn embedding_seconds(
        &self,
        name: &str,
        now: Option<Embedding>,
        tools: usize,
    ) -> Result<Option<f64>> {
        let path = self.data.path().join(format!("{name}.embedding.json"));
        let embedding = match now {
            Some(mut embedding) => {
                embedding.embedder = self.embedder();
                let text = serde_json::to_string(&embedding).unwrap_or_default();
                super::error::write(&path, &text)?;
                Some(embedding)
            }
            None => Embedding::read(&path),
        };
        match embedding {
            // A pass over part of the tools says nothing about the time for all of them.
            Some(pass) if pass.tools == tools && pass.embedder == self.embedder() => {
                Ok(Some(pass.seconds))
            }
            _ => Ok(None),
        }
    }
}

/// A catalog that is deleted when it is dropped.
pub struct TemporaryCatalog {
    /// The catalog.
    pub catalog: Catalog,
    // Declared after the catalog and so dropped after it: its files are open until then.
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

/// The cost of one embedding pass, stored beside the catalog.
#[derive(Serialize, Deserialize)]
struct Embedding {
    embedder: String,
    tools: usize,
    seconds: f64,
}

impl Embedding {
    /// The stored pass; `None` where there is none, or one of a format that is no longer read.
    fn read(path: &Path) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Makes the catalog hold exactly these tools, each with the texts of its number, and embeds what has
/// no vectors. Returns `None` when nothing was embedded.
fn fill<'a>(
    catalog: &Catalog,
    tools: &[Tool],
    texts: impl Fn(usize) -> Option<&'a Enrichment>,
    embedded: &mut dyn FnMut(EmbedProgress),
) -> Result<Option<Embedding>> {
    let wanted: HashSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
    let mut strangers = Vec::new();
    for tool in catalog.searcher().tools() {
        if !wanted.contains(&tool.id) {
            strangers.push(tool.id.clone());
        }
    }
    let mut writer = catalog.writer()?;
    writer.remove(&strangers)?;
    writer.upsert(tools)?;
    writer.commit()?;
    if set_texts(catalog, &mut writer, tools, texts)? {
        writer.commit()?;
    }
    // Counted before the pass, since the seconds are for these tools.
    let pending = catalog.searcher().pending_embeddings();
    let start = Instant::now();
    let done = writer.embed_pending(&mut |progress| {
        embedded(progress);
        ControlFlow::Continue(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if done == 0 {
        return Ok(None);
    }
    Ok(Some(Embedding {
        embedder: String::new(),
        tools: pending,
        seconds,
    }))
}

/// Gives each tool the texts of its number, or none. True if any changed.
fn set_texts<'a>(
    catalog: &Catalog,
    writer: &mut Writer,
    tools: &[Tool],
    texts: impl Fn(usize) -> Option<&'a Enrichment>,
) -> Result<bool> {
    let searcher = catalog.searcher();
    let mut is_changed = false;
    for (number, tool) in tools.iter().enumerate() {
        match (texts(number), searcher.enrichment(&tool.id)) {
            (wanted, has) if wanted == has => continue,
            (Some(wanted), _) => drop(writer.set_enrichment(tool, wanted)?),
            (None, _) => drop(writer.clear_enrichments(std::slice::from_ref(&tool.id))?),
        }
        is_changed = true;
    }
    Ok(is_changed)
}

/// The name of a set's catalog: the name of the set as a folder name, with a digest of its path and its
/// texts, so that two sets with one name have two catalogs.
fn catalog_name(set: &EvalSet) -> String {
    let path = set.path.canonicalize().unwrap_or(set.path.clone());
    let mut digest = Sha256::new();
    digest.update(path.to_string_lossy().as_bytes());
    for (tool, texts) in &set.texts {
        digest.update(format!("{tool}: {:?}", texts.texts()));
    }
    let digest = digest.finalize();
    let mut name = String::new();
    for c in set.name.chars().take(NAME_CHARS) {
        let fits = c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        name.push(if fits { c } else { '-' });
    }
    let name = name.trim_start_matches(['-', '_']);
    format!("eval-{name}-{}", hex::encode(&digest[..4]))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(EvalError::failed_to("create", to))?;
    let entries = std::fs::read_dir(from).map_err(EvalError::failed_to("read", from))?;
    for entry in entries {
        let entry = entry.map_err(EvalError::failed_to("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).map_err(EvalError::failed_to("copy", &source))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

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
    fn folders_are_copied_recursively() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir_all(from.join("deep")).unwrap();
        std::fs::write(from.join("deep/file"), "x").unwrap();
        copy_folder(&from, &to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("deep/file")).unwrap(), "x");
    }
}
