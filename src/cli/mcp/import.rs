//! `toolscout mcp import` and `restore`: the servers of other MCP clients, and their settings as they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::output::print_stderr;
use super::super::upstream::DEFAULT_FILE;
use super::install::{Writing, start_of_this_program};
use crate::mcp::import::{ClientServers, ImportedServer, read, take_secrets, without_secrets};
use crate::mcp::install::{Client, Endpoint, Plan, listed_servers, restore};
use crate::printable::counted;

/// Takes the MCP servers from the settings of other clients into a file of servers, and keeps a backup of
/// the file. Without --client and --from it looks at every known client: claude-desktop, claude-code, cursor,
/// vscode, windsurf, gemini-cli, codex, zed, goose.
///
/// Values whose names say that they are secret become references to environment variables, which are
/// listed. With --replace the clients get toolscout in the place of these servers.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp import --dry-run\n  toolscout mcp import --client cursor --client vscode\n  toolscout mcp import --from ~/project/.mcp.json\n  toolscout mcp import --client cursor --replace"
)]
pub struct Args {
    /// A client (repeatable) [default: every one whose settings are in the usual place]
    #[arg(long, value_name = "NAME")]
    client: Vec<Client>,
    /// A file of settings: JSON, TOML or YAML
    #[arg(long, value_name = "FILE", conflicts_with = "client")]
    from: Option<PathBuf>,
    /// The file of servers; it is created if it is missing
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    mcp: PathBuf,
    /// Write secrets into the file as the clients have them
    #[arg(long)]
    keep_secrets: bool,
    /// Put toolscout in the place of these servers in the clients' settings; `mcp restore` puts the
    /// settings back
    #[arg(long, conflicts_with = "from")]
    replace: bool,
    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The settings of one client.
struct Source {
    /// The client, or the file if it is not known.
    name: String,
    client: Option<Client>,
    path: PathBuf,
    found: ClientServers,
}

/// A server, and what becomes of it.
struct Placed {
    /// The number of its source.
    source: usize,
    server: ImportedServer,
    /// Its name in the file of servers.
    name: String,
    is_new: bool,
}

/// A client that has this program in the place of its servers.
struct Replaced {
    client: Client,
    path: PathBuf,
    backup: Option<PathBuf>,
}

/// What an import did.
struct Report {
    sources: Vec<Source>,
    placed: Vec<Placed>,
    variables: Vec<String>,
    replaced: Vec<Replaced>,
}

impl Args {
    /// Reads the settings, and writes the file of servers.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let mut sources = self.sources()?;
        let (mut servers, mut of_source) = (Vec::new(), Vec::new());
        for (number, source) in sources.iter_mut().enumerate() {
            of_source.resize(of_source.len() + source.found.servers.len(), number);
            servers.append(&mut source.found.servers);
        }
        let values = match self.keep_secrets {
            true => BTreeMap::new(),
            false => take_secrets(&mut servers),
        };
        let listed = listed_servers(&self.mcp)?;
        let placed = place(of_source.into_iter().zip(servers), &sources, listed);
        let mut report = Report {
            sources,
            placed,
            variables: values.keys().cloned().collect(),
            replaced: Vec::new(),
        };
        if report.placed.is_empty() {
            report.print_left_out();
            print_stderr("there are no MCP servers to import; name a file of settings with --from");
            return Ok(Outcome::Failure);
        }
        let plan = Plan::adding_all(&self.mcp, &report.new_entries())?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if self.replace && !self.dry_run {
            report.replaced = self.put_in_place(context, &report, &values)?;
        }
        if context.printer.is_json() {
            let mut json = report.to_json();
            json["file"] = json!(plan.path);
            json["written"] = json!(writing.is_written);
            json["backup"] = json!(writing.backup);
            context.printer.json(&json)?;
            return Ok(Outcome::Success);
        }
        let header = ["", "server", "from", "command or URL"];
        context.printer.rows(&header, report.rows())?;
        report.print_left_out();
        if self.dry_run {
            let new = counted(report.new_entries().len(), "server");
            let path = plan.path.display();
            print_stderr(format_args!("{new} would be added to {path}"));
        } else {
            let file = self.mcp.display();
            let next = format!("`toolscout mcp servers --mcp {file}` asks them for their tools");
            writing.print(context, &plan, &next)?;
        }
        report.print_replaced();
        report.print_variables();
        Ok(Outcome::Success)
    }

