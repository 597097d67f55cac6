//! The catalogs that are open, by name, and which of them to close first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::catalog::OpenCatalog;
use super::name_locks::{NameGuard, NameLocks};

/// So few closed catalogs in the order of use are not worth looking for.
const FEW: usize = 64;

/// The open catalogs.
#[derive(Default)]
pub struct OpenCatalogs {
    by_name: RwLock<HashMap<String, Arc<OpenCatalog>>>,
    order: Mutex<Order>,
    /// Counts uses of catalogs, to order them by last use.
    clock: AtomicU64,
}

/// Each open catalog with a time at which it was used or found in use. Uses cost no change here: the
/// first that was not used since its recorded time is the least recently used.
#[derive(Default)]
struct Order {
    by_use: BinaryHeap<Reverse<Recorded>>,
    last_instance: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Recorded {
    used: u64,
    /// Another one of the same name has another number.
    instance: u64,
    name: String,
}

impl Recorded {
    fn of(open: &OpenCatalog) -> Self {
        Recorded {
            used: open.last_used.load(Ordering::Relaxed),
            instance: open.instance.load(Ordering::Relaxed),
            name: open.name.clone(),
        }
    }

    fn is_of(&self, open: &OpenCatalog) -> bool {
        open.instance.load(Ordering::Relaxed) == self.instance
    }
}

/// A catalog that was taken out to be closed, and its name, which nobody opens until this is dropped.
pub struct Evicted {
    /// The catalog, held by nobody else.
    pub catalog: Arc<OpenCatalog>,
    /// Keeps others from opening it while it is being closed.
    pub name: NameGuard,
}

impl OpenCatalogs {
    /// The catalog of this name, which is used now.
    pub fn find(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        let found = self.by_name.read().get(name).cloned()?;
        self.note_use(&found);
        Some(found)
    }

    /// Adds a catalog that was opened, in place of one of the same name.
    pub fn add(&self, open: OpenCatalog) -> Arc<OpenCatalog> {
        let mut order = self.order.lock();
        order.last_instance += 1;
        open.instance.store(order.last_instance, Ordering::Relaxed);
        let open = Arc::new(open);
        self.note_use(&open);
        order.by_use.push(Reverse(Recorded::of(&open)));
        let mut by_name = self.by_name.write();
        let former = by_name.insert(open.name.clone(), Arc::clone(&open));
        order.forget_closed(&by_name);
        drop((order, by_name));
        // It may close files.
        drop(former);
        open
    }

    /// Takes out the catalog of this name.
    pub fn remove(&self, name: &str) -> Option<Arc<OpenCatalog>> {
        self.by_name.write().remove(name)
    }

    /// Takes out the catalog of this name if it is as `is_wanted` says.
    pub fn remove_if(
        &self,
        name: &str,
        is_wanted: impl FnOnce(&OpenCatalog) -> bool,
    ) -> Option<Arc<OpenCatalog>> {
        let mut by_name = self.by_name.write();
        match by_name.get(name) {
            Some(open) if is_wanted(open) => by_name.remove(name),
            _ => None,
        }
    }

    /// Takes out the least recently used catalog that nobody holds. One that is still being embedded
    /// is taken only if there is no other.
    pub fn take_least_recently_used(&self, locks: &NameLocks) -> Option<Evicted> {
        let mut order = self.order.lock();
        let mut by_name = self.by_name.write();
        let mut pending: Option<String> = None;
        // Every catalog comes up at most twice: with its recorded time and with its last use.
        for _ in 0..2 * order.by_use.len() {
            let Some(Reverse(recorded)) = order.by_use.pop() else {
                break;
            };
            let open = match by_name.get(&recorded.name) {
                Some(open) if recorded.is_of(open) => open,
                // It was closed or replaced.
                _ => continue,
            };
            let mut again = Recorded::of(open);
            if again.used <= recorded.used {
                // The map has the only reference, and while it is locked nobody can get another.
                let is_free = Arc::strong_count(open) == 1;
                let is_pending = open.searcher().pending_embeddings() > 0;
                if is_free
                    && !is_pending
                    && let Some(evicted) = evict(&mut by_name, &recorded.name, locks)
                {
                    return Some(evicted);
                }
                if is_free && is_pending {
                    pending.get_or_insert(recorded.name);
                }
                // Queued again as if it was used now, so that all others come first.
                again.used = self.clock.fetch_add(1, Ordering::Relaxed);
            }
            order.by_use.push(Reverse(again));
        }
        evict(&mut by_name, &pending?, locks)
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<OpenCatalog>> {
        let mut sorted = BTreeMap::new();
        for (name, open) in self.by_name.read().iter() {
            sorted.insert(name.clone(), Arc::clone(open));
        }
        sorted.into_values().collect()
    }

    /// True while this very catalog is open.
    pub fn holds(&self, catalog: &Arc<OpenCatalog>) -> bool {
        match self.by_name.read().get(&catalog.name) {
            Some(open) => Arc::ptr_eq(open, catalog),
            None => false,
        }
    }

    fn note_use(&self, catalog: &OpenCatalog) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        catalog.last_used.store(now, Ordering::Relaxed);
    }
}

impl Order {
    /// Forgets catalogs that were closed since, once they are as many as the open ones.
    fn forget_closed(&mut self, open: &HashMap<String, Arc<OpenCatalog>>) {
        if self.by_use.len() <= 2 * open.len() + FEW {
            return;
        }
        self.by_use.retain(|Reverse(recorded)| {
            let open = open.get(&recorded.name);
            open.is_some_and(|open| recorded.is_of(open))
        });
    }
}

/// Takes a catalog out unless somebody is opening or deleting one of its name.
fn evict(
    by_name: &mut HashMap<String, Arc<OpenCatalog>>,
    name: &str,
    locks: &NameLocks,
) -> Option<Evicted> {
    let guard = locks.try_lock(name)?;
    Some(Evicted {
        catalog: by_name.remove(name)?,
        name: guard,
    })
}
