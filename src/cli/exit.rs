//! How a run ends: its outcome, its exit code, and the error message on stderr.

use std::fmt;
use std::io;

use toolscout_index::{DataDir, Error};

use super::output::print_stderr;
use crate::enrich::wanted::WantedError;
use crate::eval::EvalError;
use crate::hints;
use toolscout_index::suggest::did_you_mean;

/// The result of a verb that ran without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything succeeded: exit code 0.
    Success,
    /// Something failed or is left to do, and the output names it: exit code 1.
    Failure,
    /// The same with an exit code of its own, which the help of the verb explains.
    Coded(u8),
}

/// The exit code of an error that is no mistake in the command line.
pub const FAILED: u8 = 1;
/// The same for `eval`, whose exit code 1 says that a figure dropped.
pub const NOT_MEASURED: u8 = 3;

impl Outcome {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Success => 0,
            Outcome::Failure => 1,
            Outcome::Coded(code) => code,
        }
    }
}

/// A mistake in the command line that clap cannot detect: exit code 2.
#[derive(Debug)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

impl From<WantedError> for UsageError {
    fn from(error: WantedError) -> Self {
        UsageError(error.to_string())
    }
}

/// Prints an error on stderr and returns its exit code: 2 for a mistake in the command line, else
/// `failed`.
///
/// A reader that closes its end of the pipe early (`toolscout list | head`) is not an error: the
/// program ends silently with 0.
pub fn report(error: &anyhow::Error, failed: u8) -> u8 {
    if error.chain().any(is_broken_pipe) {
        return 0;
    }
    // Further lines are indented, so that text from outside cannot imitate another message.
    let message = error_message(error).replace('\n', "\n  ");
    let mut causes = error.chain();
    let step = match causes.find_map(|cause| cause.downcast_ref::<Error>()) {
        Some(cause) => next_step(cause),
        None => String::new(),
    };
    print_stderr(format_args!("error: {message}{step}"));
    if is_usage(error) { 2 } else { failed }
}

/// Whether the command line is at fault.
fn is_usage(error: &anyhow::Error) -> bool {
    let invalid_option = |cause: &(dyn std::error::Error + 'static)| {
        let error = cause.downcast_ref::<EvalError>();
        error.is_some_and(EvalError::is_usage)
    };
    error.is::<UsageError>() || error.chain().any(invalid_option)
}

/// An error of the engine with its next step.
pub fn describe(error: &Error) -> String {
    format!("{error}{}", next_step(error))
}

/// The next step after an error, to follow its message; empty where there is none.
fn next_step(error: &Error) -> String {
    let mut step = String::new();
    // Only here, and not in `hints`: the HTTP API must not tell a key the names of catalogs that it
    // is not valid for.
    if let Error::UnknownCatalog { name, data_dir } = error
        && let Ok(known) = DataDir::new(data_dir).catalogs()
        && let Some(similar) = did_you_mean(name, known.iter().map(String::as_str))
    {
        step = format!("; {similar}");
    }
    if let Some(hint) = hints::for_error(error) {
        let separator = if step.is_empty() { "; " } else { " " };
        step.push_str(separator);
        step.push_str(hint);
    }
    step
}

/// The error and its causes, joined by colons. A cause that the message already contains is left
/// out. Line breaks are kept; blank lines are not.
pub fn error_message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        // Many errors repeat their cause in their own message.
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    let mut lines: Vec<&str> = message.split(['\n', '\r']).map(str::trim_end).collect();
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref::<io::Error>() {
        Some(error) => error.kind() == io::ErrorKind::BrokenPipe,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::*;

    #[test]
    fn an_error_message_keeps_its_lines_and_names_each_cause_once() {
        let error = Err::<(), _>(anyhow!("no such file\r\n\n  {{\n    \"a\": 1"))
            .context("read a.json")
            .unwrap_err();
        assert_eq!(
            error_message(&error),
            "read a.json: no such file\n  {\n    \"a\": 1"
        );
        let repeated = Err::<(), _>(anyhow!("gone"))
            .context("read a.json: gone")
            .unwrap_err();
        assert_eq!(error_message(&repeated), "read a.json: gone");
    }
}