    /// The settings to read. Clients that nobody named are left out if they have none that can be read.
    fn sources(&self) -> Result<Vec<Source>> {
        if let Some(path) = &self.from {
            return Ok(vec![Source::read(None, path.clone())?]);
        }
        let is_named = !self.client.is_empty();
        let clients = match is_named {
            true => self.client.as_slice(),
            false => &Client::ALL,
        };
        let mut sources = Vec::new();
        for client in clients {
            let path = client
                .settings_file()
                .context("there is no home directory; name a file of settings with --from")?;
            if !is_named && !path.is_file() {
                continue;
            }
            match Source::read(Some(*client), path) {
                Ok(source) => sources.push(source),
                Err(error) if is_named => return Err(error),
                Err(error) => print_stderr(format_args!("warning: {error:#}")),
            }
        }
        Ok(sources)
    }

    /// Puts this program in the place of the servers of each client.
    fn put_in_place(
        &self,
        context: &Context,
        report: &Report,
        values: &BTreeMap<String, Option<String>>,
    ) -> Result<Vec<Replaced>> {
        let args = ["--mcp".to_owned(), self.mcp.display().to_string()];
        let mut replaced = Vec::new();
        for (number, source) in report.sources.iter().enumerate() {
            let of_source = report
                .placed
                .iter()
                .filter(|placed| placed.source == number);
            let of_source: Vec<&ImportedServer> = of_source.map(|placed| &placed.server).collect();
            let (Some(client), false) = (source.client, of_source.is_empty()) else {
                continue;
            };
            let mut endpoint = start_of_this_program(context, &args)?;
            if let Endpoint::Stdio { env, .. } = &mut endpoint {
                // The servers need their secrets, which stay where they were: in the client's settings.
                env.extend(values_for(&of_source, values));
            }
            let names: Vec<String> = of_source.iter().map(|server| server.name.clone()).collect();
            let plan = Plan::replacing(client, &source.path, &endpoint, &names)?;
            let backup = Writing::of(&plan, false)?.backup;
            let path = plan.path;
            replaced.push(Replaced {
                client,
                path,
                backup,
            });
        }
        Ok(replaced)
    }
}

/// The values of the variables that these servers refer to.
fn values_for(
    servers: &[&ImportedServer],
    values: &BTreeMap<String, Option<String>>,
) -> BTreeMap<String, String> {
    let entries: String = servers
        .iter()
        .map(|server| server.entry.to_string())
        .collect();
    let mut used = BTreeMap::new();
    for (variable, value) in values {
        if let Some(value) = value
            && entries.contains(&format!("${{{variable}}}"))
        {
            used.insert(variable.clone(), value.clone());
        }
    }
    used
}

impl Source {
    fn read(client: Option<Client>, path: PathBuf) -> Result<Self> {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let found = read(&path, &text)
            .map_err(|reason| UsageError(format!("{}: {reason}", path.display())))?;
        let name = match client {
            Some(client) => client.to_string(),
            None => path.display().to_string(),
        };
        Ok(Source {
            name,
            client,
            path,
            found,
        })
    }

    /// What tells a server of it from another one of that name.
    fn suffix(&self) -> String {
        let stem = Path::new(&self.name).file_stem().unwrap_or_default();
        stem.to_string_lossy().trim_matches('.').to_owned()
    }
}

/// Each server with a name that is free in the file of servers, or that has the same entry there.
fn place(
    servers: impl Iterator<Item = (usize, ImportedServer)>,
    sources: &[Source],
    mut listed: Map<String, Value>,
) -> Vec<Placed> {
    let mut placed = Vec::new();
    for (source, server) in servers {
        let suffixed = format!("{}-{}", server.name, sources[source].suffix());
        let numbered = (2..).map(|number| format!("{suffixed}-{number}"));
        let names = [server.name.clone(), suffixed.clone()];
        let mut names = names.into_iter().chain(numbered);
        let is_free = |name: &String| listed.get(name).is_none_or(|other| *other == server.entry);
        let name = names.find(is_free).unwrap_or(suffixed);
        let is_new = !listed.contains_key(&name);
        listed.insert(name.clone(), server.entry.clone());
        placed.push(Placed {
            source,
            server,
            name,
            is_new,
        });
    }
    placed
}

