//! Embedding from the command line, with the deterministic double for a model.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use serde_json::{Value, json};

use super::run::{Ended, World, four_tools, says, text, tool};

/// Sends SIGINT once the log has a line with this text, which says that the program listens for the
/// signal. Returns how the program ended, and what else it wrote to stderr.
#[cfg(unix)]
pub fn interrupted(command: &mut std::process::Command, once_it_logs: &str) -> (Ended, String) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains(once_it_logs), "{line}");
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
    let mut messages = String::new();
    stderr.read_to_string(&mut messages).expect("text");
    (Ended::of(child.wait_with_output()), messages)
}

/// Runs with hashed words for a model and gives the JSON.
fn hashed(world: &World, args: &[&str]) -> Value {
    let ended = Ended::of(
        world
            .command()
            .env("TOOLSCOUT_EMBEDDER", "hashing")
            .args(args)
            .arg("--json")
            .output(),
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[test]
fn tools_added_without_embedding_are_embedded_later_and_once() {
    let world = World::with_tools(&four_tools());
    let pending = hashed(&world, &["stats"])["pending_embeddings"].as_u64();
    assert_eq!(pending, Some(4));
    assert!(
        hashed(&world, &["embed"])["embedded"]
            .as_u64()
            .is_some_and(|texts| texts >= 4)
    );
    assert_eq!(hashed(&world, &["embed"])["embedded"], 0);
    assert_eq!(hashed(&world, &["stats"])["pending_embeddings"], 0);
}

#[test]
fn embedding_without_a_model_fails_and_names_the_command_that_fetches_it() {
    let world = World::with_tools(&four_tools());
    let mut command = world.command();
    command.env("TOOLSCOUT_EMBEDDER", "minilm").arg("embed");
    let ended = Ended::of(command.output());
    ended.failed(
        1,
        &[
            "nothing was embedded: ",
            "missing",
            "`toolscout models pull`",
        ],
    );
    assert!(!ended.stderr.contains("searching"), "{}", ended.stderr);
}

#[test]
fn the_built_in_encoder_embeds_each_text_once() {
    let world = World::with_tools(&four_tools());
    let run =
        |embedder: &str, args: &[&str]| world.json(&[&["--embedder", embedder], args].concat());
    let search = ["search", "open an issue", "--explain"];
    let before = run("auto", &search);
    assert_eq!(before["degraded"]["code"], "partly_embedded");
    assert_eq!(run("auto", &["embed"])["embedded"], 8);
    assert_eq!(run("encoder", &["embed"])["embedded"], 0);
    let answer = run("auto", &search);
    let first = &answer["hits"][0];
    assert_eq!(
        (&answer["degraded"], &first["id"]),
        (&Value::Null, &json!("github/create_issue"))
    );
    let legs: Vec<&str> = first["explain"]["dense"]
        .as_array()
        .expect("legs")
        .iter()
        .filter_map(|leg| leg[0].as_str()?.split('/').next())
        .collect();
    assert_eq!(legs, ["static-table", "tool-encoder"]);
}

#[test]
fn only_what_changed_is_embedded_again() {
    let world = World::new();
    let mut tools = four_tools();
    let file = world.file("t.json", json!(tools).to_string());
    let all = hashed(&world, &["add", text(&file)])["embedded"]
        .as_u64()
        .expect("a number");
    assert_eq!(hashed(&world, &["add", text(&file)])["embedded"], 0);
    tools[0]["description"] = json!("Something else altogether.");
    world.file("t.json", json!(tools).to_string());
    let again = hashed(&world, &["add", text(&file)])["embedded"]
        .as_u64()
        .expect("a number");
    assert!(again > 0 && again < all, "{again} of {all}");
}

#[test]
fn a_search_is_hybrid_where_there_are_vectors() {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    hashed(&world, &["add", text(&file)]);
    let answer = hashed(&world, &["search", "open an issue", "--explain"]);
    assert_eq!(
        (&answer["mode"], &answer["degraded"]),
        (&json!("hybrid"), &Value::Null)
    );
    assert_eq!(answer["hits"][0]["id"], "github/create_issue");
    assert!(
        answer["hits"][0]["explain"]["dense"][0][1]["rank"].is_u64(),
        "{answer}"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_while_storing_reports_what_was_stored() {
    let world = World::new();
    let tools: Vec<Value> = (0..3000)
        .map(|n| tool("s", &format!("t{n}"), &format!("Does thing number {n}.")))
        .collect();
    let file = world.file("t.json", json!(tools).to_string());
    let mut add = world.command();
    add.env("TOOLSCOUT_EMBEDDER", "hashing")
        .env("TOOLSCOUT_LOG", "info")
        .args(["add", text(&file)]);
    let (ended, messages) = interrupted(&mut add, "storing");
    assert_eq!(ended.code, 1, "{}{messages}", ended.stdout);
    // The signal arrives before the commit or after it; either way the message is right.
    let stored = world.run(&["list"]).stdout.lines().count();
    if stored == 0 {
        assert!(messages.contains("nothing was stored"), "{messages}");
    } else {
        assert_eq!(stored, 3000);
        assert!(ended.stdout.contains("3000 added"), "{}", ended.stdout);
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_vectors_and_the_next_run_continues() {
    let world = World::new();
    let tools: Vec<Value> = (0..3000)
        .map(|n| tool("s", &format!("t{n}"), &format!("Does thing number {n}.")))
        .collect();
    let file = world.file("t.json", json!(tools).to_string());
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "none")
        .args(["add", text(&file)]);
    assert_eq!(Ended::of(command.output()).code, 0);

    let mut embed = world.command();
    embed
        .env("TOOLSCOUT_EMBEDDER", "hashing")
        .env("TOOLSCOUT_LOG", "info")
        .arg("embed");
    let (ended, _) = interrupted(&mut embed, "embedding");
    assert_eq!(ended.code, 1, "{}", ended.stdout);
    says(&ended.stdout, "`toolscout embed` continues");

    assert!(
        hashed(&world, &["embed"])["embedded"]
            .as_u64()
            .is_some_and(|texts| texts > 0)
    );
    assert_eq!(hashed(&world, &["stats"])["pending_embeddings"], 0);
}
