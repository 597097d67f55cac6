//! Things that only one thread may use at a time, as many of them as are used at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Makes a `T` when one is wanted and none is idle, up to a bound; then callers wait for one to
/// come back.
pub(super) struct Pool<T> {
    make: Box<dyn Fn() -> Result<T> + Send + Sync>,
    limit: usize,
    state: Mutex<State<T>>,
    returned: Condvar,
}

struct State<T> {
    idle: Vec<T>,
    /// Idle or lent.
    made: usize,
}

impl<T> Pool<T> {
    /// A pool that holds `first` and makes the others, `limit` in all.
    pub(super) fn new(
        first: T,
        limit: usize,
        make: impl Fn() -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State {
            idle: vec![first],
            made: 1,
        });
        Pool {
            make: Box::new(make),
            limit,
            state,
            returned: Condvar::new(),
        }
    }

    /// Most of them at a time.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Uses one of them, which is back in the pool afterwards. One whose use panicked is not used
    /// again.
    ///
    /// # Errors
    /// What making one more gave.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R> {
        let place = Place { pool: self };
        let mut lent = self.take()?;
        let done = work(&mut lent);
        std::mem::forget(place);
        self.lock().idle.push(lent);
        self.returned.notify_one();
        Ok(done)
    }

    fn take(&self) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(idle) = state.idle.pop() {
                return Ok(idle);
            }
            if state.made < self.limit {
                state.made += 1;
                break;
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // Making one takes long; the lock is not held meanwhile.
        drop(state);
        (self.make)()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a `T` that is lent. Dropping it gives the place to another, for it was not made or
/// is lost.
struct Place<'a, T> {
    pool: &'a Pool<T>,
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        self.pool.lock().made -= 1;
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::Error;

    fn made_and_idle<T>(pool: &Pool<T>) -> (usize, usize) {
        let state = pool.lock();
        (state.made, state.idle.len())
    }

    #[test]
    fn what_is_used_at_once_is_made_and_no_more() {
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
        assert_eq!(made_and_idle(&pool), (2, 2));
    }

    #[test]
    fn one_after_another_use_the_same() {
        let made = AtomicUsize::new(0);
        let pool = Pool::new(0, 4, || Ok(7));
        for _ in 0..3 {
            pool.with(|one| made.fetch_max(*one as usize, Ordering::Relaxed))
                .unwrap();
        }
        assert_eq!(made.into_inner(), 0);
    }

    #[test]
    fn a_failed_making_and_a_panic_leave_room_for_another() {
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
        assert_eq!(made_and_idle(&pool), (0, 0));
    }
}
