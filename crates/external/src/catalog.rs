//! A catalog whose tools are in an external engine, as a server asks for it.

mod find;
mod lists;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use toolscout_base::config::ExternalSettings;
use toolscout_base::cpu_pool::{CpuPool, PoolError};
use toolscout_index::pushdown::{
    Asked, AskedWords, CatalogStatistics, ExternalCandidates, Found, NearWord, PartTool, SAMPLE,
    SwitchedOff, TextTerms, searcher_for, to_be_read,
};
use toolscout_index::{Filter, Query, Searcher, Tool, ToolId, Weights};
use toolscout_state::shared::{ListedTools, PageOf, PushedStats, PushedTools, StoreError, TextsOf};

use crate::deadline::Deadline;
use crate::engine::{Ask, Engine, Passing, What, Which};
use crate::failure::Failure;
use crate::layout::Layout;
use crate::opening::open;
use crate::sketch::Sketch;

/// How often it is looked whether the index has changed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often the words of an index that somebody else fills are counted again, since nothing tells that a document has
/// changed.
const COUNT_EVERY: Duration = Duration::from_secs(600);
/// The pause after a failure, which doubles up to that.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long a search waits until the words of a catalog have been counted for the first time.
const FIRST_COUNT: Duration = Duration::from_secs(10);
/// Frequencies that are remembered.
const MAX_KNOWN: usize = 100_000;
/// Words whose frequencies are asked for at a time.
const MAX_ASKED: usize = 256;
/// Misspelt words of a query for which near ones are looked for: each is compared with all words of the catalog.
const MAX_MISSPELT: usize = 32;

/// A catalog whose tools are in an external engine. Cheap to clone.
#[derive(Clone)]
pub struct ExternalCatalog(Arc<Inner>);

struct Inner {
    engine: Box<dyn Engine>,
    settings: ExternalSettings,
    weights: Weights,
    cpu_pool: CpuPool,
    known: watch::Sender<Known>,
}

/// What is known of the index.
#[derive(Clone, Default)]
struct Known {
    state: Option<Arc<State>>,
    /// Why the last look failed.
    problem: Option<Failure>,
}

/// One state of the index.
struct State {
    layout: Layout,
    generation: u64,
    sketch: Sketch,
    /// When its words were counted.
    counted: Instant,
    /// Tools, without items of other kinds.
    tools: u64,
    /// Documents that stand for those that a search does not find. They are looked for once, since an engine may have to
    /// read all documents for it.
    sample: Vec<String>,
    /// Frequencies that the engine has told.
    frequencies: Mutex<HashMap<String, u64>>,
}

impl ExternalCatalog {
    /// The catalog of these settings. It begins to read the index at once, and looks at it until the last clone is
    /// dropped. `weights` are those of the catalog's fields, and `cpu_pool` does what computes.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn open(
        settings: ExternalSettings,
        weights: Weights,
        runtime: &Handle,
        cpu_pool: CpuPool,
    ) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            engine: open(&settings)?,
            settings,
            weights,
            cpu_pool,
            known: watch::Sender::new(Known::default()),
        });
        runtime.spawn(look(Arc::downgrade(&inner)));
        Ok(ExternalCatalog(inner))
    }
}

/// Looks at the index again and again, until nobody has the catalog any more.
async fn look(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(inner) = inner.upgrade() else {
            return;
        };
        let looked = inner.look_once().await;
        let wait = match &looked {
            Ok(()) => {
                pause = FIRST_PAUSE;
                LOOK_EVERY
            }
            Err(_) => {
                pause = (2 * pause).min(LOOK_EVERY);
                pause / 2
            }
        };
        let problem = looked.err();
        inner.known.send_modify(|known| {
            match &problem {
                Some(new) if is_news(known.problem.as_ref(), new) => {
                    let problem = &new.reason;
                    tracing::warn!(problem, "the external engine cannot be read");
                }
                None if known.problem.is_some() => {
                    tracing::info!("the external engine can be read again");
                }
                Some(_) | None => {}
            }
            known.problem = problem;
        });
        drop(inner);
        sleep(wait).await;
    }
}

