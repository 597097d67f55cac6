//! The name tier: tools that a query names.

use rayon::prelude::*;

use crate::hit::NameMatch;
use crate::moves::{GONE, Moves};
use crate::text::{self, term_hash as hash};
use crate::tool::ToolId;

/// Queries with more words than this are not looked up: names are shorter.
const MAX_NAME_WORDS: usize = 24;
/// Fewest words of a query that may match the end of a name: a single word ends too many names.
const MIN_SUFFIX_WORDS: usize = 2;

/// Tools by their names without case and separators. Keys are hashes: tools of one hash are compared
/// with the query again.
#[derive(Default)]
pub struct Names {
    /// By `name` and by `server name`, ascending.
    exact: Vec<Entry>,
    /// By the last words of a name, from two on, ascending.
    suffix: Vec<Entry>,
}

/// The hash of a key, and a tool that has it.
type Entry = (u32, u32);

impl Names {
    /// Indexes ids; a tool's number is its position.
    pub fn new(ids: &[&ToolId]) -> Self {
        let of_tool = |(tool, id): (usize, &&ToolId)| NamesOf::new(tool as u32, id);
        let mut names = ids
            .par_iter()
            .enumerate()
            .map(of_tool)
            .fold(Names::default, Names::with)
            .reduce(Names::default, Names::joined);
        names.exact.par_sort_unstable();
        names.suffix.par_sort_unstable();
        names
    }

    /// The names after these moves, with those of new tools.
    pub fn moved(&self, moves: &Moves, added: &[&ToolId]) -> Self {
        let positions = moves.new_positions();
        let mut new = Names::default();
        for (id, position) in added.iter().zip(moves.added_positions()) {
            new = new.with(NamesOf::new(position as u32, id));
        }
        new.exact.sort_unstable();
        new.suffix.sort_unstable();
        Names {
            exact: merged(&self.exact, &positions, &new.exact),
            suffix: merged(&self.suffix, &positions, &new.suffix),
        }
    }

    /// The tools that this text names, each with its best kind of match.
    pub fn find(&self, query: &str, id_of: impl Fn(u32) -> ToolId) -> Vec<(u32, NameMatch)> {
        let query = query.trim();
        let Some(asked) = AskedName::of(query) else {
            return Vec::new();
        };
        let AskedName { key, may_be_suffix } = asked;
        let mut found = Vec::new();
        for tool in with_key(&self.exact, &key) {
            let id = id_of(tool);
            // `find_symbol` and `findSymbol` share a key; the one that was written comes first.
            if query == id.as_str() || query == id.name() {
                found.push((tool, NameMatch::Verbatim));
            } else if names_exactly(&key, &id) {
                found.push((tool, NameMatch::Exact));
            }
        }
        // A tool of exactly this name is what was asked for, not others whose names end with it.
        if found.is_empty() && may_be_suffix {
            for tool in with_key(&self.suffix, &key) {
                if text::name_key(id_of(tool).name()).ends_with(&key) {
                    found.push((tool, NameMatch::Suffix));
                }
            }
        }
        found
    }

    fn with(mut self, of_tool: NamesOf) -> Self {
        self.exact.extend(of_tool.exact.into_iter().flatten());
        self.suffix.extend(of_tool.suffix);
        self
    }

    fn joined(mut self, mut other: Self) -> Self {
        self.exact.append(&mut other.exact);
        self.suffix.append(&mut other.suffix);
        self
    }
}

/// The entries of tools that stay, under their new positions, and the new ones, ascending.
fn merged(former: &[Entry], positions: &[u32], new: &[Entry]) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(former.len() + new.len());
    let mut new = new.iter().copied().peekable();
    for &(hash, tool) in former {
        let position = positions[tool as usize];
        if position == GONE {
            continue;
        }
        // Tools that stay keep their order, so that entries of one hash do.
        while let Some(entry) = new.next_if(|entry| *entry < (hash, position)) {
            entries.push(entry);
        }
        entries.push((hash, position));
    }
    entries.extend(new);
    entries
}

/// What a query asks for, if it is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedName {
    /// Without case and separators.
    pub key: String,
    /// True if it may be the end of a name, too.
    pub may_be_suffix: bool,
}

impl AskedName {
    /// `None` for a query that is no name.
    pub fn of(query: &str) -> Option<Self> {
        let query = query.trim();
        // Some MCP clients show a tool as `mcp__server__name`.
        let bare = query.strip_prefix("mcp__").unwrap_or(query);
        let words = text::words(bare);
        if words.is_empty() || words.len() > MAX_NAME_WORDS {
            return None;
        }
        Some(AskedName {
            key: text::name_key(bare),
            may_be_suffix: words.len() >= MIN_SUFFIX_WORDS,
        })
    }
}

/// The keys under which a tool is asked for: its name, and with its server before it.
pub fn name_keys(id: &ToolId) -> [String; 2] {
    let name = text::name_key(id.name());
    let full = text::name_key(id.server()) + &name;
    [name, full]
}

/// The entries of one tool.
struct NamesOf {
    exact: [Option<Entry>; 2],
    suffix: Vec<Entry>,
}

impl NamesOf {
    fn new(tool: u32, id: &ToolId) -> Self {
        let [name, full] = name_keys(id);
        let with_server = (full != name).then(|| (hash(&full), tool));
        let words = text::words(id.name());
        let mut suffixes = Vec::new();
        // The only end of two words that a two-word name has is itself, which `exact` has.
        if words.len() > MIN_SUFFIX_WORDS {
            // Words are joined as `text::name_key` joins them, without a separator.
            let mut suffix = words.last().cloned().unwrap_or_default();
            for word in words.iter().rev().skip(1).take(MAX_NAME_WORDS) {
                suffix.insert_str(0, word);
                suffixes.push((hash(&suffix), tool));
            }
        }
        NamesOf {
            exact: [Some((hash(&name), tool)), with_server],
            suffix: suffixes,
        }
    }
}

/// The tools of a key's hash, ascending.
fn with_key(entries: &[Entry], key: &str) -> impl Iterator<Item = u32> {
    let hash = hash(key);
    let first = entries.partition_point(|entry| entry.0 < hash);
    let same = entries[first..]
        .iter()
        .take_while(move |entry| entry.0 == hash);
    same.map(|&(_, tool)| tool)
}

fn names_exactly(key: &str, id: &ToolId) -> bool {
    let name = text::name_key(id.name());
    key == name || key.strip_suffix(&name) == Some(&text::name_key(id.server()))
}
