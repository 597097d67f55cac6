use std::collections::{BTreeMap, BTreeSet};

use jsonc_parser::cst::CstRootNode;

use super::backups::numbered;
use super::*;
use crate::config::jsonc;

fn stdio() -> Endpoint {
    Endpoint::Stdio {
        command: "/bin/toolscout".into(),
        args: vec!["mcp".into()],
        env: BTreeMap::new(),
        passed_on: BTreeSet::new(),
    }
}

#[test]
fn codex_passes_on_the_variables_that_servers_need() {
    let mut endpoint = stdio();
    if let Endpoint::Stdio { env, passed_on, .. } = &mut endpoint {
        env.insert("SET".into(), "1".into());
        passed_on.extend(["NOTES_KEY".to_owned(), "SET".to_owned()]);
    }
    let entry = Client::Codex.entry(&endpoint);
    assert_eq!(entry["env_vars"], json!(["NOTES_KEY"]));
    assert!(Client::Cursor.entry(&endpoint).get("env_vars").is_none());
}

fn plan(client: Client, path: &Path, before: &str) -> Result<Plan, String> {
    fs::write(path, before).unwrap();
    Plan::new(client, path, &stdio()).map_err(|error| error.to_string())
}

#[test]
fn other_settings_are_unchanged_and_a_backup_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    let before = r#"{"z": 1, "mcpServers": {"other": {"command": "x"}}, "a": [2]}"#;
    let first = plan(Client::Cursor, &path, before).unwrap();
    let backup = first.write().unwrap().unwrap();
    assert_eq!(fs::read_to_string(backup).unwrap(), before);
    let after: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(
        after.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["z", "mcpServers", "a"]
    );
    assert_eq!(after["mcpServers"]["other"]["command"], "x");
    assert_eq!(
        after["mcpServers"]["toolscout"],
        json!({ "command": "/bin/toolscout", "args": ["mcp"] })
    );

    let again = Plan::new(Client::Cursor, &path, &stdio()).unwrap();
    assert!(again.is_up_to_date() && !first.is_up_to_date());
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        2,
        "the folder holds the settings and one backup"
    );
}

#[test]
fn comments_and_trailing_commas_stay_when_an_entry_is_added_or_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    let before = r#"// my servers
{
    "servers": {
        /* the first */
        "other": { "command": "x" }, // keep
        "toolscout": { "command": "old" }, // ours
    },
    "inputs": [],
}
"#;
    let replaced = plan(Client::VsCode, &path, before).unwrap();
    for comment in [
        "// my servers\n",
        "/* the first */",
        "// keep\n",
        "// ours\n",
    ] {
        assert!(replaced.after.contains(comment), "{}", replaced.after);
    }
    assert!(!replaced.after.contains("\"old\""), "{}", replaced.after);
    assert!(
        replaced.after.contains("\"inputs\": [],\n}\n"),
        "{}",
        replaced.after
    );
    replaced.write().unwrap();
    assert!(
        Plan::new(Client::VsCode, &path, &stdio())
            .unwrap()
            .is_up_to_date()
    );

    let added = plan(
        Client::GeminiCli,
        &path,
        "{\n  // a theme\n  \"theme\": \"dark\"\n}\n",
    )
    .unwrap();
    assert!(
        added.after.contains("// a theme\n  \"theme\": \"dark\",\n"),
        "{}",
        added.after
    );
    let root = CstRootNode::parse(&added.after, &jsonc()).unwrap();
    assert_eq!(
        root.to_serde_value().unwrap()["mcpServers"]["toolscout"]["args"],
        json!(["mcp"])
    );
}

