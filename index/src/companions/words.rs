//! The words of names and short texts, as verbs and nouns.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::text;

/// What a verb says that a tool does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Gives some of many things.
    List,
    /// Gives what is known of a thing.
    Get,
    /// Changes something, or does something else than reading.
    Write,
}

static VERBS: LazyLock<HashMap<&str, Verb>> = LazyLock::new(|| {
    let classes = [
        (Verb::List, LISTING),
        (Verb::Get, GETTING),
        (Verb::Write, WRITING),
    ];
    let mut verbs = HashMap::new();
    for (verb, words) in classes {
        for word in words.split_whitespace() {
            verbs.insert(word, verb);
        }
    }
    verbs
});

const LISTING: &str = "list lists search searches find finds query lookup lookups browse listing discover locate \
     filter enumerate paginate";

const GETTING: &str = "get gets retrieve retrieves retrieving fetch fetches read reads show shows view views \
     return returns describe display displays load check resolve pull";

const WRITING: &str = "create add new insert make update edit modify change set rename replace put patch delete \
     remove drop clear send post publish cancel revoke stop start close archive unarchive enable disable upload \
     import export move copy assign invite join leave approve reject run execute trigger register subscribe \
     unsubscribe download generate convert save wipe undelete restore reset transfer batch bulk upsert activate \
     deactivate suspend reply forward block unblock ban lock unlock merge rotate submit write apply attach detach \
     mark purge mute unmute promote void store reorder schedule install kick accept decline complete resend open \
     sync push translate count watch compare verify validate test analyze calculate provision deploy rollback cut \
     duplicate clone authorize grant deny pause resume retry rerun sign track follow unfollow like unlike bookmark \
     pin unpin vote";

/// Verbs of tools whose object is not there yet.
const MAKING: &[&str] = &["create", "insert", "new"];
/// Verbs of tools that add something to something else.
const ADDING: &[&str] = &["add", "invite", "assign", "post"];

/// Words that name nothing. Sorted.
const EMPTY: &[&str] = &[
    "a",
    "all",
    "an",
    "and",
    "any",
    "api",
    "are",
    "as",
    "at",
    "available",
    "be",
    "by",
    "current",
    "existing",
    "for",
    "from",
    "given",
    "in",
    "is",
    "its",
    "mcp",
    "more",
    "of",
    "on",
    "one",
    "or",
    "s",
    "some",
    "specific",
    "specified",
    "that",
    "the",
    "their",
    "this",
    "to",
    "under",
    "user's",
    "using",
    "v",
    "via",
    "which",
    "with",
    "your",
];

/// Nouns whose singular no rule gives.
const IRREGULAR: &[(&str, &str)] = &[
    ("people", "person"),
    ("persons", "person"),
    ("children", "child"),
    ("statuses", "status"),
    ("addresses", "address"),
    ("aliases", "alias"),
    ("indices", "index"),
    ("matrices", "matrix"),
    ("vertices", "vertex"),
];

/// Nouns that only look like a plural. Sorted.
const SINGULAR: &[&str] = &["analytics", "aws", "dns", "kudos", "news", "series", "sms"];

/// The words of an identifier or a text, lowercase.
pub fn words(text: &str) -> Vec<String> {
    text::spaced(text)
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// What a word says that a tool does.
pub fn verb(word: &str) -> Option<Verb> {
    VERBS.get(word).copied()
}

/// True for the verb of a tool whose object is not there yet.
pub fn is_making(word: &str) -> bool {
    MAKING.contains(&word)
}

/// True for the verb of a tool that adds something to something else.
pub fn is_adding(word: &str) -> bool {
    ADDING.contains(&word)
}

/// True for a word that names nothing.
pub fn is_empty(word: &str) -> bool {
    EMPTY.binary_search(&word).is_ok()
}

/// The singular of an English noun; a word that is none is returned as it is.
pub fn singular(word: &str) -> String {
    if let Some((_, singular)) = IRREGULAR.iter().find(|(plural, _)| *plural == word) {
        return (*singular).to_owned();
    }
    if word.len() <= 3 || SINGULAR.binary_search(&word).is_ok() {
        return word.to_owned();
    }
    if let Some(stem) = word.strip_suffix("ies")
        && stem.len() > 1
    {
        return format!("{stem}y");
    }
    let hissing = ["sses", "shes", "ches", "xes", "zes"];
    if hissing.iter().any(|ending| word.ends_with(ending)) {
        return word[..word.len() - 2].to_owned();
    }
    // `address`, `status` and `analysis` are singulars.
    let is_singular = word.ends_with("ss") || word.ends_with("us") || word.ends_with("is");
    if is_singular {
        return word.to_owned();
    }
    word.strip_suffix('s').unwrap_or(word).to_owned()
}

/// The nouns of a phrase as singulars, without empty words.
pub fn nouns(words: &[String]) -> Vec<String> {
    let named = words.iter().filter(|word| !is_empty(word));
    named.map(String::as_str).map(singular).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted() {
        assert!(EMPTY.is_sorted());
        assert!(SINGULAR.is_sorted());
    }

    #[test]
    fn identifiers_of_every_style_are_split() {
        for name in ["get_userId", "GetUserID", "get-user.id", "get user id 2"] {
            assert_eq!(words(name), ["get", "user", "id"], "{name}");
        }
    }

    #[test]
    fn plurals_get_their_singular() {
        for (plural, of_one) in [
            ("people", "person"),
            ("companies", "company"),
            ("boxes", "box"),
            ("users", "user"),
            ("status", "status"),
            ("series", "series"),
            ("ids", "ids"),
        ] {
            assert_eq!(singular(plural), of_one);
        }
    }
}
