//! `toolscout eval`: measures the quality and the cost of retrieval.

mod agent;
mod compare;
mod diff;
mod gate;
mod in_use;
mod judge;
mod make;
mod outputs;
mod plan;
mod report;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use toolscout_index::embed::{Encoder, MultilingualTable, StaticTable};
use toolscout_index::{Embedder, Fusion, Languages, MAX_ENRICHMENT_TEXTS, Mode};

use super::Outcome;
use super::context::Context;
use super::exit::{UsageError, error_message};
use super::list::FilterArgs;
use super::output::print_stderr;
use super::progress::bar;
use crate::eval::ablation::{self, Embedding, Step};
use crate::eval::baseline::Baseline;
use crate::eval::dataset::{Load, TextsPlan};
use crate::eval::features::FeaturesFile;
use crate::eval::run_file::RunOrder;
use crate::eval::table::{self, Style};
use crate::eval::{Arm, EvalSet, Evaluation, Plan, Progress, Ranking, Report, Workspace, evaluate};
use crate::models::Patience;
use crate::regular_file;

/// Parses a share, from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text} is no share; give a number from 0 to 1")),
    }
}

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
    after_help = "Examples:\n  toolscout eval sets/mine\n  toolscout eval --profile support requests.jsonl\n  toolscout eval sets/mine --arms lexical,hybrid --json report.json --baseline main.json\n  toolscout eval sets/mine --embedder auto,multilingual-e5-small"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Folders of sets; several are summarised by a macro average. With --catalog NAME that catalog is
    /// measured as it is in use, with one file of judged queries
    #[arg(value_name = "SET_DIR")]
    sets: Vec<PathBuf>,
    /// Measure a profile of the settings as its clients search it, with one file of judged queries
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
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
    /// Measure with texts that were written about the tools: lines {"id","texts":[..]}, as
    /// `enrich --export` writes them. Looked for in the folder of each set first
    #[arg(long, value_name = "FILE", conflicts_with = "agent")]
    texts: Option<PathBuf>,
    /// Share of these tools that get their texts, 0 to 1; --seed chooses them
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share, requires = "texts")]
    texts_share: f64,
    /// Most texts of a tool
    #[arg(long, value_name = "N", default_value_t = MAX_ENRICHMENT_TEXTS as u16, requires = "texts",
          value_parser = clap::value_parser!(u16).range(1..=MAX_ENRICHMENT_TEXTS as i64))]
    texts_each: u16,
    /// Search modes to compare: lexical, dense, hybrid, auto [default: lexical,dense,hybrid]
    #[arg(long, value_delimiter = ',', value_name = "ARMS")]
    arms: Vec<String>,
    /// Measure this search mode alone
    #[arg(long, conflicts_with = "arms")]
    mode: Option<Mode>,
    /// Ablation: an arm for each part of the default search as it is added, in a table of its own
    #[arg(long, conflicts_with_all = ["arms", "mode"])]
    ablate: bool,
    /// Compare settings, each as an arm: embedder=NAME, mode, fusion, dense_weight, ranker=on|off|FILE,
    /// min_confidence, budget_ms, name, joined by commas (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = str::parse::<settings::Setting>, conflicts_with_all = ["arms", "mode", "ablate", "features", "baseline", "agent"])]
    compare: Vec<settings::Setting>,
    /// Time of a search, as `search` has it
    #[arg(long, value_name = "MS")]
    budget_ms: Option<f64>,
    /// Answers below this confidence are no match, 0 to 1
    #[arg(long, value_name = "CONFIDENCE")]
    min_confidence: Option<f32>,
    #[command(flatten)]
    filter: FilterArgs,
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
    #[arg(
        long,
        visible_alias = "left-out",
        value_name = "FILE|DIR",
        conflicts_with = "no_ranker"
    )]
    ranker: Option<PathBuf>,
    /// Embed with this file instead of the built-in table of its kind: English, or other languages
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Embed with this file instead of the built-in encoder
    #[arg(long, value_name = "FILE")]
    encoder: Option<PathBuf>,
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
    /// Metrics that must not drop [default: nDCG and recall at 5 and 10, MRR at 10, complete at 5]
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
    Report(report::ReportArgs),
    Generate(make::GenerateArgs),
    FromUsage(make::FromUsageArgs),
    Judge(judge::JudgeArgs),
    Agreement(judge::AgreementArgs),
}

