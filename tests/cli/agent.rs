//! `toolscout agent` with scripted models over the bundled catalog.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use super::run::{Ended, Serving, World, says};

const QUESTION: &str = "Will it rain in Bergen tomorrow? If so, mail Anna to take an umbrella.";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A world whose catalog holds the bundled tools.
fn world() -> World {
    let world = World::new();
    world.ok(&["add", root().join("fixtures/tools").to_str().unwrap()]);
    world
}

fn scripted(path: &Path) -> String {
    format!("script:{}", path.display())
}

fn demo(world: &World, more: &[&str]) -> Ended {
    let script = scripted(&root().join("fixtures/agent/demo.jsonl"));
    let mut args = vec![
        "agent",
        "--llm",
        &script,
        "--tool-budget",
        "1100",
        "--max-rounds",
        "6",
        "--recommend",
    ];
    args.extend(["--allow", "gmail/send_email", QUESTION]);
    args.extend(more);
    world.run(&args)
}

fn in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        let at = text[from..]
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} should come next in\n{text}"));
        from += at + part.len();
    }
}

#[test]
fn the_demo_searches_evicts_calls_in_parallel_and_answers() {
    let ended = demo(&world(), &[]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended
            .stdout
            .ends_with("Sign in again and I will send it.\n"),
        "{}",
        ended.stdout
    );
    in_order(
        &ended.stderr,
        &[
            "I need the forecast first",
            "[search] weather forecast for a city -> weather/",
            "[loaded] weather/",
            "[call] weather__getForecast",
            "[call] weather__getHourlyForecast",
            "[result] weather__getForecast",
            "[result] weather__getHourlyForecast",
            "[search] send an email -> gmail/send_email",
            "[unloaded] weather/",
            "[loaded] gmail/send_email",
            "[failed] gmail__send_email",
            "[1] Bergen, two days https://weather.example.com/bergen",
            "[next] Is it dry in the morning?",
            "[answered] 5 rounds, 2 searches",
        ],
    );
    assert!(
        !ended.stderr.contains('\x1b'),
        "no escapes without a terminal"
    );
}

#[test]
fn events_come_as_json_lines_numbered_and_end_in_done() {
    let ended = demo(&world(), &["--json"]);
    let events: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(at, event)| event["seq"] == at as u64 + 1)
    );
    let done = events.last().unwrap();
    assert_eq!(
        (&done["type"], &done["status"]),
        (&"done".into(), &"answered".into())
    );
    assert!(done["figures"]["tokens_saved"].as_i64().unwrap() > 100_000);
}

#[test]
fn a_conversation_continues_in_the_next_process() {
    let world = world();
    let first = world.file(
        "first.jsonl",
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"select:gmail/send_email"}}]}}
{"reply":{"text":"ready"}}"#,
    );
    let second = world.file(
        "second.jsonl",
        r#"{"expect_tools":["tool_search","gmail__send_email"],"reply":{"text":"still there"}}"#,
    );
    for (script, answer) in [(first, "ready\n"), (second, "still there\n")] {
        let script = scripted(&script);
        let ended = world.run(&[
            "agent",
            "--llm",
            &script,
            "--conversation",
            "c 1/ü",
            "go on",
        ]);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, answer),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn questions_come_from_stdin_and_dispatch_keeps_two_tools() {
    let world = world();
    let script = world.file(
        "s.jsonl",
        r#"{"expect_tools":["tool_search","call_tool"],"reply":{"calls":[{"name":"tool_search","arguments":{"query":"select:weather/getForecast"}}]}}
{"expect_tools":["tool_search","call_tool"],"reply":{"calls":[{"name":"call_tool","arguments":{"name":"weather__getForecast","arguments":{"place":"Oslo"}}}]}}
{"reply":{"text":"sunny"}}
{"reply":{"text":"bye"}}
{"tool":"weather/getForecast","result":"sun"}"#,
    );
    let script = scripted(&script);
    let ended = world.run_with(
        &["agent", "--llm", &script, "--style", "dispatch"],
        b"weather?\n\nthanks\n",
    );
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "sunny\nbye\n"),
        "{}",
        ended.stderr
    );
}

