//! Results on stdout: a table on a terminal, plain columns elsewhere, JSON on demand. Progress on
//! stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{
    Attribute, Cell, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle, Width,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use toolscout_index::Tool;

use crate::printable;

/// Width of a table where there is no terminal to ask and `COLUMNS` does not say.
const DEFAULT_WIDTH: u16 = 110;
/// A line under the header and none elsewhere: rows of running text are told apart by their first
/// column.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Lines of one row of a table; the rest of a long text is in `show`.
const ROW_LINES: usize = 2;
/// Characters of a summary: two lines of a wide terminal.
const SUMMARY_CHARS: usize = 200;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table drawn for people.
    Table,
    /// Tab-separated columns without a header, for other programs.
    Plain,
    /// JSON.
    Json,
}

/// Prints results in one of the three ways.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    output: Output,
}

impl Printer {
    /// A printer of this kind, by default the one that fits stdout.
    pub fn new(output: Option<Output>) -> Self {
        let fitting = || {
            if io::stdout().is_terminal() {
                Output::Table
            } else {
                Output::Plain
            }
        };
        Printer {
            output: output.unwrap_or_else(fitting),
        }
    }

    /// True when JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Prints one JSON value.
    pub fn json(&self, value: &impl Serialize) -> Result<()> {
        self.json_text(&serde_json::to_string_pretty(value)?)
    }

    /// Prints one JSON value on a line of its own.
    pub fn json_line(&self, value: &impl Serialize) -> Result<()> {
        self.json_text(&serde_json::to_string(value)?)
    }

    /// Prints JSON that is written already.
    pub fn json_text(&self, json: &str) -> Result<()> {
        Ok(writeln!(io::stdout(), "{}", printable::json(json))?)
    }

    /// Prints one line, or several.
    pub fn line(&self, line: impl Display) -> Result<()> {
        Ok(writeln!(
            io::stdout(),
            "{}",
            printable::lines(&line.to_string())
        )?)
    }

    /// Prints rows: under a header in a table, or tab-separated and bare.
    pub fn rows(&self, header: &[&str], rows: Vec<Vec<String>>) -> Result<()> {
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|row| row.iter().map(|cell| printable::line(cell)).collect())
            .collect();
        let mut stdout = io::stdout();
        if self.output == Output::Table {
            return Ok(writeln!(stdout, "{}", drawn(header, rows))?);
        }
        for row in rows {
            writeln!(stdout, "{}", row.join("\t"))?;
        }
        Ok(())
    }

    /// Says something about the results: below them for people, on stderr where another program
    /// reads them.
    pub fn note(&self, note: impl Display) -> Result<()> {
        match self.output {
            Output::Table => self.line(note),
            Output::Plain | Output::Json => {
                tell(note);
                Ok(())
            }
        }
    }
}

/// The beginning of what a tool says of itself, on one line.
pub fn summary(tool: &Tool) -> String {
    let text = [
        tool.description.as_str(),
        tool.title.as_deref().unwrap_or_default(),
    ];
    let line = text
        .iter()
        .flat_map(|text| text.lines())
        .map(str::trim)
        .find(|line| !line.is_empty());
    shortened(line.unwrap_or_default(), SUMMARY_CHARS)
}

/// Says something on stderr, in one line or several.
pub fn tell(message: impl Display) {
    // Nobody is left to be told that stderr is gone.
    let _ = writeln!(io::stderr(), "{}", printable::lines(&message.to_string()));
}

/// True when colours and bold type may be used on the terminal.
pub fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stderr().is_terminal()
}

/// A bar that counts items or bytes; hidden when stderr is no terminal.
pub fn bar(message: impl Into<String>, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    bar.set_message(printable::line(&message.into()));
    bar
}

fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

fn drawn(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic);
    let width = match table.width() {
        Some(width) => width,
        None => std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok())
            .unwrap_or(DEFAULT_WIDTH),
    };
    table.set_width(width);
    table.set_header(header.iter().map(|title| heading(title)));
    for cells in rows {
        let mut row = Row::from(cells);
        row.max_height(ROW_LINES);
        table.add_row(row);
    }
    keep_narrow_columns_whole(&mut table, width);
    table.trim_fmt()
}

/// Only the last column, which holds running text, is to be wrapped; the others up to a share of
/// the width.
fn keep_narrow_columns_whole(table: &mut Table, width: u16) {
    let content = table.column_max_content_widths();
    let narrow = content.len().saturating_sub(1);
    for (index, &needed) in content.iter().take(narrow).enumerate() {
        if let Some(column) = table.column_mut(index) {
            // Padding of one on each side.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                (needed + 2).min(width / 2),
            )));
        }
    }
}

fn heading(title: &str) -> Cell {
    let cell = Cell::new(title);
    if std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_first_line_that_says_something() {
        let tool = Tool::new("s", "t")
            .unwrap()
            .with_description("\n  Sends mail.\nAt once.");
        assert_eq!(summary(&tool), "Sends mail.");
        let wordy = Tool::new("s", "t")
            .unwrap()
            .with_description("é".repeat(500));
        assert_eq!(summary(&wordy).chars().count(), SUMMARY_CHARS + 1);
    }
}
