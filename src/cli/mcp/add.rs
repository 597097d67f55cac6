//! `toolscout mcp add`: a command, a URL or a description of the MCP registry becomes an entry of a file of
//! servers.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::input::document;
use super::super::mcp_args::DEFAULT_FILE;
use super::super::output::print_stderr;
use super::install::Writing;
use crate::mcp::config::{is_url, parse_server};
use crate::mcp::import::without_secrets;
use crate::mcp::install::Plan;
use crate::mcp::server_json::{Import, OpenValue, read};

/// Adds a server to a file of servers: by its command, by its URL, or from its server.json or a list of
/// them as the MCP registry answers it. Keeps a backup of the file; comments stay. What a described server
/// is to be given, keys for example, the entry takes from environment variables, which are listed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp add git -- uvx mcp-server-git\n  toolscout mcp add github --env GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github\n  toolscout mcp add web https://mcp.example.com/mcp --header \"X-Team: tools\"\n  toolscout mcp add server.json --dry-run\n  toolscout mcp add servers-answer.json --server io.example/weather --name weather"
)]
pub struct Args {
    /// The name of the server, before its URL or its command; else its server.json: a file, a URL, or -
    /// for stdin
    #[arg(value_name = "NAME|FILE|URL|-")]
    input: String,
    /// Its URL, after its name
    #[arg(value_name = "URL", conflicts_with_all = ["command", "server", "name", "kind"])]
    url: Option<String>,
    /// The command that starts it, after its name and --
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["server", "name", "kind"])]
    command: Vec<String>,
    /// An environment variable of the command. A value is stored in the file; without one, the variable has
    /// the value of your shell when the server is started (repeatable)
    #[arg(short, long, value_name = "NAME[=VALUE]", conflicts_with = "url")]
    env: Vec<String>,
    /// A header for the URL; ${VARIABLE} in the value is taken from the environment (repeatable)
    #[arg(
        short = 'H',
        long,
        value_name = "NAME: VALUE",
        conflicts_with = "command"
    )]
    header: Vec<String>,
    /// How the server is reached [default: stdio for a command, and for a URL http, or else sse]
    #[arg(long, value_parser = ["stdio", "http", "sse"], hide_possible_values = true)]
    transport: Option<String>,
    /// The server to take from a list, by its name in the registry
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Its name in the file of servers [default: the last part of its name in the registry]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
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
}

impl Args {
    /// Writes the entry.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        if let Some(entry) = self.entry().map_err(UsageError)? {
            return self.write(context, &entry);
        }
        let bytes = document(&self.input, &context.settings.fetch)?;
        let described = read(&bytes, self.server.as_deref())?;
        let import = described.import(self.kind.as_deref(), &is_installed)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => import.short_name(),
        };
        // The name is checked as it will be when the file is read.
        parse_server(&format!("{name}=x"), &|_| None).map_err(UsageError)?;
        let plan = Plan::adding(&self.mcp, &name, &import.entry)?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "server": name, "registry_name": import.name, "version": import.version,
                "entry": import.entry, "variables": import.open, "file": plan.path,
                "written": writing.is_written, "backup": writing.backup,
            }))?;
            return Ok(Outcome::Success);
        }
        let next = format!("it has the server {name}:\n{:#}", import.entry);
        writing.print(context, &plan, &next)?;
        print_open(&import);
        Ok(Outcome::Success)
    }

    /// The entry of a server whose command or URL is given.
    ///
    /// # Errors
    /// What is wrong with the arguments.
    fn entry(&self) -> Result<Option<Value>, String> {
        let mut entry = match (&self.url, self.command.split_first()) {
            (None, None) if self.is_description() => return Ok(None),
            (None, None) => {
                let name = &self.input;
                return Err(format!(
                    "write `mcp add {name} -- COMMAND` or `mcp add {name} URL`; there is no file {name} with a description"
                ));
            }
            (Some(url), _) if !is_url(url) => {
                return Err(format!(
                    "{url:?} is no URL; write `mcp add {} -- {url} …` for a command",
                    self.input
                ));
            }
            (Some(url), _) => json!({ "url": url }),
            (None, Some((command, []))) => json!({ "command": command }),
            (None, Some((command, args))) => json!({ "command": command, "args": args }),
        };
        match (self.transport.as_deref(), self.url.is_some()) {
            (Some("stdio"), true) => return Err("a URL is not reached by stdio".into()),
            (Some(kind @ ("http" | "sse")), false) => {
                return Err(format!("{kind} needs a URL: `mcp add NAME URL`"));
            }
            (Some(kind), true) => entry["type"] = kind.into(),
            _ => {}
        }
        let mut variables = Map::new();
        for variable in &self.env {
            let (name, value) = match variable.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                // Taken from the environment when the server is started.
                None => (variable.as_str(), format!("${{{variable}}}")),
            };
            if name.is_empty() {
                return Err(format!("--env {variable}: write NAME=VALUE, or NAME alone"));
            }
            variables.insert(name.to_owned(), value.into());
        }
        let mut headers = Map::new();
        for header in &self.header {
            let Some((name, value)) = header.split_once(':') else {
                return Err(format!("--header {header}: write NAME: VALUE"));
            };
            headers.insert(name.trim().to_owned(), value.trim().into());
        }
        for (key, fields) in [("env", variables), ("headers", headers)] {
            if !fields.is_empty() {
                entry[key] = fields.into();
            }
        }
        // The name and the URL are checked as they will be when the file is read.
        // Commands are not checked, so any one will do in the place of this one.
        let target = self.url.as_deref().unwrap_or("x");
        parse_server(&format!("{}={target}", self.input), &|_| None)?;
        Ok(Some(entry))
    }

    /// Whether a description is meant, and not the name of a server.
    fn is_description(&self) -> bool {
        let has_flags = !self.env.is_empty() || !self.header.is_empty() || self.transport.is_some();
        let is_there = self.input == "-" || is_url(&self.input) || Path::new(&self.input).exists();
        !has_flags && (is_there || self.input.ends_with(".json"))
    }

    fn write(&self, context: &Context, entry: &Value) -> Result<Outcome> {
        let name = &self.input;
        let plan = Plan::adding(&self.mcp, name, entry)?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "server": name, "entry": without_secrets(entry), "file": plan.path,
                "written": writing.is_written, "backup": writing.backup,
            }))?;
            return Ok(Outcome::Success);
        }
        let file = self.mcp.display();
        let next = format!(
            "it has the server {name}; `toolscout mcp servers --mcp {file}` asks it for its tools"
        );
        writing.print(context, &plan, &next)?;
        Ok(Outcome::Success)
    }
}

/// Says which variables have to be set before the server is used.
pub fn print_open(import: &Import) {
    for required in [true, false] {
        let mut open: Vec<&OpenValue> = import.open.iter().collect();
        open.retain(|open| open.required == required);
        if open.is_empty() {
            continue;
        }
        print_stderr(if required {
            "set these environment variables before it is used:"
        } else {
            "it also knows these, which can be added to the entry:"
        });
        for open in open {
            let secret = if open.secret { " (secret)" } else { "" };
            print_stderr(format_args!(
                "  {}{secret} {}",
                open.variable, open.description
            ));
        }
    }
}

/// Whether a program is in one of the folders of `PATH`.
pub fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&folders) {
        let file = folder.join(program);
        if file.is_file() || (cfg!(windows) && file.with_extension("exe").is_file()) {
            return true;
        }
    }
    false
}
