//! `toolscout eval generate` and `eval from-usage`: judged queries that one does not have.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tokio::runtime::Builder;
use toolscout_index::memory::MAX_ENTRIES;
use toolscout_index::{Enrichment, MAX_ENRICHMENT_TEXTS, Searcher, Tool, ToolId};

use super::super::Outcome;
use super::super::context::{Context, Legs};
use super::super::exit::UsageError;
use super::super::interrupt::Interrupt;
use super::super::llm::LlmArgs;
use super::super::output::print_stderr;
use super::super::store::{Place, StoreArgs};
use super::outputs::{check_output, write};
use crate::config::ModelParameters;
use crate::enrich::exchange::Answers;
use crate::enrich::held::Review;
use crate::enrich::run::{PARALLEL, Step, ask};
use crate::enrich::wanted::Wanted;
use crate::enrich::{self, DEFAULT_BATCH};
use crate::eval::generate;
use crate::eval::judged_line::{CALLS, FEEDBACK, JudgedLine, TEMPLATE, joined, lines};
use crate::feedback::FeedbackStore;
use crate::llm::{ChatModel, ChatRequest};
use crate::printable::counted;
use crate::regular_file;

/// Who writes queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Maker {
    /// Templates, from the definitions; offline
    Template,
    /// The model of --llm, as `enrich` asks it
    Model,
}

/// Write judged queries for a catalog that has none: from the definitions of its tools, or by a model.
/// Queries by templates are easy, because they have the words of the definitions
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval generate --out queries.jsonl\n  toolscout eval generate --by model --llm http://127.0.0.1:11434/v1 --model qwen3:8b --yes --out queries.jsonl\n  toolscout enrich --ask questions.md\n  toolscout eval generate --answers answers.jsonl --out queries.jsonl"
)]
pub struct GenerateArgs {
    /// File of the queries
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Who writes them
    #[arg(long, value_enum, default_value_t = Maker::Template, value_name = "MAKER")]
    by: Maker,
    /// Read the answers to the questions of `enrich --ask` instead
    #[arg(long, value_name = "FILE", conflicts_with = "by")]
    answers: Option<PathBuf>,
    /// Most queries of each tool
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=6))]
    per_tool: u16,
    /// Only tools of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Most tools
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Seed of the choice of templates
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Send the definitions to the model without being asked
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    llm: LlmArgs,
}

