//! `toolscout enrich`: lets a language model write when to use each tool, for dense search.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use toolscout_index::{Enrichment, Error, MAX_ENRICHMENT_TEXTS, Searcher, Tool, ToolId, Writer};

use super::Outcome;
use super::context::{Context, Legs};
use super::embed::{self, Embedded};
use super::exit::{UsageError, error_message};
use super::interrupt::Interrupt;
use super::llm::LlmArgs;
use super::output::print_stderr;
use super::progress::{ITEMS, bar};
use super::store::{Place, StoreArgs};
use super::suggest::did_you_mean;
use crate::agent::reply::{Reply, complete};
use crate::config::ModelParameters;
use crate::enrich::{self, Batch, DEFAULT_BATCH, DEFAULT_TEXTS, Tokens};
use crate::llm::{ChatModel, ChatRequest, LlmError, Usage};
use crate::printable::{self, counted};

/// Longest wait for one answer. The model's client also bounds the silence before and between
/// tokens.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a wait looks whether Ctrl-C was pressed.
const INTERRUPT_POLL: Duration = Duration::from_millis(100);
/// Requests in a row without a usable answer that end the run: more would cost money for nothing.
const MAX_FAILURES_IN_A_ROW: usize = 5;
/// How long an answer waits for another process that writes to the catalog, and how often it looks.
const WRITER_PATIENCE: Duration = Duration::from_secs(60);
const WRITER_PAUSE: Duration = Duration::from_secs(1);
/// Skipped tools that are named.
const MAX_NAMED: usize = 20;
/// Why what a model wrote about a tool is not stored.
const CHANGED: &str = "it was changed or removed meanwhile";