/// Whether a failure is worth a line of the log: an outage has one, however often the engine is asked. Reasons of one
/// outage differ, since they may say when the engine is tried again.
fn is_news(before: Option<&Failure>, new: &Failure) -> bool {
    before.is_none_or(|before| before.cause != new.cause)
}

impl Inner {
    /// Counts again if the index has changed.
    async fn look_once(&self) -> Result<(), Failure> {
        let engine = self.engine.as_ref();
        let limit = 10 * engine.timeout();
        engine.version(limit).await?;
        let (layout, generation) = engine.layout(limit).await?;
        let before = self.known.borrow().state.clone();
        if let Some(before) = before
            && before.layout == layout
            && before.generation == generation
            && !before.is_old()
            && before.sketch.total == engine.count(&layout, Which::All, limit).await?
        {
            return Ok(());
        }
        let sketch = Sketch::read(engine, &layout, &self.weights).await?;
        let tools = engine.count(&layout, Which::Tools, limit).await?;
        let sample = self.sample(&layout, limit).await.unwrap_or_else(|failure| {
            tracing::debug!(problem = failure.reason, "scores are scaled less exactly");
            Vec::new()
        });
        let state = Arc::new(State {
            layout,
            generation,
            sketch,
            counted: Instant::now(),
            tools,
            sample,
            frequencies: Mutex::default(),
        });
        self.known.send_modify(|known| known.state = Some(state));
        Ok(())
    }

    /// Some documents of the index.
    async fn sample(&self, layout: &Layout, limit: Duration) -> Result<Vec<String>, Failure> {
        let (filter, off) = (Filter::default(), SwitchedOff::default());
        let ask = Ask {
            what: What::Sample,
            passing: Passing {
                filter: &filter,
                off: &off,
            },
            size: SAMPLE,
        };
        let mut documents = Vec::new();
        for hits in self.engine.find(layout, &[ask], limit).await? {
            documents.extend(hits?.ids);
        }
        Ok(documents)
    }

    /// What is known of the index, once something is.
    async fn state(&self, patience: Option<Duration>) -> Result<Arc<State>, StoreError> {
        let limit = patience.unwrap_or(FIRST_COUNT).min(FIRST_COUNT);
        let mut known = self.known.subscribe();
        let is_known = |known: &Known| known.state.is_some() || known.problem.is_some();
        let known = match timeout(limit, known.wait_for(is_known)).await {
            Ok(Ok(known)) => known.clone(),
            Ok(Err(_)) | Err(_) => Known::default(),
        };
        match known {
            Known {
                state: Some(state), ..
            } => Ok(state),
            Known {
                problem: Some(problem),
                ..
            } => Err(problem.into()),
            Known { .. } => {
                let shown = self.engine.shown();
                Err(StoreError::Unreachable(format!(
                    "{shown}: its words are being counted; try again"
                )))
            }
        }
    }

    /// The time that the requests of one step of a search share.
    fn deadline(&self, patience: Option<Duration>) -> Deadline {
        let limit = self.engine.timeout();
        Deadline::within(patience.unwrap_or(2 * limit), limit)
    }

    /// Reads how many tools have these terms, each with the word that it was, as far as it is not known.
    async fn count_words(
        &self,
        state: &State,
        terms: HashMap<String, String>,
        limit: Duration,
    ) -> Result<(), Failure> {
        if state.sketch.is_exact() {
            return Ok(());
        }
        let mut asked = Vec::new();
        {
            let known = state.frequencies.lock();
            for (term, word) in terms {
                if !known.contains_key(&term) {
                    asked.push((term, word));
                }
            }
        }
        // The rarest first: their numbers matter most, and a sample knows the least of them.
        asked.sort_by_cached_key(|(term, _)| (state.sketch.frequency(term), term.clone()));
        asked.truncate(MAX_ASKED);
        if asked.is_empty() {
            return Ok(());
        }
        let counts = self.engine.frequencies(&state.layout, &asked, limit);
        let counts = counts.await?;
        let mut known = state.frequencies.lock();
        // All at once: those of common words are soon asked for again.
        if known.len() > MAX_KNOWN {
            known.clear();
        }
        known.extend(counts);
        Ok(())
    }
}

