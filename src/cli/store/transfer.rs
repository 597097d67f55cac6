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
        // Before the store is asked for anything, so that a wrong folder is told at once.
        let names = chosen(data.catalogs()?, &self.only)?;
        if names.is_empty() {
            let folder = self.folder.display();
            bail!(
                "{folder} has no catalogs; name a data directory, as `toolscout doctor` prints it"
            );
        }
        // Each is complete before the next begins, so an import that ends early can go on.
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
    if only.is_empty() {
        return Ok(all);
    }
    // In the order of the catalogs, and each once.
    Ok(all.into_iter().filter(|name| only.contains(name)).collect())
}

fn print_imported(context: &Context, all: &[(String, Imported)]) -> Result<()> {
    let header = [
        "added",
        "changed",
        "unchanged",
        "removed",
        "vectors",
        "enrichments",
    ];
    print_numbers(context, all, &header, |done| {
        vec![
            done.added,
            done.changed,
            done.unchanged,
            done.removed,
            done.vectors as usize,
            done.enrichments,
        ]
    })
}

fn print_exported(context: &Context, all: &[(String, Exported)]) -> Result<()> {
    let header = ["tools", "vectors"];
    print_numbers(context, all, &header, |done| vec![done.tools, done.vectors])
}

/// Prints what was done with each catalog.
fn print_numbers<T: Serialize>(
    context: &Context,
    all: &[(String, T)],
    header: &[&str],
    numbers: impl Fn(&T) -> Vec<usize>,
) -> Result<()> {
    if context.printer.is_json() {
        let mut by_name = BTreeMap::new();
        for (name, done) in all {
            by_name.insert(name, done);
        }
        return context.printer.json(&by_name);
    }
    let mut rows = Vec::new();
    for (name, done) in all {
        let mut row = vec![name.clone()];
        row.extend(numbers(done).iter().map(usize::to_string));
        rows.push(row);
    }
    let header = [&["catalog"], header].concat();
    context.printer.rows(&header, rows)
}
