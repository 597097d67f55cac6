//! What a usage memory learns from conversations by itself: it is on while they are played, and queries
//! that were not asked in them are searched before and after.
//!
//! Nothing is taught but what the agent tells the catalog: the query of a search and the tool that was then
//! called with success. The queries are split, not the tools, because a memory can only help when a tool
//! is needed again.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolscout_index::memory::{Entry, MAX_ENTRIES, Switch};

use super::conversations::{self, Conversation};
use super::play::Stage;
use super::report::ArmFigures;
use super::{AgentPlan, Policy};
use crate::arms::Arm;
use crate::bootstrap::{Interval, paired};
use crate::dataset::EvalSet;
use crate::error::{EvalError, Result};
use crate::judge::Scores;
use crate::metrics::{Measure, Metric, at_each, mean};
use crate::random::Random;
use crate::run::ArmRun;
use crate::{Progress, Workspace};
use toolscout_finder::finder::snapshot::CurrentSnapshot;
use toolscout_finder::finder::{Eviction, ToolSearch};

/// Of ten queries, so many are held out.
const HELD_OUT_TENTHS: usize = 3;
/// Cut-offs of the metrics.
const DEPTHS: [usize; 3] = [1, 5, 10];
/// The policy of the agent: the default one.
const POLICY: Policy = Policy::Search {
    eviction: Eviction::Lru,
    budget_tokens: 8_000,
};

/// What the memory of a set learned from conversations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LearningReport {
    /// The name of the set.
    pub set: String,
    /// Tools in the catalog.
    pub tools: usize,
    /// Conversations that were played with the memory on.
    pub conversations: usize,
    /// Their turns.
    pub turns: usize,
    /// Different queries that were asked in them.
    pub asked: usize,
    /// Pairs of query and tool that the memory has learned.
    pub remembered: usize,
    /// Queries that were held out.
    pub held_out: usize,
    /// Share of the held-out queries with a relevant tool that the memory has learned of.
    pub known: f64,
    /// The search of the held-out queries before and after.
    pub searches: Vec<Gain>,
    /// Conversations of the held-out queries with the memory off.
    pub before: ArmFigures,
    /// The same ones with it on.
    pub after: ArmFigures,
    /// The seed of the split, the conversations and the oracle's choices.
    pub seed: u64,
    /// The embedders; `none` where search was lexical.
    pub embedder: String,
    /// Digest of the tools, the queries and their judgements.
    pub fingerprint: String,
    /// True if the ranker that took part was trained on these queries, or on some of them.
    pub trained_on: bool,
    /// Version of this program.
    pub version: String,
}

/// A metric of the held-out queries before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The metric.
    pub metric: String,
    /// Its mean with the memory off.
    pub before: f64,
    /// Its mean with it on.
    pub after: f64,
    /// 95% interval of the difference.
    pub gain_ci95: Interval,
    /// p-value of the difference.
    pub gain_p: f64,
}

impl Gain {
    fn of(metric: Metric, before: &Scores, after: &Scores, seed: u64) -> Self {
        let (before, after) = (before.column(metric), after.column(metric));
        let compared = paired(after, before, seed);
        Gain {
            metric: metric.to_string(),
            before: mean(before),
            after: mean(after),
            gain_ci95: compared.interval,
            gain_p: compared.p,
        }
    }
}

