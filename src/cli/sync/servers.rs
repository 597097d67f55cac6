//! `toolscout sync --mcp`: takes in what MCP servers offer, server by server.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use toolscout_index::{Changes, Options, ToolId, Writer};

use super::super::add::How;
use super::super::context::{Context, Legs};
use super::super::{Outcome, Usage};
use super::print;
use crate::mcp::PoolConfig;
use crate::mcp::approved::{Approved, Records};
use crate::mcp::changes::{Before, Flag};
use crate::mcp::sync::{Offer, Synced, compare, fetch_all};
use crate::printable;

/// Asks the servers, or the one of this name, and writes what they offer. Servers that cannot be
/// reached are told and keep the tools they have.
pub fn sync(
    context: &Context,
    config: &PoolConfig,
    only: Option<&str>,
    how: &How,
) -> Result<Outcome> {
    let servers: Vec<_> = config
        .servers
        .iter()
        .filter(|server| only.is_none_or(|only| server.name == only))
        .cloned()
        .collect();
    if servers.is_empty() {
        return Err(Usage(match only {
            Some(only) => format!("no MCP server is called {only:?}"),
            None => "the configuration names no MCP server that is not disabled".into(),
        })
        .into());
    }
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let offers = runtime.block_on(fetch_all(&servers, &config.limits));
    let fetched = start.elapsed();
    let legs = if how.dry_run {
        Legs::Lexical
    } else {
        how.legs()
    };
    let catalog = match how.dry_run
        && !context
            .data_dir()
            .catalogs()?
            .contains(&context.settings.catalog)
    {
        true => None,
        false => Some(open(context, how, legs)?),
    };
    let mut writer = catalog
        .as_ref()
        .map(|catalog| catalog.writer())
        .transpose()?;
    let mut report = ServersReport::default();
    let mut approvals = Vec::new();
    for (server, offer) in servers.iter().zip(offers) {
        let taken = offer.and_then(|offer| {
            take_in(
                &server.name,
                offer,
                config,
                catalog.as_ref(),
                writer.as_mut(),
            )
            .map_err(|error| format!("{error:#}"))
        });
        let taken = taken.map(|(synced, approval)| {
            approvals.push((&server.name, approval));
            synced
        });
        report.add(context, &server.name, taken)?;
    }
    if !how.dry_run
        && let (Some(catalog), Some(writer)) = (&catalog, &mut writer)
    {
        let mut approved = Approved::open(catalog.path())?;
        for (server, Approval { records, forgotten }) in &approvals {
            approved.remember(server, records, forgotten)?;
        }
        report.generation = Some(writer.commit()?);
        report.embedded = how
            .embed(context, writer)?
            .map(|embedded| embedded.to_string());
    }
    report.print(context, fetched.as_secs_f64(), servers.len())
}

fn open(context: &Context, how: &How, legs: Legs) -> Result<toolscout_index::Catalog> {
    match how.dry_run {
        true => Ok(context
            .data_dir()
            .open(&context.settings.catalog, Options::default())?),
        false => context.open_or_create(legs),
    }
}

fn take_in(
    server: &str,
    offer: Offer,
    config: &PoolConfig,
    catalog: Option<&toolscout_index::Catalog>,
    writer: Option<&mut Writer>,
) -> Result<(Synced, Approval)> {
    let records = catalog
        .map(|catalog| Approved::peek(catalog.path(), server))
        .transpose()?
        .unwrap_or_default();
    let searcher = catalog.map(|catalog| catalog.searcher());
    let before = Before::of(
        server,
        searcher.as_deref(),
        records,
        config.limits.definitions,
    );
    let (judged, skipped) =
        compare(offer, config.on_change, &before).map_err(anyhow::Error::msg)?;
    let changes = match writer {
        Some(writer) => writer.sync(server, &judged.tools)?,
        None => Changes {
            added: ids(&judged.tools),
            ..Changes::default()
        },
    };
    let approval = Approval {
        records: judged.records,
        forgotten: judged.forgotten,
    };
    Ok((
        Synced {
            server: server.to_owned(),
            changes,
            flagged: judged.flags,
            skipped,
        },
        approval,
    ))
}

/// What is to be remembered of a server's tools once they are written.
struct Approval {
    records: Records,
    forgotten: BTreeSet<ToolId>,
}

fn ids(tools: &[toolscout_index::Tool]) -> Vec<ToolId> {
    tools.iter().map(|tool| tool.id.clone()).collect()
}

/// What the servers gave.
#[derive(Default)]
struct ServersReport {
    servers: Vec<Value>,
    changes: Changes,
    failed: usize,
    generation: Option<u64>,
    embedded: Option<String>,
}

impl ServersReport {
    /// Tells of one server.
    fn add(
        &mut self,
        context: &Context,
        server: &str,
        taken: Result<Synced, String>,
    ) -> Result<()> {
        match taken {
            Ok(synced) => {
                tell(context, &synced)?;
                self.count(&synced.changes);
                self.servers.push(serde_json::to_value(&synced)?);
            }
            Err(error) => {
                context.warn(format_args!("server {server}: {}", printable::line(&error)));
                self.failed += 1;
                self.servers
                    .push(json!({ "server": server, "error": error }));
            }
        }
        Ok(())
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
            let failed = if self.failed > 0 {
                format!(", {} failed", self.failed)
            } else {
                String::new()
            };
            let end = match &self.embedded {
                _ if dry_run => " (dry run, nothing was written)".to_owned(),
                Some(embedded) => format!(", {embedded}"),
                None => String::new(),
            };
            context.printer.line(format_args!(
                "{catalog}: {added} added, {changed} changed, {removed} removed, {unchanged} unchanged \
                 · {servers} servers asked in {fetched_s:.2} s{failed}{end}"
            ))?;
        }
        Ok(if self.failed > 0 {
            Outcome::Amiss
        } else {
            Outcome::Done
        })
    }
}

fn tell(context: &Context, synced: &Synced) -> Result<()> {
    print(context, &synced.changes)?;
    for Flag { id, parts, blocked } in &synced.flagged {
        let what = parts.join(" and ");
        let end = if *blocked {
            "was not taken in; --on-change accept takes it in"
        } else {
            "was taken in"
        };
        context.warn(format_args!(
            "{id} changed after it was approved: its {what}; this {end}"
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
