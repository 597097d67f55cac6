//! Near-duplicates: the same tool on several servers, detected when tools are indexed.
//!
//! Two tools are near-duplicates if they have the same name, apart from their servers' names, and
//! share at least about four fifths of the words of their descriptions and parameter names. The
//! share is estimated from sixteen minima of hashes (Broder, "On the resemblance and containment of
//! documents", 1997), so that a fingerprint takes 48 bytes and comparing two takes nanoseconds.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::document::{Field, field_text};
use crate::text::{self, WordCache};
use crate::tool::{Tool, ToolId};

/// Minima in a fingerprint. Sixteen distinguish shares of four fifths and a half in 97 of 100
/// cases.
const MINIMA: usize = 16;
/// Minima that must agree.
// Three quarters, for a share of four fifths: the standard error of an estimate from sixteen minima
// is .1 there.
const MIN_AGREEING: usize = 12;
/// Groups of one name that a further tool is compared with: names like `search` occur on hundreds
/// of servers.
const MAX_COMPARED: usize = 64;

/// The data of a tool that near-duplicates are detected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The hash of the name.
    name: [u8; 16],
    minima: [u16; MINIMA],
}

impl Fingerprint {
    /// Bytes as stored.
    pub const BYTES: usize = 16 + 2 * MINIMA;

    /// The fingerprint of a tool; `None` for one with too few words to be compared.
    pub fn of(tool: &Tool) -> Option<Self> {
        let features = features(tool);
        // Without words, any two tools of one name would agree in all minima.
        if features.is_empty() {
            return None;
        }
        let mut name = [0; 16];
        name.copy_from_slice(&blake3::hash(bare_name(&tool.id).as_bytes()).as_bytes()[..16]);
        let minimum = |seed: usize| {
            features
                .iter()
                .map(|&feature| mixed(feature, seed))
                .min()
                .unwrap_or_default()
        };
        // The minimum has made the high bits small; the low ones are still evenly distributed.
        Some(Fingerprint {
            name,
            // Two different minima have the same 16 bits once in 65,536 times.
            minima: std::array::from_fn(|seed| minimum(seed) as u16),
        })
    }

    /// The stored form.
    pub fn to_bytes(self) -> Vec<u8> {
        self.name
            .into_iter()
            .chain(self.minima.into_iter().flat_map(u16::to_le_bytes))
            .collect()
    }

    /// Reads the stored form; `None` if there is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (name, minima) = bytes.split_first_chunk::<16>()?;
        let minima: &[[u8; 2]; MINIMA] = minima.as_chunks().0.try_into().ok()?;
        Some(Fingerprint {
            name: *name,
            minima: minima.map(u16::from_le_bytes),
        })
    }

    fn resembles(&self, other: &Fingerprint) -> bool {
        self.minima
            .iter()
            .zip(&other.minima)
            .filter(|(a, b)| a == b)
            .count()
            >= MIN_AGREEING
    }
}

/// The near-duplicates among a snapshot's tools, by position.
#[derive(Debug, Default)]
pub struct Duplicates {
    /// Of tools that have any.
    group_of: HashMap<u32, u32>,
    /// Two or more tools of different servers each, ascending.
    groups: Vec<Vec<u32>>,
}

impl Duplicates {
    /// Groups tools, given in the order of ids. A tool joins the first group whose first tool is
    /// similar and which has no tool of its server: two tools of one server are different tools.
    pub fn new<'a>(tools: impl Iterator<Item = (&'a ToolId, Option<&'a Fingerprint>)>) -> Self {
        let mut by_name: HashMap<&[u8; 16], Vec<Group<'a>>> = HashMap::new();
        for (tool, (id, fingerprint)) in tools.enumerate() {
            let Some(fingerprint) = fingerprint else {
                continue;
            };
            let groups = by_name.entry(&fingerprint.name).or_default();
            // Compared with the first tool only, so that a chain of slight differences cannot join
            // unlike tools.
            let fits = |group: &&mut Group<'_>| {
                group.first.resembles(fingerprint) && !group.servers.contains(&id.server())
            };
            if let Some(group) = groups.iter_mut().take(MAX_COMPARED).find(fits) {
                group.tools.push(tool as u32);
                group.servers.push(id.server());
            } else if groups.len() < MAX_COMPARED {
                groups.push(Group {
                    first: fingerprint,
                    tools: vec![tool as u32],
                    servers: vec![id.server()],
                });
            }
        }
        let mut groups: Vec<Vec<u32>> = by_name
            .into_values()
            .flatten()
            .map(|group| group.tools)
            .collect();
        groups.retain(|tools| tools.len() > 1);
        // The map has no order; sorted, equal catalogs have equal groups.
        groups.sort_unstable();
        let members = |(group, tools): (usize, &Vec<u32>)| {
            tools
                .iter()
                .map(|&tool| (tool, group as u32))
                .collect::<Vec<_>>()
        };
        let group_of = groups.iter().enumerate().flat_map(members).collect();
        Duplicates { group_of, groups }
    }

    /// A tool and its near-duplicates, ascending; empty for a tool without any.
    pub fn of(&self, tool: u32) -> &[u32] {
        self.group_of
            .get(&tool)
            .map_or(&[], |&group| &self.groups[group as usize])
    }
}

/// A group under construction.
struct Group<'a> {
    first: &'a Fingerprint,
    tools: Vec<u32>,
    servers: Vec<&'a str>,
}

