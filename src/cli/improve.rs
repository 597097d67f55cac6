//! `toolscout improve`: proposes changes of a catalog, and makes those that judged queries gain from.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::json;
use toolscout_index::{Catalog, Enrichment, MAX_ENRICHMENT_TEXTS, Mode, Searcher, Tool, ToolId};

use super::Outcome;
use super::context::{Context, Legs};
use super::embed;
use super::enrich::texts_of_model;
use super::eval::{Bar, index_dir};
use super::interrupt::Interrupt;
use super::llm::LlmArgs;
use super::output::print_stderr;
use super::store::{CatalogCopy, Place, StoreArgs};
use super::tune::tuned_on;
use crate::clock::{date, day_of, unix_ms};
use crate::config::EmbedderKind;
use crate::enrich::exchange::Answers;
use crate::enrich::held::Review;
use crate::eval::dataset::Load;
use crate::eval::improve::journal::{Journal, JournalFile, Line, What, without};
use crate::eval::improve::{Change, Content, Decision, Entry, Improved, Kind, Trials, improve};
use crate::eval::{Arm, EvalSet, Progress, Workspace, arms};
use crate::models::Patience;
use crate::printable::counted;
use crate::regular_file;
use crate::store::OwnContent;

/// Lines of a diff that are printed; `--json` has all.
const MAX_LINES: usize = 50;

/// Proposes changes of a catalog: texts of when to use a tool, synonyms, aliases, pins, factors and
/// companions. A change is made only if judged queries find better by more than chance, and every query that
/// has one of its tools among its first five hits keeps one. Without --apply it only prints what it would
/// change.
///
/// Nothing is sent anywhere without --llm or --model.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toolscout improve --queries judged.jsonl\n  toolscout eval from-usage --out judged.jsonl\n  toolscout improve --queries judged.jsonl --texts texts.jsonl --apply\n  toolscout improve log\n  toolscout improve revert 2"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Judged queries for the catalog: lines {"id","query","relevant":[tool ids]}, as `eval from-usage`, `eval
    /// judge` and `eval generate` write them
    #[arg(long, value_name = "FILE", required = true)]
    queries: Option<PathBuf>,
    /// Propose these texts, which `enrich --export` or an answer to `enrich --ask` has, too
    #[arg(long, value_name = "FILE")]
    texts: Option<PathBuf>,
    #[command(flatten)]
    llm: LlmArgs,
    /// Do not ask before sending definitions to the model of --llm
    #[arg(long)]
    yes: bool,
    /// Make the accepted changes
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the changes that were made, with their figures
    #[command(
        after_help = "Examples:\n  toolscout improve log\n  toolscout improve log 2\n  toolscout improve log --json"
    )]
    Log {
        /// Print the entries of this change
        id: Option<u64>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Take a change back
    #[command(
        after_help = "Examples:\n  toolscout improve revert 1\n  toolscout --catalog work improve revert 2"
    )]
    Revert {
        /// Its number in `improve log`
        id: u64,
        #[command(flatten)]
        store: StoreArgs,
    },
}

