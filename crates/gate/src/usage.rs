//! The use of tools: which ones searches show, which ones models load and call, and with what success.
//!
//! Whoever answers a search or makes a call hands a small [event](SearchUse) to a [`Recorder`]. A
//! thread adds events up by tool and day, and writes the sums to a [database](UsageDatabase) in the data
//! directory. No event has the arguments or the result of a call in full. The texts of requests are
//! stored only if the settings say so, and only of requests that no tool served ([`missed`]).

mod compared;
mod event;
mod figures;
pub mod missed;
mod queue;
pub mod report;
pub mod shadow;
mod tool_days;
mod database;
pub mod sharing;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use toolscout_base::clock::unix_ms;
use toolscout_base::config::UsageSettings;
use toolscout_base::telemetry::series::Series;
use toolscout_index::ToolId;

use queue::{Sender, bounded};
use shadow::{ComparedSearch, Shadow};
use sharing::LocalRecord;
use writer::{Message, Writer};

pub use database::{CallerDay, FILE_NAME, OTHERS, UsageDatabase, UsageError};
pub use event::{CallUse, Origin, Place, SearchUse};
pub use figures::{CallerFigures, CallerKey, ToolFigures};
pub use queue::Receiver;

/// Events that wait for the thread; more are dropped and counted.
const MAX_WAITING: usize = 4_096;
/// How long whoever reads waits for what is recorded to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a result that are kept until its tokens are counted.
const COUNTED_RESULT_BYTES: usize = 8 << 10;

/// Records the use of tools. Cheap to clone. The default one records nothing, and only counts for
/// Prometheus.
///
/// - Guarantee: nobody waits for it. An event that finds the queue full is dropped and counted.
/// - Cost: a message in a queue for each search and each call, about a microsecond.
/// - Failure: a crash loses the last seconds. A database that cannot be written is reported once.
#[derive(Clone, Default)]
pub struct Recorder {
    queue: Option<Sender<Message>>,
    /// What is stored, for the store that several nodes share.
    local: Option<LocalRecord>,
    dropped: Arc<AtomicU64>,
    counters: UsageCounters,
    shadow: Option<Shadow>,
}

/// Counters for Prometheus. No label names a tool, a catalog or a key.
#[derive(Clone, Default)]
struct UsageCounters {
    calls: Series<OutcomeLabels, Counter>,
    decisions: Series<DecisionLabels, Counter>,
    matches: Series<MatchLabels, Counter>,
    dropped: Counter<u64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct MatchLabels {
    r#match: &'static str,
}

impl Recorder {
    /// Records into the database of a data directory, unless the settings switch that off. If the
    /// database cannot be used, that is logged, and nothing is recorded: it is no reason not to answer.
    pub fn start(data: &Path, default_catalog: &str, settings: &UsageSettings) -> Self {
        let recorder = Recorder::default();
        if !settings.is_enabled() {
            return recorder;
        }
        match recorder.start_thread(data, default_catalog, settings) {
            Ok(queue) => Recorder {
                queue: Some(queue),
                local: Some(LocalRecord {
                    data: data.to_owned(),
                    keep_days: settings.keep_days(),
                    stores_queries: settings.stores_queries(),
                }),
                ..recorder
            },
            Err(error) => {
                tracing::error!(error, "use of tools is not recorded");
                recorder
            }
        }
    }

    fn start_thread(
        &self,
        data: &Path,
        default_catalog: &str,
        settings: &UsageSettings,
    ) -> Result<Sender<Message>, String> {
        let now_ms = unix_ms(SystemTime::now());
        let store = UsageDatabase::open(data).map_err(|error| error.to_string())?;
        let (catalog, dropped) = (default_catalog.to_owned(), Arc::clone(&self.dropped));
        let writer = Writer::new(store, catalog, settings.keep_days(), now_ms, dropped);
        let (queue, messages) = bounded(MAX_WAITING);
        let thread = thread::Builder::new().name("usage".into());
        let spawned = thread.spawn(move || writer.run(&messages));
        spawned.map_err(|error| error.to_string())?;
        Ok(queue)
    }

    /// Also hands searches and calls to this shadow.
    pub fn with_shadow(self, shadow: Option<Shadow>) -> Self {
        Recorder { shadow, ..self }
    }

    /// The shadow of a catalog, if there is one.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    /// Whether a search at this place is to be [handed over](Recorder::compare) for a second answer.
    pub fn is_compared(&self, place: &Place) -> bool {
        match &self.shadow {
            Some(shadow) => shadow.draws(place),
            None => false,
        }
    }

    /// Hands over a search for a second answer.
    pub fn compare(&self, search: ComparedSearch) {
        if let Some(shadow) = &self.shadow {
            shadow.searched(unix_ms(SystemTime::now()), search);
        }
    }

