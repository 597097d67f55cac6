//! `toolscout usage`: which tools searches show and models call, and which tools nobody uses.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use toolscout_index::ToolId;
use toolscout_index::embed::table::StaticTable;
use toolscout_state::usage::UsageOfNodes;

use super::Outcome;
use super::context::{Context, Legs};
use super::store::{Connected, Place, StoreArgs, no_shared_catalog};
use crate::clock::{day_of, unix_ms};
use crate::printable::counted;
use crate::shared::SharedStore;
use crate::store::StoreError;
use crate::usage::UsageDatabase;
use crate::usage::missed::{Missed, MissedGroup, QUERIES_ARE_OFF};
use crate::usage::report::{self, Order, Period, ToolUse, Unused, UsePeriod};
use crate::usage::shadow::report::{ComparedFigure, Estimate, ShadowReport};

/// Rows that are printed where nothing else is asked for.
const DEFAULT_ROWS: usize = 20;
/// The longest time of a report, in days.
const MAX_DAYS: u32 = 3_650;

/// Shows how the tools of the catalog are used: searches that found them, calls and their success,
/// latency and tokens. `serve`, `agent` and `mcp` record this; `search` does not.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toolscout usage\n  toolscout usage --since 7d --sort errors --server github\n  toolscout usage unused --since 30d"
)]
pub struct Args {
    #[command(subcommand)]
    report: Option<ReportKind>,
    #[command(flatten)]
    of: Of,
    /// Only tools of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// What comes first: calls, searches, errors or tokens [default: calls]
    #[arg(long, value_name = "FIGURE")]
    sort: Option<Order>,
    /// At most so many tools [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum ReportKind {
    /// List the tools that no search showed and nobody called, with what their definitions cost
    #[command(
        after_help = "Examples:\n  toolscout usage unused\n  toolscout usage unused --since 90d --limit 1000 --json"
    )]
    Unused(UnusedArgs),
    /// List the requests that no tool served, in groups of one meaning; needs `usage.queries = true`
    #[command(
        after_help = "Examples:\n  toolscout usage missed\n  toolscout usage missed --since 7d --export missed.jsonl\n  toolscout usage missed --forget"
    )]
    Missed(MissedArgs),
    /// Say what the embedders, ranker, words or settings of the table `[shadow]` would change
    #[command(
        after_help = "Examples:\n  toolscout usage shadow\n  toolscout usage shadow --since 7d --json"
    )]
    Shadow(ShadowArgs),
}

#[derive(clap::Args, Debug)]
struct ShadowArgs {
    #[command(flatten)]
    of: Of,
}

#[derive(clap::Args, Debug)]
struct MissedArgs {
    #[command(flatten)]
    of: Of,
    /// At most so many groups [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write the first request of every group into a new file, for `toolscout eval judge`
    #[arg(long, value_name = "FILE", conflicts_with = "limit")]
    export: Option<PathBuf>,
    /// Delete these requests, of all times
    #[arg(long, conflicts_with_all = ["export", "limit", "since"])]
    forget: bool,
}

