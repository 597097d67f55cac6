//! An open catalog.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use napi::bindgen_prelude::{AsyncTask, FnArgs};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use napi_derive::napi;
use serde_json::{Value, json};
use toolscout_index::query::MAX_K;
use toolscout_index::{
    EmbedProgress, Filter, Kind, Query, SearchOptions, Tool as EngineTool, ToolId, Writer,
};
use toolscout_native::evaluation::evaluate;
use toolscout_native::input::{self, Invalid, Reader, Selection};
use toolscout_native::opening::Open;
use toolscout_native::owner;
use toolscout_native::toolbox::Toolbox;

use crate::environment::{Slot, opened};
use crate::errors::{OrReject, error, invalid_query};
use crate::evaluation;
use crate::input::{Input, Skipped, locked};
use crate::results::Results;
use crate::tool::{Tool, ToolPages};
use crate::toolbox::ToolboxCore;
use crate::work::{Cancellation, Signal, Work, promise};

/// Tools that are stored between two looks at the signal.
const STORE_BATCH: usize = 200;
/// How often a thread that waits for the script looks at the signal.
const LOOK: Duration = Duration::from_millis(50);

/// Takes the number of embedded texts and of all, and says whether to go on.
type Progress = ThreadsafeFunction<FnArgs<(u32, u32)>, bool, FnArgs<(u32, u32)>, Status, false>;

/// What a search looks for.
#[napi(object)]
pub struct SearchRequest {
    /// The texts.
    pub queries: Vec<String>,
    /// Most hits.
    pub limit: Option<f64>,
    /// The legs.
    pub mode: Option<String>,
    /// How the legs are combined.
    pub fusion: Option<String>,
    /// The weight of the dense legs.
    pub dense_weight: Option<f64>,
    /// The least score.
    pub min_score: Option<f64>,
    /// The least confidence.
    pub min_confidence: Option<f64>,
    /// Whether tools that find what a hit needs are put behind it.
    pub companions: Option<bool>,
    /// Only of these kinds; tools alone by default.
    pub kinds: Option<Vec<String>>,
    /// Only of these servers.
    pub servers: Option<Vec<String>>,
    /// Only with one of these tags.
    pub tags: Option<Vec<String>>,
    /// Only these.
    pub ids: Option<Vec<String>>,
    /// Only those that read.
    pub read_only: Option<bool>,
    /// Only those that may destroy.
    pub destructive: Option<bool>,
    /// Time for the search.
    pub budget_ms: Option<f64>,
    /// Whether hits say how they got their score.
    pub explain: Option<bool>,
    /// Whether near-duplicates are one hit.
    pub fold_duplicates: Option<bool>,
    /// Whether the request is taken as one need.
    pub whole: Option<bool>,
    /// Whether the ranker takes part.
    pub ranker: Option<bool>,
}

/// The effect of a write: ids, sorted, and counts.
#[napi(object)]
pub struct Changes {
    /// New tools.
    pub added: Vec<String>,
    /// Replaced tools.
    pub changed: Vec<String>,
    /// Removed tools.
    pub removed: Vec<String>,
    /// Number of tools that were already stored as they are.
    pub unchanged: u32,
    /// Items that were left out, with `skipInvalid`.
    pub skipped: Vec<Skipped>,
    /// Number of texts that were embedded.
    pub embedded: u32,
    /// The generation of the catalog that has the changes.
    pub generation: i64,
}

/// An open catalog.
#[napi]
pub struct Catalog {
    open: Arc<Slot>,
    name: String,
    path: String,
}

impl Catalog {
    /// A catalog that was opened.
    pub fn of(open: Open) -> Self {
        Catalog {
            name: open.settings.catalog.clone(),
            path: open.catalog.path().display().to_string(),
            open: Arc::new(RwLock::new(Some(Arc::new(open)))),
        }
    }

    /// Where it is until it is closed.
    pub fn slot(&self) -> Weak<Slot> {
        Arc::downgrade(&self.open)
    }

