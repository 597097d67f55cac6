//! `toolscout mcp import` and `restore`: the servers of other MCP clients, and their settings as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::mcp_args::DEFAULT_FILE;
use super::super::output::print_stderr;
use super::confirm::confirmed;
use super::install::{Writing, start_of_this_program};
use crate::mcp::import::{
    Change, ClientServers, IS_OWN, ImportedServer, Placing, Variables, read, references,
    without_secrets,
};
use crate::mcp::install::{Client, Endpoint, InstallError, Plan, listed_servers, restore};
use crate::printable::{self, counted};

/// Takes the MCP servers from the settings of other clients into a file of servers, and keeps a backup of
/// the file. Without --client and --from it looks at every known client: claude-desktop, claude-code, cursor,
/// vscode, windsurf, gemini-cli, codex, zed, goose.
///
/// Secrets become references to environment variables, which are listed. A secret is known by its name, such
/// as GITHUB_TOKEN, or by its beginning. If the file has another server of that name, the new one is called
/// NAME-CLIENT, or takes its place with --update: what only the file has, such as `tools` and `sandbox`,
/// stays. With --replace the clients get toolscout in the place of these servers.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp import --dry-run\n  toolscout mcp import --client cursor --client vscode\n  toolscout mcp import --from ~/project/.mcp.json\n  toolscout mcp import --client cursor --update --yes\n  toolscout mcp import --client cursor --replace"
)]
pub struct Args {
    /// A client: claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli, codex, zed or goose
    /// (repeatable) [default: every one whose settings are in the usual place]
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
    /// Change servers of the file that differ from those of the clients; shows the differences, and asks
    #[arg(long)]
    update: bool,
    /// Change them without asking
    #[arg(long, short, requires = "update")]
    yes: bool,
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
    change: Change,
}

/// A client that has this program in the place of its servers.
struct Replaced {
    client: Client,
    path: PathBuf,
    backup: Option<PathBuf>,
    /// The variables that its entry sets.
    set: BTreeSet<String>,
}

/// What an import did.
struct Report {
    sources: Vec<Source>,
    placed: Vec<Placed>,
    variables: Variables,
    replaced: Vec<Replaced>,
    /// Why clients did not get this program in the place of their servers.
    not_replaced: Vec<String>,
}

impl Args {
    /// Reads the settings, and writes the file of servers.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if self.replace && self.client.contains(&Client::Goose) {
            let message =
                "the settings of goose are read and not written; import without --replace";
            return Err(UsageError(message.into()).into());
        }
        let sources = self.sources()?;
        let listed = listed_servers(&self.mcp)?;
        let mut report = Report::of(sources, listed, &self);
        if report.placed.is_empty() {
            report.print_left_out();
            return Ok(self.say_that_there_are_none(&report));
        }
        let updated = report.updated();
        if !updated.is_empty() && !self.dry_run && !self.yes {
            let is_asked = !context.printer.is_json();
            if is_asked {
                report.print_differences();
            }
            let names = updated.join(", ");
            let question = format!("change {names} in {}?", self.mcp.display());
            let refusal = "nobody can be asked here; give --yes to change the servers, or --dry-run to see what would change";
            if !confirmed(&question, refusal, is_asked)? {
                print_stderr("nothing was changed");
                return Ok(Outcome::Failure);
            }
        }
        // The file of servers first: a client whose servers were replaced before they are written
        // there would lose them.
        let plan = Plan::setting_all(&self.mcp, &report.changed_entries())?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if self.replace && !self.dry_run {
            self.put_in_place(context, &mut report)?;
        }
        if context.printer.is_json() {
            let mut json = report.to_json();
            json["file"] = json!(plan.path);
            json["written"] = json!(writing.is_written);
            json["backup"] = json!(writing.backup);
            context.printer.json(&json)?;
            return Ok(report.outcome());
        }
        let header = ["", "server", "from", "command or URL"];
        context.printer.rows(&header, report.rows())?;
        report.print_left_out();
        if self.dry_run {
            report.print_differences();
            let path = plan.path.display();
            let changed = updated.len();
            let new = counted(report.changed_entries().len() - changed, "server");
            print_stderr(format_args!("{new} would be added to {path}"));
            if changed > 0 {
                let changed = counted(changed, "server");
                print_stderr(format_args!("{changed} would be changed there"));
            }
            if self.replace {
                report.print_what_would_be_replaced();
            }
        } else {
            let file = self.mcp.display();
            let next = format!("`toolscout mcp servers --mcp {file}` asks them for their tools");
            writing.print(context, &plan, &next)?;
        }
        report.print_replaced();
        report.print_variables();
        Ok(report.outcome())
    }

    fn say_that_there_are_none(&self, report: &Report) -> Outcome {
        let mut reasons = Vec::new();
        for source in &report.sources {
            for (_, reason) in &source.found.left_out {
                reasons.push(reason);
            }
        }
        if !reasons.is_empty() && reasons.into_iter().all(|reason| reason == IS_OWN) {
            print_stderr("toolscout has the place of all servers already");
            return Outcome::Success;
        }
        match &self.from {
            Some(path) => print_stderr(format_args!(
                "{} has no MCP servers that can be imported",
                path.display()
            )),
            None => print_stderr(
                "there are no MCP servers to import; name a file of settings with --from",
            ),
        }
        Outcome::Failure
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
            if self.replace && *client == Client::Goose {
                print_stderr("note: goose is left out: its settings are read and not written");
                continue;
            }
            // A client that was named has to be read; others are only looked at.
            match Source::read(Some(*client), path) {
                Ok(source) => sources.push(source),
                Err(error) if is_named => return Err(error),
                Err(error) => print_stderr(format_args!("warning: {error:#}")),
            }
        }
        Ok(sources)
    }

    /// Puts this program in the place of the servers of each client.
    fn put_in_place(&self, context: &Context, report: &mut Report) -> Result<()> {
        let args = ["--mcp".to_owned(), self.mcp.display().to_string()];
        for (number, source) in report.sources.iter().enumerate() {
            let of_source = report.servers_of(number);
            let (Some(client), false) = (source.client, of_source.is_empty()) else {
                continue;
            };
            let mut endpoint = start_of_this_program(context, &args)?;
            let values = values_for(&of_source, report.variables.values());
            let set = values.keys().cloned().collect();
            if let Endpoint::Stdio { env, .. } = &mut endpoint {
                // The servers need their secrets, which stay where they were: in the client's settings.
                env.extend(values);
            }
            let names: Vec<String> = of_source.iter().map(|server| server.name.clone()).collect();
            let planned = Plan::replacing(client, &source.path, &endpoint, &names);
            match planned.and_then(|plan| Ok((plan.write()?, plan.path))) {
                Ok((backup, path)) => report.replaced.push(Replaced {
                    client,
                    path,
                    backup,
                    set,
                }),
                // Without the entry, which has secrets.
                Err(InstallError::Unmergeable { path, reason, .. }) => {
                    let path = path.display();
                    let message = format!("{path} stays as it is: {reason}");
                    report.not_replaced.push(message);
                }
                Err(error) => report.not_replaced.push(error.to_string()),
            }
        }
        Ok(())
    }
}

