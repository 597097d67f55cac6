//! `toolscout show`: a tool in full.

use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Kind, Searcher, Tool, ToolCompanion, ToolId};

use super::Outcome;
use super::context::{Context, Legs};
use super::export::print_emitted;
use crate::mcp::tool_edits::{Origins, Source, origins};
use crate::printable;
use toolscout_index::suggest::did_you_mean;

/// Shows tools in full.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout show github/create_issue\n  toolscout show github/create_issue --format signature"
)]
pub struct Args {
    /// Ids, as in server/name
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Print them in this format: openai, openai_responses, anthropic, anthropic_reference,
    /// mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
}

impl Args {
    /// Prints the tools in the order of the ids.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let searcher = context.open(Legs::Lexical)?.searcher();
        // All are looked up before the first is printed.
        let mut found = Vec::new();
        for id in &self.ids {
            found.push(find(&searcher, id)?);
        }
        let tools: Vec<&Tool> = found.iter().map(AsRef::as_ref).collect();
        if let Some(format) = self.format {
            print_emitted(context, &tools, format)?;
        } else if context.printer.is_json() {
            let shown: Vec<Value> = tools.iter().map(|tool| as_json(tool)).collect();
            context.printer.json(&shown)?;
        } else {
            for tool in tools {
                let companions = searcher.companions(&tool.id);
                context.printer.text(card(tool, &companions))?;
                if searcher.is_switched_off(&tool.id) {
                    context
                        .printer
                        .text("  switched off by your words: no search finds it")?;
                }
            }
        }
        Ok(Outcome::Success)
    }
}

fn find(searcher: &Searcher, id: &str) -> Result<Arc<Tool>> {
    if let Some(tool) = searcher.tool(&ToolId::parse(id)?) {
        return Ok(tool);
    }
    let tools: Vec<Arc<Tool>> = searcher.items().collect();
    let hint = match did_you_mean(id, tools.iter().map(|tool| tool.id.as_str())) {
        Some(similar) => similar,
        None => format!("`toolscout search {id:?}` finds similar tools"),
    };
    bail!("no tool {id:?} in this catalog; {hint}")
}

/// A tool, and where its fields come from if the owner of the server file has edited it.
fn as_json(tool: &Tool) -> Value {
    let mut shown = json!(tool);
    if let Some(origins) = origins(tool) {
        shown["origins"] = json!(origins);
    }
    shown
}

/// All fields of a tool and its companions, one per line.
fn card(tool: &Tool, companions: &[ToolCompanion]) -> String {
    let mut lines = vec![printable::name(tool.id.as_str())];
    match tool.kind {
        Kind::Tool => lines.push(format!("  {}", printable::line(&formats::signature(tool)))),
        kind => lines.push(format!("  kind: {kind}")),
    }
    if let Some(title) = &tool.title {
        lines.push(format!("  title: {}", printable::line(title)));
    }
    if !tool.tags.is_empty() {
        lines.push(format!(
            "  tags: {}",
            printable::line(&tool.tags.join(", "))
        ));
    }
    if let Some(hints) = hints(tool) {
        lines.push(format!("  hints: {hints}"));
    }
    // Line by line, so that none of them can look like a field below.
    for line in tool.description.trim().lines() {
        lines.push(format!("  {}", printable::line(line)));
    }
    for line in tool.owner_texts.description().unwrap_or_default().lines() {
        lines.push(format!("  shown: {}", printable::line(line)));
    }
    if !tool.owner_texts.aliases().is_empty() {
        let aliases = tool.owner_texts.aliases().join(", ");
        lines.push(format!("  aliases: {}", printable::line(&aliases)));
    }
    if !tool.kind.is_tool() {
        lines.extend(how_to_use(tool));
    }
    if tool.kind.is_tool() || tool.has_parameters() {
        lines.push(format!(
            "  input: {}",
            Value::Object(tool.input_schema.clone())
        ));
    }
    if let Some(schema) = &tool.output_schema {
        lines.push(format!("  output: {}", Value::Object(schema.clone())));
    }
    if let Some(origins) = origins(tool) {
        lines.extend(lines_of(&origins));
    }
    for ToolCompanion { id, reason, .. } in companions {
        let line = format!("companion: {id} ({reason})");
        lines.push(format!("  {}", printable::line(&line)));
    }
    lines.join("\n")
}

/// Where an item is that is no tool, and the text of a skill.
fn how_to_use(item: &Tool) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, key) in [
        ("uri", "uri"),
        ("uri", "uriTemplate"),
        ("type", "mimeType"),
        ("address", formats::ADDRESS),
        ("folder", formats::FOLDER),
    ] {
        if let Some(value) = item.metadata.get(key).and_then(Value::as_str) {
            lines.push(format!("  {name}: {}", printable::line(value)));
        }
    }
    let files = item.metadata.get(formats::FILES).and_then(Value::as_array);
    for file in files.into_iter().flatten().filter_map(Value::as_str) {
        lines.push(format!("  file: {}", printable::line(file)));
    }
    let body = item.metadata.get(formats::BODY).and_then(Value::as_str);
    for line in body.unwrap_or_default().lines() {
        lines.push(format!("  | {}", printable::line(line)));
    }
    lines
}

/// Where the fields of an edited tool come from.
fn lines_of(origins: &Origins) -> Vec<String> {
    let by = |source: Source| {
        let fields = origins.fields.iter().filter(|(_, by)| **by == source);
        let names: Vec<&str> = fields.map(|(field, _)| *field).collect();
        names.join(", ")
    };
    let mut lines = Vec::new();
    for (who, source) in [("owner", Source::Owner), ("server", Source::Server)] {
        let fields = by(source);
        if !fields.is_empty() {
            lines.push(format!("  from the {who}: {fields}"));
        }
    }
    let name = printable::name(&origins.server_name);
    lines.push(format!("  the server's name: {name}"));
    for line in origins
        .server_description
        .as_deref()
        .unwrap_or_default()
        .lines()
    {
        let line = printable::line(line);
        lines.push(format!("  the server's description: {line}"));
    }
    for (what, names) in [
        ("fixed arguments", &origins.fixed_arguments),
        ("default arguments", &origins.default_arguments),
        ("fields of results", &origins.result_fields),
    ] {
        if !names.is_empty() {
            let names = printable::line(&names.join(", "));
            lines.push(format!("  {what}: {names}"));
        }
    }
    lines
}

/// The hints of the tool, for example `read-only, not destructive`; `None` without any.
fn hints(tool: &Tool) -> Option<String> {
    let hints = tool.annotations;
    let values = [
        ("read-only", hints.read_only_hint),
        ("destructive", hints.destructive_hint),
        ("idempotent", hints.idempotent_hint),
        ("open-world", hints.open_world_hint),
    ];
    let mut texts = Vec::new();
    for (name, value) in values {
        match value {
            Some(true) => texts.push(name.to_owned()),
            Some(false) => texts.push(format!("not {name}")),
            None => {}
        }
    }
    if texts.is_empty() {
        return None;
    }
    Some(texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_hints_are_not_shown() {
        let mut tool = Tool::new("s", "t").unwrap();
        assert_eq!(hints(&tool), None);
        tool.annotations.read_only_hint = Some(true);
        tool.annotations.destructive_hint = Some(false);
        assert_eq!(hints(&tool).as_deref(), Some("read-only, not destructive"));
    }
}