    fn opened(&self) -> Result<Arc<Open>> {
        opened(&self.open, &self.path)
    }

    /// What a function of the engine answers, as JSON.
    fn answer(
        &self,
        ask: impl FnOnce(&Open) -> toolscout_native::Result<Value> + Send + 'static,
    ) -> Result<AsyncTask<Work<String>>> {
        let open = self.opened()?;
        Ok(promise(move || Ok(ask(&open).or_reject()?.to_string())))
    }
}

#[napi]
impl Catalog {
    /// Its name.
    #[napi(getter)]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its folder.
    #[napi(getter)]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it was closed.
    #[napi(getter)]
    pub fn closed(&self) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.is_none()
    }

    /// Closes it. Calls under way finish.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn close(&self) -> AsyncTask<Work<()>> {
        let slot = Arc::clone(&self.open);
        promise(move || {
            let closed = slot.write().unwrap_or_else(PoisonError::into_inner).take();
            // It may close files, or delete a folder.
            drop(closed);
            Ok(())
        })
    }

    /// Closes it before the call returns.
    #[napi]
    pub fn close_now(&self) {
        let closed = self
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(closed);
    }

    /// Begins to read tools that are to be written.
    #[napi]
    pub fn input(
        &self,
        server: Option<String>,
        skip_invalid: bool,
        include: Vec<String>,
        exclude: Vec<String>,
    ) -> Result<Input> {
        let fetch = self.opened()?.settings.fetch;
        let invalid = match skip_invalid {
            true => Invalid::Skip,
            false => Invalid::Refuse("skipInvalid"),
        };
        let selection = Selection::new(include, exclude);
        let reader = Reader::new(server, invalid, fetch).selecting(selection);
        Ok(Input::new(reader))
    }

    /// Adds what was read, or replaces what has the same ids.
    #[napi(ts_return_type = "Promise<Changes>")]
    pub fn add(
        &self,
        input: &Input,
        embed: bool,
        cancellation: &Cancellation,
        #[napi(ts_arg_type = "(done: number, total: number) => boolean")] progress: Progress,
    ) -> Result<AsyncTask<Work<Changes>>> {
        let (open, reader, signal) = (self.opened()?, input.reader(), cancellation.signal());
        Ok(promise(move || {
            let (tools, skipped) = taken(&reader);
            let mut writing = Writing::begin(&open, signal)?;
            let changes = writing.upsert(&tools)?;
            writing.finish(Changes::of(changes, skipped), embed.then_some(&progress))
        }))
    }

    /// Replaces all tools of a server by what was read.
    #[napi(ts_return_type = "Promise<Changes>")]
    pub fn sync(
        &self,
        server: String,
        input: &Input,
        embed: bool,
        cancellation: &Cancellation,
        #[napi(ts_arg_type = "(done: number, total: number) => boolean")] progress: Progress,
    ) -> Result<AsyncTask<Work<Changes>>> {
        let (open, reader, signal) = (self.opened()?, input.reader(), cancellation.signal());
        Ok(promise(move || {
            let (tools, skipped) = taken(&reader);
            let mut writing = Writing::begin(&open, signal)?;
            let changes = writing.writer.sync(&server, &tools).or_reject()?;
            writing.finish(Changes::of(changes, skipped), embed.then_some(&progress))
        }))
    }

    /// Removes tools by id.
    #[napi(ts_return_type = "Promise<Changes>")]
    pub fn remove(
        &self,
        ids: Vec<String>,
        cancellation: &Cancellation,
    ) -> Result<AsyncTask<Work<Changes>>> {
        let (open, signal) = (self.opened()?, cancellation.signal());
        let ids: toolscout_index::Result<Vec<ToolId>> =
            ids.iter().map(|id| ToolId::parse(id)).collect();
        let ids = ids.or_reject()?;
        Ok(promise(move || {
            let mut writing = Writing::begin(&open, signal)?;
            let changes = writing.writer.remove(&ids).or_reject()?;
            writing.finish(Changes::of(changes, Vec::new()), None)
        }))
    }

    /// Embeds the tools that have no vectors yet, and returns the number of texts that were embedded.
    #[napi(ts_return_type = "Promise<number>")]
    pub fn embed(
        &self,
        cancellation: &Cancellation,
        #[napi(ts_arg_type = "(done: number, total: number) => boolean")] progress: Progress,
    ) -> Result<AsyncTask<Work<u32>>> {
        let (open, signal) = (self.opened()?, cancellation.signal());
        Ok(promise(move || {
            Writing::begin(&open, signal)?.embed(&progress)
        }))
    }

    /// Finds tools.
    #[napi(ts_return_type = "Promise<Results>")]
    pub fn search(&self, request: SearchRequest) -> Result<AsyncTask<Work<Results>>> {
        let open = self.opened()?;
        let query = request.query(&open)?;
        Ok(promise(move || {
            let answer = open.newest().or_reject()?.search(&query).or_reject()?;
            Results::new(answer)
        }))
    }

    /// Measures how well it answers judged queries, which are lines of JSON; answers with JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn eval(
        &self,
        queries: String,
        mode: Option<String>,
        ranker: bool,
        cancellation: &Cancellation,
    ) -> Result<AsyncTask<Work<String>>> {
        let (open, signal) = (self.opened()?, cancellation.signal());
        let mode = named(mode.as_deref())?;
        Ok(promise(move || {
            let mut is_ended = || signal.is_set();
            let evaluation = evaluate(&open, &queries, mode, ranker, &mut is_ended);
            Ok(evaluation::json(&evaluation.or_reject()?))
        }))
    }

    /// Remembers that a tool was used for a request: `recorded` and `remembered`, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn feedback(
        &self,
        queries: Vec<String>,
        hits: Vec<String>,
        tool: String,
    ) -> Result<AsyncTask<Work<String>>> {
        self.answer(move |open| {
            let remembered = owner::remember(open, &queries, &hits, &tool)?;
            Ok(json!({ "recorded": remembered, "remembered": remembered }))
        })
    }

    /// The entries of the usage memory, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn memory(&self) -> Result<AsyncTask<Work<String>>> {
        self.answer(owner::memory)
    }

    /// Switches the usage memory on or off.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn set_memory(&self, enabled: bool) -> Result<AsyncTask<Work<String>>> {
        self.answer(move |open| owner::set_memory(open, enabled))
    }

    /// Deletes entries of the usage memory: those of a tool, those of a request, or all.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn forget(
        &self,
        tool: Option<String>,
        query: Option<String>,
    ) -> Result<AsyncTask<Work<String>>> {
        self.answer(move |open| owner::forget(open, tool, query))
    }

    /// The owner's words, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn words(&self) -> Result<AsyncTask<Work<String>>> {
        self.answer(owner::words)
    }

    /// Replaces the owner's words, or changes them by a JSON merge patch.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn set_words(&self, words: String, is_patch: bool) -> Result<AsyncTask<Work<String>>> {
        self.answer(move |open| owner::set_words(open, &words, is_patch))
    }

    /// The settings, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn settings(&self) -> Result<AsyncTask<Work<String>>> {
        self.answer(owner::settings)
    }

    /// Replaces the settings.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn set_settings(&self, settings: String) -> Result<AsyncTask<Work<String>>> {
        self.answer(move |open| owner::set_settings(open, &settings))
    }

    /// The servers with the number of their tools, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn servers(&self) -> Result<AsyncTask<Work<String>>> {
        self.answer(owner::servers)
    }

    /// An empty toolbox with options in JSON.
    #[napi]
    pub fn toolbox(&self, options: String) -> Result<ToolboxCore> {
        let options = serde_json::from_str(&options).or_reject()?;
        let toolbox = Toolbox::new(options).or_reject()?;
        let (slot, path) = (Arc::clone(&self.open), self.path.clone());
        Ok(ToolboxCore::new(slot, path, toolbox, Vec::new()))
    }

    /// The toolbox of a state in JSON.
    #[napi]
    pub fn restored_toolbox(&self, state: String) -> Result<ToolboxCore> {
        let open = self.opened()?;
        let (toolbox, missing) = Toolbox::restored(&open, &state).or_reject()?;
        let (slot, path) = (Arc::clone(&self.open), self.path.clone());
        Ok(ToolboxCore::new(slot, path, toolbox, missing))
    }

    /// The tools as they are now: all, or those of servers and with tags.
    #[napi(ts_return_type = "Promise<ToolPages>")]
    pub fn tools(
        &self,
        servers: Option<Vec<String>>,
        tags: Option<Vec<String>>,
    ) -> Result<AsyncTask<Work<ToolPages>>> {
        let open = self.opened()?;
        let filter = Filter {
            servers: set(servers),
            tags: set(tags),
            ..Filter::default()
        };
        Ok(promise(move || {
            Ok(ToolPages::new(open.newest().or_reject()?, filter))
        }))
    }

    /// The tool with this id.
    #[napi(ts_return_type = "Promise<Tool | null>")]
    pub fn get(&self, id: String) -> Result<AsyncTask<Work<Option<Tool>>>> {
        let open = self.opened()?;
        let id = ToolId::parse(&id).or_reject()?;
        Ok(promise(move || {
            Ok(open.newest().or_reject()?.tool(&id).map(Tool::new))
        }))
    }

    /// Sizes, as JSON.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn stats(&self) -> Result<AsyncTask<Work<String>>> {
        let open = self.opened()?;
        Ok(promise(move || {
            open.newest().or_reject()?;
            let stats = open.catalog.stats().or_reject()?;
            let text = json!({
                "tools": stats.tools,
                "servers": stats.servers,
                "generation": stats.generation,
                "vectors": stats.vectors,
                "pendingEmbeddings": stats.pending_embeddings,
                "diskBytes": stats.disk_bytes,
            });
            Ok(text.to_string())
        }))
    }
}

