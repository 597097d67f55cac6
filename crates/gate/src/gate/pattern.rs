//! Glob patterns with `*`, and comparison of names that look alike.

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_security::skeleton;

/// A glob pattern for tool ids or server names. `*` matches any text, slashes included; every other
/// character matches itself.
///
/// A pattern matches the whole id, `server/name`, so that `github/delete_*` never matches a tool of
/// another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Pattern {
    text: String,
    folded: String,
}

/// A text without differences that people overlook: case, width, look-alike and invisible
/// characters.
///
/// Patterns that forbid are compared in this form, so that `*delete*` matches `Delete_Repo` and
/// `dеlete` with a Cyrillic `е` too. Patterns that allow are compared exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded(String);

impl Folded {
    /// Folds a text.
    pub fn of(text: &str) -> Self {
        Folded(fold(text))
    }
}

/// Folds by NFKC, then by look-alikes (UTS 39) both before and after case folding: `Ε` (Greek)
/// resembles `E` only as a capital, `о` (Cyrillic) resembles `o` in both cases. `I` looks like `l`
/// and is `i` in lower case, so `i` and `l` become one.
pub fn fold(text: &str) -> String {
    // Nearly all names are ASCII, whose characters fold one by one: a table takes a twentieth of
    // the time.
    static ASCII: LazyLock<[String; 128]> = LazyLock::new(|| {
        std::array::from_fn(|code| fold_any(char::from(code as u8).encode_utf8(&mut [0; 4])))
    });
    if text.is_ascii() {
        let folded = text.bytes().map(|byte| &*ASCII[usize::from(byte)]);
        return folded.collect();
    }
    fold_any(text)
}

fn fold_any(text: &str) -> String {
    let mut uncased = String::with_capacity(text.len());
    for c in text.nfkc() {
        let alike: String = skeleton(c.encode_utf8(&mut [0; 4])).collect();
        if alike.is_ascii() {
            uncased.push_str(&alike.to_ascii_lowercase());
        } else {
            // Upper case first, as `ß` is `SS` and `ς` is `Σ`.
            uncased.extend(c.to_uppercase().flat_map(char::to_lowercase));
        }
    }
    let alike: String = skeleton(&uncased).collect();
    alike.to_lowercase().replace('i', "l")
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        let folded = fold(&text);
        Pattern { text, folded }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl Pattern {
    /// A pattern of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Pattern::from(text.into())
    }

    /// True when the text matches exactly.
    pub fn matches(&self, text: &str) -> bool {
        glob_matches(&self.text, text)
    }

    /// True when the text, or one that looks like it, matches in any case. True for every text
    /// that [`Pattern::matches`].
    pub fn resembles(&self, text: &Folded) -> bool {
        glob_matches(&self.folded, &text.0)
    }

    /// Number of characters other than `*`: of two matching patterns, the one with more of them is
    /// more specific.
    pub fn literal_chars(&self) -> usize {
        self.text.chars().filter(|c| *c != '*').count()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Takes time proportional to the product of both lengths at worst.
fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Positions at which to continue when the last `*` has to match one more character. Only the
    // last one is needed: an earlier `*` that matches more cannot help.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => {
                let Some((after_star, matched)) = retry else {
                    return false;
                };
                retry = Some((after_star, matched + 1));
                (p, t) = (after_star, matched + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stars_match_any_text() {
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
            let pattern = Pattern::new(pattern);
            assert_eq!(pattern.matches(text), expected, "{pattern} {text}");
            assert_eq!(
                pattern.resembles(&Folded::of(text)),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn case_and_look_alikes_do_not_hide_a_name() {
        for text in [
            "github/delete_repo",
            "github/Delete_Repo",
            "GITHUB/DELETE_REPO",
            "github/d\u{435}lete_repo",
            "github/D\u{395}LETE_repo",
            "github/de\u{200b}lete_repo",
            "github/\u{ff24}elete_repo",
            "github/de\u{406}ete_repo",
            "github/de1ete_rep0",
        ] {
            assert!(
                Pattern::new("*delete*").resembles(&Folded::of(text)),
                "{text}"
            );
            assert!(
                Pattern::new("GitHub/delete_repo").resembles(&Folded::of(text)),
                "{text}"
            );
        }
        for (pattern, text) in [
            ("*delete*", "github/relate"),
            ("*\u{fc}", "gnu"),
            ("mail/send", "mail/sent"),
        ] {
            assert!(
                !Pattern::new(pattern).resembles(&Folded::of(text)),
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn ascii_folds_by_table_as_it_folds_as_text() {
        let all: String = (0..128).map(char::from).collect();
        assert_eq!(fold(&all), fold_any(&all));
        assert_eq!(fold("|1Im0/Delete_Repo"), fold_any("|1Im0/Delete_Repo"));
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = Pattern::new("*a".repeat(200) + "b");
        assert!(!pattern.matches(&"a".repeat(2_000)));
    }
}
