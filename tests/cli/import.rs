//! `mcp add`, `get`, `remove`, `enable`, `disable`, `import` and `restore`: files of servers, and the settings
//! of other clients.

use std::fs;

use serde_json::{Value, json};

use super::run::{World, says};

fn servers(world: &World) -> Value {
    let text = fs::read_to_string(world.path("servers.json")).expect("servers.json");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    file["mcpServers"].clone()
}

#[test]
fn servers_are_added_as_people_know_it() {
    let world = World::new();
    let add = |args: &[&str]| world.ok(&[&["mcp", "add"], args].concat());
    add(&["git", "--", "uvx", "mcp-server-git", "-v"]);
    add(&[
        "notes",
        "--env",
        "NOTES_KEY",
        "--env",
        "MODE=ro",
        "--",
        "notes-mcp",
    ]);
    let header = "Authorization: Bearer ${WEB_KEY}";
    add(&[
        "web",
        "https://web.example/mcp",
        "--transport",
        "http",
        "--header",
        header,
    ]);
    let expected = json!({
        "git": { "command": "uvx", "args": ["mcp-server-git", "-v"] },
        "notes": { "command": "notes-mcp", "env": { "NOTES_KEY": "${NOTES_KEY}", "MODE": "ro" } },
        "web": {
            "url": "https://web.example/mcp", "type": "http",
            "headers": { "Authorization": "Bearer ${WEB_KEY}" },
        },
    });
    assert_eq!(servers(&world), expected);
    for (args, expected) in [
        (&["git", "--", "other"][..], "has another server \"git\""),
        (&["a", "npx"], "mcp add a -- npx …"),
        (&["a", "--env", "K=v"], "mcp add a -- COMMAND"),
        (
            &["a", "https://x.example", "--transport", "stdio"],
            "a URL is not reached by stdio",
        ),
        (&["a", "--transport", "sse", "--", "x"], "sse needs a URL"),
        (
            &["a", "https://x.example", "--header", "Key"],
            "--header Key: write NAME: VALUE",
        ),
        (&["a/b", "--", "x"], "its name contains '/'"),
    ] {
        let ended = world.run(&[&["mcp", "add"], args].concat());
        assert_ne!(ended.code, 0, "{args:?}");
        assert!(
            ended.stderr.contains(expected),
            "{args:?}: {}",
            ended.stderr
        );
    }

    world.ok(&["mcp", "disable", "git"]);
    assert_eq!(servers(&world)["git"]["disabled"], true);
    world.ok(&["mcp", "enable", "git"]);
    assert_eq!(servers(&world)["git"], expected["git"]);
    world.ok(&[
        "mcp",
        "add",
        "paid",
        "--env",
        "PAID_KEY=secret-1",
        "--",
        "x",
    ]);
    let shown = world.json(&["mcp", "get", "paid"]);
    assert_eq!(
        shown["entry"],
        json!({ "command": "x", "env": { "PAID_KEY": "[redacted]" } })
    );
    assert!(
        world
            .ok(&["mcp", "get", "notes"])
            .contains("\"${NOTES_KEY}\"")
    );
    world.ok(&["mcp", "remove", "git", "paid"]);
    assert_eq!(servers(&world).as_object().expect("servers").len(), 2);
    let known = "has no server \"git\"; it has notes, web";
    for verb in ["get", "remove", "enable", "disable"] {
        world.fails(1, &["mcp", verb, "git"], &[known]);
    }
}

