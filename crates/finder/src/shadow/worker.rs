//! The thread of a shadow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use toolscout_base::clock::{day_of, unix_ms};
use toolscout_gate::usage::shadow::{Comparisons, Event, SecondSearch, Shadow, ShadowState};
use toolscout_gate::usage::{Receiver, UsageDatabase};
use toolscout_index::{Error, Options};

use super::copy::{Copy, Making, shadows};
use super::pace::Pace;
use super::{Original, Plan, Surroundings};

/// How often the catalog is looked at while nothing is to be done.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long second answers are given before events are taken again.
const TURN: Duration = Duration::from_secs(1);
/// How long the thread waits while searches do.
const BUSY: Duration = Duration::from_millis(50);
/// How long after a failure it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How often figures are written.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Makes a shadow, keeps it up to date and compares.
pub struct Worker {
    shadow: Shadow,
    store: UsageDatabase,
    data: PathBuf,
    plan: Plan,
    surroundings: Box<dyn Surroundings>,
    /// The plan's own embedders, once they are loaded.
    loaded: Option<Options>,
    copy: Option<Copy>,
    comparisons: Comparisons,
    written: Instant,
    /// When it tries again after a failure.
    retry_at: Option<Instant>,
    is_failing: bool,
}

/// Says at the end of the thread that there are no more answers.
struct Ended(Shadow);

impl Drop for Ended {
    fn drop(&mut self) {
        let reason = "its thread has ended; the log of the program says why";
        self.0.set_state(ShadowState::Failed(reason.to_owned()));
        self.0.set_ended();
    }
}

impl Worker {
    /// A worker that has done nothing yet.
    pub fn new(
        shadow: Shadow,
        store: UsageDatabase,
        data: &Path,
        plan: Plan,
        surroundings: Box<dyn Surroundings>,
    ) -> Self {
        Worker {
            shadow,
            store,
            data: data.to_owned(),
            plan,
            surroundings,
            loaded: None,
            copy: None,
            comparisons: Comparisons::default(),
            written: Instant::now(),
            retry_at: None,
            is_failing: false,
        }
    }