impl GenerateArgs {
    /// Writes the queries.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        check(&self.out)?;
        let searcher = context.open(Legs::Lexical)?.searcher();
        context.warn_of_unknown_servers(&searcher, &self.server);
        let mut tools: Vec<_> = searcher.tools().collect();
        tools.retain(|tool| enrich::is_of(&self.server, &tool.id));
        if let Some(limit) = self.limit {
            tools.truncate(limit as usize);
        }
        if tools.is_empty() {
            bail!("the catalog {} has no such tools", context.settings.catalog);
        }
        let per_tool = usize::from(self.per_tool);
        let made = if let Some(file) = &self.answers {
            self.of_answers(file, &searcher)?
        } else if self.by == Maker::Model {
            self.by_model(&tools, per_tool)?
        } else {
            self.by_templates(&tools, per_tool)
        };
        if made.is_empty() {
            bail!(
                "nothing could be written about these tools; describe them, or ask a model with --by model"
            );
        }
        let is_easy = self.answers.is_none() && self.by == Maker::Template;
        if is_easy {
            print_stderr(
                "queries by templates are easy: they have the words of the definitions. Use them to see that everything works, and judge queries of people for figures",
            );
        }
        finish(context, &self.out, &made, 0)
    }

    fn by_templates(&self, tools: &[Arc<Tool>], per_tool: usize) -> Vec<JudgedLine> {
        let mut pairs = Vec::new();
        for tool in tools {
            for query in generate::queries(tool, per_tool, self.seed) {
                pairs.push((query, tool.id.to_string()));
            }
        }
        lines("template", pairs, TEMPLATE)
    }

    fn of_answers(&self, file: &Path, searcher: &Searcher) -> Result<Vec<JudgedLine>> {
        let text = regular_file::read_to_string(file)
            .with_context(|| format!("read {}", file.display()))?;
        let answers = Answers::read(&text);
        let model = self.llm.chosen_model().unwrap_or("assistant");
        if let Some(problem) = &answers.problem {
            print_stderr(format_args!("{}: {problem}", file.display()));
        }
        if answers.is_empty() {
            bail!(
                "{} has no answers that can be read; `toolscout enrich --ask FILE` writes the questions",
                file.display()
            );
        }
        // Read like the answers to `enrich`; --per-tool is a limit of the queries alone.
        let most = MAX_ENRICHMENT_TEXTS;
        let matched = answers.matched(searcher, model, most, Review::Unneeded);
        let refused = matched.refused.iter().chain(&matched.refused_texts);
        for refused in refused {
            print_stderr(format_args!("{}: {}", refused.id, refused.reason));
        }
        for id in matched.unknown.iter().chain(&matched.stale) {
            print_stderr(format_args!("{id}: no tool with this definition; left out"));
        }
        let mut pairs = Vec::new();
        for (tool, texts) in &matched.usable {
            for text in texts.texts().iter().take(self.per_tool.into()) {
                pairs.push((text.clone(), tool.id.to_string()));
            }
        }
        Ok(lines("written", pairs, &format!("model {model}")))
    }

    fn by_model(&self, tools: &[Arc<Tool>], per_tool: usize) -> Result<Vec<JudgedLine>> {
        let asker = Asker::new(&self.llm, self.yes, &counted(tools.len(), "definition"))?;
        let wanted = Wanted::new(Some(per_tool), &[]).map_err(UsageError::from)?;
        let batches = enrich::batches(tools, DEFAULT_BATCH, &wanted);
        let mut run = self.llm.run(batches, PARALLEL, None)?;
        let is_stopped = || asker.interrupt.is_raised();
        let mut by_tool: HashMap<ToolId, Enrichment> = HashMap::new();
        while let Some(step) = asker.runtime.block_on(run.next(&is_stopped)) {
            if let Step::Answered { written, .. } = step {
                // The run gives up after some answers that nothing was stored of.
                run.stored(written.len(), Vec::new());
                for (tool, texts) in written {
                    by_tool.insert(tool.id.clone(), texts);
                }
            }
        }
        for refused in run.without_texts().into_iter().chain(&run.refused) {
            print_stderr(format_args!("{}: {}", refused.id, refused.reason));
        }
        if let Some(problem) = &run.problem {
            print_stderr(format_args!("{problem}; no further request is sent"));
        }
        if is_stopped() {
            print_stderr("ended by Ctrl-C; the queries so far are kept");
        }
        // Answers come in any order, and the file has the order of the catalog.
        let mut pairs = Vec::new();
        for tool in tools {
            let Some(texts) = by_tool.get(&tool.id) else {
                continue;
            };
            for text in texts.texts() {
                pairs.push((text.clone(), tool.id.to_string()));
            }
        }
        Ok(lines("model", pairs, &format!("model {}", run.model())))
    }
}

/// A model that is asked one request after the other.
pub(super) struct Asker {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) interrupt: Interrupt,
    runtime: tokio::runtime::Runtime,
}

impl Asker {
    /// The model of the flags, if somebody has agreed to what is sent.
    pub(super) fn new(llm: &LlmArgs, is_agreed: bool, what: &str) -> Result<Self> {
        llm.check()?;
        if !is_agreed {
            let to = llm.base_url().unwrap_or(llm.named());
            let message = format!("this sends {what} to {to}; add --yes to confirm");
            return Err(UsageError(message).into());
        }
        let (model, _) = llm.model(&ModelParameters::default())?;
        let runtime = Builder::new_current_thread().enable_all().build();
        Ok(Asker {
            model,
            interrupt: Interrupt::listen()?,
            runtime: runtime.context("start the runtime")?,
        })
    }

    /// The text of the answer.
    pub(super) fn ask(&self, request: ChatRequest) -> Result<String> {
        let answer = self.runtime.block_on(ask(&*self.model, request));
        Ok(answer.context("ask the model")?.text)
    }
}