#[derive(clap::Args, Debug)]
struct UnusedArgs {
    #[command(flatten)]
    of: Of,
    /// Only tools of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// At most so many tools [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// What a report is about.
#[derive(clap::Args, Debug)]
struct Of {
    /// The last days, today (UTC) among them
    #[arg(long, value_name = "DAYS", default_value = "30d", value_parser = days)]
    since: u32,
    #[command(flatten)]
    store: StoreArgs,
}

/// The record of the data directory, and with a store those of its nodes.
struct Record {
    usage: UsageOfNodes,
    // After what uses it.
    _store: Option<Connected>,
}

impl Of {
    /// Reads the record, for a catalog that exists.
    fn record(&self, context: &Context) -> Result<Record> {
        let period = Period::last(self.since, day_of(unix_ms(SystemTime::now())));
        let settings = self.store.settings(context)?;
        let store = match settings.store {
            Some(_) => Some(Connected::to(&settings)?),
            None => None,
        };
        match &store {
            Some(connected) => check_shared_catalog(context, connected)?,
            None => check_catalog(context)?,
        }
        let own = match UsageDatabase::open_existing(&context.settings.data)? {
            // No server has sent it to a store: it is the record of another catalog of this name.
            Some(own) if store.is_some() && own.identity()?.is_none() => None,
            own => own,
        };
        let shared = store.as_ref();
        let shared = shared.map(|connected| Arc::clone(&connected.store) as Arc<dyn SharedStore>);
        let usage = UsageOfNodes::new(own, shared, period)?;
        Ok(Record {
            usage,
            _store: store,
        })
    }
}

impl Record {
    /// Says so if figures of other nodes are missing.
    fn warn(&self, context: &Context) {
        if let Some(reason) = &self.usage.counted().only_this_node {
            context.warn(format_args!(
                "only the record of this data directory is counted: {reason}"
            ));
        }
    }
}

/// Fails for a catalog that the store does not have. While it is away, what was recorded here is shown.
fn check_shared_catalog(context: &Context, connected: &Connected) -> Result<()> {
    let name = &context.settings.catalog;
    match connected.block_on(connected.store.find(name)) {
        Ok(Some(_)) | Err(StoreError::Unreachable(_)) => Ok(()),
        Ok(None) => Err(no_shared_catalog(name)),
        Err(error) => Err(error.into()),
    }
}

fn days(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('d').unwrap_or(text);
    match number.parse() {
        Ok(days) if (1..=MAX_DAYS).contains(&days) => Ok(days),
        _ => Err(format!("use 1d to {MAX_DAYS}d, as in 30d")),
    }
}

impl Args {
    /// Prints the report.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match &self.report {
            None => self.used(context)?,
            Some(ReportKind::Unused(args)) => args.run(context)?,
            Some(ReportKind::Missed(args)) => args.run(context)?,
            Some(ReportKind::Shadow(args)) => args.run(context)?,
        }
        Ok(Outcome::Success)
    }

    fn used(&self, context: &Context) -> Result<()> {
        let mut record = self.of.record(context)?;
        let mut tools = record.usage.tools(&context.settings.catalog)?;
        record.warn(context);
        let period = record.usage.recorded();
        // Before the totals, which are those of the tools that are asked for.
        tools.retain(|tool, _| is_of_server(tool, self.server.as_deref()));
        let totals = ToolUse::of(None, &report::total(tools.values()));
        let count = tools.len();
        // A misspelt server would otherwise look like one that nobody uses.
        if count == 0
            && let Some(server) = &self.server
        {
            context.warn(format_args!(
                "no use of a tool of server {server:?} is recorded; `toolscout usage` lists those that were used"
            ));
        }
        let sorted = report::sorted(tools, self.sort.unwrap_or_default());
        let shown = sorted.iter().take(self.limit.unwrap_or(DEFAULT_ROWS));
        let shown: Vec<ToolUse> = shown
            .map(|(tool, figures)| ToolUse::of(Some(tool.clone()), figures))
            .collect();
        if context.printer.is_json() {
            let report = json!({
                "period": period, "tools": shown, "total": count, "totals": totals,
            });
            return context.printer.json(&with_nodes(report, &record));
        }
        // The last row counts the tools that are not listed, too.
        let rows = shown.iter().chain([&totals]).map(row).collect();
        context.printer.rows(
            &[
                "searches", "first", "place", "loaded", "calls", "errors", "p50 ms", "p95 ms",
                "tokens", "tool",
            ],
            rows,
        )?;
        let listed = shown.len();
        context.printer.note(format_args!(
            "{listed} of {}; {}",
            counted(count, "tool"),
            said_period(context, &record)
        ))
    }
}

fn row(tool: &ToolUse) -> Vec<String> {
    vec![
        tool.searches.to_string(),
        tool.first.to_string(),
        figure(tool.mean_place),
        tool.injections.to_string(),
        tool.calls.to_string(),
        // Never below zero, whatever was recorded.
        (tool.calls - tool.successes.min(tool.calls)).to_string(),
        figure(tool.p50_ms),
        figure(tool.p95_ms),
        (tool.definition_tokens + tool.result_tokens).to_string(),
        tool.tool.as_deref().unwrap_or("(all tools)").to_owned(),
    ]
}

fn figure(value: Option<f64>) -> String {
    match value {
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    }
}

impl UnusedArgs {
    fn is_wanted(&self, tool: &ToolId) -> bool {
        match &self.server {
            Some(server) => tool.server() == server,
            None => true,
        }
    }

