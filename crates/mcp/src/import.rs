//! Reads the MCP servers that other clients have in their settings, as entries of a file of servers.

mod placing;
mod secrets;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use jsonc_parser::cst::CstRootNode;
use serde_json::{Map, Value, json};

use crate::config::{check_entry, jsonc};
use crate::install::ENTRY_NAME;

pub use placing::{Change, Placing};
pub use secrets::{Variables, references, without_secrets};

/// Where settings list their servers, in the order of clients that have several of these.
const PLACES: [&[&str]; 8] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["context_servers"],
    &["mcp_servers"],
    &["extensions"],
    // Continue's old settings, and opencode's.
    &["experimental", "modelContextProtocolServers"],
    &["mcp"],
];
/// Keys that clients have for themselves, and that say nothing of how a server is reached or used.
const OF_CLIENTS: [&str; 12] = [
    "type",
    "transport",
    "enabled",
    "disabled",
    "name",
    "display_name",
    "description",
    "bundled",
    "source",
    "settings",
    "gallery",
    "version",
];
/// Why an entry of this program is left out.
pub const IS_OWN: &str = "it is toolscout itself";

/// The servers of a client's settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientServers {
    /// Those that can be taken, in the order of the settings.
    pub servers: Vec<ImportedServer>,
    /// The others, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A server of a client's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedServer {
    /// Its name there.
    pub name: String,
    /// Its entry in a file of servers.
    pub entry: Value,
    /// Keys of the client's entry that are not taken.
    pub unknown_keys: Vec<String>,
}

impl ImportedServer {
    /// Its command or its URL, for people. It has the secrets that the entry has.
    pub fn target(&self) -> String {
        if let Some(url) = self.entry["url"].as_str() {
            return url.to_owned();
        }
        let args = self.entry["args"].as_array().into_iter().flatten();
        let words = std::iter::once(&self.entry["command"]).chain(args);
        let words: Vec<&str> = words.filter_map(Value::as_str).collect();
        words.join(" ")
    }
}

/// Reads a client's settings: JSON with comments, TOML or YAML, by the end of the file's name.
///
/// # Errors
/// Where the text is not what the name says, or lists no servers.
pub fn read(path: &Path, text: &str) -> Result<ClientServers, String> {
    // Editors of Windows begin files with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let settings: Value = match path.extension().and_then(OsStr::to_str) {
        Some("toml") => toml::from_str(text)
            .map_err(|error| format!("it is not valid TOML ({})", error.message()))?,
        Some("yaml" | "yml") => serde_yaml_ng::from_str(text)
            .map_err(|error| format!("it is not valid YAML ({error})"))?,
        _ => CstRootNode::parse(text, &jsonc())
            .map_err(|error| format!("it is not valid JSON ({error})"))?
            .to_serde_value()
            .unwrap_or_default(),
    };
    let listed = PLACES.iter().find_map(|place| listed_at(&settings, place));
    let listed = listed.as_ref();
    let Some(listed) = listed else {
        // Clients write their settings before they have a server.
        return match settings {
            Value::Object(_) | Value::Null => Ok(ClientServers::default()),
            _ => Err("it is not an object".into()),
        };
    };
    let mut read = ClientServers::default();
    // Gemini CLI switches servers off beside their list.
    let excluded = settings.pointer("/mcp/excluded").cloned();
    let excluded = texts(excluded);
    for (name, entry) in listed {
        match server(name, entry) {
            Ok(mut server) => {
                if excluded.contains(name) {
                    server.entry["disabled"] = true.into();
                }
                read.servers.push(server);
            }
            Err(reason) => read.left_out.push((name.clone(), reason)),
        }
    }
    read.left_out.extend(of_projects(&settings));
    Ok(read)
}

fn listed_at(settings: &Value, place: &[&str]) -> Option<Map<String, Value>> {
    let mut value = settings;
    for key in place {
        value = value.get(key)?;
    }
    match value {
        Value::Object(listed) if place == ["mcp"] => {
            // Gemini CLI and VS Code have other things under this key.
            let is_server = |entry: &Value| matches!(kind_of(entry), "local" | "remote");
            listed.values().any(is_server).then(|| listed.clone())
        }
        Value::Object(listed) => Some(listed.clone()),
        Value::Array(listed) => Some(by_name(listed)),
        _ => None,
    }
}

