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

    /// The fingerprint of a tool; `None` for one with too few words to be compared, and for other kinds of
    /// items.
    pub fn of(tool: &Tool) -> Option<Self> {
        if !tool.kind.is_tool() {
            return None;
        }
        let features = features(tool);
        // Without words, any two tools of one name would agree in all minima.
        if features.is_empty() {
            return None;
        }
        let mut name = [0; 16];
        name.copy_from_slice(&blake3::hash(bare_name(&tool.id).as_bytes()).as_bytes()[..16]);
        let mut minima = [0; MINIMA];
        for (seed, minimum) in minima.iter_mut().enumerate() {
            let hashes = features.iter().map(|&feature| mixed(feature, seed));
            // The minimum has made the high bits small; the low ones are still evenly distributed.
            // Two different minima have the same 16 bits once in 65,536 times.
            *minimum = hashes.min().unwrap_or_default() as u16;
        }
        Some(Fingerprint { name, minima })
    }

    /// The stored form.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.name.to_vec();
        bytes.extend(self.minima.into_iter().flat_map(u16::to_le_bytes));
        bytes
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
        let pairs = self.minima.iter().zip(&other.minima);
        pairs.filter(|(a, b)| a == b).count() >= MIN_AGREEING
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
            let mut compared = groups.iter_mut().take(MAX_COMPARED);
            if let Some(group) = compared.find(|group| group.fits(id, fingerprint)) {
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
        let mut groups = Vec::new();
        for group in by_name.into_values().flatten() {
            if group.tools.len() > 1 {
                groups.push(group.tools);
            }
        }
        // The map has no order; sorted, equal catalogs have equal groups.
        groups.sort_unstable();
        let mut group_of = HashMap::new();
        for (group, tools) in groups.iter().enumerate() {
            for &tool in tools {
                group_of.insert(tool, group as u32);
            }
        }
        Duplicates { group_of, groups }
    }

    /// A tool and its near-duplicates, ascending; empty for a tool without any.
    pub fn of(&self, tool: u32) -> &[u32] {
        match self.group_of.get(&tool) {
            Some(&group) => &self.groups[group as usize],
            None => &[],
        }
    }
}

/// A group under construction.
struct Group<'a> {
    first: &'a Fingerprint,
    tools: Vec<u32>,
    servers: Vec<&'a str>,
}

impl Group<'_> {
    /// True for a tool that may join.
    fn fits(&self, id: &ToolId, fingerprint: &Fingerprint) -> bool {
        // Compared with the first tool only, so that a chain of slight differences cannot join
        // unlike tools.
        self.first.resembles(fingerprint) && !self.servers.contains(&id.server())
    }
}

/// The name's words, without those of the server where it begins with them:
/// `github/github_create_issue` is `create issue`.
fn bare_name(id: &ToolId) -> String {
    let (name, server) = (text::words(id.name()), text::words(id.server()));
    match name.strip_prefix(server.as_slice()) {
        Some(rest) if !rest.is_empty() => rest.join(" "),
        // A tool may have the name of its server, which is then all of its name.
        _ => name.join(" "),
    }
}

/// Hashes of the words of the description and of the parameters' names, repeats included.
fn features(tool: &Tool) -> Vec<u64> {
    let mut features = Vec::new();
    // The server's description and not the owner's, which does not make it another tool.
    text::for_each_term(&tool.description, |_, term| features.push(hashed(term)));
    let names = field_text(tool, Field::ParameterNames);
    for name in names.split_whitespace() {
        // Marked, so that a parameter is not the same feature as a word of the description.
        features.push(hashed(&format!("parameter {}", text::name_key(name))));
    }
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
