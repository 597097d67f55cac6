//! Token counts that are remembered: the same tools are counted in every turn of every
//! conversation.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::finder::toolbox;

/// Counts that are kept; beyond, all are forgotten and counted anew.
const MAX_REMEMBERED: usize = 1 << 20;

/// By hash of the text: the chance that two of a million texts share one is below 10^-7.
static COUNTED: LazyLock<Mutex<HashMap<u64, usize>>> = LazyLock::new(Mutex::default);

/// The tokens of a text, as the agent counts them.
pub fn tokens(text: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let key = hasher.finish();
    let known = || COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&tokens) = known().get(&key) {
        return tokens;
    }
    let tokens = toolbox::o200k(text);
    let mut counted = known();
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
    fn a_remembered_count_is_the_count() {
        for text in ["", "one", "tool search finds tools", "one"] {
            assert_eq!(
                (tokens(text), tokens(text)),
                (toolbox::o200k(text), toolbox::o200k(text))
            );
        }
    }
}
