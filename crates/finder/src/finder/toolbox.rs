//! The tools that are visible to a model, under a token budget: injected in order, and evicted in
//! batches when they are no longer used.
//!
//! Providers cache a prompt by its prefix, and tools come first in it. Injected tools are therefore
//! always added at the end. An eviction breaks the prefix, so it frees more than it has to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolscout_index::formats::{distinct_model_name, model_name};
use toolscout_index::{Tool, ToolId};

use crate::finder::model_names;
use toolscout_gate::llm::ToolSpec;

pub use toolscout_base::config::Eviction;

/// Counts the tokens of a text.
pub type TokenCounter = fn(&str) -> usize;

/// Counts with OpenAI's `o200k_base`; other vendors' tokenizers differ by some percent.
pub fn o200k(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton()
        .encode_ordinary(text)
        .len()
}

/// The tokens of a tool's definition.
pub fn spec_tokens(spec: &ToolSpec, count: TokenCounter) -> usize {
    count(&spec.to_json().to_string())
}

/// The share of the budget in percent that is free after an eviction, so that the next few
/// injections fit.
const FREED_PERCENT: usize = 25;
/// Evicted ids that are remembered, so that the model can be told how to reload them.
const MAX_REMEMBERED: usize = 64;
/// Rounds after its last call in which a tool is not evicted: a model often calls a tool again in
/// the next round. A longer protection would fill the budget in a turn that calls many tools.
const PROTECTED_ROUNDS: u64 = 2;

/// The settings of a toolbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolboxConfig {
    /// Maximum number of tokens of all tools together.
    pub budget_tokens: usize,
    /// Which tool is evicted first.
    pub eviction: Eviction,
    /// Turns without use after which a tool is evicted at the end of a turn.
    pub idle_turns: u64,
}

impl Default for ToolboxConfig {
    /// 8,000 tokens are about 50 tools of usual size, twice as many as models choose well from.
    fn default() -> Self {
        ToolboxConfig {
            budget_tokens: 8_000,
            eviction: Eviction::Lru,
            idle_turns: 3,
        }
    }
}

/// The visible tools of one conversation.
#[derive(Clone, Debug)]
pub struct Toolbox {
    config: ToolboxConfig,
    count: TokenCounter,
    loaded: Vec<LoadedTool>,
    /// Evicted tools that were not injected again, the latest last.
    unloaded: Vec<Unloaded>,
    /// Counts uses and injections: the clock of the LRU order.
    clock: u64,
    turn: u64,
    /// The rounds since the toolbox was made or restored.
    round: u64,
}

#[derive(Clone, Debug)]
struct LoadedTool {
    tool: Arc<Tool>,
    spec: ToolSpec,
    tokens: usize,
    pinned: bool,
    open_calls: usize,
    /// The round of the last call in this turn.
    called_in: Option<u64>,
    use_: Use,
}

/// An evicted tool, remembered by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unloaded {
    id: ToolId,
    /// The model has called it, so it may need it again.
    called: bool,
}

/// When and how often a tool was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Use {
    /// The clock at the last use, or at the injection.
    last: u64,
    times: u64,
    /// The turn of the last use or injection.
    active_turn: u64,
}

/// The outcome of an injection, in the order of the given tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Tools that are newly visible.
    pub added: Vec<ToolId>,
    /// Tools that were visible before.
    pub already: Vec<ToolId>,
    /// Tools that do not fit, with their tokens.
    pub refused: Vec<(ToolId, usize)>,
    /// Tools that were evicted for the new ones.
    pub evicted: Vec<ToolId>,
    /// The names of visible tools that are not the usual ones, since another visible tool has these.
    pub distinct_names: BTreeMap<ToolId, String>,
}

impl Injection {
    /// The name under which a tool is visible.
    pub fn name_of(&self, id: &ToolId) -> String {
        match self.distinct_names.get(id) {
            Some(distinct) => distinct.clone(),
            None => model_name(id),
        }
    }
}

/// A toolbox between turns, as stored with its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolboxState {
    // The name in stored conversations.
    #[serde(rename = "held")]
    loaded: Vec<(String, Use)>,
    /// Ids, and whether the tool had been called.
    unloaded: Vec<(String, bool)>,
    clock: u64,
    turn: u64,
}

