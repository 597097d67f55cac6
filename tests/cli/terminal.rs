//! A person at the terminal who talks with the agent.

use serde_json::json;

use super::run::{World, text};
use super::tty::Tty;

/// A model that loads a tool that changes something, and calls it once in each turn.
fn world() -> (World, String) {
    let world = World::with_tools(&[json!({
        "server": "shop", "name": "order", "description": "Orders goods.",
        "inputSchema": { "type": "object", "properties": {} },
    })]);
    let mut lines = String::new();
    for answer in ["first", "second"] {
        let call = json!({ "reply": { "calls": [{ "name": "shop__order", "arguments": {} }] } });
        let done = json!({ "reply": { "text": format!("the {answer} answer") } });
        lines.push_str(&format!("{call}\n{done}\n"));
    }
    lines.push_str(&json!({ "tool": "shop/order", "result": "ordered" }).to_string());
    let script = world.file("s.jsonl", lines);
    let script = format!("script:{}", text(&script));
    (world, script)
}

fn terminal(world: &World, script: &str, flags: &[&str]) -> Tty {
    let mut command = world.command();
    command
        .args(["agent", "--llm", script])
        .args(flags)
        .env("TERM", "xterm")
        .env("NO_COLOR", "1");
    Tty::start(command, "")
}

/// Types a line once the prompt is there.
fn ask(tty: &mut Tty, line: &str) {
    tty.until_end("> ");
    tty.type_in(&format!("{line}\r"));
}

#[test]
fn questions_are_edited_and_remembered_and_commands_are_no_questions() {
    let (world, script) = world();
    let mut tty = terminal(&world, &script, &["--allow", "shop/order"]);
    tty.until("1 tool; /help lists commands");
    ask(&mut tty, "/help");
    tty.until("/new     begin a new conversation");
    ask(&mut tty, "/frobnicate");
    tty.until("there is no such command");
    // Three letters too many are deleted.
    ask(&mut tty, "order teaxyz\x7f\x7f\x7f");
    tty.until("the first answer");
    ask(&mut tty, "/new");
    tty.until("\nconversation ");
    // The last question again, by the arrow key: it is before the command.
    ask(&mut tty, "\x1b[A\x1b[A");
    tty.until("the second answer");
    ask(&mut tty, "/quit");
    assert!(tty.end().success());

    let history = std::fs::read_to_string(world.path("data/agent_history")).unwrap();
    let asked: Vec<&str> = history
        .lines()
        .filter(|line| *line == "order tea")
        .collect();
    assert_eq!(asked.len(), 2, "{history}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(world.path("data/agent_history")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o077, 0, "for nobody else");
    }
}

#[test]
fn a_tool_that_is_always_allowed_is_not_asked_about_again() {
    let (world, script) = world();
    let profile = world.file("profile.toml", "role = \"You order.\"\n");
    let mut tty = terminal(&world, &script, &["--profile", text(&profile)]);
    ask(&mut tty, "order tea");
    let shown = tty.until("anything else refuses it: ");
    let code = shown.split("Type ").nth(1).unwrap();
    let code = code.split_whitespace().next().unwrap().to_owned();
    tty.type_in(&format!("{code} always\r"));
    tty.until("is allowed by ");
    tty.until("the first answer");
    ask(&mut tty, "once more");
    let shown = tty.until("the second answer");
    assert_eq!(
        shown.matches("anything else refuses it: ").count(),
        1,
        "{shown}"
    );
    let written = std::fs::read_to_string(&profile).unwrap();
    assert_eq!(
        written,
        "role = \"You order.\"\n[[gate.rules]]\ntool = \"shop/order\"\ndecision = \"allow\"\n\n"
    );
}

#[test]
fn stop_at_a_question_ends_the_run() {
    let (world, script) = world();
    let mut tty = terminal(&world, &script, &[]);
    ask(&mut tty, "order tea");
    tty.until("anything else refuses it: ");
    tty.type_in("/stop\r");
    tty.until("[stopped]");
    ask(&mut tty, "/quit");
    tty.end();
}
