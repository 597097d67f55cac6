//! `toolscout show`: everything that is known of a tool.

use std::sync::Arc;

use anyhow::{Result, bail};
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Searcher, Tool, ToolId};

use super::Outcome;
use super::context::{Context, Legs};
use super::export::print_emitted;
use crate::printable;

/// Shows tools in full.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Ids, as in server/name
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Write them in this format instead: openai, openai_responses, anthropic, anthropic_reference,
    /// mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
}

impl Args {
    /// Prints the tools, in the order they were named.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let searcher = context.open(Legs::Lexical)?.searcher();
        let tools = self
            .ids
            .iter()
            .map(|id| find(&searcher, id))
            .collect::<Result<Vec<_>>>()?;
        if let Some(format) = self.format {
            let tools: Vec<&Tool> = tools.iter().map(|tool| &**tool).collect();
            print_emitted(context, &tools, format)?;
        } else if context.printer.is_json() {
            context
                .printer
                .json(&tools.iter().map(|tool| &**tool).collect::<Vec<_>>())?;
        } else {
            tools
                .iter()
                .try_for_each(|tool| context.printer.line(card(tool)))?;
        }
        Ok(Outcome::Done)
    }
}

fn find(searcher: &Searcher, id: &str) -> Result<Arc<Tool>> {
    match searcher.tool(&ToolId::parse(id)?) {
        Some(tool) => Ok(tool),
        None => {
            bail!("no tool {id:?} in this catalog; `toolscout search {id:?}` finds what is like it")
        }
    }
}

fn card(tool: &Tool) -> String {
    let mut lines = vec![
        printable::name(tool.id.as_str()),
        format!("  {}", printable::line(&formats::signature(tool))),
    ];
    lines.extend(
        tool.title
            .iter()
            .map(|title| format!("  title: {}", printable::line(title))),
    );
    if !tool.tags.is_empty() {
        lines.push(format!(
            "  tags: {}",
            printable::line(&tool.tags.join(", "))
        ));
    }
    lines.extend(hints(tool).map(|hints| format!("  hints: {hints}")));
    lines.extend(
        tool.description
            .trim()
            .lines()
            .map(|line| format!("  {}", printable::line(line))),
    );
    lines.push(format!(
        "  input: {}",
        serde_json::Value::Object(tool.input_schema.clone())
    ));
    lines.extend(
        tool.output_schema
            .clone()
            .map(|schema| format!("  output: {}", serde_json::Value::Object(schema))),
    );
    lines.join("\n")
}

/// The hints that the tool gives, for example `read-only, not destructive`.
fn hints(tool: &Tool) -> Option<String> {
    let hints = tool.annotations;
    let named = [
        ("read-only", hints.read_only_hint),
        ("destructive", hints.destructive_hint),
        ("idempotent", hints.idempotent_hint),
        ("open-world", hints.open_world_hint),
    ];
    let said: Vec<String> = named
        .into_iter()
        .filter_map(|(name, hint)| {
            hint.map(|yes| {
                if yes {
                    name.to_owned()
                } else {
                    format!("not {name}")
                }
            })
        })
        .collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hints_that_were_given_are_shown() {
        let mut tool = Tool::new("s", "t").unwrap();
        assert_eq!(hints(&tool), None);
        tool.annotations.read_only_hint = Some(true);
        tool.annotations.destructive_hint = Some(false);
        assert_eq!(hints(&tool).as_deref(), Some("read-only, not destructive"));
    }
}
