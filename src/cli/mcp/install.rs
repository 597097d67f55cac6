//! `toolscout mcp install`: adds this program to the settings of an MCP client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Parser;
use serde_json::json;

use super::super::context::Context;
use super::super::exit::UsageError;
use super::super::globals::absolute;
use super::super::output::print_stderr;
use super::super::{Cli, Outcome, Verb};
use crate::config::{PATH_VARIABLES, Settings, VALUE_VARIABLES};
use crate::mcp::install::{Client, Endpoint, Plan};

/// Adds this program to the settings of an MCP client and keeps a backup of them. Comments stay.
///
/// The client starts the program with the data directory, catalog, embedder and configuration file
/// of this command, whether they come from global flags or from TOOLSCOUT_* variables. Known
/// clients: claude-desktop, claude-code, cursor, vscode, windsurf, gemini-cli, codex, zed; of goose the entry is printed.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout mcp install --client cursor\n  toolscout --catalog work mcp install --client vscode -- --mcp servers.json"
)]
pub struct Args {
    /// The client
    #[arg(long, value_name = "NAME")]
    client: Client,
    /// Its settings file, where it is not in the usual place
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Connect the client to a running `toolscout serve` at this URL (as
    /// http://127.0.0.1:7700/mcp) instead of letting it start the program
    #[arg(long, value_name = "URL", conflicts_with = "args")]
    url: Option<String>,
    /// Print the new settings, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Arguments of `toolscout mcp` for this client, after --
    #[arg(last = true, value_name = "ARGUMENT")]
    args: Vec<String>,
}

impl Args {
    /// Merges the entry into the settings, and prints the changed file.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        context.warn_of_unknown_catalog();
        let path = match &self.file {
            Some(file) => file.clone(),
            None => self
                .client
                .settings_file()
                .context("there is no home directory; name the file with --file")?,
        };
        let plan = Plan::new(self.client, &path, &self.endpoint(context)?)?;
        let writing = Writing::of(&plan, self.dry_run)?;
        if context.printer.is_json() {
            context.printer.json(&json!({
                "client": self.client.as_str(), "file": plan.path, "content": plan.after,
                "written": writing.is_written, "backup": writing.backup,
            }))?;
            return Ok(Outcome::Success);
        }
        let next = format!("restart {} to use it", self.client);
        writing.print(context, &plan, &next)?;
        Ok(Outcome::Success)
    }

    fn endpoint(&self, context: &Context) -> Result<Endpoint> {
        match &self.url {
            Some(url) => Ok(Endpoint::Http { url: url.clone() }),
            None => start_of_this_program(context, &self.args),
        }
    }
}

/// How a client starts this program, with these arguments of `toolscout mcp`.
pub fn start_of_this_program(context: &Context, args: &[String]) -> Result<Endpoint> {
    let command = match &context.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("find the path of this program")?,
    };
    let (checked, passed_on) = checked(args, &context.settings)?;
    let mut args = context.globals.to_args();
    args.push("mcp".to_owned());
    args.extend(checked);
    Ok(Endpoint::Stdio {
        command: command.display().to_string(),
        args,
        env: environment(|name| std::env::var(name).ok()),
        passed_on,
    })
}

/// What becomes of a plan.
pub struct Writing {
    /// Whether the file was changed.
    pub is_written: bool,
    /// Where its previous content is.
    pub backup: Option<PathBuf>,
    dry_run: bool,
}

impl Writing {
    /// Writes the file, unless there is nothing to write or it shall only be shown.
    pub fn of(plan: &Plan, dry_run: bool) -> Result<Self> {
        let is_written = !dry_run && !plan.is_up_to_date();
        let backup = if is_written { plan.write()? } else { None };
        Ok(Writing {
            is_written,
            backup,
            dry_run,
        })
    }

    /// Says what became of the file, and what comes next.
    pub fn print(&self, context: &Context, plan: &Plan, next: &str) -> Result<()> {
        let path = plan.path.display();
        if self.dry_run {
            print_stderr(format_args!("{path} would be:"));
            return context.printer.text(plan.after.trim_end());
        }
        if !self.is_written {
            return context.printer.text(format_args!("{path} is up to date"));
        }
        let backup = match &self.backup {
            Some(backup) => format!("; the previous content is in {}", backup.display()),
            None => String::new(),
        };
        context
            .printer
            .text(format_args!("{path} was written{backup}; {next}"))
    }
}