    fn run(&self, context: &Context) -> Result<()> {
        let mut record = self.of.record(context)?;
        let used = record.usage.tools(&context.settings.catalog)?;
        record.warn(context);
        let place = Place::open(&self.of.store, context, || context.options(Legs::Lexical))?;
        let searcher = place.catalog().searcher();
        context.warn_of_unknown_servers(&searcher, self.server.as_slice());
        let tools = searcher.tools().filter(|tool| self.is_wanted(&tool.id));
        let unused = Unused::of(tools, &used);
        let limit = self.limit.unwrap_or(DEFAULT_ROWS);
        let shown: Vec<_> = unused.tools.iter().take(limit).collect();
        if context.printer.is_json() {
            let report = json!({
                "period": record.usage.recorded(),
                "tools": shown,
                "total": unused.tools.len(),
                "all_tools": unused.all_tools,
                "definition_tokens": unused.definition_tokens,
                "tokens_estimated": unused.are_tokens_estimated,
                "servers": unused.servers,
            });
            return context.printer.json(&with_nodes(report, &record));
        }
        let rows = shown
            .iter()
            .map(|tool| vec![tool.definition_tokens.to_string(), tool.tool.clone()]);
        context.printer.rows(&["tokens", "tool"], rows.collect())?;
        for server in &unused.servers {
            let name = match server.server.as_str() {
                "" => "tools without a server",
                name => name,
            };
            let what = match server.unused == server.tools {
                true => format!("none of {} was used", counted(server.tools, "tool")),
                false => format!(
                    "{} of {} unused",
                    server.unused,
                    counted(server.tools, "tool")
                ),
            };
            let tokens = server.definition_tokens;
            context
                .printer
                .note(format_args!("{name}: {what}, {tokens} tokens"))?;
        }
        context.printer.note(format_args!(
            "{} of {} unused, {} tokens; {}",
            unused.tools.len(),
            counted(unused.all_tools, "tool"),
            unused.definition_tokens,
            said_period(context, &record)
        ))
    }
}

impl MissedArgs {
    fn run(&self, context: &Context) -> Result<()> {
        let catalog = &context.settings.catalog;
        let mut record = self.of.record(context)?;
        if self.forget {
            let forgotten = record.usage.forget_missed(catalog)?;
            return match context.printer.is_json() {
                true => context.printer.json(&json!({ "forgotten": forgotten })),
                false => context
                    .printer
                    .note(format_args!("{} forgotten", counted(forgotten, "request"))),
            };
        }
        let requests = record.usage.missed(catalog)?;
        record.warn(context);
        let missed = Missed::of(&requests, &*StaticTable::bundled()?);
        // What was recorded before it was switched off is shown all the same.
        if !context.settings.usage.stores_queries() {
            context.warn(QUERIES_ARE_OFF);
        }
        match &self.export {
            Some(file) => export(context, file, &missed),
            None => self.print(context, &missed, &record),
        }
    }

    fn print(&self, context: &Context, missed: &Missed, record: &Record) -> Result<()> {
        let shown = missed
            .groups
            .iter()
            .take(self.limit.unwrap_or(DEFAULT_ROWS));
        let shown: Vec<&MissedGroup> = shown.collect();
        if context.printer.is_json() {
            let report = json!({
                "stores_queries": context.settings.usage.stores_queries(),
                "groups": shown,
                "total": missed.groups.len(),
                "requests": missed.requests,
                "left_out": missed.left_out,
            });
            return context.printer.json(&with_nodes(report, record));
        }
        let mut rows = Vec::new();
        for group in &shown {
            rows.push(vec![
                group.times.to_string(),
                group.none.to_string(),
                group.possible.to_string(),
                group.not_called.to_string(),
                group.nearest.as_deref().unwrap_or("-").to_owned(),
                group.request.clone(),
            ]);
        }
        context.printer.rows(
            &[
                "times",
                "none",
                "possible",
                "not called",
                "nearest",
                "request",
            ],
            rows,
        )?;
        context.printer.note(format_args!(
            "{} of {} from {}",
            shown.len(),
            counted(missed.groups.len(), "group"),
            counted(missed.requests, "request")
        ))
    }
}

impl ShadowArgs {
    fn run(&self, context: &Context) -> Result<()> {
        let Some(plan) = context.shadow()? else {
            bail!(
                "the settings have no shadow; write a table [shadow] into the configuration file, as in `[shadow]` \
                 and `embedder = \"none\"`, and start the server again"
            );
        };
        let identity = plan.identity();
        let mut record = self.of.record(context)?;
        let days = record.usage.shadow(&identity.catalog, &identity.id)?;
        record.warn(context);
        let report = ShadowReport::of(identity, &days);
        if context.printer.is_json() {
            let report = serde_json::to_value(&report)?;
            return context.printer.json(&with_nodes(report, &record));
        }
        context.printer.rows(
            &["figure", "live", "shadow", "difference"],
            rows_of(&report),
        )?;
        context.printer.note(format_args!(
            "{} in catalog {:?}: {}",
            report.differences.join(", "),
            identity.catalog,
            report.summary
        ))
    }
}

