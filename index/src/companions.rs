//! Companions: which tool finds the value that another tool needs.
//!
//! `update_person` needs `person_id`, so `search_people` is its companion. What a tool needs and what
//! it gives is read of its name, its description and its schemas ([`interface`]). Companions are tools
//! of the same server, since an identifier means nothing to another one.
//!
//! The weights were chosen on half of the catalogs of requests in people's words, by which tools
//! people say have to come first. The other half gave the figures in BENCHMARKS.md.

mod needs;
mod pair;
mod interface;
mod values;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use needs::{Need, Sign, Thing};
use pair::Pair;

pub use interface::Interface;
pub use values::given;

use crate::hit::ranked;
use crate::tool::ToolId;

/// Companions of a tool that are kept.
const MAX_COMPANIONS: usize = 4;
/// The least score of a companion.
const MIN_SCORE: f32 = 3.5;
/// Tools of a server up to which all of them are read. Of larger servers only those are read whose
/// name has the noun that is looked for.
const MAX_READ: usize = 1024;
/// Tools of a larger server that are read for one noun.
const MAX_CANDIDATES: usize = 64;
/// Fewest bytes of a tool's name that is looked for in the description of a parameter.
const MIN_NAME: usize = 6;
/// What a parameter loses that all tools of its server have: such as that of the account, which is
/// known after the first call.
const COMMON: f32 = 1.4;
/// Tools of a server that are read to say how common a parameter is.
const MAX_SAMPLE: usize = 256;

/// The tools that a snapshot has, by position. Those of one server need not follow each other.
pub trait Definitions {
    /// The number of tools.
    fn count(&self) -> usize;
    /// The id of a tool.
    fn id(&self, tool: u32) -> &ToolId;
    /// False for an item of another kind, which neither has a companion nor is one.
    fn is_tool(&self, tool: u32) -> bool;
    /// What a tool needs and gives.
    fn interface(&self, tool: u32) -> &Interface;
}

/// A tool that finds what another tool needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Companion {
    /// Its position.
    pub tool: u32,
    /// The parameter of the other tool that it finds a value for.
    pub parameter: String,
    /// Why it is thought to.
    pub reason: String,
}

/// The companions of a snapshot's tools. Each server is read when a companion of one of its tools is
/// first asked for.
#[derive(Default)]
pub struct Companions {
    servers: OnceLock<HashMap<Box<str>, Arc<Server>>>,
}

/// The tools of a server.
struct Server {
    /// Their positions, ascending.
    tools: Vec<u32>,
    index: OnceLock<Index>,
}

/// What companions of a server's tools are found by.
struct Index {
    /// By a noun of their name, and of small servers of their description.
    by_noun: HashMap<Box<str>, Vec<u32>>,
    /// By the path that they read, and by the fields of their results; of small servers only.
    by_path: HashMap<Box<str>, u32>,
    by_field: HashMap<Box<str>, Vec<u32>>,
    /// By their name.
    by_name: HashMap<Box<str>, u32>,
    /// The share of the server's tools that have a parameter which identifies something.
    shares: HashMap<Box<str>, f32>,
    /// The words of the server's name.
    words: HashSet<String>,
    /// In the order of [`Server::tools`].
    companions: Vec<OnceLock<Box<[Companion]>>>,
}

impl Companions {
    /// Reads every server, so that no search has to.
    pub fn prepare(&self, definitions: &impl Definitions) {
        for server in self.servers(definitions).values() {
            server.index(definitions);
        }
    }

    /// The companions after tools of these servers were replaced: by tools of the same kinds, ids and
    /// positions. Only these servers are read again.
    pub fn replaced<'a>(&self, changed: impl Iterator<Item = &'a str>) -> Self {
        let Some(servers) = self.servers.get() else {
            return Companions::default();
        };
        let mut servers = servers.clone();
        for server in changed {
            if let Some(server) = servers.get_mut(server) {
                *server = Arc::new(Server {
                    tools: server.tools.clone(),
                    index: OnceLock::new(),
                });
            }
        }
        Companions {
            servers: OnceLock::from(servers),
        }
    }

    fn servers(&self, definitions: &impl Definitions) -> &HashMap<Box<str>, Arc<Server>> {
        self.servers.get_or_init(|| by_server(definitions))
    }

    /// The companions of a tool, the most needed first.
    pub fn of(&self, tool: u32, definitions: &impl Definitions) -> &[Companion] {
        let Some(server) = self.servers(definitions).get(definitions.id(tool).server()) else {
            return &[];
        };
        let Ok(place) = server.tools.binary_search(&tool) else {
            return &[];
        };
        let index = server.index(definitions);
        index.companions[place].get_or_init(|| index.find(tool, definitions))
    }
}

