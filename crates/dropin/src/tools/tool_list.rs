//! The tools of a request: which are shown, and which are found by searching. A list that was seen
//! before is known by the hash of its bytes and not read again.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::dialect::{Dialect, Namespace, OfferedTool, Protocol, ToolKind, name_within};
use crate::tools::not_deferred::{NotDeferred, Reason};
use crate::tools::own_tools::Candidate;
use crate::tools::{client_search, own_tools, search_tool};
use crate::wire::json;
use toolscout_gate::llm::ToolSpec;

/// Bytes of a definition for each token, roughly: JSON of tools has 3.5 to 4.5 by o200k.
const BYTES_PER_TOKEN: usize = 4;
/// The longest name that is searched for; a tool with a longer one is shown.
const MAX_NAME_BYTES: usize = 256;

/// What a list is known by: its bytes, its owner, and how it was divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListId([u8; 32]);

impl ListId {
    /// The id of a list of this owner.
    pub fn of(owner: &str, dialect: Dialect, deferral: &Deferral, tools: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        // "all": the catalogs of earlier versions, which are on disk under these ids, lack the visible tools.
        let divided = format!(
            "all {} {} {:?}",
            deferral.above_tokens, deferral.own_tokens, deferral.pins
        );
        // With their lengths, so that other parts never make the same bytes.
        for part in [owner, dialect.name(), &divided] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.update(tools);
        ListId(*hasher.finalize().as_bytes())
    }

    /// As a text, which is the name of its catalog.
    pub fn to_text(self) -> String {
        hex::encode(self.0)
    }
}

/// Which tools are deferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// A list with more tokens than this is deferred but for its pinned tools.
    pub above_tokens: usize,
    /// Tokens of the client's own tools that stay in view.
    pub own_tokens: usize,
    /// Whether tools are deferred beside a search of the client's own.
    pub beside_other_search: bool,
    /// Tools that are always shown: names, in which `*` stands for any text.
    pub pins: Vec<String>,
    /// Most tools of a list that is searched.
    pub max_tools: usize,
}

/// A list of tools, read once.
#[derive(Debug)]
pub struct ToolList {
    pub id: ListId,
    /// Who sent it.
    pub owner: String,
    tools: Vec<ListedTool>,
    by_name: HashMap<String, usize>,
    /// Other names of tools in namespaces, as far as they are unique.
    aliases: HashMap<String, Option<usize>>,
    /// The tools that are always shown, in their order.
    visible: Vec<usize>,
    /// The tools that are found by searching.
    deferred: Vec<usize>,
    /// The name of the search tool.
    pub search_name: String,
    search_tool: Bytes,
    /// Pins that fit none of the tools.
    pub idle_pins: Vec<String>,
    /// Tokens of all tools, estimated.
    pub tokens: usize,
    /// Bytes in memory, about.
    pub bytes: usize,
}

#[derive(Debug)]
struct ListedTool {
    tool: OfferedTool,
    tokens: usize,
}

impl ListedTool {
    fn new(tool: OfferedTool) -> Self {
        ListedTool {
            tokens: estimated_tokens(&tool.json),
            tool,
        }
    }

    /// Whether it could be found by searching.
    fn can_be_deferred(&self) -> bool {
        let name = &self.tool.name;
        self.tool.kind == ToolKind::Function
            && (1..=MAX_NAME_BYTES).contains(&name.len())
            && !name.chars().any(char::is_control)
    }

    /// Whether the client asks to defer it.
    fn is_marked(&self) -> bool {
        self.can_be_deferred() && self.tool.defer_loading == Some(true)
    }

    /// Whether the client leaves it open.
    fn is_undecided(&self) -> bool {
        self.can_be_deferred() && self.tool.defer_loading.is_none()
    }
}

