//! The tools a model holds: injected in order, under a token budget, evicted in batches when they
//! are no longer used.
//!
//! Providers cache a prompt by its prefix, and tools come first in it. So injected tools are only
//! ever added at the end, and an eviction, which breaks the prefix, makes more room than it has to.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolscout_index::{Tool, ToolId};

use crate::finder::model_names;
use crate::llm::ToolSpec;

/// Counts the tokens of a text.
pub type TokenCounter = fn(&str) -> usize;

/// Counts with OpenAI's `o200k_base`; other vendors' tokenizers differ by some percent.
pub fn o200k(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton()
        .encode_ordinary(text)
        .len()
}

/// The tokens of a tool as a model is shown it.
pub fn spec_tokens(spec: &ToolSpec, count: TokenCounter) -> usize {
    count(&spec.to_json().to_string())
}

/// An eviction goes on until this share of the budget is free, in percent, so that the next few
/// injections fit.
const FREED_PERCENT: usize = 25;
/// Evicted ids that are remembered, to tell the model that a search brings them back.
const MAX_REMEMBERED: usize = 64;

/// Which tool goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    /// The least recently used.
    #[default]
    Lru,
    /// The least frequently used, the least recently used among equals.
    Lfu,
    /// None: what does not fit is refused.
    None,
}

/// How much a toolbox holds and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolboxConfig {
    /// Most tokens of all tools together.
    pub budget_tokens: usize,
    /// Which tool goes first.
    pub eviction: Eviction,
    /// Turns after which an unused tool goes at the end of a turn.
    pub idle_turns: u64,
}

impl Default for ToolboxConfig {
    /// 8,000 tokens are some 50 tools of usual size, twice what models still choose well from.
    fn default() -> Self {
        ToolboxConfig {
            budget_tokens: 8_000,
            eviction: Eviction::Lru,
            idle_turns: 3,
        }
    }
}

/// The tools a model holds in one conversation.
#[derive(Clone, Debug)]
pub struct Toolbox {
    config: ToolboxConfig,
    count: TokenCounter,
    held: Vec<Held>,
    /// What was evicted and has not come back, the last one last.
    unloaded: Vec<Unloaded>,
    /// Counts uses and injections; the time of LRU.
    clock: u64,
    turn: u64,
}

#[derive(Clone, Debug)]
struct Held {
    tool: Arc<Tool>,
    spec: ToolSpec,
    tokens: usize,
    pinned: bool,
    open_calls: usize,
    use_: Use,
}

/// An evicted tool, remembered by name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unloaded {
    id: ToolId,
    /// The model has called it, so it may want it again.
    called: bool,
}

/// When and how often a tool was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Use {
    /// The clock at the last use, or at the injection.
    last: u64,
    times: u64,
    /// The turn of the last use; 0 for none.
    turn: u64,
    /// The turn of the last use or injection.
    active_turn: u64,
}

/// What became of the tools of an injection, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    /// Now visible.
    pub added: Vec<ToolId>,
    /// Visible before.
    pub already: Vec<ToolId>,
    /// Do not fit, with their tokens.
    pub refused: Vec<(ToolId, usize)>,
    /// Had to go.
    pub evicted: Vec<ToolId>,
}

/// A toolbox between turns, as it is kept with its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolboxState {
    held: Vec<(String, Use)>,
    /// Ids, and whether the tool had been called.
    unloaded: Vec<(String, bool)>,
    clock: u64,
    turn: u64,
}

impl Toolbox {
    /// An empty toolbox.
    pub fn new(config: ToolboxConfig, count: TokenCounter) -> Self {
        Toolbox {
            config,
            count,
            held: Vec::new(),
            unloaded: Vec::new(),
            clock: 0,
            turn: 0,
        }
    }

    /// The toolbox of this state, with pins first. Tools that are gone from the catalog are left
    /// out, changed ones come as they are now.
    pub fn restore(
        mut self,
        state: &ToolboxState,
        resolve: impl Fn(&ToolId) -> Option<Arc<Tool>>,
    ) -> Self {
        (self.clock, self.turn) = (state.clock, state.turn);
        let unloaded = |(id, called): &(String, bool)| {
            Some(Unloaded {
                id: ToolId::parse(id).ok()?,
                called: *called,
            })
        };
        self.unloaded = state.unloaded.iter().filter_map(unloaded).collect();
        let kept = state
            .held
            .iter()
            .filter_map(|(id, use_)| Some((resolve(&ToolId::parse(id).ok()?)?, *use_)));
        for (tool, use_) in kept {
            if self.position(&tool.id).is_none() {
                let held = self.hold(tool, use_);
                self.held.push(held);
            }
        }
        self
    }

