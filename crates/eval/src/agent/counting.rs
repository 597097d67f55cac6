//! A cache of token counts, because every turn of every conversation counts the same tools.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use parking_lot::Mutex;
use toolscout_finder::finder::toolbox;

/// Capacity of the cache; when it is full, it is cleared.
const MAX_REMEMBERED: usize = 1 << 20;

/// Counts by hash of the text: the probability of a collision among a million texts is below 10^-7.
static COUNTED: LazyLock<Mutex<HashMap<u64, usize>>> = LazyLock::new(Mutex::default);

/// The number of tokens of a text, by the tokenizer of the agent.
pub fn tokens(text: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let key = hasher.finish();
    if let Some(&tokens) = COUNTED.lock().get(&key) {
        return tokens;
    }
    // Counted without the lock, so that other threads can read meanwhile.
    let tokens = toolbox::o200k(text);
    let mut counted = COUNTED.lock();
    if counted.len() >= MAX_REMEMBERED {
        counted.clear();
    }
    counted.insert(key, tokens);
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_counts_equal_fresh_ones() {
        for text in ["", "one", "tool search finds tools", "one"] {
            assert_eq!(
                (tokens(text), tokens(text)),
                (toolbox::o200k(text), toolbox::o200k(text))
            );
        }
    }
}
