//! The command line: one file per verb. Each parses its arguments, calls the library and prints.
//!
//! To add a verb: a file `cli/<verb>.rs` with `Args` and `Args::run`, a variant of `Verb`, and an
//! arm in `Cli::run`.
//!
//! Data goes to stdout; warnings, logs and progress go to stderr. The exit code is 0 for success, 1
//! for an error and 2 for a command line that cannot be parsed.

mod apis;
mod browser;
mod calling;
mod context;
mod exit;
mod globals;
pub mod input;
mod interrupt;
mod llm;
mod logging;
mod output;
mod policy;
mod dropin;
mod applied_profiles;
mod progress;
mod size;
mod mcp_args;

mod add;
mod agent;
mod audit;
mod catalogs;
mod completions;
mod demo;
mod doctor;
mod embed;
mod enrich;
mod eval;
mod export;
mod external;
mod improve;
mod keys;
mod list;
mod man;
mod mcp;
mod memory;
mod models;
mod more_tools;
mod preflight;
mod profiles;
mod remove;
mod review;
mod search;
mod search_options;
mod serve;
mod server_lock;
mod show;
mod skill;
mod stats;
mod store;
mod sync;
mod tune;
mod ui;
mod usage;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use context::Context;
use exit::UsageError;
use globals::Globals;

pub use exit::Outcome;

/// Runs a command line, which begins with the program's name, and returns the exit code. `program` is
/// the file that starts this program again, where it is not that of the process.
pub fn main(arguments: impl IntoIterator<Item = OsString>, program: Option<PathBuf>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // The help, the version, or what is wrong; a reader that went away is no error.
            answer.print().ok();
            return answer.exit_code().try_into().unwrap_or(2);
        }
    };
    let failed = cli.verb.properties().failed;
    match cli.run(program) {
        Ok(outcome) => outcome.code(),
        Err(error) => exit::report(&error, failed),
    }
}

/// Finds the right tool: a search engine over large tool catalogs.
#[derive(Debug, Parser)]
#[command(
    name = "toolscout",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "Examples:\n  toolscout add tools.json\n  toolscout search open a ticket about a bug"
)]
pub struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add tools, or replace those with the same id
    Add(add::Args),
    /// Make a server's tools match a file, or import those of MCP servers
    Sync(sync::Args),
    /// List what changed in the tools of MCP servers, and accept changes or block tools
    Review(review::Args),
    /// Check that MCP servers answer and their tools are as approved, before a job that needs them
    Preflight(preflight::Args),
    /// Embed the tools that have no vectors yet
    Embed(embed::Args),
    /// Let a language model write when to use each tool, for dense search
    Enrich(enrich::Args),
    /// List tools
    List(list::Args),
    /// Show tools in full
    Show(show::Args),
    /// Show the profiles of the settings and their versions, and take an earlier version into use
    Profiles(profiles::Args),
    /// Remove tools
    Remove(remove::Args),
    /// Find tools
    Search(search::Args),
    /// Make a catalog of sample tools and show some searches
    Demo(demo::Args),
    /// Answer questions with the catalog's tools
    Agent(agent::Args),
    /// Verify or export the audit log of tool calls
    Audit(audit::Args),
    /// Export tools
    Export(export::Args),
    /// Show statistics of a catalog
    Stats(stats::Args),
    /// Show which tools are found and called, and which nobody uses
    Usage(usage::Args),
    /// List or delete catalogs
    Catalogs(catalogs::Args),
    /// Serve the HTTP API
    Serve(serve::Args),
    /// Open the console in a browser
    Ui(ui::Args),
    /// Serve an MCP client over standard input and output
    Mcp(mcp::Args),
    /// Create, list and revoke keys of the HTTP API
    Keys(keys::Args),
    /// Manage the usage memory: requests and the tools called for them
    Memory(memory::Args),
    /// Say what tools are also called: aliases, synonyms, pins, boosts, descriptions
    Words(words::Args),
    /// List or download the embedding model and the ONNX Runtime
    Models(models::Args),
    /// Show or migrate the store that several nodes share
    Store(store::Args),
    /// Write a catalog into Elasticsearch or OpenSearch, or check an index there
    External(external::Args),
    /// Check settings, catalogs and models
    Doctor(doctor::Args),
    /// Measure retrieval on your own tools and queries
    Eval(eval::Args),
    /// Propose aliases, synonyms, texts and pins, and make those that judged queries gain from
    Improve(improve::Args),
    /// Search for better settings on a judged set
    Tune(tune::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// Print the manual page
    Man(man::Args),
    /// Print instructions for coding agents
    Skill(skill::Args),
}

/// What differs between verbs before they run.
struct Properties {
    /// The exit code of an error.
    failed: u8,
    /// It reads or changes catalogs of the data directory alone, not those of the store.
    is_local: bool,
    /// It measures folders, by several embedders if it is given several.
    measures: bool,
    /// It sets up logging itself, from flags of its own.
    sets_up_logging: bool,
    /// It reports a data directory that cannot be used itself, among other problems.
    reports_data_dir: bool,
}