#[test]
fn environment_variables_are_written_in_the_format_of_each_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings");
    let endpoint = Endpoint::Stdio {
        command: "/bin/toolscout".into(),
        args: vec!["mcp".into()],
        env: BTreeMap::from([("TOOLSCOUT_DATA".to_owned(), "/data".to_owned())]),
        passed_on: BTreeSet::new(),
    };
    for client in Client::ALL {
        let plan = Plan::new(client, &path, &endpoint);
        if client == Client::Goose {
            let error = plan.unwrap_err().to_string();
            assert!(
                error.contains("add this by hand") && error.contains("\"/data\""),
                "{error}"
            );
            continue;
        }
        let after = plan.unwrap().after;
        let settings: Value = match client {
            Client::Codex => toml::from_str(&after).unwrap(),
            _ => serde_json::from_str(&after).unwrap(),
        };
        assert_eq!(
            settings[client.key()]["toolscout"]["env"],
            json!({ "TOOLSCOUT_DATA": "/data" }),
            "{after}"
        );
    }
}

#[test]
fn a_missing_file_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/mcp.json");
    let plan = Plan::new(Client::VsCode, &path, &stdio()).unwrap();
    assert_eq!(plan.write().unwrap(), None);
    let after: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(after["servers"]["toolscout"]["type"], "stdio");
}

#[test]
fn a_server_is_added_beside_others_and_takes_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("servers.json");
    let entry = json!({ "command": "npx", "args": ["-y", "a"] });
    let plan = |name: &str, entry: &Value| Plan::adding(&path, name, entry);
    plan("a", &entry).unwrap().write().unwrap();
    plan("b", &entry).unwrap().write().unwrap();
    assert!(plan("a", &entry).unwrap().is_up_to_date());
    let taken = plan("a", &json!({ "command": "x" })).unwrap_err();
    assert!(taken.to_string().contains("choose another name"));
    let after: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(after, json!({ "mcpServers": { "a": entry, "b": entry } }));

    fs::write(&path, "// mine\n{\"servers\": {}}").unwrap();
    let added = plan("a", &entry).unwrap().after;
    assert!(added.starts_with("// mine\n") && !added.contains("mcpServers"));
}

#[test]
fn this_program_takes_the_place_of_servers_and_the_settings_come_back_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a".to_owned(), "b".to_owned()];
    for (client, before, after) in [
        (
            Client::Cursor,
            "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" },\n    \"keep\": { \"command\": \"y\" },\n    \"b\": {}\n  }\n}",
            json!({ "keep": { "command": "y" }, "toolscout": { "command": "/bin/toolscout", "args": ["mcp"] } }),
        ),
        (
            Client::Codex,
            "# mine\n[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.a.env]\nK = \"v\"\n[mcp_servers.keep]\ncommand = \"y\"\n",
            json!({ "keep": { "command": "y" }, "toolscout": { "command": "/bin/toolscout", "args": ["mcp"] } }),
        ),
    ] {
        let path = folder.path().join(client.as_str());
        fs::write(&path, before).unwrap();
        let plan = Plan::replacing(client, &path, &stdio(), &names).unwrap();
        assert!(plan.after.contains("mine"), "{}", plan.after);
        let settings: Value = match client {
            Client::Codex => toml::from_str(&plan.after).unwrap(),
            _ => CstRootNode::parse(&plan.after, &jsonc())
                .unwrap()
                .to_serde_value()
                .unwrap(),
        };
        assert_eq!(settings[client.key()], after, "{}", plan.after);
        plan.write().unwrap();
        restore(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
        let error = restore(&path).unwrap_err().to_string();
        assert!(error.contains("no backup"), "{error}");
    }
}

#[test]
fn the_newest_backup_is_put_back_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    let entry = json!({ "command": "x" });
    for name in ["a", "b", "c"] {
        Plan::adding(&path, name, &entry).unwrap().write().unwrap();
    }
    let names = || Vec::from_iter(listed_servers(&path).unwrap().keys().cloned());
    restore(&path).unwrap();
    assert_eq!(names(), ["a", "b"]);
    restore(&path).unwrap();
    assert_eq!(names(), ["a"]);
}

