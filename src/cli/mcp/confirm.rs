//! A question to the person at the terminal before a file of servers is changed.

use std::io::{self, BufRead as _, IsTerminal as _};

use anyhow::Result;

use super::super::exit::UsageError;
use super::super::output::print_stderr;

/// Asks, and returns whether the answer is yes.
///
/// # Errors
/// With the refusal if nobody can be asked.
pub fn confirmed(question: &str, refusal: &str, may_ask: bool) -> Result<bool> {
    if !may_ask || !io::stdin().is_terminal() {
        return Err(UsageError(refusal.to_owned()).into());
    }
    print_stderr(format_args!("{question} [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