impl SearchRequest {
    fn query(self, open: &Open) -> Result<Query> {
        let options = SearchOptions {
            k: self.limit.map(checked_limit).transpose()?,
            mode: named(self.mode.as_deref())?,
            fusion: named(self.fusion.as_deref())?,
            dense_weight: self.dense_weight.map(|weight| weight as f32),
            min_score: self.min_score.map(|score| score as f32),
            min_confidence: self.min_confidence.map(|confidence| confidence as f32),
            companions: self.companions,
            fold_duplicates: self.fold_duplicates,
        };
        let kinds = self.kinds.unwrap_or_default();
        let kinds: std::result::Result<BTreeSet<Kind>, _> =
            kinds.iter().map(|kind| kind.parse()).collect();
        let filter = Filter {
            kinds: kinds.or_reject()?,
            servers: set(self.servers),
            tags: set(self.tags),
            ids: set(self.ids).into(),
            read_only: self.read_only,
            destructive: self.destructive,
        };
        let mut query = Query::any_of(&self.queries)
            .options(options.or(open.search_defaults()))
            .filter(filter);
        if let Some(budget_ms) = self.budget_ms {
            query = query.budget_ms(budget_ms);
        }
        if self.explain == Some(true) {
            query = query.explain();
        }
        if self.whole == Some(true) {
            query = query.whole();
        }
        if self.ranker == Some(false) {
            query = query.without_ranker();
        }
        Ok(query)
    }
}

