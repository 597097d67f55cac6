//! `toolscout export`: writes tools out.

use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;
use toolscout_index::Tool;
use toolscout_index::formats::{self, Emit};

use super::Outcome;
use super::context::{Context, Legs};
use super::list::Which;

/// Writes tools to stdout: without a format as NDJSON that `add` reads back without loss.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// openai, openai_responses, anthropic, anthropic_reference, mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
    #[command(flatten)]
    which: Which,
}

impl Args {
    /// Writes the tools by id.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let searcher = context.open(Legs::Lexical)?.searcher();
        let filter = self.which.filter();
        let tools: Vec<Arc<Tool>> = searcher
            .tools()
            .filter(|tool| filter.accepts(tool))
            .collect();
        let tools: Vec<&Tool> = tools.iter().map(|tool| &**tool).collect();
        match self.format {
            Some(format) => print_emitted(context, &tools, format)?,
            None if context.printer.is_json() => context.printer.json(&tools)?,
            None => {
                for tool in tools {
                    context.printer.json_line(tool)?;
                }
            }
        }
        Ok(Outcome::Done)
    }
}

/// Prints tools in a format: texts one a line, unless JSON is wanted, and anything else as JSON.
pub fn print_emitted(context: &Context, tools: &[&Tool], format: Emit) -> Result<()> {
    match (format, formats::emit(tools, format)) {
        (Emit::Names | Emit::Signature, Value::Array(lines)) if !context.printer.is_json() => lines
            .iter()
            .filter_map(Value::as_str)
            .try_for_each(|line| context.printer.line(line)),
        (_, value) => context.printer.json(&value),
    }
}
