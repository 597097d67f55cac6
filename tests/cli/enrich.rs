//! `toolscout enrich` with scripted models, and with hashed words for an embedding model.

use serde_json::{Value, json};

use super::embed::interrupted;
use super::enriching::reply;
use super::run::{Ended, World, four_tools, run_with_hashing as run, says, text, tool};

/// A world of four tools, embedded.
fn world() -> World {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    assert_eq!(run(&world, &["add", text(&file)]).code, 0);
    world
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", ended.stderr))
}

/// Enriches tool by tool with a model that gives these answers, and returns how that ended.
fn enrich(world: &World, answers: &[Value], more: &[&str]) -> Ended {
    let lines: Vec<String> = answers.iter().map(Value::to_string).collect();
    world.file("script.jsonl", lines.join("\n"));
    let mut args = vec!["enrich", "--llm", "script:script.jsonl", "--yes", "--json"];
    if !more.contains(&"--batch") {
        args.extend(["--batch", "1"]);
    }
    args.extend(more);
    run(world, &args)
}

/// Usable answers for so many tools.
fn replies(tools: usize) -> Vec<Value> {
    let answer = |tool| {
        reply(&format!(
            r#"["please do thing {tool}", "once more {tool}"]"#
        ))
    };
    (0..tools).map(answer).collect()
}

/// The ids of the tools, in the order in which they are asked about.
fn ids(world: &World) -> Vec<String> {
    let mut ids = world.ids();
    ids.sort();
    ids
}