/// Lets a language model of your own write for each tool what people say when they need it. Dense
/// search then finds the tool by these texts too; nothing else uses or shows them. The definitions
/// are sent to the model. Ctrl-C keeps what was written; the next run goes on with the rest.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout enrich --dry-run --price-in 0.15 --price-out 0.60\n  toolscout enrich --llm http://127.0.0.1:11434/v1 --model qwen3:8b --yes\n  toolscout enrich --show github/create_issue"
)]
pub struct Args {
    #[command(flatten)]
    llm: LlmArgs,
    /// Only tools of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Most tools in this run
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Texts of each tool
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TEXTS as u16,
          value_parser = clap::value_parser!(u16).range(1..=MAX_ENRICHMENT_TEXTS as i64))]
    texts: u16,
    /// Most tools in one request, all of one server
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCH as u16,
          value_parser = clap::value_parser!(u16).range(1..=20))]
    batch: u16,
    /// Price of a million tokens sent, for the estimate
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_in: Option<f64>,
    /// Price of a million tokens received, for the estimate
    #[arg(long, value_name = "PRICE", value_parser = price)]
    price_out: Option<f64>,
    /// Print what would be sent and what it would cost, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before sending or deleting
    #[arg(long)]
    yes: bool,
    /// Print what was written for this tool
    #[arg(long, value_name = "ID", conflicts_with_all = ["forget", "dry_run"])]
    show: Option<String>,
    /// Delete what was written for this tool, or for all tools where none is named
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "dry_run")]
    forget: Option<Option<String>>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    /// Asks the model about the tools that have no enrichment, and prints how many were written.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if let Some(id) = &self.show {
            return self.show(context, id);
        }
        if let Some(id) = &self.forget {
            return self.forget(context, id.as_deref());
        }
        let legs = if self.dry_run {
            Legs::Lexical
        } else {
            Legs::All
        };
        let place = self.place(context, legs)?;
        let plan = self.plan(context, &place.catalog().searcher());
        if self.dry_run {
            return plan.print(context);
        }
        if plan.tools > 0 && !self.is_confirmed(&plan)? {
            print_stderr("nothing was sent");
            return Ok(Outcome::Failure);
        }
        self.llm.check()?;
        let (model, _) = self.llm.model(&ModelParameters::default())?;
        let interrupt = Interrupt::listen()?;
        if self.yes && plan.tools > 0 {
            print_stderr(self.announcement(&plan));
        }
        let start = Instant::now();
        let mut run = Run::new(&place, model, interrupt.clone())?;
        let ended = run.all(&plan.batches);
        let embedded = embed_pending(context, &place, &interrupt)?;
        let left = enrich::missing(&place.catalog().searcher(), &self.server).len();
        run.report(context, left, start.elapsed(), embedded)?;
        ended?;
        Ok(if run.skipped.is_empty() && !interrupt.is_raised() {
            Outcome::Success
        } else {
            Outcome::Failure
        })
    }

    /// The catalog. Of a copy nothing is embedded: servers do that.
    fn place(&self, context: &Context, legs: Legs) -> Result<Place> {
        let settings = self.store.settings(context)?;
        let legs = match settings.store {
            Some(_) => Legs::Lexical,
            None => legs,
        };
        Place::open(&self.store, context, || context.options(legs))
    }

    fn plan(&self, context: &Context, searcher: &Searcher) -> Plan {
        context.warn_of_unknown_servers(searcher, &self.server);
        let mut tools = enrich::missing(searcher, &self.server);
        tools.truncate(self.limit.unwrap_or(usize::MAX));
        let batches = enrich::batches(&tools, self.batch.into(), self.texts.into());
        let tokens = enrich::estimate(&batches);
        let cost = |count: usize, price: Option<f64>| count as f64 * price.unwrap_or(0.0) / 1e6;
        let has_price = self.price_in.is_some() || self.price_out.is_some();
        Plan {
            tools: tools.len(),
            price: has_price
                .then(|| cost(tokens.input, self.price_in) + cost(tokens.output, self.price_out)),
            tokens,
            batches,
        }
    }

    /// True with `--yes`, or once the person at the terminal agrees.
    fn is_confirmed(&self, plan: &Plan) -> Result<bool> {
        let question = self.announcement(plan);
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(UsageError(format!("{question}; add --yes to confirm")).into());
        }
        write!(io::stderr(), "{question}. Go on? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }

    fn announcement(&self, plan: &Plan) -> String {
        format!(
            "this sends {plan} to {}",
            printable::line(self.llm.base_url().unwrap_or(self.llm.named()))
        )
    }

    fn forget(&self, context: &Context, id: Option<&str>) -> Result<Outcome> {
        let place = self.place(context, Legs::Lexical)?;
        let searcher = place.catalog().searcher();
        let ids: Vec<ToolId> = match id {
            Some(id) => vec![known(&searcher, id)?],
            None => searcher.ids_after(None).cloned().collect(),
        };
        if id.is_none() && !self.yes {
            let message = "this deletes what was written for every tool; add --yes to confirm";
            return Err(UsageError(message.to_owned()).into());
        }
        let forgotten = match &place {
            Place::Shared(copy) => copy.forget_enrichments(&ids)?,
            Place::Local(catalog) => {
                let mut writer = catalog.writer()?;
                let forgotten = writer.clear_enrichments(&ids)?;
                writer.commit()?;
                forgotten
            }
        };
        if context.printer.is_json() {
            context.printer.json(&json!({ "forgotten": forgotten }))?;
        } else {
            let tools = counted(forgotten, "tool");
            context
                .printer
                .text(format_args!("what was written for {tools} is deleted"))?;
        }
        Ok(Outcome::Success)
    }

    fn show(&self, context: &Context, id: &str) -> Result<Outcome> {
        let searcher = self.place(context, Legs::Lexical)?.catalog().searcher();
        let id = known(&searcher, id)?;
        let Some(enrichment) = searcher.enrichment(&id) else {
            bail!(
                "nothing was written for {id} as it is now; `toolscout enrich` lets a model write it"
            );
        };
        if context.printer.is_json() {
            let json =
                json!({ "id": id, "model": enrichment.model(), "texts": enrichment.texts() });
            context.printer.json(&json)?;
            return Ok(Outcome::Success);
        }
        for text in enrichment.texts() {
            context.printer.text(printable::line(text))?;
        }
        let model = printable::line(enrichment.model());
        context.printer.note(format_args!("written by {model}"))?;
        Ok(Outcome::Success)
    }
}

/// The id of a tool that the catalog has.
fn known(searcher: &Searcher, id: &str) -> Result<ToolId> {
    let id = ToolId::parse(id)?;
    if searcher.tool(&id).is_none() {
        let all = searcher.ids_after(None).map(ToolId::as_str);
        let hint = did_you_mean(id.as_str(), all)
            .unwrap_or_else(|| "`toolscout list` lists the tools".to_owned());
        bail!("no tool {id:?} in this catalog; {hint}");
    }
    Ok(id)
}

