//! `toolscout man`: the manual.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, Outcome};

/// Prints the manual page, or writes a page for each command.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout man > toolscout.1\n  toolscout man --folder ~/.local/share/man/man1"
)]
pub struct Args {
    /// Write the pages of the program and of each command there, as files for man
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Args {
    /// Prints the page, or writes the pages.
    pub fn run(self) -> Result<Outcome> {
        let manual = described(Cli::command());
        let Some(folder) = self.folder else {
            let mut page = Vec::new();
            Man::new(manual).render(&mut page)?;
            std::io::stdout().write_all(&page)?;
            return Ok(Outcome::Success);
        };
        let place = || format!("the manual cannot be written to {}", folder.display());
        std::fs::create_dir_all(&folder).with_context(place)?;
        clap_mangen::generate_to(manual, &folder).with_context(place)?;
        Ok(Outcome::Success)
    }
}

/// The command with a description of every flag: what the short help leaves out, pages have too.
fn described(command: Command) -> Command {
    command
        .mut_args(|argument| argument.hide_short_help(false))
        .mut_subcommands(described)
}
