//! `toolscout sync --mcp`: imports the tools of MCP servers, server by server.

use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use toolscout_index::{Catalog, Changes, Tool, ToolId, Writer};

use super::super::Outcome;
use super::super::add::{WriteArgs, commit, stop_if_interrupted};
use super::super::context::{Context, Legs};
use super::super::enrich;
use super::super::exit::UsageError;
use super::super::interrupt::Interrupt;
use super::super::words::LostBefore;
use super::print_changes;
use crate::approved::{Approved, Remembered, Update};
use crate::mcp::changes::ApprovedBefore;
use crate::mcp::sync::{OfferedTools, Synced, compare, fetch_all};
use crate::mcp::{PoolConfig, ServerConfig};
use crate::printable::{self, counted};

/// Fetches the tools of every server, or of the one with this name, and writes them. A server that
/// cannot be reached is reported and keeps the tools it has.
pub fn sync(
    context: &Context,
    config: &PoolConfig,
    only: Option<&str>,
    write: &WriteArgs,
) -> Result<Outcome> {
    let mut servers = config.servers.clone();
    if let Some(only) = only {
        servers.retain(|server| server.is_called(only));
    }
    if servers.is_empty() {
        return Err(UsageError(match only {
            Some(only) => format!("no MCP server is called {only:?}"),
            None => "the configuration names no MCP servers, or only disabled ones".into(),
        })
        .into());
    }
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let offers = runtime.block_on(fetch_all(&servers, &config.connector()));
    let fetched = start.elapsed();
    let interrupt = Interrupt::listen()?;
    let catalog = if !write.dry_run {
        Some(write.open(context)?)
    } else if context.has_catalog()? {
        Some(context.open(Legs::Lexical)?)
    } else {
        // A dry run must not create the catalog; every tool then counts as added.
        None
    };
    // A dry run writes too, and its writer undoes that when it is dropped.
    let mut writer = match &catalog {
        Some(catalog) => Some(catalog.writer()?),
        None => None,
    };
    let mut report = ServersReport::default();
    let mut approvals = Vec::new();
    for (server, offer) in servers.iter().zip(offers) {
        // One server that fails does not keep the others from being written.
        let imported = offer
            .map_err(anyhow::Error::msg)
            .and_then(|offer| import(server, offer, config, catalog.as_ref(), writer.as_mut()));
        match imported {
            Ok((synced, approval)) => {
                approvals.push((&server.name, approval));
                report.add(context, &synced)?;
            }
            Err(error) => report.add_failure(context, &server.name, &format!("{error:#}")),
        }
    }
    let took_s = fetched.as_secs_f64();
    if !write.dry_run
        && let (Some(catalog), Some(mut writer)) = (&catalog, writer)
    {
        let lost_before = LostBefore::of(catalog);
        // Before the approvals, which are committed to a file of their own.
        stop_if_interrupted(&interrupt)?;
        let mut approved = Approved::open(catalog.path())?;
        for (server, Approval { update, decision }) in &approvals {
            approved.remember(server, update, *decision)?;
        }
        report.generation = Some(commit(&mut writer, &interrupt)?);
        let outcome = report.print(context, took_s, servers.len())?;
        lost_before.warn(context);
        if let Some(embedded) = write.embed(context, catalog, writer, &interrupt)? {
            embedded.print(context)?;
        }
        enrich::offer(context, catalog);
        return Ok(outcome);
    }
    report.print(context, took_s, servers.len())
}