/// The requests of a run, and their expected size.
struct Plan {
    tools: usize,
    batches: Vec<Batch>,
    tokens: Tokens,
    /// In the currency of the prices given; `None` without one.
    price: Option<f64>,
}

impl Plan {
    fn print(&self, context: &Context) -> Result<Outcome> {
        if context.printer.is_json() {
            let json = json!({
                "catalog": context.settings.catalog,
                "dry_run": true,
                "tools": self.tools,
                "requests": self.batches.len(),
                "tokens_in": self.tokens.input,
                "tokens_out": self.tokens.output,
                "price": self.price,
            });
            context.printer.json(&json)?;
        } else {
            context.printer.text(format_args!("would send {self}"))?;
        }
        Ok(Outcome::Success)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the definitions of {} in {}, about {} tokens, for about {} tokens of answers",
            counted(self.tools, "tool"),
            counted(self.batches.len(), "request"),
            self.tokens.input,
            self.tokens.output,
        )?;
        match self.price {
            Some(price) => write!(f, ", at a price of about {price:.4}"),
            None => Ok(()),
        }
    }
}

/// Asks a model batch by batch, and stores what can be used of each answer before the next request.
struct Run<'a> {
    place: &'a Place,
    model: Arc<dyn ChatModel>,
    interrupt: Interrupt,
    runtime: Runtime,
    enriched: usize,
    /// Tools without a usable text, each with the reason.
    skipped: Vec<(ToolId, String)>,
    /// As the model's server counted them.
    usage: Usage,
}

impl<'a> Run<'a> {
    fn new(place: &'a Place, model: Arc<dyn ChatModel>, interrupt: Interrupt) -> Result<Self> {
        Ok(Run {
            place,
            model,
            interrupt,
            runtime: Builder::new_current_thread()
                .enable_all()
                .build()
                .context("start the runtime")?,
            enriched: 0,
            skipped: Vec::new(),
            usage: Usage::default(),
        })
    }

    /// Asks until every batch was asked about, Ctrl-C is pressed, or too many requests in a row gave
    /// nothing.
    fn all(&mut self, batches: &[Batch]) -> Result<()> {
        let bar = bar("enriching", ITEMS);
        bar.set_length(batches.iter().map(|batch| batch.tools.len() as u64).sum());
        let ended = self.each(batches, &bar);
        bar.finish_and_clear();
        ended
    }

    fn each(&mut self, batches: &[Batch], bar: &ProgressBar) -> Result<()> {
        let mut failures = 0;
        for batch in batches {
            let written = match self.ask(batch.request()) {
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => self.store(batch, &reply)?,
                Err(error) => {
                    let reason = error.to_string();
                    let ids = batch.tools.iter().map(|tool| tool.id.clone());
                    self.skipped.extend(ids.map(|id| (id, reason.clone())));
                    0
                }
            };
            bar.inc(batch.tools.len() as u64);
            failures = if written > 0 { 0 } else { failures + 1 };
            if failures == MAX_FAILURES_IN_A_ROW {
                let last = self.skipped.last().map_or("", |(_, reason)| reason);
                bail!(
                    "{failures} requests in a row gave nothing that can be used, the last: {last}"
                );
            }
        }
        Ok(())
    }

