use std::time::Duration;

use super::*;

fn environment(name: &str) -> Option<OsString> {
    match name {
        "KEY" => Some("s3cret".into()),
        "EMPTY" => Some("".into()),
        _ => None,
    }
}

fn read(json: &str) -> Result<Vec<ServerConfig>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp.json");
    std::fs::write(&path, json).unwrap();
    load(&path, &environment).map_err(|error| error.to_string())
}

fn reason(server: &ServerConfig) -> &str {
    match &server.transport {
        Transport::Incomplete { reason } => reason,
        transport => panic!("{transport:?}"),
    }
}

#[test]
fn a_sandbox_is_read_and_a_wrong_one_is_named() {
    let servers = read(
        r#"{"mcpServers": {
                "none": {"command": "a"},
                "off": {"command": "a", "sandbox": false},
                "on": {"command": "a", "sandbox": true},
                "more": {"command": "a", "sandbox": {"network": true, "files": {"read": ["/opt/${KEY}"]}}},
                "typo": {"command": "a", "sandbox": {"netwrok": true}},
                "text": {"command": "a", "sandbox": "on"},
                "list": {"command": "a", "sandbox": {"files": ["/opt"]}},
                "unset": {"command": "a", "sandbox": {"files": {"write": ["${MISSING}"]}}},
                "web": {"url": "https://a.test", "sandbox": true}
            }}"#,
    )
    .unwrap();
    let sandbox = |name: &str| {
        let server = servers.iter().find(|server| server.name == name).unwrap();
        match &server.transport {
            Transport::Stdio { sandbox, .. } => Ok(sandbox.clone()),
            _ => Err(reason(server).to_owned()),
        }
    };
    assert_eq!(sandbox("none"), Ok(None));
    assert_eq!(sandbox("off"), Ok(None));
    assert_eq!(sandbox("on"), Ok(Some(SandboxSettings::default())));
    let more = sandbox("more").unwrap().unwrap();
    assert!(more.network && more.files.read == [Path::new("/opt/s3cret")]);
    for (name, expected) in [
        ("typo", "netwrok"),
        ("text", "true, false, or a table"),
        ("list", "invalid"),
        ("unset", "MISSING"),
        ("web", "only a `command`"),
    ] {
        let reason = sandbox(name).unwrap_err();
        assert!(reason.contains(expected), "{name}: {reason}");
    }
}

#[test]
fn a_name_that_no_tool_can_have_is_replaced() {
    let long = "长".repeat(60);
    let file = format!(
        r#"{{"mcpServers": {{
                "github.com/acme/tool": {{"command": "a"}},
                "github.com-acme-tool": {{"command": "b"}},
                "github.com/acme tool": {{"command": "c"}},
                "a\nb": {{"command": "d"}},
                "//": {{"command": "e"}},
                "": {{"command": "f"}},
                "x\u202ey": {{"command": "g"}},
                "{long}": {{"command": "h"}},
                "with space": {{"command": "i"}}
            }}}}"#
    );
    let servers = read(&file).unwrap();
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "github.com-acme-tool-2",
            "github.com-acme-tool",
            "github.com-acme tool",
            "a-b",
            "server",
            "server-2",
            "x-y",
            &"长".repeat(40),
            "with space",
        ]
    );
    assert!(servers[0].is_called("github.com/acme/tool"));
    assert!(!servers[1].is_called("github.com/acme/tool"));
    for server in servers {
        let keeps_name = !["with space", "github.com-acme-tool"].contains(&server.name.as_str());
        assert_eq!(server.given_name.is_some(), keeps_name, "{}", server.name);
        assert_eq!(check_name(&server.name), Ok(()));
    }
}

#[test]
fn the_time_of_calls_is_a_key_of_the_entry_and_wins_over_that_of_all() {
    let servers = read(
        r#"{"mcpServers": {
                "slow": {"command": "x", "call_timeout_s": 900},
                "long": {"command": "x", "call_timeout_total": 3600},
                "usual": {"command": "x"}
            }}"#,
    )
    .unwrap();
    let mut of_all = Limits::default();
    of_all.call.idle = Duration::from_secs(20);
    let seconds = |name: &str| {
        let server = servers.iter().find(|server| server.name == name).unwrap();
        let call = server.limits(of_all).call;
        (
            call.idle.as_secs(),
            call.unreported.as_secs(),
            call.total.as_secs(),
        )
    };
    assert_eq!(seconds("slow"), (900, 900, 900));
    assert_eq!(seconds("long"), (20, 300, 3600));
    assert_eq!(seconds("usual"), (20, 300, 600));
    let servers = read(r#"{"mcpServers": {"s": {"command": "x", "call_timeout_s": 0}}}"#);
    let message = reason(&servers.unwrap()[0]).to_owned();
    assert!(message.contains("give from 1 to 86400"), "{message}");
}

