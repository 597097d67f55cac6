//! `toolscout mcp registry`: servers of a registry that the owner names.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::json;

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::input::document;
use super::super::mcp_args::DEFAULT_FILE;
use super::super::output::print_stderr;
use super::add::{is_installed, print_open};
use super::confirm::confirmed;
use super::install::Writing;
use crate::config::Fetch;
use crate::mcp::config::{is_url, parse_server};
use crate::mcp::install::Plan;
use crate::mcp::registry::{Listed, latest, page_url, read_page};
use crate::mcp::server_json::{Import, read};
use crate::printable;
use toolscout_index::suggest::did_you_mean;

/// Names the registry where no flag does.
const VARIABLE: &str = "TOOLSCOUT_MCP_REGISTRY";
/// Most pages of a list that are read.
const MAX_PAGES: usize = 20;

/// Finds servers in a registry of MCP servers, and adds one to a file of servers. The registry is one that
/// you name: its address, or a file with its list. There is none by default.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp registry search umbrella --registry registry.json\n  toolscout mcp registry add io.example/umbrellas --registry registry.json"
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Find servers by words
    Search(SearchArgs),
    /// Add a server to a file of servers
    Add(AddArgs),
}

impl Args {
    /// Runs the verb.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.verb {
            Verb::Search(args) => args.run(context),
            Verb::Add(args) => args.run(context),
        }
    }
}

#[derive(clap::Args, Debug)]
struct RegistryArgs {
    /// The registry: its URL, or a file with its list of servers [default: the environment variable
    /// TOOLSCOUT_MCP_REGISTRY]
    #[arg(long, value_name = "URL|FILE")]
    registry: Option<String>,
}

/// Lists the servers whose names and descriptions have these words, in their latest versions. A registry
/// at a URL searches itself, usually in names only.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp registry search umbrella --registry registry.json\n  toolscout mcp registry search weather --limit 50 --registry registry.json --json"
)]
struct SearchArgs {
    /// Words to look for; none for all servers
    words: Vec<String>,
    /// Most servers to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl SearchArgs {
    fn run(self, context: &Context) -> Result<Outcome> {
        let registry = Registry::of(&self.registry, context.settings.fetch)?;
        let limit = usize::from(self.limit);
        let (mut found, is_whole) = registry.servers(&self.words, limit)?;
        let is_all = is_whole && found.len() <= limit;
        found.truncate(limit);
        if context.printer.is_json() {
            let servers: Vec<_> = found
                .iter()
                .map(|server| {
                    json!({
                        "name": server.name, "version": server.version,
                        "description": server.description, "kinds": server.kinds,
                    })
                })
                .collect();
            context
                .printer
                .json(&json!({ "servers": servers, "is_all": is_all }))?;
            return Ok(Outcome::Success);
        }
        let mut rows = Vec::new();
        for server in found {
            rows.push(vec![
                server.name,
                server.version,
                server.kinds.join(", "),
                server.description,
            ]);
        }
        if rows.is_empty() {
            context.printer.note("no server has these words")?;
            return Ok(Outcome::Success);
        }
        let header = ["name", "version", "runs as", "description"];
        context.printer.rows(&header, rows)?;
        if !is_all {
            context
                .printer
                .note("there are more; add words, or raise --limit")?;
        }
        Ok(Outcome::Success)
    }
}

/// Adds a server of a registry to a file of servers: shows what would be run or reached, asks, and writes
/// the entry with its version. Keeps the hash of the package, if the registry has one, and a backup of the
/// file.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp registry add io.example/umbrellas --registry registry.json\n  toolscout mcp registry add io.example/umbrellas --version 1.2.0 --yes --registry registry.json"
)]
struct AddArgs {
    /// The name of the server in the registry, or the last part of it
    name: String,
    /// Its version [default: the latest]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Its name in the file of servers [default: the last part of its name in the registry]
    #[arg(long = "as", value_name = "NAME")]
    as_name: Option<String>,
    /// What to take of a server that offers several: remote, or npm, pypi or oci for a package
    /// [default: the first package that can be run here, or else a remote]
    #[arg(long = "use", value_name = "KIND", value_parser = ["remote", "npm", "pypi", "oci"])]
    kind: Option<String>,
    /// The file of servers; it is created if it is missing
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    mcp: PathBuf,
    /// Print the new file, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Add it without asking
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl AddArgs {
    fn run(self, context: &Context) -> Result<Outcome> {
        let registry = Registry::of(&self.registry, context.settings.fetch)?;
        let listed = registry.server(&self.name, self.version.as_deref())?;
        let described = read(&listed.document(), None)?;
        let mut import = described.import(self.kind.as_deref(), &is_installed)?;
        let name = match &self.as_name {
            Some(name) => name.clone(),
            None => import.short_name(),
        };
        // The name is checked as it will be when the file is read.
        parse_server(&format!("{name}=x"), &|_| None).map_err(UsageError)?;
        // Other keys of an entry are for people.
        import.entry["registry"] = json!({ "name": import.name, "version": import.version });
        if let Some(sha256) = &import.sha256 {
            import.entry["registry"]["sha256"] = sha256.as_str().into();
        }
        let is_shown_only = self.dry_run || context.printer.is_json();
        if !is_shown_only {
            show(&import);
        }
        if !self.dry_run && !self.yes && !is_confirmed(&name, &self.mcp)? {
            print_stderr("nothing was added");
            return Ok(Outcome::Failure);
        }
        let plan = Plan::adding(&self.mcp, &name, &import.entry)?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "server": name, "registry_name": import.name, "version": import.version,
                "sha256": import.sha256, "pinned": import.is_pinned,
                "entry": import.entry, "variables": import.open, "file": plan.path,
                "written": writing.is_written, "backup": writing.backup,
            }))?;
            return Ok(Outcome::Success);
        }
        let file = self.mcp.display();
        let next =
            format!("it has the server {name}; `toolscout mcp test {name} --mcp {file}` tries it");
        writing.print(context, &plan, &next)?;
        print_open(&import);
        Ok(Outcome::Success)
    }
}

