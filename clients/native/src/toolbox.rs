//! The tools that a model sees in one conversation: the agent's toolbox, with its search.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolscout::config::{MORE_CHARS, MORE_TOOLS};
use toolscout::finder::meta_tools::{self, FindConfig, MoreTools, Style};
use toolscout::finder::model_names::nearest;
use toolscout::finder::snapshot::CurrentSnapshot;
use toolscout::finder::toolbox::{self, Injection, ToolboxConfig, ToolboxState, o200k};
use toolscout::finder::{Eviction, ToolSearch};
use toolscout::llm::ToolSpec;
use toolscout::tools::Arguments;
use toolscout::tools::arguments::check;
use toolscout_index::formats::{Emit, emit_tool, model_name};
use toolscout_index::query::MAX_K;
use toolscout_index::{Filter, Searcher, Tool, ToolId};

use crate::error::{Error, Result};
use crate::opening::Open;

/// The version of stored states.
const STATE_VERSION: u32 = 1;
/// Counted texts that are remembered.
const MAX_COUNTED: usize = 16_384;
/// Similar names in an error about an unknown one.
const MAX_NEAREST: usize = 3;

/// The options of a toolbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Most tokens of all tools together.
    pub budget: i64,
    /// Which tool is evicted first: `lru`, `lfu` or `none`.
    pub policy: String,
    /// Turns without use after which a tool is evicted at the end of a turn.
    pub idle_turns: i64,
    /// Most tools of a search whose model names no limit; the catalog's default if not given.
    #[serde(default)]
    pub limit: Option<i64>,
    /// Most tools after the hits that a search names, in a line each; 11 if not given, none with 0.
    #[serde(default)]
    pub more_tools: Option<i64>,
    /// Characters of the description in such a line; 100 if not given.
    #[serde(default)]
    pub more_chars: Option<i64>,
    /// Only tools of these servers; empty for all.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Only tools with one of these tags; empty for all.
    #[serde(default)]
    pub tags: Vec<String>,
}

impl Options {
    fn config(&self) -> Result<ToolboxConfig> {
        let eviction = match self.policy.as_str() {
            "lru" => Eviction::Lru,
            "lfu" => Eviction::Lfu,
            "none" => Eviction::None,
            other => {
                let message = format!("policy is {other:?}, it must be lru, lfu or none");
                return Err(invalid(message));
            }
        };
        let from_one = |name: &str, value: i64| match u64::try_from(value) {
            Ok(value) if value > 0 => Ok(value),
            _ => Err(invalid(format!("{name} is {value}, it must be 1 or more"))),
        };
        let budget = from_one("budget", self.budget)?;
        Ok(ToolboxConfig {
            budget_tokens: usize::try_from(budget).unwrap_or(usize::MAX),
            eviction,
            idle_turns: from_one("idle_turns", self.idle_turns)?,
        })
    }

    fn more(&self) -> Result<MoreTools> {
        let up_to = |name: &str, value: Option<i64>, default: usize, most: u64| {
            let Some(value) = value else {
                return Ok(default);
            };
            match usize::try_from(value) {
                Ok(number) if value as u64 <= most => Ok(number),
                _ => Err(invalid(format!(
                    "{name} is {value}, it must be from 0 to {most}"
                ))),
            }
        };
        let default = MoreTools::default();
        let (lines, chars) = (*MORE_TOOLS.end(), *MORE_CHARS.end());
        Ok(MoreTools {
            lines: up_to("more_tools", self.more_tools, default.lines, lines)?,
            chars: up_to("more_chars", self.more_chars, default.chars, chars)?,
        })
    }

    fn find_config(&self) -> FindConfig {
        let filter = Filter {
            servers: self.servers.iter().cloned().collect(),
            tags: self.tags.iter().cloned().collect(),
            ..Filter::default()
        };
        FindConfig {
            filter,
            // A toolbox was made with options that were checked.
            more: self.more().unwrap_or_default(),
            ..FindConfig::default()
        }
    }