/// The values of the variables that these servers refer to.
fn values_for(
    servers: &[&ImportedServer],
    values: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let names = names_in(servers.iter().map(|server| &server.entry));
    let mut used = values.clone();
    used.retain(|variable, _| names.contains(variable));
    used
}

/// The variables that entries refer to.
fn names_in<'e>(entries: impl Iterator<Item = &'e Value>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in entries {
        references(&entry.to_string(), &mut names);
    }
    names
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

impl Report {
    /// What becomes of the servers of these sources beside those that are listed.
    fn of(mut sources: Vec<Source>, mut listed: Map<String, Value>, args: &Args) -> Self {
        // All variables that are in use are known before the first new one is named.
        let found = sources.iter().flat_map(|source| &source.found.servers);
        let entries = found.map(|server| &server.entry).chain(listed.values());
        let mut variables = Variables::beside(entries, args.keep_secrets);
        let mut placing = Placing {
            listed: &mut listed,
            variables: &mut variables,
            updates: args.update,
            given: BTreeSet::new(),
        };
        let mut placed = Vec::new();
        for (number, source) in sources.iter_mut().enumerate() {
            let suffix = source.suffix();
            for mut server in std::mem::take(&mut source.found.servers) {
                let (name, change) = placing.place(&mut server, &suffix);
                placed.push(Placed {
                    source: number,
                    server,
                    name,
                    change,
                });
            }
        }
        Report {
            sources,
            placed,
            variables,
            replaced: Vec::new(),
            not_replaced: Vec::new(),
        }
    }

    fn outcome(&self) -> Outcome {
        match self.not_replaced.is_empty() {
            true => Outcome::Success,
            false => Outcome::Failure,
        }
    }

    fn servers_of(&self, source: usize) -> Vec<&ImportedServer> {
        let mut servers = Vec::new();
        for placed in &self.placed {
            if placed.source == source {
                servers.push(&placed.server);
            }
        }
        servers
    }

    /// The servers that the file of servers does not have in this form, by name.
    fn changed_entries(&self) -> Vec<(String, Value)> {
        let mut changed = Vec::new();
        for placed in &self.placed {
            if placed.change != Change::Same {
                changed.push((placed.name.clone(), placed.server.entry.clone()));
            }
        }
        changed
    }

    /// The names of the servers of the file that change.
    fn updated(&self) -> Vec<String> {
        let mut updated = Vec::new();
        for placed in &self.placed {
            if matches!(placed.change, Change::Updated(_)) {
                updated.push(placed.name.clone());
            }
        }
        updated
    }

