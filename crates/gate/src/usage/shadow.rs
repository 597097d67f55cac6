//! Second answers to live searches: what is handed over for them, and what is kept of them.
//!
//! A shadow is a copy of a catalog that differs from it in what its owner thinks about: embedders,
//! ranker, words or settings. Whoever answers a search of the catalog hands it to a [`Shadow`], if it
//! is drawn. A thread (`finder::shadow`) computes the second answer later and keeps figures only.

mod comparisons;
pub mod report;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use toolscout_index::{Query, Results, Searcher, ToolId};

use super::database::{UsageDatabase, UsageError};
use super::event::{CallUse, Origin, Place};
use super::queue::{Receiver, Sender, bounded};

pub use super::compared::{ShadowFigures, Shown};
pub use comparisons::{Comparisons, MAX_WAITING};

/// Events that wait for the thread; more are dropped and counted.
const MAX_EVENTS: usize = 1_024;
/// How long the end of the program waits for the thread, which may be storing a large catalog.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// What gives second answers.
pub struct SecondSearch<'a> {
    /// The shadow.
    pub searcher: &'a Searcher,
    /// Whether the ranker orders the hits.
    pub is_ranked: bool,
}

impl SecondSearch<'_> {
    /// Answers a query; `None` if that fails.
    pub fn answer(&self, query: Query) -> Option<Results> {
        let query = match self.is_ranked {
            true => query,
            false => query.without_ranker(),
        };
        self.searcher.search(&query).ok()
    }
}

/// Repeats a search; `None` if that fails.
pub type Repeat = Box<dyn FnOnce(&SecondSearch<'_>) -> Option<Shown> + Send>;

/// A live search that gets a second answer.
pub struct ComparedSearch {
    /// Who searched.
    pub origin: Origin,
    /// The id of the request, if feedback may name it.
    pub request: Option<String>,
    /// The live answer.
    pub shown: Shown,
    /// Gives the second one.
    pub repeat: Repeat,
}

impl ComparedSearch {
    /// What a call names that follows this search.
    fn follower(&self) -> Option<Follower> {
        match (&self.request, &self.origin.session) {
            (Some(request), _) => Some(Follower::Request(request.clone())),
            (None, Some(session)) => {
                Some(Follower::Session(self.origin.who.clone(), session.clone()))
            }
            (None, None) => None,
        }
    }
}

/// To which searches a call may belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follower {
    /// Those of a session, with the caller.
    Session(String, String),
    /// That of one request.
    Request(String),
}

/// What the thread is told.
pub enum Event {
    /// A search was answered.
    Searched(i64, Box<ComparedSearch>),
    /// A tool was called.
    Called(i64, Box<(Follower, ToolId)>),
    /// The catalog was deleted.
    Deleted,
    /// The program ends.
    End,
}

/// How far the shadow is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShadowState {
    /// The catalog is not open yet.
    #[default]
    Waiting,
    /// It is being made, or follows a change.
    Making,
    /// It answers.
    Ready,
    /// It does not answer, for this reason.
    Failed(String),
}

impl ShadowState {
    /// The word in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            ShadowState::Waiting => "waiting",
            ShadowState::Making => "making",
            ShadowState::Ready => "ready",
            ShadowState::Failed(_) => "failed",
        }
    }
}

/// Which shadow it is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The catalog.
    pub catalog: String,
    /// The hash of all that differs.
    pub id: String,
    /// What differs, in a few words each.
    pub differences: Vec<String>,
    /// The share of the searches that get a second answer.
    pub share: f64,
}

/// Hands live searches to the thread that gives second answers. Cheap to clone.
///
/// - Guarantee: nobody waits for it, and no answer depends on it.
/// - Cost: a draw for each search of the catalog; for those that are drawn, a copy of the query and a
///   message in a queue.
#[derive(Clone)]
pub struct Shadow(Arc<Shared>);