/// Write judged queries from what a catalog was used for: requests with the tools that were called for
/// them (usage memory), and feedback of HTTP clients
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval from-usage --out queries.jsonl\n  toolscout --catalog team eval from-usage --out team.jsonl"
)]
pub struct FromUsageArgs {
    /// File of the queries
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Leave out requests that were seen less often
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u64,
    #[command(flatten)]
    store: StoreArgs,
}

impl FromUsageArgs {
    /// Writes the queries.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        check(&self.out)?;
        let place = Place::open(&self.store, context, || context.options(Legs::Lexical))?;
        let catalog = &context.settings.catalog;
        let searcher = place.catalog().searcher();
        let known: HashSet<&str> = searcher.ids_after(None).map(ToolId::as_str).collect();
        let mut times: HashMap<String, u64> = HashMap::new();
        let mut called = Vec::new();
        for entry in place.catalog().memory().entries(None, MAX_ENTRIES)? {
            if entry.times < self.times {
                continue;
            }
            // One request has an entry for each tool that was called for it.
            let most = times.entry(entry.query.clone()).or_default();
            *most = entry.times.max(*most);
            called.push((entry.query, entry.tool.to_string()));
        }
        let local = FeedbackStore::open(&context.settings.data)?;
        let tools_of_queries = match &place {
            Place::Shared(copy) => copy.feedback(local).called(catalog)?,
            Place::Local(_) => local.called(catalog)?,
        };
        let mut reported = Vec::new();
        for (query, tools) in tools_of_queries {
            for tool in tools {
                reported.push((query.clone(), tool));
            }
        }
        let recorded = called.len() + reported.len();
        called.retain(|(_, tool)| known.contains(tool.as_str()));
        reported.retain(|(_, tool)| known.contains(tool.as_str()));
        let gone = recorded - called.len() - reported.len();
        let mut made = joined(
            lines("call", called, CALLS),
            lines("feedback", reported, FEEDBACK),
        );
        for line in &mut made {
            // A request that was seen once needs no number.
            line.times = times.get(&line.query).copied().filter(|times| *times > 1);
        }
        if made.is_empty() {
            bail!(
                "nothing is recorded of the catalog {catalog}; switch its memory on with `toolscout memory on`, or send feedback"
            );
        }
        print_stderr(
            "usage shows what was found and called: a tool that the search did not show is missing. `eval judge` judges more",
        );
        finish(context, &self.out, &made, gone)
    }
}

fn check(out: &Path) -> Result<()> {
    check_output(out).with_context(|| format!("--out {} cannot be written", out.display()))?;
    if fs::metadata(out).is_ok_and(|file| file.len() > 0) {
        bail!(
            "--out {} exists; name another file, or delete it",
            out.display()
        );
    }
    Ok(())
}

/// Writes the lines, and says how many there are of each source.
fn finish(context: &Context, out: &Path, made: &[JudgedLine], gone: usize) -> Result<Outcome> {
    let text: String = made.iter().map(JudgedLine::line).collect();
    write(out, &text)?;
    let mut sources: Vec<(&str, usize)> = Vec::new();
    for line in made {
        let Some(source) = line.source.as_deref() else {
            continue;
        };
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, count)) => *count += 1,
            None => sources.push((source, 1)),
        }
    }
    if context.printer.is_json() {
        let mut by_source = serde_json::Map::new();
        for (source, count) in sources {
            by_source.insert(source.to_owned(), json!(count));
        }
        context.printer.json(&json!({
            "file": out,
            "queries": made.len(),
            "sources": by_source,
            "left_out": gone,
        }))?;
        return Ok(Outcome::Success);
    }
    let said: Vec<String> = sources
        .iter()
        .map(|(source, count)| format!("{count} of {source}"))
        .collect();
    context.printer.text(format!(
        "{}: {} ({})",
        out.display(),
        counted(made.len(), "query"),
        said.join(", ")
    ))?;
    if gone > 0 {
        context.printer.note(format_args!(
            "{} left out, whose tools the catalog no longer has",
            counted(gone, "judgement")
        ))?;
    }
    Ok(Outcome::Success)
}
