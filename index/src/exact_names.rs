//! The name tier: tools that a query names.

use std::collections::HashMap;

use crate::hit::NameMatch;
use crate::text;
use crate::tool::ToolId;

/// Queries with more words than this are not looked up: names are shorter.
const MAX_NAME_WORDS: usize = 24;
/// Fewest words of a query that may match the end of a name: a single word ends too many names.
const MIN_SUFFIX_WORDS: usize = 2;

/// Tools by their names without case and separators.
#[derive(Default)]
pub struct Names {
    /// By `name` and by `server name`.
    exact: HashMap<String, Vec<u32>>,
    /// By the last words of a name, from two on.
    suffix: HashMap<String, Vec<u32>>,
}

impl Names {
    /// Indexes ids; a tool's number is its position.
    pub fn new<'a>(ids: impl Iterator<Item = &'a ToolId>) -> Self {
        let mut names = Names::default();
        for (tool, id) in ids.enumerate() {
            names.add(tool as u32, id);
        }
        names
    }

    /// The tools that this text names, each with its best kind of match.
    pub fn find(&self, query: &str, id_of: impl Fn(u32) -> ToolId) -> Vec<(u32, NameMatch)> {
        let query = query.trim();
        // Some MCP clients show a tool as `mcp__server__name`.
        let bare = query.strip_prefix("mcp__").unwrap_or(query);
        let words = text::words(bare);
        if words.is_empty() || words.len() > MAX_NAME_WORDS {
            return Vec::new();
        }
        let key = text::name_key(bare);
        let exact = self.exact.get(&key).into_iter().flatten().map(|&tool| {
            let id = id_of(tool);
            // `find_symbol` and `findSymbol` share a key; the one that was written comes first.
            let verbatim = query == id.as_str() || query == id.name();
            (
                tool,
                if verbatim {
                    NameMatch::Verbatim
                } else {
                    NameMatch::Exact
                },
            )
        });
        let mut found: Vec<_> = exact.collect();
        // A tool of exactly this name is what was asked for, not others whose names end with it.
        if found.is_empty() && words.len() >= MIN_SUFFIX_WORDS {
            found.extend(
                self.suffix
                    .get(&key)
                    .into_iter()
                    .flatten()
                    .map(|&tool| (tool, NameMatch::Suffix)),
            );
        }
        found
    }

    fn add(&mut self, tool: u32, id: &ToolId) {
        let name = text::name_key(id.name());
        let server = text::name_key(id.server());
        if !server.is_empty() {
            self.exact.entry(server + &name).or_default().push(tool);
        }
        self.exact.entry(name).or_default().push(tool);
        let words = text::words(id.name());
        // Words are joined as `text::name_key` joins them, without a separator.
        let mut suffix = words.last().cloned().unwrap_or_default();
        for word in words
            .iter()
            .rev()
            .skip(1)
            .take(MAX_NAME_WORDS)
            // A name of two words has no end of two words but itself, which `exact` has.
            .take_while(|_| words.len() > MIN_SUFFIX_WORDS)
        {
            suffix.insert_str(0, word);
            self.suffix.entry(suffix.clone()).or_default().push(tool);
        }
    }
}