impl ToolList {
    /// Reads a list.
    ///
    /// # Errors
    /// Why nothing in it is deferred.
    pub fn read(
        id: ListId,
        owner: &str,
        protocol: &dyn Protocol,
        deferral: &Deferral,
        tools: &Bytes,
    ) -> Result<Self, NotDeferred> {
        // Before the list is split, which takes memory for each tool.
        let number = counted(tools)?;
        if number > deferral.max_tools {
            return Err(Reason::TooManyTools.with_tools(number));
        }
        let (tools, bytes) = (Bytes::copy_from_slice(tools), tools.len());
        let mut tools =
            split(protocol, &tools).ok_or(Reason::UnreadableTools.with_tools(number))?;
        // Again, because an entry of the list may be a namespace of many tools.
        let number = tools.len();
        if number > deferral.max_tools {
            return Err(Reason::TooManyTools.with_tools(number));
        }
        if has_deferred_namespace(&tools) {
            tools.retain(|listed| !is_plain_search(&listed.tool));
        }
        if let Some(reason) = other_search(&tools, deferral) {
            return Err(reason.with_tools(number));
        }
        let mut by_name = HashMap::new();
        for (place, listed) in tools.iter().enumerate() {
            let name = &listed.tool.name;
            if !name.is_empty() && by_name.insert(name.clone(), place).is_some() {
                return Err(Reason::SameName.with_tools(number));
            }
        }
        let (deferred, visible) = divide(&tools, deferral);
        if deferred.is_empty() {
            return Err(Reason::ShortList.with_tools(number));
        }
        let aliases = aliases(&tools);
        let taken = by_name.keys().chain(aliases.keys()).map(String::as_str);
        let search_name = search_tool::name(taken);
        let names: Vec<&str> = deferred
            .iter()
            .map(|place| tools[*place].tool.name.as_str())
            .collect();
        let spec = search_tool::spec(&search_name, &names);
        Ok(ToolList {
            id,
            owner: owner.to_owned(),
            search_tool: definition(protocol, &spec, &tools, &deferred),
            idle_pins: idle_pins(&tools, &deferral.pins),
            tokens: tools.iter().map(|listed| listed.tokens).sum(),
            // The texts, the names in the map, and what the entries themselves take.
            bytes: bytes + tools.len() * (3 * size_of::<ListedTool>()),
            tools,
            by_name,
            aliases,
            visible,
            deferred,
            search_name,
        })
    }

    /// The tools that the model sees, with these found ones at the end. `foreign` has the
    /// definitions of those that are not of the list.
    pub fn shown<'t>(
        &self,
        protocol: &dyn Protocol,
        found: impl Iterator<Item = &'t str>,
        foreign: impl Fn(&str) -> Option<Bytes>,
    ) -> Bytes {
        let mut shown = ShownList::default();
        for place in &self.visible {
            let tool = &self.tools[*place].tool;
            shown.add(tool.json.clone(), tool.namespace.as_ref());
        }
        // Before the found ones: what is the same in every round is cached by the provider.
        shown.add(self.search_tool.clone(), None);
        for name in found {
            match self.by_name.get(name) {
                Some(place) => {
                    let tool = &self.tools[*place].tool;
                    shown.add(unmarked(tool), tool.namespace.as_ref());
                }
                None => shown.extend(foreign(name)),
            }
        }
        protocol.tool_list(&shown.entries())
    }

    /// Tokens of the tools that are always shown, with the search tool.
    pub fn visible_tokens(&self) -> usize {
        let visible = self.visible.iter().map(|place| self.tools[*place].tokens);
        visible.sum::<usize>() + estimated_tokens(&self.search_tool)
    }

    /// Number of tools that are always shown, with the search tool.
    pub fn visible_count(&self) -> usize {
        self.visible.len() + 1
    }

    /// The tokens of a deferred tool; `None` for any other.
    pub fn deferred_tokens(&self, name: &str) -> Option<usize> {
        let place = *self.by_name.get(name)?;
        // The places are sorted: the list was divided in its order.
        let is_deferred = self.deferred.binary_search(&place).is_ok();
        is_deferred.then_some(self.tools[place].tokens)
    }

    /// Whether a tool of another catalog may be shown under this name: it cannot be taken for a part
    /// of the name of a tool of the client, or of the search tool.
    pub fn leaves_free(&self, name: &str) -> bool {
        let own = self.by_name.keys().chain([&self.search_name]);
        own.into_iter()
            .all(|own| !own.starts_with(name) && !name.starts_with(own.as_str()))
    }

    /// The name that a tool has here, which models and clients may spell in other ways where it is in
    /// a namespace.
    pub fn resolved<'n>(&'n self, name: &'n str) -> &'n str {
        match self.aliases.get(name) {
            Some(Some(place)) if !self.by_name.contains_key(name) => &self.tools[*place].tool.name,
            _ => name,
        }
    }

    /// Whether the client has a tool of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Names and definitions of the deferred tools.
    pub fn deferred(&self) -> impl ExactSizeIterator<Item = (&str, Bytes)> {
        self.deferred.iter().map(|place| {
            let tool = &self.tools[*place].tool;
            (tool.name.as_str(), searchable(tool))
        })
    }

    /// Names and definitions of the tools that are searched: the deferred ones, and those that the
    /// model sees, so that a search can say that it has the right one already.
    pub fn searched(&self) -> impl Iterator<Item = (&str, Bytes)> {
        let searched = self.tools.iter().filter(|listed| listed.can_be_deferred());
        searched.map(|listed| (listed.tool.name.as_str(), searchable(&listed.tool)))
    }

    /// Whether this tool of the client is always shown.
    pub fn is_visible(&self, name: &str) -> bool {
        self.contains(name) && self.deferred_tokens(name).is_none()
    }

    /// Number of all tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// The share of its deferred tools that another list also defers, by name.
    pub fn shared_with(&self, other: &ToolList) -> f64 {
        let shared = self
            .deferred()
            .filter(|(name, _)| other.deferred_tokens(name).is_some());
        shared.count() as f64 / self.deferred.len().max(other.deferred.len()).max(1) as f64
    }
}

