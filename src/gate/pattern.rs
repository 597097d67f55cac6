//! Names with `*` for any text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pattern over whole tool ids or server names: `*` stands for any text, everything else for itself.
///
/// Ids are matched whole, `server/name`, so that `github/delete_*` never means a tool of another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Pattern(text.into())
    }

    /// Whether a text fits. Takes time in proportion to the product of both lengths at worst.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        let (mut p, mut t) = (0, 0);
        // Where to go on when the last `*` has to take one more character.
        let mut retry: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    retry = Some((p + 1, t));
                    p += 1;
                }
                Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
                _ => {
                    let Some((after_star, taken)) = retry else { return false };
                    retry = Some((after_star, taken + 1));
                    (p, t) = (after_star, taken + 1);
                }
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }

    /// Characters that are not `*`: of two patterns that fit, the one with more of them says more.
    pub fn literal_chars(&self) -> usize {
        self.0.chars().filter(|c| *c != '*').count()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text_and_nothing_else_does() {
        for (pattern, text, expected) in [
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/b", "x/a/b", false),
            ("a/*", "a/", true),
            ("a/*", "ab/c", false),
            ("*delete*", "db/delete_all", true),
            ("*/x*y*z", "s/xaybz", true),
            ("*/x*y*z", "s/xazb", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a.c", "abc", false),
            ("*ü", "gnüü", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = Pattern::new("*a".repeat(200) + "b");
        assert!(!pattern.matches(&"a".repeat(2_000)));
    }
}