#[test]
fn servers_of_clients_are_imported_and_replaced_and_put_back() {
    let world = World::new();
    let cursor = "{\n  // mine\n  \"mcpServers\": {\n    \"github\": { \"command\": \"gh-mcp\", \"env\": { \"GITHUB_TOKEN\": \"g-1\" } },\n    \"files\": { \"command\": \"files-mcp\" }\n  }\n}";
    let codex = "# mine\n[mcp_servers.files]\ncommand = \"files-mcp\"\n\n[mcp_servers.github]\ncommand = \"other-mcp\"\n";
    let goose = "extensions:\n  developer: { type: builtin }\n  web: { type: streamable_http, uri: \"https://web.example/mcp\" }\n";
    world.file(".cursor/mcp.json", cursor);
    world.file(".codex/config.toml", codex);
    world.file(".config/goose/config.yaml", goose);

    let shown = world.run(&["mcp", "import", "--dry-run"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(!world.path("servers.json").exists());
    says(&shown.stderr, "4 servers would be added");
    says(&shown.stderr, "developer of goose is left out");

    let clients = ["mcp", "import", "--client", "cursor", "--client", "codex"];
    let report = world.json(&[&clients[..], &["--replace"]].concat());
    assert_eq!(report["variables"], json!(["GITHUB_TOKEN"]));
    let changes = report["servers"].as_array().expect("servers").iter();
    let changes = changes.map(|server| (&server["server"], &server["change"]));
    let expected = [
        ("github", "added"),
        ("files", "added"),
        ("files", "same"),
        ("github-codex", "added"),
    ];
    assert!(
        changes.eq(expected
            .map(|(name, change)| (json!(name), json!(change)))
            .iter()
            .map(|(a, b)| (a, b)))
    );
    assert!(!report.to_string().contains("g-1"), "{report}");
    let of_file = json!({
        "github": { "command": "gh-mcp", "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" } },
        "files": { "command": "files-mcp" },
        "github-codex": { "command": "other-mcp" },
    });
    assert_eq!(servers(&world), of_file);

    let text = fs::read_to_string(world.path(".cursor/mcp.json")).expect("settings");
    assert!(text.contains("// mine"), "{text}");
    let list = text.replace("// mine", "");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let own = &list["mcpServers"]["toolscout"];
    assert_eq!(list["mcpServers"].as_object().expect("servers").len(), 1);
    assert_eq!(
        own["env"]["GITHUB_TOKEN"], "g-1",
        "the secret stays where it was"
    );
    assert!(own["args"].to_string().contains("servers.json"), "{own}");
    let text = fs::read_to_string(world.path(".codex/config.toml")).expect("settings");
    assert!(
        text.contains("# mine") && text.contains("[mcp_servers.toolscout]"),
        "{text}"
    );
    assert!(
        !text.contains("files-mcp") && text.contains("env_vars = [\"GITHUB_TOKEN\"]"),
        "the client passes the variable on, and starts the server no more: {text}"
    );

    let again = world.run(&["mcp", "import", "--client", "cursor", "--replace"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let expected = "has the place of all servers already";
    assert!(again.stderr.contains(expected), "{}", again.stderr);
    let written_since = r#"{ "mcpServers": {}, "new": 1 }"#;
    world.file(".cursor/mcp.json", written_since);
    for (client, file, before) in [
        ("cursor", ".cursor/mcp.json", cursor),
        ("codex", ".codex/config.toml", codex),
    ] {
        world.ok(&["mcp", "restore", "--client", client]);
        assert_eq!(
            fs::read_to_string(world.path(file)).expect("settings"),
            before
        );
        world.fails(
            1,
            &["mcp", "restore", "--client", client],
            &["there is no backup"],
        );
    }
    let kept = fs::read_to_string(world.path(".cursor/mcp.json.replaced-1"));
    assert_eq!(kept.expect("what was there"), written_since);

    let goose = ["mcp", "import", "--client", "goose"];
    let replacing = [&goose[..], &["--replace"]].concat();
    world.fails(2, &replacing, &["read and not written"]);
    world.ok(&goose);
    assert_eq!(servers(&world)["web"]["type"], "http");
}

#[test]
fn servers_of_the_file_are_updated_on_request() {
    let world = World::new();
    let settings = |command: &str, key: &str| {
        let entry = json!({ "command": command, "env": { "GITHUB_TOKEN": key } });
        json!({ "mcpServers": { "github": entry } }).to_string()
    };
    world.file("client.json", settings("old-mcp", "g-1"));
    let import = ["mcp", "import", "--from", "client.json"];
    world.ok(&import);
    let mut file = json!({ "mcpServers": servers(&world) });
    file["mcpServers"]["github"]["tools"] = json!({ "wipe": { "hide": true } });
    world.file("servers.json", file.to_string());

    // What the owner has added makes it no other server.
    let same = world.json(&import);
    assert_eq!(same["servers"][0]["change"], "same", "{same}");

    world.file("client.json", settings("new-mcp", "g-2"));
    let update = [&import[..], &["--update"]].concat();
    world.fails(2, &update, &["nobody can be asked", "give --yes"]);
    let shown = world.run(&[&update[..], &["--dry-run"]].concat());
    for line in [
        "github:\n",
        "  - command: \"old-mcp\"",
        "  + command: \"new-mcp\"",
        "1 server would be changed there",
    ] {
        assert!(shown.stderr.contains(line), "{line:?}: {}", shown.stderr);
    }
    assert!(!shown.stderr.contains("g-2"), "{}", shown.stderr);
    assert_eq!(servers(&world)["github"]["command"], "old-mcp");

    let report = world.json(&[&update[..], &["--yes"]].concat());
    assert_eq!(report["servers"][0]["change"], "updated");
    assert_eq!(report["servers"][0]["before"]["command"], "old-mcp");
    let expected = json!({ "github": {
        "command": "new-mcp", "env": { "GITHUB_TOKEN": "${GITHUB_TOKEN}" },
        "tools": { "wipe": { "hide": true } },
    } });
    assert_eq!(servers(&world), expected);

    // Without the flag it is another server.
    world.file("client.json", settings("third-mcp", "g-2"));
    world.ok(&import);
    assert_eq!(servers(&world)["github-client"]["command"], "third-mcp");
}

#[test]
fn a_file_of_settings_is_imported_with_or_without_secrets() {
    let world = World::new();
    let file = r#"{ "servers": { "a": { "command": "x", "args": ["--api-key=k-1"] }, "b": { "type": "video" } } }"#;
    world.file("mcp.json", file);
    world.ok(&["mcp", "import", "--from", "mcp.json", "--keep-secrets"]);
    assert_eq!(
        servers(&world),
        json!({ "a": { "command": "x", "args": ["--api-key=k-1"] } })
    );
    world.ok(&["mcp", "import", "--from", "mcp.json"]);
    assert_eq!(servers(&world).as_object().expect("servers").len(), 1);
    world.ok(&["mcp", "import", "--from", "mcp.json", "--mcp", "other.json"]);
    let shown = world.json(&["mcp", "get", "a", "--mcp", "other.json"]);
    let reference = json!({ "command": "x", "args": ["--api-key=${A_API_KEY}"] });
    assert_eq!(shown["entry"], reference);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = fs::metadata(world.path("other.json")).expect("a file");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
    let broken = world.file("broken.toml", "a = ");
    let broken = broken.to_str().expect("UTF-8");
    world.fails(2, &["mcp", "import", "--from", broken], &["not valid TOML"]);
    world.fails(
        1,
        &["mcp", "import", "--from", "nowhere.json"],
        &["nowhere.json"],
    );
    let none = world.run(&["mcp", "import"]);
    assert_eq!(none.code, 1);
    assert!(none.stderr.contains("--from"), "{}", none.stderr);
}
