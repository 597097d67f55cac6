//! `toolscout usage`, with what an agent of the program itself leaves.

use serde_json::{Value, json};

use super::run::{World, says, text};

fn tools() -> World {
    World::with_tools(&[
        json!({"server": "mail", "name": "send", "description": "Sends an e-mail."}),
        json!({"server": "mail", "name": "drafts", "description": "Lists drafts that wait."}),
        json!({"server": "shop", "name": "order", "description": "Orders goods."}),
    ])
}

/// Lets a scripted agent search for a tool and call it, which nothing here can call.
fn ask(world: &World) {
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"send an e-mail","limit":1}}]}}
{"reply":{"calls":[{"name":"mail__send","arguments":{}}]}}
{"reply":{"text":"Done."}}"#,
    );
    let script = format!("script:{}", script.display());
    let args = [
        "agent",
        "--llm",
        &script,
        // Else the other tools would be named in lines, and so be used.
        "--more-tools",
        "0",
        "--search-from-tools",
        "0",
        "mail it",
    ];
    assert_eq!(world.ok(&args), "Done.\n");
}

#[test]
fn what_an_agent_used_is_shown_and_added_up() {
    let world = tools();
    let before = world.run(&["usage"]);
    says(&before.stderr, "nothing was recorded since");
    ask(&world);
    ask(&world);
    let report = world.json(&["usage"]);
    let send = &report["tools"][0];
    let names = ["searches", "first", "injections", "calls", "successes"];
    let figures: Vec<&Value> = names.iter().map(|name| &send[*name]).collect();
    assert_eq!(
        (&send["tool"], figures),
        (
            &json!("mail/send"),
            vec![&json!(2), &json!(2), &json!(2), &json!(2), &json!(0)]
        ),
        "{report}"
    );
    let code = send["errors"].as_object().unwrap().keys().next();
    assert!(
        code.is_some_and(|code| code == "denied" || code == "not_callable"),
        "{send}"
    );
    assert_eq!(report["totals"]["calls"], 2);
    assert_eq!(report["period"]["recorded_days"], 1);
    let plain = world.run(&["usage", "--server", "mail", "--sort", "errors"]);
    let last: Vec<&str> = plain.stdout.lines().collect();
    assert!(last[0].ends_with("mail/send"), "{}", plain.stdout);
    assert!(
        last.last().unwrap().ends_with("(all tools)"),
        "{}",
        plain.stdout
    );
    says(&plain.stderr, "recorded on 1 day since");
    let of_shop = world.json(&["usage", "--server", "shop"]);
    assert_eq!(
        (&of_shop["total"], &of_shop["tools"]),
        (&json!(0), &json!([]))
    );
    world.fails(2, &["usage", "--since", "2w"], &["30d"]);
    world.fails(
        2,
        &["usage", "--sort", "name"],
        &["calls, searches, errors or tokens"],
    );
}

#[test]
fn unused_tools_are_listed_with_their_servers() {
    let world = tools();
    ask(&world);
    let report = world.json(&["usage", "unused", "--since", "1d"]);
    let ids: Vec<&Value> = report["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["tool"])
        .collect();
    assert_eq!(ids, ["mail/drafts", "shop/order"]);
    assert_eq!(
        (&report["total"], &report["all_tools"]),
        (&json!(2), &json!(3))
    );
    let shown = world.run(&["usage", "unused", "--limit", "1"]);
    assert!(
        shown.stdout.ends_with("\tmail/drafts\n"),
        "{}",
        shown.stdout
    );
    for part in [
        "shop: none of 1 tool was used",
        "mail: 1 of 2 tools unused",
        "2 of 3 tools unused",
    ] {
        assert!(shown.stderr.contains(part), "{part}: {}", shown.stderr);
    }
    let of_mail = world.json(&["usage", "unused", "--server", "mail"]);
    assert_eq!(of_mail["all_tools"], 2);
}

#[test]
fn what_an_agent_missed_is_listed_and_exported_for_judging() {
    let world = tools();
    let silent = world.run(&["usage", "missed"]);
    says(&silent.stderr, "queries = true");
    let settings = world.file("on.toml", "[usage]\nqueries = true\n");
    let settings = settings.to_str().unwrap();
    // Finds a tool and calls none.
    let script = world.file(
        "s.jsonl",
        r#"{"reply":{"calls":[{"name":"tool_search","arguments":{"query":"send an e-mail","limit":1}}]}}
{"reply":{"text":"Done."}}"#,
    );
    let script = format!("script:{}", script.display());
    let agent = [
        "agent",
        "--llm",
        &script,
        "--search-from-tools",
        "0",
        "mail it",
    ];
    world.ok(&[&["--config", settings][..], &agent].concat());
    let missed = world.json(&["--config", settings, "usage", "missed"]);
    let group = &missed["groups"][0];
    assert_eq!(
        (
            &group["request"],
            &group["times"],
            &group["nearest"],
            &missed["total"]
        ),
        (
            &json!("send an e-mail"),
            &json!(1),
            &json!("mail/send"),
            &json!(1)
        ),
        "{missed}"
    );
    let file = world.path("missed.jsonl");
    let file = file.to_str().unwrap();
    let export = ["usage", "missed", "--export", file];
    world.ok(&export);
    let line = std::fs::read_to_string(file).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        line,
        json!({ "id": "missed-1", "query": "send an e-mail", "source": "missed" })
    );
    world.fails(1, &export, &["--export", "missed.jsonl"]);
    let out = world.path("judged.jsonl");
    let judged = world.run_with(
        &["eval", "judge", file, "--out", out.to_str().unwrap()],
        b"3\n0\n0\n0\n0\n",
    );
    assert_eq!(judged.code, 0, "{}", judged.stderr);
    let judged = std::fs::read_to_string(out).unwrap();
    assert!(judged.contains("\"missed-1\""), "{judged}");
    assert_eq!(world.json(&["usage", "missed", "--forget"])["forgotten"], 1);
    assert_eq!(world.json(&["usage", "missed"])["requests"], 0);
}