#[test]
fn failures_name_what_is_wrong_and_exit_with_one() {
    let world = world();
    let broken = scripted(&world.file("broken.jsonl", "{\"reply\":{\"text\":\"x\"}}\n{oops"));
    let empty = scripted(&world.file("empty.jsonl", ""));
    world.file(
        "bad.toml",
        "[[operations]]\nserver = \"x\"\nauth = { bearer_env = \"EXCHANGE_TOKEN\" }",
    );
    for (args, expected) in [
        (vec!["agent", "--llm", &broken, "hi"], "broken.jsonl:2: "),
        (
            vec!["agent", "--llm", &empty, "hi"],
            "no reply left for request 1",
        ),
        (
            vec!["agent", "--llm", "http://127.0.0.1:9/v1", "hi"],
            "is it running, and is the base URL of --llm right?",
        ),
        (
            vec!["agent", "--llm", "127.0.0.1:9", "hi"],
            "\"127.0.0.1:9\" is not the base URL of a model: start it with http://",
        ),
        (
            vec!["agent", "--llm", &empty, "--profile", "nope", "hi"],
            "built-in profiles are web-search",
        ),
        (
            vec!["agent", "--llm", &empty, "--profile", "bad.toml", "hi"],
            "EXCHANGE_TOKEN, which is not set",
        ),
    ] {
        let ended = world.run(&args);
        assert_eq!(ended.code, 1, "{args:?}");
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(!ended.stderr.contains("--conversation"), "{}", ended.stderr);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_run_and_keeps_the_conversation() {
    let world = world();
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"text":"One moment. ","calls":[{"name":"tool_search","arguments":{"query":"weather"}}]}}
{"hang":true}"#,
    );
    let mut command = world.command();
    command.args([
        "agent",
        "--llm",
        &scripted(&script),
        "--conversation",
        "c",
        "--json",
        "will it rain?",
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert!(
        events
            .by_ref()
            .any(|event| event["type"] == "tools_injected")
    );
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let done = events.last().unwrap();
    assert_eq!(
        (&done["type"], &done["status"]),
        (&"done".into(), &"stopped".into())
    );
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn skills_are_found_and_read_like_tools() {
    let world = world();
    world.file(
        "know-how/report.md",
        "---\nname: weekly-report\ndescription: How the weekly report is written\n---\nFirst the figures.\n",
    );
    let script = world.file(
        "s.jsonl",
        r#"{"expect_tools":["tool_search"],"reply":{"calls":[{"name":"tool_search","arguments":{"query":"write the weekly report","limit":1}}]}}
{"expect_tools":["tool_search","skills__weekly-report"],"reply":{"calls":[{"name":"skills__weekly-report"}]}}
{"reply":{"text":"as the skill says"}}"#,
    );
    let script = scripted(&script);
    let folder = world.path("know-how");
    let folder = folder.to_str().unwrap();
    let ask = [
        "agent",
        "--llm",
        &script,
        "--profile",
        "skills",
        "--skills",
        folder,
        "report, please",
    ];
    let ended = world.run(&ask);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "as the skill says\n"),
        "{}",
        ended.stderr
    );
    in_order(
        &ended.stderr,
        &[
            "-> skills/weekly-report",
            "[result] skills__weekly-report",
            "First the figures.",
        ],
    );

    world.file(
        "know-how/broken.md",
        "---\nname: x\ndescription: [y]\n---\n",
    );
    let ended = world.run(&ask);
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("broken.md:3: "), "{}", ended.stderr);
}