    /// What has to be kept to restore the toolbox. Pins are settings and not part of it.
    pub fn state(&self) -> ToolboxState {
        let injected = self.held.iter().filter(|held| !held.pinned);
        ToolboxState {
            held: injected
                .map(|held| (held.tool.id.to_string(), held.use_))
                .collect(),
            unloaded: self
                .unloaded
                .iter()
                .map(|gone| (gone.id.to_string(), gone.called))
                .collect(),
            clock: self.clock,
            turn: self.turn,
        }
    }

    /// Holds a tool for good, whatever the budget says.
    pub fn pin(&mut self, tool: Arc<Tool>) {
        if self.position(&tool.id).is_none() {
            let held = self.hold(tool, Use::default());
            self.held.push(Held {
                pinned: true,
                ..held
            });
        }
    }

    /// Begins a turn: uses before it protect nothing any more.
    pub fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// Adds tools at the end, evicting others in one batch where the budget asks for it.
    ///
    /// Nothing is evicted in vain: a tool that would not fit even then is refused.
    pub fn inject(&mut self, tools: &[Arc<Tool>]) -> Injection {
        let mut injection = Injection::default();
        let named: BTreeSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
        let staying: usize = self
            .held
            .iter()
            .filter(|held| !self.may_go(held, &named))
            .map(|held| held.tokens)
            .sum();
        let mut fresh: Vec<Held> = Vec::new();
        let mut fresh_tokens = 0;
        for tool in tools {
            if let Some(position) = self.position(&tool.id) {
                self.touch(position);
                injection.already.push(tool.id.clone());
                continue;
            }
            if fresh.iter().any(|held| held.tool.id == tool.id) {
                continue;
            }
            let held = self.hold(tool.clone(), self.injected_now());
            if staying + fresh_tokens + held.tokens > self.config.budget_tokens {
                injection.refused.push((tool.id.clone(), held.tokens));
                continue;
            }
            fresh_tokens += held.tokens;
            self.clock += 1;
            fresh.push(held);
        }
        if self.tokens() + fresh_tokens > self.config.budget_tokens {
            injection.evicted = self.evict_for(fresh_tokens, &named);
        }
        injection.added = fresh.iter().map(|held| held.tool.id.clone()).collect();
        self.unloaded
            .retain(|gone| !injection.added.contains(&gone.id));
        self.held.extend(fresh);
        injection
    }

    /// Ends a turn: tools that were not used for the configured number of turns go in one batch.
    pub fn end_turn(&mut self) -> Vec<ToolId> {
        if self.config.eviction == Eviction::None {
            return Vec::new();
        }
        let is_idle =
            |held: &Held| self.turn.saturating_sub(held.use_.active_turn) >= self.config.idle_turns;
        let nothing_named = BTreeSet::new();
        let idle = self
            .held
            .iter()
            .filter(|held| self.may_go(held, &nothing_named) && is_idle(held));
        let idle: Vec<ToolId> = idle.map(|held| held.tool.id.clone()).collect();
        self.remove(&idle);
        idle
    }

    /// Marks a call of this tool as begun: it is used, and cannot go before the call is closed.
    pub fn open_call(&mut self, id: &ToolId) {
        let Some(position) = self.position(id) else {
            return;
        };
        self.touch(position);
        let turn = self.turn;
        let held = &mut self.held[position];
        held.open_calls += 1;
        held.use_.times += 1;
        held.use_.turn = turn;
    }

    /// Marks a call of this tool as ended.
    pub fn close_call(&mut self, id: &ToolId) {
        if let Some(position) = self.position(id) {
            let open_calls = &mut self.held[position].open_calls;
            *open_calls = open_calls.saturating_sub(1);
        }
    }