/// The list that a model sees. The tools of a namespace are together, where its first one is.
#[derive(Default)]
struct ShownList<'l>(Vec<(Option<&'l Arc<Namespace>>, Vec<Bytes>)>);

impl<'l> ShownList<'l> {
    fn add(&mut self, tool: Bytes, namespace: Option<&'l Arc<Namespace>>) {
        let mut entries = self.0.iter_mut();
        let same = entries.find(|(other, _)| namespace.is_some() && *other == namespace);
        match same {
            Some((_, tools)) => tools.push(tool),
            None => self.0.push((namespace, vec![tool])),
        }
    }

    fn extend(&mut self, tool: Option<Bytes>) {
        if let Some(tool) = tool {
            self.add(tool, None);
        }
    }

    fn entries(&self) -> Vec<Bytes> {
        let mut entries = Vec::with_capacity(self.0.len());
        for (namespace, tools) in &self.0 {
            match namespace {
                Some(namespace) => entries.push(namespace.with_tools(tools)),
                None => entries.extend(tools.iter().cloned()),
            }
        }
        entries
    }
}

/// The definition of a found tool: its mark of the prompt cache moved to the search tool.
fn unmarked(tool: &OfferedTool) -> Bytes {
    if tool.cache_control.is_none() {
        return tool.json.clone();
    }
    let mut fields = json::Fields::read(&tool.json).unwrap_or_default();
    fields.remove("cache_control");
    fields.to_json()
}

/// Whether tools in a namespace are marked. Clients send those of MCP servers so, beside a search of
/// the provider's, whichever provider they speak with: ours takes its place.
fn has_deferred_namespace(tools: &[ListedTool]) -> bool {
    tools
        .iter()
        .any(|ListedTool { tool, .. }| tool.namespace.is_some() && tool.defer_loading == Some(true))
}

/// Whether a tool is the provider's own search, of which the client asks nothing special.
fn is_plain_search(tool: &OfferedTool) -> bool {
    if tool.kind != ToolKind::NativeSearch {
        return false;
    }
    let definition: Value = serde_json::from_slice(&tool.json).unwrap_or_default();
    definition == json!({ "type": "tool_search" })
}

/// Who else searches among these tools: the provider, or the client.
fn other_search(tools: &[ListedTool], deferral: &Deferral) -> Option<Reason> {
    let mut client_searches = false;
    for ListedTool { tool, .. } in tools {
        if tool.kind == ToolKind::NativeSearch {
            return Some(Reason::ProviderSearches);
        }
        client_searches |= !deferral.beside_other_search && client_search::is_search(tool);
    }
    client_searches.then_some(Reason::ClientSearches)
}

