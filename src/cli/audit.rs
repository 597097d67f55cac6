//! `toolscout audit`: what the agent's tools were called with, and that nobody has edited the
//! record.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use super::Outcome;
use super::context::Context;
use crate::gate::audit::{AuditLog, FILE_NAME, Verified};

/// Checks or writes out the audit log of the agent's calls.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// The log; by default that of the data directory
    #[arg(long, global = true, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that every entry is as it was written and none is missing, and print the number of
    /// entries and the last one's hash
    Verify {
        /// A hash that an earlier check printed: the entry must still be there, so that none was
        /// cut off
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
    /// Print every entry as a line of JSON
    Export,
    /// Trust the log as it is now: make a new anchor, after `verify` has found that there is none
    /// or that it does not fit
    Anchor,
}

impl Args {
    /// Does the one or the other.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let path = self
            .log
            .unwrap_or_else(|| context.settings.data.join(FILE_NAME));
        let log = AuditLog::open_existing(&path)?;
        match self.action {
            Action::Verify { head } => {
                let verified = log.verify(head.as_deref())?;
                if context.printer.is_json() {
                    context.printer.json(&verified)?;
                } else {
                    let Verified {
                        entries,
                        head,
                        anchored,
                    } = verified;
                    context
                        .printer
                        .line(format_args!("{entries} entries, head {head}"))?;
                    if anchored < entries {
                        let unanchored = entries - anchored;
                        context.printer.note(format_args!(
                            "the newest {unanchored} are not anchored: their process ended before it moved the anchor"
                        ))?;
                    }
                }
            }
            Action::Export => log.export(|line| context.printer.json_text(line))?,
            Action::Anchor => log.trust()?,
        }
        Ok(Outcome::Done)
    }
}
