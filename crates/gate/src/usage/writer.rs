//! The thread that adds up what was used, and writes the sums to the database every few seconds.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime};

use lru::LruCache;
use toolscout_base::budget;
use toolscout_base::clock::{day_of, unix_ms};
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Tool, ToolId};

use super::database::{UsageDatabase, UsageError};
use super::event::{CallUse, Origin, SearchUse};
use super::figures::{CallerFigures, CallerKey, Tally};
use super::missed::{MissedRequest, OpenSearches};
use super::queue::Receiver;

/// How often sums are written. What is not written yet is lost if the process is killed.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// How often they are written if there are many: each write rewrites most pages of a large catalog's day.
const WRITE_MANY_EVERY: Duration = Duration::from_secs(30);
/// From how many rows on there are many.
const MANY_ROWS: usize = 1_000;
/// Rows in memory that are written before that; about 150 bytes each.
const MAX_ROWS: usize = 100_000;
/// Missed requests in memory.
const MAX_MISSED: usize = 5_000;
/// Definitions whose tokens are remembered.
const MAX_DEFINITIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

/// What the thread is told.
pub enum Message {
    /// A search was answered.
    Search(i64, Box<SearchUse>),
    /// Tools were loaded for a model, each with the tokens of its definition.
    Loaded(i64, Box<(Origin, Vec<(ToolId, usize)>)>),
    /// A call has ended.
    Call(i64, Box<CallUse>),
    /// A catalog was deleted.
    Forget(String, SyncSender<()>),
    /// What was sent so far is to be written now.
    Flush(SyncSender<()>),
    /// The program ends, and with it every session.
    End(SyncSender<()>),
}

/// Adds up and writes.
pub struct Writer {
    store: UsageDatabase,
    /// The catalog of those that name none.
    default_catalog: String,
    keep_days: i64,
    tally: Tally,
    tokens: DefinitionTokens,
    /// The searches of sessions, where texts of requests are stored.
    open_searches: OpenSearches,
    /// Requests that no tool served, not written yet.
    missed: Vec<(String, MissedRequest)>,
    /// What was not recorded.
    dropped: Arc<AtomicU64>,
    /// Whether the last write failed, so that a full disk is reported once.
    is_failing: bool,
}

impl Writer {
    /// A writer to this database.
    pub fn new(
        store: UsageDatabase,
        default_catalog: String,
        keep_days: u32,
        now_ms: i64,
        dropped: Arc<AtomicU64>,
    ) -> Self {
        Writer {
            store,
            default_catalog,
            keep_days: keep_days.into(),
            tally: Tally::of(day_of(now_ms)),
            tokens: DefinitionTokens::default(),
            open_searches: OpenSearches::default(),
            missed: Vec::new(),
            dropped,
            is_failing: false,
        }
    }

    /// Works until the last sender is gone, and writes what is left.
    pub fn run(mut self, messages: &Receiver<Message>) {
        let begun = self.store.begin_day(self.tally.day, self.keep_days);
        self.report(begun);
        let mut written = Instant::now();
        loop {
            // Without anything to write, it sleeps until there is something.
            let until = (written + self.write_every()).saturating_duration_since(Instant::now());
            let patience = (!self.has_nothing_to_do()).then_some(until);
            let Some(taken) = messages.take(patience) else {
                return self.end();
            };
            for message in taken {
                self.take(message);
                if self.tally.len() >= MAX_ROWS {
                    self.write();
                }
            }
            let missed = self.open_searches.idle(unix_ms(SystemTime::now()));
            self.miss(missed);
            if written.elapsed() >= self.write_every() {
                self.write();
                written = Instant::now();
            }
        }
    }

    fn write_every(&self) -> Duration {
        match self.tally.len() < MANY_ROWS {
            true => WRITE_EVERY,
            false => WRITE_MANY_EVERY,
        }
    }