/// What else tools in namespaces are called, by models and by clients that write calls in other APIs.
fn aliases(tools: &[ListedTool]) -> HashMap<String, Option<usize>> {
    let mut aliases = HashMap::new();
    for (place, listed) in tools.iter().enumerate() {
        let Some(namespace) = &listed.tool.namespace else {
            continue;
        };
        let prefix = name_within(&namespace.name, "");
        let Some(name) = listed.tool.name.strip_prefix(&prefix) else {
            continue;
        };
        let namespace = &namespace.name;
        for alias in [
            name.to_owned(),
            format!("{namespace}{name}"),
            format!("{namespace}__{name}"),
        ] {
            let of_one = aliases.entry(alias).or_insert(Some(place));
            // An alias of two tools names neither, and stays known so that a third does not get it.
            if *of_one != Some(place) {
                *of_one = None;
            }
        }
    }
    aliases
}

/// The tools of a list, those in namespaces among them; `None` where it is none.
fn split(protocol: &dyn Protocol, tools: &Bytes) -> Option<Vec<ListedTool>> {
    let items = json::items(tools)?;
    let mut split = Vec::with_capacity(items.len());
    for item in &items {
        match protocol.members(item) {
            Some(members) => split.extend(members.into_iter().map(ListedTool::new)),
            None => split.push(ListedTool::new(protocol.tool(item))),
        }
    }
    Some(split)
}

/// The number of tools of a list that has some.
fn counted(tools: &[u8]) -> Result<usize, NotDeferred> {
    match json::count(tools) {
        Some(0) => Err(Reason::NoTools.with_tools(0)),
        Some(number) => Ok(number),
        None if tools == b"null" => Err(Reason::NoTools.with_tools(0)),
        None => Err(Reason::UnreadableTools.with_tools(0)),
    }
}

/// Tokens of a definition, estimated by its length: counting a long list takes longer than
/// everything else.
pub fn estimated_tokens(json: &[u8]) -> usize {
    json.len().div_ceil(BYTES_PER_TOKEN)
}

/// The definition of a tool under the name that it is searched by.
fn searchable(tool: &OfferedTool) -> Bytes {
    // Outside a namespace a tool is searched by the name that it has.
    if tool.namespace.is_none() {
        return tool.json.clone();
    }
    let Some(mut fields) = json::Fields::read(&tool.json) else {
        return tool.json.clone();
    };
    fields.set("name", json::text(&tool.name).into());
    fields.to_json()
}

/// The places of the deferred and of the visible tools.
fn divide(tools: &[ListedTool], deferral: &Deferral) -> (Vec<usize>, Vec<usize>) {
    // What the client marked is deferred however short the rest is, so it does not count.
    let mut unmarked_tokens = 0;
    let mut candidates = Vec::new();
    for (place, listed) in tools.iter().enumerate() {
        if !listed.is_marked() {
            unmarked_tokens += listed.tokens;
        }
        if listed.is_undecided() {
            candidates.push(Candidate {
                place,
                name: &listed.tool.name,
                is_in_namespace: listed.tool.namespace.is_some(),
                tokens: listed.tokens,
            });
        }
    }
    let is_too_long = unmarked_tokens > deferral.above_tokens;
    let own = own_tools::places(&candidates, deferral.own_tokens);
    let (mut deferred, mut visible) = (Vec::new(), Vec::new());
    for (place, listed) in tools.iter().enumerate() {
        let is_left_out = is_too_long
            && listed.is_undecided()
            && !own.contains(&place)
            && !is_pinned(&listed.tool.name, &deferral.pins);
        if listed.is_marked() || is_left_out {
            deferred.push(place);
        } else {
            visible.push(place);
        }
    }
    (deferred, visible)
}

fn is_pinned(name: &str, pins: &[String]) -> bool {
    pins.iter().any(|pin| matches(pin, name))
}

/// The pins that fit none of these tools.
fn idle_pins(tools: &[ListedTool], pins: &[String]) -> Vec<String> {
    let fits_none = |pin: &&String| !tools.iter().any(|listed| matches(pin, &listed.tool.name));
    pins.iter().filter(fits_none).cloned().collect()
}

/// Whether a name matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(first) else {
        return false;
    };
    (0..=name.len()).any(|start| name.is_char_boundary(start) && matches(rest, &name[start..]))
}

