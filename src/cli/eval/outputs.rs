//! Where results of a measurement go. Places are checked before the work, and one that fails takes
//! no other result with it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;

use super::super::context::Context;
use super::super::exit::error_message;
use super::super::output::print_stderr;
use super::Args;
use crate::eval::{Evaluation, Report, html, report, trec};
use crate::printable;

impl Args {
    /// Makes the folders of the output files, and fails if a file cannot be written.
    pub(super) fn check_outputs(&self) -> Result<()> {
        let json = self.json.as_deref().filter(|path| *path != "-");
        let files = [
            ("--json", json.map(Path::new)),
            ("--trec", self.trec.as_deref()),
            ("--html", self.html.as_deref()),
            ("--features", self.features.as_deref()),
        ];
        for (flag, path) in files {
            if let Some(path) = path {
                check_output(path)
                    .with_context(|| format!("{flag} {} cannot be written", path.display()))?;
            }
        }
        Ok(())
    }

    /// The result of the JSON report on stdout or in its file; `table` is printed unless the JSON
    /// takes its place. `unfinished` says why sets are missing.
    pub(super) fn print_report<T: Serialize>(
        &self,
        context: &Context,
        reports: &[T],
        unfinished: Option<String>,
        table: impl FnOnce() -> String,
    ) -> Vec<Result<()>> {
        let unfinished = unfinished.as_deref();
        match self.json.as_deref() {
            Some("-") => vec![print_json(reports, unfinished)],
            None if context.printer.is_json() => vec![print_json(reports, unfinished)],
            Some(path) => vec![
                print(&table()),
                write_json(Path::new(path), reports, unfinished),
            ],
            None => vec![print(&table())],
        }
    }

    /// The results of the TREC files and of the HTML page.
    pub(super) fn write_files(
        &self,
        evaluations: &[Evaluation],
        reports: &[Report],
    ) -> Vec<Result<()>> {
        let mut written = self.write_page(|| html::page(reports));
        if let Some(path) = &self.trec {
            for evaluation in evaluations {
                let files = trec::write_all(path, &evaluation.set, &evaluation.runs);
                written.push(files.map(drop).map_err(Into::into));
            }
        }
        written
    }

    /// The result of the HTML page, if one is asked for.
    pub(super) fn write_page(&self, page: impl FnOnce() -> String) -> Vec<Result<()>> {
        match &self.html {
            Some(path) => vec![write(path, &page())],
            None => Vec::new(),
        }
    }
}

fn print_json<T: Serialize>(reports: &[T], unfinished: Option<&str>) -> Result<()> {
    print(&report::to_json(reports, unfinished)?)
}

fn write_json<T: Serialize>(path: &Path, reports: &[T], unfinished: Option<&str>) -> Result<()> {
    let json = report::to_json(reports, unfinished)?;
    write(path, &format!("{json}\n"))
}

/// The first error; the others are printed, as each is about another result.
pub(super) fn all(results: Vec<Result<()>>) -> Result<()> {
    let mut errors = results.into_iter().filter_map(Result::err);
    let Some(first) = errors.next() else {
        return Ok(());
    };
    for error in errors {
        print_stderr(format_args!("error: {}", error_message(&error)));
    }
    Err(first)
}

pub(super) fn check_output(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("it is a folder; name a file");
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let is_new = !path.exists();
    // Opened to append: what an earlier run wrote stays until there are results to replace it.
    OpenOptions::new().append(true).create(true).open(path)?;
    // An empty file would look like a result if the work fails.
    if is_new {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Prints a table or JSON. Escapes control characters, because names and queries of a set are
/// untrusted.
pub(super) fn print(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", printable::json(text))?)
}
