//! The `toolscout` program: parse, run, exit.

use std::process::ExitCode;

use clap::Parser;
use toolscout::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.run() {
        Ok(outcome) => outcome.into(),
        Err(error) => cli::report(&error),
    }
}
