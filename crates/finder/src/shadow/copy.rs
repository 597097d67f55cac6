//! The catalog of a shadow: the original with what its plan changes.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolscout_base::config::{RankerChange, changed};
use toolscout_index::memory::{MAX_ENTRIES, SourceState, Switch};
use toolscout_index::tools_db::{ToolsDb, text_hash};
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Error, Followed, Options, Ranker, Result,
    Searcher, Tool, ToolId, Writer,
};

use super::pace::Pace;
use super::{FOLDER, Original, Plan};

/// The database in a catalog's folder.
const DATABASE: &str = "tools.db";
/// Tools that are compared and stored before the thread rests.
const CHUNK: usize = 200;
/// How often the usage memory is compared, if it is in use.
const MEMORY_EVERY: Duration = Duration::from_secs(60);

/// The shadows of a data directory.
pub fn shadows(data: &Path) -> DataDir {
    DataDir::new(data.join(FOLDER))
}

/// A copy of a catalog, with what a plan changes.
pub struct Copy {
    catalog: Catalog,
    /// The embedders as the original or the plan gives them, to notice others.
    embedders: Vec<Arc<dyn Embedder>>,
    remembered: Option<Instant>,
}

/// What a copy is made with.
pub struct Making<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The catalog.
    pub original: &'a dyn Original,
    /// The plan's embedders, or those of the catalog.
    pub options: Options,
    /// Lets the thread rest.
    pub pace: &'a Arc<Pace>,
}

impl Copy {
    /// Opens the copy, empty if it does not exist.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(data: &Path, making: &Making<'_>) -> Result<Self> {
        let name = &making.plan.identity.id;
        let catalog = shadows(data).open_or_create(name, making.paced())?;
        Ok(Copy {
            catalog,
            embedders: making.options.embedders.clone(),
            remembered: None,
        })
    }

    /// What answers.
    pub fn searcher(&self) -> Arc<Searcher> {
        self.catalog.searcher()
    }

    /// Whether it has all that the original has.
    pub fn is_current(&self, making: &Making<'_>) -> bool {
        let searcher = self.searcher();
        searcher.followed() == Some(&version(&making.original.snapshot()))
            && searcher.pending_embeddings() == 0
            && self.has_embedders(&making.options)
            && self.remembers(making)
    }

    fn has_embedders(&self, options: &Options) -> bool {
        let (mine, wanted) = (&self.embedders, &options.embedders);
        if mine.len() != wanted.len() {
            return false;
        }
        for (one, other) in mine.iter().zip(wanted) {
            if !Arc::ptr_eq(one, other) {
                return false;
            }
        }
        true
    }

    /// Takes what the original has and this has not. Ends early with the program.
    ///
    /// # Errors
    /// Those of the engine; [`Error::Locked`] while another process does the same.
    pub fn follow(&mut self, making: &Making<'_>) -> Result<()> {
        if !self.has_embedders(&making.options) {
            self.catalog.set_options(making.paced())?;
            self.embedders.clone_from(&making.options.embedders);
        }
        // Another process may have followed already.
        let present = self.catalog.refresh()?;
        let wanted = making.original.snapshot();
        if present.followed() != Some(&version(&wanted)) {
            let mut writer = self.catalog.writer()?;
            let taken = take_tools(&mut writer, &present, &wanted, making.pace)?;
            if taken.is_break() {
                return Ok(());
            }
            take_rest(&mut writer, &present, &wanted, making.plan)?;
            // In one commit with the tools, so that a copy never claims more than it has.
            writer.set_followed(&version(&wanted))?;
            writer.commit()?;
            making.pace.rest();
        }
        if self.catalog.searcher().pending_embeddings() > 0 {
            self.catalog.writer()?.embed_pending(&mut |_| {
                making.pace.rest();
                goes_on(making.pace)
            })?;
            making.pace.rest();
        }
        if !self.remembers(making) {
            remember(making.original, &self.catalog)?;
            self.remembered = Some(Instant::now());
            making.pace.rest();
        }
        Ok(())
    }

    /// Whether the usage memory was looked at lately, or is in use nowhere.
    fn remembers(&self, making: &Making<'_>) -> bool {
        let is_in_use = making.original.memory().is_active() || self.catalog.memory().is_active();
        if !is_in_use {
            return true;
        }
        match self.remembered {
            Some(at) => at.elapsed() < MEMORY_EVERY,
            None => false,
        }
    }

    /// Which generation of the original it has, as answers of the original name it.
    pub fn generation(&self) -> Option<u64> {
        let searcher = self.searcher();
        Some(searcher.followed()?.mark)
    }
}

impl Making<'_> {
    /// The embedders, of which slow ones take the vectors that the original has, and rest after each text.
    fn paced(&self) -> Options {
        let mut options = self.options.clone();
        for embedder in &mut options.embedders {
            if !embedder.is_instant() {
                *embedder = Arc::new(Paced {
                    inner: Arc::clone(embedder),
                    database: self.original.folder().join(DATABASE),
                    pace: Arc::clone(self.pace),
                });
            }
        }
        options
    }
}

/// The state of a catalog that its copy has.
fn version(searcher: &Searcher) -> Followed {
    let version = searcher.version();
    Followed {
        source: version.identity.clone(),
        generation: version.generation,
        // Of a copy of the store's catalog, its own commits are counted apart from those of the store.
        mark: searcher.generation(),
    }
}

