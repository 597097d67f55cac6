//! `toolscout eval diff`: two reports compared query by query.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::joined;
use super::outputs::{all, check_output, print, write};
use crate::eval::diff::{DiffPlan, SetDiff, diff};
use crate::eval::html;
use crate::eval::metrics::read_list;
use crate::eval::table::{self, Style};

/// Compare two JSON reports query by query, with significance and the queries that moved most
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout eval diff before.json after.json\n  toolscout eval diff a.json b.json --arms hybrid:hybrid-rrf --metrics ndcg@10,AP --json diff.json"
)]
pub struct DiffArgs {
    /// JSON report of `toolscout eval --json`
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The report to compare with it
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Arms to compare; X:Y compares X of the first report with Y of the second [default: those
    /// that both have]
    #[arg(long, value_delimiter = ',', value_name = "ARMS")]
    arms: Vec<String>,
    /// Metrics to compare [default: each at its deepest cut-off]
    #[arg(long, value_name = "METRICS")]
    metrics: Option<String>,
    /// Seed of the tests
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write the comparison as JSON, `-` for stdout
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write an HTML page with plots, as one file without external resources
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the tables as Markdown
    #[arg(long)]
    markdown: bool,
}

impl DiffArgs {
    /// Compares, prints and writes.
    pub(super) fn run(&self, context: &Context) -> Result<Outcome> {
        // On stdout JSON takes the place of the tables.
        let is_printed =
            self.json.as_deref() == Some("-") || self.json.is_none() && context.printer.is_json();
        let file = self.json.as_deref().filter(|path| *path != "-");
        if let Some(path) = file {
            check_output(path.as_ref())
                .with_context(|| format!("--json {path} cannot be written"))?;
        }
        if let Some(path) = &self.html {
            check_output(path)
                .with_context(|| format!("--html {} cannot be written", path.display()))?;
        }
        let metrics = match &self.metrics {
            Some(names) => read_list(names)?,
            None => Vec::new(),
        };
        let mut arms = Vec::new();
        for text in &self.arms {
            arms.push(pair(text)?);
        }
        let plan = DiffPlan {
            arms,
            metrics,
            seed: self.seed,
        };
        let found = diff(&self.a, &self.b, &plan)?;
        let json = serde_json::to_string_pretty(&found)?;
        // Both are tried before either's error is reported.
        let page = match &self.html {
            Some(path) => write(path, &html::diff_page(&found)),
            None => Ok(()),
        };
        if is_printed {
            all(vec![print(&json), page])?;
            return Ok(Outcome::Success);
        }
        let written = match file {
            Some(path) => write(path.as_ref(), &format!("{json}\n")),
            None => Ok(()),
        };
        all(vec![print(&self.tables(&found.sets)), written, page])?;
        Ok(Outcome::Success)
    }

    fn tables(&self, sets: &[SetDiff]) -> String {
        let style = if self.markdown {
            Style::Markdown
        } else {
            Style::Terminal
        };
        let remarks: Vec<String> = sets.iter().filter_map(remarks).collect();
        joined([
            table::diff(sets, style),
            remarks.join("\n"),
            table::moved(sets, style),
        ])
    }
}

/// What has to be said of a set, on one line.
fn remarks(set: &SetDiff) -> Option<String> {
    let mut remarks = set.remarks.clone();
    if set.left_out > 0 {
        remarks.push(format!(
            "{} queries left out, which only one report has or which differ",
            set.left_out
        ));
    }
    if remarks.is_empty() {
        return None;
    }
    Some(format!("{}: {}", set.set, remarks.join("; ")))
}

/// The arms of `X:Y`, or of `X` in both reports.
fn pair(text: &str) -> Result<(String, String)> {
    let (a, b) = text.split_once(':').unwrap_or((text, text));
    if a.is_empty() || b.is_empty() {
        let message = format!("--arms {text:?}: write ARM, or ARM:ARM for arms of other names");
        return Err(UsageError(message).into());
    }
    Ok((a.to_owned(), b.to_owned()))
}
