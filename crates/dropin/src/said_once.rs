//! What the log is told once, however many requests give a reason to say it.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

/// Most texts that are known: clients can invent them.
const MAX_TEXTS: NonZeroUsize = NonZeroUsize::new(1_000).expect("is not zero");

/// Texts that were said. Those that were not asked about for longest are forgotten, and said again.
pub struct SaidOnce(Mutex<LruCache<blake3::Hash, ()>>);

impl Default for SaidOnce {
    fn default() -> Self {
        SaidOnce(Mutex::new(LruCache::new(MAX_TEXTS)))
    }
}

impl SaidOnce {
    /// Whether nobody asked about this text before.
    pub fn is_first(&self, text: &str) -> bool {
        let mut said = self.0.lock();
        said.put(blake3::hash(text.as_bytes()), ()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_said_once_and_the_number_of_texts_is_bounded() {
        let said = SaidOnce::default();
        assert!(said.is_first("a"));
        assert!(!said.is_first("a"));
        for number in 0..2 * MAX_TEXTS.get() {
            assert!(said.is_first(&number.to_string()));
        }
        assert_eq!(said.0.lock().len(), MAX_TEXTS.get());
        assert!(said.is_first("a"));
    }
}