impl LoadedTool {
    fn id(&self) -> &ToolId {
        &self.tool.id
    }
}

impl ToolboxState {
    /// The ids of the loaded tools, in their order.
    pub fn loaded(&self) -> impl Iterator<Item = &str> {
        self.loaded.iter().map(|(id, _)| id.as_str())
    }
}

impl Toolbox {
    /// An empty toolbox.
    pub fn new(config: ToolboxConfig, count: TokenCounter) -> Self {
        Toolbox {
            config,
            count,
            loaded: Vec::new(),
            unloaded: Vec::new(),
            clock: 0,
            turn: 0,
            round: 0,
        }
    }

    /// Restores the toolbox from a state, after its pins. Tools that the catalog no longer has are
    /// left out, and changed tools have their current definition.
    pub fn restore(
        mut self,
        state: &ToolboxState,
        resolve: impl Fn(&ToolId) -> Option<Arc<Tool>>,
    ) -> Self {
        (self.clock, self.turn) = (state.clock, state.turn);
        for (id, called) in &state.unloaded {
            if let Ok(id) = ToolId::parse(id) {
                let called = *called;
                self.unloaded.push(Unloaded { id, called });
            }
        }
        for (id, use_) in &state.loaded {
            // A tool that is pinned now may have been injected when the state was stored.
            if let Ok(id) = ToolId::parse(id)
                && let Some(tool) = resolve(&id)
                && self.position(&tool.id).is_none()
            {
                let loaded = self.loaded_tool(tool, *use_);
                self.loaded.push(loaded);
            }
        }
        self
    }

    /// The state to store. Pins come from the settings and are not part of it.
    pub fn state(&self) -> ToolboxState {
        let mut state = ToolboxState {
            clock: self.clock,
            turn: self.turn,
            ..ToolboxState::default()
        };
        for loaded in &self.loaded {
            if !loaded.pinned {
                state.loaded.push((loaded.id().to_string(), loaded.use_));
            }
        }
        for gone in &self.unloaded {
            state.unloaded.push((gone.id.to_string(), gone.called));
        }
        state
    }

    /// Makes a tool visible for good, regardless of the budget. One that is visible keeps its place.
    pub fn pin(&mut self, tool: Arc<Tool>) {
        if let Some(position) = self.position(&tool.id) {
            self.loaded[position].pinned = true;
            self.renew(position, tool);
            return;
        }
        let loaded = self.loaded_tool(tool, Use::default());
        self.loaded.push(LoadedTool {
            pinned: true,
            ..loaded
        });
    }

    /// Removes tools that were pinned and are not among these. One with an open call goes the next time.
    pub fn unpin_all_but(&mut self, pinned: &[Arc<Tool>]) {
        let mut gone = Vec::new();
        for loaded in self.pinned() {
            let is_pinned = pinned.iter().any(|tool| tool.id == *loaded.id());
            if !is_pinned && loaded.open_calls == 0 {
                gone.push(loaded.id().clone());
            }
        }
        self.remove(&gone);
    }

    /// Takes the present definition of a tool that is visible, which keeps its name.
    fn renew(&mut self, position: usize, tool: Arc<Tool>) {
        let count = self.count;
        let loaded = &mut self.loaded[position];
        let mut spec = model_names::spec(&tool);
        spec.name.clone_from(&loaded.spec.name);
        if spec != loaded.spec || tool.title != loaded.tool.title {
            loaded.tokens = spec_tokens(&spec, count);
            (loaded.spec, loaded.tool) = (spec, tool);
        }
    }