    /// Notes which tool a client used for the answer to a request.
    pub fn used(&self, place: &Place, request: &str, tool: &ToolId) {
        if let Some(shadow) = &self.shadow {
            shadow.used(unix_ms(SystemTime::now()), place, request, tool);
        }
    }

    /// Shows the counters in these metrics.
    pub fn register(&self, registry: &mut Registry) {
        let counters = self.counters.clone();
        registry.register("tool_calls", "Calls of tools, by outcome", counters.calls);
        registry.register(
            "gate_decisions",
            "Decisions of the gate on calls",
            counters.decisions,
        );
        registry.register(
            "search_matches",
            "Searches by how well their hits serve the request",
            counters.matches,
        );
        registry.register(
            "usage_dropped",
            "Uses of tools that were not recorded, because they came too fast",
            counters.dropped,
        );
    }

    /// Whether events are stored.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether texts of requests are stored that no tool served.
    pub fn stores_queries(&self) -> bool {
        let local = self.local.as_ref();
        local.is_some_and(|local| local.stores_queries)
    }

    /// The record on this node, if events are stored.
    pub fn local(&self) -> Option<LocalRecord> {
        self.local.clone()
    }

    /// The texts of a request, if they are stored.
    pub fn queries<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Vec<String> {
        match self.stores_queries() {
            true => texts.map(str::to_owned).collect(),
            false => Vec::new(),
        }
    }

    /// Events that were not recorded, because they came too fast or the disk was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records a search.
    pub fn searched(&self, search: SearchUse) {
        let r#match = search.matched.as_str();
        self.counters.matches.of(MatchLabels { r#match }).inc();
        self.send(|at_ms| Message::Search(at_ms, Box::new(search)));
    }

    /// Records that tools were loaded for a model, each with the tokens of its definition.
    pub fn loaded(&self, origin: &Origin, tools: Vec<(ToolId, usize)>) {
        if !tools.is_empty() {
            self.send(|at_ms| Message::Loaded(at_ms, Box::new((origin.clone(), tools))));
        }
    }

    /// Records a call.
    pub fn called(&self, mut call: CallUse) {
        let outcome = match call.error {
            Some(code) => code.as_str(),
            None => "ok",
        };
        self.counters.calls.of(OutcomeLabels { outcome }).inc();
        if let Some(shadow) = &self.shadow {
            shadow.called(unix_ms(SystemTime::now()), &call);
        }
        // The thread counts the tokens of the beginning, and estimates the rest by its length.
        let end = call.result.floor_char_boundary(COUNTED_RESULT_BYTES);
        call.result.truncate(end);
        // It waits in the queue, and the whole may be long.
        call.result.shrink_to_fit();
        self.send(|at_ms| Message::Call(at_ms, Box::new(call)));
    }

    /// Counts a decision of the gate.
    pub fn decided(&self, decision: &'static str) {
        self.counters
            .decisions
            .of(DecisionLabels { decision })
            .inc();
    }

    /// Deletes what is recorded of a catalog, which was deleted. Blocks.
    pub fn forget(&self, catalog: &str) {
        if let Some(shadow) = &self.shadow {
            shadow.forget(catalog);
        }
        self.wait_for(|done| Message::Forget(catalog.to_owned(), done));
    }

    /// Writes what was recorded so far. Blocks.
    pub fn flush(&self) {
        self.wait_for(Message::Flush);
    }

    /// Writes what was recorded, at the end of the program: searches of sessions that wait for a call are
    /// missed. Blocks.
    pub fn end(&self) {
        if let Some(shadow) = &self.shadow {
            shadow.end();
        }
        self.wait_for(Message::End);
    }

    fn send(&self, message: impl FnOnce(i64) -> Message) {
        let Some(queue) = &self.queue else { return };
        let message = message(unix_ms(SystemTime::now()));
        if !queue.try_send(message) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.counters.dropped.inc();
        }
    }

    /// Sends a message even if the queue is full, and waits until it was handled.
    fn wait_for(&self, message: impl FnOnce(SyncSender<()>) -> Message) {
        let Some(queue) = &self.queue else { return };
        // With room for the answer, so that the thread never waits for one who has given up.
        let (done, is_done) = sync_channel(1);
        queue.send_urgently(message(done));
        if is_done.recv_timeout(FLUSH_PATIENCE).is_err() {
            tracing::warn!("recorded use of tools is still being written");
        }
    }
}

#[cfg(test)]
mod tests {
    use toolscout_base::clock::day_of;
    use toolscout_index::Match;

    use super::*;
    use crate::tools::ErrorCode;

    fn id(text: &str) -> ToolId {
        ToolId::parse(text).unwrap()
    }

    fn search(hits: &[&str], more: &[&str], matched: Match) -> SearchUse {
        SearchUse {
            origin: Origin {
                who: "key:a".to_owned(),
                ..Origin::default()
            },
            matched,
            hits: hits.iter().map(|text| id(text)).collect(),
            more: more.iter().map(|text| id(text)).collect(),
            sent: None,
            queries: vec!["a request".to_owned()],
            nearest: None,
        }
    }