struct Shared {
    identity: Identity,
    is_default: bool,
    /// A search is drawn whose number is below this.
    below: u64,
    draws: AtomicU64,
    seed: u64,
    queue: Sender<Event>,
    is_ready: AtomicBool,
    state: Mutex<ShadowState>,
    unwritten: Mutex<ShadowFigures>,
    /// Searches in the queue, and those that the thread has taken.
    queued: AtomicU64,
    waiting: AtomicU64,
    dropped: AtomicU64,
    cpu_us: AtomicU64,
    generation: Mutex<Option<u64>>,
    phase: Mutex<Phase>,
    changed: Condvar,
}

/// How far the end of the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Works,
    Ends,
    /// The thread has written what it had.
    HasEnded,
}

impl Shadow {
    /// A shadow, and what its thread reads.
    pub fn new(identity: Identity, default_catalog: &str) -> (Self, Receiver<Event>) {
        let (queue, events) = bounded(MAX_EVENTS);
        let shared = Shared {
            is_default: identity.catalog == default_catalog,
            // Saturates for a share of 1, which so draws all but one in 2^64.
            below: (identity.share * u64::MAX as f64) as u64,
            identity,
            draws: AtomicU64::new(0),
            seed: RandomState::new().hash_one(0),
            queue,
            is_ready: AtomicBool::new(false),
            state: Mutex::default(),
            unwritten: Mutex::default(),
            queued: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            cpu_us: AtomicU64::new(0),
            generation: Mutex::default(),
            phase: Mutex::new(Phase::Works),
            changed: Condvar::new(),
        };
        (Shadow(Arc::new(shared)), events)
    }

    /// Which it is.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Whether it is of this place's catalog.
    fn is_of(&self, place: &Place) -> bool {
        match &place.catalog {
            Some(catalog) => *catalog == self.0.identity.catalog,
            None => self.0.is_default,
        }
    }

    /// Whether a search is to be handed over.
    pub fn draws(&self, place: &Place) -> bool {
        if !self.0.is_ready.load(Ordering::Relaxed) || !self.is_of(place) {
            return false;
        }
        let number = self.0.draws.fetch_add(1, Ordering::Relaxed);
        mixed(number.wrapping_add(self.0.seed)) <= self.0.below && self.0.below > 0
    }

    /// Hands over a search that was drawn.
    pub fn searched(&self, at_ms: i64, search: ComparedSearch) {
        // Counted first, since the thread may take it at once.
        self.0.queued.fetch_add(1, Ordering::Relaxed);
        if !self.0.queue.try_send(Event::Searched(at_ms, search.into())) {
            self.0.queued.fetch_sub(1, Ordering::Relaxed);
            self.drop_one();
        }
    }

    /// Hands over a call. Those that belong to no search that was drawn are of no use.
    pub fn called(&self, at_ms: i64, call: &CallUse) {
        let Some(session) = &call.origin.session else {
            return;
        };
        if self.is_of(&call.origin.place) {
            let follower = Follower::Session(call.origin.who.clone(), session.clone());
            self.send_call(at_ms, follower, &call.tool);
        }
    }

    /// Hands over which tool a client used for the answer to a request.
    pub fn used(&self, at_ms: i64, place: &Place, request: &str, tool: &ToolId) {
        if self.is_of(place) {
            self.send_call(at_ms, Follower::Request(request.to_owned()), tool);
        }
    }

    fn send_call(&self, at_ms: i64, follower: Follower, tool: &ToolId) {
        // No search was handed over, so the call belongs to none.
        if !self.0.is_ready.load(Ordering::Relaxed) {
            return;
        }
        let event = Event::Called(at_ms, Box::new((follower, tool.clone())));
        if !self.0.queue.try_send(event) {
            self.drop_one();
        }
    }

