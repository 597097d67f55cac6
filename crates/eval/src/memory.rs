//! The gain of a usage memory: half of the queries are remembered with their relevant tools, the
//! other half is searched.
//!
//! The queries are split, not the tools, because a memory can only help when a tool is needed
//! again. Sets with queries that paraphrase each other overestimate the gain.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use toolscout_index::ToolId;
use toolscout_index::memory::{Entry, MAX_ENTRIES, Source, Switch};
use toolscout_index::query::read_part;
use utoipa::ToSchema;

use super::arms::Arm;
use super::bootstrap::{Interval, paired};
use super::dataset::EvalSet;
use super::error::Result;
use super::judge::Scores;
use super::metrics::{Measure, Metric, mean};
use super::prepare::Workspace;
use super::random::Random;
use super::run::ArmRun;

const METRIC: Metric = Metric::new(Measure::Ndcg, DEPTH);
const DEPTH: usize = 10;

/// The gain of a memory with half of the queries on the other half.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationMemory)]
pub struct MemoryReport {
    /// Queries remembered.
    pub remembered: usize,
    /// Queries searched.
    pub asked: usize,
    /// Share of the searched queries with a relevant tool that is also remembered.
    pub known: f64,
    /// Mean nDCG@10 with the memory switched off.
    pub without: f64,
    /// Mean nDCG@10 with the memory switched on.
    pub with: f64,
    /// 95% interval of the gain.
    #[schema(value_type = Vec<f64>, min_items = 2, max_items = 2)]
    pub gain_ci95: Interval,
    /// p-value of the gain.
    pub gain_p: f64,
}

impl MemoryReport {
    /// Measures on a copy of the catalog of the set. Calls `on_query` after each query.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn of(
        set: &EvalSet,
        workspace: &Workspace,
        arm: &Arm,
        seed: u64,
        on_query: &(dyn Fn() + Sync),
    ) -> Result<Self> {
        let copy = workspace.copy(set, "memory")?;
        let chosen = Random::new(seed, "memory").sample(set.queries.len(), set.queries.len() / 2);
        let entries = entries(set, &chosen);
        let mut rest = set.clone();
        rest.queries.clear();
        for (place, query) in set.queries.iter().enumerate() {
            // `sample` is sorted, which the binary search needs.
            if chosen.binary_search(&place).is_err() {
                rest.queries.push(query.clone());
            }
        }
        let column = || -> Result<Vec<f64>> {
            let run = ArmRun::of(
                &rest,
                &*copy.catalog.searcher(),
                arm,
                DEPTH.min(set.tools.len()),
                on_query,
            )?;
            Ok(Scores::strict(&rest, &run, &[METRIC])
                .column(METRIC)
                .to_vec())
        };
        let without = column()?;
        let memory = copy.catalog.memory();
        memory.set_switch(Switch::On)?;
        memory.insert(&entries)?;
        // The same searches again, so that only the memory makes the difference.
        let with = column()?;
        let gain = paired(&with, &without, seed);
        let learned: HashSet<&ToolId> = entries.iter().map(|entry| &entry.tool).collect();
        let mut known = 0;
        for query in &rest.queries {
            let mut relevant = query.relevant.iter().map(|&tool| &set.tool(tool).id);
            known += usize::from(relevant.any(|id| learned.contains(id)));
        }
        Ok(MemoryReport {
            remembered: chosen.len(),
            asked: rest.queries.len(),
            known: known as f64 / rest.queries.len().max(1) as f64,
            without: mean(&without),
            with: mean(&with),
            gain_ci95: gain.interval,
            gain_p: gain.p,
        })
    }
}

/// One entry per query and relevant tool, up to the capacity of a memory.
fn entries(set: &EvalSet, chosen: &[usize]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for &place in chosen {
        let query = &set.queries[place];
        for &tool in &query.relevant {
            entries.push(Entry {
                query: read_part(&query.text).to_owned(),
                tool: set.tool(tool).id.clone(),
                times: 1,
                at_ms: place as i64,
                taught_by: vec![Source::command_line()],
            });
        }
    }
    entries.truncate(MAX_ENTRIES);
    entries
}