/// The search tool's definition, with the mark of the prompt cache that a deferred tool had.
fn definition(
    protocol: &dyn Protocol,
    spec: &ToolSpec,
    tools: &[ListedTool],
    deferred: &[usize],
) -> Bytes {
    let definition = protocol.search_tool(spec);
    // The last mark, since it covers all that stands before it.
    let mut marks = deferred
        .iter()
        .filter_map(|place| tools[*place].tool.cache_control.clone());
    match (marks.next_back(), json::Fields::read(&definition)) {
        (Some(mark), Some(mut fields)) => {
            fields.set("cache_control", mark);
            fields.to_json()
        }
        _ => definition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(above_tokens: usize, pins: &[&str], tools: &str) -> Result<ToolList, NotDeferred> {
        let deferral = Deferral {
            above_tokens,
            own_tokens: 1_000,
            beside_other_search: false,
            pins: pins.iter().map(|pin| (*pin).to_owned()).collect(),
            max_tools: 4,
        };
        let id = ListId::of("o", Dialect::Chat, &deferral, tools.as_bytes());
        let tools = Bytes::from(tools.to_owned());
        ToolList::read(id, "o", Dialect::Chat.protocol(), &deferral, &tools)
    }

    fn function(name: &str, mark: &str) -> String {
        format!(r#"{{"type":"function",{mark}"function":{{"name":"{name}","description":"d"}}}}"#)
    }

    fn shown(list: &ToolList, found: &[&str]) -> String {
        let protocol = Dialect::Chat.protocol();
        let shown = list.shown(protocol, found.iter().copied(), |_| None);
        String::from_utf8(shown.to_vec()).unwrap()
    }

    #[test]
    fn marked_tools_are_deferred_and_their_mark_is_taken_out() {
        let (a, b) = (function("a", ""), function("b", r#""defer_loading":true,"#));
        let list = read(1000, &[], &format!("[{a},{b}]")).unwrap();
        assert_eq!(list.deferred_tokens("b"), Some(16));
        assert_eq!(list.deferred_tokens("a"), None);
        let text = shown(&list, &["b"]);
        assert!(text.starts_with(&format!("[{a},{{\"type\"")), "{text}");
        assert!(
            text.ends_with(&format!(",{}]", function("b", ""))),
            "{text}"
        );
        assert!(!shown(&list, &[]).contains("\"b\""));
    }

    #[test]
    fn a_long_list_is_deferred_but_for_its_pins_and_hosted_tools() {
        let hosted = r#"{"type":"web_search"}"#;
        let tools = [
            function("a_x", ""),
            function("b", ""),
            function("c", r#""defer_loading":false,"#),
            hosted.to_owned(),
        ];
        let text = format!("[{}]", tools.join(","));
        let short = read(1000, &[], &text).unwrap_err();
        assert_eq!(short, Reason::ShortList.with_tools(4));
        let list = read(20, &["a_*", "mail_*"], &text).unwrap();
        let searched: Vec<&str> = list.searched().map(|(name, _)| name).collect();
        assert_eq!(searched, ["a_x", "b", "c"]);
        assert!(list.is_visible("a_x") && !list.is_visible("b") && !list.is_visible("other"));
        assert_eq!(list.idle_pins, ["mail_*"]);
        let deferred: Vec<&str> = list.deferred().map(|(name, _)| name).collect();
        assert_eq!(deferred, ["b"]);
        let shown = shown(&list, &[]);
        assert!(
            shown.contains(hosted) && !shown.contains("defer_loading"),
            "{shown}"
        );
    }

    #[test]
    fn a_list_that_is_left_alone_says_why() {
        let a = function("a", "");
        for (tools, reason, number) in [
            (format!("[{a},{a}]"), Reason::SameName, 2),
            (
                format!("[{a},{{\"type\":\"tool_search\"}}]"),
                Reason::ProviderSearches,
                2,
            ),
            ("{}".to_owned(), Reason::UnreadableTools, 0),
            ("null".to_owned(), Reason::NoTools, 0),
            ("[]".to_owned(), Reason::NoTools, 0),
            (format!("[{a},1,2,3,4]"), Reason::TooManyTools, 5),
        ] {
            let left_alone = read(0, &[], &tools).unwrap_err();
            assert_eq!(left_alone, reason.with_tools(number), "{tools}");
        }
        assert!(read(0, &[], &format!("[{a}]")).is_ok());
    }

    #[test]
    fn patterns_match_with_stars() {
        assert!(matches("a*c", "abc") && matches("*", "") && matches("a", "a"));
        assert!(!matches("a*c", "ab") && !matches("a", "ab"));
    }
}
