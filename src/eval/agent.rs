//! The agent without a model: what injection and eviction cost and bring over whole conversations.
//!
//! The queries of a set that need several tools are [put together](conversations) into
//! conversations in which tools recur. An [oracle] that knows the right tools answers in the
//! model's place: it calls what it sees, searches for what it does not see, and nothing else.
//! Everything else is the real thing: the [agent](crate::agent) with its runs, its toolbox, its
//! search and its token counting, turn by turn, conversations kept in memory.

pub mod arguments;
pub mod conversations;
pub mod oracle;
pub mod report;

mod counting;
mod few;
mod play;

pub use report::{AgentReport, ArmFigures};

use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use super::random::Random;
use super::{Progress, Workspace};
use crate::finder::Eviction;
use play::Stage;

/// Tokens of all visible tools, unless others are asked for.
pub const DEFAULT_BUDGETS: [usize; 3] = [2_000, 4_000, 8_000];
/// Turns of a conversation, unless asked otherwise: enough for the largest of the budgets to
/// overflow.
pub const DEFAULT_TURNS: usize = 12;
/// Most turns of a conversation.
pub const MAX_TURNS: usize = 200;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// Tokens of all visible tools; each is measured with every kind of eviction.
    pub budgets: Vec<usize>,
    /// Turns of a conversation at most.
    pub turns: usize,
    /// Queries taken, chosen by the seed among those that need several tools; all when none.
    pub queries: Option<usize>,
    /// Decides the sample, the conversations and the oracle's words.
    pub seed: u64,
}

/// What the oracle is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Search, and what it found as far as the budget holds.
    Search {
        /// Which tool goes first.
        eviction: Eviction,
        /// Most tokens of all visible tools.
        budget_tokens: usize,
    },
    /// The whole catalog and no search.
    All,
    /// The tools that the turn needs and no search: what no agent can do better.
    Relevant,
}

impl Policy {
    /// Every policy of a plan, in the order of the report.
    pub fn all(budgets: &[usize]) -> Vec<Policy> {
        let evictions = [Eviction::Lru, Eviction::Lfu, Eviction::None];
        let with = |budget_tokens| {
            evictions.map(|eviction| Policy::Search {
                eviction,
                budget_tokens,
            })
        };
        budgets
            .iter()
            .copied()
            .flat_map(with)
            .chain([Policy::All, Policy::Relevant])
            .collect()
    }

    /// What is shown, without the budget.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Search {
                eviction: Eviction::Lru,
                ..
            } => "lru",
            Policy::Search {
                eviction: Eviction::Lfu,
                ..
            } => "lfu",
            Policy::Search {
                eviction: Eviction::None,
                ..
            } => "no eviction",
            Policy::All => "all visible",
            Policy::Relevant => "relevant only",
        }
    }

    /// The budget, where there is one.
    pub fn budget_tokens(self) -> Option<usize> {
        match self {
            Policy::Search { budget_tokens, .. } => Some(budget_tokens),
            Policy::All | Policy::Relevant => None,
        }
    }
}

/// Plays one set's conversations under every policy.
///
/// # Errors
/// [`EvalError::NothingToPlay`] for a set whose queries all need one tool, the engine's, the agent's.
pub fn simulate(
    set: EvalSet,
    plan: &AgentPlan,
    workspace: &Workspace,
    progress: &dyn Progress,
) -> Result<AgentReport> {
    let set = several_tools(set, plan)?;
    workspace.forget_queries();
    progress.stage("embedding tools", 0);
    workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
    let searcher = workspace.open_set(&set)?.searcher();
    let conversations = conversations::of(&set, plan.turns, plan.seed);
    let turns = conversations.iter().map(Vec::len).sum();
    let stage = Stage::new(&set, &conversations, plan.seed, searcher)?;
    let mut report = AgentReport::of(&set, &conversations, turns, plan.seed, workspace.embedder());
    for policy in Policy::all(&plan.budgets) {
        progress.stage(&format!("playing {}", policy.name()), turns);
        let turns = stage.play(policy, &|| progress.step())?;
        report.arms.push(ArmFigures::of(policy, &turns, plan.seed));
    }
    Ok(report)
}

/// The set with only those queries that need several tools, sampled where the plan says so.
fn several_tools(mut set: EvalSet, plan: &AgentPlan) -> Result<EvalSet> {
    let queries = set.queries.len();
    set.queries.retain(|query| query.groups.len() > 1);
    set.unanswerable.clear();
    if set.queries.is_empty() {
        return Err(EvalError::NothingToPlay {
            set: set.name,
            queries,
        });
    }
    if let Some(count) = plan.queries {
        let chosen = Random::new(plan.seed, "queries").sample(set.queries.len(), count);
        set.queries = chosen
            .into_iter()
            .map(|position| set.queries[position].clone())
            .collect();
    }
    Ok(set)
}

#[cfg(test)]
mod tests;
