//! Simulates the agent without a model: cost and success of injection and eviction in
//! conversations.
//!
//! The queries of a set that need several tools are combined into [conversations] in which tools
//! recur. An [oracle] that knows the relevant tools replaces the model: it calls those it sees and
//! searches for those it does not see. Everything else is real: the [agent](toolscout_agent) with its
//! runs, its toolbox, its search and its token counts. Conversations are stored in memory.

pub mod arguments;
pub mod conversations;
pub mod oracle;
pub mod report;

mod counting;
mod few;
mod play;

pub mod learning;

pub use report::{AgentReport, ArmFigures};

use std::sync::Arc;

use super::dataset::EvalSet;
use super::error::{EvalError, Result};
use super::random::Random;
use super::{Progress, Workspace};
use play::Stage;
use toolscout_finder::finder::Eviction;
use toolscout_finder::finder::snapshot::CurrentSnapshot;

/// The default budgets: tokens of all visible tools.
pub const DEFAULT_BUDGETS: [usize; 3] = [2_000, 4_000, 8_000];
/// The default turns of a conversation: enough to overflow the largest default budget.
pub const DEFAULT_TURNS: usize = 12;
/// Most turns of a conversation.
pub const MAX_TURNS: usize = 200;

/// The plan of a simulation.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// Budgets in tokens of all visible tools; each is simulated with every eviction policy.
    pub budgets: Vec<usize>,
    /// Most turns of a conversation.
    pub turns: usize,
    /// Size of the sample of the queries that need several tools; `None` for all.
    pub queries: Option<usize>,
    /// The seed of the sample, the conversations and the oracle's choices.
    pub seed: u64,
}

/// Which tools the oracle sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Search, and the tools found, within a budget.
    Search {
        /// Which tool is evicted first.
        eviction: Eviction,
        /// Most tokens of all visible tools.
        budget_tokens: usize,
    },
    /// The whole catalog, without search.
    All,
    /// The relevant tools of the turn, without search: the upper bound for any agent.
    Relevant,
}

impl Policy {
    /// Every policy of a plan, in the order of the report.
    pub fn all(budgets: &[usize]) -> Vec<Policy> {
        let mut policies = Vec::new();
        for &budget_tokens in budgets {
            for eviction in [Eviction::Lru, Eviction::Lfu, Eviction::None] {
                policies.push(Policy::Search {
                    eviction,
                    budget_tokens,
                });
            }
        }
        policies.extend([Policy::All, Policy::Relevant]);
        policies
    }

    /// The name, without the budget.
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

    /// The budget, if any.
    pub fn budget_tokens(self) -> Option<usize> {
        match self {
            Policy::Search { budget_tokens, .. } => Some(budget_tokens),
            Policy::All | Policy::Relevant => None,
        }
    }
}

/// Simulates the conversations of a set under every policy.
///
/// # Errors
/// [`EvalError::NothingToPlay`] for a set whose queries all need one tool; errors of the engine and of
/// the agent.
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
    // One snapshot and the same conversations for every policy, so that only the policy differs.
    let searcher = workspace.open_set(&set)?.searcher();
    let catalog = Arc::new(CurrentSnapshot(move || Arc::clone(&searcher)));
    let conversations = conversations::of(&set, plan.turns, plan.seed);
    let turns = conversations.iter().map(Vec::len).sum();
    let stage = Stage::new(&set, &conversations, plan.seed, catalog)?;
    let mut report = AgentReport::of(&set, &conversations, turns, plan.seed, workspace.embedder());
    report.trained_on = workspace.ranker_has_seen(&set)?;
    for policy in Policy::all(&plan.budgets) {
        progress.stage(&format!("simulating {}", policy.name()), turns);
        let turns = stage.play(policy, &|| progress.step())?;
        report.arms.push(ArmFigures::of(policy, &turns, plan.seed));
    }
    Ok(report)
}

/// The set with only the queries that need several tools, sampled as planned.
fn several_tools(mut set: EvalSet, plan: &AgentPlan) -> Result<EvalSet> {
    let queries = set.queries.len();
    // By needs, and not by relevant tools: alternatives to each other are one need.
    set.queries.retain(|query| query.groups.len() > 1);
    // No tool serves these, so there is nothing to play.
    set.unanswerable.clear();
    if set.queries.is_empty() {
        return Err(EvalError::NothingToPlay {
            set: set.name,
            queries,
        });
    }
    if let Some(count) = plan.queries {
        set.queries = Random::new(plan.seed, "queries").sample_of(&set.queries, count);
    }
    Ok(set)
}

#[cfg(test)]
mod tests;
