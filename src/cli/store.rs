//! `toolscout store`: the database of catalogs that several nodes share.

mod copy;
mod transfer;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Subcommand;
use tokio::runtime::{Builder, Handle};

use super::Outcome;
use super::context::Context;
use super::output::print_stderr;
use crate::config::{StoreAddress, StoreSettings};
use crate::printable;
use crate::store::{
    CatalogPage, CatalogStatus, Migrations, PostgresStore, StoreError, StoreStatus,
};

pub use copy::{CatalogCopy, Connected, Place, no_shared_catalog};

/// Shows or migrates the store that several nodes share: a PostgreSQL database with the catalogs that
/// `toolscout serve --store` serves.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout store status --store postgres://toolscout@db.example/tools\n  toolscout store migrate --dry-run"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the catalogs of the store and its nodes: how far each is behind
    #[command(
        after_help = "Examples:\n  toolscout store status\n  toolscout store status --store postgres://toolscout@db.example/tools --json"
    )]
    Status {
        #[command(flatten)]
        store: StoreArgs,
        /// Most catalogs, by name
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Only catalogs after this name
        #[arg(long, value_name = "NAME")]
        after: Option<String>,
    },
    /// Create the tables, or bring them up to this version. A server does so itself when it starts
    #[command(
        after_help = "Examples:\n  toolscout store migrate --store postgres://owner@db.example/tools\n  toolscout store migrate --dry-run"
    )]
    Migrate {
        #[command(flatten)]
        store: StoreArgs,
        /// Print the statements instead, for `psql`
        #[arg(long)]
        dry_run: bool,
    },
    /// Say whether nodes have copies of a catalog, or look for its tools in the store, as they do for
    /// catalogs that are too large to be copied. Servers that have it open see to it
    #[command(
        after_help = "Examples:\n  toolscout store push-down tools always\n  toolscout store push-down tools by-size"
    )]
    PushDown {
        /// The catalog
        catalog: String,
        /// When its tools are looked for in the store
        #[arg(value_enum)]
        when: PushDown,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Bring the catalogs of a data directory into the store: tools, settings, rankers, vectors. An
    /// import that was interrupted goes on when it is started again
    #[command(
        after_help = "Examples:\n  toolscout store import ~/.local/share/toolscout --store postgres://toolscout@db.example/tools\n  toolscout store import backup --only tools --replace"
    )]
    Import(transfer::ImportArgs),
    /// Write the catalogs of the store into a new data directory, which a single machine can serve
    #[command(
        after_help = "Examples:\n  toolscout store export backup --store postgres://toolscout@db.example/tools\n  toolscout --data backup search \"convert currency\""
    )]
    Export(transfer::ExportArgs),
}

/// When the tools of a catalog are looked for in the store.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PushDown {
    /// Whatever its size
    Always,
    /// Never: nodes have copies
    Never,
    /// Once it has more tools than the servers' --push-down-above
    BySize,
}

impl PushDown {
    /// `None` where the size decides.
    fn wanted(self) -> Option<bool> {
        match self {
            PushDown::Always => Some(true),
            PushDown::Never => Some(false),
            PushDown::BySize => None,
        }
    }
}

/// Which store, and how to get in.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// The PostgreSQL database of the catalogs, which several nodes share, as
    /// `postgres://USER@HOST/DATABASE`. Its password comes from --store-password-file, PGPASSWORD,
    /// PGPASSFILE or an address in TOOLSCOUT_STORE [env: TOOLSCOUT_STORE; default: none, catalogs
    /// are in the data directory]
    // No `env` of clap, whose help would print a password.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// File with the password of the store [env: TOOLSCOUT_STORE_PASSWORD_FILE]
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<PathBuf>,
}

impl StoreArgs {
    /// The settings with these flags.
    ///
    /// # Errors
    /// For a password on the command line, and a value that cannot be used.
    pub fn settings(&self, context: &Context) -> Result<StoreSettings> {
        let address = self.store.as_ref().map(StoreAddress::new);
        if let Some(address) = &address
            && address.has_password()
        {
            bail!(
                "--store has a password, which everybody on this machine could read in the list of processes; put it into \
                 a file for --store-password-file, or the address into TOOLSCOUT_STORE"
            );
        }
        let flags = StoreSettings {
            store: address,
            store_password_file: self.store_password_file.clone(),
            ..StoreSettings::default()
        };
        let settings = flags.or(context.settings.store.clone());
        settings.check()?;
        Ok(settings)
    }
}

/// Seconds after which a node that has not been seen is called gone; it tells of itself every few.
const GONE_S: f64 = 60.0;