impl Changes {
    fn of(changes: toolscout_index::Changes, skipped: Vec<input::Skipped>) -> Self {
        Changes {
            added: texts(changes.added),
            changed: texts(changes.changed),
            removed: texts(changes.removed),
            unchanged: count(changes.unchanged),
            skipped: skipped.into_iter().map(Skipped::from).collect(),
            embedded: 0,
            generation: 0,
        }
    }
}

/// What was read, which is written once.
fn taken(reader: &Mutex<Reader>) -> (Vec<EngineTool>, Vec<input::Skipped>) {
    let mut reader = locked(reader);
    let tools = std::mem::take(&mut reader.tools);
    (tools, std::mem::take(&mut reader.skipped))
}

fn texts(mut ids: Vec<ToolId>) -> Vec<String> {
    ids.sort_unstable();
    ids.iter().map(ToString::to_string).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A write under way. What is not committed is undone when it is dropped.
struct Writing<'c> {
    writer: Writer,
    open: &'c Open,
    signal: Signal,
}

impl<'c> Writing<'c> {
    fn begin(open: &'c Open, signal: Signal) -> Result<Self> {
        signal.check()?;
        Ok(Writing {
            writer: open.catalog.writer().or_reject()?,
            open,
            signal,
        })
    }

    fn upsert(&mut self, tools: &[EngineTool]) -> Result<toolscout_index::Changes> {
        let mut changes = toolscout_index::Changes::default();
        for tools in tools.chunks(STORE_BATCH) {
            self.signal.check()?;
            let now = self.writer.upsert(tools).or_reject()?;
            changes.added.extend(now.added);
            changes.changed.extend(now.changed);
            changes.unchanged += now.unchanged;
        }
        Ok(changes)
    }

