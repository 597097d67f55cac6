//! The commands of each page, run in order as a person would paste them.

use std::path::Path;

use serde_json::Value;

use super::excused;
use super::page::{self, Page};
use super::world::World;

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        $(
            #[test]
            fn $test() {
                run($page);
            }
        )*
        /// Pages with a test.
        const TESTED: &[&str] = &[$($page),*];
    };
}

pages! {
    the_first_page_runs: "README.md",
    benchmarks_run: "BENCHMARKS.md",
    agent_runs: "docs/agent.md",
    console_runs: "docs/console.md",
    drop_in_runs: "docs/drop-in.md",
    enrich_runs: "docs/enrich.md",
    external_engines_run: "docs/external-engines.md",
    evaluation_runs: "docs/evaluation.md",
    gate_runs: "docs/gate.md",
    http_api_runs: "docs/http-api.md",
    install_runs: "docs/install.md",
    mcp_runs: "docs/mcp.md",
    models_run: "docs/models.md",
    operations_run: "docs/operations.md",
    python_runs: "docs/python.md",
    typescript_runs: "docs/typescript.md",
    ranking_runs: "docs/ranking.md",
    search_runs: "docs/search.md",
    settings_run: "docs/settings.md",
    troubleshooting_runs: "docs/troubleshooting.md",
    usage_runs: "docs/usage.md",
    words_run: "docs/words.md",
}

/// Pages whose commands are run where PostgreSQL is: see tests/store/page.rs.
const TESTED_ELSEWHERE: [&str; 1] = ["docs/several-nodes.md"];

#[test]
fn every_page_with_commands_has_a_test() {
    let with_commands = page::all()
        .into_iter()
        .filter(|page| !page.blocks_of("sh").is_empty());
    for page in with_commands {
        let name = page.name.as_str();
        let is_tested = TESTED.contains(&name) || TESTED_ELSEWHERE.contains(&name);
        assert!(is_tested, "{name}");
    }
}

fn run(name: &str) {
    let page = Page::read(name);
    let mut world = World::new();
    let mut printed = String::new();
    for block in page.blocks() {
        eprintln!("{name}:{}", block.line);
        match block.language.as_str() {
            "sh" => printed = run_block(&block.text, &mut world),
            // The first page shows an answer below the commands that ask for it.
            "json" if name == "README.md" => assert_printed(&block.text, &printed),
            _ => {}
        }
    }
}

/// Fails unless the last JSON value that commands printed has what is shown.
fn assert_printed(shown: &str, printed: &str) {
    let shown: Value = serde_json::from_str(shown).expect("JSON");
    let values = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
    let last = values.last().expect("an answer").expect("JSON");
    assert!(has(&last, &shown), "{last} has not {shown}");
}

/// True when a value has every field and element of another one.
fn has(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| has(whole, part))),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| has(whole, part))
        }
        _ => whole == part,
    }
}

/// Runs a block: what is excused is checked, servers are started and stay, the rest is one script.
/// Returns what the last script printed.
fn run_block(text: &str, world: &mut World) -> String {
    let mut script = String::new();
    for command in commands(text) {
        world.export(&command);
        if command.starts_with("toolscout serve") && !excused::checked(&command, world) {
            run_script(&std::mem::take(&mut script), world);
            world.serve(&command);
        } else if !excused::checked(&command, world) {
            script.push_str(&command);
            script.push('\n');
        }
    }
    run_script(&script, world)
}

fn run_script(script: &str, world: &World) -> String {
    if script.trim().is_empty() {
        return String::new();
    }
    let installs = |line: &str| line.starts_with("toolscout mcp install");
    let asks = |line: &str| line.contains("http://127.0.0.1:7700") && !installs(line);
    assert!(
        world.serves() || !script.lines().any(asks),
        "no server was started for:\n{script}"
    );
    let output = world.run(Path::new("."), script);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The lines of a block, each with those it is continued on by a backslash.
fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        match commands.last_mut() {
            Some(command) if continued => {
                command.push('\n');
                command.push_str(line);
            }
            _ => commands.push(line.to_owned()),
        }
        continued = line.ends_with('\\');
    }
    commands
}

#[test]
#[should_panic(expected = "of:\ntoolscout search --flag-that-is-none")]
fn a_wrong_flag_fails() {
    run_block(
        "toolscout search --flag-that-is-none x\n",
        &mut World::new(),
    );
}

#[test]
#[should_panic(expected = "of:\ntoolscout models pull --flag-that-is-none")]
fn a_wrong_flag_of_an_excused_command_fails() {
    run_block(
        "toolscout models pull --flag-that-is-none\n",
        &mut World::new(),
    );
}

#[test]
#[should_panic(expected = "unknown_field")]
fn a_wrong_body_fails() {
    let wrong = "toolscout serve\ncurl -H 'Content-Type: application/json' \\\n  \
                 http://127.0.0.1:7700/v1/search --data '{\"querry\": \"mail\"}'\n";
    run_block(wrong, &mut World::new());
}