    /// Works until the program ends.
    pub fn run(mut self, events: &Receiver<Event>) {
        let _ended = Ended(self.shadow.clone());
        let pace = Arc::new(Pace::new(self.shadow.clone()));
        let mut patience = Duration::ZERO;
        while let Some(taken) = events.take(Some(patience)) {
            for event in taken {
                self.take(event);
            }
            if self.shadow.has_ended() {
                break;
            }
            patience = self.work(&pace);
            self.shadow.set_waiting(self.comparisons.waiting());
            pace.rest();
            if self.written.elapsed() >= WRITE_EVERY {
                self.write();
            }
        }
        self.write();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Searched(at_ms, search) => {
                if !self.comparisons.searched(at_ms, *search) {
                    self.shadow.drop_one();
                }
                self.shadow.taken(self.comparisons.waiting());
            }
            Event::Called(at_ms, call) => {
                let figures = self.comparisons.called(at_ms, &call.0, &call.1);
                self.shadow.add(&figures);
            }
            Event::Deleted => self.forget(),
            Event::End => {}
        }
    }

    /// Does what is to be done, and returns how long there is nothing to do.
    pub fn work(&mut self, pace: &Arc<Pace>) -> Duration {
        if let Some(at) = self.retry_at
            && at > Instant::now()
        {
            return LOOK_EVERY;
        }
        let Some(original) = self.surroundings.original() else {
            self.shadow.set_state(ShadowState::Waiting);
            return LOOK_EVERY;
        };
        if !self.surroundings.is_idle() {
            return BUSY;
        }
        if original.is_pushed_down() {
            return self.fail(pushed_down(&self.plan.identity.catalog));
        }
        match self.follow(&*original, pace) {
            Ok(()) => self.retry_at = None,
            // Another process makes the same shadow.
            Err(Error::Locked { .. }) => return LOOK_EVERY,
            Err(_) if self.shadow.has_ended() => return LOOK_EVERY,
            Err(error) => return self.fail(error.to_string()),
        }
        self.compare(pace);
        match self.comparisons.waiting() {
            0 => LOOK_EVERY,
            _ => Duration::ZERO,
        }
    }

    /// Brings the copy up to date.
    fn follow(&mut self, original: &dyn Original, pace: &Arc<Pace>) -> Result<(), Error> {
        let making = Making {
            options: self.options(original)?,
            plan: &self.plan,
            original,
            pace,
        };
        let copy = match &mut self.copy {
            Some(copy) => copy,
            none => {
                self.shadow.set_state(ShadowState::Making);
                none.insert(Copy::open(&self.data, &making)?)
            }
        };
        // Vectors that the catalog is about to have need not be computed here.
        if self.plan.embedders.is_none() && original.snapshot().pending_embeddings() > 0 {
            self.shadow.set_state(ShadowState::Making);
            return Ok(());
        }
        // A search that is answered meanwhile waits for a second answer, by what it was answered from.
        if !copy.is_current(&making) {
            copy.follow(&making)?;
        }
        if !self.shadow.has_ended() && copy.is_current(&making) {
            self.shadow.set_generation(copy.generation());
            self.shadow.set_state(ShadowState::Ready);
        }
        Ok(())
    }

    /// The embedders of the copy.
    fn options(&mut self, original: &dyn Original) -> Result<Options, Error> {
        let Some(load) = &self.plan.embedders else {
            return Ok(original.options());
        };
        let options = self.loaded.get_or_insert_with(load).clone();
        match &options.missing_embedder {
            None => Ok(options),
            Some(reason) => {
                // It may be there the next time.
                self.loaded = None;
                let named = self.plan.changes.embedder.as_ref();
                Err(Error::Embedder {
                    model: named.map(ToString::to_string).unwrap_or_default(),
                    reason: reason.clone(),
                })
            }
        }
    }

    /// Gives second answers, for a while.
    fn compare(&mut self, pace: &Pace) {
        let Some(copy) = &self.copy else { return };
        if self.shadow.state() != ShadowState::Ready {
            return;
        }
        let searcher = copy.searcher();
        let second = SecondSearch {
            searcher: &searcher,
            is_ranked: self.plan.is_ranked(),
        };
        let until = Instant::now() + TURN;
        while Instant::now() < until && self.surroundings.is_idle() && !self.shadow.has_ended() {
            // A panic of one search is not to end all.
            let answered = self.comparisons.answer_next(|repeat| {
                catch_unwind(AssertUnwindSafe(|| repeat(&second))).unwrap_or_default()
            });
            let Some(figures) = answered else { return };
            self.shadow.add(&figures);
            self.shadow.set_waiting(self.comparisons.waiting());
            pace.rest();
        }
    }

    /// Gives up until later.
    fn fail(&mut self, reason: String) -> Duration {
        // Told once, and not at each attempt.
        if self.shadow.state() != ShadowState::Failed(reason.clone()) {
            let catalog = &self.plan.identity.catalog;
            tracing::warn!(catalog, reason, "the shadow does not answer");
            self.shadow.set_state(ShadowState::Failed(reason));
        }
        self.retry_at = Some(Instant::now() + RETRY_AFTER);
        LOOK_EVERY
    }

    /// The catalog was deleted: nothing is left of it.
    fn forget(&mut self) {
        self.comparisons = Comparisons::default();
        self.copy = None;
        let deleted = shadows(&self.data).delete(&self.plan.identity.id);
        if let Err(error) = deleted
            && !matches!(error, Error::UnknownCatalog { .. })
        {
            tracing::warn!(%error, "the shadow of a deleted catalog stays for now");
        }
    }

    fn write(&mut self) {
        let today = day_of(unix_ms(SystemTime::now()));
        let written = self.shadow.write(&mut self.store, today);
        let has_failed = written.is_err();
        if let Err(error) = written
            && !self.is_failing
        {
            tracing::error!(%error, "figures of the shadow are not recorded");
        }
        self.is_failing = has_failed;
        self.written = Instant::now();
    }
}

fn pushed_down(catalog: &str) -> String {
    format!(
        "the tools of the catalog {catalog:?} are looked for in the store, and a shadow needs them here; name another \
         catalog in shadow.catalog, or raise push_down_above"
    )
}
