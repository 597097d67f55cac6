//! Runs the work of any number of catalogs on a few threads.
//!
//! A task has one turn at a time, is queued at most once, and goes to the end of the queue after each
//! turn: a catalog with much to do takes turns with the others. Changes and embedding have queues
//! and threads of their own, so that no change waits for a model.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Threads that commit changes and read those of others. More than cores: a commit waits for the
/// disk or for the store.
const CHANGE_THREADS: usize = 4;
/// Threads that embed. A model uses the cores by itself, and an endpoint is waited for.
const EMBEDDING_THREADS: usize = 4;
/// How often tasks without a turn are asked for news.
const NEWS_INTERVAL: Duration = Duration::from_secs(1);

/// The work of one catalog.
pub trait Task: Send + Sync {
    /// Does some of it. `is_wanted` tells during long work whether other tasks wait for the thread.
    fn turn(&self, lane: Lane, is_wanted: &dyn Fn() -> bool) -> Next;

    /// True when there is something to do that nobody has announced. Asked about once a second while
    /// the task has no turn; must be cheap.
    fn has_news(&self) -> bool;
}

/// What a turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Changes, and reading those of others.
    Changes,
    /// Embedding.
    Embedding,
}

/// When a task wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When it is called.
    Idle,
    /// For changes, when it is due.
    Changes,
    /// For embedding, from then on.
    Embedding(Instant),
}

/// A task of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// The threads and the queues.
pub struct Pool {
    state: Mutex<Queues>,
    /// Wakes threads of each lane, the one that keeps the time, and those that wait for an end.
    changes_due: Condvar,
    embedding_due: Condvar,
    timer_changed: Condvar,
    task_ended: Condvar,
}

#[derive(Default)]
struct Queues {
    tasks: HashMap<TaskId, Entry>,
    changes: VecDeque<TaskId>,
    embedding: VecDeque<TaskId>,
    /// When idle tasks want to embed.
    timers: BTreeSet<(Instant, TaskId)>,
    last_id: u64,
    is_stopped: bool,
}

struct Entry {
    task: Arc<dyn Task>,
    phase: Phase,
    /// True while its id is in the queue for embedding, even if it has left it for its changes.
    is_in_embedding_queue: bool,
    timer: Option<Instant>,
    /// True once it gets no turns but for changes that are queued.
    is_ending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Queued(Lane),
    Running,
    /// Running, and called meanwhile.
    RunningCalled,
}

