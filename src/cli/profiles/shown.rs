//! `profiles list` and `profiles show`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::{Catalog, Searcher, Tool, ToolId};

use super::{named, search_of};
use crate::cli::applied_profiles;
use crate::cli::context::{Context, Legs};
use crate::finder::ToolSearch as _;
use crate::finder::model_names::spec;
use crate::finder::toolbox::{o200k, spec_tokens};
use crate::mcp::tool_edits::{Source, origins};
use crate::printable;
use crate::profile_versions::ProfileVersion;
use crate::profiles::ToolProfile;

/// The parts of a definition of which `show` says where they come from.
const PARTS: [&str; 4] = ["title", "description", "input_schema", "output_schema"];

/// Prints a row for each profile.
pub fn list(context: &Context) -> Result<()> {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for name in context.settings.profiles.keys() {
        let profile = named(context, name)?;
        let version = version(context, name)?;
        let catalog = profile.catalog();
        let catalog = catalog.unwrap_or_else(|| context.settings.catalog.clone());
        let edits = profile
            .settings()
            .tools
            .map_or(0, |tools| tools.edits.len());
        // A catalog that is not there yet leaves the numbers open.
        let counted = match context.open_named(&catalog, Legs::Lexical) {
            Ok(found) => Some(counts(&profile, &found)),
            Err(error) => {
                context.warn(format_args!("profile {name}: {error:#}"));
                None
            }
        };
        let (tools, tokens) = counted.unzip();
        values.push(json!({
            "name": name, "catalog": catalog, "tools": tools, "tokens": tokens, "edited_tools": edits,
            "version": version.as_ref().map(about),
        }));
        let number = |number: Option<usize>| number.map_or("-".to_owned(), |n| n.to_string());
        rows.push(vec![
            name.clone(),
            catalog,
            number(tools),
            number(tokens),
            edits.to_string(),
            version.as_ref().map_or("-".to_owned(), in_words),
        ]);
    }
    if context.printer.is_json() {
        return context.printer.json(&values);
    }
    let header = [
        "profile", "catalog", "tools", "tokens", "changed", "version",
    ];
    context.printer.rows(&header, rows)
}

fn counts(profile: &ToolProfile, catalog: &Catalog) -> (usize, usize) {
    let tools = search_of(catalog, profile).tools();
    let tokens = tools.iter().map(|tool| tokens(tool));
    (tools.len(), tokens.sum())
}

fn tokens(tool: &Tool) -> usize {
    spec_tokens(&spec(tool), o200k)
}

fn version(context: &Context, name: &str) -> Result<Option<ProfileVersion>> {
    match context.settings.profiles.get(name) {
        Some(settings) => applied_profiles::in_use(context, name, settings),
        None => Ok(None),
    }
}

/// A version as JSON, without its settings.
pub fn about(version: &ProfileVersion) -> Value {
    json!({
        "version": version.version, "at_ms": version.at_ms, "digest": version.digest,
        "rolled_back_to": version.rolled_back_to,
    })
}

/// A version as text: `3 (as 1)` for a roll-back.
pub fn in_words(version: &ProfileVersion) -> String {
    match version.rolled_back_to {
        Some(earlier) => format!("{} (as {earlier})", version.version),
        None => version.version.to_string(),
    }
}

/// Prints a profile with its tools.
pub fn show(context: &Context, profile: &ToolProfile) -> Result<()> {
    let catalog = context.open(Legs::Lexical)?;
    let search = search_of(&catalog, profile);
    let searcher = catalog.searcher();
    let pins: BTreeSet<String> = profile.pins([]).into_iter().collect();
    let version = version(context, profile.name())?;
    let (mut tools, mut all_tokens) = (Vec::new(), 0);
    for tool in search.tools() {
        let tokens = tokens(&tool);
        all_tokens += tokens;
        let original = searcher.tool(&tool.id);
        tools.push(ShownTool {
            is_pinned: pins.contains(tool.id.as_str()),
            parts: original.as_ref().map(|original| sources(profile, original)),
            of_catalog: original,
            tokens,
            tool,
        });
    }
    let hidden = hidden(profile, &searcher);
    if context.printer.is_json() {
        let tools: Vec<Value> = tools.iter().map(|tool| tool.to_json(profile)).collect();
        return context.printer.json(&json!({
            "name": profile.name(), "catalog": context.settings.catalog,
            "version": version.as_ref().map(about), "tokens": all_tokens, "tools": tools, "hidden": hidden,
        }));
    }
    let mut head = format!(
        "{}: {}, {all_tokens} tokens, catalog {}",
        profile.name(),
        printable::counted(tools.len(), "tool"),
        context.settings.catalog
    );
    match &version {
        Some(version) => head += &format!(", version {}", in_words(version)),
        None => head += ", not applied yet",
    }
    context.printer.text(head)?;
    for tool in &tools {
        context.printer.text(tool.lines(profile).join("\n"))?;
    }
    for id in &hidden {
        context
            .printer
            .text(format_args!("  hidden: {}", printable::line(id)))?;
    }
    if version
        .as_ref()
        .is_some_and(|version| version.rolled_back_to.is_some())
    {
        context.printer.note(
            "the settings file says something else about this profile; the next change of the file there wins",
        )?;
    }
    Ok(())
}