/// Compares the offer of one server with what is approved, and writes the tools that pass. Without
/// a writer every tool counts as added.
fn import(
    server: &ServerConfig,
    offer: OfferedTools,
    config: &PoolConfig,
    catalog: Option<&Catalog>,
    writer: Option<&mut Writer>,
) -> Result<(Synced, Approval)> {
    let ServerConfig {
        name: server,
        edits,
        ..
    } = server;
    let mut warnings = edits.unknown_tools(&offer.tools);
    let remembered = match catalog {
        Some(catalog) => Approved::peek(catalog.path(), server)?,
        None => Remembered::default(),
    };
    let searcher = catalog.map(Catalog::searcher);
    let before = ApprovedBefore::of(
        server,
        searcher.as_deref(),
        remembered,
        config.limits.definitions,
    );
    let (compared, skipped) =
        compare(offer, config.on_change, &before).map_err(anyhow::Error::msg)?;
    let edited = edits.apply(compared.tools);
    warnings.extend(edited.warnings);
    let changes = match writer {
        Some(writer) => writer.sync(server, &edited.tools)?,
        None => Changes {
            added: ids(&edited.tools),
            ..Changes::default()
        },
    };
    let approval = Approval {
        update: compared.update,
        decision: compared.decision,
    };
    Ok((
        Synced {
            server: server.to_owned(),
            changes,
            flagged: compared.flags,
            skipped,
            warnings,
        },
        approval,
    ))
}

/// What to store of a server's tools once they are written.
struct Approval {
    update: Update,
    /// The last decision of a person that the list was compared with.
    decision: i64,
}

fn ids(tools: &[Tool]) -> Vec<ToolId> {
    tools.iter().map(|tool| tool.id.clone()).collect()
}

/// The result for every server.
#[derive(Default)]
struct ServersReport {
    servers: Vec<Value>,
    changes: Changes,
    failed: usize,
    generation: Option<u64>,
}

impl ServersReport {
    /// Adds a server whose tools were imported, and prints its changes.
    fn add(&mut self, context: &Context, synced: &Synced) -> Result<()> {
        print_synced(context, synced)?;
        self.count(&synced.changes);
        self.servers.push(serde_json::to_value(synced)?);
        Ok(())
    }

    /// Adds a server whose tools could not be imported, and prints a warning.
    fn add_failure(&mut self, context: &Context, server: &str, error: &str) {
        context.warn(format_args!("server {server}: {}", printable::line(error)));
        self.failed += 1;
        self.servers
            .push(json!({ "server": server, "error": error }));
    }

    fn count(&mut self, changes: &Changes) {
        self.changes.added.extend_from_slice(&changes.added);
        self.changes.changed.extend_from_slice(&changes.changed);
        self.changes.removed.extend_from_slice(&changes.removed);
        self.changes.unchanged += changes.unchanged;
    }

    fn print(&self, context: &Context, fetched_s: f64, servers: usize) -> Result<Outcome> {
        let dry_run = self.generation.is_none();
        let catalog = &context.settings.catalog;
        if context.printer.is_json() {
            let took_ms = fetched_s * 1e3;
            context.printer.json(&json!({
                "catalog": catalog, "dry_run": dry_run, "generation": self.generation,
                "servers": self.servers, "failed": self.failed, "fetch_ms": took_ms,
            }))?;
        } else {
            let Changes {
                added,
                changed,
                removed,
                unchanged,
            } = &self.changes;
            let (added, changed, removed) = (added.len(), changed.len(), removed.len());
            let servers = counted(servers, "server");
            let failed = match self.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let end = if dry_run {
                " (dry run, nothing was written)"
            } else {
                ""
            };
            context.printer.text(format_args!(
                "{catalog}: {added} added, {changed} changed, {removed} removed, {unchanged} unchanged \
                 · {servers} asked in {fetched_s:.2} s{failed}{end}"
            ))?;
        }
        Ok(if self.failed > 0 {
            Outcome::Failure
        } else {
            Outcome::Success
        })
    }
}

fn print_synced(context: &Context, synced: &Synced) -> Result<()> {
    print_changes(context, &synced.changes)?;
    for flag in &synced.flagged {
        let end = if flag.blocked {
            "it is kept out of the catalog until `toolscout review --accept` accepts it"
        } else {
            "it was imported; `toolscout review` shows it"
        };
        context.warn(format_args!("{}: {}; {end}", flag.id, flag.described()));
    }
    for warning in &synced.warnings {
        context.warn(format_args!(
            "server {}: {}",
            synced.server,
            printable::line(warning)
        ));
    }
    for reason in &synced.skipped {
        context.warn(format_args!(
            "server {}: left out {}",
            synced.server,
            printable::line(reason)
        ));
    }
    Ok(())
}