/// One question to a real model. `TOOLSCOUT_TEST_LLM_URL` names an OpenAI-compatible API. Whatever the model says, the turn ends
/// properly and its tokens come from the server.
#[test]
#[ignore = "needs a language model: scripts/real-model runs it"]
fn a_real_model_is_asked_over_a_real_socket() {
    let url = std::env::var("TOOLSCOUT_TEST_LLM_URL").expect("TOOLSCOUT_TEST_LLM_URL is set");
    let world = world();
    for (mode, api) in [
        ("manual", "openai"),
        ("native", "openai"),
        ("native", "anthropic"),
    ] {
        let ended = world.run(&[
            "agent",
            "--llm",
            &url,
            "--llm-api",
            api,
            "--mode",
            mode,
            "--json",
            "--tool-budget",
            "1500",
            "Convert 5 miles",
        ]);
        let events: Vec<Value> = ended
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let done = events
            .last()
            .unwrap_or_else(|| panic!("no events: {}", ended.stderr));
        assert_eq!(done["type"], "done", "{mode}");
        assert!(
            done["figures"]["rounds"].as_u64().unwrap() >= 1,
            "{mode}: {events:?}"
        );
        assert!(
            done["figures"]["tokens_in"].as_u64().unwrap() > 10,
            "{mode}: {done}"
        );
        assert_eq!(done["figures"]["tokens_estimated"], false, "{mode}: {done}");
    }
}

#[test]
fn calls_are_refused_without_a_terminal_and_audited() {
    let world = world();
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"select:gmail/send_email"}}]}}
{"reply":{"calls":[{"name":"gmail__send_email","arguments":{"to":["a@example.com"],"subject":"s","body":"b","password":"hunter2"}}]}}
{"reply":{"text":"refused"}}
{"tool":"gmail/send_email","result":"sent"}"#,
    );
    let script = scripted(&script);
    let run = |more: &[&str]| world.run(&[&["agent", "--llm", &script, "send"], more].concat());
    let refused = run(&[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (0, "refused\n"));
    in_order(
        &refused.stderr,
        &[
            "[gate] gmail/send_email: refused (default state_changing)",
            "[failed] gmail__send_email",
        ],
    );
    assert!(
        refused
            .stderr
            .contains("--allow PATTERN allows it in advance"),
        "{}",
        refused.stderr
    );
    assert!(
        run(&["--allow", "gmail/*"])
            .stderr
            .contains("[result] gmail__send_email")
    );
    assert!(
        run(&["--allow", "*", "--deny", "gmail/*"])
            .stderr
            .contains("denied (--deny gmail/*)")
    );
    assert!(
        run(&["--allow", "*", "--dry-run"])
            .stderr
            .contains("nothing was called")
    );

    let lines: Vec<Value> = world
        .ok(&["audit", "export"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["refused", "begun", "ended", "refused", "dry_run"]);
    assert_eq!(lines[1]["given"]["password"], "[redacted]");
    let verified = world.json(&["audit", "verify"]);
    assert_eq!(verified["entries"], 5);
    world.ok(&[
        "audit",
        "verify",
        "--head",
        verified["head"].as_str().unwrap(),
    ]);
    world.fails(
        1,
        &["audit", "verify", "--head", "00"],
        &["no entry", "has the hash 00"],
    );

    let anchored = world.ok(&["audit", "anchor"]);
    assert!(
        anchored.starts_with("anchored 5 entries, head "),
        "{anchored}"
    );

    let log = rusqlite::Connection::open(world.path("data/audit.db")).unwrap();
    log.execute_batch(
        "DROP TRIGGER entries_are_not_changed; UPDATE entries SET entry = replace(entry, 'begun', 'ended') WHERE seq = 2",
    )
    .unwrap();
    world.fails(
        1,
        &["audit", "verify"],
        &["entry 2 of the audit log", "does not match its hash"],
    );
    world.fails(
        1,
        &["audit", "verify", "--log", "nowhere.db"],
        &["there is no audit log nowhere.db"],
    );
}

#[test]
fn a_plan_is_printed_and_run_and_a_profile_enables_tools() {
    let world = world();
    let root = world.path("files");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("note.txt"), "Bergen").unwrap();
    let profile = world.file(
        "p.toml",
        format!(
            "mode = \"plan\"\n[tools.files]\nroot = {:?}\n[gate.limits]\ncalls = 9\n",
            root.to_str().unwrap()
        ),
    );
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"text":"```json\n{\"actions\":[{\"action\":\"file_read\",\"arguments\":{\"path\":\"note.txt\"}},{\"action\":\"weather__getForecast\",\"arguments\":{\"place\":\"${1.text}\"}}],\"final_answer\":\"In ${1.text}: ${2}\"}\n```"}}
{"tool":"weather/getForecast","result":"rain"}"#,
    );
    let (script, profile) = (scripted(&script), profile.display().to_string());
    let ended = world.run(&[
        "agent",
        "--llm",
        &script,
        "--profile",
        &profile,
        "weather forecast for the place in my note",
    ]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "In Bergen: rain\n"),
        "{}",
        ended.stderr
    );
    in_order(
        &ended.stderr,
        &[
            "[search] weather forecast",
            "[loaded]",
            "[plan] 1. file_read",
            "[plan] 2. weather/getForecast",
            "(read_only)",
            "[call] file_read",
            "[outcome] 1: ok {",
            "[outcome] 2: ok rain",
        ],
    );
}