impl Report {
    /// The servers that the file of servers does not have, by name.
    fn new_entries(&self) -> Vec<(String, Value)> {
        let new = self.placed.iter().filter(|placed| placed.is_new);
        new.map(|placed| (placed.name.clone(), placed.server.entry.clone()))
            .collect()
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for placed in &self.placed {
            let shown = ImportedServer {
                entry: without_secrets(&placed.server.entry),
                ..placed.server.clone()
            };
            let change = if placed.is_new { "+" } else { "=" };
            let name = match placed.name == placed.server.name {
                true => placed.name.clone(),
                false => format!("{} ({} there)", placed.name, placed.server.name),
            };
            let source = self.sources[placed.source].name.clone();
            rows.push(vec![change.into(), name, source, shown.target()]);
        }
        rows
    }

    fn to_json(&self) -> Value {
        let (mut servers, mut left_out, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        for placed in &self.placed {
            servers.push(json!({
                "server": placed.name, "name_there": placed.server.name,
                "from": self.sources[placed.source].name,
                "change": if placed.is_new { "added" } else { "same" },
                "entry": without_secrets(&placed.server.entry),
                "unknown_keys": placed.server.unknown_keys,
            }));
        }
        for source in &self.sources {
            for (name, reason) in &source.found.left_out {
                let of_source = &source.name;
                left_out.push(json!({ "name_there": name, "from": of_source, "reason": reason }));
            }
        }
        for Replaced {
            client,
            path,
            backup,
        } in &self.replaced
        {
            let client = client.as_str();
            replaced.push(json!({ "client": client, "file": path, "backup": backup }));
        }
        json!({
            "servers": servers, "left_out": left_out, "variables": self.variables, "replaced": replaced,
        })
    }

    fn print_left_out(&self) {
        for source in &self.sources {
            for (name, reason) in &source.found.left_out {
                let client = &source.name;
                print_stderr(format_args!(
                    "note: {name} of {client} is left out: {reason}"
                ));
            }
        }
        for Placed { name, server, .. } in &self.placed {
            if !server.unknown_keys.is_empty() {
                let keys = server.unknown_keys.join(", ");
                print_stderr(format_args!(
                    "note: these keys of {name} are left out: {keys}"
                ));
            }
        }
    }

    fn print_replaced(&self) {
        for Replaced { client, path, .. } in &self.replaced {
            let path = path.display();
            print_stderr(format_args!(
                "{path} has toolscout in their place; restart {client}. \
                 `toolscout mcp restore --client {client}` puts the settings back"
            ));
        }
    }

    fn print_variables(&self) {
        if !self.variables.is_empty() {
            let names = self.variables.join(", ");
            print_stderr(format_args!(
                "set these environment variables before you use the servers; the clients' settings have their values: {names}"
            ));
        }
    }
}

/// Puts the settings of a client back as they were, byte for byte: from the newest backup that `mcp
/// install` or `mcp import --replace` made. The next run puts back the one before it.
#[derive(clap::Args, Debug)]
pub struct RestoreArgs {
    /// The client
    #[arg(long, value_name = "NAME")]
    client: Client,
    /// Its settings file, where it is not in the usual place
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl RestoreArgs {
    /// Puts the newest backup in the place of the settings.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let client = self.client;
        let path = match self.file {
            Some(file) => file,
            None => client
                .settings_file()
                .context("there is no home directory; name the file with --file")?,
        };
        let backup = restore(&path)?;
        if context.printer.is_json() {
            let client = client.as_str();
            context
                .printer
                .json(&json!({ "client": client, "file": path, "backup": backup }))?;
        } else {
            let (path, backup) = (path.display(), backup.display());
            context.printer.text(format_args!(
                "{path} is again what {backup} was; restart {client}"
            ))?;
        }
        Ok(Outcome::Success)
    }
}
