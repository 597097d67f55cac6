//! Commands of the documents that are not run, each with the reason and what is checked instead.

use std::path::Path;
use std::process::Command;

use super::page::{self, Page};
use super::world::World;

/// What is checked of a command that is not run.
enum Instead {
    /// It is understood: it is run with `--help` at its end, so a flag that does not exist fails.
    Help,
    /// The command of ours after ` -- ` is understood.
    HelpOfInner,
    /// The Makefile has the target.
    Target,
    /// The script exists.
    Script,
    /// Nothing.
    Nothing,
}

struct Excused {
    /// How the command begins.
    begins: &'static str,
    instead: Instead,
    #[allow(dead_code, reason = "for who reads the list")]
    reason: &'static str,
}

const fn excused(begins: &'static str, instead: Instead, reason: &'static str) -> Excused {
    Excused {
        begins,
        instead,
        reason,
    }
}

const LIST: [Excused; 52] = [
    excused(
        "toolscout profiles diff",
        Instead::Help,
        "needs two versions; tests/cli/profiles.rs compares them",
    ),
    excused(
        "toolscout eval --profile",
        Instead::Help,
        "needs a profile with judged queries; tests/cli/profiles.rs measures one",
    ),
    excused(
        "toolscout external",
        Instead::Help,
        "needs a server of an external engine; tests/http/external.rs runs it against the double",
    ),
    excused(
        "TOOLSCOUT_TEST_ELASTICSEARCH",
        Instead::Nothing,
        "needs a server of Elasticsearch",
    ),
    excused(
        "toolscout eval generate --by model",
        Instead::Help,
        "needs a model",
    ),
    excused(
        "toolscout eval from-usage",
        Instead::Help,
        "needs a catalog that was used",
    ),
    excused("toolscout eval judge", Instead::Help, "needs a judge"),
    excused(
        "toolscout eval agreement",
        Instead::Help,
        "needs two judges",
    ),
    excused("scripts/ranker", Instead::Script, "takes hours"),
    excused(
        "toolscout eval SETS_DIR",
        Instead::Help,
        "needs the public sets",
    ),
    excused(
        "make ",
        Instead::Target,
        "builds the program, or runs all tests",
    ),
    excused("cargo install", Instead::Nothing, "builds the program"),
    excused("git clone", Instead::Nothing, "needs a network"),
    excused("npm install", Instead::Nothing, "needs a network"),
    excused("tar --extract", Instead::Nothing, "needs a release"),
    excused("cd toolscout-", Instead::Nothing, "needs a release"),
    excused("sudo ", Instead::Nothing, "changes the system"),
    excused("toolscout mcp registry", Instead::Help, "needs a registry"),
    excused("docker ", Instead::Nothing, "needs Docker"),
    excused("scripts/release", Instead::Script, "takes half an hour"),
    excused("scripts/check_release", Instead::Script, "needs a release"),
    excused("pip install", Instead::Nothing, "needs a network"),
    excused("toolscout models pull", Instead::Help, "needs a network"),
    excused(
        "toolscout embed",
        Instead::Help,
        "fetches the model that it names",
    ),
    excused("toolscout add https:", Instead::Help, "needs a network"),
    excused("toolscout store", Instead::Help, "needs PostgreSQL"),
    excused("toolscout serve --store", Instead::Help, "needs PostgreSQL"),
    excused(
        "toolscout agent --llm http:",
        Instead::Help,
        "needs a model",
    ),
    excused("toolscout doctor --llm", Instead::Help, "needs a model"),
    excused(
        "toolscout agent --profile web-search",
        Instead::Help,
        "needs a model and a key",
    ),
    excused(
        "toolscout enrich --llm http:",
        Instead::Help,
        "needs a model",
    ),
    excused(
        "toolscout enrich --answers",
        Instead::Help,
        "needs somebody who answers",
    ),
    excused(
        "toolscout enrich --import held.jsonl",
        Instead::Help,
        "needs texts that are held",
    ),
    excused(
        "toolscout sync --mcp-server",
        Instead::Help,
        "fetches servers of others",
    ),
    excused(
        "toolscout mcp login",
        Instead::Help,
        "needs a person with a browser",
    ),
    excused(
        "toolscout mcp logout",
        Instead::Help,
        "needs a server that wants a login",
    ),
    excused(
        "toolscout improve",
        Instead::Help,
        "needs requests that were recorded",
    ),
    excused(
        "toolscout tune",
        Instead::Help,
        "ends with 1 where nothing is gained",
    ),
    excused(
        "toolscout eval my-set --scale",
        Instead::Help,
        "takes minutes without optimisation",
    ),
    excused(
        "toolscout --embedder none eval",
        Instead::Help,
        "takes minutes without optimisation",
    ),
    excused(
        "toolscout --embedder table eval",
        Instead::Help,
        "takes minutes without optimisation",
    ),
    excused(
        "toolscout eval DATA/",
        Instead::Help,
        "needs the public sets",
    ),
    excused(
        "python3 scripts/check_metrics.py",
        Instead::Script,
        "reads what that would write",
    ),
    excused(
        "python3 scripts/chaos",
        Instead::Script,
        "takes minutes, and root",
    ),
    excused(
        "python3 scripts/founding",
        Instead::Script,
        "takes half a minute, and is a step of its own",
    ),
    excused(
        "python3 scripts/mcp_servers",
        Instead::Script,
        "installs servers from npm and PyPI",
    ),
    excused("scripts/fuzz", Instead::Script, "takes minutes"),
    excused("scripts/many", Instead::Script, "takes minutes"),
    excused(
        "benches/load/run.sh",
        Instead::Script,
        "takes minutes, and wrk",
    ),
    excused(
        "toolscout ui",
        Instead::Help,
        "opens a browser, and serves until it is stopped",
    ),
    excused("claude mcp add", Instead::HelpOfInner, "is another program"),
    excused("codex mcp add", Instead::HelpOfInner, "is another program"),
];

/// True when a command is not run; then it was checked as the list says.
pub fn checked(command: &str, world: &World) -> bool {
    let Some(entry) = LIST.iter().find(|entry| command.starts_with(entry.begins)) else {
        return false;
    };
    let command = without_comment(command);
    match entry.instead {
        Instead::Help => understood(command, world),
        Instead::HelpOfInner => {
            let inner = command.split_once(" -- ").expect("a command of ours").1;
            understood(inner, world);
        }
        Instead::Target => {
            let target = command.split_whitespace().nth(1).expect("a target");
            let mut make = Command::new("make");
            make.args(["--dry-run", target]).current_dir(page::root());
            let made = make.output().expect("make runs");
            assert!(made.status.success(), "{command:?}: no such target");
        }
        Instead::Script => {
            let script = command.split_whitespace().find(|word| word.contains('/'));
            let script = page::root().join(script.expect("a script"));
            assert!(script.exists(), "{command:?}: no such script");
        }
        Instead::Nothing => {}
    }
    true
}

fn understood(command: &str, world: &World) {
    let command = command.replace("\\\n", " ");
    world.run(Path::new("."), &format!("{command} --help"));
}

fn without_comment(command: &str) -> &str {
    command
        .split_once(" #")
        .map_or(command, |(before, _)| before)
        .trim_end()
}

#[test]
fn every_exception_is_needed() {
    let commands: Vec<String> = page::all()
        .iter()
        .flat_map(Page::blocks)
        .filter(|block| block.language == "sh")
        .map(|block| block.text)
        .collect();
    for entry in &LIST {
        let used = |text: &String| text.lines().any(|line| line.starts_with(entry.begins));
        assert!(commands.iter().any(used), "no page has {:?}", entry.begins);
    }
}
