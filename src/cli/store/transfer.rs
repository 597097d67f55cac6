//! `toolscout store import` and `export`: between a data directory and the store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use toolscout_index::DataDir;

use super::{StoreArgs, on_runtime};
use crate::cli::context::Context;
use crate::store::{Existing, Exported, Imported};

#[derive(clap::Args, Debug)]
pub struct ImportArgs {
    /// The data directory
    #[arg(value_name = "DATA_FOLDER")]
    folder: PathBuf,
    /// Only this catalog (repeatable)
    #[arg(long, value_name = "CATALOG")]
    only: Vec<String>,
    /// Make catalogs that the store has the same as the imported ones
    #[arg(long, conflicts_with = "merge")]
    replace: bool,
    /// Add the imported tools to catalogs that the store has
    #[arg(long)]
    merge: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(clap::Args, Debug)]
pub struct ExportArgs {
    /// The data directory to write
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Only this catalog (repeatable)
    #[arg(long, value_name = "CATALOG")]
    only: Vec<String>,
    #[command(flatten)]
    store: StoreArgs,
}

impl ImportArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let existing = match (self.replace, self.merge) {
            (true, _) => Existing::Replace,
            (_, true) => Existing::Merge,
            _ => Existing::Refuse,
        };
        let settings = self.store.settings(context)?;
        let data = DataDir::new(&self.folder);
        let names = chosen(data.catalogs()?, &self.only)?;
        if names.is_empty() {
            let folder = self.folder.display();
            bail!(
                "{folder} has no catalogs; name a data directory, as `toolscout doctor` prints it"
            );
        }
        let mut all = Vec::new();
        for name in names {
            let imported = on_runtime(&settings, async |store| {
                Ok(store.import(&data, &name, existing).await?)
            });
            all.push((name.clone(), imported.context(format!("catalog {name}"))?));
        }
        print_imported(context, &all)
    }
}

impl ExportArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let settings = self.store.settings(context)?;
        let names = on_runtime(&settings, async |store| Ok(store.names().await?))?;
        let data = DataDir::new(&self.folder);
        let mut all = Vec::new();
        for name in chosen(names, &self.only)? {
            let exported = on_runtime(&settings, async |store| {
                Ok(store.export(&data, &name).await?)
            });
            all.push((name.clone(), exported.context(format!("catalog {name}"))?));
        }
        print_exported(context, &all)
    }
}

/// All of these, or those that were asked for.
fn chosen(all: Vec<String>, only: &[String]) -> Result<Vec<String>> {
    if let Some(missing) = only.iter().find(|name| !all.contains(name)) {
        let known = all.join(", ");
        bail!("there is no catalog {missing:?}; there are: {known}");
    }
    let is_chosen = |name: &String| only.is_empty() || only.contains(name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn print_imported(context: &Context, all: &[(String, Imported)]) -> Result<()> {
    let numbers = |done: &Imported| {
        vec![
            done.added,
            done.changed,
            done.unchanged,
            done.removed,
            done.vectors as usize,
            done.enrichments,
        ]
    };
    let header = [
        "added",
        "changed",
        "unchanged",
        "removed",
        "vectors",
        "enrichments",
    ];
    print_numbers(context, all, &header, numbers)
}

fn print_exported(context: &Context, all: &[(String, Exported)]) -> Result<()> {
    let numbers = |done: &Exported| vec![done.tools, done.vectors];
    print_numbers(context, all, &["tools", "vectors"], numbers)
}

/// Prints what was done with each catalog.
fn print_numbers<T: Serialize>(
    context: &Context,
    all: &[(String, T)],
    header: &[&str],
    numbers: impl Fn(&T) -> Vec<usize>,
) -> Result<()> {
    if context.printer.is_json() {
        let by_name: BTreeMap<&str, &T> = all
            .iter()
            .map(|(name, done)| (name.as_str(), done))
            .collect();
        return context.printer.json(&by_name);
    }
    let rows = all.iter().map(|(name, done)| {
        let numbers = numbers(done).into_iter().map(|number| number.to_string());
        std::iter::once(name.clone()).chain(numbers).collect()
    });
    let header = [&["catalog"], header].concat();
    context.printer.rows(&header, rows.collect())
}