    /// Begins a turn. Calls in earlier turns no longer protect a tool from eviction.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
        for loaded in &mut self.loaded {
            loaded.called_in = None;
        }
    }

    /// Begins a round of the current turn: the model answers, and its calls are of this round.
    pub fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Adds tools at the end, evicting others in one batch if the budget requires it.
    ///
    /// A tool that would not fit even after an eviction is refused, and evicts nothing.
    pub fn inject(&mut self, tools: &[Arc<Tool>]) -> Injection {
        let mut injection = Injection::default();
        let named: BTreeSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
        // Tokens that no eviction can free.
        let mut protected = 0;
        for loaded in &self.loaded {
            if !self.is_evictable(loaded, &named) {
                protected += loaded.tokens;
            }
        }
        let mut fresh: Vec<LoadedTool> = Vec::new();
        let mut fresh_tokens = 0;
        for tool in tools {
            if let Some(position) = self.position(&tool.id) {
                self.touch(position);
                injection.already.push(tool.id.clone());
                continue;
            }
            // A tool may be given twice: selected by its name and found by a query.
            if fresh.iter().any(|loaded| loaded.tool.id == tool.id) {
                continue;
            }
            let mut loaded = self.loaded_tool(tool.clone(), self.injected_now());
            if has_name(&fresh, &loaded.spec.name) {
                loaded.spec.name = distinct_model_name(&tool.id);
            }
            if protected + fresh_tokens + loaded.tokens > self.config.budget_tokens {
                injection.refused.push((tool.id.clone(), loaded.tokens));
                continue;
            }
            fresh_tokens += loaded.tokens;
            self.clock += 1;
            fresh.push(loaded);
        }
        // One eviction for all new tools, since each one breaks the provider's prompt cache.
        if self.tokens() + fresh_tokens > self.config.budget_tokens {
            injection.evicted = self.evict_for(fresh_tokens, &named);
        }
        injection.added = fresh.iter().map(LoadedTool::id).cloned().collect();
        self.unloaded
            .retain(|gone| !injection.added.contains(&gone.id));
        self.loaded.extend(fresh);
        injection.distinct_names = self.distinct_names();
        injection
    }

    fn distinct_names(&self) -> BTreeMap<ToolId, String> {
        let mut names = BTreeMap::new();
        for loaded in &self.loaded {
            if loaded.spec.name != model_name(loaded.id()) {
                names.insert(loaded.id().clone(), loaded.spec.name.clone());
            }
        }
        names
    }

    /// Ends a turn and evicts, in one batch, the tools not used for the configured number of turns.
    pub fn end_turn(&mut self) -> Vec<ToolId> {
        if self.config.eviction == Eviction::None {
            return Vec::new();
        }
        let nothing_named = BTreeSet::new();
        let mut idle = Vec::new();
        for loaded in &self.loaded {
            let unused_turns = self.turn.saturating_sub(loaded.use_.active_turn);
            if unused_turns >= self.config.idle_turns && self.is_evictable(loaded, &nothing_named) {
                idle.push(loaded.id().clone());
            }
        }
        self.remove(&idle);
        idle
    }

    /// Evicts these tools, and returns those that were visible and are now gone. Pinned tools and those with
    /// an open call stay.
    pub fn evict(&mut self, ids: &[ToolId]) -> Vec<ToolId> {
        let mut gone = Vec::new();
        for loaded in &self.loaded {
            if !loaded.pinned && loaded.open_calls == 0 && ids.contains(loaded.id()) {
                gone.push(loaded.id().clone());
            }
        }
        self.remove(&gone);
        gone
    }

    /// Marks a call of this tool as begun. The tool cannot be evicted before the call is closed.
    pub fn open_call(&mut self, id: &ToolId) {
        let Some(position) = self.position(id) else {
            return;
        };
        self.touch(position);
        let loaded = &mut self.loaded[position];
        loaded.open_calls += 1;
        loaded.called_in = Some(self.round);
        loaded.use_.times += 1;
    }

    /// Marks a call of this tool as ended.
    pub fn close_call(&mut self, id: &ToolId) {
        if let Some(position) = self.position(id) {
            let open_calls = &mut self.loaded[position].open_calls;
            *open_calls = open_calls.saturating_sub(1);
        }
    }

    /// The definitions of the visible tools, in their stable order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.loaded.iter().map(|loaded| &loaded.spec)
    }

    /// The visible tools, in the order of their definitions.
    pub fn tools(&self) -> impl Iterator<Item = (&Arc<Tool>, &ToolSpec)> {
        self.loaded
            .iter()
            .map(|loaded| (&loaded.tool, &loaded.spec))
    }

    /// The definitions of the pinned tools.
    pub fn pinned_specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.pinned().map(|loaded| &loaded.spec)
    }

    fn pinned(&self) -> impl Iterator<Item = &LoadedTool> {
        self.loaded.iter().filter(|loaded| loaded.pinned)
    }

    /// The visible tool with this name: as shown, by id, or by another name that only one has.
    pub fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        for LoadedTool { tool, spec, .. } in &self.loaded {
            if spec.name == name || tool.id.as_str() == name {
                return Some(tool);
            }
        }
        let mut called = self.loaded.iter().map(|loaded| &loaded.tool);
        let only = called.find(|tool| model_names::denotes(name, &tool.id))?;
        // A name that two tools share must not call either of them by chance.
        let is_shared = called.any(|tool| model_names::denotes(name, &tool.id));
        (!is_shared).then_some(only)
    }

    /// True while this tool is visible.
    pub fn holds(&self, id: &ToolId) -> bool {
        self.position(id).is_some()
    }

    /// Whether the model sees none.
    pub fn is_empty(&self) -> bool {
        self.loaded.is_empty()
    }

    /// The name under which the model sees a tool; `None` for a tool that it does not see.
    pub fn name_of(&self, id: &ToolId) -> Option<&str> {
        let loaded = &self.loaded[self.position(id)?];
        Some(&loaded.spec.name)
    }

    /// The evicted tool with this name.
    pub fn unloaded(&self, name: &str) -> Option<&ToolId> {
        let mut ids = self.unloaded.iter().map(|gone| &gone.id);
        ids.find(|id| model_names::denotes(name, id))
    }

    /// The last `most` evicted tools that the model had called, the latest last.
    pub fn missed(&self, most: usize) -> Vec<&ToolId> {
        let mut called = Vec::new();
        for gone in &self.unloaded {
            if gone.called {
                called.push(&gone.id);
            }
        }
        called.split_off(called.len().saturating_sub(most))
    }

    /// Tokens of all visible tools.
    pub fn tokens(&self) -> usize {
        self.loaded.iter().map(|loaded| loaded.tokens).sum()
    }

    /// Tokens of the pinned tools.
    pub fn pinned_tokens(&self) -> usize {
        self.pinned().map(|loaded| loaded.tokens).sum()
    }

    /// Tokens of each of these tools, in their order; of those that are visible.
    pub fn tokens_by_tool(&self, ids: &[ToolId]) -> Vec<(ToolId, usize)> {
        let mut tokens = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(position) = self.position(id) {
                tokens.push((id.clone(), self.loaded[position].tokens));
            }
        }
        tokens
    }

    /// The token budget.
    pub fn budget_tokens(&self) -> usize {
        self.config.budget_tokens
    }

    fn position(&self, id: &ToolId) -> Option<usize> {
        self.loaded.iter().position(|loaded| loaded.tool.id == *id)
    }

    fn loaded_tool(&self, tool: Arc<Tool>, use_: Use) -> LoadedTool {
        let mut spec = model_names::spec(&tool);
        // The tool that is visible already keeps its name.
        if has_name(&self.loaded, &spec.name) {
            spec.name = distinct_model_name(&tool.id);
        }
        let tokens = spec_tokens(&spec, self.count);
        LoadedTool {
            tool,
            spec,
            tokens,
            pinned: false,
            open_calls: 0,
            called_in: None,
            use_,
        }
    }

    fn injected_now(&self) -> Use {
        Use {
            last: self.clock + 1,
            times: 0,
            active_turn: self.turn,
        }
    }

    fn touch(&mut self, position: usize) {
        self.clock += 1;
        let use_ = &mut self.loaded[position].use_;
        (use_.last, use_.active_turn) = (self.clock, self.turn);
    }

    /// True when a tool may be evicted: it is not pinned, has no open call, was not called in the
    /// last rounds and is not named by the current injection.
    fn is_evictable(&self, loaded: &LoadedTool, named: &BTreeSet<&ToolId>) -> bool {
        if let Some(round) = loaded.called_in
            && self.round - round < PROTECTED_ROUNDS
        {
            return false;
        }
        self.config.eviction != Eviction::None
            && !loaded.pinned
            && loaded.open_calls == 0
            && !named.contains(loaded.id())
    }

    fn evict_for(&mut self, fresh_tokens: usize, named: &BTreeSet<&ToolId>) -> Vec<ToolId> {
        let mut candidates: Vec<&LoadedTool> = self
            .loaded
            .iter()
            .filter(|loaded| self.is_evictable(loaded, named))
            .collect();
        // Each use has its own time of the clock, so no two keys are equal.
        candidates.sort_by_key(|loaded| match self.config.eviction {
            Eviction::Lfu => (loaded.use_.times, loaded.use_.last),
            Eviction::Lru | Eviction::None => (loaded.use_.last, 0),
        });
        // Evict more than needed, so that the next injections do not evict again.
        let goal = self.config.budget_tokens * (100 - FREED_PERCENT) / 100;
        let mut tokens = self.tokens() + fresh_tokens;
        let mut evicted = Vec::new();
        for loaded in candidates {
            if tokens <= goal {
                break;
            }
            tokens -= loaded.tokens;
            evicted.push(loaded.tool.id.clone());
        }
        self.remove(&evicted);
        evicted
    }

    fn remove(&mut self, ids: &[ToolId]) {
        // In the order of `ids`: it decides which names are forgotten first.
        for id in ids {
            let position = self.position(id);
            let called = position.is_some_and(|at| self.loaded[at].use_.times > 0);
            let id = id.clone();
            self.unloaded.push(Unloaded { id, called });
        }
        self.loaded.retain(|loaded| !ids.contains(loaded.id()));
        // The latest are at the end; forget the earliest.
        let excess = self.unloaded.len().saturating_sub(MAX_REMEMBERED);
        self.unloaded.drain(..excess);
    }
}