    /// Says what changes in the servers of the file, without secrets.
    fn print_differences(&self) {
        for placed in &self.placed {
            let Change::Updated(before) = &placed.change else {
                continue;
            };
            print_stderr(format_args!("{}:", placed.name));
            let before = without_secrets(before);
            let after = without_secrets(&placed.server.entry);
            let keys = [&before, &after].into_iter().filter_map(Value::as_object);
            let keys: BTreeSet<&String> = keys.flat_map(Map::keys).collect();
            for key in keys {
                let (was, is) = (before.get(key), after.get(key));
                if was == is {
                    continue;
                }
                for (sign, value) in [("-", was), ("+", is)] {
                    if let Some(value) = value {
                        print_stderr(printable::line(&format!("  {sign} {key}: {value}")));
                    }
                }
            }
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for placed in &self.placed {
            let shown = ImportedServer {
                entry: without_secrets(&placed.server.entry),
                ..placed.server.clone()
            };
            let change = match placed.change {
                Change::Added => "+",
                // A server that several clients have is added once.
                Change::Same => "=",
                Change::Updated(_) => "~",
            };
            let mut name = match placed.name == placed.server.name {
                true => placed.name.clone(),
                false => format!("{} ({} there)", placed.name, placed.server.name),
            };
            if placed.server.entry["disabled"] == true {
                name.push_str(" (disabled)");
            }
            let source = self.sources[placed.source].name.clone();
            rows.push(vec![change.into(), name, source, shown.target()]);
        }
        rows
    }

    fn to_json(&self) -> Value {
        let (mut servers, mut left_out, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        for placed in &self.placed {
            let (change, before) = match &placed.change {
                Change::Added => ("added", None),
                Change::Same => ("same", None),
                Change::Updated(before) => ("updated", Some(without_secrets(before))),
            };
            let mut server = json!({
                "server": placed.name, "name_there": placed.server.name,
                "from": self.sources[placed.source].name, "change": change,
                "entry": without_secrets(&placed.server.entry),
                "unknown_keys": placed.server.unknown_keys,
            });
            if let Some(before) = before {
                server["before"] = before;
            }
            servers.push(server);
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
            ..
        } in &self.replaced
        {
            let client = client.as_str();
            replaced.push(json!({ "client": client, "file": path, "backup": backup }));
        }
        let variables: Vec<&String> = self.variables.values().keys().collect();
        json!({
            "servers": servers, "left_out": left_out, "variables": variables,
            "replaced": replaced, "not_replaced": self.not_replaced,
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

    fn print_what_would_be_replaced(&self) {
        for (number, source) in self.sources.iter().enumerate() {
            let servers = self.servers_of(number).len();
            if servers > 0 {
                let (path, servers) = (source.path.display(), counted(servers, "server"));
                print_stderr(format_args!(
                    "{path} would have toolscout in the place of {servers}"
                ));
            }
        }
    }

    fn print_replaced(&self) {
        for reason in &self.not_replaced {
            print_stderr(format_args!("error: {reason}"));
        }
        let needed = names_in(self.placed.iter().map(|placed| &placed.server.entry));
        for replaced in &self.replaced {
            let (client, path) = (replaced.client, replaced.path.display());
            print_stderr(format_args!(
                "{path} has toolscout in their place; restart {client}. \
                 `toolscout mcp restore --client {client}` puts the settings back"
            ));
            let missing = needed.difference(&replaced.set).map(String::as_str);
            let missing: Vec<&str> = missing.collect();
            if !missing.is_empty() {
                let names = missing.join(", ");
                print_stderr(format_args!(
                    "note: {client} needs these variables in its environment, or in the entry of toolscout: {names}"
                ));
            }
        }
    }

    /// The variables to set, if no client sets them.
    fn print_variables(&self) {
        let names: Vec<&str> = self.variables.values().keys().map(String::as_str).collect();
        if !names.is_empty() && self.replaced.is_empty() {
            let names = names.join(", ");
            print_stderr(format_args!(
                "set these environment variables before you use the servers; the clients' settings have their values: {names}"
            ));
        }
    }
}

/// Puts the settings of a client back as they were, byte for byte: from the newest backup that `mcp
/// install` or `mcp import --replace` made. The next run puts back the one before it. What the
/// client has written since then is kept in a file beside it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp restore --client cursor\n  toolscout mcp restore --client vscode --file .vscode/mcp.json"
)]
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
        let restored = restore(&path)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "client": client.as_str(), "file": path,
                "backup": restored.backup, "replaced": restored.replaced,
            }))?;
            return Ok(Outcome::Success);
        }
        let (path, backup) = (path.display(), restored.backup.display());
        let kept = match &restored.replaced {
            Some(replaced) => format!("; what was there is in {}", replaced.display()),
            None => String::new(),
        };
        context.printer.text(format_args!(
            "{path} is again what {backup} was{kept}; restart {client}"
        ))?;
        Ok(Outcome::Success)
    }
}