impl Pool {
    /// The pool of this process, started when it is first asked for.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn shared() -> io::Result<Arc<Pool>> {
        static SHARED: Mutex<Option<Arc<Pool>>> = Mutex::new(None);
        let mut shared = SHARED.lock();
        if let Some(pool) = &*shared {
            return Ok(Arc::clone(pool));
        }
        let pool = Pool::start(CHANGE_THREADS, EMBEDDING_THREADS)?;
        *shared = Some(Arc::clone(&pool));
        Ok(pool)
    }

    /// A pool with this many threads for each lane.
    ///
    /// # Errors
    /// When the system cannot start a thread; none is left then.
    pub fn start(changes: usize, embedding: usize) -> io::Result<Arc<Pool>> {
        let pool = Arc::new(Pool {
            state: Mutex::default(),
            changes_due: Condvar::new(),
            embedding_due: Condvar::new(),
            timer_changed: Condvar::new(),
            task_ended: Condvar::new(),
        });
        if let Err(error) = pool.start_threads(changes, embedding) {
            // Threads that were started would wait forever and keep the pool alive.
            pool.stop();
            return Err(error);
        }
        Ok(pool)
    }

    fn start_threads(self: &Arc<Self>, changes: usize, embedding: usize) -> io::Result<()> {
        for (lane, name, count) in [
            (Lane::Changes, "write", changes),
            (Lane::Embedding, "embed", embedding),
        ] {
            for number in 1..=count {
                let pool = Arc::clone(self);
                std::thread::Builder::new()
                    .name(format!("{name} {number}"))
                    .spawn(move || pool.work(lane))?;
            }
        }
        let pool = Arc::clone(self);
        std::thread::Builder::new()
            .name("write timer".to_owned())
            .spawn(move || pool.keep_time())?;
        Ok(())
    }

    /// Ends the threads after their turns.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        for condvar in [
            &self.changes_due,
            &self.embedding_due,
            &self.timer_changed,
            &self.task_ended,
        ] {
            condvar.notify_all();
        }
    }

    /// Adds a task, which wants its first turn at `next`.
    pub fn add(&self, task: Arc<dyn Task>, next: Next) -> TaskId {
        let mut state = self.state.lock();
        state.last_id += 1;
        let id = TaskId(state.last_id);
        let entry = Entry {
            task,
            // As if it had just had a turn: `finish` below queues it as `next` says.
            phase: Phase::Running,
            is_in_embedding_queue: false,
            timer: None,
            is_ending: false,
        };
        state.tasks.insert(id, entry);
        drop(self.finish(&mut state, id, next));
        id
    }

    /// Gives a task a turn for its changes. Nothing happens to one that has ended.
    pub fn call(&self, id: TaskId) {
        let mut state = self.state.lock();
        let Some(entry) = state.tasks.get_mut(&id) else {
            return;
        };
        match entry.phase {
            Phase::Idle | Phase::Queued(Lane::Embedding) => {
                self.queue(&mut state, id, Lane::Changes)
            }
            // The turn may have missed the reason of this call, so it gets another one.
            Phase::Running => entry.phase = Phase::RunningCalled,
            Phase::Queued(Lane::Changes) | Phase::RunningCalled => {}
        }
    }

    /// Lets a task end: it gets turns for changes that are queued, and no others.
    pub fn end(&self, id: TaskId) {
        let mut state = self.state.lock();
        let Some(entry) = state.tasks.get_mut(&id) else {
            return;
        };
        entry.is_ending = true;
        let ended = match entry.phase {
            Phase::Idle | Phase::Queued(Lane::Embedding) => self.remove(&mut state, id),
            _ => None,
        };
        drop(state);
        // It may close files.
        drop(ended);
    }

    /// Waits until a task has ended.
    pub fn wait_for_end(&self, id: TaskId) {
        let mut state = self.state.lock();
        while state.tasks.contains_key(&id) && !state.is_stopped {
            self.task_ended.wait(&mut state);
        }
    }

    fn work(&self, lane: Lane) {
        let is_wanted = || !self.state.lock().queue_of(lane).is_empty();
        let mut state = self.state.lock();
        while !state.is_stopped {
            let Some((id, task)) = state.take(lane) else {
                self.due(lane).wait(&mut state);
                continue;
            };
            drop(state);
            let turn = catch_unwind(AssertUnwindSafe(|| task.turn(lane, &is_wanted)));
            drop(task);
            state = self.state.lock();
            let ended = self.finish(&mut state, id, turn.unwrap_or(Next::Idle));
            if ended.is_some() {
                drop(state);
                // It may close files.
                drop(ended);
                state = self.state.lock();
            }
        }
    }

    /// Queues a task after its turn. Returns one that has ended.
    fn finish(&self, state: &mut Queues, id: TaskId, next: Next) -> Option<Entry> {
        let entry = state.tasks.get_mut(&id)?;
        let was_called = entry.phase == Phase::RunningCalled;
        entry.phase = Phase::Idle;
        if was_called || next == Next::Changes {
            self.queue(state, id, Lane::Changes);
            return None;
        }
        if entry.is_ending {
            return self.remove(state, id);
        }
        if let Next::Embedding(at) = next {
            entry.timer = Some(at);
            state.timers.insert((at, id));
            self.timer_changed.notify_one();
        }
        None
    }

    /// Queues a task that has no turn.
    fn queue(&self, state: &mut Queues, id: TaskId, lane: Lane) {
        let Some(entry) = state.tasks.get_mut(&id) else {
            return;
        };
        entry.phase = Phase::Queued(lane);
        // The timer is dropped: after the turn the task says again when to embed.
        if let Some(at) = entry.timer.take() {
            state.timers.remove(&(at, id));
        }
        match lane {
            Lane::Changes => state.changes.push_back(id),
            Lane::Embedding if entry.is_in_embedding_queue => {}
            Lane::Embedding => {
                entry.is_in_embedding_queue = true;
                state.embedding.push_back(id);
            }
        }
        self.due(lane).notify_one();
    }

    fn remove(&self, state: &mut Queues, id: TaskId) -> Option<Entry> {
        let entry = state.tasks.remove(&id)?;
        if let Some(at) = entry.timer {
            state.timers.remove(&(at, id));
        }
        self.task_ended.notify_all();
        Some(entry)
    }

    /// Gives turns for embedding when they are due, and looks for news.
    fn keep_time(&self) {
        let mut look_at = Instant::now() + NEWS_INTERVAL;
        let mut state = self.state.lock();
        while !state.is_stopped {
            let now = Instant::now();
            while let Some(&(at, id)) = state.timers.first()
                && at <= now
            {
                state.timers.pop_first();
                self.queue(&mut state, id, Lane::Embedding);
            }
            if look_at <= now {
                let idle = state.idle();
                // Unlock first: `look_for_news` calls tasks, which takes the lock.
                drop(state);
                self.look_for_news(idle);
                look_at = Instant::now() + NEWS_INTERVAL;
                state = self.state.lock();
                continue;
            }
            let next = match state.timers.first() {
                Some((at, _)) => look_at.min(*at),
                None => look_at,
            };
            let pause = next.saturating_duration_since(now);
            self.timer_changed.wait_for(&mut state, pause);
        }
    }

    fn look_for_news(&self, idle: Vec<(TaskId, Arc<dyn Task>)>) {
        for (id, task) in idle {
            let has_news = catch_unwind(AssertUnwindSafe(|| task.has_news()));
            if has_news.unwrap_or(false) {
                self.call(id);
            }
        }
    }

    fn due(&self, lane: Lane) -> &Condvar {
        match lane {
            Lane::Changes => &self.changes_due,
            Lane::Embedding => &self.embedding_due,
        }
    }
}