    /// The model's answer; `None` once Ctrl-C was pressed.
    fn ask(&self, request: ChatRequest) -> Result<Option<Reply>, LlmError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = pressed(&self.interrupt) => Ok(None),
                reply = timeout(ANSWER_TIMEOUT, complete(&*self.model, request)) => match reply {
                    Ok(reply) => reply.map(Some),
                    Err(_) => Err(LlmError::Timeout {
                        stage: "until the end of the answer",
                        waited_ms: ANSWER_TIMEOUT.as_millis() as u64,
                    }),
                },
            }
        })
    }

    /// Stores what an answer says about its tools. Returns about how many of them.
    fn store(&mut self, batch: &Batch, reply: &Reply) -> Result<usize> {
        let usage = reply.usage.unwrap_or_default();
        self.usage.input += usage.input;
        self.usage.output += usage.output;
        let mut usable: Vec<(&Tool, Enrichment)> = Vec::new();
        for (tool, read) in batch.read(&reply.text, self.model.name()) {
            match read {
                Ok(enrichment) => usable.push((tool, enrichment)),
                Err(reason) => self.skipped.push((tool.id.clone(), reason)),
            }
        }
        if usable.is_empty() {
            return Ok(0);
        }
        if let Place::Shared(copy) = self.place {
            let pairs: Vec<(&Tool, &Enrichment)> = usable
                .iter()
                .map(|(tool, enrichment)| (*tool, enrichment))
                .collect();
            let mut are_stored = copy.enrich(&pairs)?.into_iter();
            usable.retain(|(tool, _)| {
                let is_stored = are_stored.next() == Some(true);
                if !is_stored {
                    self.skipped.push((tool.id.clone(), CHANGED.to_owned()));
                }
                is_stored
            });
        }
        let mut writer = self.writer()?;
        let before = self.enriched;
        for (tool, enrichment) in usable {
            if writer.set_enrichment(tool, &enrichment)? {
                self.enriched += 1;
            } else {
                self.skipped.push((tool.id.clone(), CHANGED.to_owned()));
            }
        }
        writer.commit()?;
        Ok(self.enriched - before)
    }

    /// The catalog's writer. An answer is paid for, so it waits longer than others for a process that
    /// writes.
    fn writer(&self) -> Result<Writer> {
        let give_up = Instant::now() + WRITER_PATIENCE;
        loop {
            match self.place.catalog().writer() {
                Err(Error::Locked { .. })
                    if Instant::now() < give_up && !self.interrupt.is_raised() =>
                {
                    std::thread::sleep(WRITER_PAUSE);
                }
                writer => return Ok(writer?),
            }
        }
    }

    fn report(
        &self,
        context: &Context,
        left: usize,
        took: Duration,
        embedded: Option<Embedded>,
    ) -> Result<()> {
        if context.printer.is_json() {
            let skipped: Vec<Value> = self
                .skipped
                .iter()
                .map(|(id, reason)| json!({ "id": id, "reason": reason }))
                .collect();
            return context.printer.json(&json!({
                "catalog": context.settings.catalog,
                "model": self.model.name(),
                "enriched": self.enriched,
                "skipped": skipped,
                "left": left,
                "embedded": embedded.map_or(0, |embedded| embedded.texts),
                "tokens_in": self.usage.input,
                "tokens_out": self.usage.output,
                "took_ms": took.as_secs_f64() * 1e3,
            }));
        }
        for (id, reason) in self.skipped.iter().take(MAX_NAMED) {
            context.warn(format_args!("nothing was written for {id}: {reason}"));
        }
        if let Some(more @ 1..) = self.skipped.len().checked_sub(MAX_NAMED) {
            context.warn(format_args!("nor for {more} more"));
        }
        let rest = match left {
            0 => String::new(),
            left => format!(", {left} left; `toolscout enrich` goes on with them"),
        };
        context.printer.text(format_args!(
            "{}: {} enriched in {:.1} s{rest}",
            context.settings.catalog,
            counted(self.enriched, "tool"),
            took.as_secs_f64(),
        ))?;
        if self.enriched > 0 && embedded.is_none_or(|embedded| embedded.left > 0) {
            let embeds = match self.place {
                Place::Local(_) => "`toolscout embed` has",
                Place::Shared(_) => "the servers have",
            };
            context.printer.note(format_args!(
                "dense search does not use the texts before {embeds} embedded them"
            ))?;
        }
        Ok(())
    }
}

/// Embeds what was written; that of a store is embedded by the servers. A model that fails leaves it
/// to `toolscout embed`, and is no reason to lose the report.
fn embed_pending(
    context: &Context,
    place: &Place,
    interrupt: &Interrupt,
) -> Result<Option<Embedded>> {
    let Place::Local(catalog) = place else {
        return Ok(None);
    };
    if context.embedders().is_empty() || interrupt.is_raised() {
        return Ok(None);
    }
    let embedded = catalog
        .writer()
        .map_err(Into::into)
        .and_then(|mut writer| embed::pending(&mut writer, interrupt));
    match embedded {
        Ok(embedded) => {
            if let Some(problem) = &embedded.problem {
                context.warn(problem);
            }
            Ok(Some(embedded))
        }
        Err(error) => {
            context.warn(error_message(&error));
            Ok(None)
        }
    }
}

/// Ends once Ctrl-C was pressed.
async fn pressed(interrupt: &Interrupt) {
    while !interrupt.is_raised() {
        sleep(INTERRUPT_POLL).await;
    }
}

/// Parses a price.
fn price(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(price) if f64::is_finite(price) && price >= 0.0 => Ok(price),
        _ => Err("use a number from 0".to_owned()),
    }
}