fn kind_of(entry: &Value) -> &str {
    let kind = entry.get("type").and_then(Value::as_str);
    kind.unwrap_or_default()
}

/// The list of servers that Continue has, by their names.
fn by_name(listed: &[Value]) -> Map<String, Value> {
    let mut servers = Map::new();
    for (number, entry) in listed.iter().enumerate() {
        let mut entry = entry.clone();
        // Its old settings have what reaches the server in an object.
        if let Some(Value::Object(transport)) = entry.get("transport").cloned()
            && let Some(fields) = entry.as_object_mut()
        {
            fields.remove("transport");
            fields.extend(transport);
        }
        let name = entry.get("name").and_then(Value::as_str);
        let name = name.map_or_else(|| format!("server-{}", number + 1), str::to_owned);
        servers.insert(name, entry);
    }
    servers
}

/// The servers that Claude Code has for single projects.
fn of_projects(settings: &Value) -> Vec<(String, String)> {
    let mut left_out = Vec::new();
    let projects = settings.get("projects").and_then(Value::as_object);
    for (folder, project) in projects.into_iter().flatten() {
        let listed = project.get("mcpServers").and_then(Value::as_object);
        for name in listed.into_iter().flat_map(Map::keys) {
            let reason = format!("it is for the project {folder} alone; add it by `mcp add`");
            left_out.push((name.clone(), reason));
        }
    }
    left_out
}

/// The entry of one server. Each client has names of its own for the same things.
fn server(name: &str, given: &Value) -> Result<ImportedServer, String> {
    let given = given.as_object().ok_or("its entry is not an object")?;
    let mut given = given.clone();
    for value in given.values_mut() {
        spell_out(value);
    }
    // Zed has had the command in an object.
    if let Some(Value::Object(command)) = given.get("command").cloned() {
        given.remove("command");
        for (key, value) in command {
            let key = if key == "path" { "command".into() } else { key };
            given.insert(key, value);
        }
    }
    // opencode has the command and its arguments in one list.
    if let Some(Value::Array(words)) = given.get("command").cloned() {
        let mut words = words.into_iter();
        given.insert("command".into(), words.next().unwrap_or_default());
        given.insert("args".into(), words.collect());
    }
    let kind = given.get("type").or(given.get("transport"));
    let kind = kind.and_then(Value::as_str).unwrap_or_default().to_owned();
    let command = take(&mut given, &["command", "cmd"]);
    let http_url = take(&mut given, &["httpUrl"]);
    let has_http_url = http_url.is_some();
    let url = http_url.or(take(&mut given, &["serverUrl", "uri", "url"]));
    let mut entry = Map::new();
    match (command, url) {
        (Some(command), None) => {
            let args = take(&mut given, &["args"]);
            if is_own(name, &command, args.as_ref(), &mut entry) {
                return Err(IS_OWN.into());
            }
            take_environment(&mut given, &mut entry);
        }
        (None, Some(url)) => {
            if let Some(kind) = http_type(&kind, has_http_url) {
                entry.insert("type".into(), kind);
            }
            entry.insert("url".into(), url);
            take_headers(&mut given, &mut entry);
        }
        (Some(_), Some(_)) => return Err("it has both a command and a URL".into()),
        (None, None) if kind.is_empty() => return Err("it has neither a command nor a URL".into()),
        (None, None) => {
            return Err(format!(
                "it is of the type {kind:?}, which only that client has"
            ));
        }
    }
    let is_off = given.get("disabled") == Some(&Value::Bool(true))
        || given.get("enabled") == Some(&Value::Bool(false));
    if is_off {
        entry.insert("disabled".into(), true.into());
    }
    if let Some(seconds) = given.remove("tool_timeout_sec") {
        entry.insert("call_timeout_s".into(), seconds);
    }
    let entry = Value::Object(entry);
    if let Some(name) = of_client_alone(&entry) {
        return Err(format!(
            "it refers to ${{{name}}}, which only that client knows"
        ));
    }
    check_entry(name, &entry)?;
    // What is left of the client's entry was not taken.
    let unknown_keys = given
        .keys()
        .filter(|key| !OF_CLIENTS.contains(&key.as_str()));
    Ok(ImportedServer {
        name: name.to_owned(),
        unknown_keys: unknown_keys.cloned().collect(),
        entry,
    })
}

