//! `toolscout usage`: which tools searches show and models call, and which tools nobody uses.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::json;
use toolscout_index::ToolId;
use toolscout_index::embed::table::StaticTable;

use super::Outcome;
use super::context::{Context, Legs};
use crate::clock::{day_of, unix_ms};
use crate::printable::counted;
use crate::usage::missed::{Missed, MissedGroup, QUERIES_ARE_OFF};
use crate::usage::report::{self, Order, Period, ToolUse, Unused, UsePeriod};
use crate::usage::shadow::report::{ComparedFigure, Estimate, ShadowReport};
use crate::usage::{ToolFigures, UsageDatabase};

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
    since: Since,
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
    since: Since,
}

#[derive(clap::Args, Debug)]
struct MissedArgs {
    #[command(flatten)]
    since: Since,
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
    since: Since,
    /// Only tools of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// At most so many tools [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(clap::Args, Clone, Copy, Debug)]
struct Since {
    /// The last days, today (UTC) among them
    #[arg(long, value_name = "DAYS", default_value = "30d", value_parser = days)]
    since: u32,
}

impl Since {
    fn period(self) -> Period {
        Period::last(self.since, day_of(unix_ms(SystemTime::now())))
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
        let recorded = Record::read(context, self.since.period())?;
        let mut tools = recorded.tools;
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
            return context.printer.json(&json!({
                "period": recorded.period, "tools": shown, "total": count, "totals": totals,
            }));
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
            said_period(context, &recorded.period)
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
        let recorded = Record::read(context, self.since.period())?;
        let searcher = context.open(Legs::Lexical)?.searcher();
        context.warn_of_unknown_servers(&searcher, self.server.as_slice());
        let tools = searcher.tools().filter(|tool| self.is_wanted(&tool.id));
        let unused = Unused::of(tools, &recorded.tools);
        let limit = self.limit.unwrap_or(DEFAULT_ROWS);
        let shown: Vec<_> = unused.tools.iter().take(limit).collect();
        if context.printer.is_json() {
            return context.printer.json(&json!({
                "period": recorded.period,
                "tools": shown,
                "total": unused.tools.len(),
                "all_tools": unused.all_tools,
                "definition_tokens": unused.definition_tokens,
                "tokens_estimated": unused.are_tokens_estimated,
                "servers": unused.servers,
            }));
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
            said_period(context, &recorded.period)
        ))
    }
}

impl MissedArgs {
    fn run(&self, context: &Context) -> Result<()> {
        check_catalog(context)?;
        let catalog = &context.settings.catalog;
        let store = UsageDatabase::open_existing(&context.settings.data)?;
        if self.forget {
            let forgotten = match store {
                Some(mut store) => store.forget_missed(catalog)?,
                None => 0,
            };
            return match context.printer.is_json() {
                true => context.printer.json(&json!({ "forgotten": forgotten })),
                false => context
                    .printer
                    .note(format_args!("{} forgotten", counted(forgotten, "request"))),
            };
        }
        let period = self.since.period();
        let requests = match &store {
            Some(store) => store.missed(catalog, period.since)?,
            None => Vec::new(),
        };
        let missed = Missed::of(&requests, &*StaticTable::bundled()?);
        // What was recorded before it was switched off is shown all the same.
        if !context.settings.usage.stores_queries() {
            context.warn(QUERIES_ARE_OFF);
        }
        match &self.export {
            Some(file) => export(context, file, &missed),
            None => self.print(context, &missed),
        }
    }

    fn print(&self, context: &Context, missed: &Missed) -> Result<()> {
        let shown = missed
            .groups
            .iter()
            .take(self.limit.unwrap_or(DEFAULT_ROWS));
        let shown: Vec<&MissedGroup> = shown.collect();
        if context.printer.is_json() {
            return context.printer.json(&json!({
                "stores_queries": context.settings.usage.stores_queries(),
                "groups": shown,
                "total": missed.groups.len(),
                "requests": missed.requests,
                "left_out": missed.left_out,
            }));
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
        let store = UsageDatabase::open_existing(&context.settings.data)?;
        let since = self.since.period().since;
        let days = match &store {
            Some(store) => store.shadow(&identity.catalog, &identity.id, since)?,
            None => Vec::new(),
        };
        let report = ShadowReport::of(identity, &days);
        if context.printer.is_json() {
            return context.printer.json(&report);
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

/// What is recorded of the catalog of the settings.
struct Record {
    tools: BTreeMap<String, ToolFigures>,
    period: UsePeriod,
}

impl Record {
    fn read(context: &Context, period: Period) -> Result<Self> {
        check_catalog(context)?;
        let store = UsageDatabase::open_existing(&context.settings.data)?;
        let tools = match &store {
            Some(store) => store.tools(&context.settings.catalog, period.since)?,
            None => BTreeMap::new(),
        };
        Ok(Record {
            tools,
            period: period.recorded(store.as_ref())?,
        })
    }
}

/// Since when there is a record, so that nobody takes its beginning for disuse.
fn said_period(context: &Context, period: &UsePeriod) -> String {
    let since = &period.since;
    match &period.recorded_since {
        Some(first) => format!(
            "recorded on {} since {since}, the first of them {first}",
            counted(period.recorded_days, "day")
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
