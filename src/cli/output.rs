//! Results on stdout: a table on a terminal, plain columns elsewhere, JSON on request. Messages on
//! stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{
    Attribute, Cell, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle, Width,
};
use serde::Serialize;
use textwrap::core::display_width;
use toolscout_index::Tool;

use crate::printable::{self, excerpt, without_part_of_a_word};

/// Width of a table without a terminal and without `COLUMNS`.
const DEFAULT_WIDTH: u16 = 100;
/// A line under the header and none between rows: the first column already separates rows of
/// running text.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Most lines of one row of a table; `show` prints the whole text.
const ROW_LINES: usize = 2;
/// The spaces beside the text of a column, one on each side.
const PADDING: u16 = 2;
/// A narrower column of running text cannot be read.
const MIN_TEXT_WIDTH: usize = 10;
/// Most characters of a summary: two lines of a wide terminal.
const SUMMARY_CHARS: usize = 200;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table for people.
    Table,
    /// Tab-separated columns without a header, for other programs.
    Plain,
    /// JSON.
    Json,
}

/// Prints results in one of the three formats.
#[derive(Clone, Copy, Debug)]
pub struct Printer {
    output: Output,
}

impl Printer {
    /// A printer of this format; by default a table on a terminal and plain columns elsewhere.
    pub fn new(output: Option<Output>) -> Self {
        let output = match output {
            Some(output) => output,
            None if io::stdout().is_terminal() => Output::Table,
            None => Output::Plain,
        };
        Printer { output }
    }

    /// True when the output is a table for people.
    pub fn is_table(&self) -> bool {
        self.output == Output::Table
    }

    /// True when the output is JSON.
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

    /// Prints text that is already JSON.
    pub fn json_text(&self, json: &str) -> Result<()> {
        Ok(writeln!(io::stdout(), "{}", printable::json(json))?)
    }

    /// Prints text of one or several lines.
    pub fn text(&self, text: impl Display) -> Result<()> {
        Ok(writeln!(
            io::stdout(),
            "{}",
            printable::lines(&text.to_string())
        )?)
    }

    /// Prints rows: a table with a header, or tab-separated columns without one.
    pub fn rows(&self, header: &[&str], mut rows: Vec<Vec<String>>) -> Result<()> {
        for cell in rows.iter_mut().flatten() {
            // Tabs become spaces too, which would otherwise begin another column.
            *cell = printable::line(cell);
        }
        let mut stdout = io::stdout();
        if self.output == Output::Table {
            return Ok(writeln!(stdout, "{}", table(header, rows))?);
        }
        for row in rows {
            writeln!(stdout, "{}", row.join("\t"))?;
        }
        Ok(())
    }

    /// Prints a remark about the results: below a table, and on stderr where another program reads
    /// stdout.
    pub fn note(&self, note: impl Display) -> Result<()> {
        match self.output {
            Output::Table => self.text(note),
            Output::Plain | Output::Json => {
                print_stderr(note);
                Ok(())
            }
        }
    }
}

/// The first line of a tool's description, else of its title, shortened.
pub fn summary(tool: &Tool) -> String {
    let text = [
        tool.shown_description(),
        tool.title.as_deref().unwrap_or_default(),
    ];
    let mut lines = text.into_iter().flat_map(str::lines).map(str::trim);
    let line = lines.find(|line| !line.is_empty());
    excerpt(line.unwrap_or_default(), SUMMARY_CHARS)
}

/// Prints a message of one or several lines on stderr.
pub fn print_stderr(message: impl Display) {
    // A closed stderr leaves no place to report that it is closed.
    let _ = writeln!(io::stderr(), "{}", printable::lines(&message.to_string()));
}

/// True when stderr is a terminal and `NO_COLOR` does not forbid colours.
pub fn colour_wanted() -> bool {
    styles_allowed() && io::stderr().is_terminal()
}

/// The convention of no-color.org: set and not empty means no colours.
fn styles_allowed() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic);
    let columns = std::env::var("COLUMNS").ok();
    let width = width(table.width(), columns.as_deref());
    table.set_width(width);
    table.set_header(header.iter().map(|title| heading(title)));
    // Wrapped here, because the table would break a long text in the middle of a word.
    let text_width = width_of_last_column(header, &rows, width);
    for mut cells in rows {
        if let Some(text) = cells.last_mut() {
            *text = in_lines(text, text_width);
        }
        let mut row = Row::from(cells);
        row.max_height(ROW_LINES);
        table.add_row(row);
    }
    keep_narrow_columns_whole(&mut table, width);
    table.trim_fmt()
}