#[test]
fn results_of_a_plan_are_printed_although_a_step_is_invalid_and_no_report_is_written() {
    let world = world();
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"text":"{\"actions\":[{\"action\":\"weather__getForecast\",\"place\":\"Oslo\"},{\"action\":\"weather__getMoon\"},{\"action\":\"weather__getForecast\"}]}"}}
{"fail":"overloaded"}
{"tool":"weather/getForecast","result":"rain"}"#,
    );
    let script = scripted(&script);
    let ask = |args: &[&str]| {
        let plan = ["agent", "--llm", &script, "--mode", "plan"];
        world.run(&[&plan[..], args, &["weather forecast for Oslo"]].concat())
    };
    let skipped = ask(&["--on-invalid-step", "skip"]);
    assert_eq!(skipped.code, 1, "the model has failed: {}", skipped.stderr);
    let lines: Vec<&str> = skipped.stdout.lines().collect();
    assert_eq!(lines[0], "1: rain", "{}", skipped.stdout);
    assert!(lines[1].starts_with("2: ") && lines[1].contains("weather__getMoon"));
    assert!(lines[2].starts_with("3: ") && skipped.stdout.contains("at /place: missing"));
    in_order(
        &skipped.stderr,
        &[
            "[problem] step 2: ",
            "[call] weather__getForecast",
            "[outcome] 1: ok rain",
            "overloaded",
        ],
    );
    let refused = ask(&[]);
    assert!(!refused.stderr.contains("[call]"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    let unknown = ask(&["--on-invalid-step", "maybe"]);
    says(&unknown.stderr, "is not one of refuse, skip");
}

/// The events of a stream of a server.
fn stream(serving: &Serving, path: &str) -> Vec<Value> {
    let client = serving.client();
    let token = client
        .post(format!("{}/v1/agent/token", serving.address))
        .send()
        .unwrap()
        .json::<Value>()
        .unwrap();
    let url = format!(
        "{}{path}&token={}",
        serving.address,
        token["token"].as_str().unwrap()
    );
    let text = client.get(url).send().unwrap().text().unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[test]
fn the_demo_is_the_same_over_sse() {
    let world = world();
    let script = scripted(&root().join("fixtures/agent/demo.jsonl"));
    let mut command = world.command();
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--llm", &script])
        .args(["--tool-budget", "1100", "--max-rounds", "6", "--recommend"])
        .args(["--allow", "gmail/send_email"]);
    let serving = Serving::start(command);
    let path = "/agent/chat/stream?query=will%20it%20rain%3F&conversationId=c1";
    let events = stream(&serving, path);
    let mut types: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    types.dedup();
    assert_eq!(
        types,
        [
            "thinking",
            "tool_search",
            "tools_injected",
            "text",
            "tool_call",
            // The schemas' defaults are filled in.
            "gate",
            "tool_result",
            "thinking",
            "tool_search",
            "tools_evicted",
            "tools_injected",
            "tool_call",
            "gate",
            "tool_result",
            "text",
            "reference",
            "recommend",
            "done",
        ]
    );
    let failed = events
        .iter()
        .rfind(|event| event["type"] == "tool_result")
        .unwrap();
    assert_eq!(
        (&failed["status"], &failed["error_code"]),
        (&"error".into(), &"failed".into())
    );
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn slides_are_made_of_an_outline() {
    if !has("pandoc") {
        eprintln!("skipped: pandoc is not installed");
        return;
    }
    let world = world();
    let outline = "% Umbrellas\n\n# Rain\n\n- wet\n\n::: notes\nSmile.\n:::\n\n# Sun\n\n- dry\n";
    let write = json!({ "name": "file_write", "arguments": { "path": "slides.md", "content": outline, "mode": "overwrite" } });
    let shell = |words: &str| json!({ "name": "shell", "arguments": { "argv": words.split(' ').collect::<Vec<_>>() } });
    let lines = [
        json!({ "reply": { "calls": [write] } }),
        json!({ "reply": { "calls": [shell("pandoc slides.md -o slides.pptx"), shell("pandoc -s -t revealjs slides.md -o slides.html")] } }),
        json!({ "reply": { "text": "slides.pptx and slides.html" } }),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let script = scripted(&world.file("slides.jsonl", lines.join("\n")));
    let allowed = ["--allow", "file_write", "--allow", "shell"];
    let ended = world.run(
        &[
            &["agent", "--llm", &script, "--profile", "slides", "slides"],
            &allowed[..],
        ]
        .concat(),
    );
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // A .pptx is a ZIP archive with a part for each slide.
    let pptx = std::fs::read(world.path("slides.pptx")).unwrap();
    let has_part = |name: &str| pptx.windows(name.len()).any(|part| part == name.as_bytes());
    assert!(pptx.starts_with(b"PK") && has_part("ppt/slides/slide3.xml"));
    let html = std::fs::read_to_string(world.path("slides.html")).unwrap();
    assert!(html.contains("reveal.js") && html.contains("Umbrellas"));
}

#[test]
fn slides_say_at_the_start_that_pandoc_is_missing_and_how_to_install_it() {
    let world = world();
    let script = scripted(&world.file("s.jsonl", r#"{"reply":{"text":"ok"}}"#));
    let mut command = world.command();
    command.env("PATH", world.path("nothing"));
    command.args(["agent", "--llm", &script, "--profile", "slides", "slides"]);
    let ended = Ended::of(command.output());
    in_order(
        &ended.stderr,
        &[
            "pandoc is not installed: `apt install pandoc`",
            "pandoc.org/installing",
        ],
    );
}

#[test]
fn a_server_has_an_agent_for_each_profile() {
    let world = world();
    let script = r#"{"reply":{"text":"scripted"}}"#.to_owned() + "\n";
    let script = scripted(&world.file("s.jsonl", script.repeat(4)));
    world.file(
        "own.toml",
        "description = \"Ours.\"\n[[needs]]\nprogram = \"no-such-program\"",
    );
    let mut command = world.command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--llm", &script]);
    for profile in ["web-search", "skills", "own.toml"] {
        command.args(["--agent-profile", profile]);
    }
    command
        .env_remove("TAVILY_API_KEY")
        .env_remove("SEARXNG_URL");
    let serving = Serving::start(command);
    let client = serving.client();
    let url = |path: &str| format!("{}{path}", serving.address);
    let listed: Value = client
        .get(url("/v1/agents"))
        .send()
        .unwrap()
        .json()
        .unwrap();
    let agents = listed["agents"].as_array().unwrap();
    let names: Vec<&str> = agents
        .iter()
        .map(|agent| agent["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["default", "web-search", "skills", "own"]);
    assert_eq!(agents[3]["description"], "Ours.");
    let missing = |at: usize| agents[at]["missing"].to_string();
    assert_eq!(
        (&agents[0]["ready"], missing(0).as_str()),
        (&json!(true), "[]")
    );
    assert!(missing(1).contains("TAVILY_API_KEY"));
    assert!(missing(2).contains("no folder skills"));
    assert!(missing(3).contains("no-such-program is not installed"));

    let ask = |body: Value| {
        client
            .post(url("/v1/agent/chat"))
            .json(&body)
            .send()
            .unwrap()
    };
    let asked = ask(json!({ "query": "q", "agent": "own", "conversation": "c" }));
    assert!(asked.text().unwrap().contains("scripted"));
    let conversation = client.get(url("/v1/agent/conversations/c")).send().unwrap();
    assert_eq!(conversation.json::<Value>().unwrap()["agent"], "own");
    let unknown = ask(json!({ "query": "q", "agent": "nobody" }));
    assert_eq!(unknown.status(), 404);
    assert!(
        unknown
            .text()
            .unwrap()
            .contains("it has default, web-search, skills, own")
    );

    world.fails(
        2,
        &[
            "serve",
            "--agent-profile",
            "files",
            "--agent-profile",
            "files",
        ],
        &["there are two agents \"files\""],
    );
    world.fails(
        1,
        &["serve", "--agent-profile", "nope"],
        &["no profile \"nope\""],
    );
}

#[test]
fn a_small_catalog_is_searched_as_flag_profile_and_settings_say() {
    let world = World::with_tools(&super::run::four_tools());
    let searched = r#"{"expect_tools":["tool_search"],"reply":{"text":"ok"}}"#;
    let script = scripted(&world.file("searched.jsonl", searched));
    let settings = world.file("c.toml", "[agent.limits]\nsearch_from_tools = 0");
    let profile = world.file("p.toml", "[limits]\nsearch_from_tools = 4");
    let ask = ["agent", "--llm", &script, "go"];
    for args in [
        [&["--config", settings.to_str().unwrap()], &ask[..]].concat(),
        [&ask[..], &["--profile", profile.to_str().unwrap()]].concat(),
        [&ask[..], &["--search-from-tools", "0"]].concat(),
    ] {
        let ended = world.run(&args);
        assert_eq!(
            (ended.code, ended.stdout.as_str()),
            (0, "ok\n"),
            "{}",
            ended.stderr
        );
    }
    // Shown whole, the search of a model that was told to search is answered.
    let all = r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"an inbox"}}]}}
{"reply":{"text":"ok"}}"#;
    let script = scripted(&world.file("all.jsonl", all));
    let ended = world.run(&["agent", "--llm", &script, "go"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "ok\n"),
        "{}",
        ended.stderr
    );
    in_order(
        &ended.stderr,
        &["fewer than 30 tools", "[search] an inbox -> "],
    );
    assert!(!ended.stderr.contains("[failed]"), "{}", ended.stderr);
}

#[test]
fn the_preset_for_web_search_announces_each_search_in_the_language_of_the_question() {
    let world = world();
    let script = r#"{"reply":{"calls":[{"name":"web_search","arguments":{"query":"环法 冠军"}}]}}
{"reply":{"text":"还不知道"}}"#;
    let script = scripted(&world.file("s.jsonl", script));
    let mut command = world.command();
    // Nothing listens there; the search is announced before it is made.
    command.env("SEARXNG_URL", "http://127.0.0.1:9");
    command.args([
        "agent",
        "--llm",
        &script,
        "--profile",
        "web-search",
        "--json",
    ]);
    command.arg("谁赢得了上一届环法自行车赛?");
    let ended = Ended::of(command.output());
    let events = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let shown: Vec<Value> = events
        .filter(|event| event["type"] == "thinking" || event["type"] == "tool_call")
        .collect();
    assert_eq!(
        shown[0]["content"], "🔍 正在搜索信息: 环法 冠军",
        "{shown:?}"
    );
    assert_eq!(shown[1]["name"], "web_search");
}
