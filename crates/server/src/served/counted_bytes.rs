//! How many bytes of memory the open catalogs take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The bytes of a catalog within those of all.
pub struct CountedBytes {
    of_all: Arc<AtomicU64>,
    counted: Mutex<u64>,
}

impl CountedBytes {
    /// None yet.
    pub fn new(of_all: Arc<AtomicU64>) -> Self {
        CountedBytes {
            of_all,
            counted: Mutex::new(0),
        }
    }

    /// Counts this many from now on.
    pub fn set(&self, bytes: usize) {
        let mut counted = self.counted.lock();
        let bytes = bytes as u64;
        // Added before it is subtracted, so that the sum never wraps below 0.
        self.of_all.fetch_add(bytes, Ordering::Relaxed);
        self.of_all.fetch_sub(*counted, Ordering::Relaxed);
        *counted = bytes;
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_once_whatever_changes() {
        let all = Arc::new(AtomicU64::new(0));
        let [a, b] = [0, 1].map(|_| CountedBytes::new(Arc::clone(&all)));
        a.set(10);
        b.set(5);
        a.set(3);
        assert_eq!(all.load(Ordering::Relaxed), 8);
        drop(b);
        a.set(0);
        drop(a);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