fn take(given: &mut Map<String, Value>, keys: &[&str]) -> Option<Value> {
    keys.iter().find_map(|key| given.remove(*key))
}

/// The variables and the folder that a program is started with.
fn take_environment(given: &mut Map<String, Value>, entry: &mut Map<String, Value>) {
    let mut env = object(take(given, &["env", "envs", "environment"]));
    // Codex and Goose name variables that the server gets from the environment.
    for variable in texts(take(given, &["env_keys", "env_vars"])) {
        let reference = format!("${{{variable}}}");
        env.entry(variable).or_insert(reference.into());
    }
    if !env.is_empty() {
        entry.insert("env".into(), env.into());
    }
    if let Some(folder) = take(given, &["cwd"]) {
        entry.insert("cwd".into(), folder);
    }
}

/// What a server over HTTP is sent with each request, and how one logs in there.
fn take_headers(given: &mut Map<String, Value>, entry: &mut Map<String, Value>) {
    let mut headers = object(take(given, &["headers", "http_headers"]));
    // Continue's place for them.
    let of_requests = object(take(given, &["requestOptions"]));
    headers.extend(object(of_requests.get("headers").cloned()));
    for (header, variable) in object(take(given, &["env_http_headers"])) {
        let variable = variable.as_str().unwrap_or_default();
        headers.insert(header, format!("${{{variable}}}").into());
    }
    let bearer = take(given, &["bearer_token_env_var", "bearerTokenEnvVar"]);
    if let Some(variable) = bearer.as_ref().and_then(Value::as_str) {
        let token = format!("Bearer ${{{variable}}}");
        headers.insert("Authorization".into(), token.into());
    }
    if !headers.is_empty() {
        entry.insert("headers".into(), headers.into());
    }
    if let Some(login) = take(given, &["oauth"]) {
        entry.insert("oauth".into(), login);
    }
}

/// What an entry refers to that is no environment variable, as `workspaceFolder` of editors.
fn of_client_alone(entry: &Value) -> Option<String> {
    let mut names = BTreeSet::new();
    references(&entry.to_string(), &mut names);
    for name in names {
        // What the client asks for becomes a variable.
        let is_asked_for = name.starts_with("input:");
        let is_folder = name.starts_with("workspaceFolder") || name == "userHome";
        if is_folder || name.contains(':') && !is_asked_for {
            return Some(name);
        }
    }
    None
}

/// Writes references to variables as files of servers have them: Gemini CLI also reads `$NAME`.
fn spell_out(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix('$')
                && !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            {
                *text = format!("${{{name}}}");
            }
            *text = with_references(text);
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out),
        Value::Object(fields) => fields.values_mut().for_each(spell_out),
        _ => {}
    }
}

/// A text in which opencode's `{env:NAME}` and Continue's `${{ secrets.NAME }}` are `${NAME}`.
fn with_references(text: &str) -> String {
    let mut written = text.to_owned();
    for (begins, ends) in [("${{", "}}"), ("{env:", "}")] {
        let mut rest = std::mem::take(&mut written);
        while let Some((before, after)) = rest.split_once(begins) {
            // `${env:NAME}` is a reference already.
            let is_reference = begins == "{env:" && before.ends_with('$');
            let Some((name, after)) = after.split_once(ends) else {
                break;
            };
            written.push_str(before);
            let name = name.trim();
            let name = name.strip_prefix("secrets.").unwrap_or(name);
            let dollar = if is_reference { "" } else { "$" };
            written.push_str(&format!("{dollar}{{{name}}}"));
            rest = after.to_owned();
        }
        written.push_str(&rest);
    }
    written
}

