//! `search`: what is found, how it is printed, and what cannot be searched.

use std::process::Stdio;

use serde_json::json;

use super::run::{Ended, World, four_tools, says, text, tool};

#[test]
fn hits_are_tab_separated_where_there_is_no_terminal() {
    let world = World::with_tools(&four_tools());
    let ended = world.run(&["search", "open", "an", "issue", "-k", "1"]);
    let columns: Vec<&str> = ended.stdout.trim_end().split('\t').collect();
    assert_eq!(
        (columns[0], columns[2], columns[3]),
        (
            "1",
            "github/create_issue",
            "Opens a new issue in a repository."
        )
    );
    // Confidence was learned with embeddings, so a lexical search has none.
    assert_eq!(columns[1], "-", "{columns:?}");
    assert!(
        ended.stderr.starts_with("1 of 4 tools · ") && !ended.stderr.contains("opened in"),
        "{}",
        ended.stderr
    );
    for limit in ["--k", "--limit"] {
        let ended = world.run(&["search", "an issue", limit, "1", "--explain"]);
        assert!(
            ended.stderr.starts_with("lexical · ")
                && ended.stderr.contains(" · opened in ")
                && ended.stderr.contains("1 of 4 tools · "),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn tables_have_no_colour_codes_without_a_terminal() {
    let world = World::with_tools(&four_tools());
    let table = world.ok(&["search", "issue", "--output", "table"]);
    assert!(
        table.contains("github/create_issue") && table.contains("description"),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "{table}");
}

#[test]
fn json_has_hits_times_and_mode() {
    let world = World::with_tools(&four_tools());
    let answer = world.json(&["search", "open an issue", "--explain"]);
    let first = &answer["hits"][0];
    assert_eq!(
        (&first["rank"], &first["id"]),
        (&json!(1), &json!("github/create_issue"))
    );
    assert_eq!(
        (&first["server"], &first["name"]),
        (&json!("github"), &json!("create_issue"))
    );
    assert!(first["explain"]["lexical"]["rank"].is_u64(), "{first}");
    assert!(answer["took_ms"]["total"].is_f64() && answer["took_ms"]["lexical"].is_f64());
    assert_eq!(
        (&answer["mode"], &answer["tools"]),
        (&json!("lexical"), &json!(4))
    );
}

#[test]
fn confidence_replaces_raw_scores_outside_explanations_and_json() {
    let world = World::with_tools(&four_tools());
    let search = |args: &[&str]| world.run(&[&["--embedder", "table", "search"], args].concat());
    let named = search(&["create_issue"]);
    let columns: Vec<&str> = named.stdout.lines().next().unwrap().split('\t').collect();
    assert_eq!(columns[..3], ["1", "1.00", "github/create_issue"]);
    says(&named.stderr, "match good · confidence 1.00");
    let explained = search(&["open an isue", "--explain"]).stdout;
    assert!(
        explained.contains("score ") && explained.contains("embedding similarity"),
        "{explained}"
    );
    for feature in ["fused_rank", "near_name", "name_recall", "_"] {
        let reasons = explained.lines().filter(|line| line.contains("ranker"));
        for line in reasons {
            assert!(!line.contains(feature), "{line}");
        }
    }
}

#[test]
fn an_answer_says_how_well_it_fits() {
    let world = World::new();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    world.ok(&["add", tools]);
    let table = ["--embedder", "table", "--output", "table", "search"];
    let unfit = world.ok(&[&table[..], &["paint my fence"]].concat());
    says(
        &unfit,
        "probably no tool here does this; these are the nearest\nin no hit: fence\n",
    );
    assert!(unfit.contains("match none · confidence 0."), "{unfit}");
    let header = unfit.lines().next().unwrap_or_default();
    assert!(!header.contains("score"), "{unfit}");
    let nonsense = world.ok(&[&table[..], &["asdf qwerty zxcv"]].concat());
    assert!(nonsense.starts_with("no match: "), "{nonsense}");
    let sensible = world.ok(&[&table[..], &["will it rain tomorrow"]].concat());
    assert!(!sensible.contains("in no hit"), "{sensible}");
    says(&sensible, "match good · confidence 0.");
    let json = world.json(&["--embedder", "table", "search", "paint my fence"]);
    assert_eq!(
        (&json["match"], &json["unmatched"]),
        (&json!("none"), &json!(["fence"]))
    );
    assert!(
        json["advice"]
            .as_str()
            .is_some_and(|text| text.starts_with("Probably no tool"))
    );
    let other_server = [
        "--embedder",
        "table",
        "search",
        "will it rain tomorrow",
        "--server",
        "github",
    ];
    assert!(world.json(&other_server)["better_hidden"].as_u64() > Some(0));
}

#[test]
fn several_queries_are_answered_in_one_list() {
    let world = World::with_tools(&four_tools());
    let answer = world.json(&["search", "-q", "open an issue", "-q", "send e-mail"]);
    assert_eq!(answer["queries"], json!(["open an issue", "send e-mail"]));
    let hits = answer["hits"].as_array().expect("hits");
    let found = |id: &str| {
        hits.iter()
            .find(|hit| hit["id"] == id)
            .map(|hit| hit["matched_queries"].clone())
    };
    assert_eq!(found("github/create_issue"), Some(json!([0])));
    assert_eq!(found("mail/sendMessage"), Some(json!([1])));
}

#[test]
fn a_name_in_any_spelling_is_first() {
    let world = World::with_tools(&four_tools());
    for name in [
        "send_message",
        "SendMessage",
        "send message",
        "mail/sendMessage",
        "mcp__mail__sendMessage",
    ] {
        assert_eq!(
            world.json(&["search", name])["hits"][0]["id"],
            "mail/sendMessage",
            "{name}"
        );
    }
}

#[test]
fn filters_leave_tools_out() {
    let world = World::with_tools(&four_tools());
    let ids = |args: &[&str]| {
        let answer = world.json(&[&["search", "list the commits of a branch"], args].concat());
        let mut ids: Vec<String> = answer["hits"]
            .as_array()
            .expect("hits")
            .iter()
            .map(|hit| hit["id"].as_str().expect("id").into())
            .collect();
        ids.sort();
        ids
    };
    assert!(
        ids(&["--server", "mail"])
            .iter()
            .all(|id| id.starts_with("mail/"))
    );
    assert_eq!(
        ids(&["--id", "github/list_commits"]),
        ["github/list_commits"]
    );
    assert_eq!(ids(&["--read-only"]), Vec::<String>::new());
}

#[test]
fn found_tools_are_written_in_the_format_of_a_model() {
    let world = World::with_tools(&four_tools());
    let search =
        |format: &str| world.ok(&["search", "open an issue", "-k", "1", "--format", format]);
    assert_eq!(search("names").lines().count(), 1);
    assert!(search("signature").contains("create_issue"));
    let openai: serde_json::Value = serde_json::from_str(&search("openai")).expect("JSON");
    assert_eq!(openai[0]["type"], "function");
    world.fails(2, &["search", "x", "--format", "xml"], &["xml"]);
}

#[test]
fn invalid_queries_are_errors() {
    let world = World::with_tools(&four_tools());
    world.fails(2, &["search"], &["no query"]);
    world.fails(1, &["search", ""], &["the query is empty"]);
    world.fails(1, &["search", "x", "-k", "51"], &["k is 51", "1 to 50"]);
    world.fails(
        2,
        &["search", "x", "--mode", "psychic"],
        &["psychic", "hybrid"],
    );
    world.fails(
        1,
        &["search", "x", "--dense-weight", "2"],
        &["dense_weight is 2"],
    );
    world.fails(
        1,
        &["--catalog", "other", "search", "x"],
        &["other", "toolscout add"],
    );
}

#[test]
fn a_query_of_a_hundred_kilobytes_is_answered() {
    let world = World::with_tools(&four_tools());
    let long = "open an issue ".repeat(100_000 / 14);
    let answer = world.json(&["search", &long]);
    assert_eq!(answer["hits"][0]["id"], "github/create_issue");
}

#[test]
fn no_match_is_not_an_error() {
    let world = World::with_tools(&four_tools());
    let answer = world.json(&["search", "zzzyx qqqwv"]);
    assert_eq!(answer["hits"], json!([]));
    assert!(answer["no_match"]["reason"].is_string(), "{answer}");
    let ended = world.run(&["search", "zzzyx qqqwv"]);
    assert!(
        ended.code == 0 && ended.stderr.contains("no match: "),
        "{}",
        ended.stderr
    );
}

#[test]
fn without_a_configured_model_the_answer_is_degraded() {
    let world = World::with_tools(&four_tools());
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "minilm")
        .args(["search", "open an issue", "--json"]);
    let ended = Ended::of(command.output());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let warnings: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(warnings.len(), 1, "{}", ended.stderr);
    assert!(
        warnings[0].contains("model is missing") && warnings[0].contains("toolscout models pull"),
        "{warnings:?}"
    );
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(
        (&answer["mode"], &answer["hits"][0]["id"]),
        (&json!("hybrid"), &json!("github/create_issue"))
    );
    assert!(
        answer["embedders"][0]
            .as_str()
            .is_some_and(|id| id.starts_with("static-table/")),
        "{answer}"
    );
    assert!(answer["degraded"]["reason"].is_string(), "{answer}");
}

#[test]
fn what_is_missing_is_said_once_beside_the_hits() {
    let world = World::with_tools(&four_tools());
    for (args, expected) in [
        (&["search", "open an issue"][..], "degraded: "),
        (
            &["search", "open an issue", "--format", "names"],
            "warning: ",
        ),
    ] {
        let mut command = world.command();
        command.env("TOOLSCOUT_EMBEDDER", "minilm").args(args);
        let ended = Ended::of(command.output());
        let said: Vec<&str> = ended
            .stderr
            .lines()
            .filter(|line| line.contains("model is missing"))
            .collect();
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_closed_pipe_ends_the_program_silently() {
    let world = World::with_tools(&four_tools());
    let mut child = world
        .command()
        .arg("export")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    let ended = Ended::of(child.wait_with_output());
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn tools_cannot_send_escape_sequences_to_the_terminal() {
    let world = World::new();
    let tool = json!([{ "name": "t", "description": "clear\u{1b}[2Jscreen", "inputSchema": { "type": "object" } }]);
    let file = world.file("t.json", tool.to_string());
    world.ok(&["add", text(&file)]);
    for args in [
        &["search", "clear"][..],
        &["list"],
        &["show", "t"],
        &["search", "clear", "--explain"],
    ] {
        assert!(!world.ok(args).contains('\u{1b}'), "{args:?}");
    }
}

#[test]
fn a_companion_says_for_which_hit_it_is_there() {
    let mut update = tool("crm", "update_person", "Changes a person.");
    update["inputSchema"] = json!({
        "type": "object",
        "properties": { "person_id": { "type": "string" } },
        "required": ["person_id"],
    });
    let fetch = tool("crm", "fetch_people", "Lists people.");
    let world = World::with_tools(&[update, fetch]);
    let search = ["search", "update_person"];
    let rows = world.ok(&search);
    let row = "Lists people. (for `person_id` of crm/update_person)";
    assert!(rows.contains(row), "{rows}");
    let reason = "`person_id` identifies \"person\", which this tool lists";
    let expected = json!({ "id": "crm/update_person", "parameter": "person_id", "reason": reason });
    assert_eq!(world.json(&search)["hits"][1]["companion_of"], expected);
    let explained = world.ok(&[&search[..], &["--explain"]].concat());
    assert!(explained.contains(reason), "{explained}");
    let card = world.ok(&["show", "crm/update_person"]);
    assert!(
        card.contains(&format!("companion: crm/fetch_people ({reason})")),
        "{card}"
    );
    let off = world.ok(&[&search[..], &["--companions", "false"]].concat());
    assert!(!off.contains("crm/fetch_people"), "{off}");
    world.ok(&["catalogs", "settings", "--companions", "false"]);
    assert!(!world.ok(&search).contains("crm/fetch_people"));
    let shown = world.json(&["catalogs", "settings", "--reset", "companions"]);
    assert_eq!(shown["companions"], json!(null));
    assert!(world.ok(&search).contains("crm/fetch_people"));
}
