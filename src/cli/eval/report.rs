//! `toolscout eval report`: shows a report that was written before, here or by a server.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::super::Outcome;
use super::super::context::Context;
use super::outputs::{all, check_output, print, write};
use super::{joined, report_tables};
use crate::eval::agent::AgentReport;
use crate::eval::agent::learning::LearningReport;
use crate::eval::report::{not_a_report, read_json, reports_of};
use crate::eval::table::{self, Style};
use crate::eval::{Report, Result as EvalResult, html};

/// Show a report of `eval --json`, or of an evaluation on a server, as tables or as a page
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval report report.json --markdown\n  toolscout eval report report.json --html report.html"
)]
pub struct ReportArgs {
    /// JSON report of `toolscout eval --json`, or of GET …/evaluations/ID/report
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write an HTML page with plots, as one file without external resources
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
}

/// A report of any kind.
enum AnyReport {
    Search(Vec<Report>),
    Agent(Vec<AgentReport>),
    Learning(Vec<LearningReport>),
}

impl ReportArgs {
    /// Prints the tables of a report, and writes its page.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        if let Some(path) = &self.html {
            check_output(path)
                .with_context(|| format!("--html {} cannot be written", path.display()))?;
        }
        let json = read_json(&self.file)?;
        // As it was written, with fields that this version may not know.
        let printed = if context.printer.is_json() {
            serde_json::to_string_pretty(&json)?
        } else {
            String::new()
        };
        // Read in any case, since a file that is no report must not be printed as one.
        let report = self.read(json)?;
        let shown = if printed.is_empty() {
            report.tables(self.style())
        } else {
            printed
        };
        let page = match &self.html {
            Some(path) => write(path, &report.page()),
            None => Ok(()),
        };
        all(vec![print(&shown), page])?;
        Ok(Outcome::Success)
    }

    /// Which kind of report it is, by the fields that only one kind has.
    fn read(&self, json: Value) -> EvalResult<AnyReport> {
        let first = json.pointer("/sets/0").unwrap_or(&json);
        let has = |field: &str| first.get(field).is_some();
        let read = if has("recurring") {
            reports_of(json).map(AnyReport::Agent)
        } else if has("held_out") {
            reports_of(json).map(AnyReport::Learning)
        } else {
            reports_of(json).map(AnyReport::Search)
        };
        read.map_err(|reason| not_a_report(&self.file, &reason))
    }

    fn style(&self) -> Style {
        if self.markdown {
            Style::Markdown
        } else {
            Style::Terminal
        }
    }
}

impl AnyReport {
    fn tables(&self, style: Style) -> String {
        match self {
            AnyReport::Search(reports) => joined([
                report_tables(reports, style),
                table::figures(reports, style),
            ]),
            AnyReport::Agent(reports) => {
                let seen = reports.iter();
                let seen = seen.map(|report| (report.set.as_str(), report.trained_on));
                joined([table::agent(reports, style), table::trained_on(seen)])
            }
            AnyReport::Learning(reports) => {
                let seen = reports.iter();
                let seen = seen.map(|report| (report.set.as_str(), report.trained_on));
                joined([table::learning(reports, style), table::trained_on(seen)])
            }
        }
    }

    fn page(&self) -> String {
        match self {
            AnyReport::Search(reports) => html::page(reports),
            AnyReport::Agent(reports) => html::agent_page(reports),
            AnyReport::Learning(reports) => html::learning_page(reports),
        }
    }
}