/// Puts command and arguments into the entry, and says whether they start this program.
fn is_own(
    name: &str,
    command: &Value,
    args: Option<&Value>,
    entry: &mut Map<String, Value>,
) -> bool {
    entry.insert("command".into(), command.clone());
    if let Some(args) = args
        && *args != json!([])
    {
        entry.insert("args".into(), args.clone());
    }
    // By the program too: somebody may have given the entry another name.
    let program = Path::new(command.as_str().unwrap_or_default()).file_stem();
    name == ENTRY_NAME || program.and_then(OsStr::to_str) == Some(ENTRY_NAME)
}

/// The transport over HTTP; `None` if the client does not say which, and both are tried.
fn http_type(kind: &str, has_http_url: bool) -> Option<Value> {
    match kind.to_lowercase().replace(['_', '-'], "").as_str() {
        "sse" => Some(json!("sse")),
        "http" | "streamablehttp" => Some(json!("http")),
        _ if has_http_url => Some(json!("http")),
        _ => None,
    }
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn texts(value: Option<Value>) -> Vec<String> {
    let texts = value
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &str, text: &str) -> ClientServers {
        read(Path::new(file), text).unwrap()
    }

    fn entries(file: &str, text: &str) -> Value {
        let servers = of(file, text).servers.into_iter();
        servers
            .map(|server| (server.name, server.entry))
            .collect::<Map<_, _>>()
            .into()
    }

    #[test]
    fn each_client_has_its_own_way_to_say_the_same() {
        let claude = r#"{ "mcpServers": {
            "files": { "command": "npx", "args": ["-y", "server-files", "/notes"], "env": { "MODE": "ro" } },
            "toolscout": { "command": "/bin/toolscout", "args": ["mcp"] } }, "theme": "dark" }"#;
        let files = json!({ "command": "npx", "args": ["-y", "server-files", "/notes"], "env": { "MODE": "ro" } });
        assert_eq!(
            entries("claude_desktop_config.json", claude),
            json!({ "files": files })
        );

        let vscode = r#"{ // comments stay in VS Code's file
            "servers": { "web": { "type": "http", "url": "https://web.example/mcp" } }, }"#;
        let web = json!({ "type": "http", "url": "https://web.example/mcp" });
        assert_eq!(entries("mcp.json", vscode), json!({ "web": web }));
        let settings = r#"{ "mcp": { "servers": { "web": { "type": "sse", "url": "https://web.example/sse" } } } }"#;
        let old = json!({ "type": "sse", "url": "https://web.example/sse" });
        assert_eq!(entries("settings.json", settings), json!({ "web": old }));

        let windsurf = r#"{ "mcpServers": { "web": { "serverUrl": "https://web.example/mcp", "disabled": true } } }"#;
        let off = json!({ "url": "https://web.example/mcp", "disabled": true });
        assert_eq!(entries("mcp_config.json", windsurf), json!({ "web": off }));

        let gemini = r#"{ "mcpServers": { "web": { "httpUrl": "https://web.example/mcp", "trust": true, "timeout": 9 } } }"#;
        assert_eq!(entries("settings.json", gemini), json!({ "web": web }));

        let zed = r#"{ "context_servers": {
            "new": { "source": "custom", "command": "run", "args": ["a"], "env": {} },
            "old": { "command": { "path": "run", "args": ["a"], "env": { "A": "1" } }, "settings": {} } } }"#;
        let (new, old) = (
            json!({ "command": "run", "args": ["a"] }),
            json!({ "command": "run", "args": ["a"], "env": { "A": "1" } }),
        );
        assert_eq!(
            entries("settings.json", zed),
            json!({ "new": new, "old": old })
        );

        let codex = "model = \"m\"\n[mcp_servers.docs]\ncommand = \"run\"\nenv_vars = [\"DOCS_KEY\"]\nenabled = false\n\
                     [mcp_servers.web]\nurl = \"https://web.example/mcp\"\nbearer_token_env_var = \"WEB_KEY\"\n\
                     env_http_headers = { X-Team = \"TEAM\" }\n";
        let docs =
            json!({ "command": "run", "env": { "DOCS_KEY": "${DOCS_KEY}" }, "disabled": true });
        let headers = json!({ "X-Team": "${TEAM}", "Authorization": "Bearer ${WEB_KEY}" });
        let web = json!({ "url": "https://web.example/mcp", "headers": headers });
        assert_eq!(
            entries("config.toml", codex),
            json!({ "docs": docs, "web": web })
        );

        let goose = "extensions:\n  developer:\n    type: builtin\n    enabled: true\n  \
                     git:\n    type: stdio\n    cmd: uvx\n    args: [mcp-server-git]\n    envs: { MODE: ro }\n    env_keys: [GIT_KEY]\n  \
                     web:\n    type: streamable_http\n    uri: https://web.example/mcp\n";
        let git = json!({ "command": "uvx", "args": ["mcp-server-git"], "env": { "MODE": "ro", "GIT_KEY": "${GIT_KEY}" } });
        let web = json!({ "type": "http", "url": "https://web.example/mcp" });
        assert_eq!(
            entries("config.yaml", goose),
            json!({ "git": git, "web": web })
        );
        let left_out = of("config.yaml", goose).left_out;
        assert_eq!(left_out[0].0, "developer");
        assert!(left_out[0].1.contains("\"builtin\""), "{left_out:?}");
    }

    #[test]
    fn the_settings_of_opencode_and_continue_are_read() {
        let opencode = r#"{ "$schema": "x", "mcp": {
            "git": { "type": "local", "command": ["uvx", "mcp-server-git"], "environment": { "GIT_KEY": "{env:GIT_KEY}" } },
            "web": { "type": "remote", "url": "https://web.example/mcp", "enabled": false,
                "headers": { "Authorization": "Bearer {env:WEB_KEY}", "X-A": "${env:A}" } } } }"#;
        let git = json!({ "command": "uvx", "args": ["mcp-server-git"], "env": { "GIT_KEY": "${GIT_KEY}" } });
        let headers = json!({ "Authorization": "Bearer ${WEB_KEY}", "X-A": "${A}" });
        let web = json!({ "url": "https://web.example/mcp", "headers": headers, "disabled": true });
        assert_eq!(
            entries("opencode.json", opencode),
            json!({ "git": git, "web": web })
        );
        let other = r#"{ "mcp": { "excluded": ["a"], "inputs": [] } }"#;
        assert_eq!(entries("settings.json", other), json!({}));

        let continued = "mcpServers:\n  - name: git\n    command: uvx\n    args: [mcp-server-git]\n    env:\n      \
                         GIT_KEY: ${{ secrets.GIT_KEY }}\n  - name: web\n    type: sse\n    url: https://web.example/sse\n    \
                         requestOptions:\n      headers:\n        X-Team: tools\n";
        let web = json!({ "type": "sse", "url": "https://web.example/sse", "headers": { "X-Team": "tools" } });
        assert_eq!(
            entries("config.yaml", continued),
            json!({ "git": git, "web": web })
        );
        let old = r#"{ "experimental": { "modelContextProtocolServers": [
            { "transport": { "type": "stdio", "command": "uvx", "args": ["mcp-server-git"] } } ] } }"#;
        let git = json!({ "command": "uvx", "args": ["mcp-server-git"] });
        assert_eq!(entries("config.json", old), json!({ "server-1": git }));
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let text = r#"{ "mcpServers": { "a": 7, "b": {}, "c": { "command": "x", "url": "https://c.example" },
            "d": { "command": "x", "restartOnExit": true } } }"#;
        let read = of("mcp.json", text);
        let reasons: Vec<&str> = read
            .left_out
            .iter()
            .map(|(_, reason)| reason.as_str())
            .collect();
        assert_eq!(
            reasons,
            [
                "its entry is not an object",
                "it has neither a command nor a URL",
                "it has both a command and a URL"
            ]
        );
        assert_eq!(read.servers[0].unknown_keys, ["restartOnExit"]);
        assert_eq!(
            of("settings.json", r#"{ "theme": "dark" }"#),
            ClientServers::default()
        );
        assert!(read_error("a.json", "{ a: 1 }").contains("not valid JSON"));
        assert!(read_error("a.toml", "a = ").contains("not valid TOML"));
        assert!(read_error("a.yaml", "a: [").contains("not valid YAML"));
        assert!(read_error("a.json", "[1]").contains("not an object"));
    }

    fn read_error(file: &str, text: &str) -> String {
        read(Path::new(file), text).unwrap_err()
    }

    fn without_their_secrets(servers: &mut [ImportedServer]) -> Variables {
        let mut variables = Variables::beside(servers.iter().map(|server| &server.entry), false);
        for server in servers {
            place(server, &mut Map::new(), &mut variables);
        }
        variables
    }

    fn place(
        server: &mut ImportedServer,
        listed: &mut Map<String, Value>,
        variables: &mut Variables,
    ) -> (String, Change) {
        let mut placing = Placing {
            listed,
            variables,
            updates: false,
            given: BTreeSet::new(),
        };
        placing.place(server, "other")
    }

    #[test]
    fn two_secrets_never_share_a_variable() {
        let server = |name: &str, env: Value| ImportedServer {
            name: name.into(),
            entry: json!({ "command": "x", "env": env }),
            unknown_keys: Vec::new(),
        };
        let mut listed = Map::new();
        // Three runs, as of three files of settings.
        let mut run = |mut server: ImportedServer| {
            let mut variables = Variables::beside(listed.values(), false);
            let placed = place(&mut server, &mut listed, &mut variables);
            (
                placed,
                server.entry["env"].clone(),
                variables.values().clone(),
            )
        };
        let (_, first, _) = run(server(
            "a",
            json!({ "API_KEY": "k-1", "OWN_KEY": "${SHARED_KEY}" }),
        ));
        assert_eq!(
            first,
            json!({ "API_KEY": "${API_KEY}", "OWN_KEY": "${SHARED_KEY}" })
        );
        let (_, second, _) = run(server(
            "b",
            json!({ "API_KEY": "k-2", "SHARED_KEY": "k-3" }),
        ));
        assert_eq!(
            second,
            json!({ "API_KEY": "${B_API_KEY}", "SHARED_KEY": "${B_SHARED_KEY}" })
        );
        // The same server again, also with another value.
        let (placed, again, values) = run(server(
            "b",
            json!({ "API_KEY": "k-4", "SHARED_KEY": "k-3" }),
        ));
        assert_eq!((placed, again), (("b".into(), Change::Same), second));
        assert_eq!(values["B_API_KEY"], "k-4");
        let (placed, _, _) = run(server("b", json!({ "API_KEY": "k-2" })));
        assert_eq!(placed, ("b-other".into(), Change::Added));
    }

    #[test]
    fn what_only_its_client_can_use_is_left_out_or_named() {
        let text = r#"{ "mcpServers": { "a": { "command": "x", "cwd": "${workspaceFolder}" }, "b": { "url": "wss://b.example" },
            "c": { "command": "x", "env": { "KEY": "$MY_KEY" }, "alwaysAllow": ["t"], "tool_timeout_sec": 9 } },
            "mcp": { "excluded": ["c"] }, "projects": { "/p": { "mcpServers": { "d": { "command": "x" } } } } }"#;
        let read = of("settings.json", &format!("\u{feff}{text}"));
        let expected = json!({ "command": "x", "env": { "KEY": "${MY_KEY}" }, "call_timeout_s": 9, "disabled": true });
        assert_eq!(read.servers[0].entry, expected);
        assert_eq!(read.servers[0].unknown_keys, ["alwaysAllow"]);
        let names: Vec<&str> = read
            .left_out
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["a", "b", "d"]);
        assert!(
            read.left_out[0].1.contains("${workspaceFolder}"),
            "{:?}",
            read.left_out
        );
        assert!(
            read.left_out[2].1.contains("project /p"),
            "{:?}",
            read.left_out
        );
    }

    #[test]
    fn secrets_are_found_where_people_put_them() {
        let references = |entry: Value| {
            let server = ImportedServer {
                name: "s".into(),
                entry,
                unknown_keys: Vec::new(),
            };
            let mut servers = [server];
            without_their_secrets(&mut servers);
            servers[0].entry.clone()
        };
        let given = json!({
            "args": ["run", "-e", "GITHUB_PAT=p-1", "-e", "MODE=ro", "--header", "Authorization: Bearer b-1", "--header",
                     "X-Team: t", "https://s.example/mcp?key=u-1", "--key-file", "/k", 7, "-c", "API_KEY=x exec node"],
            "env": { "DATABASE": "postgres://me:pw-1@db/shop", "PLAIN": "postgres://db/shop", "NOTES_KEY": "n 1",
                     "MAX_TOKENS": "4096", "OTHER": "ghp_0123456789abcdef", "CONFIG": "{\"apiKey\": \"j-1\"}" },
            "headers": { "X-Auth": "h-1" }, "oauth": { "clientId": "c", "clientSecret": "o-1" },
            "url": "https://me:w-1@s.example/mcp",
        });
        let expected = json!({
            "args": ["run", "-e", "GITHUB_PAT=${GITHUB_PAT}", "-e", "MODE=ro", "--header", "Authorization: Bearer ${S_AUTHORIZATION}",
                     "--header", "X-Team: t", "https://s.example/mcp?key=${S_KEY}", "--key-file", "/k", 7, "-c", "API_KEY=x exec node"],
            "env": { "DATABASE": "${DATABASE}", "PLAIN": "postgres://db/shop", "NOTES_KEY": "${NOTES_KEY}",
                     "MAX_TOKENS": "4096", "OTHER": "${S_OTHER}", "CONFIG": "${CONFIG}" },
            "headers": { "X-Auth": "${S_X_AUTH}" }, "oauth": { "clientId": "c", "clientSecret": "${CLIENTSECRET}" },
            "url": "https://me:${PASSWORD}@s.example/mcp",
        });
        assert_eq!(references(given), expected);
    }

    #[test]
    fn secrets_become_references() {
        let text = r#"{ "mcpServers": {
            "github": { "command": "npx", "args": ["-y", "gh", "--api-key", "k-1", "--token=t-1", "--verbose"],
                        "env": { "GITHUB_TOKEN": "g-1", "MODE": "ro", "OTHER_KEY": "${OTHER}" } },
            "gitlab": { "command": "npx", "env": { "GITHUB_TOKEN": "g-2", "PAT_SECRET": "${input:pat-code}" } },
            "web": { "url": "https://web.example/mcp?api_key=u-1&page=2", "headers": { "Authorization": "Bearer b-1", "X-Api-Key": "x-1" } } } }"#;
        let mut servers = of("mcp.json", text).servers;
        let variables = without_their_secrets(&mut servers);
        let variables = variables.values();
        let github = &servers[0].entry;
        assert_eq!(
            github["args"],
            json!([
                "-y",
                "gh",
                "--api-key",
                "${GITHUB_API_KEY}",
                "--token=${GITHUB_TOKEN_2}",
                "--verbose"
            ])
        );
        assert_eq!(
            github["env"],
            json!({ "GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "ro", "OTHER_KEY": "${OTHER}" })
        );
        let of_other =
            json!({ "GITHUB_TOKEN": "${GITLAB_GITHUB_TOKEN}", "PAT_SECRET": "${PAT_CODE}" });
        assert_eq!(servers[1].entry["env"], of_other);
        let web = &servers[2].entry;
        assert_eq!(
            web["url"],
            "https://web.example/mcp?api_key=${API_KEY}&page=2"
        );
        let headers =
            json!({ "Authorization": "Bearer ${WEB_AUTHORIZATION}", "X-Api-Key": "${X_API_KEY}" });
        assert_eq!(web["headers"], headers);
        assert_eq!(variables["GITHUB_TOKEN"], "g-1");
        assert_eq!(variables["GITLAB_GITHUB_TOKEN"], "g-2");
        assert_eq!(variables["WEB_AUTHORIZATION"], "b-1");
        assert_eq!(variables["PAT_CODE"], "${input:pat-code}");
        assert_eq!(variables.len(), 8, "{variables:?}");
        let entry = &of("mcp.json", text).servers[0].entry;
        let masked = without_secrets(entry);
        let env = json!({ "GITHUB_TOKEN": "[redacted]", "MODE": "ro", "OTHER_KEY": "${OTHER}" });
        assert_eq!(masked["env"], env);
        assert_eq!(masked["args"][4], "--token=[redacted]");
        let shown = servers
            .iter()
            .map(|server| server.entry.to_string() + &server.target());
        let shown: String = shown.collect();
        for secret in ["k-1", "t-1", "g-1", "g-2", "u-1", "b-1", "x-1"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
}