impl Args {
    /// Measures every set, prints and writes the reports, and compares with the baseline.
    pub fn run(self, mut context: Context) -> Result<Outcome> {
        if let Some(name) = &self.profile {
            in_use::use_catalog_of(name, &mut context)?;
        }
        let context = &context;
        match &self.command {
            Some(Command::Diff(diff)) => return diff.run(context),
            Some(Command::Report(report)) => return report.run(context),
            Some(Command::Generate(generate)) => return generate.run(context),
            Some(Command::FromUsage(usage)) => return usage.run(context),
            Some(Command::Judge(judge)) => return judge.run(context),
            Some(Command::Agreement(agreement)) => return agreement.run(context),
            None => {}
        }
        // Without the time limit of a search: every request has to be answered.
        context.set_patience(Patience::of_measuring());
        self.check_outputs()?;
        if context.globals.catalog().is_some() || self.profile.is_some() {
            return self.measure_in_use(context);
        }
        if self.sets.is_empty() {
            let message = "name the folder of a set, or a catalog with --catalog NAME or a profile with --profile NAME and a file of judged queries";
            return Err(UsageError(message.to_owned()).into());
        }
        if self.agent.agent {
            return self.simulate(context);
        }
        if !self.compare.is_empty() {
            return self.compare_settings(context);
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
            self.check_baseline(baseline, &sets, &plan, &workspace.embedder())?;
        }
        let measured = self.measure(sets, &plan, &workspace)?;
        let steps = self.ablate.then(|| steps(context));
        self.finish(context, measured, baseline.as_ref(), steps.as_deref())
    }

    /// Prints, writes and compares what was measured.
    fn finish(
        &self,
        context: &Context,
        measured: Measured,
        baseline: Option<&Baseline>,
        steps: Option<&[Step]>,
    ) -> Result<Outcome> {
        let evaluations = &measured.evaluations;
        let mut reports = Vec::new();
        for evaluation in evaluations {
            reports.push(evaluation.report.clone());
            for run in &evaluation.runs {
                if let Some(facts) = &run.file {
                    print_stderr(format_args!("{}: {}", run.name, facts.line()));
                }
            }
        }
        // An ablation compares steps, so all of them must have been measured.
        let steps = steps.filter(|_| measured.failure.is_none());
        let mut results = Vec::new();
        if !reports.is_empty() {
            results.extend(self.print_report(
                context,
                &reports,
                measured.failure.as_ref().map(error_message),
                || match steps {
                    Some(steps) => self.ablation(evaluations, &reports, steps),
                    None => report_tables(&reports, self.style()),
                },
            ));
            results.extend(self.write_files(evaluations, &reports));
        }
        let outcome = match (&measured.failure, baseline) {
            (None, Some(baseline)) => self.compare(baseline, &reports),
            _ => Ok(Outcome::Success),
        };
        // What was measured is printed and written in any case; the first error is the one to report.
        results.insert(0, measured.failure.map_or(Ok(()), Err));
        outputs::all(results)?;
        outcome
    }

    /// The evaluations of the sets, up to the first that fails, and its error.
    fn measure(&self, sets: Vec<EvalSet>, plan: &Plan, workspace: &Workspace) -> Result<Measured> {
        let progress = Bar::new();
        let mut features = self
            .features
            .as_deref()
            .map(FeaturesFile::create)
            .transpose()?;
        let mut measured = Measured::default();
        for set in sets {
            let name = set.name.clone();
            let plan = self.plan_for(plan, &set);
            progress.begin(&name);
            match evaluate(set, &plan, workspace, &progress) {
                Ok(evaluation) => measured.evaluations.push(evaluation),
                Err(error) => {
                    measured.failure =
                        Some(anyhow::Error::from(error).context(format!("set {name}")));
                    break;
                }
            }
            let Some(evaluation) = measured.evaluations.last() else {
                break;
            };
            // A set that was stopped half-way is reported as far as it got, and the next ones are not begun.
            let written = match (&evaluation.report.unfinished, &mut features) {
                (Some(reason), _) => Err(anyhow::anyhow!("{reason}")),
                (None, Some(features)) => {
                    progress.stage("measuring candidates", 2 * evaluation.set.queries.len());
                    let arm = evaluation.main(&plan);
                    let step = || progress.step();
                    let added = features.add(&evaluation.set, workspace, arm, plan.seed, &step);
                    added.map_err(Into::into)
                }
                (None, None) => Ok(()),
            };
            if let Err(error) = written {
                measured.failure = Some(error.context(format!("set {name}")));
                break;
            }
        }
        // After a failure too: what was measured before it can be used.
        features.map(FeaturesFile::finish).transpose()?;
        progress.bar.finish_and_clear();
        Ok(measured)
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
        let load = self.load();
        for folder in self.folders() {
            let set = EvalSet::load_with(folder, &load)?;
            for line in set.left_out.lines() {
                print_stderr(format_args!("{}: {line}", set.name));
            }
            let set = self.add_texts(set)?;
            if let Some(ids) = set.relevant_ids {
                print_stderr(format_args!("{}: relevant ids are {ids}", set.name));
            }
            self.note_depths(&set);
            sets.push(match self.queries {
                // A simulation takes its sample of the queries that need several tools.
                Some(count) if !self.agent.agent => set.sampled(count, self.seed),
                _ => set,
            });
        }
        Ok(sets)
    }