fn has_name(tools: &[LoadedTool], name: &str) -> bool {
    tools.iter().any(|loaded| loaded.spec.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::search::doubles::{numbers, tool};

    /// Ten tokens for every tool; a hundred if its text contains `big`.
    fn ten(text: &str) -> usize {
        if text.contains("big") { 100 } else { 10 }
    }

    fn toolbox(budget_tokens: usize, eviction: Eviction) -> Toolbox {
        let mut toolbox = Toolbox::new(
            ToolboxConfig {
                budget_tokens,
                eviction,
                idle_turns: 2,
            },
            ten,
        );
        toolbox.begin_turn();
        toolbox
    }

    #[test]
    fn tools_are_evicted_by_name_unless_they_are_in_use() {
        let mut toolbox = toolbox(1_000, Eviction::None);
        toolbox.pin(tool("pinned", "does it"));
        toolbox.inject(&tools(&["a", "b", "c"]));
        let id = |text| ToolId::parse(text).unwrap();
        toolbox.open_call(&id("b"));
        let named = ["c", "pinned", "b", "unknown", "a"].map(id);
        assert_eq!(toolbox.evict(&named), ["a", "c"].map(id));
        let visible: Vec<&str> = toolbox.tools().map(|(tool, _)| tool.id.as_str()).collect();
        assert_eq!(visible, ["pinned", "b"]);
        assert_eq!(toolbox.unloaded("a"), Some(&id("a")));
        toolbox.close_call(&id("b"));
        assert_eq!(toolbox.evict(&named), [id("b")]);
        assert_eq!(toolbox.missed(5), [&id("b")]);
    }

    fn tools(ids: &[&str]) -> Vec<Arc<Tool>> {
        ids.iter().map(|id| tool(id, "")).collect()
    }

    fn id(text: &str) -> ToolId {
        ToolId::parse(text).unwrap()
    }

    fn ids(texts: &[&str]) -> Vec<ToolId> {
        texts.iter().map(|text| id(text)).collect()
    }

    fn visible(toolbox: &Toolbox) -> Vec<&str> {
        toolbox.specs().map(|spec| spec.name.as_str()).collect()
    }

    fn used(toolbox: &mut Toolbox, text: &str) {
        toolbox.open_call(&id(text));
        toolbox.close_call(&id(text));
    }

    #[test]
    fn tools_are_added_at_the_end_and_never_twice() {
        let mut toolbox = toolbox(100, Eviction::Lru);
        toolbox.inject(&tools(&["b", "a"]));
        let injection = toolbox.inject(&tools(&["a", "c", "c"]));
        assert_eq!(
            (injection.added, injection.already),
            (ids(&["c"]), ids(&["a"]))
        );
        assert_eq!(visible(&toolbox), ["b", "a", "c"]);
    }

    #[test]
    fn the_least_recently_used_are_evicted_in_one_batch_that_frees_a_quarter() {
        let mut toolbox = toolbox(60, Eviction::Lru);
        toolbox.inject(&tools(&["a", "b", "c", "d", "e", "f"]));
        used(&mut toolbox, "a");
        toolbox.begin_turn();
        let injection = toolbox.inject(&tools(&["g"]));
        assert_eq!(injection.evicted, ids(&["b", "c", "d"]));
        assert_eq!(visible(&toolbox), ["a", "e", "f", "g"]);
        assert_eq!(toolbox.unloaded("b"), Some(&id("b")));
        toolbox.inject(&tools(&["b"]));
        assert_eq!(toolbox.unloaded("b"), None);
    }

    #[test]
    fn of_two_tools_with_one_name_the_later_is_shown_with_a_hash() {
        for (first, second, name) in [
            ("a__b", "a/b", "a__b"),
            ("a/b__c", "a__b/c", "a__b__c"),
            ("a/b.c", "a/b_c", "a__b_c"),
        ] {
            let mut toolbox = toolbox(100, Eviction::Lru);
            toolbox.inject(&tools(&[first]));
            let injection = toolbox.inject(&tools(&[second]));
            let hashed = distinct_model_name(&id(second));
            let names: Vec<&str> = toolbox.specs().map(|spec| spec.name.as_str()).collect();
            assert_eq!(names, [name, hashed.as_str()]);
            assert_eq!(toolbox.find(name).unwrap().id, id(first));
            assert_eq!(toolbox.find(&hashed).unwrap().id, id(second));
            assert_eq!(injection.name_of(&id(second)), hashed);
            assert_eq!(injection.name_of(&id(first)), name);
            // As an earlier version showed it.
            assert_eq!(
                toolbox.find(&distinct_model_name(&id(first))).unwrap().id,
                id(first)
            );
        }
    }

    #[test]
    fn lfu_keeps_frequently_used_tools() {
        let mut toolbox = toolbox(30, Eviction::Lfu);
        toolbox.inject(&tools(&["often", "once", "never"]));
        used(&mut toolbox, "often");
        used(&mut toolbox, "often");
        used(&mut toolbox, "once");
        toolbox.begin_turn();
        toolbox.inject(&tools(&["never"]));
        let injection = toolbox.inject(&tools(&["new"]));
        assert_eq!(injection.evicted, ids(&["never", "once"]));
    }

    #[test]
    fn pinned_called_and_recently_used_tools_are_not_evicted() {
        let mut toolbox = toolbox(40, Eviction::Lru);
        toolbox.pin(tool("pin", ""));
        toolbox.inject(&tools(&["open", "used", "idle"]));
        toolbox.open_call(&id("open"));
        toolbox.begin_turn();
        used(&mut toolbox, "used");
        let injection = toolbox.inject(&tools(&["x", "y"]));
        assert_eq!(injection.evicted, ids(&["idle"]));
        assert_eq!(
            (injection.added, injection.refused),
            (ids(&["x"]), vec![(id("y"), 10)])
        );
        for _ in 0..5 {
            toolbox.begin_turn();
        }
        assert_eq!(toolbox.end_turn(), ids(&["used", "x"]));
        assert_eq!(visible(&toolbox), ["pin", "open"]);
    }

    #[test]
    fn a_tool_called_earlier_in_a_turn_can_be_evicted_two_rounds_later() {
        let mut toolbox = toolbox(30, Eviction::Lru);
        toolbox.inject(&tools(&["a", "b", "c"]));
        toolbox.begin_round();
        used(&mut toolbox, "a");
        used(&mut toolbox, "b");
        used(&mut toolbox, "c");
        toolbox.begin_round();
        let refused = toolbox.inject(&tools(&["d"])).refused;
        assert_eq!(refused, [(id("d"), 10)], "called in the round before");
        toolbox.begin_round();
        let injection = toolbox.inject(&tools(&["d"]));
        assert_eq!(
            (injection.added, injection.evicted),
            (ids(&["d"]), ids(&["a", "b"]))
        );
    }

    #[test]
    fn a_tool_that_cannot_fit_evicts_nothing_and_hits_do_not_evict_each_other() {
        let mut toolbox = toolbox(50, Eviction::Lru);
        toolbox.inject(&tools(&["a", "b"]));
        toolbox.begin_turn();
        let injection = toolbox.inject(&[tool("huge", "big")]);
        assert_eq!(
            (injection.evicted, injection.refused),
            (vec![], vec![(id("huge"), 100)])
        );
        let injection = toolbox.inject(&tools(&["a", "c", "d", "e", "f", "g"]));
        assert_eq!(injection.evicted, ids(&["b"]));
        assert_eq!(injection.added, ids(&["c", "d", "e", "f"]));
        assert_eq!(injection.refused, [(id("g"), 10)]);
    }

    #[test]
    fn without_eviction_a_full_toolbox_refuses() {
        let mut toolbox = toolbox(20, Eviction::None);
        let injection = toolbox.inject(&tools(&["a", "b", "c"]));
        assert_eq!(
            (injection.added, injection.refused.len()),
            (ids(&["a", "b"]), 1)
        );
        for _ in 0..9 {
            toolbox.begin_turn();
        }
        assert!(toolbox.end_turn().is_empty());
    }

    #[test]
    fn the_budget_is_never_exceeded_by_any_sequence_of_injections_and_uses() {
        for seed in 0..200u64 {
            let mut next = numbers(seed);
            let eviction = [Eviction::Lru, Eviction::Lfu, Eviction::None][(seed % 3) as usize];
            let mut toolbox = toolbox(70, eviction);
            for _ in 0..60 {
                let before: Vec<String> = toolbox.specs().map(|spec| spec.name.clone()).collect();
                match next(4) {
                    0 => toolbox.begin_turn(),
                    1 => used(&mut toolbox, &format!("t{}", next(20))),
                    _ => drop(toolbox.inject(&tools(&[
                        &format!("t{}", next(20)),
                        &format!("t{}", next(20)),
                    ]))),
                }
                assert!(toolbox.tokens() <= 70, "seed {seed}");
                let after: Vec<&str> = visible(&toolbox);
                let kept: Vec<&str> = before
                    .iter()
                    .map(String::as_str)
                    .filter(|name| after.contains(name))
                    .collect();
                assert_eq!(kept, after[..kept.len()], "order changed, seed {seed}");
            }
        }
    }

    #[test]
    fn a_restored_toolbox_is_the_same_without_removed_tools() {
        let mut before = toolbox(30, Eviction::Lru);
        before.inject(&tools(&["a", "b", "c"]));
        before.begin_turn();
        used(&mut before, "a");
        before.inject(&tools(&["d"]));
        let text = serde_json::to_string(&before.state()).unwrap();
        let state: ToolboxState = serde_json::from_str(&text).unwrap();

        let empty = Toolbox::new(before.config, ten);
        let after = empty
            .clone()
            .restore(&state, |id| Some(tool(id.as_str(), "")));
        assert_eq!(
            (visible(&after), after.state()),
            (visible(&before), before.state())
        );
        assert_eq!(after.unloaded("b"), Some(&id("b")));
        let gone = empty.restore(&state, |id| {
            (id.as_str() != "a").then(|| tool(id.as_str(), ""))
        });
        assert_eq!(visible(&gone), ["d"]);
    }

    #[test]
    fn evicted_tools_that_were_called_are_listed_until_they_are_injected_again() {
        let mut toolbox = toolbox(30, Eviction::Lru);
        toolbox.inject(&tools(&["a", "b", "c"]));
        used(&mut toolbox, "a");
        used(&mut toolbox, "c");
        toolbox.begin_turn();
        toolbox.inject(&tools(&["d", "e", "f"]));
        assert_eq!(toolbox.missed(9), [&id("a"), &id("c")]);
        assert_eq!(toolbox.missed(1), [&id("c")]);
        toolbox.begin_turn();
        toolbox.inject(&tools(&["c"]));
        assert_eq!(toolbox.missed(9), [&id("a")]);
    }

    #[test]
    fn a_bare_name_finds_its_tool_only_if_it_is_unique() {
        let mut toolbox = toolbox(100, Eviction::Lru);
        toolbox.inject(&tools(&["mail/send", "chat/send", "mail/read"]));
        assert!(toolbox.find("send").is_none());
        for name in ["read", "mail/read", "mail__read"] {
            assert_eq!(toolbox.find(name).unwrap().id, id("mail/read"));
        }
    }

    #[test]
    fn tokens_are_counted_by_the_tokenizer() {
        assert_eq!(o200k("tool search finds tools"), 4);
    }
}