    fn call(tool: &str, error: Option<ErrorCode>) -> CallUse {
        CallUse {
            origin: Origin::default(),
            tool: id(tool),
            error,
            took: Some(Duration::from_millis(3)),
            result: "two words".to_owned(),
            result_bytes: 90,
        }
    }

    #[test]
    fn searches_and_calls_are_added_up_by_tool_and_outlive_the_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let start = || Recorder::start(folder.path(), "main", &UsageSettings::default());
        let recorder = start();
        recorder.searched(search(&["s/a", "s/b"], &["s/c"], Match::Good));
        recorder.searched(search(&["s/b"], &[], Match::None));
        recorder.loaded(&Origin::default(), vec![(id("s/a"), 40)]);
        recorder.called(call("s/a", None));
        recorder.called(call("s/a", Some(ErrorCode::Timeout)));
        recorder.flush();
        drop(recorder);
        let recorder = start();
        recorder.called(call("s/a", None));
        recorder.flush();
        let store = UsageDatabase::open_existing(folder.path())
            .unwrap()
            .unwrap();
        let tools = store.tools("main", 0).unwrap();
        let a = &tools["s/a"];
        assert_eq!((a.searches, a.first, a.places, a.injections), (1, 1, 1, 1));
        assert_eq!((a.calls, a.successes, a.failures()), (3, 2, 1));
        assert_eq!(a.errors["timeout"], 1);
        assert_eq!(a.latency.len(), 3);
        // Two tokens in 9 bytes, and the whole is ten times as long.
        assert_eq!((a.definition_tokens, a.result_tokens), (40, 60));
        let b = &tools["s/b"];
        assert_eq!((b.searches, b.first, b.places), (2, 1, 3));
        let c = &tools["s/c"];
        assert_eq!((c.searches, c.more, c.is_used()), (0, 1, false));
        let callers = store.callers(0).unwrap();
        let of = |who: &str| callers.iter().find(|row| row.key.who == who).unwrap();
        let figures = of("key:a").figures;
        assert_eq!((figures.searches, figures.good, figures.none), (2, 1, 1));
        let figures = of("").figures;
        assert_eq!((figures.calls, figures.errors), (3, 1));
        assert_eq!(recorder.dropped(), 0);
    }

    #[test]
    fn searches_without_a_call_are_missed_at_the_end_and_texts_are_kept_on_request_only() {
        for (queries, expected) in [(false, 0), (true, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let settings = UsageSettings {
                queries: Some(queries),
                ..UsageSettings::default()
            };
            let recorder = Recorder::start(folder.path(), "main", &settings);
            for (session, matched) in [(None, Match::None), (Some("1"), Match::Good)] {
                let mut search = search(&["s/a"], &[], matched);
                search.origin.session = session.map(str::to_owned);
                search.queries = recorder.queries(["a request"].into_iter());
                recorder.searched(search);
            }
            recorder.flush();
            let store = UsageDatabase::open(folder.path()).unwrap();
            assert_eq!(store.missed("main", 0).unwrap().len(), expected / 2);
            recorder.end();
            assert_eq!(store.missed("main", 0).unwrap().len(), expected);
        }
    }

    #[test]
    fn what_finds_the_queue_full_is_counted() {
        let (queue, _messages) = bounded(2);
        let recorder = Recorder {
            queue: Some(queue),
            ..Recorder::default()
        };
        for _ in 0..5 {
            recorder.called(call("s/a", None));
        }
        assert_eq!(recorder.dropped(), 3);
        let mut registry = Registry::default();
        recorder.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("usage_dropped_total 3"), "{text}");
        assert!(
            text.contains("tool_calls_total{outcome=\"ok\"} 5"),
            "{text}"
        );
    }

    #[test]
    fn a_forgotten_catalog_loses_what_is_not_written_yet_too() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::start(folder.path(), "main", &UsageSettings::default());
        recorder.called(call("s/a", None));
        recorder.flush();
        recorder.called(call("s/a", None));
        recorder.forget("main");
        recorder.flush();
        let store = UsageDatabase::open(folder.path()).unwrap();
        assert!(store.tools("main", 0).unwrap().is_empty());
        let today = day_of(unix_ms(SystemTime::now()));
        assert!(!store.days(today - 1).unwrap().is_empty());
    }

    #[test]
    fn a_recorder_that_is_off_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let settings = UsageSettings {
            enabled: Some(false),
            ..UsageSettings::default()
        };
        let recorder = Recorder::start(folder.path(), "main", &settings);
        recorder.called(call("s/a", None));
        recorder.flush();
        assert!(!recorder.is_on() && !folder.path().join(FILE_NAME).exists());
    }
}