    /// The visible tools as a model is shown them, in their stable order.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.held.iter().map(|held| &held.spec)
    }

    /// The pinned tools as a model is shown them.
    pub fn pinned_specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.held
            .iter()
            .filter(|held| held.pinned)
            .map(|held| &held.spec)
    }

    /// The visible tool of this name: as shown, by id, or by a bare name that only one tool has.
    pub fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        let exact = self
            .held
            .iter()
            .find(|held| held.spec.name == name || held.tool.id.as_str() == name);
        let mut bare = self.held.iter().filter(|held| held.tool.id.name() == name);
        let only = bare.next().filter(|_| bare.next().is_none());
        exact.or(only).map(|held| &held.tool)
    }

    /// True while this tool is visible.
    pub fn holds(&self, id: &ToolId) -> bool {
        self.position(id).is_some()
    }

    /// The tool of this name that was evicted and has not come back.
    pub fn unloaded(&self, name: &str) -> Option<&ToolId> {
        self.unloaded
            .iter()
            .map(|gone| &gone.id)
            .find(|id| model_names::denotes(name, id))
    }

    /// The tools that were called, evicted and have not come back: the last `most` of them, the
    /// last one last.
    pub fn missed(&self, most: usize) -> Vec<&ToolId> {
        let called: Vec<&ToolId> = self
            .unloaded
            .iter()
            .filter(|gone| gone.called)
            .map(|gone| &gone.id)
            .collect();
        called[called.len().saturating_sub(most)..].to_vec()
    }

    /// Tokens of all visible tools.
    pub fn tokens(&self) -> usize {
        self.held.iter().map(|held| held.tokens).sum()
    }

    /// Tokens of the pinned tools.
    pub fn pinned_tokens(&self) -> usize {
        self.held
            .iter()
            .filter(|held| held.pinned)
            .map(|held| held.tokens)
            .sum()
    }

    /// Tokens of these visible tools.
    pub fn tokens_of(&self, ids: &[ToolId]) -> usize {
        self.held
            .iter()
            .filter(|held| ids.contains(&held.tool.id))
            .map(|held| held.tokens)
            .sum()
    }

    /// The most tokens there may be.
    pub fn budget_tokens(&self) -> usize {
        self.config.budget_tokens
    }

    fn position(&self, id: &ToolId) -> Option<usize> {
        self.held.iter().position(|held| held.tool.id == *id)
    }

    fn hold(&self, tool: Arc<Tool>, use_: Use) -> Held {
        let spec = model_names::spec(&tool);
        let tokens = spec_tokens(&spec, self.count);
        Held {
            tool,
            spec,
            tokens,
            pinned: false,
            open_calls: 0,
            use_,
        }
    }

    fn injected_now(&self) -> Use {
        Use {
            last: self.clock + 1,
            times: 0,
            turn: 0,
            active_turn: self.turn,
        }
    }

    fn touch(&mut self, position: usize) {
        self.clock += 1;
        let use_ = &mut self.held[position].use_;
        (use_.last, use_.active_turn) = (self.clock, self.turn);
    }

    /// True when nothing protects this tool: it is no pin, has no open call, was not used this turn
    /// and is not named by the injection at hand.
    fn may_go(&self, held: &Held, named: &BTreeSet<&ToolId>) -> bool {
        let used_now = held.use_.turn == self.turn && held.use_.times > 0;
        self.config.eviction != Eviction::None
            && !held.pinned
            && held.open_calls == 0
            && !used_now
            && !named.contains(&held.tool.id)
    }

    fn evict_for(&mut self, fresh_tokens: usize, named: &BTreeSet<&ToolId>) -> Vec<ToolId> {
        let mut candidates: Vec<&Held> = self
            .held
            .iter()
            .filter(|held| self.may_go(held, named))
            .collect();
        candidates.sort_by_key(|held| match self.config.eviction {
            Eviction::Lfu => (held.use_.times, held.use_.last),
            Eviction::Lru | Eviction::None => (held.use_.last, 0),
        });
        let goal = self.config.budget_tokens * (100 - FREED_PERCENT) / 100;
        let mut tokens = self.tokens() + fresh_tokens;
        let mut evicted = Vec::new();
        for held in candidates {
            if tokens <= goal {
                break;
            }
            tokens -= held.tokens;
            evicted.push(held.tool.id.clone());
        }
        self.remove(&evicted);
        evicted
    }

    fn remove(&mut self, ids: &[ToolId]) {
        let called = |id: &ToolId| {
            self.held
                .iter()
                .any(|held| held.tool.id == *id && held.use_.times > 0)
        };
        let gone: Vec<Unloaded> = ids
            .iter()
            .map(|id| Unloaded {
                id: id.clone(),
                called: called(id),
            })
            .collect();
        self.held.retain(|held| !ids.contains(&held.tool.id));
        self.unloaded.extend(gone);
        let excess = self.unloaded.len().saturating_sub(MAX_REMEMBERED);
        self.unloaded.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::search::doubles::{numbers, tool};

    /// Ten tokens a tool, whatever it says; a description of `big` counts a hundred.
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
    fn the_least_recently_used_go_in_one_batch_that_frees_a_quarter() {
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
    fn lfu_keeps_what_was_used_often() {
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
    fn pins_open_calls_and_tools_used_this_turn_stay() {
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
    fn nothing_is_evicted_in_vain_and_hits_do_not_push_each_other_out() {
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
    fn the_budget_holds_after_any_sequence_of_injections_and_uses() {
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
    fn a_restored_toolbox_is_the_same_less_what_is_gone() {
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
    fn the_last_evicted_ones_that_were_called_are_missed_until_they_come_back() {
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
    fn a_bare_name_finds_its_tool_only_when_it_is_one() {
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
