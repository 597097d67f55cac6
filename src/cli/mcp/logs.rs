//! `toolscout mcp logs`: what a server wrote to its standard error.

use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;
use toolscout_index::suggest::did_you_mean;

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use crate::mcp::server_logs::{LogFile, ServerLogs};
use crate::printable;

/// How often a log is looked at for new lines.
const LOOK: Duration = Duration::from_millis(250);

/// Prints the end of what a server process wrote to its standard error, in all runs of this program.
/// Lines that begin with `---` are marks of its starts and ends. The data directory keeps at most 2 MiB
/// for each server, with secrets masked.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp logs github\n  toolscout mcp logs github --lines 200\n  toolscout mcp logs github --follow"
)]
pub struct Args {
    /// The name of the server
    name: String,
    /// How many lines
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    lines: u64,
    /// Print new lines as they come, until you stop the command
    #[arg(long, short)]
    follow: bool,
}

impl Args {
    /// Reads the two files of the server.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.follow && context.printer.is_json() {
            let message = "--follow prints lines as they come, and --json one value; leave one out";
            return Err(UsageError(message.into()).into());
        }
        let logs = ServerLogs::in_data_dir(&context.settings.data);
        let Some(log) = logs.file(&self.name) else {
            bail!("no logs are kept here");
        };
        let has_log = log.path().is_file();
        if !has_log && !self.follow {
            bail!(no_log(&self.name, &logs));
        }
        let tail = log.last_lines(usize::try_from(self.lines)?)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "server": self.name, "file": log.path(), "lines": tail.lines,
            }))?;
            return Ok(Outcome::Success);
        }
        print(&tail.lines)?;
        if self.follow {
            follow(&log, tail.end)?;
        }
        Ok(Outcome::Success)
    }
}

/// Prints what is added, until printing fails or the process is ended.
fn follow(log: &LogFile, mut end: u64) -> Result<()> {
    loop {
        let tail = log.lines_after(end)?;
        print(&tail.lines)?;
        end = tail.end;
        thread::sleep(LOOK);
    }
}

fn print(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", printable::line(line))?;
    }
    out.flush()
}

fn no_log(name: &str, logs: &ServerLogs) -> String {
    let names = logs.names();
    let hint = match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(similar) => similar,
        None if names.is_empty() => {
            "a server process gets one when it is started, as by `toolscout mcp test`".to_owned()
        }
        None => format!("there are logs of {}", names.join(", ")),
    };
    format!("there is no log of the server {name:?}; {hint}")
}