/// Says what the entry would run or reach.
fn show(import: &Import) {
    let text = |field: &str| import.entry.get(field).and_then(|value| value.as_str());
    let does = match (text("command"), text("url")) {
        (Some(command), _) => {
            let mut words = vec![command.to_owned()];
            for arg in import.entry["args"].as_array().into_iter().flatten() {
                words.push(arg.as_str().unwrap_or_default().to_owned());
            }
            format!("it runs: {}", words.join(" "))
        }
        (None, url) => format!("it is reached at: {}", url.unwrap_or_default()),
    };
    let version = &import.version;
    print_stderr(format_args!(
        "{} {version}: {}",
        import.name, import.description
    ));
    print_stderr(printable::line(&does));
    for (key, what) in [("env", "environment"), ("headers", "header")] {
        for (name, value) in import.entry[key].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            print_stderr(printable::line(&format!("{what}: {name}={value}")));
        }
    }
    if let Some(sha256) = &import.sha256 {
        print_stderr(format_args!("SHA-256 of the package: {sha256}"));
    }
    if !import.is_pinned {
        print_stderr(
            "warning: the registry names no version of the package, so each start may run another one",
        );
    }
}

fn is_confirmed(name: &str, file: &Path) -> Result<bool> {
    let question = format!(
        "add it to {} as {name}? Its programs have all your rights.",
        file.display()
    );
    let refusal =
        "nobody can be asked here; give --yes to add the server, or --dry-run to see the file";
    confirmed(&question, refusal, true)
}

/// A registry that the owner has named.
struct Registry {
    place: String,
    fetch: Fetch,
}

impl Registry {
    fn of(args: &RegistryArgs, fetch: Fetch) -> Result<Self> {
        let of_variable = || {
            std::env::var(VARIABLE)
                .ok()
                .filter(|value| !value.is_empty())
        };
        match args.registry.clone().or_else(of_variable) {
            Some(place) => Ok(Registry { place, fetch }),
            None => Err(UsageError(format!(
                "name a registry: --registry URL or FILE, or the environment variable {VARIABLE}"
            ))
            .into()),
        }
    }

    /// The latest versions of the servers with these words, and whether the list was read to its end.
    fn servers(&self, words: &[String], limit: usize) -> Result<(Vec<Listed>, bool)> {
        let (servers, is_whole) = self.pages(&words.join(" "), |servers| {
            latest(servers.to_vec()).len() > limit
        })?;
        let mut servers = latest(servers);
        // A registry at a URL has searched.
        if !is_url(&self.place) {
            servers.retain(|server| server.has_words(words));
        }
        Ok((servers, is_whole))
    }

    /// One version of one server.
    fn server(&self, name: &str, version: Option<&str>) -> Result<Listed> {
        let (all, _) = self.pages(name, |_| false)?;
        let is_meant =
            |server: &Listed| server.name == name || server.name.rsplit('/').next() == Some(name);
        let mut meant: Vec<Listed> = all
            .iter()
            .filter(|server| is_meant(server))
            .cloned()
            .collect();
        let mut names: Vec<&str> = meant.iter().map(|server| server.name.as_str()).collect();
        names.dedup();
        if names.len() > 1 {
            bail!(
                "several servers are called {name:?}: {}; write the whole name",
                names.join(", ")
            );
        }
        if meant.is_empty() {
            let hint = match did_you_mean(name, all.iter().map(|server| server.name.as_str())) {
                Some(similar) => similar,
                None => "`toolscout mcp registry search` finds others".to_owned(),
            };
            bail!("the registry has no server {name:?}; {hint}");
        }
        let Some(version) = version else {
            return Ok(latest(meant).remove(0));
        };
        let versions: Vec<String> = meant.iter().map(|server| server.version.clone()).collect();
        meant.retain(|server| server.version == version);
        match meant.into_iter().next() {
            Some(server) => Ok(server),
            None => bail!(
                "{name} has no version {version:?}, only {}",
                versions.join(", ")
            ),
        }
    }

    /// The servers of the list, until it ends or there are enough.
    fn pages(
        &self,
        words: &str,
        is_enough: impl Fn(&[Listed]) -> bool,
    ) -> Result<(Vec<Listed>, bool)> {
        if !is_url(&self.place) {
            let page = read_page(&document(&self.place, &self.fetch)?)?;
            return Ok((page.servers, true));
        }
        let (mut servers, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let url = page_url(&self.place, words, cursor.as_deref()).map_err(UsageError)?;
            let page = read_page(&document(url.as_str(), &self.fetch)?)?;
            servers.extend(page.servers);
            // A page that names itself as the next one would be read again and again.
            if page.next.is_none() || page.next == cursor {
                return Ok((servers, true));
            }
            if is_enough(&servers) {
                return Ok((servers, false));
            }
            cursor = page.next;
        }
        Ok((servers, false))
    }
}