#[test]
fn a_deleted_catalog_loses_its_record_and_a_switched_off_one_has_none() {
    let world = tools();
    ask(&world);
    world.ok(&["catalogs", "delete", "default", "--yes"]);
    world.fails(1, &["usage"], &["default"]);
    let other = tools();
    let settings = other.file("off.toml", "[usage]\nenabled = false\n");
    let settings = settings.to_str().unwrap();
    let off = other.run(&["--config", settings, "usage"]);
    says(&off.stderr, "usage.enabled is false");
    let bad = other.file("bad.toml", "[usage]\nkeep_days = 0\n");
    let bad = bad.to_str().unwrap();
    other.fails(
        1,
        &["--config", bad, "usage"],
        &["usage.keep_days is 0", "1 to 3650"],
    );
}

#[test]
fn a_shadow_is_reported_and_one_that_cannot_be_is_refused_with_its_place() {
    let world = tools();
    world.fails(
        1,
        &["usage", "shadow"],
        &["the settings have no shadow", "[shadow]"],
    );
    for (toml, expected) in [
        (
            "[shadow]",
            "shadow changes nothing; give it one of embedder",
        ),
        (
            "[shadow]\nshare = 2\nembedder = 'none'",
            "shadow.share is 2, it must be from 0 to 1",
        ),
        ("[shadow]\nembedder = 'gpt'", "unknown embedder \"gpt\""),
        ("[shadow]\nembeder = 'none'", "unknown field `embeder`"),
        (
            "[shadow]\nsettings = { kk = 3 }",
            "\"kk\" is no setting of a catalog",
        ),
        (
            "[usage]\nenabled = false\n[shadow]\nembedder = 'none'",
            "shadow needs usage.enabled",
        ),
    ] {
        let file = world.file("bad.toml", toml);
        world.fails(1, &["--config", text(&file), "list"], &[expected]);
    }
    for (toml, expected) in [
        (
            "[shadow]\nwords = 'nowhere.json'",
            "shadow.words, nowhere.json",
        ),
        ("[shadow]\nranker = 'nowhere.json'", "shadow.ranker"),
        (
            "[shadow]\nsettings = 'nowhere.json'",
            "shadow.settings, nowhere.json",
        ),
    ] {
        let file = world.file("bad.toml", toml);
        for command in [
            &["usage", "shadow"][..],
            &["serve", "--listen", "127.0.0.1:0"],
        ] {
            let args = [&["--config", text(&file)], command].concat();
            world.fails(1, &args, &[expected]);
        }
    }
    let file = world.file("good.toml", "[shadow]\nembedder = 'none'\nranker = 'none'");
    let config = ["--config", text(&file), "usage", "shadow"];
    let report = world.json(&config);
    assert_eq!(
        (&report["differences"], &report["share"], &report["verdict"]),
        (
            &json!(["embedder none", "ranker none"]),
            &json!(0.1),
            &json!("too_little")
        )
    );
    let plain = world.run(&config);
    says(&plain.stdout, "called tool first");
    assert!(
        plain
            .stderr
            .contains("too little is known: it takes 20 calls"),
        "{}",
        plain.stderr
    );
}
