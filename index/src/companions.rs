//! Companions: which tool finds the value that another tool needs.
//!
//! `update_person` needs `person_id`, so `search_people` is its companion. What a tool needs and what
//! it gives is read of its name, its description and its schemas ([`profile`]). Companions are tools
//! of the same server, since an identifier means nothing to another one.
//!
//! The weights were chosen on half of the catalogs of requests in people's words, by which tools
//! people say have to come first. The other half gave the figures in BENCHMARKS.md.

mod needs;
mod pair;
mod profile;
mod values;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use needs::{Need, Sign, Thing};
use pair::Pair;

pub use profile::Profile;
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
    /// What a tool needs and gives.
    fn profile(&self, tool: u32) -> &Profile;
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
    servers: OnceLock<HashMap<Box<str>, Server>>,
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
            server
                .index
                .get_or_init(|| Index::new(&server.tools, definitions));
        }
    }

    fn servers(&self, definitions: &impl Definitions) -> &HashMap<Box<str>, Server> {
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
        let index = server
            .index
            .get_or_init(|| Index::new(&server.tools, definitions));
        index.companions[place].get_or_init(|| index.find(tool, definitions))
    }
}

fn by_server(definitions: &impl Definitions) -> HashMap<Box<str>, Server> {
    let mut servers: HashMap<Box<str>, Server> = HashMap::new();
    for tool in 0..definitions.count() as u32 {
        let name = definitions.id(tool).server();
        if !servers.contains_key(name) {
            let server = Server {
                tools: Vec::new(),
                index: OnceLock::new(),
            };
            servers.insert(name.into(), server);
        }
        if let Some(server) = servers.get_mut(name) {
            server.tools.push(tool);
        }
    }
    servers
}

