//! `toolscout review`: what changed in the tools of MCP servers, to accept or to block.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use toolscout_index::{Catalog, Searcher, Tool, ToolId};

use super::Outcome;
use super::agent::user;
use super::context::{Context, Legs};
use super::exit::UsageError;
use crate::approved::{Approved, BlockedBy, ChangeKind, ToolChange, Undecided};
use crate::gate::audit::{AuditLog, FILE_NAME};
use crate::mcp::inspect::OtherTools;
use crate::mcp::review::{Review, Reviewed, Verdict, decide, definition_in_catalog, findings_of};
use crate::printable::{counted, excerpt};

/// Most characters of a text in the list; --json prints all of it.
const SHOWN_CHARS: usize = 400;

/// Lists what changed in the tools of MCP servers since it was approved, and accepts changes or
/// blocks tools. A blocked tool is neither found nor called until it is accepted.
///
/// `+` is a new tool, `~` a changed one and `-` one that is no longer offered.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout review\n  toolscout review --accept notes/search_notes --block notes/delete_note"
)]
pub struct Args {
    /// Only the changes of this server (repeatable)
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Accept the change of this tool, or lift its block (repeatable)
    #[arg(long, value_name = "ID")]
    accept: Vec<String>,
    /// Block this tool (repeatable)
    #[arg(long, value_name = "ID")]
    block: Vec<String>,
    /// Accept every change of this server; tools that a person has blocked stay so (repeatable)
    #[arg(long, value_name = "SERVER")]
    accept_all: Vec<String>,
}

impl Args {
    /// Lists the changes, or decides on them.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let catalog = context.open(Legs::Lexical)?;
        let decides =
            !(self.accept.is_empty() && self.block.is_empty() && self.accept_all.is_empty());
        match (decides, self.server.is_empty()) {
            (true, true) => apply(context, &catalog, &self.review()?)?,
            (true, false) => {
                let message = "--server limits the list; name what to decide on without it";
                return Err(UsageError(message.into()).into());
            }
            (false, _) => list(context, &catalog, &self.server)?,
        }
        Ok(Outcome::Success)
    }

    fn review(&self) -> Result<Review> {
        let mut verdicts = BTreeMap::new();
        for id in &self.accept {
            verdicts.insert(ToolId::parse(id)?, (Verdict::Accept, None));
        }
        for id in &self.block {
            let before = verdicts.insert(ToolId::parse(id)?, (Verdict::Block, None));
            if let Some((Verdict::Accept, _)) = before {
                bail!("{id} is to be accepted and blocked; name it once");
            }
        }
        Ok(Review {
            verdicts,
            accept_all: self.accept_all.iter().cloned().collect(),
        })
    }
}

/// Stores the decisions, and brings the catalog up to them.
fn apply(context: &Context, catalog: &Catalog, review: &Review) -> Result<()> {
    // Before the decision is stored, so that a catalog that is being written refuses all of it.
    let mut writer = catalog.writer()?;
    let audit = AuditLog::open(&context.settings.data.join(FILE_NAME))?;
    let reviewed = decide(catalog.path(), &catalog.searcher(), review)?;
    // Before the catalog follows: a decision in force that the log lacks could not be explained.
    for tool in &reviewed.tools {
        audit.append(&tool.audited(&context.settings.catalog, &user()))?;
    }
    writer.remove(&reviewed.remove)?;
    writer.upsert(&reviewed.upsert)?;
    let generation = writer.commit()?;
    print_decided(context, &reviewed, generation)
}

fn print_decided(context: &Context, reviewed: &Reviewed, generation: u64) -> Result<()> {
    let (mut accepted, mut blocked) = (Vec::new(), Vec::new());
    for tool in &reviewed.tools {
        match tool.verdict {
            Verdict::Accept => accepted.push(&tool.id),
            Verdict::Block => blocked.push(&tool.id),
        }
    }
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "accepted": accepted, "blocked": blocked, "generation": generation,
        }));
    }
    for tool in &reviewed.tools {
        let done = match tool.verdict {
            Verdict::Accept => "accepted",
            Verdict::Block => "blocked",
        };
        context.printer.text(format_args!("{done} {}", tool.id))?;
    }
    context.printer.note(format_args!(
        "{}: {} accepted, {} blocked",
        context.settings.catalog,
        accepted.len(),
        blocked.len()
    ))
}