/// Plays at most this many conversations of a part of the queries, and measures the others before and
/// after.
///
/// # Errors
/// [`EvalError::Option`] for a set with too few queries; errors of the engine and of the agent.
pub fn learn(
    mut set: EvalSet,
    (plan, most): (&AgentPlan, usize),
    arm: &Arm,
    workspace: &Workspace,
    progress: &dyn Progress,
) -> Result<LearningReport> {
    // No call serves them, so they would teach nothing.
    set.unanswerable.clear();
    progress.stage("embedding tools", 0);
    workspace.prepare(&set, &mut |embedded| progress.done(embedded.done))?;
    let copy = workspace.copy(&set, "learning")?;
    let memory = copy.catalog.memory();
    let (asked, held_out) = split(&set, plan)?;
    let mut conversations = conversations::of(&asked, plan.turns, plan.seed);
    conversations.truncate(most);
    let of_held_out = conversations::of(&held_out, plan.turns, plan.seed);
    let measure = |catalog: Arc<dyn ToolSearch>, what: &str| {
        let stage = Stage::new(&held_out, &of_held_out, plan.seed, catalog)?;
        play(&stage, &of_held_out, plan.seed, what, progress)
    };
    // A snapshot uses the memory, but calls are not reported to it: measuring teaches nothing.
    let searcher = copy.catalog.searcher();
    let held = Arc::clone(&searcher);
    let snapshot: Arc<dyn ToolSearch> = Arc::new(CurrentSnapshot(move || Arc::clone(&held)));
    let metrics = metrics();
    let search = |what: &str| {
        progress.stage(what, held_out.queries.len());
        let depth = DEPTHS[DEPTHS.len() - 1].min(set.tools.len());
        let on_query = || progress.step();
        let run = ArmRun::of(&held_out, &*searcher, arm, depth, &on_query)?;
        Ok::<_, EvalError>(Scores::strict(&held_out, &run, &metrics))
    };
    let scores_before = search("searching before")?;
    let before = measure(Arc::clone(&snapshot), "playing before")?;
    // Only now, so that everything before was searched without it.
    memory.set_switch(Switch::On)?;
    // The catalog itself and not a snapshot: calls are reported to it, and it learns from them.
    let taught = Arc::new(copy.catalog.clone());
    let stage = Stage::new(&asked, &conversations, plan.seed, taught)?;
    play(&stage, &conversations, plan.seed, "learning", progress)?;
    let learned = memory.entries(None, MAX_ENTRIES)?;
    let scores_after = search("searching after")?;
    let after = measure(snapshot, "playing after")?;
    let mut searches = Vec::with_capacity(metrics.len());
    for &metric in &metrics {
        searches.push(Gain::of(metric, &scores_before, &scores_after, plan.seed));
    }
    let queries: HashSet<usize> = conversations.iter().flatten().copied().collect();
    Ok(LearningReport {
        set: set.name.clone(),
        tools: set.tools.len(),
        conversations: conversations.len(),
        turns: conversations.iter().map(Vec::len).sum(),
        asked: queries.len(),
        remembered: learned.len(),
        held_out: held_out.queries.len(),
        known: known_share(&held_out, &learned),
        searches,
        before,
        after,
        seed: plan.seed,
        embedder: workspace.embedder(),
        fingerprint: set.fingerprint(),
        trained_on: workspace.ranker_has_seen(&set)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Plays all conversations of a stage, with the progress of their turns.
fn play(
    stage: &Stage<'_>,
    conversations: &[Conversation],
    seed: u64,
    what: &str,
    progress: &dyn Progress,
) -> Result<ArmFigures> {
    progress.stage(what, conversations.iter().map(Vec::len).sum());
    let turns = stage.play(POLICY, &|| progress.step())?;
    Ok(ArmFigures::of(POLICY, &turns, seed))
}

/// The share of queries with a relevant tool that the memory has learned of.
fn known_share(set: &EvalSet, learned: &[Entry]) -> f64 {
    let tools: HashSet<&str> = learned.iter().map(|entry| entry.tool.as_str()).collect();
    let mut known = 0;
    for query in &set.queries {
        let mut relevant = query.relevant.iter().map(|tool| &set.tool(*tool).id);
        known += usize::from(relevant.any(|id| tools.contains(id.as_str())));
    }
    known as f64 / set.queries.len().max(1) as f64
}

fn metrics() -> Vec<Metric> {
    let found = at_each(Measure::Success, &DEPTHS);
    found.chain(at_each(Measure::Recall, &DEPTHS)).collect()
}

/// The queries to play, and those that are held out, of which none is asked in the same words.
fn split(set: &EvalSet, plan: &AgentPlan) -> Result<(EvalSet, EvalSet)> {
    let mut random = Random::new(plan.seed, "learning");
    let count = plan.queries.unwrap_or(set.queries.len());
    let chosen = random.sample(set.queries.len(), count);
    let held = random.sample(chosen.len(), chosen.len() * HELD_OUT_TENTHS / 10);
    let (mut asked, mut held_out) = (set.clone(), set.clone());
    asked.queries.clear();
    held_out.queries.clear();
    for (place, &query) in chosen.iter().enumerate() {
        let part = match held.binary_search(&place) {
            Ok(_) => &mut held_out,
            Err(_) => &mut asked,
        };
        part.queries.push(set.queries[query].clone());
    }
    let texts: HashSet<&str> = asked.query_texts().map(str::trim).collect();
    // A query in the same words would only show that the memory keeps what it is told.
    held_out
        .queries
        .retain(|query| !texts.contains(query.text.trim()));
    if asked.queries.is_empty() || held_out.queries.is_empty() {
        let reason = format!(
            "{} has {} queries, of which some have to be played and others held out",
            set.name,
            set.queries.len()
        );
        return Err(EvalError::option("--remember", "", reason));
    }
    Ok((asked, held_out))
}
