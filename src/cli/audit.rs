//! `toolscout audit`: verifies and exports the audit log of tool calls.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use super::Outcome;
use super::context::Context;
use crate::gate::audit::{AuditLog, FILE_NAME, Verified};
use crate::printable::counted;

/// Verifies or exports the audit log of tool calls.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout audit verify\n  toolscout audit export > calls.jsonl"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
    /// The log [default: audit.db in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check that no entry was changed or removed, and print the number of entries and the hash of
    /// the last one
    #[command(
        after_help = "Examples:\n  toolscout audit verify\n  toolscout audit verify --head 3f2a --json"
    )]
    Verify {
        /// A hash printed by an earlier check; its entry must still exist, so that a log cut before
        /// it is detected
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
    },
    /// Print every entry as a line of JSON
    #[command(
        after_help = "Examples:\n  toolscout audit export\n  toolscout audit export --log old/audit.db > calls.jsonl"
    )]
    Export,
    /// Trust the log as it is now: write a new anchor, after `verify` found none or one that does
    /// not match
    #[command(
        after_help = "Examples:\n  toolscout audit anchor\n  toolscout audit anchor --log old/audit.db"
    )]
    Anchor,
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let path = match self.log {
            Some(path) => path,
            None => context.settings.data.join(FILE_NAME),
        };
        let log = AuditLog::open_existing(&path)?;
        match self.action {
            Action::Verify { head } => {
                let verified = log.verify(head.as_deref())?;
                print(context, &verified, "verified")?;
                // JSON has both numbers.
                if verified.anchored < verified.entries && !context.printer.is_json() {
                    let unanchored = counted(verified.entries - verified.anchored, "entry");
                    context.printer.note(format_args!(
                        "not anchored: the newest {unanchored}, because the process ended before it moved the anchor"
                    ))?;
                }
            }
            Action::Export => log.export(|line| context.printer.json_text(line))?,
            Action::Anchor => {
                // Verified once more, now by the new anchor.
                log.trust()?;
                print(context, &log.verify(None)?, "anchored")?;
            }
        }
        Ok(Outcome::Success)
    }
}

fn print(context: &Context, verified: &Verified, action: &str) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json(verified);
    }
    let Verified { entries, head, .. } = verified;
    let entries = counted(*entries, "entry");
    context
        .printer
        .text(format_args!("{action} {entries}, head {head}"))
}
