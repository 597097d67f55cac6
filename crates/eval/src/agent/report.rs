//! The report of a simulation, as JSON.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Policy;
use super::conversations::{self, Conversation};
use super::play::TurnFigures;
use crate::bootstrap::{Interval, intervals};
use crate::dataset::EvalSet;
use crate::metrics::mean;
use crate::ordered;

/// The results of one set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentReport {
    /// The name of the set.
    pub set: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Queries that need several tools, after sampling.
    pub queries: usize,
    /// Conversations made of them.
    pub conversations: usize,
    /// Their turns; every policy runs all of them.
    pub turns: usize,
    /// Share of the turns that need a tool of an earlier turn of their conversation.
    pub recurring: f64,
    /// The seed of the sample, the conversations and the oracle's choices.
    pub seed: u64,
    /// The embedders; `none` where search was lexical.
    pub embedder: String,
    /// Digest of the tools, the queries and their judgements.
    pub fingerprint: String,
    /// True if the ranker that took part was trained on these queries, or on some of them.
    pub trained_on: bool,
    /// Version of this program.
    pub version: String,
    /// The results of each policy and budget, by name.
    #[serde(serialize_with = "by_name", deserialize_with = "read_by_name")]
    pub arms: Vec<ArmFigures>,
}

impl AgentReport {
    /// A report without results.
    pub(super) fn of(
        set: &EvalSet,
        conversations: &[Conversation],
        turns: usize,
        seed: u64,
        embedder: String,
    ) -> Self {
        AgentReport {
            set: set.name.clone(),
            tools: set.tools.len(),
            queries: set.queries.len(),
            conversations: conversations.len(),
            turns,
            recurring: conversations::recurring(set, conversations),
            seed,
            embedder,
            fingerprint: set.fingerprint(),
            trained_on: false,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            arms: Vec::new(),
        }
    }
}

/// The results of one policy at one budget: means over the turns, unless noted otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmFigures {
    /// The policy.
    pub policy: String,
    /// Most tokens of all visible tools; null without a budget.
    pub budget_tokens: Option<usize>,
    /// Share of the turns in which every needed tool was called.
    pub success: f64,
    /// Its 95% bootstrap interval over turns; null for a macro average.
    pub success_ci95: Option<Interval>,
    /// Share of the needed tools that were called.
    pub needs_met: f64,
    /// Searches.
    pub searches: f64,
    /// Answers of the model.
    pub rounds: f64,
    /// Prompt tokens of all rounds, tools and searches included.
    pub tokens_in: f64,
    /// Of these, the tokens after the longest common prefix with the previous request, which a
    /// provider with a prompt cache must process.
    pub tokens_in_fresh: f64,
    /// Tokens of the model's calls and text.
    pub tokens_out: f64,
    /// Tools injected.
    pub tools_injected: f64,
    /// Tools evicted.
    pub tools_evicted: f64,
    /// Failed calls in all turns: arguments that could not be generated, or too many searches in a
    /// row.
    pub calls_refused: usize,
}

impl ArmFigures {
    /// The results of these turns.
    pub(super) fn of(policy: Policy, turns: &[TurnFigures], seed: u64) -> Self {
        let mut arm = ArmFigures {
            policy: policy.name().to_owned(),
            budget_tokens: policy.budget_tokens(),
            ..ArmFigures::default()
        };
        let mut succeeded = Vec::with_capacity(turns.len());
        let (mut met, mut needs) = (0, 0);
        for turn in turns {
            met += turn.met;
            needs += turn.needs;
            succeeded.push(f64::from(u8::from(turn.met == turn.needs)));
            arm.searches += f64::from(turn.figures.searches);
            arm.rounds += f64::from(turn.figures.rounds);
            arm.tokens_in += turn.figures.tokens_in as f64;
            arm.tokens_in_fresh += turn.fresh_tokens as f64;
            arm.tokens_out += turn.figures.tokens_out as f64;
            arm.tools_injected += turn.figures.tools_injected as f64;
            arm.tools_evicted += turn.figures.tools_evicted as f64;
            arm.calls_refused += turn.refused;
        }
        for sum in arm.means() {
            *sum /= turns.len().max(1) as f64;
        }
        arm.success = mean(&succeeded);
        let intervals = intervals(std::slice::from_ref(&succeeded), seed);
        arm.success_ci95 = intervals.first().copied();
        // Over all needs, and not a mean over turns: turns have different numbers of them.
        arm.needs_met = met as f64 / needs.max(1) as f64;
        arm
    }

    /// All but the number of failed calls, which is a sum.
    fn means(&mut self) -> [&mut f64; 9] {
        [
            &mut self.success,
            &mut self.needs_met,
            &mut self.searches,
            &mut self.rounds,
            &mut self.tokens_in,
            &mut self.tokens_in_fresh,
            &mut self.tokens_out,
            &mut self.tools_injected,
            &mut self.tools_evicted,
        ]
    }

    /// The name of the arm: the policy, and the budget if there is one.
    pub fn name(&self) -> String {
        match self.budget_tokens {
            Some(tokens) => format!("{} {tokens}", self.policy),
            None => self.policy.clone(),
        }
    }
}

/// The macro average of each arm: every set has the same weight. Arms that a set lacks are left
/// out; failed calls are summed.
pub fn macro_average(reports: &[AgentReport]) -> Vec<ArmFigures> {
    let Some(first) = reports.first() else {
        return Vec::new();
    };
    let mut averages = Vec::new();
    for arm in &first.arms {
        averages.extend(average(arm, reports));
    }
    averages
}

/// The macro average of one arm; `None` if a set lacks it.
fn average(arm: &ArmFigures, reports: &[AgentReport]) -> Option<ArmFigures> {
    let name = arm.name();
    // Without an interval: a report does not keep the turns that would be resampled.
    let mut average = ArmFigures {
        policy: arm.policy.clone(),
        budget_tokens: arm.budget_tokens,
        ..ArmFigures::default()
    };
    for report in reports {
        let same = report.arms.iter().find(|other| other.name() == name)?;
        average.calls_refused += same.calls_refused;
        for (sum, value) in average.means().into_iter().zip(same.clone().means()) {
            *sum += *value;
        }
    }
    for sum in average.means() {
        *sum /= reports.len() as f64;
    }
    Some(average)
}

fn by_name<S: Serializer>(arms: &[ArmFigures], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arms.iter().map(|arm| (arm.name(), arm)))
}

fn read_by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ArmFigures>, D::Error> {
    let arms: Vec<(String, ArmFigures)> = ordered::read(deserializer)?;
    Ok(arms.into_iter().map(|(_, arm)| arm).collect())
}