#[test]
fn a_backup_after_a_deleted_one_is_still_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    let entry = json!({ "command": "x" });
    let add = |name: &str| Plan::adding(&path, name, &entry).unwrap().write().unwrap();
    for name in ["a", "b", "c"] {
        add(name);
    }
    fs::remove_file(numbered(&path, "backup", 1)).unwrap();
    add("d");
    restore(&path).unwrap();
    let names = Vec::from_iter(listed_servers(&path).unwrap().keys().cloned());
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn servers_are_removed_and_switched_by_name() {
    let names = |names: &[&str]| Vec::from_iter(names.iter().map(|name| (*name).to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("servers.json");
    let text = "{ \"mcpServers\": {\n  // first\n  \"a\": { \"command\": \"x\" },\n  \"b\": { \"command\": \"y\" }\n} }\n";
    fs::write(&path, text).unwrap();
    let off = Plan::switching(&path, &names(&["a"]), false).unwrap();
    off.write().unwrap();
    assert_eq!(
        listed_servers(&path).unwrap()["a"],
        json!({ "command": "x", "disabled": true })
    );
    assert!(
        Plan::switching(&path, &names(&["a"]), false)
            .unwrap()
            .is_up_to_date()
    );
    Plan::switching(&path, &names(&["a"]), true)
        .unwrap()
        .write()
        .unwrap();
    assert_eq!(
        listed_servers(&path).unwrap()["a"],
        json!({ "command": "x" })
    );
    Plan::removing(&path, &names(&["b"]))
        .unwrap()
        .write()
        .unwrap();
    assert_eq!(Vec::from_iter(listed_servers(&path).unwrap().keys()), ["a"]);
    assert!(fs::read_to_string(&path).unwrap().contains("// first"));
    let error = Plan::removing(&path, &names(&["b"]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("has no server \"b\"; it has a"), "{error}");
}

#[test]
fn comments_in_toml_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let before = "# mine\nmodel = \"m\"\n[mcp_servers.other]\ncommand = \"x\"\n";
    let merged = plan(Client::Codex, &path, before).unwrap();
    assert_eq!(
        merged.after,
        format!(
            "{before}\n[mcp_servers.toolscout]\ncommand = \"/bin/toolscout\"\nargs = [\"mcp\"]\n"
        )
    );
    merged.write().unwrap();
    assert!(
        Plan::new(Client::Codex, &path, &stdio())
            .unwrap()
            .is_up_to_date()
    );
    let outdated = "[mcp_servers.toolscout]\ncommand = \"old\"\nargs = [\"mcp\"]\n# the last\n";
    let after = plan(Client::Codex, &path, outdated).unwrap().after;
    assert_eq!(
        after,
        "[mcp_servers.toolscout]\ncommand = \"/bin/toolscout\"\nargs = [\"mcp\"]\n# the last\n"
    );
    assert!(
        plan(Client::Codex, &path, "mcp_servers = 3")
            .unwrap_err()
            .contains("not a table")
    );
}

#[test]
fn unreadable_settings_are_unchanged_and_the_entry_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    for (before, expected) in [
        ("{ a: 1 }", "not valid JSON ("),
        ("[1]", "not a JSON object"),
        (r#"{"mcpServers": 3}"#, "\"mcpServers\" is not an object"),
    ] {
        let message = plan(Client::Cursor, &path, before).unwrap_err();
        assert!(
            message.contains(expected) && message.contains("/bin/toolscout"),
            "{message}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }
    let url = Endpoint::Http {
        url: "http://127.0.0.1:7700/mcp".into(),
    };
    assert!(
        Plan::new(Client::ClaudeDesktop, &path, &url)
            .unwrap_err()
            .to_string()
            .contains("leave out --url")
    );
    assert!(
        "vim"
            .parse::<Client>()
            .unwrap_err()
            .contains("known clients are claude-desktop")
    );
}