/// The store of these settings, if they name one. Its tables are brought up to this version; a store
/// that is away is tried again later, and one that cannot be used is an error.
pub fn open(settings: &StoreSettings, runtime: &Handle) -> Result<Option<Arc<PostgresStore>>> {
    if settings.store.is_none() {
        return Ok(None);
    }
    let store = PostgresStore::new(settings, runtime.clone())?;
    match runtime.block_on(store.prepare()) {
        Ok(_) => {}
        Err(StoreError::Unreachable(reason)) => {
            tracing::warn!(
                store = store.address(),
                reason,
                "the store is away; the catalogs that this node has copies of are searched until it is back"
            );
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Some(store))
}

/// Runs work with the store on a runtime of its own.
pub fn on_runtime<T>(
    settings: &StoreSettings,
    work: impl AsyncFnOnce(&PostgresStore) -> Result<T>,
) -> Result<T> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let store = PostgresStore::new(settings, runtime.handle().clone())?;
    runtime.block_on(work(&store))
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::Status {
                store,
                limit,
                after,
            } => {
                let settings = store.settings(context)?;
                let page = CatalogPage { after, limit };
                let status = on_runtime(&settings, async |store| Ok(store.status(&page).await?))?;
                print(context, &status)?;
            }
            Action::Migrate { store, dry_run } => {
                migrate(context, &store.settings(context)?, dry_run)?;
            }
            Action::PushDown {
                catalog,
                when,
                store,
            } => {
                let settings = store.settings(context)?;
                on_runtime(&settings, async |store| {
                    store.prepare().await?;
                    Ok(store.set_push_down(&catalog, when.wanted()).await?)
                })?;
            }
            Action::Import(arguments) => arguments.run(context)?,
            Action::Export(arguments) => arguments.run(context)?,
        }
        Ok(Outcome::Success)
    }
}

fn migrate(context: &Context, settings: &StoreSettings, dry_run: bool) -> Result<()> {
    let migrations = on_runtime(settings, async |store| {
        // Asked before they run, to tell which version the schema had.
        let before = store.migrations().await?;
        if !dry_run {
            store.prepare().await?;
        }
        Ok(before)
    })?;
    let schema = &migrations.schema;
    if migrations.open.is_empty() {
        print_stderr(format_args!("the schema {schema} is up to date"));
    } else if dry_run {
        context.printer.text(format_args!("{migrations}"))?;
    } else {
        let (from, to) = (migrations.version(), Migrations::newest());
        print_stderr(format_args!(
            "the schema {schema} was brought from version {from} to {to}"
        ));
    }
    Ok(())
}

fn print(context: &Context, status: &StoreStatus) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json(status);
    }
    let mut rows = Vec::new();
    for catalog in &status.catalogs {
        rows.push(vec![
            catalog.name.clone(),
            catalog.generation.to_string(),
            catalog.tools.to_string(),
            format!("{:.1}", catalog.bytes as f64 / 1e6),
            place(catalog),
        ]);
    }
    let head = ["catalog", "generation", "tools", "MB", "searched"];
    context.printer.rows(&head, rows)?;
    if let Some(last) = &status.next_after {
        context.printer.note(format_args!(
            "{} of {} catalogs; `--after {}` shows the next",
            status.catalogs.len(),
            status.catalogs_total,
            printable::line(last)
        ))?;
    }
    print_nodes(context, status)?;
    print_servers(context, status)?;
    // On stderr, so that it is seen where another program reads the tables.
    if let Some(problem) = &status.write_problem {
        print_stderr(format_args!("nothing can be written: {problem}"));
    }
    print_stderr(format_args!(
        "{}, PostgreSQL {}, schema {}: {:.1} MB of {:.1} MB of the database",
        status.store,
        status.server,
        status.schema,
        status.bytes as f64 / 1e6,
        status.database_bytes as f64 / 1e6
    ));
    Ok(())
}

/// Where the tools of a catalog are looked for.
fn place(catalog: &CatalogStatus) -> String {
    match (catalog.is_pushed_down, catalog.prepared_tools) {
        (true, _) => "in the store".to_owned(),
        (false, None) => "on nodes".to_owned(),
        (false, Some(prepared)) => {
            format!(
                "on nodes, {prepared} of {} prepared in the store",
                catalog.tools
            )
        }
    }
}

/// The servers of the address, and the standbys that the primary knows.
fn print_servers(context: &Context, status: &StoreStatus) -> Result<()> {
    let mut rows = Vec::new();
    for server in &status.servers {
        rows.push(vec![server.server.clone(), server.state.clone()]);
    }
    context.printer.rows(&["server", "state"], rows)?;
    if status.standbys.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::new();
    for standby in &status.standbys {
        let address = standby.address.as_deref().unwrap_or("");
        // PostgreSQL hides these from a role that may not monitor it.
        let lag = standby.lag_bytes.map(|bytes| bytes.to_string());
        let figures = [&standby.state, &standby.sync, &lag];
        let mut row = vec![format!("{} {address}", standby.name)];
        row.extend(figures.map(|text| text.as_deref().unwrap_or("hidden").to_owned()));
        rows.push(row);
    }
    context
        .printer
        .rows(&["standby", "state", "sync", "bytes behind"], rows)
}

fn print_nodes(context: &Context, status: &StoreStatus) -> Result<()> {
    let mut rows = Vec::new();
    for node in &status.nodes {
        let mut behind = Vec::new();
        for (name, lag) in &node.lag {
            if *lag > 0 {
                behind.push(format!("{name} {lag}"));
            }
        }
        // What a node that is gone said last says nothing about now.
        let behind = match behind.is_empty() {
            _ if node.seen_s > GONE_S => "gone, or cannot reach the store".to_owned(),
            true => format!("0 in {} open catalogs", node.open),
            false => behind.join(", "),
        };
        rows.push(vec![
            node.name.clone(),
            node.version.clone(),
            format!("{:.1}", node.seen_s),
            behind,
        ]);
    }
    context.printer.rows(
        &["node", "version", "seen, s ago", "generations behind"],
        rows,
    )
}
