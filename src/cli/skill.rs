//! `toolscout skill`: instructions for coding agents.

use std::io::Write as _;

use anyhow::{Result, bail};

use super::Outcome;
use toolscout_index::suggest::did_you_mean;

/// The skills: a name, what it is for, and its text.
const SKILLS: [(&str, &str, &str); 1] = [(
    "enrich",
    "write what people say when they need each tool of a catalog",
    include_str!("skill/enrich.md"),
)];

/// Prints a SKILL.md, which tells a coding agent how to do a task with toolscout. Without a name, lists
/// what there is.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  toolscout skill\n  toolscout skill enrich > SKILL.md")]
pub struct Args {
    /// The skill
    name: Option<String>,
}

impl Args {
    /// Prints the skill, or the list.
    pub fn run(self) -> Result<Outcome> {
        let mut stdout = std::io::stdout();
        let Some(name) = self.name else {
            for (name, purpose, _) in SKILLS {
                writeln!(stdout, "{name}\t{purpose}")?;
            }
            return Ok(Outcome::Success);
        };
        let Some((_, _, text)) = SKILLS.iter().find(|(known, ..)| *known == name) else {
            let names = SKILLS.iter().map(|(name, ..)| *name);
            let hint = match did_you_mean(&name, names) {
                Some(similar) => similar,
                None => "`toolscout skill` lists what there is".to_owned(),
            };
            bail!("there is no skill {name:?}; {hint}");
        };
        stdout.write_all(text.as_bytes())?;
        Ok(Outcome::Success)
    }
}