#[test]
fn the_desktop_format_is_read_with_variables_filled_in() {
    let servers = read(
        r#"{"mcpServers": {
                "files": {"command": "npx", "args": ["-y", "pkg@1", "${EMPTY:-/tmp}"], "env": {"K": "x${KEY}y"}, "icon": "?"},
                "web": {"type": "http", "url": "https://mcp.example.com/mcp?k=${env:KEY}", "headers": {"Authorization": "Bearer ${KEY}"}},
                "off": {"command": "${MISSING}", "disabled": true}
            }}"#,
    )
    .unwrap();
    assert_eq!(
        servers
            .iter()
            .map(|server| server.name.as_str())
            .collect::<Vec<_>>(),
        ["files", "web"]
    );
    let Transport::Stdio {
        command, args, env, ..
    } = &servers[0].transport
    else {
        panic!("{servers:?}")
    };
    assert_eq!(
        (command.as_str(), args[2].as_str(), env["K"].as_str()),
        ("npx", "/tmp", "xs3crety")
    );
    let Transport::Http { url, headers, .. } = &servers[1].transport else {
        panic!("{servers:?}")
    };
    assert_eq!(url.as_str(), "https://mcp.example.com/mcp?k=s3cret");
    assert_eq!(headers[0].1.to_str().unwrap(), "Bearer s3cret");
    assert!(!format!("{servers:?}").contains("s3cret"), "{servers:?}");
}

#[test]
fn the_type_of_a_url_and_its_login_are_read() {
    let servers = read(
        r#"{"mcpServers": {
                "old": {"type": "sse", "url": "http://a/sse"},
                "new": {"type": "http", "url": "http://a/mcp", "oauth": {
                    "clientId": "me", "client_secret": "${KEY}", "scopes": "read write", "callbackPort": 7}},
                "any": {"url": "http://a/mcp", "oauth": {"scopes": ["read"]}}
            }}"#,
    )
    .unwrap();
    let transports: BTreeMap<&str, (HttpProtocol, &OAuthSettings)> = servers
        .iter()
        .map(|server| match &server.transport {
            Transport::Http {
                protocol, oauth, ..
            } => (server.name.as_str(), (*protocol, oauth)),
            stdio => panic!("{stdio:?}"),
        })
        .collect();
    assert_eq!(transports["old"].0, HttpProtocol::Sse);
    assert_eq!(transports["any"].0, HttpProtocol::Either);
    assert_eq!(transports["any"].1.scopes, ["read"]);
    let (protocol, oauth) = transports["new"];
    assert_eq!(protocol, HttpProtocol::Streamable);
    assert_eq!(oauth.client_id.as_deref(), Some("me"));
    assert_eq!(oauth.client_secret.as_deref(), Some("s3cret"));
    assert_eq!(oauth.scopes, ["read", "write"]);
    assert_eq!(oauth.callback_port, Some(7));
    assert!(!format!("{servers:?}").contains("s3cret"), "{servers:?}");
}

#[test]
fn a_server_without_its_variable_leaves_the_others() {
    let servers = read(
        r#"{"mcpServers": {
                "shop": {"command": "a", "args": ["${MISSING}"]},
                "bank": {"url": "http://a", "bearerTokenEnvVar": "MISSING"},
                "calendar": {"url": "http://a", "oauth": {"authServerMetadataUrl": "http://b"}}
            }}"#,
    );
    let servers = servers.unwrap();
    for server in &servers[..2] {
        let reason = reason(server);
        assert!(reason.contains("MISSING is not set"), "{reason}");
    }
    assert!(matches!(servers[2].transport, Transport::Http { .. }));
}