impl Server {
    fn index(&self, definitions: &impl Definitions) -> &Index {
        self.index
            .get_or_init(|| Index::new(&self.tools, definitions))
    }
}

fn by_server(definitions: &impl Definitions) -> HashMap<Box<str>, Arc<Server>> {
    let mut tools_of: HashMap<&str, Vec<u32>> = HashMap::new();
    for tool in 0..definitions.count() as u32 {
        if definitions.is_tool(tool) {
            let server = definitions.id(tool).server();
            tools_of.entry(server).or_default().push(tool);
        }
    }
    let mut servers = HashMap::with_capacity(tools_of.len());
    for (name, tools) in tools_of {
        let server = Server {
            tools,
            index: OnceLock::new(),
        };
        servers.insert(name.into(), Arc::new(server));
    }
    servers
}

impl Index {
    fn new(tools: &[u32], definitions: &impl Definitions) -> Self {
        let server = match tools.first() {
            Some(&tool) => definitions.id(tool).server(),
            None => "",
        };
        let of_server = words::words(server);
        let mut server_words = HashSet::from_iter(words::nouns(&of_server));
        // Names of tools may have the words of the server in one.
        server_words.insert(of_server.concat());
        let mut index = Index {
            by_noun: HashMap::new(),
            by_path: HashMap::new(),
            by_field: HashMap::new(),
            by_name: HashMap::new(),
            shares: shares(tools, definitions),
            words: server_words,
            companions: tools.iter().map(|_| OnceLock::new()).collect(),
        };
        for &tool in tools {
            let name = definitions.id(tool).name();
            index.add_name(tool, name);
            let nouns = match tools.len() <= MAX_READ {
                true => index.add_interface(tool, definitions.interface(tool)),
                false => HashSet::from_iter(words::nouns(&words::words(name))),
            };
            for noun in nouns {
                index.by_noun.entry(noun.into()).or_default().push(tool);
            }
        }
        if tools.len() > MAX_READ {
            for candidates in index.by_noun.values_mut() {
                keep_likely(candidates, definitions);
            }
        }
        index
    }

    fn add_name(&mut self, tool: u32, name: &str) {
        self.by_name.insert(name.to_lowercase().into(), tool);
        // Documents name a method by its last two parts.
        if let [.., resource, method] = name.split('.').collect::<Vec<_>>().as_slice() {
            let short = format!("{resource}.{method}").to_lowercase();
            self.by_name.insert(short.into(), tool);
        }
    }

    /// Adds what a tool of a small server gives. Returns the nouns that it may be found by.
    fn add_interface(&mut self, tool: u32, interface: &Interface) -> HashSet<String> {
        if let Some(path) = &interface.reads_path {
            self.by_path.insert(path.as_str().into(), tool);
        }
        for field in &interface.fields {
            let tools = self.by_field.entry(field.as_str().into());
            tools.or_default().push(tool);
        }
        all_nouns(interface)
    }

    /// Looks for the companions of a tool.
    fn find(&self, tool: u32, definitions: &impl Definitions) -> Box<[Companion]> {
        let interface = definitions.interface(tool);
        let mut found: Vec<(f32, Companion)> = Vec::new();
        for need in &interface.needs {
            let Some((score, companion)) = self.best(tool, need, definitions) else {
                continue;
            };
            let share = self
                .shares
                .get(need.parameter.as_str())
                .copied()
                .unwrap_or_default();
            let score = score - doubt(need) - COMMON * share;
            if score >= MIN_SCORE {
                found.push((score, companion));
            }
        }
        // A stable sort: needs of equal score stay in the order of the schema.
        found.sort_by(|one, other| other.0.total_cmp(&one.0));
        // One tool may find what several parameters need; it is kept for the first of them.
        let mut seen = HashSet::new();
        let mut distinct = Vec::new();
        for (_, companion) in found {
            if distinct.len() < MAX_COMPANIONS && seen.insert(companion.tool) {
                distinct.push(companion);
            }
        }
        distinct.into()
    }