/// The tools of the catalog that the profile hides.
fn hidden(profile: &ToolProfile, searcher: &Searcher) -> Vec<String> {
    let mut hidden = Vec::new();
    for (id, edit) in profile.settings().tools.unwrap_or_default().edits {
        let is_there = ToolId::parse(&id).is_ok_and(|parsed| searcher.has(&parsed));
        if edit.hide && is_there {
            hidden.push(id);
        }
    }
    hidden
}

/// Who wrote each part: `server`, `owner` (the file of servers or the words) or `profile`.
fn sources(profile: &ToolProfile, original: &Tool) -> BTreeMap<&'static str, &'static str> {
    let of_owner = origins(original);
    let of_profile = profile.edited_fields(original);
    let mut sources = BTreeMap::new();
    for part in PARTS {
        let by_file = of_owner
            .as_ref()
            .and_then(|origins| origins.fields.get(part));
        let has_words = part == "description" && original.owner_texts.description().is_some();
        let source = match by_file {
            _ if of_profile.contains(&part) => "profile",
            Some(Source::Owner) => "owner",
            _ if has_words => "owner",
            _ => "server",
        };
        sources.insert(part, source);
    }
    sources
}

struct ShownTool {
    tool: Arc<Tool>,
    /// As it is outside of the profile.
    of_catalog: Option<Arc<Tool>>,
    tokens: usize,
    is_pinned: bool,
    parts: Option<BTreeMap<&'static str, &'static str>>,
}

impl ShownTool {
    fn former_description(&self) -> Option<&str> {
        let former = self.of_catalog.as_ref()?.shown_description();
        (former != self.tool.shown_description()).then_some(former)
    }

    fn to_json(&self, profile: &ToolProfile) -> Value {
        let mut value = json!({
            "id": self.tool.id, "tokens": self.tokens, "pinned": self.is_pinned,
            "description": self.tool.shown_description(), "sources": self.parts,
        });
        if let Some(former) = self.former_description() {
            value["catalog_description"] = former.into();
        }
        if let Some(edit) = profile.edit(&self.tool.id) {
            // Their values may be secrets.
            value["fixed_arguments"] = edit.arguments.keys().cloned().collect();
            value["default_arguments"] = edit.defaults.keys().cloned().collect();
            value["result_fields"] = edit.fields.clone().into();
        }
        value
    }

    fn lines(&self, profile: &ToolProfile) -> Vec<String> {
        let pinned = if self.is_pinned { ", pinned" } else { "" };
        let id = printable::name(self.tool.id.as_str());
        let mut lines = vec![format!("  {id} ({} tokens{pinned})", self.tokens)];
        let parts = self.parts.clone().unwrap_or_default();
        for source in ["profile", "owner"] {
            let of_source = parts.iter().filter(|(_, by)| **by == source);
            let of_source: Vec<&str> = of_source.map(|(part, _)| *part).collect();
            if !of_source.is_empty() {
                lines.push(format!("    from the {source}: {}", of_source.join(", ")));
            }
        }
        let Some(edit) = profile.edit(&self.tool.id) else {
            return lines;
        };
        if edit.description.is_some() {
            let description = printable::line(self.tool.shown_description());
            lines.push(format!("    description: {description}"));
            let former = self.former_description().unwrap_or_default();
            lines.push(format!("    in the catalog: {}", printable::line(former)));
        }
        let names = |arguments: &serde_json::Map<String, Value>| -> Vec<String> {
            arguments.keys().cloned().collect()
        };
        for (what, names) in [
            ("fixed arguments", names(&edit.arguments)),
            ("default arguments", names(&edit.defaults)),
            ("fields of results", edit.fields.clone()),
        ] {
            if !names.is_empty() {
                let names = printable::line(&names.join(", "));
                lines.push(format!("    {what}: {names}"));
            }
        }
        lines
    }
}
