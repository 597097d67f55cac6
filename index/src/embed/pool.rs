//! A bounded pool of values that one thread at a time may use.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Creates a `T` when none is idle, up to a limit; beyond it callers wait for one to be returned.
pub(super) struct Pool<T> {
    create: Box<dyn Fn() -> Result<T> + Send + Sync>,
    limit: usize,
    state: Mutex<State<T>>,
    returned: Condvar,
}

struct State<T> {
    idle: Vec<T>,
    /// Idle and in use.
    created: usize,
}

impl<T> Pool<T> {
    /// A pool with `first` in it that creates up to `limit` values.
    pub(super) fn new(
        first: T,
        limit: usize,
        create: impl Fn() -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State {
            idle: vec![first],
            created: 1,
        });
        Pool {
            create: Box::new(create),
            limit,
            state,
            returned: Condvar::new(),
        }
    }

    /// The most values in use at a time.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Runs `work` with a value and returns the value to the pool. A value whose use panicked is
    /// dropped.
    ///
    /// # Errors
    /// The error of creating a value.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R> {
        // Before `take`, so that a failing `create` gives its place back.
        let slot = Slot { pool: self };
        let mut taken = self.take()?;
        let done = work(&mut taken);
        // Reached without a panic only: the value goes back, so its place stays taken.
        std::mem::forget(slot);
        self.lock().idle.push(taken);
        self.returned.notify_one();
        Ok(done)
    }

    fn take(&self) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(idle) = state.idle.pop() {
                return Ok(idle);
            }
            if state.created < self.limit {
                // Counted before it exists, so that callers at the same time cannot exceed the
                // limit.
                state.created += 1;
                break;
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // Creating a value takes long, so the lock is released first.
        drop(state);
        (self.create)()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held, so a poisoned state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of a value in use. Dropping it frees the slot, as the value was not created or is lost.
struct Slot<'a, T> {
    pool: &'a Pool<T>,
}

impl<T> Drop for Slot<'_, T> {
    fn drop(&mut self) {
        self.pool.lock().created -= 1;
        // A waiter may now create a value.
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    fn created_and_idle<T>(pool: &Pool<T>) -> (usize, usize) {
        let state = pool.lock();
        (state.created, state.idle.len())
    }

    #[test]
    fn creates_only_as_many_as_are_used_at_once() {
        let pool = Pool::new(0, 2, || Ok(1));
        let both = Barrier::new(2);
        let meet = |_: &mut i32| both.wait();
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| pool.with(meet).unwrap())))
        });
        assert_eq!(pool.lock().idle.len(), 2);
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| pool.with(|_| ()).unwrap())))
        });
        assert_eq!(created_and_idle(&pool), (2, 2));
    }

    #[test]
    fn an_idle_value_is_reused() {
        let made = AtomicUsize::new(0);
        let pool = Pool::new(0, 4, || Ok(7));
        for _ in 0..3 {
            pool.with(|one| made.fetch_max(*one as usize, Ordering::Relaxed))
                .unwrap();
        }
        assert_eq!(made.into_inner(), 0);
    }

    #[test]
    fn an_error_or_a_panic_frees_the_slot() {
        let broken = || {
            Err(Error::Embedder {
                model: "m".into(),
                reason: "no".into(),
            })
        };
        let pool = Pool::new((), 2, broken);
        let inner = pool.with(|()| pool.with(|()| ()).is_err()).unwrap();
        assert!(inner);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.with(|()| panic!("asked to"))
        }));
        assert!(panicked.is_err());
        assert_eq!(created_and_idle(&pool), (0, 0));
    }
}