impl Args {
    /// Measures and prints the proposals, and makes the accepted ones with --apply.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        context.set_patience(Patience::of_measuring());
        match self.action {
            Some(Action::Log { id, store }) => log(context, &store, id),
            Some(Action::Revert { id, store }) => revert(context, &store, id),
            None => self.improve(context),
        }
    }

    fn improve(&self, context: &Context) -> Result<Outcome> {
        let place = Place::open(&self.store, context, || context.options(Legs::All))?;
        let catalog = place.catalog();
        let searcher = catalog.searcher();
        if matches!(place, Place::Local(_)) && searcher.followed().is_some() {
            bail!(
                "the catalog {} is a copy of one in a shared store; name the store with --store to change it there",
                context.settings.catalog
            );
        }
        let set = self.judged(context, &searcher)?;
        let texts = self.written(context, &searcher)?;
        let embedders = context.embedders().to_vec();
        let workspace = Workspace::new(index_dir(context, None), embedders);
        let copy = workspace.copy_in_use(catalog)?;
        let trials = Trials {
            copy: &copy,
            set: &set,
            arm: arm_in_use(context),
            texts,
        };
        let progress = Bar::new();
        progress.begin(&set.name);
        let tried = Cell::new(0);
        let improved = improve(&trials, &|kind| {
            progress.stage(kind.as_str(), Kind::ALL.len());
            progress.done(tried.get());
            tried.set(tried.get() + 1);
        })?;
        progress.bar.finish_and_clear();
        drop(copy);
        let made = match self.apply {
            true => make(context, &place, &improved, &set)?,
            false => Vec::new(),
        };
        if context.printer.is_json() {
            let mut json = serde_json::to_value(&improved)?;
            json["applied"] = json!(made);
            context.printer.json(&json)?;
        } else {
            print(context, &improved)?;
            note(context, &improved, &made)?;
        }
        // Changes were asked for, and none was good enough.
        Ok(match self.apply && made.is_empty() {
            true => Outcome::Failure,
            false => Outcome::Success,
        })
    }

    /// The catalog's tools with the judged queries.
    fn judged(&self, context: &Context, searcher: &Searcher) -> Result<EvalSet> {
        let name = &context.settings.catalog;
        let tools = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
        let queries = match &self.queries {
            Some(folder) if folder.is_dir() => Some(folder.join("queries.jsonl")),
            other => other.clone(),
        };
        // What was recorded may be of tools that are gone.
        let load = Load {
            skip_unknown: true,
            ..Load::default()
        };
        let set = EvalSet::over_catalog(name, tools, queries.as_deref(), Vec::new(), &load)?;
        for line in set.left_out.lines() {
            print_stderr(format_args!("{name}: {line}"));
        }
        Ok(set)
    }

    /// The texts of --texts and of the model of --llm.
    fn written(
        &self,
        context: &Context,
        searcher: &Arc<Searcher>,
    ) -> Result<Vec<(ToolId, Enrichment)>> {
        let mut texts = Vec::new();
        if let Some(file) = &self.texts {
            texts.extend(texts_of_file(context, searcher, file)?);
        }
        if self.llm.is_chosen() {
            for (tool, written) in texts_of_model(&self.llm, searcher, self.yes)? {
                texts.push((tool.id.clone(), written));
            }
        }
        Ok(texts)
    }
}

/// Makes the accepted changes, one after the other. Returns their numbers.
fn make(context: &Context, place: &Place, improved: &Improved, set: &EvalSet) -> Result<Vec<u64>> {
    let interrupt = Interrupt::listen()?;
    let mut made = Vec::new();
    for change in improved.accepted() {
        let what = What::Applied {
            queries: improved.queries,
            change: change.clone(),
        };
        let write = Write {
            entries: &change.entries,
            what,
            taught_by: Some(set),
        };
        let with = |content: &Content| content.with(&change.entries);
        made.push(write.to(context, place, &interrupt, with)?);
    }
    Ok(made)
}

fn note(context: &Context, improved: &Improved, made: &[u64]) -> Result<()> {
    let accepted = improved.accepted().count();
    let next = match (accepted, made) {
        (0, _) => "no change was accepted; --json has the proposals".to_owned(),
        (_, []) => "nothing was changed; --apply makes the accepted changes".to_owned(),
        (_, made) => {
            let ids: Vec<String> = made.iter().map(u64::to_string).collect();
            format!(
                "made: {}; `toolscout improve revert ID` takes one back",
                ids.join(", ")
            )
        }
    };
    context.printer.note(next)?;
    context.printer.note(format_args!(
        "{} on the {} that taught the changes: {:.4} -> {:.4}; on others expect the figures of the table",
        improved.metric,
        counted(improved.queries, "request"),
        improved.before,
        improved.after,
    ))
}

/// Searches as the catalog is set.
fn arm_in_use(context: &Context) -> Arm {
    let mut arm = Arm::as_set(arms::IN_USE);
    arm.limits.options = context.settings.search;
    if context.settings.embedder == EmbedderKind::None {
        arm.limits.options.mode = Some(Mode::Lexical);
    }
    arm
}