#[test]
fn a_file_with_comments_and_trailing_commas_is_read() {
    let servers = read(
        "// mine\n{\n  \"servers\": {\n    /* local */ \"fs\": { \"command\": \"x\", }, // keep\n  },\n}\n",
    )
    .unwrap();
    assert_eq!(servers[0].name, "fs");
    let loose = read("{ servers: {} }").unwrap_err();
    assert!(loose.contains("line 1"), "{loose}");
}

#[test]
fn invalid_entries_are_named() {
    for (entry, expected) in [
        (r#"{}"#, "neither a `command` nor a `url`"),
        (
            r#"{"command": "a", "url": "http://b"}"#,
            "both a `command` and a `url`",
        ),
        (r#"{"command": " "}"#, "`command` is empty"),
        (r#"{"command": 3}"#, "`command`: invalid type: integer"),
        (
            r#"{"command": "a", "protocol": "2025-06-18"}"#,
            "`protocol` is \"2025-06-18\"; write \"2026-07-28\"",
        ),
        (
            r#"{"command": "a", "idle_stop_s": "soon"}"#,
            "`idle_stop_s`: invalid type: string",
        ),
        (r#"{"command": "a", "env": {"A": []}}"#, "`env.A`: "),
        (r#"{"command": "${OPEN"}"#, "without `}`"),
        (r#"{"url": "ftp://a/b"}"#, "must be http or https"),
        (r#"{"url": "nope"}"#, "its `url` is invalid"),
        (
            r#"{"url": "http://a", "oauth": {"scopes": 3}}"#,
            "did not match any variant",
        ),
        (
            r#"{"url": "http://a", "oauth": {"client_secret": "s"}}"#,
            "no `client_id`",
        ),
        (
            r#"{"url": "http://a", "oauth": {"scops": ["s"]}}"#,
            "did you mean \"scopes\"",
        ),
        (
            r#"{"type": "ssse", "url": "http://a"}"#,
            "\"http\", \"sse\"",
        ),
        (
            r#"{"url": "http://a", "headers": {"a b": "c"}}"#,
            "invalid name",
        ),
    ] {
        let file = format!(r#"{{"mcpServers": {{"s": {entry}, "good": {{"command": "x"}}}}}}"#);
        let servers = read(&file).unwrap();
        let message = reason(&servers[0]);
        assert!(message.contains(expected), "{message}");
        assert!(matches!(servers[1].transport, Transport::Stdio { .. }));
    }
    assert!(read("{").unwrap_err().contains("line 1"));
    assert!(
        read(r#"{"tools": []}"#)
            .unwrap_err()
            .contains("no `mcpServers` object")
    );
    assert!(
        load(Path::new("/nowhere.json"), &environment)
            .unwrap_err()
            .to_string()
            .contains("/nowhere.json")
    );
}

#[test]
fn flags_name_servers_and_headers() {
    let stdio = parse_server(r#"fs=node 'a b.js' --root "x \"y\"" ''"#, &environment).unwrap();
    let Transport::Stdio { command, args, .. } = &stdio.transport else {
        panic!("{stdio:?}")
    };
    assert_eq!(
        (command.as_str(), args.join("|").as_str()),
        ("node", r#"a b.js|--root|x "y"|"#)
    );
    let mut servers = vec![
        stdio,
        parse_server("web=http://127.0.0.1:1/mcp", &environment).unwrap(),
    ];
    add_header(&mut servers, "web:X-Key=${KEY}", &environment).unwrap();
    let Transport::Http { headers, .. } = &servers[1].transport else {
        panic!("{servers:?}")
    };
    assert_eq!(
        (headers[0].0.as_str(), headers[0].1.to_str().unwrap()),
        ("x-key", "s3cret")
    );
    for (text, expected) in [
        ("no:A=b", "no server \"no\""),
        ("fs:A=b", "only HTTP"),
        ("web:A", "SERVER:HEADER=VALUE"),
    ] {
        assert!(
            add_header(&mut servers, text, &environment)
                .unwrap_err()
                .contains(expected)
        );
    }
    for (text, expected) in [
        ("a/b=x", "contains '/'"),
        ("just-a-name", "NAME=URL"),
        ("a=", "neither"),
        ("a='x", "not closed"),
    ] {
        assert!(
            parse_server(text, &environment)
                .unwrap_err()
                .contains(expected),
            "{text}"
        );
    }
}