    /// Counts what is not compared, because it came too fast.
    pub fn drop_one(&self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// What was not compared since the start, because it came too fast.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Says how far the shadow is. Searches are handed over while it answers.
    pub fn set_state(&self, state: ShadowState) {
        let is_ready = state == ShadowState::Ready;
        *self.0.state.lock() = state;
        self.0.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn state(&self) -> ShadowState {
        self.0.state.lock().clone()
    }

    /// Says which generation of the catalog the shadow has.
    pub fn set_generation(&self, generation: Option<u64>) {
        *self.0.generation.lock() = generation;
    }

    /// Which generation of the catalog the shadow has; `None` until it has one.
    pub fn generation(&self) -> Option<u64> {
        *self.0.generation.lock()
    }

    /// Says that the thread has taken a search from the queue, and how many wait there now.
    pub fn taken(&self, waiting: usize) {
        // In this order, so that a search that waits is always counted.
        self.set_waiting(waiting);
        self.0.queued.fetch_sub(1, Ordering::Release);
    }

    /// Says how many searches that the thread has taken wait for a second answer.
    pub fn set_waiting(&self, searches: usize) {
        self.0.waiting.store(searches as u64, Ordering::Release);
    }

    /// How many searches wait for a second answer.
    pub fn waiting(&self) -> u64 {
        let queued = self.0.queued.load(Ordering::Acquire);
        queued + self.0.waiting.load(Ordering::Acquire)
    }

    /// Adds CPU time of the thread.
    pub fn add_cpu(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.cpu_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The CPU time of the thread since the start.
    pub fn cpu(&self) -> Duration {
        Duration::from_micros(self.0.cpu_us.load(Ordering::Relaxed))
    }

    /// Adds figures, which [`Shadow::write`] writes later.
    pub fn add(&self, figures: &ShadowFigures) {
        self.0.unwritten.lock().add(figures);
    }

    /// Writes what is not written yet, as of this day.
    ///
    /// # Errors
    /// [`UsageError`]; the figures are then kept for the next time.
    pub fn write(&self, store: &mut UsageDatabase, day: i64) -> Result<(), UsageError> {
        // Locked until they are written, so that no reader misses them or counts them twice.
        let mut unwritten = self.0.unwritten.lock();
        if *unwritten == ShadowFigures::default() {
            return Ok(());
        }
        let Identity { catalog, id, .. } = &self.0.identity;
        store.write_shadow(catalog, id, day, &unwritten)?;
        *unwritten = ShadowFigures::default();
        Ok(())
    }

    /// The figures by day since this one, with what is not written yet as of `today`.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn figures(
        &self,
        store: Option<&UsageDatabase>,
        since: i64,
        today: i64,
    ) -> Result<Vec<(i64, ShadowFigures)>, UsageError> {
        // Locked while the database is read: what is written meanwhile would count twice.
        let unwritten = self.0.unwritten.lock();
        let Identity { catalog, id, .. } = &self.0.identity;
        let mut days = match store {
            Some(store) => store.shadow(catalog, id, since)?,
            None => Vec::new(),
        };
        if *unwritten != ShadowFigures::default() {
            match days.last_mut() {
                Some((day, figures)) if *day == today => figures.add(&unwritten),
                _ => days.push((today, *unwritten)),
            }
        }
        Ok(days)
    }

    /// Forgets what is known of the catalog if it is this one, and tells the thread that it was deleted.
    pub fn forget(&self, catalog: &str) {
        if catalog == self.0.identity.catalog {
            self.set_state(ShadowState::Waiting);
            *self.0.unwritten.lock() = ShadowFigures::default();
            self.0.queue.send_urgently(Event::Deleted);
        }
    }

    /// Tells the thread that the program ends. It stops whatever it does.
    pub fn stop(&self) {
        self.set_state(ShadowState::Waiting);
        self.enter(Phase::Ends);
        self.0.queue.send_urgently(Event::End);
    }

    /// Stops the thread, and waits a moment until it has written what it has.
    pub fn end(&self) {
        self.stop();
        self.wait_for(Phase::HasEnded, LAST_WRITE);
    }

    /// Says that the thread has ended.
    pub fn set_ended(&self) {
        self.enter(Phase::HasEnded);
    }

    /// Whether the program ends.
    pub fn has_ended(&self) -> bool {
        *self.0.phase.lock() >= Phase::Ends
    }

    /// Waits for so long, or until the program ends.
    pub fn pause(&self, time: Duration) {
        self.wait_for(Phase::Ends, time);
    }

    fn enter(&self, phase: Phase) {
        let mut present = self.0.phase.lock();
        // The thread may have ended before it was told to.
        *present = phase.max(*present);
        self.0.changed.notify_all();
    }

    fn wait_for(&self, phase: Phase, time: Duration) {
        let until = Instant::now() + time;
        let mut present = self.0.phase.lock();
        while *present < phase {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.0.changed.wait_for(&mut present, left);
        }
    }
}

/// A number whose bits depend on all bits of this one (the finalizer of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow(share: f64) -> (Shadow, Receiver<Event>) {
        let identity = Identity {
            catalog: "main".to_owned(),
            id: "1".to_owned(),
            share,
            ..Identity::default()
        };
        Shadow::new(identity, "main")
    }

