//! `toolscout eval`: measures the quality and the cost of retrieval.

mod agent;
mod compare;
mod diff;
mod gate;
mod outputs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use toolscout_index::embed::{MultilingualTable, StaticTable};
use toolscout_index::query::MAX_K;
use toolscout_index::{Embedder, Fusion, Mode};

use super::Outcome;
use super::context::Context;
use super::exit::error_message;
use super::output::print_stderr;
use super::progress::bar;
use crate::eval::ablation::{self, Embedding, Step};
use crate::eval::baseline::{Baseline, GATED};
use crate::eval::dataset::Load;
use crate::eval::error::EvalError;
use crate::eval::features::FeaturesFile;
use crate::eval::metrics::{default_depths, read_list};
use crate::eval::run_file::RunOrder;
use crate::eval::table::{self, Style};
use crate::eval::{
    Arm, EvalSet, Evaluation, Judging, Metric, Part, Plan, Progress, Ranking, Report, Workspace,
};
use crate::eval::{evaluate, scale};
use crate::models::Patience;
use crate::printable;

/// The default of --arms.
const DEFAULT_ARMS: [&str; 3] = ["lexical", "dense", "hybrid"];
const TEMPLATE: &str = "{msg} [{wide_bar}] {pos}/{len} {elapsed}";

/// Measures retrieval on your own tools and queries: quality with confidence intervals, abstention,
/// speed, memory, tokens.
///
/// A set is a folder with tools.jsonl (or tools.json, tools.yaml, a folder tools/; any format that
/// `add` reads) and queries.jsonl with lines {"id","query","relevant":[tool ids]}, or a BEIR
/// folder. A tool id is SERVER/NAME, or the `id` field of the tool in its file. Vectors are stored,
/// so a second run is fast. With several embedders (--embedder A,B) they are compared: quality, time
/// and, where an endpoint has a price, cost.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  toolscout eval sets/mine\n  toolscout eval sets/mine --arms lexical,hybrid --json report.json --baseline main.json\n  toolscout eval sets/mine --embedder auto,multilingual-e5-small"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Folders of sets; several are summarised by a macro average
    #[arg(required = true, value_name = "SET_DIR")]
    sets: Vec<PathBuf>,
    /// Judged queries in place of the set's queries.jsonl, for one set
    #[arg(long, value_name = "FILE")]
    requests: Option<PathBuf>,
    /// Least grade of a relevant tool, for recall and all that counts tools; nDCG counts grades
    /// [default: every grade above 0]
    #[arg(long, value_name = "GRADE")]
    relevant_from: Option<f64>,
    /// Leave out judgements about tools that the set does not have, and say how many
    #[arg(long)]
    skip_unknown: bool,
    /// Search modes to compare: lexical, dense, hybrid, auto [default: lexical,dense,hybrid]
    #[arg(long, value_delimiter = ',', value_name = "ARMS")]
    arms: Vec<String>,
    /// Measure this search mode alone
    #[arg(long, conflicts_with = "arms")]
    mode: Option<Mode>,
    /// Ablation: an arm for each part of the default search as it is added, in a table of its own
    #[arg(long, conflicts_with_all = ["arms", "mode"])]
    ablate: bool,
    /// Fusions of the hybrid arm: convex, rrf; each becomes an arm
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "convex",
        value_name = "FUSIONS"
    )]
    fusion: Vec<Fusion>,
    /// Weight of the dense legs in the hybrid arm, 0 to 1
    #[arg(long, value_name = "WEIGHT")]
    dense_weight: Option<f32>,
    /// Measure every arm without the ranker; `formula` in --arms is the hybrid arm without the
    /// ranker
    #[arg(long)]
    no_ranker: bool,
    /// Rank with this file instead of the built-in ranker; with a folder, each set with its
    /// `without-SET.json`, which was trained without the set
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "no_ranker")]
    ranker: Option<PathBuf>,
    /// Embed with this file instead of the built-in table of its kind: English, or other languages
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Write the ranker features of every candidate, for scripts/train_ranker.py
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Cut-offs of the metrics [default: those of 1,3,5,10 that the number of tools allows]
    #[arg(long, value_delimiter = ',', value_name = "K")]
    k: Vec<usize>,
    /// Metrics in place of the usual ones, also by the names of ir_measures: ndcg@10, AP,
    /// nDCG(dcg='exp-log2')@10, P(rel=2)@5, RBP(p=0.8), ERR@10, Bpref, Rprec
    #[arg(long, value_name = "METRICS", conflicts_with = "k")]
    metrics: Option<String>,
    /// Measure a sample of this many queries per set
    #[arg(long, value_name = "N")]
    queries: Option<usize>,
    /// Seed of the sample, the held-out tools and the resampling
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Parts to measure besides quality: cost, no-match, tokens, memory; `--parts ""` for none
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "cost,no-match,tokens",
        value_name = "PARTS"
    )]
    parts: Vec<String>,
    /// Also report metrics that count near-identical tools as relevant
    #[arg(long)]
    duplicates: bool,
    /// Also measure cost and latency at these catalog sizes, with sampled or enlarged catalogs
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    scale: Vec<usize>,
    /// Evaluate a TREC run file as a further arm (one set only)
    #[arg(long, value_name = "FILE")]
    run: Vec<PathBuf>,
    /// Order of the hits of --run: by score with ties as trec_eval has them, or by rank
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "ORDER",
        requires = "run"
    )]
    run_order: RunOrder,
    /// Write the report as JSON, `-` for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write TREC run files and qrels, with names that start with FILE
    #[arg(long, value_name = "FILE")]
    trec: Option<PathBuf>,
    /// Write an HTML report with plots, as one file without external resources
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Compare with the JSON report of an earlier run; the exit code is 1 on a drop
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Largest drop below the baseline, in points of 100
    #[arg(
        long,
        default_value_t = 0.5,
        value_name = "POINTS",
        requires = "baseline"
    )]
    max_drop: f64,
    /// Metrics that must not drop [default: ndcg@5, ndcg@10, recall@5, recall@10, mrr@10 and
    /// complete@5]
    #[arg(long, value_name = "METRICS", requires = "baseline")]
    gate: Option<String>,
    /// Folder of the measured catalogs [default: eval in the cache directory]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
    #[command(flatten)]
    agent: agent::AgentFlags,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Diff(diff::DiffArgs),
}

