//! Reads the MCP servers that other clients have in their settings, as entries of a file of servers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jsonc_parser::cst::CstRootNode;
use serde_json::{Map, Value, json};

use crate::config::{is_url, jsonc};
use crate::install::ENTRY_NAME;
use toolscout_gate::gate::redact::{REDACTED, names_secret};

/// Where settings list their servers, in the order of clients that have several of these.
const PLACES: [&[&str]; 6] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["context_servers"],
    &["mcp_servers"],
    &["extensions"],
];
/// Keys that clients have for themselves, and that say nothing of how a server is reached.
const OF_CLIENTS: [&str; 20] = [
    "type",
    "transport",
    "enabled",
    "disabled",
    "name",
    "display_name",
    "description",
    "timeout",
    "bundled",
    "trust",
    "source",
    "alwaysAllow",
    "autoApprove",
    "disabledTools",
    "available_tools",
    "settings",
    "startup_timeout_sec",
    "tool_timeout_sec",
    "gallery",
    "version",
];

/// Last words of names whose values are secrets, besides the names that the gate knows.
const SECRET_WORDS: [&str; 6] = ["key", "pat", "pass", "pwd", "credentials", "cookie"];
/// Flags whose value is a header.
const HEADER_FLAGS: [&str; 2] = ["--header", "-H"];

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
    /// Its command or its URL, for people. Without secrets if those were [taken out](take_secrets).
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
    let settings: Value = match path.extension().and_then(|end| end.to_str()) {
        Some("toml") => toml::from_str(text)
            .map_err(|error| format!("it is not valid TOML ({})", error.message()))?,
        Some("yaml" | "yml") => serde_yaml_ng::from_str(text)
            .map_err(|error| format!("it is not valid YAML ({error})"))?,
        _ => CstRootNode::parse(text, &jsonc())
            .map_err(|error| format!("it is not valid JSON ({error})"))?
            .to_serde_value()
            .unwrap_or_default(),
    };
    let listed = PLACES.iter().find_map(|place| {
        let at = |value, key: &&str| Value::get(value, *key);
        place.iter().try_fold(&settings, at)?.as_object()
    });
    let Some(listed) = listed else {
        // Clients write their settings before they have a server.
        return match settings {
            Value::Object(_) | Value::Null => Ok(ClientServers::default()),
            _ => Err("it is not an object".into()),
        };
    };
    let mut read = ClientServers::default();
    for (name, entry) in listed {
        match server(name, entry) {
            Ok(server) => read.servers.push(server),
            Err(reason) => read.left_out.push((name.clone(), reason)),
        }
    }
    Ok(read)
}