/// The width of a table, from the terminal or from `COLUMNS`. A pseudo-terminal that nobody has
/// sized (`script`, continuous integration) reports 0.
fn width(terminal: Option<u16>, columns: Option<&str>) -> u16 {
    if let Some(width) = terminal
        && width > 0
    {
        return width;
    }
    match columns.unwrap_or_default().parse() {
        Ok(width) if width > 0 => width,
        _ => DEFAULT_WIDTH,
    }
}

/// Lets only the last column wrap, because it holds running text. The others keep their width, each
/// up to half of the table.
fn keep_narrow_columns_whole(table: &mut Table, width: u16) {
    let content = table.column_max_content_widths();
    let narrow = content.len().saturating_sub(1);
    for (index, &needed) in content.iter().take(narrow).enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                (needed + PADDING).min(width / 2),
            )));
        }
    }
}

/// What the other columns leave of a table to the last one.
fn width_of_last_column(header: &[&str], rows: &[Vec<String>], width: u16) -> usize {
    let width = usize::from(width);
    let narrow = header.len().saturating_sub(1);
    let mut others = 0;
    for (column, title) in header.iter().take(narrow).enumerate() {
        let mut needed = display_width(title);
        for cell in rows.iter().filter_map(|row| row.get(column)) {
            needed = needed.max(display_width(cell));
        }
        // And a column between it and the next one.
        others += (needed + usize::from(PADDING)).min(width / 2) + 1;
    }
    let left = width.saturating_sub(others + usize::from(PADDING));
    left.max(MIN_TEXT_WIDTH)
}

/// A text in at most [`ROW_LINES`] lines of whole words.
fn in_lines(text: &str, width: usize) -> String {
    let mut lines = textwrap::wrap(text, width);
    if lines.len() <= ROW_LINES {
        return lines.join("\n");
    }
    lines.truncate(ROW_LINES);
    if let Some(last) = lines.last_mut() {
        // Room for the dots, within which no part of a word is left.
        let mut short = last.trim_end();
        while display_width(short) >= width {
            let (end, _) = short.char_indices().next_back().unwrap_or_default();
            let (whole, rest) = short.split_at(end);
            short = without_part_of_a_word(whole, rest);
        }
        *last = format!("{short}…").into();
    }
    lines.join("\n")
}

fn heading(title: &str) -> Cell {
    let cell = Cell::new(title);
    if styles_allowed() {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_gets_the_default_width() {
        for (terminal, columns, expected) in [
            (Some(80), Some("120"), 80),
            (Some(0), Some("120"), 120),
            (Some(0), Some("0"), DEFAULT_WIDTH),
            (None, None, DEFAULT_WIDTH),
        ] {
            assert_eq!(
                width(terminal, columns),
                expected,
                "{terminal:?} {columns:?}"
            );
        }
    }

    #[test]
    fn a_long_text_ends_after_a_whole_word_and_within_the_width() {
        let text =
            "Finish a review of a pull request: approve it, ask for changes, or leave remarks.";
        for (width, expected) in [
            (100, text),
            (
                48,
                "Finish a review of a pull request: approve it,\nask for changes, or leave remarks.",
            ),
            (
                44,
                "Finish a review of a pull request: approve\nit, ask for changes, or leave remarks.",
            ),
            (23, "Finish a review of a\npull request: approve…"),
            (16, "Finish a review\nof a pull…"),
        ] {
            assert_eq!(in_lines(text, width), expected, "{width}");
        }
        assert_eq!(
            in_lines("按关键词、标签或日期范围在全部笔记中查找", 12),
            "按关键词、标\n签或日期范…"
        );
        assert_eq!(
            in_lines(&"x".repeat(50), 10),
            format!("{}\n{}…", "x".repeat(10), "x".repeat(9))
        );
    }

    #[test]
    fn a_summary_is_the_first_line_with_text() {
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