impl Args {
    /// Measures every set, prints and writes the reports, and compares with the baseline.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if let Some(Command::Diff(diff)) = &self.command {
            return diff.run(context);
        }
        // Without the time limit of a search: every request has to be answered.
        context.set_patience(Patience::of_measuring());
        self.check_outputs()?;
        if self.agent.agent {
            return self.simulate(context);
        }
        if let several @ [_, _, ..] = context.globals.embedders() {
            return self.compare_embedders(context, several);
        }
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        // Every set is loaded before the first is measured, so that a bad file fails at once.
        let sets = self.load_sets()?;
        let plan = self.plan(context)?;
        let workspace = self.workspace(context, &plan.arms)?;
        if let Some(baseline) = &baseline {
            self.check_baseline(baseline, &sets, &plan, &workspace)?;
        }
        let (evaluations, failure) = self.measure(sets, plan, &workspace)?;
        let reports: Vec<Report> = evaluations
            .iter()
            .map(|evaluation| evaluation.report.clone())
            .collect();
        for run in evaluations.iter().flat_map(|evaluation| &evaluation.runs) {
            if let Some(facts) = &run.file {
                print_stderr(format_args!("{}: {}", run.name, facts.line()));
            }
        }
        let mut results = Vec::new();
        if !reports.is_empty() {
            let steps = self.ablate.then(|| steps(context));
            let unfinished = failure.as_ref().map(error_message);
            results.extend(
                self.print_report(context, &reports, unfinished, || match &steps {
                    Some(steps) => self.ablation(&evaluations, &reports, steps),
                    None => self.tables(&reports),
                }),
            );
            results.extend(self.write_files(&evaluations));
        }
        let outcome = match &baseline {
            Some(baseline) => self.compare(baseline, &reports),
            None => Ok(Outcome::Success),
        };
        results.push(failure.map_or(Ok(()), Err));
        outputs::all(results)?;
        outcome
    }

    /// The evaluations of the sets, up to the first that fails, and its error.
    fn measure(
        &self,
        sets: Vec<EvalSet>,
        plan: Plan,
        workspace: &Workspace,
    ) -> Result<(Vec<Evaluation>, Option<anyhow::Error>)> {
        let progress = Bar::new();
        let mut features = self
            .features
            .as_deref()
            .map(FeaturesFile::create)
            .transpose()?;
        let mut evaluations = Vec::new();
        let mut failure = None;
        for set in sets {
            let name = set.name.clone();
            let plan = self.plan_for(&plan, &set);
            progress.begin(&name);
            let measured = evaluate(set, &plan, workspace, &progress).and_then(|evaluation| {
                if let Some(features) = &mut features {
                    progress.stage("measuring candidates", 2 * evaluation.set.queries.len());
                    let arm = evaluation.main(&plan);
                    features.add(&evaluation.set, workspace, arm, plan.seed, &|| {
                        progress.step()
                    })?;
                }
                Ok(evaluation)
            });
            match measured.with_context(|| format!("set {name}")) {
                Ok(evaluation) => evaluations.push(evaluation),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        features.map(FeaturesFile::finish).transpose()?;
        progress.bar.finish_and_clear();
        Ok((evaluations, failure))
    }

    /// Loads the sets, and prints which ids the judgements use where the tools have two.
    fn load_sets(&self) -> Result<Vec<EvalSet>> {
        if self.requests.is_some() && self.folders().count() > 1 {
            bail!(
                "--requests are for one set, and {} are named",
                self.folders().count()
            );
        }
        let mut sets = Vec::new();
        let load = Load {
            requests: self.requests.as_deref(),
            relevant_from: self.relevant_from.unwrap_or(0.0),
            skip_unknown: self.skip_unknown,
        };
        for folder in self.folders() {
            let set = EvalSet::load_with(folder, &load)?;
            for line in set.left_out.lines() {
                print_stderr(format_args!("{}: {line}", set.name));
            }
            if let Some(ids) = set.relevant_ids {
                print_stderr(format_args!("{}: relevant ids are {ids}", set.name));
            }
            sets.push(match self.queries {
                // A simulation takes its sample of the queries that need several tools.
                Some(count) if !self.agent.agent => set.sampled(count, self.seed),
                _ => set,
            });
        }
        Ok(sets)
    }

    /// The folders named. Files are ignored beside folders, because `eval sets/*` also names files
    /// such as a README.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let any_folder = self.sets.iter().any(|path| path.is_dir());
        self.sets
            .iter()
            .map(PathBuf::as_path)
            .filter(move |path| !any_folder || !path.is_file())
    }

    /// The plan with the cut-offs for a set.
    fn plan_for(&self, plan: &Plan, set: &EvalSet) -> Plan {
        Plan {
            depths: if plan.metrics.is_empty() {
                self.depths(set)
            } else {
                Vec::new()
            },
            ..plan.clone()
        }
    }

    /// The cut-offs for a set. Of the default ones those beyond its number of tools are left out
    /// with a note.
    fn depths(&self, set: &EvalSet) -> Vec<usize> {
        if !self.k.is_empty() {
            let mut depths = self.k.clone();
            depths.sort_unstable();
            depths.dedup();
            return depths;
        }
        let tools = set.tools.len();
        let (depths, beyond) = default_depths(tools);
        if !beyond.is_empty() {
            let beyond: Vec<String> = beyond.iter().map(usize::to_string).collect();
            print_stderr(format_args!(
                "{}: no metrics at k = {}, since it has {}",
                set.name,
                beyond.join(", "),
                printable::counted(tools, "tool")
            ));
        }
        depths
    }

    fn plan(&self, context: &Context) -> Result<Plan> {
        if let Some(depth) = self.k.iter().find(|depth| !(1..=MAX_K).contains(*depth)) {
            let reason = format!("it must be from 1 to {MAX_K}");
            return Err(EvalError::option("--k", depth.to_string(), reason).into());
        }
        if let Some(size) = self
            .scale
            .iter()
            .find(|size| !(1..=scale::MAX_TOOLS).contains(*size))
        {
            let reason = format!("it must be from 1 to {}", scale::MAX_TOOLS);
            return Err(EvalError::option("--scale", size.to_string(), reason).into());
        }
        if let Some(file) = self.run.first().filter(|_| self.sets.len() > 1) {
            let reason = "a run file belongs to one set; name one SET_DIR";
            return Err(EvalError::option("--run", file.display().to_string(), reason).into());
        }
        if self
            .relevant_from
            .is_some_and(|grade| !(grade.is_finite() && grade > 0.0))
        {
            let grade = self.relevant_from.unwrap_or_default().to_string();
            let reason = "it must be a number above 0";
            return Err(EvalError::option("--relevant-from", grade, reason).into());
        }
        if self.queries == Some(0) {
            return Err(EvalError::option("--queries", "0", "it must be at least 1").into());
        }
        if !self.max_drop.is_finite() || self.max_drop < 0.0 {
            let reason = "it must be a number from 0";
            return Err(EvalError::option("--max-drop", self.max_drop.to_string(), reason).into());
        }
        Ok(Plan {
            arms: self.arms(context)?,
            // Set for each set, since they depend on its number of tools.
            depths: Vec::new(),
            metrics: self.metrics()?,
            shows_all_depths: !self.k.is_empty(),
            seed: self.seed,
            parts: parts(&self.parts)?,
            judging: if self.duplicates {
                Judging::AlsoTolerant
            } else {
                Judging::Strict
            },
            scale: self.scale.clone(),
            runs: self.run.clone(),
            run_order: self.run_order,
        })
    }

    /// The metrics of --metrics; none for the usual ones.
    fn metrics(&self) -> Result<Vec<Metric>> {
        let metrics = self.metrics.as_deref().map(read_list).transpose()?;
        let metrics = metrics.unwrap_or_default();
        if let Some(metric) = metrics.iter().find(|metric| metric.depth > Some(MAX_K)) {
            let reason = format!("cut-offs are from 1 to {MAX_K}");
            return Err(EvalError::option("--metrics", metric.to_string(), reason).into());
        }
        Ok(metrics)
    }

    /// The metrics that must not drop.
    fn gated(&self) -> Result<Vec<Metric>> {
        let gate = self.gate.as_deref().map(read_list).transpose()?;
        Ok(gate.unwrap_or_else(|| GATED.to_vec()))
    }

    /// The arms of the flags; by default every arm that the embedders allow.
    fn arms(&self, context: &Context) -> Result<Vec<Arm>> {
        if self.ablate {
            return Ok(steps(context).into_iter().map(|step| step.arm).collect());
        }
        let embeds = !context.embedders().is_empty();
        if self.mode.is_none() && self.arms.is_empty() && !embeds {
            context.warn("measuring the lexical arm alone, because there is no embedder");
        }
        self.arms_with(embeds)
    }

    /// The arms of the flags; by default every arm that is possible with embedders or without.
    fn arms_with(&self, embeds: bool) -> Result<Vec<Arm>> {
        let names: Vec<String> = match self.mode {
            Some(mode) => vec![mode.name().into()],
            None if !self.arms.is_empty() => self.arms.clone(),
            None if embeds => DEFAULT_ARMS.map(String::from).into(),
            None => vec![Mode::Lexical.name().into()],
        };
        let arms = Arm::named(&names, &self.fusion, self.dense_weight)?;
        Ok(if self.no_ranker {
            arms.into_iter().map(Arm::without_ranker).collect()
        } else {
            arms
        })
    }

    /// The folder of measured catalogs, with the table and the ranker of the flags.
    fn workspace(&self, context: &Context, arms: &[Arm]) -> Result<Workspace> {
        let mut embedders = embedders(context, arms);
        if let Some(path) = &self.table {
            let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            let table = read_table(bytes)?;
            let kind = |embedder: &Arc<dyn Embedder>| {
                embedder.is_instant().then_some(embedder.languages())
            };
            let of_its_kind = embedders
                .iter()
                .position(|other| kind(other) == kind(&table));
            match of_its_kind {
                Some(place) => embedders[place] = table,
                None => embedders.insert(0, table),
            }
        }
        let ranking = Ranking::load(self.ranker.as_deref())?;
        Ok(
            Workspace::new(index_dir(context, self.index_dir.as_deref()), embedders)
                .ranked_by(ranking),
        )
    }

    fn ablation(&self, evaluations: &[Evaluation], reports: &[Report], steps: &[Step]) -> String {
        let sets: Vec<&str> = reports.iter().map(|report| report.set.as_str()).collect();
        let rows = ablation::rows(evaluations, steps);
        joined([
            table::ablation(&rows, &sets, self.style()),
            table::few_queries(reports),
            table::trained_on(seen(reports)),
        ])
    }

    fn style(&self) -> Style {
        if self.markdown {
            Style::Markdown
        } else {
            Style::Terminal
        }
    }

    fn tables(&self, reports: &[Report]) -> String {
        let style = self.style();
        joined([
            table::quality(reports, style),
            table::condensed(reports, style),
            table::significance(reports, style),
            table::few_queries(reports),
            table::trained_on(seen(reports)),
            table::no_match(reports, style),
            table::memory(reports, style),
            table::latency(reports, style),
            table::cost(reports, style),
            table::tokens(reports, style),
        ])
    }
}