/// The entry of one server. Each client has names of its own for the same things.
fn server(name: &str, given: &Value) -> Result<ImportedServer, String> {
    let given = given.as_object().ok_or("its entry is not an object")?;
    let mut given = given.clone();
    // Zed has had the command in an object.
    if let Some(Value::Object(command)) = given.get("command").cloned() {
        given.remove("command");
        for (key, value) in command {
            let key = if key == "path" { "command".into() } else { key };
            given.insert(key, value);
        }
    }
    let kind = given.get("type").or(given.get("transport"));
    let kind = kind.and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut take = |keys: &[&str]| keys.iter().find_map(|key| given.remove(*key));
    let command = take(&["command", "cmd"]);
    let http_url = take(&["httpUrl"]);
    let has_http_url = http_url.is_some();
    let url = http_url.or(take(&["serverUrl", "uri", "url"]));
    let mut entry = Map::new();
    match (command, url) {
        (Some(command), None) => {
            if is_own(name, &command, take(&["args"]).as_ref(), &mut entry) {
                return Err("it is toolscout itself".into());
            }
            let mut env = object(take(&["env", "envs"]));
            for variable in texts(take(&["env_keys", "env_vars"])) {
                let reference = format!("${{{variable}}}");
                env.entry(variable).or_insert(reference.into());
            }
            if !env.is_empty() {
                entry.insert("env".into(), env.into());
            }
            entry.extend(take(&["cwd"]).map(|folder| ("cwd".to_owned(), folder)));
        }
        (None, Some(url)) => {
            entry.extend(http_type(&kind, has_http_url).map(|kind| ("type".to_owned(), kind)));
            entry.insert("url".into(), url);
            let mut headers = object(take(&["headers", "http_headers"]));
            for (header, variable) in object(take(&["env_http_headers"])) {
                let variable = variable.as_str().unwrap_or_default();
                headers.insert(header, format!("${{{variable}}}").into());
            }
            let bearer = take(&["bearer_token_env_var", "bearerTokenEnvVar"]);
            if let Some(variable) = bearer.as_ref().and_then(Value::as_str) {
                let token = format!("Bearer ${{{variable}}}");
                headers.insert("Authorization".into(), token.into());
            }
            if !headers.is_empty() {
                entry.insert("headers".into(), headers.into());
            }
            entry.extend(take(&["oauth"]).map(|login| ("oauth".to_owned(), login)));
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
    let unknown_keys = given
        .keys()
        .filter(|key| !OF_CLIENTS.contains(&key.as_str()));
    Ok(ImportedServer {
        name: name.to_owned(),
        unknown_keys: unknown_keys.cloned().collect(),
        entry: Value::Object(entry),
    })
}

/// Puts command and arguments into the entry, and says whether they start this program.
fn is_own(
    name: &str,
    command: &Value,
    args: Option<&Value>,
    entry: &mut Map<String, Value>,
) -> bool {
    entry.insert("command".into(), command.clone());
    if let Some(args) = args.filter(|args| args.as_array().is_none_or(|args| !args.is_empty())) {
        entry.insert("args".into(), args.clone());
    }
    let program = Path::new(command.as_str().unwrap_or_default()).file_stem();
    name == ENTRY_NAME || program.is_some_and(|program| program == ENTRY_NAME)
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

/// Replaces secrets in the entries by references to environment variables, and returns their values by
/// variable. Variables that the client asks for at its start (`${input:key}`) have no value.
pub fn take_secrets(servers: &mut [ImportedServer]) -> BTreeMap<String, Option<String>> {
    let mut secrets = Secrets::default();
    for server in servers {
        secrets.of_server = server.name.clone();
        if let Some(entry) = server.entry.as_object_mut() {
            secrets.take_of_entry(entry);
        }
    }
    secrets.variables
}

/// The entry for people, with a mark in place of secrets.
pub fn without_secrets(entry: &Value) -> Value {
    let mut entry = entry.clone();
    let mut secrets = Secrets {
        are_masked: true,
        ..Secrets::default()
    };
    if let Some(fields) = entry.as_object_mut() {
        secrets.take_of_entry(fields);
    }
    entry
}

/// Replaces what VS Code asks for at its start by references to environment variables.
fn without_inputs(text: &str) -> Option<(String, BTreeSet<String>)> {
    let mut rest = text;
    let (mut replaced, mut variables) = (String::new(), BTreeSet::new());
    while let Some((before, after)) = rest.split_once("${input:") {
        let (input, after) = after.split_once('}')?;
        let variable = variable_name(input);
        replaced.push_str(&format!("{before}${{{variable}}}"));
        variables.insert(variable);
        rest = after;
    }
    if variables.is_empty() {
        return None;
    }
    replaced.push_str(rest);
    Some((replaced, variables))
}

#[derive(Default)]
struct Secrets {
    of_server: String,
    /// Whether they are masked, and not replaced by references.
    are_masked: bool,
    variables: BTreeMap<String, Option<String>>,
}

impl Secrets {
    fn take_of_entry(&mut self, entry: &mut Map<String, Value>) {
        // Variables first, since their names are the ones that people know.
        for key in ["env", "headers", "args", "url"] {
            let Some(value) = entry.get_mut(key) else {
                continue;
            };
            match (key, value) {
                ("env", Value::Object(variables)) => {
                    for (name, value) in variables {
                        self.take(name, value, is_secret_name(name));
                    }
                }
                ("headers", Value::Object(headers)) => {
                    for (name, value) in headers {
                        let is_secret = is_secret_name(name) || is_authorization(name);
                        self.take(&name.clone(), value, is_secret);
                    }
                }
                ("args", Value::Array(args)) => self.take_of_args(args),
                ("url", Value::String(url)) => self.take_of_url(url),
                _ => {}
            }
        }
    }

    /// The value of a flag that names a secret (`--api-key=VALUE`, `--api-key VALUE`), of a variable
    /// (`-e API_KEY=VALUE`) and of a header (`--header "Authorization: VALUE"`).
    fn take_of_args(&mut self, args: &mut [Value]) {
        let mut flag_before = String::new();
        for arg in args {
            let mut text = arg.as_str().unwrap_or_default().to_owned();
            let is_header = HEADER_FLAGS.contains(&flag_before.as_str());
            let parts = match is_header {
                true => text.split_once(':').map(|(name, value)| (name, ":", value)),
                false => text.split_once('=').map(|(name, value)| (name, "=", value)),
            };
            match parts {
                _ if is_url(&text) => self.take_of_url(&mut text),
                Some((name, between, value)) if is_header || is_plain_name(name) => {
                    let is_secret = is_secret_name(name) || is_authorization(name);
                    let rest = value.trim_start();
                    let space = &value[..value.len() - rest.len()];
                    let mut taken = Value::from(rest);
                    self.take(name, &mut taken, is_secret);
                    let taken = taken.as_str().unwrap_or_default();
                    text = format!("{name}{between}{space}{taken}");
                }
                _ => {
                    let is_value = !text.starts_with('-') && !flag_before.is_empty();
                    let mut taken = Value::from(text.as_str());
                    self.take(
                        &flag_before,
                        &mut taken,
                        is_value && is_secret_name(&flag_before),
                    );
                    text = taken.as_str().unwrap_or_default().to_owned();
                }
            }
            if arg.is_string() {
                *arg = text.as_str().into();
            }
            flag_before = match text.starts_with('-') && !text.contains('=') {
                true => text,
                false => String::new(),
            };
        }
    }

    /// The parameters of a URL that name secrets.
    fn take_of_url(&mut self, url: &mut String) {
        let Some((address, query)) = url.split_once('?') else {
            let mut whole = Value::from(url.as_str());
            self.take("", &mut whole, false);
            *url = whole.as_str().unwrap_or_default().to_owned();
            return;
        };
        let mut parameters = Vec::new();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let mut taken = Value::from(value);
            self.take(name, &mut taken, is_secret_name(name));
            parameters.push(match parameter.contains('=') {
                true => format!("{name}={}", taken.as_str().unwrap_or_default()),
                false => parameter.to_owned(),
            });
        }
        *url = format!("{address}?{}", parameters.join("&"));
    }

    /// Replaces the value of this name if it is a secret and no reference yet.
    fn take(&mut self, name: &str, value: &mut Value, is_secret: bool) {
        let Some(text) = value.as_str() else { return };
        if let Some((replaced, variables)) = without_inputs(text).filter(|_| !self.are_masked) {
            for variable in variables {
                self.variables.entry(variable).or_default();
            }
            *value = replaced.into();
            return;
        }
        let is_secret = is_secret || has_password(text);
        if !is_secret || text.is_empty() || text.contains("${") {
            return;
        }
        // The scheme before a token is not secret: `Bearer`.
        let (scheme, secret) = match text.split_once(' ') {
            Some((scheme, secret)) if is_authorization(name) => {
                (format!("{scheme} "), secret.trim().to_owned())
            }
            _ => (String::new(), text.to_owned()),
        };
        if self.are_masked {
            *value = format!("{scheme}{REDACTED}").into();
            return;
        }
        let variable = self.variable_for(name, &secret);
        *value = format!("{scheme}${{{variable}}}").into();
        self.variables.insert(variable, Some(secret));
    }

    /// A variable with this value, named after what the secret is for.
    fn variable_for(&self, name: &str, secret: &str) -> String {
        let own = variable_name(name);
        // `Authorization` alone says nothing, and a variable of another server may have that name.
        let is_common = is_authorization(name) || name.starts_with('-') || own.len() < 6;
        let of_server = variable_name(&format!("{}_{name}", self.of_server));
        let names = [own, of_server.clone()];
        let numbered = (2..).map(|number| format!("{of_server}_{number}"));
        let free = |variable: &String| match self.variables.get(variable) {
            Some(Some(value)) => value == secret,
            Some(None) => false,
            None => true,
        };
        let names = names.into_iter().skip(usize::from(is_common));
        names.chain(numbered).find(free).unwrap_or(of_server)
    }
}

/// Whether what has this name is a secret: a variable, a header, a flag or a parameter.
fn is_secret_name(name: &str) -> bool {
    let last = name.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
    let is_secret = |word: &str| {
        SECRET_WORDS
            .iter()
            .any(|secret| word.eq_ignore_ascii_case(secret))
    };
    names_secret(name) || last.is_some_and(is_secret)
}

/// Whether this is the name of a flag or of a variable.
fn is_plain_name(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is an address with a password, as `postgres://user:password@host/` is.
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    user.is_some_and(|user| user.contains(':'))
}

fn is_authorization(header: &str) -> bool {
    ["authorization", "proxy-authorization", "cookie"]
        .iter()
        .any(|name| header.eq_ignore_ascii_case(name))
}

/// The name of an environment variable: `api-key` is `API_KEY`.
fn variable_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.trim_start_matches('-').chars() {
        match c.is_ascii_alphanumeric() {
            true => name.push(c.to_ascii_uppercase()),
            false if name.ends_with('_') => {}
            false => name.push('_'),
        }
    }
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("KEY_{name}"),
        false => name,
    }
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

    #[test]
    fn secrets_are_found_where_people_put_them() {
        let references = |entry: Value| {
            let server = ImportedServer {
                name: "s".into(),
                entry,
                unknown_keys: Vec::new(),
            };
            let mut servers = [server];
            take_secrets(&mut servers);
            servers[0].entry.clone()
        };
        let given = json!({
            "args": ["run", "-e", "GITHUB_PAT=p-1", "-e", "MODE=ro", "--header", "Authorization: Bearer b-1", "--header",
                     "X-Team: t", "https://s.example/mcp?key=u-1", "--key-file", "/k", 7],
            "env": { "DATABASE": "postgres://me:pw-1@db/shop", "PLAIN": "postgres://db/shop", "NOTES_KEY": "n 1" },
        });
        let expected = json!({
            "args": ["run", "-e", "GITHUB_PAT=${GITHUB_PAT}", "-e", "MODE=ro", "--header", "Authorization: Bearer ${S_AUTHORIZATION}",
                     "--header", "X-Team: t", "https://s.example/mcp?key=${S_KEY}", "--key-file", "/k", 7],
            "env": { "DATABASE": "${DATABASE}", "PLAIN": "postgres://db/shop", "NOTES_KEY": "${NOTES_KEY}" },
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
        let variables = take_secrets(&mut servers);
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
        assert_eq!(variables["GITHUB_TOKEN"].as_deref(), Some("g-1"));
        assert_eq!(variables["GITLAB_GITHUB_TOKEN"].as_deref(), Some("g-2"));
        assert_eq!(variables["WEB_AUTHORIZATION"].as_deref(), Some("b-1"));
        assert_eq!(variables["PAT_CODE"], None);
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