    fn search() -> ComparedSearch {
        ComparedSearch {
            origin: Origin::default(),
            request: None,
            shown: Shown::default(),
            repeat: Box::new(|_| None),
        }
    }

    #[test]
    fn the_share_of_the_catalogs_searches_is_drawn_while_the_shadow_answers() {
        let here = Place::default();
        let elsewhere = Place {
            catalog: Some("other".to_owned()),
            profile: None,
        };
        for (share, least, most) in [(0.0, 0, 0), (0.1, 800, 1_200), (1.0, 10_000, 10_000)] {
            let (shadow, _events) = shadow(share);
            assert!(!shadow.draws(&here), "it does not answer yet");
            shadow.set_state(ShadowState::Ready);
            let drawn = (0..10_000).filter(|_| shadow.draws(&here)).count();
            assert!((least..=most).contains(&drawn), "{share}: {drawn}");
            assert!(!shadow.draws(&elsewhere));
        }
    }

    #[test]
    fn what_finds_the_queue_full_is_dropped_and_counted() {
        let (shadow, events) = shadow(1.0);
        for _ in 0..MAX_EVENTS + 3 {
            shadow.searched(1, search());
        }
        assert_eq!(shadow.dropped(), 3);
        assert_eq!(shadow.waiting(), MAX_EVENTS as u64);
        let taken = events.take(Some(Duration::ZERO)).unwrap();
        assert_eq!(taken.len(), MAX_EVENTS);
    }

    #[test]
    fn figures_that_are_not_written_yet_are_read_too_and_a_deleted_catalog_loses_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        let (shadow, _events) = shadow(1.0);
        let one = ShadowFigures {
            searches: 1,
            ..ShadowFigures::default()
        };
        let days = |shadow: &Shadow, store: &UsageDatabase| {
            let days = shadow.figures(Some(store), 0, 8).unwrap();
            let days = days.into_iter();
            days.map(|(day, figures)| (day, figures.searches))
                .collect::<Vec<_>>()
        };
        shadow.add(&one);
        shadow.write(&mut store, 7).unwrap();
        shadow.add(&one);
        assert_eq!(days(&shadow, &store), [(7, 1), (8, 1)]);
        shadow.write(&mut store, 8).unwrap();
        shadow.add(&one);
        assert_eq!(days(&shadow, &store), [(7, 1), (8, 2)]);
        shadow.forget("main");
        store.forget("main").unwrap();
        assert_eq!(days(&shadow, &store), []);
    }

    #[test]
    fn a_pause_ends_with_the_program() {
        let (shadow, _events) = shadow(1.0);
        let ending = shadow.clone();
        let thread = std::thread::spawn(move || ending.stop());
        shadow.pause(Duration::from_secs(3_600));
        assert!(shadow.has_ended());
        thread.join().unwrap();
    }
}