impl Verb {
    fn properties(&self) -> Properties {
        let usual = Properties {
            failed: exit::FAILED,
            is_local: false,
            measures: false,
            sets_up_logging: false,
            reports_data_dir: false,
        };
        match self {
            Verb::Add(_)
            | Verb::Sync(_)
            | Verb::Embed(_)
            | Verb::List(_)
            | Verb::Show(_)
            | Verb::Profiles(_)
            | Verb::Remove(_)
            | Verb::Search(_)
            | Verb::Demo(_)
            | Verb::Agent(_)
            | Verb::Export(_)
            | Verb::Stats(_)
            | Verb::Catalogs(_)
            | Verb::Mcp(_)
            | Verb::Memory(_)
            | Verb::Words(_)
            | Verb::External(_)
            | Verb::Preflight(_)
            | Verb::Review(_) => Properties {
                is_local: true,
                ..usual
            },
            Verb::Eval(_) => Properties {
                failed: exit::NOT_MEASURED,
                measures: true,
                ..usual
            },
            Verb::Serve(_) | Verb::Ui(_) => Properties {
                sets_up_logging: true,
                ..usual
            },
            Verb::Doctor(_) => Properties {
                reports_data_dir: true,
                ..usual
            },
            Verb::Enrich(_)
            | Verb::Tune(_)
            | Verb::Improve(_)
            | Verb::Usage(_)
            | Verb::Audit(_)
            | Verb::Keys(_)
            | Verb::Models(_)
            | Verb::Store(_)
            | Verb::Completions(_)
            | Verb::Man(_)
            | Verb::Skill(_) => usual,
        }
    }
}

impl Cli {
    /// Runs the verb.
    ///
    /// # Errors
    /// Every error that kept the verb from finishing.
    fn run(self, program: Option<PathBuf>) -> Result<Outcome> {
        let Cli { globals, verb } = self;
        let properties = verb.properties();
        if globals.embedders().len() > 1 && !properties.measures {
            let message = "--embedder names several with commas, which only `eval` compares; use + for several together";
            return Err(UsageError(message.to_owned()).into());
        }
        if !properties.sets_up_logging {
            logging::start();
        }
        // A closure, because completions must work even with a broken configuration file.
        let context = || {
            let measures_catalog = properties.measures && globals.catalog().is_some();
            let mut context = Context::new(globals)?;
            context.program = program;
            // Whatever the catalog of the settings is embedded by.
            if properties.measures && !measures_catalog {
                context.use_general_embedder();
            }
            if !properties.reports_data_dir {
                context.check_data_dir()?;
            }
            let is_local = properties.is_local || measures_catalog;
            if is_local && context.settings.store.store.is_some() {
                context.warn(
                    "this works on the catalogs of this data directory, not on those of the store; change those through \
                     a server that was started with the store",
                );
            }
            anyhow::Ok(context)
        };
        match verb {
            Verb::Add(args) => args.run(&context()?),
            Verb::Sync(args) => args.run(&context()?),
            Verb::Review(args) => args.run(&context()?),
            Verb::Preflight(args) => args.run(&context()?),
            Verb::Embed(args) => args.run(&context()?),
            Verb::Enrich(args) => args.run(&context()?),
            Verb::List(args) => args.run(&context()?),
            Verb::Show(args) => args.run(&context()?),
            Verb::Profiles(args) => args.run(context()?),
            Verb::Remove(args) => args.run(&context()?),
            Verb::Search(args) => args.run(&context()?),
            Verb::Demo(args) => args.run(context()?),
            Verb::Agent(args) => args.run(context()?),
            Verb::Audit(args) => args.run(&context()?),
            Verb::Export(args) => args.run(&context()?),
            Verb::Stats(args) => args.run(&context()?),
            Verb::Usage(args) => args.run(&context()?),
            Verb::Catalogs(args) => args.run(&context()?),
            Verb::Serve(args) => args.run(&context()?),
            Verb::Ui(args) => args.run(&context()?),
            Verb::Mcp(args) => args.run(context()?),
            Verb::Keys(args) => args.run(&context()?),
            Verb::Memory(args) => args.run(&context()?),
            Verb::Words(args) => args.run(&context()?),
            Verb::Models(args) => args.run(&context()?),
            Verb::Store(args) => args.run(&context()?),
            Verb::External(args) => args.run(&context()?),
            Verb::Doctor(args) => args.run(&context()?),
            Verb::Eval(args) => args.run(context()?),
            Verb::Improve(args) => args.run(&context()?),
            Verb::Tune(args) => args.run(&context()?),
            Verb::Completions(args) => args.run(),
            Verb::Man(args) => args.run(),
            Verb::Skill(args) => args.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Every command that `--help` shows, subcommands included.
    fn commands(command: &Command) -> Vec<&Command> {
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set() && command.get_name() != "help");
        std::iter::once(command)
            .chain(shown.flat_map(commands))
            .collect()
    }

    /// The words of a command line; double quotes keep spaces.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (index, part) in line.trim().split('"').enumerate() {
            if index % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn every_help_page_has_two_examples_that_parse() {
        let root = Cli::command();
        for command in commands(&root) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_else(|| panic!("{name} has no examples"));
            let mut examples = 0;
            for line in help.lines().filter(|line| line.contains("toolscout")) {
                // Only the last command of a pipe counts, without the file it is redirected to.
                let line = line.rsplit(" | ").next().unwrap_or_default();
                let line = line.split(" > ").next().unwrap_or_default();
                if let Err(error) = Cli::try_parse_from(words(line)) {
                    panic!("{line}: {error}");
                }
                examples += 1;
            }
            assert!(examples >= 2, "{name}: {help}");
        }
    }

    #[test]
    fn the_commands_of_every_skill_parse() {
        let skill = include_str!("cli/skill/enrich.md");
        assert!(skill.starts_with("---\nname: toolscout-enrich\ndescription: "));
        let commands = skill.lines().map(str::trim);
        let commands: Vec<&str> = commands
            .filter(|line| line.starts_with("toolscout "))
            .collect();
        assert!(commands.len() >= 3, "{commands:?}");
        for command in commands {
            if let Err(error) = Cli::try_parse_from(words(command)) {
                panic!("{command}: {error}");
            }
        }
    }
}