    /// The tool that is most likely to find what a parameter needs.
    fn best(
        &self,
        tool: u32,
        need: &Need,
        definitions: &impl Definitions,
    ) -> Option<(f32, Companion)> {
        let named = self.named(need);
        let pair = |giver: u32| Pair {
            needing: definitions.interface(tool),
            need,
            giving: definitions.interface(giver),
            is_named: named.contains(&giver),
            server_words: &self.words,
        };
        let mut scored = Vec::new();
        for giver in self.candidates(need, &named) {
            if giver != tool
                && let Some(score) = pair(giver).score()
            {
                scored.push((score, giver));
            }
        }
        // Of two that fit alike, the shorter name has less that was not asked for.
        let order = |&(score, giver): &(f32, u32)| {
            let id = definitions.id(giver).as_str();
            (score, (id.len(), id))
        };
        let (score, giver) = scored
            .into_iter()
            .min_by(|one, other| ranked(order(one), order(other)))?;
        let companion = Companion {
            tool: giver,
            parameter: need.parameter.clone(),
            reason: pair(giver).reason(),
        };
        Some((score, companion))
    }

    /// The tools that may give what a parameter needs, ascending. `named` are those that its
    /// description names.
    fn candidates(&self, need: &Need, named: &[u32]) -> Vec<u32> {
        let mut nouns = Vec::new();
        match &need.thing {
            Thing::Named(noun) => {
                nouns.extend(noun.last().cloned());
                nouns.push(noun.concat());
            }
            Thing::Resource(path) => {
                if let Some(last) = path.last() {
                    nouns = words::nouns(&words::words(last));
                }
            }
        }
        let mut candidates = named.to_vec();
        for noun in &nouns {
            if let Some(tools) = self.by_noun.get(noun.as_str()) {
                candidates.extend(tools);
            }
        }
        if let Some(tools) = self.by_field.get(need.parameter.as_str()) {
            candidates.extend(tools);
        }
        if let Some(path) = &need.collection
            && let Some(&tool) = self.by_path.get(path.as_str())
        {
            candidates.push(tool);
        }
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The tools that the description of a parameter names.
    fn named(&self, need: &Need) -> Vec<u32> {
        let ends_name = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.');
        let mut named = Vec::new();
        for text in need.description.split(ends_name) {
            // A dot may be a part of the name or end the sentence.
            let text = text.trim_matches('.');
            if text.len() >= MIN_NAME
                && let Some(&tool) = self.by_name.get(text.to_lowercase().as_str())
            {
                named.push(tool);
            }
        }
        named
    }
}

/// Every noun that a tool may be found by.
fn all_nouns(interface: &Interface) -> HashSet<String> {
    let nouns = interface.nouns.iter().chain(&interface.described);
    let mut nouns: HashSet<String> = nouns.cloned().collect();
    // The noun that is looked for may have both in one word.
    if let Some(last) = interface.nouns.last_chunk::<2>() {
        nouns.insert(last.concat());
    }
    nouns
}

/// Keeps the tools of a large server that are most likely to give something, by their names alone.
fn keep_likely(candidates: &mut Vec<u32>, definitions: &impl Definitions) {
    if candidates.len() <= MAX_CANDIDATES {
        return;
    }
    candidates.sort_by_cached_key(|&tool| {
        let words = words::words(definitions.id(tool).name());
        let verb = words.iter().map(String::as_str).find_map(words::verb);
        let is_listing = verb == Some(words::Verb::List);
        let is_writing = verb == Some(words::Verb::Write);
        (is_writing, !is_listing, words.len(), tool)
    });
    candidates.truncate(MAX_CANDIDATES);
    candidates.sort_unstable();
}

/// The share of these tools that have each of the parameters which identify something.
fn shares(tools: &[u32], definitions: &impl Definitions) -> HashMap<Box<str>, f32> {
    let step = tools.len().div_ceil(MAX_SAMPLE).max(1);
    let mut sampled = 0.0;
    let mut numbers: HashMap<Box<str>, f32> = HashMap::new();
    for &tool in tools.iter().step_by(step) {
        sampled += 1.0;
        for need in &definitions.interface(tool).needs {
            *numbers.entry(need.parameter.as_str().into()).or_default() += 1.0;
        }
    }
    for number in numbers.values_mut() {
        *number /= sampled;
    }
    numbers
}

/// What speaks against looking for what a parameter identifies.
fn doubt(need: &Need) -> f32 {
    let of_sign = match need.sign {
        Sign::Said | Sign::ResourceName => 0.0,
        Sign::OwnObject => 0.3,
        Sign::BareName => 1.2,
    };
    of_sign + if need.is_required { 0.0 } else { 0.5 }
}
