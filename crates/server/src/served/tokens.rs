//! How many tokens of tool definitions search saved: those of all tools of the catalog, less those
//! of the tools that were answered.
//!
//! Counting tokens takes longer than a search, so a thread of its own counts. Answers that come
//! faster than it counts are left out, and how many is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Searcher, Tool, ToolId, Version};
use utoipa::ToSchema;

use crate::served::ServedSearch;
use toolscout_base::budget;
use toolscout_finder::finder::ToolSearch;
use toolscout_finder::finder::search::{Found, SearchRequest, UsedTool};

/// Answers that wait to be counted.
const MAX_WAITING: usize = 64;
/// Whole catalogs whose tokens are remembered, each in one format.
const MAX_REMEMBERED: usize = 32;
/// A catalog that changes all the time is not counted more often than this.
const RECOUNT_AFTER: Duration = Duration::from_secs(60);
/// Tools that are counted of a larger catalog, evenly over the order of ids.
const SAMPLE: usize = 2000;

/// Who was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A search of the API that asked for a format.
    Search,
    /// A search of an MCP client.
    Mcp,
}

/// Tokens of tool definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct SavedTokens {
    /// Number of answers; for the agent, of turns.
    pub answers: u64,
    /// Tokens, if each answer had been all tools of the catalog.
    pub catalog_tokens: u64,
    /// Tokens of the tools that were answered.
    pub answered_tokens: u64,
}

/// The counts of all answers. Cheap to clone.
#[derive(Clone)]
pub struct TokenSavings {
    answers: SyncSender<Answer>,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Totals {
    search: Mutex<SavedTokens>,
    mcp: Mutex<SavedTokens>,
    left_out: AtomicU64,
}

struct Answer {
    source: Source,
    searcher: Arc<Searcher>,
    tools: Vec<Arc<Tool>>,
    format: Emit,
    /// Tokens of the answer, where they are known.
    tokens: Option<usize>,
}

impl TokenSavings {
    /// Starts the thread that counts. It ends with the last clone.
    pub fn start() -> Self {
        let (answers, waiting) = sync_channel(MAX_WAITING);
        let totals = Arc::<Totals>::default();
        let counted = Arc::clone(&totals);
        let counter = thread::Builder::new().name("token-savings".into());
        if let Err(error) = counter.spawn(move || count_all(&waiting, &counted)) {
            tracing::error!(%error, "saved tokens are not counted");
        }
        TokenSavings { answers, totals }
    }