fn goes_on(pace: &Pace) -> ControlFlow<()> {
    match pace.has_ended() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Takes the tools that differ, with the texts that a model wrote about them.
fn take_tools(
    writer: &mut Writer,
    present: &Searcher,
    wanted: &Searcher,
    pace: &Pace,
) -> Result<ControlFlow<()>> {
    let gone = present.ids_after(None).filter(|id| !wanted.has(id));
    let gone: Vec<ToolId> = gone.cloned().collect();
    writer.remove(&gone)?;
    let mut tools = wanted.items();
    loop {
        let chunk = tools.by_ref().take(CHUNK);
        let chunk: Vec<Tool> = chunk.map(Arc::unwrap_or_clone).collect();
        if chunk.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let changes = writer.upsert(&chunk)?;
        let changed: HashSet<&ToolId> = changes.changed.iter().collect();
        for tool in &chunk {
            // Texts are for one definition, so a tool that has just changed has none.
            let has = match changed.contains(&tool.id) {
                true => None,
                false => present.enrichment(&tool.id),
            };
            match wanted.enrichment(&tool.id) {
                text if text == has => {}
                Some(text) => drop(writer.set_enrichment(tool, text)?),
                None => drop(writer.clear_enrichments(std::slice::from_ref(&tool.id))?),
            }
        }
        pace.rest();
        if goes_on(pace).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// Takes words, settings and ranker, or what the plan has in their place.
fn take_rest(
    writer: &mut Writer,
    present: &Searcher,
    wanted: &Searcher,
    plan: &Plan,
) -> Result<()> {
    let changes = &plan.changes;
    let words = changes.words.as_ref().or(wanted.owner_words());
    let words = words.cloned().unwrap_or_default();
    if writer.owner_words()? != words {
        writer.set_owner_words(&words)?;
    }
    let settings = match &changes.settings {
        Some(table) => changed(wanted.settings(), table).map_err(bad_settings)?,
        None => wanted.settings().clone(),
    };
    if writer.settings()? != settings {
        writer.set_settings(&settings)?;
    }
    let ranker = match &changes.ranker {
        Some(RankerChange::Other(ranker)) => Some(&**ranker),
        Some(RankerChange::Without) => None,
        None => own_ranker(wanted),
    };
    if bytes_of(ranker)? != bytes_of(own_ranker(present))? {
        writer.set_ranker(ranker)?;
    }
    Ok(())
}

fn bad_settings(error: impl std::fmt::Display) -> Error {
    Error::Parse {
        source_name: "shadow.settings".to_owned(),
        line: None,
        column: None,
        reason: error.to_string(),
    }
}

fn own_ranker(searcher: &Searcher) -> Option<&Ranker> {
    match searcher.has_own_ranker() {
        true => searcher.ranker().map(Arc::as_ref),
        false => None,
    }
}

fn bytes_of(ranker: Option<&Ranker>) -> Result<Option<Vec<u8>>> {
    match ranker {
        Some(ranker) => Ok(Some(ranker.to_bytes(Path::new("ranker"))?)),
        None => Ok(None),
    }
}

/// Takes what the usage memory has.
fn remember(original: &dyn Original, copy: &Catalog) -> Result<()> {
    let memory = original.memory();
    let (switch, entries) = match memory.is_active() {
        true => (Switch::On, memory.entries(None, MAX_ENTRIES)?),
        false => (Switch::Off, Vec::new()),
    };
    copy.memory().follow(&SourceState {
        generation: 0,
        switch,
        entries,
        is_whole: true,
    })
}

/// A slow embedder that takes the vectors of texts that the original has, embeds others one by one, and
/// rests after each of them.
struct Paced {
    inner: Arc<dyn Embedder>,
    database: PathBuf,
    pace: Arc<Pace>,
}

impl Paced {
    /// The vectors that the original has. They save work; without them there is more to do.
    fn known(&self, texts: &[&str]) -> Vec<Option<Vec<f32>>> {
        let mut known = self.read(texts).unwrap_or_default();
        known.resize(texts.len(), None);
        known
    }

    fn read(&self, texts: &[&str]) -> Result<Vec<Option<Vec<f32>>>> {
        let store = ToolsDb::open_read_only(&self.database)?;
        let dimensions = self.inner.dimensions();
        let Some(model) = store.model(self.inner.id(), dimensions)? else {
            return Ok(Vec::new());
        };
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            vectors.push(store.vector(model, dimensions, &text_hash(text))?);
        }
        Ok(vectors)
    }

    fn embed_one(&self, text: &str) -> Result<Vec<f32>> {
        if self.pace.has_ended() {
            return Err(self.failed("the program ends"));
        }
        let mut vectors = self.pace.elsewhere(|| self.inner.embed_tools(&[text]))?;
        self.pace.rest();
        match vectors.pop() {
            Some(vector) => Ok(vector),
            None => Err(self.failed("there is no vector")),
        }
    }

    fn failed(&self, reason: &str) -> Error {
        Error::Embedder {
            model: self.inner.id().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

impl Embedder for Paced {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.pace.elsewhere(|| self.inner.embed_queries(texts))
    }

    fn embed_queries_within(
        &self,
        texts: &[&str],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<f32>>> {
        self.pace
            .elsewhere(|| self.inner.embed_queries_within(texts, limit))
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let mut vectors = Vec::with_capacity(texts.len());
        for (known, text) in self.known(texts).into_iter().zip(texts) {
            vectors.push(match known {
                Some(vector) => vector,
                None => self.embed_one(text)?,
            });
        }
        Ok(vectors)
    }

    /// Few, since what was embedded is stored with the last of them.
    fn batch(&self) -> usize {
        self.inner.batch().min(8)
    }
}