#[test]
fn every_tool_is_written_about_once_and_found_by_it() {
    let world = world();
    let answer = json_of(&enrich(&world, &replies(4), &[]));
    assert_eq!(
        (&answer["enriched"], &answer["left"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(
        (&answer["tokens_in"], &answer["embedded"]),
        (&json!(400), &json!(8))
    );
    let found = run(
        &world,
        &["search", "please do thing 2", "--mode", "dense", "--json"],
    );
    let third = &ids(&world)[2];
    assert_eq!(json_of(&found)["hits"][0]["id"], **third);
    let shown = json_of(&run(&world, &["enrich", "--show", third, "--json"]));
    assert_eq!(shown["texts"][0], "please do thing 2");
    // Nobody is shown it as a part of the tool.
    for verb in [&["show", third][..], &["export"], &["list"]] {
        let stdout = run(&world, &[verb, &["--json"]].concat()).stdout;
        assert!(!stdout.contains("please do"), "{verb:?}: {stdout}");
    }
    // The script has no reply left: nothing is asked.
    let again = enrich(&world, &[], &[]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(json_of(&again)["enriched"], 0);
}

#[test]
fn a_dry_run_tells_tokens_and_price_and_sends_nothing() {
    let world = world();
    let dry = ["enrich", "--llm", "script:missing", "--dry-run", "--json"];
    let plan = json_of(&run(&world, &dry));
    assert_eq!((&plan["tools"], &plan["price"]), (&json!(4), &Value::Null));
    let tokens = |key: &str| plan[key].as_f64().expect("a number");
    assert!(
        tokens("tokens_in") > 400.0 && tokens("tokens_out") > 100.0,
        "{plan}"
    );
    let prices = ["--price-in", "2", "--price-out", "10"];
    let priced = json_of(&run(&world, &[&dry[..], &prices].concat()));
    let expected = (2.0 * tokens("tokens_in") + 10.0 * tokens("tokens_out")) / 1e6;
    let price = priced["price"].as_f64().expect("a price");
    assert!((price - expected).abs() < 1e-9, "{price} {expected}");
    // Nor without a yes where nobody can be asked.
    let unasked = run(&world, &["enrich", "--llm", "script:missing"]);
    unasked.failed(2, &["the definitions of 4 tools", "add --yes"]);
    run(&world, &["enrich", "--price-in=-1", "--dry-run"]).failed(2, &["a number from 0"]);
}

#[test]
fn a_model_that_fails_ends_the_run_and_the_next_one_goes_on() {
    let world = world();
    let mut answers = replies(2);
    answers.extend([
        json!({"fail": "out of money"}),
        json!({"reply": {"cut": true}}),
    ]);
    let first = enrich(&world, &answers, &[]);
    assert_eq!(first.code, 1);
    let report = json_of(&first);
    assert_eq!(
        (&report["enriched"], &report["left"]),
        (&json!(2), &json!(2))
    );
    let reasons = report["skipped"].to_string();
    assert!(
        reasons.contains("out of money") && reasons.contains("cut off"),
        "{reasons}"
    );
    let second = json_of(&enrich(&world, &replies(2), &[]));
    assert_eq!(
        (&second["enriched"], &second["left"]),
        (&json!(2), &json!(0))
    );
    let shown = run(&world, &["enrich", "--show", &ids(&world)[2]]).stdout;
    assert!(shown.contains("please do thing 0"), "{shown}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_written_and_the_next_run_goes_on() {
    let world = world();
    let lines = [replies(1).remove(0), json!({"hang": true})].map(|line| line.to_string());
    world.file("script.jsonl", lines.join("\n"));
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "hashing")
        .env("TOOLSCOUT_LOG", "info")
        .args([
            "enrich",
            "--llm",
            "script:script.jsonl",
            "--batch",
            "1",
            "--yes",
            "--json",
        ]);
    let (ended, messages) = interrupted(&mut command, "this sends");
    assert_eq!(ended.code, 1, "{messages}");
    // The signal arrives before the first answer or after it.
    let report = json_of(&ended);
    let left = report["left"].as_u64().expect("a number") as usize;
    assert_eq!(report["enriched"], 4 - left);
    assert!(left >= 3, "{report}");
    let rest = json_of(&enrich(&world, &replies(left), &[]));
    assert_eq!(
        (&rest["enriched"], &rest["left"]),
        (&json!(left), &json!(0))
    );
    assert_eq!(
        json_of(&run(&world, &["stats", "--json"]))["pending_embeddings"],
        0
    );
}

#[test]
fn answers_that_cannot_be_used_are_reported_and_not_stored() {
    let world = world();
    let answers = [
        reply("I cannot help with that."),
        reply(r#"["fine"]"#),
        reply("[\"a\\u001b[2J\"]"),
        reply(&format!(r#"["{}"]"#, "x".repeat(201))),
    ];
    let ended = enrich(&world, &answers, &[]);
    assert_eq!(ended.code, 1);
    let report = json_of(&ended);
    assert_eq!(
        (&report["enriched"], &report["left"]),
        (&json!(1), &json!(3))
    );
    let skipped = report["skipped"].as_array().expect("a list");
    let reasons: Vec<&str> = skipped
        .iter()
        .map(|skipped| skipped["reason"].as_str().expect("text"))
        .collect();
    let expected = ["not the JSON object", "control character", "201 characters"];
    for (reason, expected) in reasons.iter().zip(expected) {
        assert!(reason.contains(expected), "{reason}");
    }
    run(&world, &["enrich", "--show", &ids(&world)[0]]).failed(1, &["nothing was written"]);
}

#[test]
fn a_model_that_gives_nothing_usable_is_not_asked_for_ever() {
    let world = World::new();
    let tools: Vec<Value> = (0..9)
        .map(|n| tool("s", &format!("t{n}"), "Does something."))
        .collect();
    let file = world.file("t.json", json!(tools).to_string());
    run(&world, &["add", text(&file)]);
    let ended = enrich(&world, &vec![reply("no"); 9], &[]);
    ended.failed(1, &["5 requests in a row gave nothing"]);
    assert_eq!(json_of(&ended)["left"], 9);
}

#[test]
fn several_tools_of_one_server_share_a_request() {
    let world = world();
    let answers = [reply(r#"{"2": ["another thing"], "1": ["a thing"]}"#)];
    let more = ["--server", "mail", "--batch", "20"];
    let report = json_of(&enrich(&world, &answers, &more));
    assert_eq!(
        (&report["enriched"], &report["left"]),
        (&json!(2), &json!(0))
    );
    let shown = run(&world, &["enrich", "--show", "mail/sendMessage"]).stdout;
    assert_eq!(shown, "another thing\n");
}

#[test]
fn what_was_written_is_forgotten_for_one_tool_or_all() {
    let world = world();
    enrich(&world, &replies(4), &[]);
    let first = &ids(&world)[0];
    let forgotten = |args: &[&str]| {
        let args = [&["enrich", "--json"], args].concat();
        json_of(&run(&world, &args))["forgotten"].clone()
    };
    assert_eq!(forgotten(&["--forget", first]), 1);
    assert_eq!(forgotten(&["--forget", first]), 0);
    run(&world, &["enrich", "--forget"]).failed(2, &["add --yes"]);
    assert_eq!(forgotten(&["--forget", "--yes"]), 3);
    run(&world, &["enrich", "--show", first]).failed(1, &["nothing was written"]);
    run(&world, &["enrich", "--forget", "no/such"]).failed(1, &["no tool"]);
}

/// The questions that `--ask -` writes, one for each tool.
fn questions(world: &World, more: &[&str]) -> Vec<Value> {
    let asked = run(world, &[&["enrich", "--ask", "-"], more].concat());
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    let lines = asked.stdout.lines().map(serde_json::from_str::<Value>);
    lines
        .flatten()
        .filter(|line| line.get("description").is_some())
        .collect()
}

fn answer(question: &Value, texts: &[&str]) -> Value {
    json!({ "id": question["id"], "definition": question["definition"], "texts": texts })
}

/// Reads these answers, and returns how that ended.
fn answered(world: &World, answers: &str) -> Ended {
    let file = world.file("answers.txt", answers);
    run(world, &["enrich", "--answers", text(&file), "--json"])
}

#[test]
fn any_chat_answers_the_questions_in_a_file() {
    let world = world();
    let questions = questions(&world, &[]);
    assert_eq!(questions.len(), 4);
    let answers: Vec<String> = (0..)
        .zip(&questions)
        .map(|(n, question)| {
            answer(
                question,
                &[&format!("please do thing {n}"), &format!("now {n}")],
            )
            .to_string()
        })
        .collect();
    let prose = format!("Sure!\n```json\n{}\n```\nDone.", answers[..3].join("\n"));
    let first = answered(&world, &prose);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let report = json_of(&first);
    let of = |key: &str| report[key].clone();
    assert_eq!(
        (of("answers"), of("enriched"), of("left")),
        (json!(3), json!(3), json!(1))
    );
    assert_eq!(of("embedded"), 6);
    let found = ["search", "please do thing 1", "--mode", "dense", "--json"];
    assert_eq!(
        json_of(&run(&world, &found))["hits"][0]["id"],
        questions[1]["id"]
    );
    // The next questions are about the rest, and answers that are stored stay.
    assert_eq!(self::questions(&world, &[]), questions[3..]);
    let again = json_of(&answered(&world, &format!("[{}]", answers.join(","))));
    assert_eq!((&again["enriched"], &again["left"]), (&json!(1), &json!(0)));
    assert_eq!(again["kept"].as_array().map(Vec::len), Some(3));
    let nothing = run(&world, &["enrich", "--ask", "-"]);
    says(&nothing.stdout, "every tool has texts");
}

#[test]
fn answers_that_fit_no_tool_are_said_and_not_stored() {
    let world = world();
    let questions = questions(&world, &["--limit", "4", "--batch", "1", "--texts", "2"]);
    let with = |field: &str, value: Value| {
        let mut answer = answer(&questions[0], &["do it"]);
        answer[field] = value;
        answer
    };
    let name = questions[1]["id"]
        .as_str()
        .expect("an id")
        .rsplit('/')
        .next();
    for (answer, place, why) in [
        (with("definition", json!("0000000000000000")), "stale", ""),
        (
            json!({"id": "no/such", "definition": "00", "texts": ["x"]}),
            "unknown",
            "",
        ),
        (json!({"no/such": ["x"]}), "unknown", ""),
        (
            with("definition", Value::Null),
            "refused",
            "no `definition`",
        ),
        (with("texts", json!("do it")), "refused", "not a list"),
        (with("texts", json!([])), "refused", "empty"),
        (with("texts", json!(["..."])), "refused", "says nothing"),
        (
            answer(&questions[1], &[name.expect("a name")]),
            "refused",
            "repeats the tool's name",
        ),
    ] {
        let ended = answered(&world, &answer.to_string());
        assert_eq!(ended.code, 1, "{answer}: {}", ended.stdout);
        let report = json_of(&ended);
        assert_eq!(report["enriched"], 0, "{answer}");
        assert_eq!(
            report[place].as_array().map(Vec::len),
            Some(1),
            "{answer}: {report}"
        );
        assert!(
            report[place].to_string().contains(why),
            "{answer}: {report}"
        );
    }
    let table = run(
        &world,
        &[
            "enrich",
            "--answers",
            text(&world.file("a", with("definition", json!("0")).to_string())),
        ],
    );
    assert_eq!(table.code, 1, "{}", table.stderr);
    for said in ["changed since it was asked about", "--ask FILE"] {
        assert!(table.stderr.contains(said), "{said}: {}", table.stderr);
    }
    answered(&world, "I cannot help with that.")
        .failed(1, &["has no texts of tools", "--ask FILE"]);
    run(&world, &["enrich", "--answers", "missing.txt"]).failed(1, &["read missing.txt"]);
}

#[test]
fn a_file_of_questions_is_not_written_over() {
    let world = world();
    let args = ["enrich", "--ask", "q.md", "--json"];
    let report = json_of(&run(&world, &args));
    assert_eq!(
        (&report["tools"], &report["file"]),
        (&json!(4), &json!("q.md"))
    );
    run(&world, &args).failed(1, &["q.md exists already"]);
    run(&world, &["enrich", "--export", "q.md"]).failed(1, &["q.md exists already"]);
    run(&world, &["enrich", "--export", "x", "--import", "y"]).failed(2, &["cannot be used with"]);
    run(&world, &["enrich", "--ask", "x", "--dry-run"]).failed(2, &["cannot be used with"]);
    run(&world, &["enrich", "--answers", "x", "--show", "y"]).failed(2, &["cannot be used with"]);
}

#[test]
fn a_team_writes_texts_once_whatever_its_servers_are_called() {
    let first = world();
    enrich(&first, &replies(4), &[]);
    let lines = run(&first, &["enrich", "--export", "-"]).stdout;
    assert_eq!(lines.lines().count(), 4, "{lines}");
    let mail = run(&first, &["enrich", "--export", "-", "--server", "mail"]).stdout;
    assert_eq!(mail.lines().count(), 2, "{mail}");
    let second = World::new();
    let mut tools = four_tools();
    for (tool, server) in tools.iter_mut().zip(["a", "b", "c"]) {
        tool["server"] = json!(server);
    }
    tools[2]["description"] = json!("Does something else now.");
    let file = second.file("t.json", json!(tools).to_string());
    assert_eq!(run(&second, &["add", text(&file)]).code, 0);
    let texts = second.file("texts.jsonl", &lines);
    let ended = run(&second, &["enrich", "--import", text(&texts), "--json"]);
    assert_eq!(ended.code, 1);
    let report = json_of(&ended);
    assert_eq!(
        (&report["enriched"], &report["left"]),
        (&json!(3), &json!(1)),
        "{report}"
    );
    assert_eq!(report["unknown"].as_array().map(Vec::len), Some(1));
    let exported = run(&second, &["enrich", "--export", "-"]).stdout;
    let model = |lines: &str| {
        serde_json::from_str::<Value>(lines.lines().next().expect("a line")).expect("JSON")["model"]
            .clone()
    };
    assert_eq!(
        model(&exported),
        model(&lines),
        "the model's name goes along"
    );
}

#[test]
fn answers_that_are_mixed_up_or_broken_are_said() {
    let world = world();
    let asked = questions(&world, &[]);
    let (first, second) = (&asked[0], &asked[1]);
    let mixed =
        json!({ "id": first["id"], "definition": second["definition"], "texts": ["now please"] });
    let invented =
        json!({ "id": "no/such", "definition": second["definition"], "texts": ["now please"] });
    let good = answer(first, &["do that for me"]).to_string();
    for (answer, place) in [(mixed, "stale"), (invented, "unknown")] {
        let ended = answered(&world, &answer.to_string());
        assert_ne!(ended.code, 0, "{answer}");
        let report = json_of(&ended);
        assert_eq!(report[place], json!([answer["id"]]), "{report}");
        assert_eq!(report["enriched"], 0, "{report}");
    }
    for answers in [
        format!("{good}\n{}", &good[..good.len() - 3]),
        format!("[{good},\n{}]", good.replace("\"texts\":", "\"texts\"")),
        format!("{good}\n```\n{}\n```", good.replace(']', ",]")),
    ] {
        let ended = answered(&world, &answers);
        assert_ne!(ended.code, 0, "{answers}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains("its JSON is broken"), "{answers}: {said}");
    }
}

#[test]
fn texts_are_forgotten_for_one_server_alone() {
    let world = world();
    assert_eq!(enrich(&world, &replies(4), &[]).code, 0);
    let server = ids(&world)[0]
        .split('/')
        .next()
        .expect("a server")
        .to_owned();
    let of_server = ids(&world)
        .iter()
        .filter(|id| id.starts_with(&format!("{server}/")))
        .count();
    let none = run(
        &world,
        &[
            "enrich", "--forget", "--server", "nosuch", "--yes", "--json",
        ],
    );
    assert_eq!(json_of(&none)["forgotten"], 0);
    let some = run(
        &world,
        &["enrich", "--forget", "--server", &server, "--yes", "--json"],
    );
    assert_eq!(json_of(&some)["forgotten"], of_server);
    for flags in [["--limit", "0"], ["--limit", "x"]] {
        assert_eq!(
            run(&world, &["enrich", "--ask", "q.md", flags[0], flags[1]]).code,
            2
        );
    }
    assert_eq!(
        run(
            &world,
            &["enrich", "--answers", "a.jsonl", "--server", &server]
        )
        .code,
        2
    );
}

#[test]
fn what_the_texts_are_worth_is_measured() {
    let world = world();
    let none = run(&world, &["enrich", "--measure"]);
    assert_ne!(none.code, 0);
    says(&none.stderr, "no tool has two texts");
    assert_eq!(enrich(&world, &replies(4), &[]).code, 0);
    let measured = json_of(&run(&world, &["enrich", "--measure", "--json"]));
    assert_eq!(measured["tools"], 4, "{measured}");
    assert_eq!(measured["found_within"], 5, "{measured}");
    let (with, without) = (&measured["with_texts"], &measured["without_texts"]);
    assert!(with.as_u64() >= without.as_u64(), "{measured}");
    let misses = measured["worst"].as_array().expect("a list").len() as u64;
    assert_eq!(
        with.as_u64().map(|with| with + misses),
        Some(4),
        "{measured}"
    );
    let printed = run(&world, &["enrich", "--measure"]);
    assert!(
        printed.stdout.starts_with("of what people would say, "),
        "{}",
        printed.stdout
    );
}

#[test]
fn skills_are_listed_and_printed() {
    let world = World::new();
    assert!(run(&world, &["skill"]).stdout.starts_with("enrich\t"));
    let skill = run(&world, &["skill", "enrich"]).stdout;
    for part in [
        "---\nname: toolscout-enrich\n",
        "enrich --ask",
        "enrich --answers",
    ] {
        assert!(skill.contains(part), "{part}: {skill}");
    }
    run(&world, &["skill", "enrcih"]).failed(1, &["no skill", "enrich"]);
}

#[test]
fn doctor_says_the_share_of_tools_with_texts() {
    let world = world();
    let share = || run(&world, &["doctor"]).stdout;
    assert!(share().contains(" 0 of 4 with texts"), "{}", share());
    for (limit, expected) in [
        ("1", " 1 of 4 with"),
        ("2", " 3 of 4 with"),
        ("9", " 4 of 4 with"),
    ] {
        enrich(&world, &replies(4), &["--limit", limit]);
        assert!(share().contains(expected), "{}", share());
    }
}

#[test]
fn adding_says_what_texts_would_take_where_a_model_is_configured() {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    let add = |variables: &[(&str, &str)]| {
        let mut command = world.command();
        command.args(["add", text(&file)]);
        command.env("TOOLSCOUT_EMBEDDER", "hashing");
        Ended::of(command.envs(variables.iter().copied()).output())
    };
    let model = ("TOOLSCOUT_MODEL", "qwen3:8b");
    for (variables, is_offered) in [
        (vec![model], true),
        (vec![("TOOLSCOUT_LLM", "ollama")], true),
        (vec![], false),
        (vec![("TOOLSCOUT_MODEL", "")], false),
        (vec![model, ("TOOLSCOUT_ENRICH", "off")], false),
    ] {
        let ended = add(&variables);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let offer = "write what people say when they need these 4 tools: about ";
        assert_eq!(
            ended.stderr.contains(offer),
            is_offered,
            "{variables:?}: {}",
            ended.stderr
        );
    }
    enrich(&world, &replies(4), &[]);
    let ended = add(&[model]);
    assert!(
        !ended.stderr.contains("write what people say"),
        "{}",
        ended.stderr
    );
}

#[test]
fn texts_that_a_server_offers_are_taken_once_a_person_has_seen_them() {
    let world = World::new();
    let tool = |name: &str, texts: Value| {
        json!({
            "server": "post", "name": name, "description": format!("Does {name}."),
            "inputSchema": { "type": "object" }, "_meta": { "toolscout/requests": texts },
        })
    };
    let file = world.file(
        "t.json",
        json!([
            tool(
                "send",
                json!(["this box has to be in Rome on Friday", "Does send"])
            ),
            tool("track", json!("where is it")),
            tool("weigh", Value::Null),
        ])
        .to_string(),
    );
    assert_eq!(run(&world, &["add", text(&file)]).code, 0);
    let seen = json_of(&run(&world, &["enrich", "--offered", "--json"]));
    assert_eq!(
        seen["offered"],
        json!([{ "id": "post/send", "texts": ["this box has to be in Rome on Friday"] }])
    );
    assert_eq!(
        (&seen["taken"], seen["refused"].as_array().unwrap().len()),
        (&json!(0), 3),
        "{seen}"
    );
    let unseen = run(&world, &["enrich", "--show", "post/send"]);
    says(&unseen.stderr, "nothing was written");

    let taken = run(&world, &["enrich", "--offered", "--yes"]);
    says(&taken.stderr, "texts of 1 of 1 tool taken");
    let shown = json_of(&run(&world, &["enrich", "--show", "post/send", "--json"]));
    assert_eq!(shown["model"], "server post");
    let nothing = run(&world, &["enrich", "--offered", "--server", "post"]);
    says(&nothing.stderr, "no server offers");
}

#[test]
fn texts_of_another_servers_tool_wait_for_a_person() {
    let stolen = "pay a bill for me";
    let world = World::new();
    let tools = json!([
        tool("bank", "pay", "Pays an invoice."),
        tool("fair", "win", "Wins a prize."),
    ]);
    let file = world.file("t.json", tools.to_string());
    assert_eq!(run(&world, &["add", text(&file)]).code, 0);
    let answers = [
        reply(&format!(r#"["{stolen}", "settle what I owe"]"#)),
        reply(&format!(r#"["{stolen}", "get the first prize"]"#)),
    ];
    let held = ["--held", "held.jsonl"];
    let report = json_of(&enrich(&world, &answers, &held));
    let expected = json!([
        { "id": "fair/win", "text": stolen, "speaks_of": "bank/pay", "model": report["model"] }
    ]);
    assert_eq!(
        (&report["held"], &report["enriched"]),
        (&expected, &json!(2))
    );
    let shown =
        |id: &str| json_of(&run(&world, &["enrich", "--show", id, "--json"]))["texts"].clone();
    assert_eq!(shown("bank/pay"), json!([stolen, "settle what I owe"]));
    assert_eq!(shown("fair/win"), json!(["get the first prize"]));

    let take = ["enrich", "--import", "held.jsonl"];
    let unread = json_of(&run(&world, &[&take[..], &["--json"]].concat()));
    assert_eq!(unread["kept"], json!(["fair/win"]), "{unread}");
    // A tool that has other texts already does not hide what is held.
    assert_eq!(unread["held"][0]["text"], stolen, "{unread}");
    let later = run(&world, &[&take[..], &["--held", "later.jsonl"]].concat());
    says(&later.stderr, "later.jsonl has 1 text");
    let line = std::fs::read_to_string(world.path("later.jsonl")).unwrap();
    assert!(line.contains(r#""speaks_of":["bank/pay"]"#), "{line}");
    let read = [&take[..], &["--reviewed"]].concat();
    assert_eq!(run(&world, &read).code, 0);
    assert_eq!(shown("fair/win"), json!(["get the first prize", stolen]));
    assert!(run(&world, &read).stdout.contains("1 kept"));

    // Texts of an enriched catalog become queries of all its tools.
    run(&world, &["enrich", "--export", "all.jsonl"]);
    let queries = [
        "eval",
        "generate",
        "--answers",
        "all.jsonl",
        "--out",
        "q.jsonl",
    ];
    assert_eq!(run(&world, &queries).code, 0);
    let made = std::fs::read_to_string(world.path("q.jsonl")).unwrap();
    assert!(
        made.contains("bank/pay") && made.contains("fair/win"),
        "{made}"
    );
    world.file("broken.jsonl", r#"{"id": "bank/pay", "texts": ["x"#);
    for command in ["--answers", "--import"] {
        let broken = run(&world, &["enrich", command, "broken.jsonl"]);
        broken.failed(
            1,
            &["broken.jsonl: the answer in line 1 is not read, its JSON is broken"],
        );
    }
    let broken = [
        "eval",
        "generate",
        "--answers",
        "broken.jsonl",
        "--out",
        "r.jsonl",
    ];
    let broken = run(&world, &broken);
    says(&broken.stderr, "the answer in line 1");

    run(&world, &["enrich", "--forget", "fair/win"]);
    let said = run(&world, &take);
    for part in ["held: speaks of bank/pay", "--held FILE", "--reviewed"] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    assert!(said.stdout.contains("1 text held"), "{}", said.stdout);
    let again = run(&world, &[&take[..], &["--held", "again.jsonl"]].concat());
    says(&again.stderr, "--import again.jsonl --reviewed");

    // Without a held text no file is left.
    enrich(
        &world,
        &[reply(r#"["get the first prize"]"#)],
        &["--held", "none.jsonl"],
    );
    run(&world, &["enrich", "--import", "none.jsonl"]).failed(1, &["none.jsonl"]);
    run(&world, &["enrich", "--reviewed", "--yes"])
        .failed(2, &["--answers, --import or --offered"]);
    run(&world, &["enrich", "--ask", "x", "--held", "y"]).failed(2, &["cannot be used with"]);
}
