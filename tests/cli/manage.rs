//! The verbs that inspect and change a catalog.

use serde_json::{Value, json};

use super::run::{World, four_tools, text, tool};

#[test]
fn list_filters_and_limits() {
    let world = World::with_tools(&four_tools());
    assert_eq!(world.ok(&["list", "--server", "github"]).lines().count(), 2);
    assert_eq!(world.ok(&["list", "--limit", "3"]).lines().count(), 3);
    assert!(
        world
            .run(&["list"])
            .stderr
            .contains("4 of 4 tools in default")
    );
}

#[test]
fn show_prints_a_tool_in_full_and_names_unknown_ones() {
    let world = World::with_tools(&four_tools());
    let card = world.ok(&["show", "github/create_issue"]);
    assert!(
        card.contains("github/create_issue") && card.contains("Opens a new issue"),
        "{card}"
    );
    assert_eq!(
        world.json(&["show", "github/create_issue"])[0]["inputSchema"]["type"],
        "object"
    );
    world.fails(
        1,
        &["show", "github/nothing"],
        &["github/nothing", "toolscout search"],
    );
}

#[test]
fn unknown_names_suggest_similar_ones() {
    let world = World::with_tools(&four_tools());
    let suggestion = "did you mean \"github/create_issue\"?";
    world.fails(1, &["show", "create_issues"], &[suggestion]);
    world.fails(1, &["remove", "githb/create_issue"], &[suggestion]);
    world.fails(
        1,
        &["remove", "--server", "githb"],
        &["did you mean \"github\"?"],
    );
    let warning =
        "warning: no tool of server \"githb\" in catalog \"default\"; did you mean \"github\"?";
    let no_match = "no match: no tool passes the filter: there is no server \"githb\" (did you mean \"github\"?)";
    for (verb, said) in [
        (&["list"][..], warning),
        (&["export"], warning),
        (&["search", "issue"], no_match),
        (&["--json", "search", "issue"], warning),
    ] {
        let ended = world.run(&[verb, &["--server", "githb"]].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    for verb in [
        &["search", "issue"][..],
        &["mcp"],
        &["serve"],
        &["agent", "hi"],
    ] {
        world.fails(
            1,
            &[&["--catalog", "defualt"], verb].concat(),
            &[
                "error: no catalog \"defualt\" in ",
                "; did you mean \"default\"? `toolscout add`",
            ],
        );
    }
    let install = ["mcp", "install", "--client", "cursor", "--dry-run"];
    for verb in [&["doctor"][..], &install] {
        let ended = world.run(&[&["--catalog", "defualt"], verb].concat());
        let warning = "warning: no catalog \"defualt\" in ";
        assert!(
            ended.code == 0 && ended.stderr.contains(warning),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(world.ok(&["catalogs", "list"]), "default\t4\n");
    let key = [
        "keys",
        "create",
        "--scope",
        "search",
        "--catalogs",
        "defualt",
    ];
    let ended = world.run(&key);
    assert!(
        ended.code == 0 && ended.stderr.contains("did you mean \"default\"?"),
        "{}",
        ended.stderr
    );
}

#[test]
fn remove_takes_ids_or_servers_and_all_or_nothing() {
    let world = World::with_tools(&four_tools());
    world.fails(
        1,
        &["remove", "github/create_issue", "github/nothing"],
        &["github/nothing", "nothing was removed"],
    );
    world.fails(1, &["remove", "--server", "nobody"], &["nobody"]);
    world.fails(2, &["remove"], &["nothing to remove"]);
    world.ok(&["remove", "--server", "mail", "--dry-run"]);
    assert_eq!(world.ids().len(), 4);
    assert_eq!(
        world.ok(&["remove", "github/create_issue"]),
        "- github/create_issue\n"
    );
    world.ok(&["remove", "--server", "mail"]);
    assert_eq!(world.ids(), ["github/list_commits"]);
}

#[test]
fn an_export_is_read_back_without_loss() {
    let world = World::with_tools(&four_tools());
    let exported = world.ok(&["export"]);
    assert_eq!(exported.lines().count(), 4);
    let other = World::new();
    let file = other.file("t.jsonl", &exported);
    other.ok(&["add", text(&file)]);
    assert_eq!(other.ok(&["export"]), exported);
}

#[test]
fn an_export_in_the_format_of_a_model_is_json() {
    let world = World::with_tools(&four_tools());
    let parsed = |format: &str| -> Value {
        serde_json::from_str(&world.ok(&["export", "--format", format])).expect("JSON")
    };
    assert_eq!(parsed("mcp")["tools"].as_array().map(Vec::len), Some(4));
    assert_eq!(parsed("anthropic").as_array().map(Vec::len), Some(4));
    assert_eq!(
        world
            .ok(&["export", "--format", "names", "--server", "mail"])
            .lines()
            .count(),
        2
    );
}

#[test]
fn stats_count_tools_and_servers() {
    let world = World::with_tools(&four_tools());
    let stats = world.json(&["stats"]);
    assert_eq!(
        (&stats["tools"], &stats["servers"]),
        (&json!(4), &json!([["github", 2], ["mail", 2]]))
    );
    assert!(stats["disk_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert!(world.ok(&["stats"]).contains("tools\t4\n"));
}

#[test]
fn stats_list_the_largest_of_many_servers() {
    let mut tools: Vec<Value> = (0..30)
        .map(|number| tool(&format!("server{number:02}"), "one", "text"))
        .collect();
    tools.push(tool("server29", "two", "text"));
    let printed = World::with_tools(&tools).ok(&["stats"]);
    let servers: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("server\t"))
        .collect();
    assert_eq!(servers.len(), 20, "{printed}");
    assert_eq!(servers[..2], ["server29: 2 tools", "server00: 1 tool"]);
    assert!(printed.contains("more servers\t10; "), "{printed}");
}

#[test]
fn catalogs_are_separate_and_can_be_deleted() {
    let world = World::with_tools(&four_tools());
    let file = world.file("one.json", json!([tool("s", "t", "x")]).to_string());
    world.ok(&["--catalog", "other", "add", text(&file)]);
    assert_eq!(world.ok(&["catalogs", "list"]), "default\t4\nother\t1\n");
    world.fails(2, &["catalogs", "delete", "other"], &["--yes"]);
    world.fails(
        1,
        &["catalogs", "delete", "othr"],
        &["no catalog \"othr\"", "did you mean \"other\"?"],
    );
    world.ok(&["catalogs", "delete", "other", "--yes"]);
    world.fails(1, &["catalogs", "delete", "other", "--yes"], &["other"]);
    assert_eq!(world.ok(&["catalogs", "list"]), "default\t4\n");
}

#[test]
fn a_new_data_directory_has_no_catalogs_and_no_keys() {
    let world = World::new();
    for (list, note) in [
        (["catalogs", "list"], "no catalogs in "),
        (["keys", "list"], "no keys"),
    ] {
        let ended = world.run(&list);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, ""));
        assert!(ended.stderr.starts_with(note), "{}", ended.stderr);
        assert_eq!(world.json(&list), json!([]));
    }
    world.file("my.json", "[]");
    world.fails(
        1,
        &["list", "--data", "my.json"],
        &["my.json is a file, not a folder"],
    );
}

#[test]
fn the_first_key_and_the_last_one_are_remarked() {
    let world = World::new();
    let create = ["keys", "create", "--scope", "admin", "--catalogs", "*"];
    let needed = "requests to the HTTP API now need a key";
    assert!(world.run(&create).stderr.contains(needed));
    assert!(!world.run(&create).stderr.contains(needed));
    let keys = world.json(&["keys", "list"]);
    for (index, is_last) in [(0, false), (1, true)] {
        let id = keys[index]["id"].as_str().expect("an id");
        let revoked = world.run(&["keys", "revoke", id]);
        assert_eq!(revoked.code, 0, "{}", revoked.stderr);
        let warned = revoked.stderr.contains("no valid key is left");
        assert_eq!(warned, is_last, "{}", revoked.stderr);
    }
}

#[test]
fn a_port_in_use_is_an_error_that_names_another() {
    let world = World::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    world.fails(
        1,
        &["serve", "--listen", &address],
        &[&address, "choose another with --listen 127.0.0.1:0"],
    );
}

#[test]
fn invalid_catalog_names_are_refused() {
    let world = World::new();
    let file = world.file("t.json", json!(four_tools()).to_string());
    for name in ["../up", "a/b", "", ".hidden"] {
        world.fails(
            1,
            &["--catalog", name, "add", text(&file)],
            &["catalog name"],
        );
    }
    assert!(!world.path("up").exists());
}

#[test]
fn a_second_writer_is_refused_and_a_reader_is_not() {
    let world = World::with_tools(&four_tools());
    let dir = toolscout_index::DataDir::new(world.path("data"));
    let catalog = dir
        .open("default", toolscout_index::Options::default())
        .expect("opens");
    let writer = catalog.writer().expect("the first writer");
    let file = world.file("t.json", json!([tool("s", "t", "x")]).to_string());
    world.fails(1, &["add", text(&file)], &["another process", "wait"]);
    assert_eq!(world.ids().len(), 4);
    drop(writer);
    world.ok(&["add", text(&file)]);
    assert_eq!(world.ids().len(), 5);
}

#[test]
fn embed_with_embedding_switched_off_is_an_error() {
    let world = World::with_tools(&four_tools());
    world.fails(1, &["embed"], &["nothing was embedded", "switched off"]);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(
            world.ok(&["completions", shell]).contains("toolscout"),
            "{shell}"
        );
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let world = World::new();
    assert!(world.ok(&["--help"]).contains("Usage: toolscout"));
    let (short, full) = (world.ok(&["list", "-h"]), world.ok(&["list", "--help"]));
    assert!(!short.contains("--embedder") && full.contains("--embedder"));
    assert!(short.contains("--catalog") && short.contains("--data"));
    assert!(world.ok(&["--version"]).starts_with("toolscout "));
    world.fails(2, &["frobnicate"], &["frobnicate"]);
}

#[test]
fn a_key_is_bound_to_profiles() {
    let world = World::new();
    let settings = "[profiles.office]\nservers = ['mail']";
    let config = world.file("c.toml", settings);
    let config = config.to_str().expect("UTF-8");
    let create = |more: &[&str]| {
        let args = ["--config", config, "keys", "create", "--scope", "call"];
        world.run(&[&args[..], more].concat())
    };
    let misspelt = create(&["--profile", "office,ofice"]);
    misspelt.failed(
        2,
        &["no profile \"ofice\" exists here; did you mean \"office\"?"],
    );
    let made = create(&["--profile", "office"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let keys = world.json(&["keys", "list"]);
    assert_eq!(
        (&keys[0]["profiles"], &keys[0]["catalogs"]),
        (&json!(["office"]), &json!("*"))
    );
    create(&[]).failed(2, &["--catalogs"]);
    // Without any profiles here, the server may have settings of its own.
    let args = ["keys", "create", "--scope", "call", "--profile"];
    let elsewhere = world.run(&[&args[..], &["ofice"]].concat());
    assert_eq!(elsewhere.code, 0, "{}", elsewhere.stderr);
    assert!(
        elsewhere
            .stderr
            .contains("no profile \"ofice\" exists here"),
        "{}",
        elsewhere.stderr
    );
    let misnamed = world.run(&[&args[..], &["of fice"]].concat());
    misnamed.failed(1, &["cannot be the name of a profile"]);
}

#[test]
fn a_key_is_revoked_by_its_name_or_as_a_whole() {
    let world = World::new();
    let create = |name: &str| {
        let create = [
            "keys",
            "create",
            "--scope",
            "search",
            "--catalogs",
            "default",
        ];
        let made = world.ok(&[&create[..], &["--name", name]].concat());
        made.trim().to_owned()
    };
    let whole = create("laptop");
    create("build server");
    for _ in 0..2 {
        create("twins");
    }
    let listed = world.ok(&["keys", "list"]);
    let laptop = listed.lines().find(|line| line.contains("laptop"));
    assert!(laptop.expect("is listed").ends_with("\tnever"), "{listed}");
    world.ok(&["keys", "revoke", "build server"]);
    world.ok(&["keys", "revoke", &whole]);
    world.fails(
        2,
        &["keys", "revoke", "twins"],
        &["2 keys have the name \"twins\"; give an id: "],
    );
    world.fails(
        1,
        &["keys", "revoke", "build server"],
        &["the key \"build server\"", "is revoked already"],
    );
    let mut states = Vec::new();
    for key in world.json(&["keys", "list"]).as_array().expect("a list") {
        let text = |name: &str| key[name].as_str().expect("a text").to_owned();
        states.push(format!("{} {}", text("name"), text("state")));
    }
    states.sort();
    let expected = [
        "build server revoked",
        "laptop revoked",
        "twins valid",
        "twins valid",
    ];
    assert_eq!(states, expected);
}

#[test]
fn an_engine_that_does_not_answer_is_said_with_its_address() {
    let world = World::new();
    // A port that was free a moment ago.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let fields = "name = 'slug'\ndescription = 'body'\nsearch = ['body']";
    for scheme in ["pgvector+plain", "qdrant+http", "elasticsearch+http"] {
        let path = match scheme {
            "pgvector+plain" => "company/pages",
            _ => "pages",
        };
        let settings = format!(
            "[catalogs.pages]\nstore = '{scheme}://{address}/{path}'\n[catalogs.pages.fields]\n{fields}"
        );
        let config = world.file("engine.toml", settings);
        let check = [
            "--config",
            text(&config),
            "--catalog",
            "pages",
            "external",
            "check",
        ];
        world.fails(1, &check, &[&address]);
    }
}