impl State {
    /// Whether its words have to be counted again, for all that is known.
    fn is_old(&self) -> bool {
        match self.layout {
            // Its generation tells.
            Layout::Own(_) => false,
            Layout::Mapped(_) => self.counted.elapsed() >= COUNT_EVERY,
        }
    }

    fn frequency(&self, term: &str) -> u64 {
        let known = self.frequencies.lock().get(term).copied();
        known.unwrap_or_else(|| self.sketch.frequency(term))
    }
}

/// The terms of a query, each with its word.
fn words_of(texts: &[TextTerms]) -> HashMap<String, String> {
    let mut words = HashMap::new();
    for text in texts {
        for term in text.own.iter().chain(&text.added) {
            words.insert(term.term.clone(), term.word.clone());
        }
    }
    words
}

#[async_trait]
impl ExternalCandidates for ExternalCatalog {
    type Error = StoreError;

    async fn words(&self, asked: AskedWords<'_>) -> Result<CatalogStatistics, StoreError> {
        let inner = &self.0;
        let deadline = inner.deadline(asked.patience);
        let state = inner.state(asked.patience).await?;
        let words = words_of(asked.texts);
        let counted = inner.count_words(&state, words.clone(), deadline.left());
        // Without this the counts of the sketch are used, which are nearly the same.
        if let Err(failure) = counted.await {
            tracing::debug!(
                problem = failure.reason,
                "the words of a query were not counted"
            );
        }
        let mut statistics = state.sketch.statistics();
        for term in words.into_keys() {
            let tools = state.frequency(&term);
            statistics.frequencies.insert(term, tools);
        }
        let mut misspelt: Vec<String> = Vec::new();
        for text in asked.texts {
            for word in statistics.misspelt(&text.own) {
                let is_new = misspelt.iter().all(|known| known != word);
                if is_new && misspelt.len() < MAX_MISSPELT {
                    misspelt.push(word.to_owned());
                }
            }
        }
        let near = self.near_words(&state, misspelt).await?;
        for word in &near {
            let term = word.term();
            let tools = state.frequency(&term);
            statistics.frequencies.insert(term, tools);
        }
        statistics.near_words = near;
        Ok(statistics)
    }

    async fn find(&self, base: &Arc<Searcher>, asked: Asked<'_>) -> Result<Found, StoreError> {
        self.find_tools(base, asked).await
    }

    async fn tools(&self, ids: &[ToolId]) -> Result<Vec<Tool>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let engine = &self.0.engine;
        let state = self.0.state(None).await?;
        let deadline = self.0.deadline(None);
        let (filter, off) = (Filter::default(), SwitchedOff::default());
        let ask = Ask {
            what: What::Ids(ids),
            passing: Passing {
                filter: &filter,
                off: &off,
            },
            size: ids.len(),
        };
        let found = engine.find(&state.layout, &[ask], deadline.left()).await?;
        let mut numbers = Vec::new();
        for hits in found {
            numbers.extend(hits?.ids);
        }
        let read = self.read(&state, &numbers, deadline).await?;
        let mut tools: Vec<Tool> = read.into_iter().map(|read| read.tool).collect();
        tools.retain(|tool| ids.contains(&tool.id));
        Ok(tools)
    }

    async fn health(&self) -> Result<(), StoreError> {
        let engine = &self.0.engine;
        engine.version(engine.timeout()).await?;
        engine.layout(engine.timeout()).await?;
        Ok(())
    }

    async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self.0.cpu_pool.run(work).await;
        done.map_err(|error| match error {
            PoolError::Full => StoreError::Unreachable(error.to_string()),
            PoolError::Panicked(_) => StoreError::Refused(error.to_string()),
        })
    }
}

impl ExternalCatalog {
    /// The words of the catalog that misspelt ones may be.
    async fn near_words(
        &self,
        state: &Arc<State>,
        misspelt: Vec<String>,
    ) -> Result<Vec<NearWord>, StoreError> {
        if misspelt.is_empty() {
            return Ok(Vec::new());
        }
        let state = Arc::clone(state);
        self.on_cpu(move || {
            let mut near = Vec::new();
            for word in misspelt {
                near.extend(state.sketch.near(&word));
            }
            near
        })
        .await
    }
}

