//! `toolscout eval --agent`: simulates conversations without a model.

use anyhow::{Context as _, Result};
use serde::Serialize;
use toolscout_index::{Fusion, Mode};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::error_message;
use super::{Args, Bar, joined, outputs, workspace};
use crate::eval::agent::learning::LearningReport;
use crate::eval::agent::{
    AgentPlan, AgentReport, DEFAULT_BUDGETS, DEFAULT_TURNS, MAX_TURNS, learning, simulate,
};
use crate::eval::error::EvalError;
use crate::eval::table::{self, Style};
use crate::eval::{Arm, EvalSet, html};

/// Options of retrieval measurements, which a simulation does not have.
const RETRIEVAL_OPTIONS: [&str; 13] = [
    "arms",
    "fusion",
    "dense_weight",
    "k",
    "metrics",
    "parts",
    "duplicates",
    "scale",
    "run",
    "trec",
    "baseline",
    "max_drop",
    "gate",
];

/// The flags of a simulation.
#[derive(clap::Args, Debug)]
pub struct AgentFlags {
    /// Simulate an agent: an oracle replaces the model in conversations made of the queries that
    /// need several tools, with injection and eviction under each budget, with all tools visible,
    /// and with the relevant tools only
    #[arg(long, conflicts_with_all = RETRIEVAL_OPTIONS)]
    pub agent: bool,
    /// Tokens of all visible tools
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", default_values_t = DEFAULT_BUDGETS, requires = "agent")]
    pub budgets: Vec<usize>,
    /// Turns of a conversation
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TURNS, requires = "agent")]
    pub turns: usize,
    /// Play this many conversations with the usage memory on, and search and play queries that were not
    /// asked in them before and after, within the default budget
    #[arg(long, value_name = "CONVERSATIONS", requires = "agent", conflicts_with = "budgets", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub remember: Option<u32>,
}

impl Args {
    /// Simulates the conversations of every set, and writes the report.
    pub(super) fn simulate(&self, context: &Context) -> Result<Outcome> {
        let sets = self.load_sets()?;
        let plan = self.agent_plan()?;
        let mode = self.mode.unwrap_or(Mode::Auto);
        // The arm says which embedders are loaded.
        let arms = Arm::named(&[mode.name().into()], &[Fusion::default()], None)?;
        let workspace = workspace(context, self.index_dir.as_deref(), &arms);
        let progress = Bar::new();
        if let Some(conversations) = self.agent.remember {
            let plan = (&plan, conversations as usize);
            let learn = |set| learning::learn(set, plan, &arms[0], &workspace, &progress);
            let (reports, failure) = each_set(sets, &progress, learn);
            let seen = |report: &LearningReport| (report.set.clone(), report.trained_on);
            let unfinished = failure.as_ref().map(error_message);
            let mut results =
                self.print_simulation(context, (&reports, unfinished), table::learning, seen);
            results.extend(self.write_page(|| html::learning_page(&reports)));
            outputs::all(results.into_iter().chain(failure.map(Err)).collect())?;
            return Ok(Outcome::Success);
        }
        let play = |set| simulate(set, &plan, &workspace, &progress);
        let (reports, failure) = each_set(sets, &progress, play);
        let seen = |report: &AgentReport| (report.set.clone(), report.trained_on);
        let unfinished = failure.as_ref().map(error_message);
        let mut results =
            self.print_simulation(context, (&reports, unfinished), table::agent, seen);
        results.extend(self.write_page(|| html::agent_page(&reports)));
        outputs::all(results.into_iter().chain(failure.map(Err)).collect())?;
        Ok(Outcome::Success)
    }

    fn agent_plan(&self) -> Result<AgentPlan, EvalError> {
        let AgentFlags { budgets, turns, .. } = &self.agent;
        if !(1..=MAX_TURNS).contains(turns) {
            return Err(EvalError::option(
                "--turns",
                turns.to_string(),
                format!("it must be from 1 to {MAX_TURNS}"),
            ));
        }
        if self.queries == Some(0) {
            return Err(EvalError::option(
                "--queries",
                "0",
                "it must be a number above 0",
            ));
        }
        let mut budgets = budgets.clone();
        budgets.sort_unstable();
        budgets.dedup();
        if matches!(self.mode, Some(Mode::Dense | Mode::Hybrid)) {
            let reason =
                "the agent always uses the embedders it has; use lexical, or leave the option out";
            return Err(EvalError::option(
                "--mode",
                self.mode.unwrap_or_default().name(),
                reason,
            ));
        }
        Ok(AgentPlan {
            budgets,
            turns: *turns,
            queries: self.queries,
            seed: self.seed,
        })
    }

    /// The results of printing and writing what was simulated.
    fn print_simulation<T: Serialize>(
        &self,
        context: &Context,
        (reports, unfinished): (&[T], Option<String>),
        in_table: impl Fn(&[T], Style) -> String,
        seen: impl Fn(&T) -> (String, bool),
    ) -> Vec<Result<()>> {
        if reports.is_empty() {
            return Vec::new();
        }
        let table = || {
            let seen: Vec<(String, bool)> = reports.iter().map(seen).collect();
            let seen = seen.iter().map(|(set, is_seen)| (set.as_str(), *is_seen));
            let remark = table::trained_on(seen);
            joined([in_table(reports, self.style()), remark])
        };
        self.print_report(context, reports, unfinished, table)
    }
}

/// The reports of the sets, up to the first that fails, and its error.
fn each_set<T>(
    sets: Vec<EvalSet>,
    progress: &Bar,
    measure: impl Fn(EvalSet) -> Result<T, EvalError>,
) -> (Vec<T>, Option<anyhow::Error>) {
    let mut reports = Vec::new();
    let mut failure = None;
    for set in sets {
        let name = set.name.clone();
        progress.begin(&name);
        match measure(set).with_context(|| format!("set {name}")) {
            Ok(report) => reports.push(report),
            Err(error) => {
                // The reports before it are printed all the same.
                failure = Some(error);
                break;
            }
        }
    }
    progress.bar.finish_and_clear();
    (reports, failure)
}