/// The set of each report, and whether the ranker was trained on it.
fn seen(reports: &[Report]) -> impl Iterator<Item = (&str, bool)> {
    reports
        .iter()
        .map(|report| (report.set.as_str(), report.trained_on))
}

/// The tables that are not empty, with a blank line between them.
fn joined<const N: usize>(tables: [String; N]) -> String {
    let filled: Vec<String> = tables
        .into_iter()
        .filter(|table| !table.is_empty())
        .collect();
    filled.join("\n\n")
}

/// The steps of an ablation with the embedders of this run.
fn steps(context: &Context) -> Vec<Step> {
    let instant = context
        .embedders()
        .iter()
        .all(|embedder| embedder.is_instant());
    ablation::steps(if instant {
        Embedding::Instant
    } else {
        Embedding::Both
    })
}

/// The folder of measured catalogs; the model is loaded only where an arm needs it.
pub(super) fn workspace(context: &Context, index_dir: Option<&Path>, arms: &[Arm]) -> Workspace {
    Workspace::new(
        self::index_dir(context, index_dir),
        embedders(context, arms),
    )
}

fn index_dir(context: &Context, index_dir: Option<&Path>) -> PathBuf {
    index_dir.map_or_else(|| context.settings.cache.join("eval"), Path::to_owned)
}

