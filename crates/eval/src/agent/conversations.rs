//! Combines the queries of a set into conversations in which tools recur, as in real work.

use std::collections::{HashMap, HashSet};

use crate::dataset::{EvalSet, ToolIndex};
use crate::random::Random;

/// The queries of one conversation in order, as positions in [`EvalSet::queries`].
pub type Conversation = Vec<usize>;

/// Assigns every query to a conversation of at most `turns` turns.
///
/// A conversation starts with a random query. Each further turn is, with equal probability, a new
/// query or a return to an earlier turn: another query that needs one of its tools if there is one
/// left, else the same query again. Turns that returned can be returned to, so that a few tools
/// recur often and most do not.
pub fn of(set: &EvalSet, turns: usize, seed: u64) -> Vec<Conversation> {
    let mut random = Random::new(seed, "conversations");
    let mut left = Left::of(set, &mut random);
    let mut conversations = Vec::new();
    while let Some(first) = left.any() {
        let mut conversation = vec![first];
        while conversation.len() < turns {
            let next = match random.below(2) {
                0 => left.any(),
                _ => {
                    let earlier = conversation[random.below(conversation.len())];
                    Some(left.akin(set, earlier, &mut random).unwrap_or(earlier))
                }
            };
            let Some(next) = next else { break };
            conversation.push(next);
        }
        conversations.push(conversation);
    }
    conversations
}

/// The share of turns that need a tool of an earlier turn of their conversation.
pub fn recurring(set: &EvalSet, conversations: &[Conversation]) -> f64 {
    let (mut recurring, mut turns) = (0, 0);
    for conversation in conversations {
        let mut seen: HashSet<ToolIndex> = HashSet::new();
        for &query in conversation {
            let needed = &set.queries[query].relevant;
            recurring += usize::from(needed.iter().any(|tool| seen.contains(tool)));
            // Added after the check: the tools of this very turn do not recur.
            seen.extend(needed);
        }
        turns += conversation.len();
    }
    recurring as f64 / turns.max(1) as f64
}

/// The queries that are not in a conversation yet.
struct Left {
    /// In random order, taken from the end.
    order: Vec<usize>,
    taken: HashSet<usize>,
    by_tool: HashMap<ToolIndex, Vec<usize>>,
}

impl Left {
    fn of(set: &EvalSet, random: &mut Random) -> Self {
        let mut order: Vec<usize> = (0..set.queries.len()).collect();
        random.shuffle(&mut order);
        let mut by_tool: HashMap<ToolIndex, Vec<usize>> = HashMap::new();
        for (position, query) in set.queries.iter().enumerate() {
            for &tool in &query.relevant {
                by_tool.entry(tool).or_default().push(position);
            }
        }
        Left {
            order,
            taken: HashSet::new(),
            by_tool,
        }
    }

    fn any(&mut self) -> Option<usize> {
        while let Some(position) = self.order.pop() {
            if self.taken.insert(position) {
                return Some(position);
            }
        }
        None
    }

    /// A query that shares a tool with this one.
    fn akin(&mut self, set: &EvalSet, query: usize, random: &mut Random) -> Option<usize> {
        let mut akin: Vec<usize> = Vec::new();
        for tool in &set.queries[query].relevant {
            akin.extend(&self.by_tool[tool]);
        }
        akin.retain(|position| !self.taken.contains(position));
        // Sorted for `dedup`, and because the choice is by position.
        akin.sort_unstable();
        akin.dedup();
        if akin.is_empty() {
            return None;
        }
        let chosen = akin[random.below(akin.len())];
        self.taken.insert(chosen);
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

    fn chain() -> EvalSet {
        let ids: Vec<String> = (0..41).map(|number| format!("t{number}")).collect();
        let tools: Vec<(&str, &str)> = ids.iter().map(|id| (id.as_str(), "x")).collect();
        let pairs: Vec<[&str; 2]> = ids
            .windows(2)
            .map(|pair| [pair[0].as_str(), pair[1].as_str()])
            .collect();
        let names: Vec<String> = (0..40).map(|number| format!("q{number}")).collect();
        let queries: Vec<(&str, &str, &[&str])> = names
            .iter()
            .zip(&pairs)
            .map(|(name, pair)| (name.as_str(), "x", &pair[..]))
            .collect();
        set(&tools, &queries)
    }

    #[test]
    fn every_query_is_in_a_conversation_of_bounded_length() {
        for seed in 0..20 {
            let conversations = of(&chain(), 7, seed);
            assert!(
                conversations
                    .iter()
                    .all(|turns| (1..=7).contains(&turns.len())),
                "seed {seed}"
            );
            let asked: HashSet<usize> = conversations.iter().flatten().copied().collect();
            assert_eq!(asked.len(), 40, "seed {seed}");
        }
    }

    #[test]
    fn tools_recur_and_a_seed_gives_the_same_conversations() {
        let set = chain();
        let conversations = of(&set, 10, 3);
        assert_eq!(conversations, of(&set, 10, 3));
        assert_ne!(conversations, of(&set, 10, 4));
        let share = recurring(&set, &conversations);
        assert!((0.25..0.75).contains(&share), "{share}");
    }
}
