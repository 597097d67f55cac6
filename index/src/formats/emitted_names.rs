//! The names under which tools are handed to a model, whose APIs take `^[a-zA-Z0-9_-]{1,64}$` only.
//!
//! A tool has a fixed ladder of names, each a pure function of its id: the name alone,
//! `server__name`, then the name with more and more of the id's hash. In a list every tool stands
//! on the lowest rung where no other stands, so the outcome depends on the set of tools and not on
//! their order.

use std::collections::HashMap;

use crate::tool::{Tool, ToolId};

/// Longest name the APIs take.
const MAX_LEN: usize = 64;
/// Hexadecimal digits of the hash on the last rungs. Eight do unless somebody made a collision; the
/// last are 224 bits.
const HASH_DIGITS: [usize; 4] = [8, 16, 32, 56];

/// A name for each tool, in order, matching `^[a-zA-Z0-9_-]{1,64}$`; different tools have different
/// names.
///
/// A tool has its own name where no other tool of the list wants it, and `server__name` where one
/// does. A hash is appended only where that is not enough: the name is too long, or lost letters
/// (`天气`), or became another's (`a.b` beside `a_b`, of which the one that is spelt so keeps it).
///
/// To find the tool a model called, zip the names with the same list. A caller that lets a list
/// grow must keep to the names already given, since a newcomer can make a plain name ambiguous;
/// [`answers_to`] holds for any list.
pub fn emitted_names(tools: &[&Tool]) -> Vec<String> {
    let mut ladders: HashMap<&ToolId, (Vec<Rung>, usize)> = tools
        .iter()
        .map(|tool| (&tool.id, (ladder(&tool.id), 0)))
        .collect();
    while climb(&mut ladders) {}
    let name = |tool: &&Tool| {
        ladders
            .get(&tool.id)
            .map(|(rungs, at)| rungs[*at].name.clone())
    };
    tools.iter().filter_map(name).collect()
}

/// Whether a tool of this id may have been given this name in some list. Several tools can answer
/// to one name; the longer forms with a hash are one tool's alone.
pub fn answers_to(id: &ToolId, name: &str) -> bool {
    ladder(id).iter().any(|rung| rung.name == name)
}

/// One of a tool's names.
struct Rung {
    name: String,
    claim: Claim,
}

/// How good a tool's title to a name is; the best comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// It is spelt so.
    Verbatim,
    /// Some separators became `_`.
    Sanitised,
    /// It has its server before it.
    Qualified,
    /// It has this rung's hash behind it.
    Hashed(usize),
}

/// Moves every tool whose name is contested one rung up, save one with the single best claim. Each
/// tool can only climb and no two share a top rung, so this ends.
fn climb(ladders: &mut HashMap<&ToolId, (Vec<Rung>, usize)>) -> bool {
    let mut claims: HashMap<String, Vec<Claim>> = HashMap::new();
    for (rungs, at) in ladders.values() {
        claims
            .entry(rungs[*at].name.clone())
            .or_default()
            .push(rungs[*at].claim);
    }
    claims.retain(|_, contenders| contenders.len() > 1);
    let mut moved = false;
    for (rungs, at) in ladders.values_mut() {
        let Some(contenders) = claims.get(&rungs[*at].name) else {
            continue;
        };
        let own = rungs[*at].claim;
        let equals_or_betters = contenders.iter().filter(|&&other| other <= own).count();
        if equals_or_betters > 1 && *at + 1 < rungs.len() {
            *at += 1;
            moved = true;
        }
    }
    moved
}

fn ladder(id: &ToolId) -> Vec<Rung> {
    let plain = sanitise(id.name());
    let claim = if plain == id.name() {
        Claim::Verbatim
    } else {
        Claim::Sanitised
    };
    let qualified = match id.server() {
        "" => plain.clone(),
        server => format!("{}__{plain}", sanitise(server)),
    };
    let mut rungs = Vec::with_capacity(2 + HASH_DIGITS.len());
    if !loses_letters(id.name()) {
        rungs.push(Rung {
            name: plain.clone(),
            claim,
        });
        rungs.push(Rung {
            name: qualified,
            claim: Claim::Qualified,
        });
        rungs.retain(|rung| rung.name.len() <= MAX_LEN);
    }
    let stem = if plain.chars().any(|c| c.is_ascii_alphanumeric()) {
        plain.as_str()
    } else {
        "tool"
    };
    let hash = blake3::hash(id.as_str().as_bytes()).to_hex();
    rungs.extend(HASH_DIGITS.iter().enumerate().map(|(at, &digits)| {
        let stem = &stem[..stem.len().min(MAX_LEN - 1 - digits)];
        Rung {
            name: format!("{stem}_{}", &hash[..digits]),
            claim: Claim::Hashed(at),
        }
    }));
    rungs
}

/// Each run of characters outside `[a-zA-Z0-9_-]` becomes one `_`.
fn sanitise(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut in_run = false;
    for c in text.chars() {
        let allowed = c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if allowed || !in_run {
            clean.push(if allowed { c } else { '_' });
        }
        in_run = !allowed;
    }
    clean
}

/// Whether what is left does not tell the name any more.
fn loses_letters(name: &str) -> bool {
    let lost = name.chars().any(|c| c.is_alphanumeric() && !c.is_ascii());
    lost || !name
        .chars()
        .any(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ids: &[(&str, &str)]) -> Vec<String> {
        let tools: Vec<Tool> = ids
            .iter()
            .map(|(server, name)| Tool::new(server, name).unwrap())
            .collect();
        emitted_names(&tools.iter().collect::<Vec<_>>())
    }

    /// `name_` and this many digits of the id's hash.
    fn hashed(stem: &str, id: &str, digits: usize) -> String {
        format!("{stem}_{}", &blake3::hash(id.as_bytes()).to_hex()[..digits])
    }

    #[test]
    fn a_name_grows_only_as_far_as_it_must() {
        let long = "x".repeat(70);
        for (ids, expected) in [
            (
                vec![("github", "create_issue"), ("jira", "search")],
                vec!["create_issue".into(), "search".into()],
            ),
            (
                vec![
                    ("github", "create_issue"),
                    ("jira", "create_issue"),
                    ("", "create_issue"),
                ],
                vec![
                    "github__create_issue".into(),
                    "jira__create_issue".into(),
                    "create_issue".into(),
                ],
            ),
            (vec![("", "math.factorial")], vec!["math_factorial".into()]),
            (
                vec![("", "a.b"), ("", "a_b")],
                vec![hashed("a_b", "a.b", 8), "a_b".into()],
            ),
            (
                vec![("My / Srv", "a b"), ("t", "a b")],
                vec!["My_Srv__a_b".into(), "t__a_b".into()],
            ),
            (
                vec![("a", "b__c"), ("a__b", "c")],
                vec!["b__c".into(), "c".into()],
            ),
            (vec![("s", "天气")], vec![hashed("tool", "s/天气", 8)]),
            (
                vec![("s", &long)],
                vec![hashed(&long[..55], &format!("s/{long}"), 8)],
            ),
            (
                vec![("s", "twice"), ("s", "twice")],
                vec!["twice".into(), "twice".into()],
            ),
        ] {
            assert_eq!(names(&ids), expected, "{ids:?}");
        }
    }

    #[test]
    fn a_tool_that_is_spelt_like_anothers_hash_makes_that_one_longer() {
        let forged = hashed("a_b", "a.b", 8);
        let given = names(&[("", "a.b"), ("", "a_b"), ("evil", &forged)]);
        assert_eq!(given, [hashed("a_b", "a.b", 16), "a_b".into(), forged]);
    }
}
