//! A catalog whose tools are in an external engine, as a server asks for it.

mod find;
mod lists;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use toolscout_base::config::ExternalSettings;
use toolscout_index::pushdown::{
    Asked, AskedWords, CatalogStatistics, ExternalCandidates, Found, NearWord, PartTool, TextTerms,
    searcher_for, to_be_read,
};
use toolscout_index::{Filter, Query, Searcher, Tool, ToolId, Weights};
use toolscout_state::shared::{ListedTools, PageOf, PushedStats, PushedTools, StoreError, TextsOf};

use crate::elastic::{self, Elastic, total};
use crate::failure::Failure;
use crate::layout::Layout;
use crate::query;
use crate::sketch::Sketch;

/// How often it is looked whether the index has changed.
const LOOK_EVERY: Duration = Duration::from_secs(30);
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
    elastic: Elastic,
    settings: ExternalSettings,
    weights: Weights,
    runtime: Handle,
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
    /// Tools, without items of other kinds.
    tools: u64,
    /// Frequencies that the engine has told.
    frequencies: Mutex<HashMap<String, u64>>,
}

impl ExternalCatalog {
    /// The catalog of these settings. It begins to read the index at once, and looks at it until the last clone is
    /// dropped. `weights` are those of the catalog's fields.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn open(
        settings: ExternalSettings,
        weights: Weights,
        runtime: Handle,
    ) -> Result<Self, StoreError> {
        let inner = Arc::new(Inner {
            elastic: Elastic::new(&settings)?,
            settings,
            weights,
            runtime: runtime.clone(),
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
        if let Err(failure) = &looked {
            tracing::warn!(
                problem = failure.reason,
                "the external engine cannot be read"
            );
        }
        inner
            .known
            .send_modify(|known| known.problem = looked.err());
        drop(inner);
        sleep(wait).await;
    }
}

impl Inner {
    /// Counts again if the index has changed.
    async fn look_once(&self) -> Result<(), Failure> {
        let limit = 10 * self.elastic.timeout();
        self.elastic.server(limit).await?;
        let (layout, generation) = self.elastic.layout(&self.settings, limit).await?;
        let before = self.known.borrow().state.clone();
        if let Some(before) = before
            && before.layout == layout
            && before.generation == generation
            && before.sketch.total == self.count(&layout, limit).await?
        {
            return Ok(());
        }
        let sketch = Sketch::read(&self.elastic, &layout, &self.weights).await?;
        let counted = self
            .elastic
            .search_one(query::count_tools(&layout), limit)
            .await?;
        let tools = total(&counted).ok_or_else(|| Failure::answer("hits.total"))?;
        let state = Arc::new(State {
            layout,
            generation,
            sketch,
            tools,
            frequencies: Mutex::default(),
        });
        self.known.send_modify(|known| known.state = Some(state));
        Ok(())
    }

    async fn count(&self, layout: &Layout, limit: Duration) -> Result<u64, Failure> {
        let count = query::sample(layout, 0, 0, &json!(false));
        let counted = self.elastic.search_one(count, limit).await?;
        total(&counted).ok_or_else(|| Failure::answer("hits.total"))
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
                let shown = self.elastic.shown();
                Err(StoreError::Unreachable(format!(
                    "{shown}: its words are being counted; try again"
                )))
            }
        }
    }

    /// How long one request of a search may take.
    fn limit(&self, patience: Option<Duration>) -> Duration {
        let limit = self.elastic.timeout();
        patience.map_or(limit, |patience| patience.min(limit))
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
        let mut asked = HashMap::new();
        {
            let known = state.frequencies.lock();
            for (term, word) in terms {
                if asked.len() < MAX_ASKED && !known.contains_key(&term) {
                    asked.insert(term, word);
                }
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let counts = query::frequencies(&state.layout, &asked);
        let answer = self.elastic.search_one(counts, limit).await?;
        let buckets = &answer["aggregations"]["words"]["buckets"];
        let mut known = state.frequencies.lock();
        // All at once: those of common words are soon asked for again.
        if known.len() > MAX_KNOWN {
            known.clear();
        }
        for term in asked.into_keys() {
            let count = buckets[&term]["doc_count"].as_u64();
            let count = count.ok_or_else(|| Failure::answer("count of a word"))?;
            known.insert(term, count);
        }
        Ok(())
    }
}

impl State {
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
        let state = inner.state(asked.patience).await?;
        let words = words_of(asked.texts);
        let limit = inner.limit(asked.patience);
        // Without this the counts of the sketch are used, which are nearly the same.
        if let Err(failure) = inner.count_words(&state, words.clone(), limit).await {
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
        let state = self.0.state(None).await?;
        let limit = self.0.elastic.timeout();
        let found = query::of_ids(&state.layout, ids);
        let found = elastic::ids(&self.0.elastic.search_one(found, limit).await?);
        let read = self.read(&state, &found, limit).await?;
        let mut tools: Vec<Tool> = read.into_iter().map(|read| read.tool).collect();
        tools.retain(|tool| ids.contains(&tool.id));
        Ok(tools)
    }

    async fn health(&self) -> Result<(), StoreError> {
        let asked = &self.0.elastic;
        asked.server(asked.timeout()).await?;
        asked.layout(&self.0.settings, asked.timeout()).await?;
        Ok(())
    }

    async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self.0.runtime.spawn_blocking(work).await;
        done.map_err(|error| StoreError::Refused(format!("searching panicked: {error}")))
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
        limit: Duration,
    ) -> Result<Vec<ReadTool>, Failure> {
        if documents.is_empty() {
            return Ok(Vec::new());
        }
        let source = state.layout.source();
        let read = self.0.elastic.documents(documents, &source, limit).await?;
        let mut tools = Vec::with_capacity(read.len());
        for (_, source) in read {
            tools.extend(read_tool(&state.layout, source));
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
    ) -> Result<Searcher, StoreError> {
        searcher_for(self, base, query).await
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
