//! `toolscout enrich`: lets a language model write when to use each tool, for dense search.

mod asking;
mod files;
mod held;
mod keep;
mod measure;
mod offer;
mod offered;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use serde_json::json;
use toolscout_index::{Enrichment, MAX_ENRICHMENT_TEXTS, Searcher, Tool, ToolId};

use super::Outcome;
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::interrupt::Interrupt;
use super::llm::LlmArgs;
use super::output::print_stderr;
use super::store::{Place, StoreArgs};
use crate::enrich::run::PARALLEL;
use crate::enrich::wanted::Wanted;
use crate::enrich::{self, Batch, DEFAULT_BATCH, Tokens};
use crate::printable::{self, counted};
use held::HeldFile;
use keep::{embed_pending, store};
pub use offer::offer;
use toolscout_index::suggest::did_you_mean;

/// The model's name for answers where none is given.
const ANSWERING_MODEL: &str = "assistant";

/// Lets a language model of your own write for each tool what people say when they need it. Dense
/// search then finds the tool by these texts too; nothing else uses or shows them. The definitions
/// are sent to the model. Ctrl-C keeps what was written; the next run goes on with the rest.
///
/// Without a model behind an API, --ask writes the questions as a file for any chat or coding agent,
/// and --answers reads what it answered.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout enrich --dry-run --price-in 0.15 --price-out 0.60\n  toolscout enrich --llm http://127.0.0.1:11434/v1 --model qwen3:8b --yes\n  toolscout enrich --show github/create_issue\n  toolscout enrich --ask questions.md\n  toolscout enrich --answers answers.jsonl\n  toolscout enrich --export texts.jsonl\n  toolscout enrich --import texts.jsonl --held held.jsonl\n  toolscout enrich --import held.jsonl --reviewed"
)]
pub struct Args {
    #[command(flatten)]
    llm: LlmArgs,
    /// Only tools of this server (repeatable)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["answers", "import", "show"])]
    server: Vec<String>,
    /// Most tools in this run, or in the questions of --ask
    #[arg(long, value_name = "N", conflicts_with_all = ["answers", "import", "export", "measure", "show", "forget"],
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Texts of each tool, in each language; at most 8 in all [default: 3, or as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_ENRICHMENT_TEXTS as i64))]
    texts: Option<u16>,
    /// The languages of the texts, as codes or names: en,de,zh [default: English]
    #[arg(long, value_name = "LANGUAGES", value_delimiter = ',')]
    languages: Vec<String>,
    /// Most tools in one request, all of one server
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BATCH as u16,
          value_parser = clap::value_parser!(u16).range(1..=20))]
    batch: u16,
    /// Most requests at once; fewer where the provider's limits want it, and one after another for a script
    #[arg(long, value_name = "N", default_value_t = PARALLEL as u16,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    parallel: u16,
    /// Price of a million tokens sent, for the estimate
    #[arg(long, value_name = "PRICE", value_parser = price, requires = "price_out")]
    price_in: Option<f64>,
    /// Price of a million tokens received, for the estimate
    #[arg(long, value_name = "PRICE", value_parser = price, requires = "price_in")]
    price_out: Option<f64>,
    /// Print what would be sent and what it would cost, and send nothing
    #[arg(long, group = "action")]
    dry_run: bool,
    /// Do not ask before sending or deleting
    #[arg(long)]
    yes: bool,
    /// Print what was written for this tool
    #[arg(long, value_name = "ID", group = "action")]
    show: Option<String>,
    /// Delete what was written for this tool, or for all tools where none is named
    #[arg(long, value_name = "ID", num_args = 0..=1, group = "action")]
    forget: Option<Option<String>>,
    /// Write the questions into a new file, or - for stdout, for any chat or coding agent to answer
    #[arg(long, value_name = "FILE|-", group = "action")]
    ask: Option<PathBuf>,
    /// Read what was answered to --ask, from a file or - for stdin
    #[arg(long, value_name = "FILE|-", group = "action")]
    answers: Option<PathBuf>,
    /// Write all texts into a new file, or - for stdout, as --import reads them
    #[arg(long, value_name = "FILE|-", group = "action")]
    export: Option<PathBuf>,
    /// Read texts that another catalog exported, for tools with the same definition
    #[arg(long, value_name = "FILE|-", group = "action")]
    import: Option<PathBuf>,
    /// Print what the texts are worth: one of each tool is kept aside and searched for
    #[arg(long, group = "action")]
    measure: bool,
    /// Print the texts that servers offer for their own tools in _meta; with --yes, take them
    #[arg(long, group = "action")]
    offered: bool,
    /// With --answers, --import or --offered: a person has read the texts. Those that speak of another server's tool
    /// are stored too, and texts are added to those that a tool has
    #[arg(long)]
    reviewed: bool,
    /// Write the texts that speak of another server's tool into a new file, as --import reads them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ask", "export", "measure", "show", "forget", "dry_run", "reviewed"])]
    held: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl Args {
    /// Asks the model about the tools that have no enrichment, and prints how many were written.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let can_be_read = self.answers.is_some() || self.import.is_some() || self.offered;
        if self.reviewed && !can_be_read {
            let message = "--reviewed says that a person has read the texts of --answers, --import or --offered";
            return Err(UsageError(message.to_owned()).into());
        }
        if let Some(id) = &self.show {
            return self.show(context, id);
        }
        if let Some(id) = &self.forget {
            return self.forget(context, id.as_deref());
        }
        if let Some(file) = &self.ask {
            return self.ask(context, file);
        }
        if let Some(file) = &self.export {
            return self.export(context, file);
        }
        if self.measure {
            return self.measure(context);
        }
        if self.offered {
            return self.take_offered(context);
        }
        if let Some(file) = self.answers.as_ref().or(self.import.as_ref()) {
            return self.take(context, file);
        }
        if self.dry_run {
            let searcher = self.place(context, Legs::Lexical)?.catalog().searcher();
            return self.plan(context, &searcher)?.print(context);
        }
        self.write(context)
    }

    /// Lets the model write, and stores what it wrote.
    fn write(self, context: &Context) -> Result<Outcome> {
        let place = self.place(context, Legs::All)?;
        let searcher = place.catalog().searcher();
        let plan = self.plan(context, &searcher)?;
        if plan.tools > 0 && !is_confirmed(&plan.announcement(&self.llm), self.yes)? {
            print_stderr("nothing was sent");
            return Ok(Outcome::Failure);
        }
        self.llm.check()?;
        // Before the model is paid: a file that cannot be written ends the run at once.
        let mut held_file = HeldFile::create(self.held.as_deref())?;
        let interrupt = Interrupt::listen()?;
        // Whoever was asked has read it already.
        if self.yes && plan.tools > 0 {
            print_stderr(plan.announcement(&self.llm));
        }
        let start = Instant::now();
        let mut run = self
            .llm
            .run(plan.batches, self.parallel.into(), Some(searcher))?;
        let prices = self.prices();
        let ended = asking::ask(&mut run, &interrupt, &prices, &mut |run, written| {
            let mut others = Vec::new();
            let stored = store(&place, &interrupt, written, &mut others)?;
            run.stored(stored, others);
            held_file.write(&place.catalog().searcher(), &run.held)
        });
        let embedded = embed_pending(context, &place, &interrupt)?;
        let searcher = place.catalog().searcher();
        let left = enrich::ids_without_texts(&searcher, &self.server).count();
        let took = start.elapsed();
        asking::report(&run, context, &place, left, took, embedded.as_ref())?;
        held_file.say(context, &run.held)?;
        // After the report: what was stored stays, whatever ended the run.
        ended?;
        if run.enriched > 0 {
            measure::say(context, &place, embedded.as_ref(), &interrupt)?;
        }
        match run.without_texts().is_empty() && !interrupt.is_raised() {
            true => Ok(Outcome::Success),
            false => Ok(Outcome::Failure),
        }
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

    fn plan(&self, context: &Context, searcher: &Searcher) -> Result<Plan> {
        let wanted = Wanted::new(self.texts.map(usize::from), &self.languages);
        let wanted = wanted.map_err(UsageError::from)?;
        context.warn_of_unknown_servers(searcher, &self.server);
        let mut tools = enrich::missing(searcher, &self.server);
        if let Some(limit) = self.limit {
            tools.truncate(limit as usize);
        }
        let plan = Plan::of(tools, self.batch.into(), &wanted);
        Ok(Plan {
            price: self.prices().of(plan.tokens),
            ..plan
        })
    }

    fn prices(&self) -> Prices {
        Prices {
            input: self.price_in,
            output: self.price_out,
        }
    }

    fn ask(&self, context: &Context, file: &Path) -> Result<Outcome> {
        let searcher = self.place(context, Legs::Lexical)?.catalog().searcher();
        let plan = self.plan(context, &searcher)?;
        files::ask(context, &plan.batches, &self.server, file)
    }

    fn export(&self, context: &Context, file: &Path) -> Result<Outcome> {
        let searcher = self.place(context, Legs::Lexical)?.catalog().searcher();
        context.warn_of_unknown_servers(&searcher, &self.server);
        files::export(context, &searcher, &self.server, file)
    }

    /// Takes the texts of a file: answers to the questions, or the texts of another catalog.
    fn take(&self, context: &Context, file: &Path) -> Result<Outcome> {
        let place = self.place(context, Legs::All)?;
        let model = self.llm.chosen_model().unwrap_or(ANSWERING_MODEL);
        let held_file = self.held.as_deref();
        files::take(context, &place, file, model, self.reviewed, held_file)
    }

    /// Prints what servers offer, or takes it.
    fn take_offered(&self, context: &Context) -> Result<Outcome> {
        // Without --yes the texts are only printed, and nothing is embedded.
        let legs = if self.yes { Legs::All } else { Legs::Lexical };
        let place = self.place(context, legs)?;
        let consent = offered::Consent {
            takes: self.yes,
            is_reviewed: self.reviewed,
        };
        offered::offered(context, &place, &self.server, consent, self.held.as_deref())
    }

    fn measure(&self, context: &Context) -> Result<Outcome> {
        let searcher = self.place(context, Legs::All)?.catalog().searcher();
        if context.embedders().is_empty() {
            bail!("texts serve dense search, and no embedder is set; leave out `--embedder none`");
        }
        context.warn_of_unknown_servers(&searcher, &self.server);
        let measured = measure::measured(&searcher, &self.server, &Interrupt::listen()?)?;
        if measured.tools == 0 {
            bail!(
                "no tool has two texts in one language, of which one could be kept aside; `toolscout enrich` lets a model \
                 write texts"
            );
        }
        if context.printer.is_json() {
            context.printer.json(&measure::json(&measured))?;
        } else {
            measure::print(context, &measured)?;
        }
        Ok(Outcome::Success)
    }

    fn forget(&self, context: &Context, id: Option<&str>) -> Result<Outcome> {
        let place = self.place(context, Legs::Lexical)?;
        let searcher = place.catalog().searcher();
        let ids: Vec<ToolId> = match id {
            Some(id) => vec![known(&searcher, id)?],
            None => {
                context.warn_of_unknown_servers(&searcher, &self.server);
                let mut ids: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
                ids.retain(|id| enrich::is_of(&self.server, id));
                ids
            }
        };
        if id.is_none() && !self.yes {
            let of_servers = if self.server.is_empty() {
                ""
            } else {
                " of these servers"
            };
            let message = format!(
                "this deletes what was written for every tool{of_servers}; add --yes to confirm"
            );
            return Err(UsageError(message).into());
        }
        let forgotten = keep::forget(&place, &Interrupt::listen()?, ids)?;
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

/// What a model writes for all tools without texts, so many in a request. Nothing is stored, and texts that
/// speak of another server's tool are left out.
pub fn texts_of_model(
    llm: &LlmArgs,
    searcher: &Arc<Searcher>,
    is_agreed: bool,
) -> Result<Vec<(Arc<Tool>, Enrichment)>> {
    let wanted = Wanted::new(None, &[]).map_err(UsageError::from)?;
    let plan = Plan::of(enrich::missing(searcher, &[]), DEFAULT_BATCH, &wanted);
    if plan.tools == 0 {
        bail!("every tool has texts already, so the model of --llm has nothing to write");
    }
    llm.check()?;
    if !is_confirmed(&plan.announcement(llm), is_agreed)? {
        bail!("nothing was sent");
    }
    let interrupt = Interrupt::listen()?;
    let mut run = llm.run(plan.batches, PARALLEL, Some(Arc::clone(searcher)))?;
    let mut texts = Vec::new();
    asking::ask(
        &mut run,
        &interrupt,
        &Prices::default(),
        &mut |run, written| {
            run.stored(written.len(), Vec::new());
            texts.extend(written);
            Ok(())
        },
    )?;
    // Half of the texts would be measured as if they were all.
    if interrupt.is_raised() {
        bail!("ended by Ctrl-C, and nothing was changed");
    }
    Ok(texts)
}

/// True if agreed beforehand, or once the person at the terminal agrees.
fn is_confirmed(question: &str, is_agreed: bool) -> Result<bool> {
    if is_agreed {
        return Ok(true);
    }
    // What a script pipes in is no consent.
    if !io::stdin().is_terminal() {
        return Err(UsageError(format!("{question}; add --yes to confirm")).into());
    }
    write!(io::stderr(), "{question}. Go on? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// The id of a tool that the catalog has.
fn known(searcher: &Searcher, id: &str) -> Result<ToolId> {
    let id = ToolId::parse(id)?;
    if searcher.tool(&id).is_none() {
        let all = searcher.ids_after(None).map(ToolId::as_str);
        let hint = match did_you_mean(id.as_str(), all) {
            Some(similar) => similar,
            None => "`toolscout list` lists the tools".to_owned(),
        };
        bail!("no tool {id:?} in this catalog; {hint}");
    }
    Ok(id)
}

/// Prices of a million tokens, where they are given.
#[derive(Default)]
struct Prices {
    input: Option<f64>,
    output: Option<f64>,
}

impl Prices {
    /// The price of so many tokens; `None` where no price is given.
    fn of(&self, tokens: Tokens) -> Option<f64> {
        let (price_in, price_out) = (self.input?, self.output?);
        Some((tokens.input as f64 * price_in + tokens.output as f64 * price_out) / 1e6)
    }
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
    /// Asks about these tools, so many in a request.
    fn of(tools: Vec<Arc<Tool>>, batch: usize, wanted: &Wanted) -> Self {
        let batches = enrich::batches(&tools, batch, wanted);
        Plan {
            tools: tools.len(),
            tokens: enrich::estimate(&batches),
            batches,
            price: None,
        }
    }

    fn announcement(&self, llm: &LlmArgs) -> String {
        format!(
            "this sends {self} to {}",
            printable::line(llm.base_url().unwrap_or(llm.named()))
        )
    }

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

/// Parses a price.
fn price(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(price) if f64::is_finite(price) && price >= 0.0 => Ok(price),
        _ => Err("use a number from 0".to_owned()),
    }
}