/// A tool with what else its document has.
struct ReadTool {
    tool: Tool,
    json: String,
    source: Value,
}

impl ExternalCatalog {
    /// The tools of these documents.
    async fn read(
        &self,
        state: &State,
        documents: &[String],
        deadline: Deadline,
    ) -> Result<Vec<ReadTool>, Failure> {
        let mut tools = Vec::with_capacity(documents.len());
        let mut parts = vec![documents];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let read = self
                .0
                .engine
                .documents(&state.layout, part, deadline.left());
            match read.await {
                // Large documents come in several answers.
                Err(failure) if failure.is_too_large && part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                read => {
                    for document in read? {
                        tools.extend(read_tool(&state.layout, document));
                    }
                }
            }
        }
        Ok(tools)
    }
}

/// `None` for a document that is no tool.
fn read_tool(layout: &Layout, source: Value) -> Option<ReadTool> {
    let tool = layout.tool(&source)?;
    let json = serde_json::to_string(&tool).ok()?;
    Some(ReadTool { tool, json, source })
}

impl ReadTool {
    fn into_part(self, is_sample: bool) -> PartTool {
        PartTool {
            tool: self.tool,
            json: self.json,
            enrichment: None,
            is_sample,
        }
    }
}

#[async_trait]
impl PushedTools for ExternalCatalog {
    fn problem(&self) -> Option<String> {
        let known = self.0.known.borrow();
        known.problem.as_ref().map(|problem| problem.reason.clone())
    }

    fn total(&self) -> usize {
        let known = self.0.known.borrow();
        known.state.as_ref().map_or(0, |state| state.tools as usize)
    }

    async fn searcher_for(
        &self,
        base: &Arc<Searcher>,
        query: &Query,
    ) -> Result<Arc<Searcher>, StoreError> {
        let failure = match searcher_for(self, base, query).await {
            Ok(found) => return Ok(Arc::new(found)),
            Err(failure) => failure,
        };
        let may_stand_in = !matches!(failure, StoreError::Catalog(_) | StoreError::Deleted);
        if base.is_empty() || !may_stand_in {
            return Err(failure);
        }
        // What the data directory has of the catalog is better than no answer.
        let reason = match failure {
            // The engine is no store of this server.
            StoreError::Unreachable(reason) => reason,
            failure => failure.to_string(),
        };
        base.stand_in(format!("the tools of this machine answer: {reason}"));
        Ok(Arc::clone(base))
    }

    async fn tool(&self, id: &ToolId) -> Result<Option<Tool>, StoreError> {
        Ok(self.tools(std::slice::from_ref(id)).await?.pop())
    }

    async fn page(&self, page: &PageOf) -> Result<ListedTools, StoreError> {
        self.list(page).await
    }

    async fn tools_with_texts(
        &self,
        base: &Arc<Searcher>,
        of: &TextsOf,
    ) -> Result<Searcher, StoreError> {
        let tools = self.to_be_read(of).await?;
        let tools = tools
            .into_iter()
            .map(|tool| tool.into_part(false))
            .collect();
        let base = Arc::clone(base);
        self.on_cpu(move || to_be_read(tools, &base)).await
    }

    // Nothing is written about tools that somebody else keeps.
    async fn count_texts(&self) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn ids_passing(&self, filter: &Filter) -> Result<Vec<ToolId>, StoreError> {
        self.list_ids(filter).await
    }

    async fn tags(&self, limit: usize) -> Result<(Vec<(String, usize)>, usize), StoreError> {
        self.list_tags(limit).await
    }

    async fn stats(&self) -> Result<PushedStats, StoreError> {
        self.sizes().await
    }
}

#[cfg(test)]
mod tests {
    use super::is_news;
    use crate::failure::{Cause, Failure};

    #[test]
    fn an_outage_is_logged_once() {
        let first = Failure::new(Cause::Away, "it did not answer within 2000 ms");
        let second = Failure::new(Cause::Away, "it is tried again in 5 s");
        let refused = Failure::new(Cause::Key, "status 401");
        assert!(is_news(None, &first));
        assert!(!is_news(Some(&first), &second));
        assert!(is_news(Some(&first), &refused));
    }
}
