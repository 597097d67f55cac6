//! The found tools that a model sees in a conversation: added at the end, taken away in batches.
//!
//! As [`toolscout_finder::finder::toolbox`] does for the agent, but by name alone: the definitions belong to
//! the client's request, and are not kept between its turns.

/// The share of the budget in percent that is free after an eviction, so that the next few tools
/// fit.
const FREED_PERCENT: usize = 25;

/// The tools in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownTools {
    tools: Vec<ShownTool>,
    clock: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ShownTool {
    name: String,
    tokens: usize,
    /// Whether the model has called it, or the client chose it. Such tools are taken away last.
    is_called: bool,
    /// The clock at its last use, or when it was added.
    used: u64,
}

/// What became of tools that were to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Newly shown.
    pub added: Vec<String>,
    /// Shown before.
    pub already: Vec<String>,
    /// They do not fit.
    pub refused: Vec<String>,
    /// Taken away for the new ones.
    pub evicted: Vec<String>,
}

impl ShownTools {
    /// The names in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Whether this tool is shown.
    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|shown| shown == name)
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Tokens of all of them.
    pub fn tokens(&self) -> usize {
        self.tools.iter().map(|tool| tool.tokens).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Keeps the tools that still exist, with the tokens that they now have.
    pub fn retain(&mut self, tokens_of: impl Fn(&str) -> Option<usize>) {
        self.tools.retain_mut(|tool| match tokens_of(&tool.name) {
            Some(tokens) => {
                tool.tokens = tokens;
                true
            }
            None => false,
        });
    }

    /// Shows a tool whatever the budget, and notes its use: the model has called it, or the client
    /// chose it.
    pub fn require(&mut self, name: &str, tokens: usize) {
        if !self.contains(name) {
            self.push(name, tokens);
        }
        if let Some(tool) = self.touched(name) {
            tool.is_called = true;
        }
    }

    /// Shows the tools of another list too, after these.
    pub fn append(&mut self, others: &ShownTools) {
        for tool in &others.tools {
            if !self.contains(&tool.name) {
                // The clocks of two lists cannot be compared.
                self.clock += 1;
                self.tools.push(ShownTool {
                    used: self.clock,
                    ..tool.clone()
                });
            }
        }
    }

    /// Notes the use of a tool.
    fn touched(&mut self, name: &str) -> Option<&mut ShownTool> {
        self.clock += 1;
        let tool = self.tools.iter_mut().find(|tool| tool.name == name)?;
        tool.used = self.clock;
        Some(tool)
    }

    /// Shows found tools as far as the budget allows. If it does not, those that were not used for
    /// longest make room in one batch, since each eviction breaks the provider's prompt cache.
    pub fn load(&mut self, found: &[(String, usize)], budget_tokens: usize) -> Loaded {
        let mut loaded = Loaded::default();
        let is_found = |name: &str| found.iter().any(|(found, _)| found == name);
        // What was found again stays, so only the rest of the budget is free for others.
        let mut kept = 0;
        for tool in &self.tools {
            if is_found(&tool.name) {
                kept += tool.tokens;
            }
        }
        let (mut fresh, mut fresh_tokens) = (Vec::new(), 0);
        for (name, tokens) in found {
            let is_repeated = fresh.iter().any(|(other, _)| *other == name);
            if is_repeated {
                // It is in two catalogs.
                continue;
            }
            if self.contains(name) {
                self.touched(name);
                loaded.already.push(name.clone());
            } else if kept + fresh_tokens + tokens > budget_tokens {
                loaded.refused.push(name.clone());
            } else {
                fresh_tokens += tokens;
                fresh.push((name, *tokens));
            }
        }
        if self.tokens() + fresh_tokens > budget_tokens {
            let goal = (budget_tokens * (100 - FREED_PERCENT) / 100).saturating_sub(fresh_tokens);
            loaded.evicted = self.evict_to(goal, is_found);
        }
        // After the eviction, which must not take them away again.
        for (name, tokens) in fresh {
            self.clock += 1;
            self.push(name, tokens);
            loaded.added.push(name.clone());
        }
        loaded
    }

    fn evict_to(&mut self, goal_tokens: usize, is_kept: impl Fn(&str) -> bool) -> Vec<String> {
        let evictable = self.tools.iter().filter(|tool| !is_kept(&tool.name));
        let mut by_use: Vec<&ShownTool> = evictable.collect();
        by_use.sort_unstable_by_key(|tool| (tool.is_called, tool.used));
        let mut tokens = self.tokens();
        let mut evicted = Vec::new();
        for ShownTool {
            name,
            tokens: freed,
            ..
        } in by_use
        {
            if tokens <= goal_tokens {
                break;
            }
            tokens -= freed;
            evicted.push(name.clone());
        }
        self.tools.retain(|tool| !evicted.contains(&tool.name));
        evicted
    }

    fn push(&mut self, name: &str, tokens: usize) {
        self.tools.push(ShownTool {
            name: name.to_owned(),
            tokens,
            is_called: false,
            used: self.clock,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(names: &[&str]) -> Vec<(String, usize)> {
        names.iter().map(|name| ((*name).to_owned(), 10)).collect()
    }

    fn names(shown: &ShownTools) -> Vec<&str> {
        shown.names().collect()
    }

    #[test]
    fn tools_are_added_at_the_end_and_evicted_in_one_batch() {
        let mut shown = ShownTools::default();
        shown.load(&tools(&["a", "b"]), 40);
        shown.load(&tools(&["c", "d"]), 40);
        shown.require("a", 10);
        assert_eq!(names(&shown), ["a", "b", "c", "d"]);
        let loaded = shown.load(&tools(&["c", "e", "e"]), 40);
        assert_eq!(loaded.evicted, ["b", "d"]);
        assert_eq!(
            (loaded.added, loaded.already),
            (vec!["e".into()], vec!["c".into()])
        );
        assert_eq!(names(&shown), ["a", "c", "e"]);
    }

    #[test]
    fn what_was_called_is_evicted_last() {
        let mut shown = ShownTools::default();
        shown.load(&tools(&["a", "b", "c"]), 40);
        shown.require("a", 10);
        shown.load(&tools(&["b", "c"]), 40);
        let loaded = shown.load(&tools(&["d", "e"]), 40);
        assert_eq!(loaded.evicted, ["b", "c"]);
        assert_eq!(names(&shown), ["a", "d", "e"]);
        let mut others = ShownTools::default();
        others.load(&tools(&["a", "f"]), 40);
        shown.append(&others);
        assert_eq!(names(&shown), ["a", "d", "e", "f"]);
    }

    #[test]
    fn what_does_not_fit_evicts_nothing() {
        let mut shown = ShownTools::default();
        shown.load(&tools(&["a"]), 40);
        let loaded = shown.load(&[("big".into(), 100)], 40);
        assert_eq!(
            (loaded.refused, loaded.evicted),
            (vec!["big".into()], Vec::new())
        );
        assert_eq!(names(&shown), ["a"]);
        shown.require("big", 100);
        shown.retain(|name| (name == "big").then_some(5));
        assert_eq!(names(&shown), ["big"]);
    }
}