    /// The set with the texts of the flags, if there are any.
    fn add_texts(&self, set: EvalSet) -> Result<EvalSet> {
        let Some(file) = &self.texts else {
            return Ok(set);
        };
        let set = set.with_texts(&TextsPlan {
            file: file.clone(),
            share: self.texts_share,
            most: self.texts_each.into(),
            seed: self.seed,
            skip_unknown: self.skip_unknown,
        })?;
        let (with, all) = (set.texts.len(), set.tools.len());
        print_stderr(format_args!(
            "{}: {with} of {all} tools have texts",
            set.name
        ));
        Ok(set)
    }

    /// How sets are read.
    fn load(&self) -> Load<'_> {
        Load {
            requests: self.requests.as_deref(),
            relevant_from: self.relevant_from.unwrap_or(0.0),
            skip_unknown: self.skip_unknown,
        }
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

    /// The folder of measured catalogs, with the table, the encoder and the ranker of the flags.
    fn workspace(&self, context: &Context, arms: &[Arm]) -> Result<Workspace> {
        let mut embedders = embedders(context, arms);
        if let Some(path) = &self.table {
            let table = read_table(read_file(path)?)?;
            // There is a table for English and one for other languages, and this stands in for one.
            let kind = languages_of_table(&table);
            let mut others = embedders.iter();
            match others.position(|other| languages_of_table(other) == kind) {
                Some(place) => embedders[place] = table,
                None => embedders.insert(0, table),
            }
        }
        if let Some(path) = &self.encoder {
            let encoder: Arc<dyn Embedder> = Arc::new(Encoder::read(read_file(path)?)?);
            // Of encoders one takes part, so this stands in for the one of the settings.
            match embedders.iter().position(|other| !other.is_instant()) {
                Some(place) => embedders[place] = encoder,
                None => embedders.push(encoder),
            }
        }
        let ranking = Ranking::load(self.ranker.as_deref())?;
        Ok(
            Workspace::new(index_dir(context, self.index_dir.as_deref()), embedders)
                .ranked_by(ranking),
        )
    }

    fn ablation(&self, evaluations: &[Evaluation], reports: &[Report], steps: &[Step]) -> String {
        let names: Vec<String> = reports.iter().map(Report::marked_set).collect();
        let sets: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = ablation::rows(evaluations, steps);
        joined([
            table::ablation(&rows, &sets, self.style()),
            table::small_sets(reports),
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
}

/// Every table of these reports.
fn report_tables(reports: &[Report], style: Style) -> String {
    joined([
        table::quality(reports, style),
        table::condensed(reports, style),
        table::significance(reports, style),
        table::sources(reports, style),
        table::said_sources(reports),
        table::small_sets(reports),
        table::trained_on(seen(reports)),
        table::tuned_on(reports),
        table::no_match(reports, style),
        table::memory(reports, style),
        table::latency(reports, style),
        table::cost(reports, style),
        table::tokens(reports, style),
    ])
}

/// What was measured, and why the rest was not.
#[derive(Default)]
struct Measured {
    evaluations: Vec<Evaluation>,
    failure: Option<anyhow::Error>,
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

pub(super) fn index_dir(context: &Context, index_dir: Option<&Path>) -> PathBuf {
    match index_dir {
        Some(dir) => dir.to_owned(),
        None => context.settings.cache.join("eval"),
    }
}

fn embedders(context: &Context, arms: &[Arm]) -> Vec<Arc<dyn Embedder>> {
    let lexical = arms.iter().all(|arm| arm.mode == Mode::Lexical);
    if lexical {
        Vec::new()
    } else {
        context.embedders().to_vec()
    }
}

/// A progress bar on stderr; hidden when stderr is not a terminal.
pub(super) struct Bar {
    pub(super) bar: ProgressBar,
    set: parking_lot::Mutex<String>,
}

impl Bar {
    pub(super) fn new() -> Self {
        Bar {
            bar: bar("", TEMPLATE),
            set: parking_lot::Mutex::default(),
        }
    }

    /// Sets the name of the set that the next stages belong to.
    pub(super) fn begin(&self, set: &str) {
        *self.set.lock() = set.to_owned();
    }
}

impl Progress for Bar {
    fn stage(&self, what: &str, steps: usize) {
        let set = self.set.lock();
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

fn read_file(path: &Path) -> Result<Vec<u8>> {
    regular_file::read(path).with_context(|| format!("read {}", path.display()))
}

/// `None` for an embedder that is no table.
fn languages_of_table(embedder: &Arc<dyn Embedder>) -> Option<Languages> {
    embedder.is_instant().then_some(embedder.languages())
}

/// Reads a table of either kind.
fn read_table(bytes: Vec<u8>) -> Result<Arc<dyn Embedder>> {
    if bytes.starts_with(MultilingualTable::MAGIC) {
        return Ok(Arc::new(MultilingualTable::read(bytes)?));
    }
    Ok(Arc::new(StaticTable::read(bytes)?))
}
