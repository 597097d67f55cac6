//! One lock for each catalog's name, for opening, closing and deleting it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by name. A name that nobody has locked takes no memory.
#[derive(Default)]
pub struct NameLocks {
    locks: Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>,
}

/// A name that is locked until this is dropped.
pub struct NameGuard {
    name: String,
    /// `None` once it was released.
    guard: Option<OwnedMutexGuard<()>>,
    locks: Arc<Mutex<HashMap<String, Arc<AsyncMutex<()>>>>>,
}

impl NameLocks {
    /// Waits until nobody else has this name locked.
    pub async fn lock(&self, name: &str) -> NameGuard {
        let lock = self.of(name);
        let waiting = Waiting {
            locks: self,
            name,
            lock: Some(Arc::clone(&lock)),
        };
        let guard = lock.lock_owned().await;
        drop(waiting);
        self.guard(name, guard)
    }

    /// Locks this name unless it is locked.
    pub fn try_lock(&self, name: &str) -> Option<NameGuard> {
        let mut locks = self.locks.lock();
        let found = Arc::clone(locks.entry(name.to_owned()).or_default());
        match found.try_lock_owned() {
            Ok(guard) => Some(self.guard(name, guard)),
            Err(_) => {
                forget_unused(&mut locks, name);
                None
            }
        }
    }

    fn of(&self, name: &str) -> Arc<AsyncMutex<()>> {
        Arc::clone(self.locks.lock().entry(name.to_owned()).or_default())
    }

    fn guard(&self, name: &str, guard: OwnedMutexGuard<()>) -> NameGuard {
        NameGuard {
            name: name.to_owned(),
            guard: Some(guard),
            locks: Arc::clone(&self.locks),
        }
    }
}

impl NameGuard {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        // The guard holds a reference to the lock, so it is dropped before references are counted.
        let mut locks = self.locks.lock();
        drop(self.guard.take());
        forget_unused(&mut locks, &self.name);
    }
}

/// Somebody who waits for a lock, and may give up.
struct Waiting<'a> {
    locks: &'a NameLocks,
    name: &'a str,
    lock: Option<Arc<AsyncMutex<()>>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.locks.lock();
        drop(self.lock.take());
        forget_unused(&mut locks, self.name);
    }
}

/// Forgets a lock that nobody has or waits for. All copies are made and dropped under `locks`.
fn forget_unused(locks: &mut HashMap<String, Arc<AsyncMutex<()>>>, name: &str) {
    if let Some(lock) = locks.get(name)
        && Arc::strong_count(lock) == 1
    {
        locks.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_has_one_holder_and_leaves_nothing_behind() {
        let locks = NameLocks::default();
        let held = locks.lock("a").await;
        assert!(locks.try_lock("a").is_none());
        assert!(locks.try_lock("b").is_some());
        {
            let waiting = locks.lock("a");
            tokio::pin!(waiting);
            assert!(futures_util::poll!(&mut waiting).is_pending());
        }
        drop(held);
        assert!(locks.locks.lock().is_empty(), "one gave up waiting");
        drop(locks.lock("a").await);
        assert!(locks.try_lock("a").is_some());
        assert!(locks.locks.lock().is_empty());
    }
}
