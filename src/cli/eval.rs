//! `toolscout eval`: measures how well and at what cost tools are found.

mod agent;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use toolscout_index::embed::StaticTable;
use toolscout_index::{Embedder, Fusion, Mode};

use super::Outcome;
use super::context::Context;
use super::output::{bar, tell};
use crate::eval::ablation::{self, Embedding, Step};
use crate::eval::baseline::{Baseline, Change, GATED};
use crate::eval::error::EvalError;
use crate::eval::features::FeaturesFile;
use crate::eval::metrics::DEFAULT_DEPTHS;
use crate::eval::table::{self, Style};
use crate::eval::{
    Arm, EvalSet, Evaluation, Judging, Metric, Part, Plan, Progress, Ranking, Report, Workspace,
};
use crate::eval::{evaluate, html, report, scale, trec};
use crate::printable;

/// The arms of a run that names none.
const DEFAULT_ARMS: [&str; 3] = ["lexical", "dense", "hybrid"];
const TEMPLATE: &str = "{msg} [{bar:30}] {pos}/{len} {elapsed}";

/// Measures retrieval on your own tools and queries: quality with intervals, abstaining, speed,
/// memory, tokens.
///
/// A set is a folder with tools.jsonl (or tools.json, tools.yaml, a folder tools/; any format that
/// `add` reads) and queries.jsonl with lines {"id","query","relevant":[tool ids]}, or a BEIR
/// folder. Tools are embedded once and kept, so a second run is fast.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folders of sets; several end in a macro average
    #[arg(required = true, value_name = "SET_DIR")]
    sets: Vec<PathBuf>,
    /// Ways of searching to compare: lexical, dense, hybrid, auto [default: lexical,dense,hybrid]
    #[arg(long, value_delimiter = ',', value_name = "ARMS")]
    arms: Vec<String>,
    /// Measure this way of searching alone
    #[arg(long, conflicts_with = "arms")]
    mode: Option<Mode>,
    /// Take the default way of searching apart: an arm for each part added, in a table of its own
    #[arg(long, conflicts_with_all = ["arms", "mode"])]
    ablate: bool,
    /// Fusions of the hybrid: convex, rrf; each is an arm of its own
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "convex",
        value_name = "FUSIONS"
    )]
    fusion: Vec<Fusion>,
    /// Share of the dense legs in the hybrid, 0 to 1, instead of the default
    #[arg(long, value_name = "WEIGHT")]
    dense_weight: Option<f32>,
    /// Measure every arm by the formula alone; `formula` among --arms is the hybrid without the
    /// ranker beside it
    #[arg(long)]
    no_ranker: bool,
    /// Rank with this file instead of the built-in ranker; with a folder each set by its
    /// `without-SET.json`, which has not seen the set
    #[arg(long, value_name = "FILE|DIR", conflicts_with = "no_ranker")]
    ranker: Option<PathBuf>,
    /// Embed with this file instead of the built-in table
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Write what the ranker measures of every candidate, for scripts/train_ranker.py
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Depths of the metrics
    #[arg(long, value_delimiter = ',', value_name = "K", default_values_t = DEFAULT_DEPTHS)]
    k: Vec<usize>,
    /// Measure this many queries of each set, chosen by the seed
    #[arg(long, value_name = "N")]
    queries: Option<usize>,
    /// Decides the sample, the held-out tools and the resampling
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// What to measure besides quality; `--parts ""` for nothing
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "cost,no-match,tokens",
        value_name = "PARTS"
    )]
    parts: Vec<String>,
    /// Report also what counting near-identical tools as right gives
    #[arg(long)]
    duplicates: bool,
    /// Measure cost and latency at these catalog sizes too, of sampled or grown catalogs
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    scale: Vec<usize>,
    /// Judge a TREC run file as one more arm (for one set)
    #[arg(long, value_name = "FILE")]
    run: Vec<PathBuf>,
    /// Write the figures as JSON, `-` for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write TREC run files and qrels, named after FILE, the set and the arm
    #[arg(long, value_name = "FILE")]
    trec: Option<PathBuf>,
    /// Write a report with plots, one page that loads nothing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
    /// Compare with the JSON of an earlier run and exit with 1 on a drop
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Points, of 100, that a figure may drop below the baseline
    #[arg(
        long,
        default_value_t = 0.5,
        value_name = "POINTS",
        requires = "baseline"
    )]
    max_drop: f64,
    /// Metrics that must not drop
    #[arg(long, value_delimiter = ',', value_name = "METRICS", default_values_t = GATED, requires = "baseline")]
    gate: Vec<Metric>,
    /// Where the measured catalogs are kept [default: eval in the cache directory]
    #[arg(long, value_name = "DIR")]
    index_dir: Option<PathBuf>,
    #[command(flatten)]
    agent: agent::AgentFlags,
}