    /// Whether it can wait for the next message, however long that takes.
    fn has_nothing_to_do(&self) -> bool {
        self.tally.is_empty() && self.missed.is_empty() && self.open_searches.is_empty()
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Search(at_ms, search) => self.searched(at_ms, *search),
            Message::Loaded(at_ms, loaded) => {
                let (origin, tools) = *loaded;
                self.loaded(at_ms, &origin, tools);
            }
            Message::Call(at_ms, call) => self.called(at_ms, &call),
            Message::Forget(catalog, done) => {
                self.tally.forget(&catalog);
                self.open_searches.forget(&catalog);
                self.missed.retain(|(of, _)| *of != catalog);
                let forgotten = self.store.forget(&catalog);
                self.report(forgotten);
                // Whoever asked may have left.
                let _ = done.send(());
            }
            Message::Flush(done) => {
                self.write();
                let _ = done.send(());
            }
            Message::End(done) => {
                self.end();
                let _ = done.send(());
            }
        }
    }

    fn end(&mut self) {
        let missed = self.open_searches.end();
        self.miss(missed);
        self.write();
    }

    fn searched(&mut self, at_ms: i64, search: SearchUse) {
        self.begin(at_ms);
        let catalog = self.catalog_of(&search.origin);
        self.caller(&search.origin).searched(search.matched);
        let missed = self.open_searches.searched(at_ms, &catalog, &search);
        self.miss(missed);
        let mut tools = self.tally.catalog(catalog);
        for (index, tool) in search.hits.into_iter().enumerate() {
            let shown = tools.tool(tool);
            shown.searches += 1;
            shown.first += u64::from(index == 0);
            shown.places += index as u64 + 1;
            shown.used_at(at_ms);
        }
        for tool in search.more {
            let shown = tools.tool(tool);
            shown.more += 1;
            shown.used_at(at_ms);
        }
        let (format, sent) = search.sent.unwrap_or((Emit::Names, Vec::new()));
        for tool in &sent {
            let tokens = self.tokens.of(tool, format);
            tools.tool(tool.id.clone()).calls().definition_tokens += tokens as u64;
        }
    }

    fn loaded(&mut self, at_ms: i64, origin: &Origin, tools: Vec<(ToolId, usize)>) {
        self.begin(at_ms);
        let catalog = self.catalog_of(origin);
        let mut tally = self.tally.catalog(catalog);
        for (tool, tokens) in tools {
            let loaded = tally.tool(tool);
            loaded.used_at(at_ms);
            let figures = loaded.calls();
            figures.injections += 1;
            figures.definition_tokens += tokens as u64;
        }
    }

    fn called(&mut self, at_ms: i64, call: &CallUse) {
        self.begin(at_ms);
        self.open_searches.called(at_ms, call);
        let caller = self.caller(&call.origin);
        caller.calls += 1;
        caller.errors += u64::from(call.error.is_some());
        let catalog = self.catalog_of(&call.origin);
        let mut tools = self.tally.catalog(catalog);
        let used = tools.tool(call.tool.clone());
        used.used_at(at_ms);
        let figures = used.calls();
        figures.calls += 1;
        match call.error {
            None => figures.successes += 1,
            Some(code) => *figures.errors.entry(code.as_str().to_owned()).or_default() += 1,
        }
        if let Some(took) = call.took {
            figures.took(took.as_secs_f64());
        }
        figures.result_tokens += result_tokens(call) as u64;
    }

    /// Keeps missed requests until they are written, as many as fit.
    fn miss(&mut self, missed: Vec<(String, MissedRequest)>) {
        let fitting = MAX_MISSED.saturating_sub(self.missed.len());
        let lost = missed.len().saturating_sub(fitting) as u64;
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        self.missed.extend(missed.into_iter().take(fitting));
    }

    /// A tally is of one day, so that of the day before is written first.
    fn begin(&mut self, at_ms: i64) {
        let day = day_of(at_ms);
        if day == self.tally.day {
            return;
        }
        self.write();
        // What could not be written stays, and this day is counted with it rather than lost.
        if self.tally.is_empty() {
            self.tally.day = day;
            let begun = self.store.begin_day(day, self.keep_days);
            self.report(begun);
        }
    }

    fn catalog_of(&self, origin: &Origin) -> String {
        let named = origin.place.catalog.as_ref();
        named.unwrap_or(&self.default_catalog).clone()
    }

    fn caller(&mut self, origin: &Origin) -> &mut CallerFigures {
        let key = CallerKey {
            catalog: self.catalog_of(origin),
            profile: origin.place.profile.clone().unwrap_or_default(),
            who: origin.who.clone(),
        };
        self.tally.caller(key)
    }

    /// Writes the sums. If that fails they are kept for the next time, unless they are too many.
    fn write(&mut self) {
        if !self.missed.is_empty() {
            let written = self.store.write_missed(&self.missed);
            if written.is_ok() {
                self.missed.clear();
            }
            self.report(written);
        }
        if self.tally.is_empty() {
            return;
        }
        let written = self.store.write(&self.tally);
        let has_failed = written.is_err();
        self.report(written);
        if !has_failed || self.tally.len() >= MAX_ROWS {
            if has_failed {
                let rows = self.tally.len() as u64;
                self.dropped.fetch_add(rows, Ordering::Relaxed);
            }
            self.tally = Tally::of(self.tally.day);
        }
    }

    fn report(&mut self, done: Result<(), UsageError>) {
        let is_failing = done.is_err();
        if let Err(error) = done
            && !self.is_failing
        {
            tracing::error!(%error, "use of tools is not recorded");
        }
        self.is_failing = is_failing;
    }
}

/// The tokens of a result, counted in its beginning.
fn result_tokens(call: &CallUse) -> usize {
    let counted = budget::count(&call.result);
    match call.result.len() {
        0 => 0,
        // In proportion to the length of the whole result.
        length => counted.saturating_mul(call.result_bytes.max(length)) / length,
    }
}

/// Tokens of definitions. Counting takes longer than a search, so they are remembered.
struct DefinitionTokens(LruCache<(ToolId, Emit), (usize, usize)>);

impl Default for DefinitionTokens {
    fn default() -> Self {
        DefinitionTokens(LruCache::new(MAX_DEFINITIONS))
    }
}

impl DefinitionTokens {
    fn of(&mut self, tool: &Tool, format: Emit) -> usize {
        // A definition that changes nearly always changes its length; the figure is an estimate.
        let length = tool.description.len() + tool.input_schema.len();
        let key = (tool.id.clone(), format);
        if let Some((known, tokens)) = self.0.get(&key)
            && *known == length
        {
            return *tokens;
        }
        let tokens = budget::count(&formats::emit(&[tool], format).to_string());
        self.0.put(key, (length, tokens));
        tokens
    }
}