impl Queues {
    /// Takes the next task of a lane for a turn.
    fn take(&mut self, lane: Lane) -> Option<(TaskId, Arc<dyn Task>)> {
        while let Some(id) = self.queue_mut(lane).pop_front() {
            let Some(entry) = self.tasks.get_mut(&id) else {
                continue;
            };
            if lane == Lane::Embedding {
                entry.is_in_embedding_queue = false;
            }
            // If the phase is another one, the task moved to the other queue or has a turn already.
            if entry.phase == Phase::Queued(lane) {
                entry.phase = Phase::Running;
                return Some((id, Arc::clone(&entry.task)));
            }
        }
        None
    }

    fn idle(&self) -> Vec<(TaskId, Arc<dyn Task>)> {
        let mut idle = Vec::new();
        for (id, entry) in &self.tasks {
            if let Phase::Idle | Phase::Queued(Lane::Embedding) = entry.phase {
                idle.push((*id, Arc::clone(&entry.task)));
            }
        }
        idle
    }

    fn queue_of(&self, lane: Lane) -> &VecDeque<TaskId> {
        match lane {
            Lane::Changes => &self.changes,
            Lane::Embedding => &self.embedding,
        }
    }

    fn queue_mut(&mut self, lane: Lane) -> &mut VecDeque<TaskId> {
        match lane {
            Lane::Changes => &mut self.changes,
            Lane::Embedding => &mut self.embedding,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Has a number of turns for changes, and tells of each.
    struct Counted {
        name: &'static str,
        left: Mutex<usize>,
        told: Mutex<Sender<&'static str>>,
        /// Waited for in each turn.
        gate: Mutex<Receiver<()>>,
    }

    impl Task for Counted {
        fn turn(&self, _: Lane, _: &dyn Fn() -> bool) -> Next {
            let _ = self.gate.lock().recv();
            self.told.lock().send(self.name).unwrap();
            let mut left = self.left.lock();
            *left -= 1;
            if *left > 0 { Next::Changes } else { Next::Idle }
        }

        fn has_news(&self) -> bool {
            false
        }
    }

    fn counted(
        name: &'static str,
        turns: usize,
        told: &Sender<&'static str>,
    ) -> (Arc<Counted>, Sender<()>) {
        let (open, gate) = channel();
        let task = Counted {
            name,
            left: Mutex::new(turns),
            told: Mutex::new(told.clone()),
            gate: Mutex::new(gate),
        };
        (Arc::new(task), open)
    }

    #[test]
    fn tasks_take_turns() {
        let pool = Pool::start(1, 0).unwrap();
        let (told, heard) = channel();
        let (much, open_much) = counted("much", 3, &told);
        let (little, open_little) = counted("little", 1, &told);
        pool.add(much, Next::Changes);
        pool.add(little, Next::Changes);
        drop((open_much, open_little));
        let order: Vec<_> = heard.iter().take(4).collect();
        assert_eq!(order, ["much", "little", "much", "much"]);
        pool.stop();
    }

    #[test]
    fn a_task_has_one_turn_at_a_time_and_none_is_lost() {
        let pool = Pool::start(4, 0).unwrap();
        let (told, heard) = channel();
        let (task, open) = counted("a", 3, &told);
        let id = pool.add(Arc::clone(&task) as Arc<dyn Task>, Next::Changes);
        // While it waits in its turn, it is called often: that is one turn more.
        while task.gate.try_lock().is_some() {
            std::thread::yield_now();
        }
        *task.left.lock() = 1;
        for _ in 0..10 {
            pool.call(id);
        }
        assert!(heard.try_recv().is_err(), "no other thread has begun");
        *task.left.lock() = 2;
        drop(open);
        assert_eq!(heard.iter().take(2).count(), 2);
        pool.end(id);
        pool.wait_for_end(id);
        assert!(heard.try_recv().is_err());
        pool.stop();
    }

    /// Panics in its first turn.
    struct Panicking(Mutex<Sender<()>>);

    impl Task for Panicking {
        fn turn(&self, _: Lane, _: &dyn Fn() -> bool) -> Next {
            self.0.lock().send(()).unwrap();
            panic!("in a turn");
        }

        fn has_news(&self) -> bool {
            panic!("when asked for news");
        }
    }

    #[test]
    fn a_panic_ends_no_thread() {
        let pool = Pool::start(1, 0).unwrap();
        let (told, heard) = channel();
        let id = pool.add(Arc::new(Panicking(Mutex::new(told))), Next::Changes);
        heard.recv().unwrap();
        let idle = loop {
            let idle = pool.state.lock().idle();
            if !idle.is_empty() {
                break idle;
            }
            std::thread::yield_now();
        };
        pool.look_for_news(idle);
        let (told, heard) = channel();
        let (next, open) = counted("next", 1, &told);
        pool.add(next, Next::Changes);
        drop(open);
        assert_eq!(heard.recv().unwrap(), "next");
        pool.end(id);
        pool.wait_for_end(id);
        pool.stop();
    }

    /// Embeds and tells whether it is wanted.
    struct Embedding(Mutex<Sender<Lane>>);

    impl Task for Embedding {
        fn turn(&self, lane: Lane, _: &dyn Fn() -> bool) -> Next {
            self.0.lock().send(lane).unwrap();
            match lane {
                Lane::Changes => Next::Embedding(Instant::now()),
                Lane::Embedding => Next::Idle,
            }
        }

        fn has_news(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_change_goes_before_embedding_that_waits() {
        // Without a thread for embedding, which therefore waits.
        let pool = Pool::start(1, 0).unwrap();
        let (told, heard) = channel();
        let task = Arc::new(Embedding(Mutex::new(told)));
        let id = pool.add(task, Next::Embedding(Instant::now()));
        for _ in 0..3 {
            pool.call(id);
            assert_eq!(heard.recv().unwrap(), Lane::Changes);
        }
        // However often it has left the queue for embedding, it is in there once at most.
        assert!(pool.state.lock().embedding.len() <= 1);
        pool.end(id);
        pool.wait_for_end(id);
        assert!(pool.state.lock().timers.is_empty());
        pool.stop();
    }
}