/// The arguments of `toolscout mcp`, with absolute paths, because clients start the program in a
/// directory of their own. They are parsed and checked as the program itself would: a mistake in
/// them would otherwise appear in the client's log only.
/// Also returns the variables that the files of servers refer to.
fn checked(args: &[String], settings: &Settings) -> Result<(Vec<String>, BTreeSet<String>)> {
    let mut words = vec!["toolscout", "mcp"];
    words.extend(args.iter().map(String::as_str));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            // The other lines are about the command line as a whole.
            let text = error.render().to_string();
            let reason = text.lines().next().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            let message = format!("arguments after --: {reason}; see `toolscout mcp --help`");
            return Err(UsageError(message).into());
        }
    };
    let Verb::Mcp(mcp) = cli.verb else {
        // The second word is "mcp", so no other verb can be parsed.
        return Ok((args.to_vec(), BTreeSet::new()));
    };
    if mcp.verb.is_some() {
        let reason = "arguments after -- must be flags of `toolscout mcp`, not a subcommand";
        return Err(UsageError(reason.to_owned()).into());
    }
    // Read for their errors alone.
    mcp.policy.preset(settings)?;
    mcp.policy.tool_profile(settings)?;
    mcp.mcp.config(&settings.data)?;
    let mut absolute_args = Vec::new();
    let mut previous = "";
    for arg in args {
        absolute_args.push(match arg.split_once('=') {
            Some((flag, value)) if is_path(flag, value) => {
                format!("{flag}={}", absolute(Path::new(value)))
            }
            None if is_path(previous, arg) => absolute(Path::new(arg)),
            _ => arg.clone(),
        });
        previous = arg;
    }
    Ok((absolute_args, mcp.mcp.variables()))
}

/// True when the value of the flag is a path.
fn is_path(flag: &str, value: &str) -> bool {
    match flag {
        "--mcp" | "--data" | "--cache" | "--config" => true,
        // Otherwise the name of a preset.
        "--profile" => Path::new(value).is_file(),
        _ => false,
    }
}

/// The variables that settings are read from, as they are set now; a client does not pass on those
/// of a shell.
fn environment(variable: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for name in PATH_VARIABLES {
        if let Some(path) = variable(name)
            && !path.is_empty()
        {
            environment.insert(name.to_owned(), absolute(Path::new(&path)));
        }
    }
    for name in VALUE_VARIABLES {
        if let Some(value) = variable(name)
            && !value.is_empty()
        {
            environment.insert(name.to_owned(), value);
        }
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layer;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Settings with one profile.
    fn settings(folder: &Path) -> Settings {
        let file = folder.join("config.toml");
        let text = "data = '/d'\ncache = '/c'\n[profiles.team]\nservers = ['notes']";
        std::fs::write(&file, text).unwrap();
        Settings::resolve(Layer::default(), Some(&file), &|_| None).unwrap()
    }

    #[test]
    fn arguments_are_checked_and_their_paths_become_absolute() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let file = folder.path().join("servers.json");
        std::fs::write(
            &file,
            r#"{"mcpServers":{"a":{"command":"x","args":["${KEY:-}"]}}}"#,
        )
        .unwrap();
        let file = file.display().to_string();
        let args = strings(&["--mcp", &file, "--data=d", "--allow", "d"]);
        let data = format!("--data={}", absolute(Path::new("d")));
        // `d` is a path as the value of --data, and a pattern as the value of --allow.
        assert_eq!(
            checked(&args, &settings).unwrap(),
            (
                strings(&["--mcp", &file, &data, "--allow", "d"]),
                BTreeSet::from(["KEY".to_owned()])
            )
        );
        let profile = strings(&["--profile", "team"]);
        assert_eq!(checked(&profile, &settings).unwrap().0, profile);
        for (args, expected) in [
            (&["--bogus"][..], "'--bogus'"),
            (&["install", "--client", "vscode"], "not a subcommand"),
            (&["--mcp", "/nowhere.json"], "/nowhere.json"),
            (&["--mcp-server", "a"], "NAME=URL"),
            (&["--style", "magic"], "inject or dispatch"),
            (&["--profile", "taem"], "no profile \"taem\""),
        ] {
            let message = checked(&strings(args), &settings).unwrap_err().to_string();
            assert!(message.contains(expected), "{args:?}: {message}");
        }
    }

    #[test]
    fn only_variables_of_the_settings_are_kept() {
        let variables = [
            ("TOOLSCOUT_DATA", "d"),
            ("TOOLSCOUT_CATALOG", "work"),
            ("TOOLSCOUT_CACHE", ""),
            ("TOOLSCOUT_LLM_KEY", "secret"),
            ("PATH", "/bin"),
        ];
        let environment = environment(|name| {
            let known = variables.iter().find(|(key, _)| *key == name)?;
            Some(known.1.to_owned())
        });
        assert_eq!(
            environment,
            BTreeMap::from([
                ("TOOLSCOUT_CATALOG".to_owned(), "work".to_owned()),
                ("TOOLSCOUT_DATA".to_owned(), absolute(Path::new("d"))),
            ])
        );
    }
}