impl Index {
    fn new(tools: &[u32], definitions: &impl Definitions) -> Self {
        let mut by_noun: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut by_path: HashMap<Box<str>, u32> = HashMap::new();
        let mut by_field: HashMap<Box<str>, Vec<u32>> = HashMap::new();
        let mut by_name = HashMap::new();
        for &tool in tools {
            let name = definitions.id(tool).name();
            by_name.insert(name.to_lowercase().into(), tool);
            // Documents name a method by its last two parts.
            if let [.., resource, method] = name.split('.').collect::<Vec<_>>().as_slice() {
                by_name.insert(format!("{resource}.{method}").to_lowercase().into(), tool);
            }
            let nouns: HashSet<String> = if tools.len() <= MAX_READ {
                let profile = definitions.profile(tool);
                if let Some(path) = &profile.reads_path {
                    by_path.insert(path.as_str().into(), tool);
                }
                for field in &profile.fields {
                    by_field
                        .entry(field.as_str().into())
                        .or_default()
                        .push(tool);
                }
                all_nouns(profile)
            } else {
                words::nouns(&words::words(name)).into_iter().collect()
            };
            for noun in nouns {
                by_noun.entry(noun.into()).or_default().push(tool);
            }
        }
        if tools.len() > MAX_READ {
            for candidates in by_noun.values_mut() {
                keep_likely(candidates, definitions);
            }
        }
        let first = tools.first().map(|&tool| definitions.id(tool).server());
        let of_server = words::words(first.unwrap_or_default());
        let joined = of_server.concat();
        Index {
            by_noun,
            by_path,
            by_field,
            by_name,
            shares: shares(tools, definitions),
            words: words::nouns(&of_server)
                .into_iter()
                .chain([joined])
                .collect(),
            companions: tools.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Looks for the companions of a tool.
    fn find(&self, tool: u32, definitions: &impl Definitions) -> Box<[Companion]> {
        let profile = definitions.profile(tool);
        let mut found: Vec<(f32, Companion)> = Vec::new();
        for need in &profile.needs {
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
        let mut seen = HashSet::new();
        let distinct = found
            .into_iter()
            .filter(|(_, companion)| seen.insert(companion.tool));
        distinct
            .take(MAX_COMPANIONS)
            .map(|(_, companion)| companion)
            .collect()
    }

    /// The tool that is most likely to find what a parameter needs.
    fn best(
        &self,
        tool: u32,
        need: &Need,
        definitions: &impl Definitions,
    ) -> Option<(f32, Companion)> {
        let candidates = self.candidates(need);
        let pair = |giver: u32| Pair {
            needing: definitions.profile(tool),
            need,
            giving: definitions.profile(giver),
            is_named: self.named(need).any(|named| named == giver),
            server_words: &self.words,
        };
        let scored = candidates
            .into_iter()
            .filter(|&giver| giver != tool)
            .filter_map(|giver| Some((pair(giver).score()?, giver)));
        // Of two that fit alike, the shorter name has less that was not asked for.
        let order = |&(score, giver): &(f32, u32)| {
            let id = definitions.id(giver).as_str();
            (score, (id.len(), id))
        };
        let (score, giver) = scored.min_by(|one, other| ranked(order(one), order(other)))?;
        let companion = Companion {
            tool: giver,
            parameter: need.parameter.clone(),
            reason: pair(giver).reason(),
        };
        Some((score, companion))
    }

    /// The tools that may give what a parameter needs, ascending.
    fn candidates(&self, need: &Need) -> Vec<u32> {
        let mut nouns: Vec<String> = match &need.thing {
            Thing::Named(noun) => noun
                .last()
                .cloned()
                .into_iter()
                .chain([noun.concat()])
                .collect(),
            Thing::Resource(path) => path
                .last()
                .map(|last| words::words(last))
                .into_iter()
                .flatten()
                .collect(),
        };
        if let Thing::Resource(_) = need.thing {
            nouns = words::nouns(&nouns);
        }
        let of_nouns = nouns
            .iter()
            .filter_map(|noun| self.by_noun.get(noun.as_str()));
        let of_field = self.by_field.get(need.parameter.as_str());
        let of_path = need.collection.as_deref();
        let of_path = of_path.and_then(|path| self.by_path.get(path));
        let others = self.named(need).chain(of_path.copied());
        let mut candidates: Vec<u32> = of_nouns
            .chain(of_field)
            .flatten()
            .copied()
            .chain(others)
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The tools that the description of a parameter names.
    fn named<'a>(&'a self, need: &'a Need) -> impl Iterator<Item = u32> + 'a {
        let is_part = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.');
        let texts = need
            .description
            .split(is_part)
            .map(|text| text.trim_matches('.'));
        texts
            .filter(|text| text.len() >= MIN_NAME)
            .filter_map(|text| self.by_name.get(text.to_lowercase().as_str()).copied())
    }
}

/// Every noun that a tool may be found by.
fn all_nouns(profile: &Profile) -> HashSet<String> {
    let joined = profile.nouns.last_chunk::<2>().map(|last| last.concat());
    let nouns = profile.nouns.iter().chain(&profile.described).cloned();
    nouns.chain(joined).collect()
}

/// Keeps the tools of a large server that are most likely to give something, by their names alone.
fn keep_likely(candidates: &mut Vec<u32>, definitions: &impl Definitions) {
    if candidates.len() <= MAX_CANDIDATES {
        return;
    }
    candidates.sort_by_cached_key(|&tool| {
        let words = words::words(definitions.id(tool).name());
        let verbs = words.iter().find_map(|word| words::verb(word));
        let is_listing = matches!(verbs, Some(words::Verb::List));
        let is_writing = matches!(verbs, Some(words::Verb::Write));
        (is_writing, !is_listing, words.len(), tool)
    });
    candidates.truncate(MAX_CANDIDATES);
    candidates.sort_unstable();
}

/// The share of these tools that have each of the parameters which identify something.
fn shares(tools: &[u32], definitions: &impl Definitions) -> HashMap<Box<str>, f32> {
    let step = tools.len().div_ceil(MAX_SAMPLE).max(1);
    let sample: Vec<&Profile> = tools
        .iter()
        .step_by(step)
        .map(|&tool| definitions.profile(tool))
        .collect();
    let mut numbers: HashMap<Box<str>, f32> = HashMap::new();
    for need in sample.iter().flat_map(|profile| &profile.needs) {
        *numbers.entry(need.parameter.as_str().into()).or_default() += 1.0;
    }
    for number in numbers.values_mut() {
        *number /= sample.len() as f32;
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