    /// Commits, and then embeds where there is somebody to report to.
    fn finish(mut self, changes: Changes, progress: Option<&Progress>) -> Result<Changes> {
        self.signal.check()?;
        let mut generation = self.writer.commit().or_reject()?;
        let mut embedded = 0;
        if let Some(progress) = progress {
            embedded = self.embed(progress)?;
            generation = self.open.catalog.searcher().generation();
        }
        Ok(Changes {
            embedded,
            generation: i64::try_from(generation).unwrap_or(i64::MAX),
            ..changes
        })
    }

    fn embed(&mut self, progress: &Progress) -> Result<u32> {
        let signal = self.signal.clone();
        let mut is_ended = false;
        let mut report = |now: EmbedProgress| {
            is_ended = is_ended || !goes_on(now, progress, &signal);
            match is_ended {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let embedded = self.writer.embed_pending(&mut report).or_reject()?;
        match is_ended {
            true => Err(error("cancelled", "the call was cancelled")),
            false => Ok(count(embedded)),
        }
    }
}

/// Tells the script how far it is, and waits until it has heard that.
fn goes_on(now: EmbedProgress, progress: &Progress, signal: &Signal) -> bool {
    let (heard, answer) = mpsc::sync_channel(1);
    let counts = FnArgs::from((count(now.done), count(now.total)));
    let mode = ThreadsafeFunctionCallMode::NonBlocking;
    progress.call_with_return_value(counts, mode, move |goes_on, _env| {
        // Nobody waits any more where the work was cancelled meanwhile.
        heard.send(goes_on.unwrap_or(false)).ok();
        Ok(())
    });
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(goes_on) => return goes_on && !signal.is_set(),
            Err(RecvTimeoutError::Disconnected) => return false,
            // A script that ends hears nothing any more.
            Err(RecvTimeoutError::Timeout) if signal.is_set() => return false,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The texts of a part of a filter, which may be left out.
fn set(values: Option<Vec<String>>) -> BTreeSet<String> {
    values.unwrap_or_default().into_iter().collect()
}

fn checked_limit(limit: f64) -> Result<usize> {
    if limit.fract() == 0.0 && (1.0..=MAX_K as f64).contains(&limit) {
        return Ok(limit as usize);
    }
    let message =
        format!("invalid query: limit is {limit}, it must be a whole number from 1 to {MAX_K}");
    Err(invalid_query(message))
}

fn named<T: FromStr<Err = toolscout_index::Error>>(name: Option<&str>) -> Result<Option<T>> {
    name.map(str::parse::<T>).transpose().or_reject()
}
