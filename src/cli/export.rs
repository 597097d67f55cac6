//! `toolscout export`: writes tools to stdout.

use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use toolscout_index::Tool;
use toolscout_index::formats::{self, Emit};

use super::Outcome;
use super::context::{Context, Legs};
use super::list::FilterArgs;

/// Writes tools to stdout: without a format as NDJSON that `add` reads back without loss.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout export > tools.jsonl\n  toolscout export --format openai --server github"
)]
pub struct Args {
    /// Format: openai, openai_responses, anthropic, anthropic_reference, mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Write the owner's words instead, as `toolscout words set` reads them
    #[arg(long, exclusive = true)]
    words: bool,
}

impl Args {
    /// Writes the tools, sorted by id.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let searcher = context.open(Legs::Lexical)?.searcher();
        if self.words {
            let words = searcher.owner_words().cloned().unwrap_or_default();
            context.printer.json(&words)?;
            return Ok(Outcome::Success);
        }
        context.warn_of_unknown_servers(&searcher, &self.filter.server);
        let filter = match self.format {
            // A model can call nothing but tools.
            Some(_) => self.filter.filter(),
            // An export that leaves something out is no backup.
            None => self.filter.filter_of_all(),
        };
        let accepted = searcher.items().filter(|tool| filter.accepts(tool));
        let tools: Vec<Arc<Tool>> = accepted.collect();
        let tools: Vec<&Tool> = tools.iter().map(|tool| &**tool).collect();
        match self.format {
            Some(format) => print_emitted(context, &tools, format)?,
            None if context.printer.is_json() => context.printer.json(&tools)?,
            // A tool on each line, so that other programs need not read all of it at once.
            None => {
                for tool in tools {
                    context.printer.json_line(tool)?;
                }
            }
        }
        Ok(Outcome::Success)
    }
}

/// Prints tools in a format: names and signatures one per line unless the output is JSON, and
/// everything else as JSON. Items of other kinds are left out.
pub fn print_emitted(context: &Context, items: &[&Tool], format: Emit) -> Result<()> {
    let mut tools = items.to_vec();
    tools.retain(|tool| tool.kind.is_tool());
    match (format, formats::emit(&tools, format)) {
        (Emit::Names | Emit::Signature, Value::Array(lines)) if !context.printer.is_json() => {
            for line in lines.iter().filter_map(Value::as_str) {
                context.printer.text(line)?;
            }
            Ok(())
        }
        (_, value) => context.printer.json(&value),
    }
}