    fn checked_limit(&self) -> Result<Option<usize>> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        match usize::try_from(limit) {
            Ok(limit) if (1..=MAX_K).contains(&limit) => Ok(Some(limit)),
            _ => Err(invalid(format!(
                "limit is {limit}, it must be from 1 to {MAX_K}"
            ))),
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new("invalid_toolbox", message)
}

/// What a search of the model has done.
#[derive(Debug, Serialize)]
pub struct Searched {
    /// The answer for the model.
    pub text: String,
    /// The ids of what was found, best first.
    pub found: Vec<String>,
    /// What became of it.
    #[serde(flatten)]
    pub injected: Injected,
}

/// What an injection has done, by ids.
#[derive(Debug, Default, Serialize)]
pub struct Injected {
    /// Newly visible.
    pub added: Vec<String>,
    /// Visible before.
    pub already: Vec<String>,
    /// Tools that do not fit, with their tokens.
    pub refused: Vec<(String, usize)>,
    /// Evicted for the new ones.
    pub evicted: Vec<String>,
}

impl From<&Injection> for Injected {
    fn from(injection: &Injection) -> Self {
        let refused = injection.refused.iter();
        Injected {
            added: texts(&injection.added),
            already: texts(&injection.already),
            refused: refused
                .map(|(id, tokens)| (id.to_string(), *tokens))
                .collect(),
            evicted: texts(&injection.evicted),
        }
    }
}

fn texts(ids: &[ToolId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// What is stored of a toolbox.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    options: Options,
    pinned: Vec<String>,
    toolbox: ToolboxState,
}

/// The visible tools of one conversation, and the search that adds to them.
pub struct Toolbox {
    options: Options,
    toolbox: toolbox::Toolbox,
    pinned: Vec<ToolId>,
    /// The tools were written for a request since the last call: the next call is of a new round.
    is_asked: bool,
}

impl Toolbox {
    /// An empty toolbox.
    ///
    /// # Errors
    /// `invalid_toolbox` that names the option.
    pub fn new(options: Options) -> Result<Self> {
        options.checked_limit()?;
        options.more()?;
        let toolbox = toolbox::Toolbox::new(options.config()?, counted);
        Ok(Toolbox {
            options,
            toolbox,
            pinned: Vec::new(),
            is_asked: false,
        })
    }

    /// The toolbox of a state, and the ids of its tools that the catalog no longer has.
    ///
    /// # Errors
    /// `invalid_toolbox` for what is no state.
    pub fn restored(open: &Open, state: &str) -> Result<(Self, Vec<String>)> {
        let unreadable =
            |reason: String| invalid(format!("the state of a toolbox cannot be read: {reason}"));
        let stored: Stored =
            serde_json::from_str(state).map_err(|failure| unreadable(failure.to_string()))?;
        if stored.version != STATE_VERSION {
            let message = format!("its version is {}, not {STATE_VERSION}", stored.version);
            return Err(unreadable(message));
        }
        let searcher = open.newest()?;
        let lookup = |id: &str| ToolId::parse(id).ok().and_then(|id| searcher.tool(&id));
        let ids = stored.pinned.iter().map(String::as_str);
        let missing = ids.chain(stored.toolbox.loaded());
        let missing = missing.filter(|id| lookup(id).is_none());
        let missing = missing.map(str::to_owned).collect();
        let mut made = Toolbox::new(stored.options)?;
        for tool in stored.pinned.iter().filter_map(|id| lookup(id)) {
            made.pinned.push(tool.id.clone());
            made.toolbox.pin(tool);
        }
        made.toolbox = made
            .toolbox
            .restore(&stored.toolbox, |id| searcher.tool(id));
        Ok((made, missing))
    }

    /// Its state: what [`Toolbox::restored`] takes.
    ///
    /// # Errors
    /// None in practice.
    pub fn state(&self) -> Result<Value> {
        let stored = Stored {
            version: STATE_VERSION,
            options: self.options.clone(),
            pinned: texts(&self.pinned),
            toolbox: self.toolbox.state(),
        };
        Ok(serde_json::to_value(stored)?)
    }

    /// What a search looks for. The arguments are those of the model's call.
    ///
    /// # Errors
    /// A message for the model: how to search.
    pub fn request(&self, open: &Open, arguments: &Value) -> Result<Search, String> {
        let Value::Object(arguments) = arguments else {
            return Err("the arguments are no JSON object".to_owned());
        };
        let mut request = meta_tools::parse(arguments, &self.options.find_config())?;
        let own = self.options.checked_limit().unwrap_or_default();
        request.limit = request.limit.or(own).or(open.search_defaults().k);
        Ok(Search(request))
    }

    /// Makes what a search found visible, and writes the answer for the model.
    pub fn take(&mut self, found: &Found) -> Searched {
        self.begin_round();
        let tools = meta_tools::merged(std::slice::from_ref(&found.0));
        let injection = self.toolbox.inject(&tools);
        let more = self.options.find_config().more;
        let answer = meta_tools::answer(&found.0, &injection, Style::Inject, more);
        Searched {
            text: answer.to_string(),
            found: tools.iter().map(|tool| tool.id.to_string()).collect(),
            injected: (&injection).into(),
        }
    }

    /// Makes tools visible.
    pub fn inject(&mut self, tools: &[Arc<Tool>]) -> Injected {
        self.begin_round();
        (&self.toolbox.inject(tools)).into()
    }

    /// Makes tools visible for good, whatever the budget.
    pub fn pin(&mut self, tools: Vec<Arc<Tool>>) {
        for tool in tools {
            if !self.pinned.contains(&tool.id) {
                self.pinned.push(tool.id.clone());
            }
            self.toolbox.pin(tool);
        }
    }

    /// Evicts tools by id or name, and returns the ids of those that are gone.
    pub fn evict(&mut self, names: &[String]) -> Vec<String> {
        let ids: Vec<ToolId> = names
            .iter()
            .filter_map(|name| self.toolbox.find(name))
            .map(|tool| tool.id.clone())
            .collect();
        texts(&self.toolbox.evict(&ids))
    }

    /// The visible tool with this name.
    pub fn find(&self, name: &str) -> Option<Arc<Tool>> {
        self.toolbox.find(name).cloned()
    }

    /// What is wrong with arguments, in JSON, for the visible tool with this name: a text for the model. `None`
    /// where they fit, and where there is no such tool.
    pub fn arguments_problem(&self, name: &str, arguments: &str) -> Result<Option<String>> {
        let arguments: Arguments = serde_json::from_str(arguments)?;
        let tool = self.toolbox.find(name);
        Ok(tool.and_then(|tool| check(tool, &arguments).err()))
    }

    /// The id of the evicted tool with this name.
    pub fn unloaded(&self, name: &str) -> Option<String> {
        self.toolbox.unloaded(name).map(ToString::to_string)
    }

    /// Marks a call of a visible tool as begun, so that it is not evicted.
    pub fn open_call(&mut self, name: &str) -> Option<Arc<Tool>> {
        self.begin_round();
        let tool = self.toolbox.find(name).cloned()?;
        self.toolbox.open_call(&tool.id);
        Some(tool)
    }

    /// Marks a call as ended.
    pub fn close_call(&mut self, id: &ToolId) {
        self.toolbox.close_call(id);
    }

    /// Begins a turn: a question of the user.
    pub fn begin_turn(&mut self) {
        self.toolbox.begin_turn();
    }

    /// Ends a turn, and returns the ids of tools that were evicted since they were not used for long.
    pub fn end_turn(&mut self) -> Vec<String> {
        texts(&self.toolbox.end_turn())
    }

    // A round is one answer of the model, with all its calls. The tools are written before it.
    fn begin_round(&mut self) {
        if std::mem::take(&mut self.is_asked) {
            self.toolbox.begin_round();
        }
    }

    /// The definitions for a request to a model, in a format: the search, then the visible tools in
    /// the order in which they were found.
    ///
    /// # Errors
    /// `invalid_query` for an unknown format.
    pub fn tools(&mut self, format: &str, with_search: bool) -> Result<Value> {
        let format: Emit = format.parse()?;
        self.is_asked = true;
        let mut written = Vec::new();
        if with_search {
            written.push(definition_of(&meta_tools::search_spec(), format)?);
        }
        for (tool, spec) in self.toolbox.tools() {
            written.push(match format {
                Emit::Mcp => emit_tool(tool, &spec.name, format),
                _ => definition_of(spec, format)?,
            });
        }
        Ok(match format {
            Emit::Mcp => json!({ "tools": written }),
            _ => Value::Array(written),
        })
    }

    /// The visible tools in their order: id, name for the model, and tokens.
    pub fn visible(&self) -> Vec<(String, String, usize)> {
        let tools = self.toolbox.tools();
        tools
            .map(|(tool, spec)| {
                let tokens = toolbox::spec_tokens(spec, counted);
                (tool.id.to_string(), spec.name.clone(), tokens)
            })
            .collect()
    }

    /// Tokens of all visible tools.
    pub fn tokens(&self) -> usize {
        self.toolbox.tokens()
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }
}

/// What to search for.
pub struct Search(toolscout::finder::search::SearchRequest);

/// What a search found.
pub struct Found(toolscout::finder::search::Found);

impl Search {
    /// Searches the newest state of a catalog.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&self, open: &Open) -> Result<Found> {
        let searcher = open.newest()?;
        let source = CurrentSnapshot(move || Arc::clone(&searcher));
        Ok(Found(source.search(&self.0)))
    }
}

/// The definition of `tool_search` in a format.
///
/// # Errors
/// `invalid_query` for an unknown format.
pub fn search_definition(format: &str) -> Result<Value> {
    definition_of(&meta_tools::search_spec(), format.parse()?)
}

fn definition_of(spec: &ToolSpec, format: Emit) -> Result<Value> {
    let mut tool = Tool::new("", &spec.name)?.with_description(&spec.description);
    tool.input_schema = spec.parameters.clone();
    Ok(emit_tool(&tool, &spec.name, format))
}

/// The tools of a catalog with these ids or names.
///
/// # Errors
/// `unknown_tool` that suggests similar names, and those of the engine.
pub fn named(open: &Open, names: &[String]) -> Result<Vec<Arc<Tool>>> {
    let searcher = open.newest()?;
    let find = |name: &String| {
        let by_id = ToolId::parse(name).ok().and_then(|id| searcher.tool(&id));
        by_id
            .or_else(|| by_name(&searcher, name))
            .ok_or_else(|| unknown(&searcher, name))
    };
    names.iter().map(find).collect()
}

fn by_name(searcher: &Arc<Searcher>, name: &str) -> Option<Arc<Tool>> {
    let searcher = Arc::clone(searcher);
    let source = CurrentSnapshot(move || Arc::clone(&searcher));
    source.named(name).into_iter().next()
}

fn unknown(searcher: &Searcher, name: &str) -> Error {
    let known: Vec<String> = searcher.ids_after(None).map(model_name).collect();
    let similar = nearest(name, known.iter().map(String::as_str), MAX_NEAREST);
    let hint = match similar.is_empty() {
        true => "search for it".to_owned(),
        false => format!("similar names are {}", similar.join(", ")),
    };
    let message = format!("the catalog has no tool {name:?}; {hint}");
    Error::new("unknown_tool", message)
}

/// Counts the tokens of a text. The same definitions are counted again with each turn.
fn counted(text: &str) -> usize {
    static COUNTED: LazyLock<Mutex<HashMap<u64, usize>>> = LazyLock::new(Mutex::default);
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let key = hasher.finish();
    let known = |counts: &HashMap<u64, usize>| counts.get(&key).copied();
    let lock = || COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(tokens) = known(&lock()) {
        return tokens;
    }
    let tokens = o200k(text);
    let mut counts = lock();
    if counts.len() >= MAX_COUNTED {
        counts.clear();
    }
    counts.insert(key, tokens);
    tokens
}
