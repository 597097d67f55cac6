//! `toolscout completions`: completion scripts for shells.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::{Cli, Outcome};

/// Prints a completion script for a shell.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout completions bash > ~/.local/share/bash-completion/completions/toolscout\n  toolscout completions fish > ~/.config/fish/completions/toolscout.fish"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Prints the script.
    pub fn run(self) -> Result<Outcome> {
        // Buffered in memory: clap_complete panics when its writer fails.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "toolscout", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(Outcome::Success)
    }
}
