//! `toolscout store import` and `export`: between a data directory and the store.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use toolscout_index::DataDir;

use super::{StoreArgs, on_runtime};
use crate::cli::context::Context;
use crate::cli::output::print_stderr;
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
    if context.printer.is_json() {
        let all = all.iter().map(|(name, done)| (name, json!(done)));
        return context
            .printer
            .json(&all.collect::<std::collections::BTreeMap<_, _>>());
    }
    let rows = all.iter().map(|(name, done)| {
        let numbers = [done.added, done.changed, done.unchanged, done.removed];
        let numbers = numbers.map(|number| number.to_string());
        let mut row = vec![name.clone()];
        row.extend(numbers);
        row.push(done.vectors.to_string());
        row
    });
    let header = [
        "catalog",
        "added",
        "changed",
        "unchanged",
        "removed",
        "vectors",
    ];
    context.printer.rows(&header, rows.collect())?;
    for (name, done) in all.iter().filter(|(_, done)| done.enrichments_left_out > 0) {
        let count = done.enrichments_left_out;
        print_stderr(format_args!(
            "{name}: {count} enrichments stay behind; the store has no place for them yet"
        ));
    }
    Ok(())
}

fn print_exported(context: &Context, all: &[(String, Exported)]) -> Result<()> {
    if context.printer.is_json() {
        let all = all.iter().map(|(name, done)| (name, json!(done)));
        return context
            .printer
            .json(&all.collect::<std::collections::BTreeMap<_, _>>());
    }
    let rows = all.iter().map(|(name, done)| {
        vec![
            name.clone(),
            done.tools.to_string(),
            done.vectors.to_string(),
        ]
    });
    let header = ["catalog", "tools", "vectors"];
    context.printer.rows(&header, rows.collect())
}