impl Args {
    /// Measures every set, prints and writes what was asked for, and compares with the baseline.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.agent.agent {
            return self.simulate(context);
        }
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        // Everything that can be wrong with the files is told before the first minute of measuring.
        let sets = self
            .folders()
            .map(EvalSet::load)
            .collect::<Result<Vec<_>, _>>()?;
        let plan = self.plan(context)?;
        let workspace = self.workspace(context, &plan.arms)?;
        let progress = Bar::new();
        let mut evaluations = Vec::new();
        let mut features = self
            .features
            .as_deref()
            .map(FeaturesFile::create)
            .transpose()?;
        for set in sets {
            let name = set.name.clone();
            progress.begin(&name);
            let evaluation = evaluate(set, &plan, &workspace, &progress)
                .with_context(|| format!("set {name}"))?;
            if let Some(features) = &mut features {
                progress.stage("measuring candidates", 2 * evaluation.set.queries.len());
                let arm = evaluation.main(&plan);
                features.add(&evaluation.set, &workspace, arm, plan.seed, &|| {
                    progress.step()
                })?;
            }
            evaluations.push(evaluation);
        }
        features.map(FeaturesFile::finish).transpose()?;
        progress.bar.finish_and_clear();
        let reports: Vec<Report> = evaluations
            .iter()
            .map(|evaluation| evaluation.report.clone())
            .collect();
        let steps = self.ablate.then(|| steps(context));
        self.write(&evaluations, &reports, steps.as_deref())?;
        let outcome = match baseline {
            Some(baseline) => self.compare(&baseline, &reports)?,
            None => Outcome::Done,
        };
        Ok(outcome)
    }

    /// The sets named. Beside folders, files are passed over: `eval sets/*` also names the README
    /// among them.
    fn folders(&self) -> impl Iterator<Item = &Path> {
        let any_folder = self.sets.iter().any(|path| path.is_dir());
        self.sets
            .iter()
            .map(PathBuf::as_path)
            .filter(move |path| !any_folder || !path.is_file())
    }

    fn plan(&self, context: &Context) -> Result<Plan> {
        let mut depths = self.k.clone();
        depths.sort_unstable();
        depths.dedup();
        if let Some(depth) = depths
            .iter()
            .find(|depth| !(1..=toolscout_index::query::MAX_K).contains(*depth))
        {
            let reason = format!("it must be from 1 to {}", toolscout_index::query::MAX_K);
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
            let reason = "a run belongs to one set; name one SET_DIR";
            return Err(EvalError::option("--run", file.display().to_string(), reason).into());
        }
        if self.queries == Some(0) || !self.max_drop.is_finite() || self.max_drop < 0.0 {
            return Err(EvalError::option(
                "--queries or --max-drop",
                "",
                "both must be numbers above 0",
            )
            .into());
        }
        Ok(Plan {
            arms: self.arms(context)?,
            depths,
            queries: self.queries,
            seed: self.seed,
            parts: parts(&self.parts)?,
            judging: if self.duplicates {
                Judging::AlsoTolerant
            } else {
                Judging::Strict
            },
            scale: self.scale.clone(),
            runs: self.run.clone(),
        })
    }

    /// The arms asked for, by default every one that there is a model for.
    fn arms(&self, context: &Context) -> Result<Vec<Arm>> {
        if self.ablate {
            return Ok(steps(context).into_iter().map(|step| step.arm).collect());
        }
        let names: Vec<String> = match self.mode {
            Some(mode) => vec![mode.name().into()],
            None if !self.arms.is_empty() => self.arms.clone(),
            None if context.embedders().is_empty() => {
                context.warn("measuring the lexical arm alone, since nothing embeds");
                vec![Mode::Lexical.name().into()]
            }
            None => DEFAULT_ARMS.map(String::from).into(),
        };
        let arms = Arm::named(&names, &self.fusion, self.dense_weight)?;
        Ok(if self.no_ranker {
            arms.into_iter().map(Arm::without_ranker).collect()
        } else {
            arms
        })
    }

    /// The place of measured catalogs, with the table and the ranker that were asked for.
    fn workspace(&self, context: &Context, arms: &[Arm]) -> Result<Workspace> {
        let mut embedders = embedders(context, arms);
        if let Some(path) = &self.table {
            let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            let table: Arc<dyn Embedder> = Arc::new(StaticTable::read(bytes)?);
            embedders.retain(|embedder| !embedder.is_instant());
            embedders.insert(0, table);
        }
        let ranking = Ranking::load(self.ranker.as_deref())?;
        Ok(
            Workspace::new(index_dir(context, self.index_dir.as_deref()), embedders)
                .ranked_by(ranking),
        )
    }

    fn write(
        &self,
        evaluations: &[Evaluation],
        reports: &[Report],
        steps: Option<&[Step]>,
    ) -> Result<()> {
        if let Some(path) = &self.trec {
            for evaluation in evaluations {
                trec::write_all(path, &evaluation.set, &evaluation.runs)?;
            }
        }
        if let Some(path) = &self.html {
            write(path, &html::page(evaluations))?;
        }
        match self.json.as_deref() {
            Some("-") => return print(&report::to_json(reports)?),
            Some(path) => write(Path::new(path), &format!("{}\n", report::to_json(reports)?))?,
            None => {}
        }
        match steps {
            Some(steps) => {
                let sets: Vec<&str> = reports.iter().map(|report| report.set.as_str()).collect();
                print(&table::ablation(
                    &ablation::rows(evaluations, steps),
                    &sets,
                    self.style(),
                ))
            }
            None => print(&self.tables(reports)),
        }
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
        let tables = [
            table::quality(reports, style),
            table::significance(reports, style),
            table::no_match(reports, style),
            table::memory(reports, style),
            table::latency(reports, style),
            table::cost(reports, style),
            table::tokens(reports, style),
        ];
        let tables: Vec<String> = tables
            .into_iter()
            .filter(|table| !table.is_empty())
            .collect();
        tables.join("\n\n")
    }

    fn compare(&self, baseline: &Baseline, reports: &[Report]) -> Result<Outcome> {
        let mut changes: Vec<Change> = Vec::new();
        for report in reports {
            changes.extend(baseline.compare(report, &self.gate)?);
        }
        tell(table::changes(&changes, self.max_drop));
        let dropped = changes
            .iter()
            .filter(|change| change.drops_more_than(self.max_drop))
            .count();
        if dropped == 0 {
            tell(format_args!(
                "no figure of {} dropped by more than {} points",
                changes.len(),
                self.max_drop
            ));
            return Ok(Outcome::Done);
        }
        tell(format_args!(
            "{dropped} of {} figures dropped by more than {} points",
            changes.len(),
            self.max_drop
        ));
        Ok(Outcome::Amiss)
    }
}

/// The steps of an ablation with what embeds here.
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

/// Opens the place of measured catalogs, with the model only where an arm needs it.
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
    let part = |name: &String| match name.as_str() {
        "cost" => Ok(Part::Cost),
        "no-match" => Ok(Part::NoMatch),
        "tokens" => Ok(Part::Tokens),
        "memory" => Ok(Part::Memory),
        _ => Err(EvalError::option(
            "--parts",
            name,
            "there are cost, no-match, tokens and memory, separated by commas",
        )),
    };
    names
        .iter()
        .filter(|name| !name.is_empty())
        .map(part)
        .collect()
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Prints a table or JSON; names and queries of a set are text from outside.
fn print(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", printable::json(text))?)
}

/// Progress as a bar on stderr, where that is a terminal.
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

    /// The set that the next stages belong to.
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