fn texts_of_file(
    context: &Context,
    searcher: &Searcher,
    file: &Path,
) -> Result<Vec<(ToolId, Enrichment)>> {
    let bytes = regular_file::read(file).with_context(|| format!("read {}", file.display()))?;
    let answers = Answers::read(&String::from_utf8_lossy(&bytes));
    if answers.is_empty() {
        let problem = answers.problem.as_deref();
        bail!(
            "{} has no texts of tools: {}",
            file.display(),
            problem.unwrap_or("`toolscout enrich --ask FILE` writes questions for them")
        );
    }
    // Nobody has read these texts yet, so those about tools of other servers are held back.
    let review = Review::of(false, searcher);
    let matched = answers.matched(searcher, "assistant", MAX_ENRICHMENT_TEXTS, review);
    for (count, why) in [
        (
            matched.unknown.len(),
            "tools that the catalog does not have",
        ),
        (matched.stale.len(), "tools with another definition"),
        (
            matched.refused.len(),
            "answers without `definition`, or that cannot be used",
        ),
        (matched.kept.len(), "tools that have texts already"),
        (
            matched.held.len(),
            "texts that speak of another server's tool",
        ),
    ] {
        if count > 0 {
            context.warn(format_args!(
                "{}: {count} left out: {why}; `toolscout enrich --import FILE` names them",
                file.display()
            ));
        }
    }
    if matched.usable.is_empty() {
        bail!("no text of {} can be used", file.display());
    }
    let mut usable = Vec::new();
    for (tool, texts) in matched.usable {
        usable.push((tool.id.clone(), texts));
    }
    Ok(usable)
}

/// A change of a catalog with its line in the log.
struct Write<'a> {
    /// What is added or taken back.
    entries: &'a [Entry],
    what: What,
    /// Figures on these queries are in-sample from then on.
    taught_by: Option<&'a EvalSet>,
}

impl Write<'_> {
    /// Writes what `change` makes of the catalog's present content. Returns the number of the line.
    fn to(
        self,
        context: &Context,
        place: &Place,
        interrupt: &Interrupt,
        change: impl FnOnce(&Content) -> Content,
    ) -> Result<u64> {
        match place {
            Place::Local(catalog) => {
                let mut journal = JournalFile::open(catalog.path())?;
                let generation = self.write(context, catalog, interrupt, change)?;
                // After the change itself: an entry for one that failed could not be taken back.
                Ok(journal.append(unix_ms(SystemTime::now()), generation, self.what)?)
            }
            Place::Shared(copy) => self.send(copy, change),
        }
    }

    /// Writes to a catalog of the data directory, embeds, and returns the generation.
    fn write(
        &self,
        context: &Context,
        catalog: &Catalog,
        interrupt: &Interrupt,
        change: impl FnOnce(&Content) -> Content,
    ) -> Result<u64> {
        let mut writer = catalog.writer()?;
        // After the lock, so that nothing comes between.
        let searcher = catalog.refresh()?;
        let before = Content::of(&searcher);
        change(&before).write(&before, &mut writer, &searcher)?;
        if let Some(set) = self.taught_by {
            let settings = tuned_on(set, writer.settings()?);
            writer.set_settings(&settings)?;
        }
        let generation = writer.commit()?;
        let embedded = embed::soon(catalog, writer, interrupt)?;
        if embedded.problem.is_some() {
            embedded.print(context)?;
        }
        Ok(generation)
    }

    /// Sends it to the store in one commit, where nodes embed it.
    fn send(&self, copy: &CatalogCopy, change: impl FnOnce(&Content) -> Content) -> Result<u64> {
        let mut tools = Vec::new();
        for entry in self.entries {
            if let Entry::Text { tool, .. } = entry {
                tools.extend(ToolId::parse(tool));
            }
        }
        let what = serde_json::to_string(&self.what)?;
        copy.improve(&tools, &what, |before| {
            let OwnContent {
                settings,
                words,
                texts,
            } = before.clone();
            let content = Content::new(words, texts, settings.search);
            let (words, texts, search) = change(&content).into_parts();
            let mut settings = match self.taught_by {
                Some(set) => tuned_on(set, settings),
                None => settings,
            };
            settings.search = search;
            OwnContent {
                settings,
                words,
                texts,
            }
        })
    }
}

/// The log of a catalog.
fn journal(place: &Place) -> Result<Journal> {
    match place {
        Place::Local(catalog) => Ok(JournalFile::open(catalog.path())?.journal().clone()),
        Place::Shared(copy) => {
            let mut lines = Vec::new();
            for stored in copy.improvements()? {
                let what = serde_json::from_str(&stored.what)
                    .with_context(|| format!("read change {} in the store's log", stored.id))?;
                lines.push(Line {
                    id: stored.id,
                    at_ms: stored.at_ms,
                    generation: stored.generation,
                    what,
                });
            }
            Ok(Journal::new(lines))
        }
    }
}

