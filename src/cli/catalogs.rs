//! `toolscout catalogs`: the catalogs under the data directory.

use anyhow::{Context as _, Result};
use clap::Subcommand;
use serde_json::{Value, json};
use toolscout_index::{Error, Options};

use super::context::Context;
use super::{Outcome, Usage};
use crate::http::{FEEDBACK_FILE, FeedbackStore};

/// Lists or deletes catalogs. `toolscout --catalog NAME add …` makes one.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List catalogs with the number of their tools
    List,
    /// Delete a catalog and all it holds, and what its users have asked
    Delete {
        /// Its name
        name: String,
        /// Really delete it
        #[arg(long)]
        yes: bool,
    },
}

impl Args {
    /// Does the one or the other.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::List => list(context),
            Action::Delete { yes: false, name } => Err(Usage(format!(
                "this deletes every tool in {name:?} for good; add --yes if that is wanted"
            ))
            .into()),
            Action::Delete { yes: true, name } => delete(context, &name),
        }
    }
}

fn list(context: &Context) -> Result<Outcome> {
    let dir = context.data_dir();
    let mut counted = Vec::new();
    for name in dir.catalogs()? {
        let tools = dir
            .open(&name, Options::default())
            .map(|catalog| catalog.searcher().len());
        counted.push((name, tools));
    }
    if context.printer.is_json() {
        let json: Vec<_> = counted
            .iter()
            .map(|(name, tools)| described(name, tools))
            .collect();
        context.printer.json(&json)?;
        return Ok(Outcome::Done);
    }
    for (name, error) in counted
        .iter()
        .filter_map(|(name, tools)| Some((name, tools.as_ref().err()?)))
    {
        context.warn(format_args!("{name}: {error}"));
    }
    let tools = |tools: toolscout_index::Result<usize>| {
        tools.map_or_else(|_| "damaged".to_owned(), |tools| tools.to_string())
    };
    let rows = counted
        .into_iter()
        .map(|(name, counted)| vec![name, tools(counted)])
        .collect();
    context.printer.rows(&["catalog", "tools"], rows)?;
    context
        .printer
        .note(format_args!("in {}", dir.path().display()))?;
    Ok(Outcome::Done)
}

fn described(name: &str, tools: &toolscout_index::Result<usize>) -> Value {
    match tools {
        Ok(tools) => json!({ "name": name, "tools": tools }),
        Err(error) => json!({ "name": name, "damaged": error.to_string() }),
    }
}

fn delete(context: &Context, name: &str) -> Result<Outcome> {
    let deleted = context.data_dir().delete(name);
    let data = &context.settings.data;
    // Of a catalog that is not there, too: an earlier delete may have been cut short between the
    // two.
    let is_gone = matches!(deleted, Ok(()) | Err(Error::UnknownCatalog { .. }));
    if is_gone && data.join(FEEDBACK_FILE).exists() {
        FeedbackStore::open(data)?
            .forget_now(name)
            .context("delete the catalog's feedback")?;
    }
    deleted?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "deleted": name }))?;
    } else {
        context.printer.line(format_args!("deleted {name}"))?;
    }
    Ok(Outcome::Done)
}