fn embedders(context: &Context, arms: &[Arm]) -> Vec<Arc<dyn Embedder>> {
    let lexical = arms.iter().all(|arm| arm.mode == Mode::Lexical);
    if lexical {
        Vec::new()
    } else {
        context.embedders().to_vec()
    }
}

fn parts(names: &[String]) -> Result<Vec<Part>, EvalError> {
    let mut parts = Vec::new();
    for name in names {
        parts.push(match name.as_str() {
            "" => continue,
            "cost" => Part::Cost,
            "no-match" => Part::NoMatch,
            "tokens" => Part::Tokens,
            "memory" => Part::Memory,
            _ => {
                let reason = "use cost, no-match, tokens or memory, separated by commas";
                return Err(EvalError::option("--parts", name, reason));
            }
        });
    }
    Ok(parts)
}

/// A progress bar on stderr; hidden when stderr is not a terminal.
pub(super) struct Bar {
    pub(super) bar: ProgressBar,
    set: std::sync::Mutex<String>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Bar {
            bar: bar("", TEMPLATE),
            set: std::sync::Mutex::default(),
        }
    }

    /// Sets the name of the set that the next stages belong to.
    pub(super) fn begin(&self, set: &str) {
        *self
            .set
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = set.to_owned();
    }
}

impl Progress for Bar {
    fn stage(&self, what: &str, steps: usize) {
        let set = self
            .set
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.bar.set_message(format!("{set}: {what}"));
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
    }

    fn done(&self, steps: usize) {
        self.bar.set_position(steps as u64);
    }

    fn step(&self) {
        self.bar.inc(1);
    }
}

/// Reads a table of either kind.
fn read_table(bytes: Vec<u8>) -> Result<Arc<dyn Embedder>> {
    if bytes.starts_with(MultilingualTable::MAGIC) {
        return Ok(Arc::new(MultilingualTable::read(bytes)?));
    }
    Ok(Arc::new(StaticTable::read(bytes)?))
}