fn rows_of(report: &ShadowReport) -> Vec<Vec<String>> {
    let overlap = report.overlap_at_5.map_or("-".to_owned(), estimate);
    vec![
        compared("called tool first", report.first_place),
        compared("reciprocal place of called tool", report.reciprocal_place),
        both(
            "called tool absent from the shadow",
            report.absent.to_string(),
        ),
        both("overlap@5", overlap),
        both("same first hit", figure(report.same_first_hit)),
        both("calls", report.calls.to_string()),
        both("searches", report.searches.to_string()),
    ]
}

fn estimate(estimate: Estimate) -> String {
    format!("{} ± {}", estimate.mean, estimate.plus_minus)
}

/// A row of a figure that live searches and the shadow have each.
fn compared(name: &str, figure: Option<ComparedFigure>) -> Vec<String> {
    match figure {
        Some(figure) => vec![
            name.to_owned(),
            figure.live.to_string(),
            figure.shadow.to_string(),
            estimate(figure.gain),
        ],
        None => both(name, "-".to_owned()),
    }
}

/// A row of a figure about both of them.
fn both(name: &str, value: String) -> Vec<String> {
    let none = "-".to_owned();
    vec![name.to_owned(), none.clone(), none, value]
}

/// Writes the first request of each group as a query without judgements.
fn export(context: &Context, file: &Path, missed: &Missed) -> Result<()> {
    let mut lines = String::new();
    for (index, group) in missed.groups.iter().enumerate() {
        let id = format!("missed-{}", index + 1);
        let line = json!({ "id": id, "query": group.request, "source": "missed" });
        lines += &format!("{line}\n");
    }
    // Not over a file that may have judgements.
    let created = OpenOptions::new().write(true).create_new(true).open(file);
    created
        .and_then(|mut created| created.write_all(lines.as_bytes()))
        .with_context(|| {
            format!(
                "--export {}: name a file that can be created",
                file.display()
            )
        })?;
    context.printer.note(format_args!(
        "{} written to {}; `toolscout eval judge` judges them",
        counted(missed.groups.len(), "query"),
        file.display()
    ))
}

/// Fails for a catalog that does not exist: a misspelt one would have no use at all.
fn check_catalog(context: &Context) -> Result<()> {
    if !context.has_catalog()? {
        // Its error names similar catalogs.
        context.open(Legs::Lexical)?;
    }
    Ok(())
}

/// A report that says whose use is counted.
fn with_nodes(mut report: Value, record: &Record) -> Value {
    let counted = record.usage.counted();
    if let Some(nodes) = counted.nodes {
        report["nodes"] = json!(nodes);
    }
    if let Some(reason) = &counted.only_this_node {
        report["only_this_node"] = json!(reason);
    }
    report
}

/// Since when there is a record, so that nobody takes its beginning for disuse.
fn said_period(context: &Context, record: &Record) -> String {
    let UsePeriod {
        since,
        recorded_since,
        recorded_days,
    } = record.usage.recorded();
    let nodes = match record.usage.counted().nodes {
        Some(nodes) => format!(" by {}", counted(nodes, "node")),
        None => String::new(),
    };
    match recorded_since {
        Some(first) => format!(
            "recorded on {}{nodes} since {since}, the first of them {first}",
            counted(recorded_days, "day")
        ),
        None if context.settings.usage.is_enabled() => format!(
            "nothing was recorded since {since}; `toolscout serve`, `agent` and `mcp` record use"
        ),
        None => "nothing was recorded, because the setting usage.enabled is false".to_owned(),
    }
}

fn is_of_server(tool: &str, server: Option<&str>) -> bool {
    let Some(server) = server else {
        return true;
    };
    ToolId::parse(tool).is_ok_and(|id| id.server() == server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_with_or_without_their_unit() {
        assert_eq!((days("30d"), days("7")), (Ok(30), Ok(7)));
        for bad in ["", "d", "0d", "3651d", "2w", "-1d"] {
            assert!(days(bad).unwrap_err().contains("30d"), "{bad}");
        }
    }
}
