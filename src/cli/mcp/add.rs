//! `toolscout mcp add`: a server of the MCP registry becomes an entry of a file of servers.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::super::Outcome;
use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::input::document;
use super::super::output::print_stderr;
use super::super::upstream::DEFAULT_FILE;
use super::install::Writing;
use crate::mcp::config::parse_server;
use crate::mcp::install::Plan;
use crate::mcp::registry::{Import, OpenValue, read};

/// Adds a server to a file of servers, from its server.json or a list of them as the MCP registry
/// answers it. Keeps a backup of the file; comments stay. What the server is to be given, keys for
/// example, the entry takes from environment variables, which are listed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp add server.json --dry-run\n  toolscout mcp add servers-answer.json --server io.example/weather --name weather"
)]
pub struct Args {
    /// The server.json: a file, a URL, or - for stdin
    #[arg(value_name = "FILE|URL|-")]
    input: String,
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
    /// Reads the description, and writes the entry.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let bytes = document(&self.input, &context.settings.fetch)?;
        let described = read(&bytes, self.server.as_deref())?;
        let import = described.import(self.kind.as_deref(), &is_installed)?;
        let name = self.name.clone().unwrap_or_else(|| import.short_name());
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
}

/// Says which variables have to be set before the server is used.
fn print_open(import: &Import) {
    for required in [true, false] {
        let open: Vec<&OpenValue> = import
            .open
            .iter()
            .filter(|open| open.required == required)
            .collect();
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
fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| {
        let file = folder.join(program);
        file.is_file() || (cfg!(windows) && file.with_extension("exe").is_file())
    })
}
