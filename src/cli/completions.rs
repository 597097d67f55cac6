//! `toolscout completions`: what a shell needs to complete commands.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Outcome};

/// Prints completions for a shell, for example `toolscout completions bash >
/// ~/.local/share/bash-completion/completions/toolscout`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Prints the script.
    pub fn run(self) -> Result<Outcome> {
        // Into memory first: clap_complete panics when its writer fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "toolscout", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(Outcome::Done)
    }
}