/// The name's words, without those of the server where it begins with them:
/// `github/github_create_issue` is `create issue`.
fn bare_name(id: &ToolId) -> String {
    let (name, server) = (text::words(id.name()), text::words(id.server()));
    let rest = name
        .strip_prefix(server.as_slice())
        // A tool may have the name of its server.
        .filter(|rest| !rest.is_empty())
        .unwrap_or(&name);
    rest.join(" ")
}

/// Hashes of the words of the description and of the parameters' names, repeats included.
fn features(tool: &Tool) -> Vec<u64> {
    let mut features = Vec::new();
    // The server's own description: what the owner says of one tool makes it no other one.
    text::for_each_term(&tool.description, |_, term| features.push(hashed(term)));
    let names = field_text(tool, Field::ParameterNames);
    // Marked, so that a parameter is not the same feature as a word of the description.
    let parameters = names
        .split_whitespace()
        .map(|name| hashed(&format!("parameter {}", text::name_key(name))));
    features.extend(parameters);
    features
}

fn hashed(feature: &str) -> u64 {
    thread_local! {
        static HASHES: RefCell<WordCache<u64>> = RefCell::default();
    }
    let computed = || {
        let mut low = [0; 8];
        // Not std's hasher, whose values may change with the version of Rust.
        low.copy_from_slice(&blake3::hash(feature.as_bytes()).as_bytes()[..8]);
        u64::from_le_bytes(low)
    };
    HASHES.with_borrow_mut(|hashes| hashes.get(feature, computed, |hash| *hash))
}

/// The finalizer of SplitMix64 over a hash and a seed: each seed gives an independent order of the
/// same features.
fn mixed(hash: u64, seed: usize) -> u64 {
    // Written out and not a crate's generator: fingerprints are stored with tools and compared with
    // those that earlier versions stored, so the function must never change.
    let mut bits = hash.wrapping_add((seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DESCRIPTION: &str = "Creates a new issue in a repository of the organisation with a title, a body, labels and people to assign it to.";

    fn tool(server: &str, name: &str, description: &str, parameters: &[&str]) -> Tool {
        let properties: serde_json::Map<_, _> = parameters
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect();
        let json = json!({"server": server, "name": name, "description": description,
            "inputSchema": {"type": "object", "properties": properties}});
        serde_json::from_value(json).unwrap()
    }

    fn groups(tools: &[Tool]) -> Vec<Vec<u32>> {
        let fingerprints: Vec<Option<Fingerprint>> = tools.iter().map(Fingerprint::of).collect();
        let duplicates = Duplicates::new(
            tools
                .iter()
                .map(|tool| &tool.id)
                .zip(fingerprints.iter().map(Option::as_ref)),
        );
        for (number, group) in duplicates.groups.iter().enumerate() {
            assert!(
                group
                    .iter()
                    .all(|&tool| duplicates.of(tool) == duplicates.groups[number])
            );
        }
        duplicates.groups
    }

    #[test]
    fn spelling_and_a_word_or_two_make_no_difference() {
        let shouted = format!("{} Quickly.", DESCRIPTION.to_uppercase());
        let tools = [
            tool(
                "github",
                "create_issue",
                DESCRIPTION,
                &["owner", "repo_name", "title"],
            ),
            tool(
                "hub",
                "hub-create-issue",
                &shouted,
                &["owner", "repoName", "title"],
            ),
            tool(
                "lab",
                "createIssue",
                DESCRIPTION,
                &["owner", "repo-name", "title"],
            ),
        ];
        assert_eq!(groups(&tools), [[0, 1, 2]]);
    }

    #[test]
    fn another_name_another_purpose_or_the_same_server_is_another_tool() {
        let other = "Opens a ticket for the support team, who will call back within two working days at most.";
        let tools = [
            tool("a", "create_issue", DESCRIPTION, &["title"]),
            tool("b", "create_issue", other, &["title"]),
            tool("c", "close_issue", DESCRIPTION, &["title"]),
            tool("a", "createIssue", DESCRIPTION, &["title"]),
            tool("d", "create_issue", "", &[]),
            tool("e", "create_issue", "", &[]),
        ];
        assert_eq!(groups(&tools), Vec::<Vec<u32>>::new());
        assert_eq!(Duplicates::default().of(0), [] as [u32; 0]);
    }

    #[test]
    fn a_fingerprint_is_read_back_and_other_bytes_are_refused() {
        let fingerprint = Fingerprint::of(&tool("a", "b", DESCRIPTION, &[])).unwrap();
        let bytes = fingerprint.to_bytes();
        assert_eq!(bytes.len(), Fingerprint::BYTES);
        assert_eq!(Fingerprint::from_bytes(&bytes), Some(fingerprint));
        for length in 0..bytes.len() {
            assert_eq!(Fingerprint::from_bytes(&bytes[..length]), None);
        }
    }

    #[test]
    fn thousands_of_one_name_are_grouped_in_bounded_time() {
        let tools: Vec<Tool> = (0..3000)
            .map(|n| {
                tool(
                    &format!("s{n:04}"),
                    "search",
                    &format!("words {n} of {} their {} own", n * 7, n * 13),
                    &[],
                )
            })
            .collect();
        assert_eq!(groups(&tools), Vec::<Vec<u32>>::new());
    }
}