fn list(context: &Context, catalog: &Catalog, servers: &[String]) -> Result<()> {
    let mut changes = match Approved::open_existing(catalog.path())? {
        Some(approved) => approved.undecided()?,
        None => Undecided::new(),
    };
    let servers: BTreeSet<&str> = servers.iter().map(String::as_str).collect();
    changes.retain(|id, _| servers.is_empty() || servers.contains(id.server()));
    let searcher = catalog.searcher();
    // Findings also tell of a text that names a tool of another server.
    let names = OtherTools::of(searcher.ids_after(None));
    if context.printer.is_json() {
        let mut listed = Vec::new();
        for (id, change) in &changes {
            listed.push(as_json(&searcher, &names, id, change));
        }
        return context.printer.json(&json!({ "changes": listed }));
    }
    let mut blocked = 0;
    for (id, change) in &changes {
        context.printer.text(card(&searcher, &names, id, change))?;
        blocked += usize::from(change.blocked_by.is_some());
    }
    context.printer.note(format_args!(
        "{}: {}, {blocked} blocked",
        context.settings.catalog,
        counted(changes.len(), "change")
    ))
}

fn as_json(searcher: &Searcher, names: &OtherTools, id: &ToolId, change: &ToolChange) -> Value {
    let in_catalog = definition_in_catalog(searcher, id, change);
    let findings = findings_of(change, in_catalog.as_ref(), names);
    json!({
        "id": id, "kind": change.kind, "parts": change.parts(), "blocked_by": change.blocked_by,
        "since_ms": change.since_ms, "before": change.approved.as_deref(),
        "after": change.current(in_catalog.as_ref()).map(|tool| &**tool), "findings": findings,
    })
}

/// A change with what it changes, one line each.
fn card(searcher: &Searcher, names: &OtherTools, id: &ToolId, change: &ToolChange) -> String {
    let parts = change.parts();
    let mut head = format!("{} {id}", sign(change));
    if !parts.is_empty() {
        head = format!("{head}: {}", parts.join(" and "));
    }
    match change.blocked_by {
        Some(BlockedBy::Person) => head += " (blocked by a person)",
        Some(BlockedBy::Setting) => head += " (blocked until it is accepted)",
        None => {}
    }
    let in_catalog = definition_in_catalog(searcher, id, change);
    let (before, after) = (
        change.approved.as_ref(),
        change.current(in_catalog.as_ref()),
    );
    let mut lines = vec![head];
    for part in parts {
        if let Some(tool) = before {
            lines.push(format!("  - {}", text(tool, part)));
        }
        if let Some(tool) = after {
            lines.push(format!("  + {}", text(tool, part)));
        }
    }
    for finding in findings_of(change, in_catalog.as_ref(), names) {
        let (kind, path) = (finding.kind.described(), &finding.path);
        lines.push(format!("  ! {kind} ({path}): {}", finding.text));
    }
    lines.join("\n")
}

fn sign(change: &ToolChange) -> char {
    match change.kind {
        ChangeKind::New => '+',
        ChangeKind::Changed => '~',
        ChangeKind::Removed => '-',
    }
}

/// A part of a definition, as the protocol names it.
fn text(tool: &Tool, part: &str) -> String {
    let text = match part {
        "title" => tool.title.clone().unwrap_or_default(),
        "description" => tool.description.clone(),
        "inputSchema" => json!(tool.input_schema).to_string(),
        "outputSchema" => json!(tool.output_schema).to_string(),
        // The only other part is that of the hints.
        _ => json!(tool.annotations).to_string(),
    };
    excerpt(&text, SHOWN_CHARS)
}
