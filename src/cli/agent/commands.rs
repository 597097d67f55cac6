//! What a person can type to the agent besides questions.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::agent::profile::AgentProfile;
use crate::regular_file;

/// Something other than a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// List the commands.
    Help,
    /// List the tools that are loaded.
    Tools,
    /// Begin a new conversation.
    New,
    /// End the program.
    Quit,
    /// Something that looks like a command and is none.
    Unknown,
}

/// The answer to `/help`.
pub const HELP: &str = "\
/tools   the tools that this conversation has loaded
/new     begin a new conversation
/stop    at a question of the gate: refuse the call and stop; Ctrl-C stops at any time
/quit    end, as Ctrl-D does
Everything else is a question. Keys are those of a shell; earlier questions come with the arrow keys.";

/// The answer to a question of the gate that also stops the run.
pub const STOP: &str = "/stop";

impl Command {
    /// The command in a line; `None` for a question. A path is a question.
    pub fn parse(line: &str) -> Option<Self> {
        let word = line.trim().strip_prefix('/')?;
        if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        Some(match word {
            "help" => Command::Help,
            "tools" => Command::Tools,
            "new" => Command::New,
            "quit" | "exit" => Command::Quit,
            _ => Command::Unknown,
        })
    }
}

/// Adds a rule to the file of a profile that allows the calls of a tool, before its other rules, of
/// which the first that fits decides.
pub fn allow_in_profile(file: &Path, tool: &str) -> Result<()> {
    const RULES: &str = "[[gate.rules]]";
    let shown = file.display();
    let text = regular_file::read_to_string(file).with_context(|| format!("read {shown}"))?;
    // Written by the library, which escapes whatever the id has in it.
    let tool = toml::Value::String(tool.to_owned());
    let rule = format!("{RULES}\ntool = {tool}\ndecision = \"allow\"\n");
    let mut lines: Vec<&str> = text.lines().collect();
    let mut starts = lines.iter().map(|line| line.trim_start());
    let first = starts.position(|line| line.starts_with(RULES));
    lines.insert(first.unwrap_or(lines.len()), &rule);
    let with_rule = lines.join("\n") + "\n";
    let before = rules_of(&shown.to_string(), &text)?;
    // Lines were inserted into a text whose form is the person's own, so the outcome is read back.
    match rules_of(&shown.to_string(), &with_rule) {
        Ok(after) if after == before + 1 => {}
        _ => bail!("the rules of {shown} have another form; add this one by hand:\n{rule}"),
    }
    std::fs::write(file, with_rule).with_context(|| format!("write {shown}"))
}

/// How many rules a profile has.
fn rules_of(name: &str, text: &str) -> Result<usize> {
    let gate = AgentProfile::parse(name, text)?.gate.unwrap_or_default();
    Ok(gate.rules.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Decision;

    #[test]
    fn a_path_is_a_question_and_a_word_with_a_slash_a_command() {
        assert_eq!(Command::parse(" /tools "), Some(Command::Tools));
        assert_eq!(Command::parse("/frobnicate"), Some(Command::Unknown));
        for question in ["/etc/hosts", "/tools please", "/", "tools", "/A"] {
            assert_eq!(Command::parse(question), None, "{question}");
        }
    }

    #[test]
    fn an_allowed_tool_is_the_first_rule_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        let comment = "# mine\nrole = \"r\"\n";
        for text in [
            comment.to_owned(),
            "\n[limits]\nmax_rounds = 3\n".to_owned(),
        ] {
            std::fs::write(&file, &text).unwrap();
            allow_in_profile(&file, "shop/\"order\"").unwrap();
            let written = std::fs::read_to_string(&file).unwrap();
            assert!(written.starts_with(&text), "{written}");
            let profile = AgentProfile::load(file.to_str().unwrap()).unwrap();
            assert_eq!(profile.gate.unwrap().rules[0].decision, Decision::Allow);
        }
        std::fs::write(&file, "[[gate.rules]]\ntool = \"*\"\ndecision = \"deny\"\n").unwrap();
        allow_in_profile(&file, "shop/order").unwrap();
        let gate = AgentProfile::load(file.to_str().unwrap())
            .unwrap()
            .gate
            .unwrap();
        let decisions: Vec<Decision> = gate.rules.iter().map(|rule| rule.decision).collect();
        assert_eq!(decisions, [Decision::Allow, Decision::Deny]);

        std::fs::write(&file, "gate = { rules = [] }\n").unwrap();
        let error = allow_in_profile(&file, "shop/order").unwrap_err();
        assert!(
            error.to_string().contains("add this one by hand"),
            "{error}"
        );
    }
}