fn log(context: &Context, store: &StoreArgs, id: Option<u64>) -> Result<Outcome> {
    let place = Place::open(store, context, || context.options(Legs::Lexical))?;
    let journal = journal(&place)?;
    if let Some(id) = id {
        let line = journal.lines().iter().find(|line| line.id == id);
        let Some(What::Applied { change, .. }) = line.map(|line| &line.what) else {
            bail!("{id} is no change; `toolscout improve log` lists them");
        };
        if context.printer.is_json() {
            context.printer.json(change)?;
            return Ok(Outcome::Success);
        }
        for entry in &change.entries {
            context.printer.text(entry)?;
        }
        return Ok(Outcome::Success);
    }
    if context.printer.is_json() {
        context.printer.json(&journal.lines())?;
        return Ok(Outcome::Success);
    }
    let rows = journal.lines().iter().map(|line| row(&journal, line));
    context.printer.rows(
        &[
            "id",
            "day",
            "generation",
            "change",
            "entries",
            "queries",
            "before",
            "after",
            "p",
        ],
        rows.collect(),
    )?;
    Ok(Outcome::Success)
}

fn row(journal: &Journal, line: &Line) -> Vec<String> {
    let mut row = vec![
        line.id.to_string(),
        date(day_of(line.at_ms)),
        line.generation.to_string(),
    ];
    match &line.what {
        What::Applied { queries, change } => {
            let reverted = if journal.is_reverted(line.id) {
                " (reverted)"
            } else {
                ""
            };
            row.push(format!("{}{reverted}", change.kind.as_str()));
            row.extend([change.entries.len(), *queries].map(|count| count.to_string()));
            row.extend([change.before, change.after].map(|mean| format!("{mean:.4}")));
            row.push(format!("{:.4}", change.p));
        }
        What::Reverted(id) => {
            row.push(format!("revert of {id}"));
            // The columns of figures, which a revert does not have.
            row.extend(std::iter::repeat_n("-".to_owned(), 5));
        }
    }
    row
}

fn revert(context: &Context, store: &StoreArgs, id: u64) -> Result<Outcome> {
    let place = Place::open(store, context, || context.options(Legs::All))?;
    let journal = journal(&place)?;
    let Some(entries) = journal.applied(id).map(<[Entry]>::to_vec) else {
        let known = journal.lines().iter().any(|line| line.id == id);
        let why = match (known, journal.is_reverted(id)) {
            (_, true) => "was taken back already",
            (true, _) => "is a revert; `toolscout improve --apply` makes changes again",
            (false, _) => "is no change of this catalog",
        };
        bail!("{id} {why}; see `toolscout improve log`");
    };
    let interrupt = Interrupt::listen()?;
    let mut removed = 0;
    let write = Write {
        entries: &entries,
        what: What::Reverted(id),
        taught_by: None,
    };
    write.to(context, &place, &interrupt, |content| {
        let (content, count) = without(&entries, content);
        removed = count;
        content
    })?;
    // Other commands may have changed or removed them since.
    let rest = match entries.len() - removed {
        0 => String::new(),
        gone => format!("; {gone} were gone or changed already"),
    };
    context.printer.text(format_args!(
        "took back {} of change {id}{rest}",
        counted(removed, "entry")
    ))?;
    Ok(Outcome::Success)
}

/// The row of a proposal.
fn proposed(change: &Change) -> Vec<String> {
    let mut row = vec![
        change.kind.as_str().to_owned(),
        change.decision.as_str().to_owned(),
    ];
    if change.decision == Decision::NothingProposed {
        // Nothing was measured.
        row.extend(std::iter::repeat_n("-".to_owned(), 5));
        return row;
    }
    row.push(match change.entries.len() {
        made if made < change.proposed => format!("{made} of {}", change.proposed),
        all => all.to_string(),
    });
    row.extend([change.before, change.after].map(|mean| format!("{mean:.4}")));
    let [low, high] = change.gain_ci95;
    row.push(format!("{low:+.4} to {high:+.4}"));
    row.push(format!("{:.4}", change.p));
    row
}

fn print(context: &Context, improved: &Improved) -> Result<()> {
    let rows = improved.changes.iter().map(proposed);
    context.printer.rows(
        &[
            "change",
            "decision",
            "entries",
            "before",
            "after",
            "gain (95%)",
            "p",
        ],
        rows.collect(),
    )?;
    let mut lines = Vec::new();
    for change in improved.accepted() {
        lines.extend(&change.entries);
    }
    for line in lines.iter().take(MAX_LINES) {
        context.printer.text(line)?;
    }
    if lines.len() > MAX_LINES {
        context.printer.note(format_args!(
            "and {} more; --json has all",
            counted(lines.len() - MAX_LINES, "entry")
        ))?;
    }
    Ok(())
}