    /// Counts an answer soon. An answer without definitions counts nothing.
    pub fn count(
        &self,
        source: Source,
        searcher: Arc<Searcher>,
        tools: Vec<Arc<Tool>>,
        format: Emit,
        tokens: Option<usize>,
    ) {
        // A catalog that is pushed down has no tools here to compare with.
        if !has_definitions(format) || searcher.is_empty() {
            return;
        }
        let answer = Answer {
            source,
            searcher,
            tools,
            format,
            tokens,
        };
        // Never waits: a statistic must not delay an answer.
        if self.answers.try_send(answer).is_err() {
            self.totals.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A search for MCP clients whose answers are counted.
    pub fn counting<S: ServedSearch>(&self, search: S) -> CountedSearch<S> {
        CountedSearch {
            search,
            savings: self.clone(),
        }
    }

    /// What was saved so far.
    pub fn read(&self, source: Source) -> SavedTokens {
        *self.totals.of(source).lock()
    }

    /// Number of answers that were not counted, because they came too fast.
    pub fn left_out(&self) -> u64 {
        self.totals.left_out.load(Ordering::Relaxed)
    }
}

impl Totals {
    fn of(&self, source: Source) -> &Mutex<SavedTokens> {
        match source {
            Source::Search => &self.search,
            Source::Mcp => &self.mcp,
        }
    }
}

/// A search whose answers are counted. An MCP client gets shortened definitions where whole ones do
/// not fit, so what is counted as answered is at least what it got.
pub struct CountedSearch<S> {
    search: S,
    savings: TokenSavings,
}

impl<S: ServedSearch> ToolSearch for CountedSearch<S> {
    fn search(&self, request: &SearchRequest) -> Found {
        let found = self.search.search(request);
        if let Some(searcher) = self.search.newest() {
            let tools = found.hits.iter().map(|hit| Arc::clone(&hit.tool));
            let tools = tools.collect();
            let savings = &self.savings;
            savings.count(Source::Mcp, searcher, tools, Emit::Anthropic, None);
        }
        found
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.search.tool(id)
    }

    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.search.item(id)
    }

    fn items(&self) -> Vec<Arc<Tool>> {
        self.search.items()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.search.tools()
    }

    fn named(&self, name: &str) -> Vec<Arc<Tool>> {
        self.search.named(name)
    }

    fn lists_tools(&self) -> bool {
        self.search.lists_tools()
    }

    fn indexed(&self) -> Option<Arc<Searcher>> {
        self.search.indexed()
    }

    fn cpu_pool(&self) -> Option<CpuPool> {
        self.search.cpu_pool()
    }

    fn count(&self) -> usize {
        self.search.count()
    }

    fn version(&self) -> Version {
        self.search.version()
    }

    fn learns(&self) -> bool {
        self.search.learns()
    }

    fn used(&self, used_tool: &UsedTool) {
        self.search.used(used_tool);
    }
}

/// Whether an answer in this format has the definitions of tools. Names alone would save nearly
/// everything, and the client gets the definitions elsewhere.
fn has_definitions(format: Emit) -> bool {
    match format {
        Emit::Names | Emit::AnthropicReference => false,
        Emit::Openai | Emit::OpenaiResponses | Emit::Anthropic | Emit::Mcp | Emit::Signature => {
            true
        }
    }
}

fn count_all(waiting: &Receiver<Answer>, totals: &Totals) {
    let mut catalogs = CatalogTokens::default();
    while let Ok(answer) = waiting.recv() {
        let catalog = catalogs.of(&answer.searcher, answer.format);
        let answered = match answer.tokens {
            Some(tokens) => tokens,
            None => tokens_of(&answer.tools, answer.format),
        };
        // Locked only after the counting, which may take a while.
        let mut saved = totals.of(answer.source).lock();
        saved.answers += 1;
        saved.catalog_tokens += catalog as u64;
        saved.answered_tokens += answered as u64;
    }
}

/// The tokens of whole catalogs, as far as they are remembered, oldest first.
#[derive(Default)]
struct CatalogTokens(VecDeque<CountedCatalog>);

struct CountedCatalog {
    version: Version,
    format: Emit,
    at: Instant,
    tokens: usize,
}

impl CatalogTokens {
    fn of(&mut self, searcher: &Searcher, format: Emit) -> usize {
        let version = searcher.version();
        for (position, known) in self.0.iter().enumerate() {
            if known.format != format || known.version.identity != version.identity {
                continue;
            }
            if known.version == *version || known.at.elapsed() < RECOUNT_AFTER {
                return known.tokens;
            }
            self.0.remove(position);
            break;
        }
        let tokens = catalog_tokens(searcher, format);
        if self.0.len() == MAX_REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(CountedCatalog {
            version: version.clone(),
            format,
            at: Instant::now(),
            tokens,
        });
        tokens
    }
}

/// Tokens of all tools of a catalog; of a large one an estimate by a sample.
fn catalog_tokens(searcher: &Searcher, format: Emit) -> usize {
    let count = searcher.tool_count();
    let step = count.div_ceil(SAMPLE).max(1);
    let sample: Vec<Arc<Tool>> = searcher.tools().step_by(step).collect();
    // Counted in small groups, since `emit` makes the names within one answer distinct.
    let mut tokens = 0;
    for tools in sample.chunks(50) {
        tokens += tokens_of(tools, format);
    }
    match sample.len() {
        0 => 0,
        counted => (tokens as u128 * count as u128 / counted as u128) as usize,
    }
}

fn tokens_of(tools: &[Arc<Tool>], format: Emit) -> usize {
    let tools: Vec<&Tool> = tools.iter().map(Arc::as_ref).collect();
    budget::count(&formats::emit(&tools, format).to_string())
}
