//! Adds this program to the settings of MCP clients. Everything else in those files stays as it is,
//! comments included.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use directories::BaseDirs;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use serde_json::{Value, json};

use crate::config::jsonc;

/// The name of our entry in a client's list of servers.
pub const ENTRY_NAME: &str = "toolscout";
/// Numbered backups of one file; after these, a single unnumbered one is overwritten.
const MAX_BACKUPS: usize = 1000;

/// A client whose settings file and format are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Claude Desktop.
    ClaudeDesktop,
    /// Claude Code, for all projects of the user.
    ClaudeCode,
    /// Cursor.
    Cursor,
    /// Visual Studio Code.
    VsCode,
    /// Windsurf.
    Windsurf,
    /// Gemini CLI.
    GeminiCli,
    /// Codex.
    Codex,
}

impl Client {
    /// Every client, in the order of the documentation.
    pub const ALL: [Client; 7] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Cursor,
        Client::VsCode,
        Client::Windsurf,
        Client::GeminiCli,
        Client::Codex,
    ];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "claude-desktop",
            Client::ClaudeCode => "claude-code",
            Client::Cursor => "cursor",
            Client::VsCode => "vscode",
            Client::Windsurf => "windsurf",
            Client::GeminiCli => "gemini-cli",
            Client::Codex => "codex",
        }
    }

    /// The usual path of its settings; `None` without a home directory.
    pub fn settings_file(self) -> Option<PathBuf> {
        let dirs = BaseDirs::new()?;
        let (home, config) = (dirs.home_dir(), dirs.config_dir());
        Some(match self {
            Client::ClaudeDesktop => config.join("Claude/claude_desktop_config.json"),
            Client::ClaudeCode => home.join(".claude.json"),
            Client::Cursor => home.join(".cursor/mcp.json"),
            Client::VsCode => config.join("Code/User/mcp.json"),
            Client::Windsurf => home.join(".codeium/windsurf/mcp_config.json"),
            Client::GeminiCli => home.join(".gemini/settings.json"),
            Client::Codex => home.join(".codex/config.toml"),
        })
    }

    /// The key of its settings whose value lists the servers.
    fn key(self) -> &'static str {
        match self {
            Client::VsCode => "servers",
            Client::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    /// The server entry in this client's own format.
    fn entry(self, endpoint: &Endpoint) -> Value {
        match endpoint {
            Endpoint::Stdio { command, args, env } => {
                let mut entry = json!({ "command": command, "args": args });
                if matches!(self, Client::VsCode | Client::ClaudeCode) {
                    entry["type"] = json!("stdio");
                }
                if !env.is_empty() {
                    entry["env"] = json!(env);
                }
                entry
            }
            // Each of these clients has a name of its own for the URL of streamable HTTP.
            Endpoint::Http { url } => match self {
                Client::GeminiCli => json!({ "httpUrl": url }),
                Client::Windsurf => json!({ "serverUrl": url }),
                Client::Codex => json!({ "url": url }),
                _ => json!({ "type": "http", "url": url }),
            },
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Client {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Client::ALL
            .into_iter()
            .find(|client| client.as_str() == text);
        known.ok_or_else(|| {
            let names = Client::ALL.map(Client::as_str).join(", ");
            format!("unknown client {text:?}; known clients are {names}")
        })
    }
}

/// How the client reaches this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The client starts the program and talks to it over standard input and output.
    Stdio {
        /// The program that the client starts.
        command: String,
        /// The arguments that the client starts it with.
        args: Vec<String>,
        /// Environment variables that the client sets for it.
        env: BTreeMap<String, String>,
    },
    /// The client connects to a running server.
    Http {
        /// The URL of the gateway.
        url: String,
    },
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The client only starts servers itself.
    #[error("{client} starts its servers itself and does not accept a URL; leave out --url")]
    StdioOnly {
        /// The client that takes no URL.
        client: Client,
    },
    /// The file does not have the format of the client's settings.
    #[error("{path} cannot be merged: {reason}; nothing was changed, add this by hand:\n{entry}", path = path.display())]
    Unmergeable {
        /// The path of the client's settings.
        path: PathBuf,
        /// Where and why.
        reason: String,
        /// The entry that would have been added, as JSON.
        entry: String,
    },
    /// The file has another server of this name.
    #[error("{path} has another server {name:?}; give this one another name with --name, or remove that one first", path = path.display())]
    Taken {
        /// The file of servers.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file cannot be read or written.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// The operation that failed, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl InstallError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        InstallError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// A client's settings before and after the merge.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The path of the client's settings.
    pub path: PathBuf,
    /// Its content after the merge.
    pub after: String,
    before: Option<String>,
}

impl Plan {
    /// Reads the settings and merges this program into them. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read or has an unknown format.
    pub fn new(client: Client, path: &Path, endpoint: &Endpoint) -> Result<Self, InstallError> {
        if client == Client::ClaudeDesktop && matches!(endpoint, Endpoint::Http { .. }) {
            return Err(InstallError::StdioOnly { client });
        }
        let (path, before) = read_settings(path)?;
        let entry = client.entry(endpoint);
        let text = before.as_deref().unwrap_or_default();
        let merged = match client {
            Client::Codex => merge_toml(text, client.key(), &entry),
            _ => merge_json(text, client.key(), ENTRY_NAME, &entry),
        };
        Plan::of(path, before, merged, client.key(), ENTRY_NAME, &entry)
    }

    /// Reads a file of servers and adds one. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read, has an unknown format, or has another server
    /// of this name.
    pub fn adding(path: &Path, name: &str, entry: &Value) -> Result<Self, InstallError> {
        let (path, before) = read_settings(path)?;
        let text = before.as_deref().unwrap_or_default();
        let present: Value = CstRootNode::parse(text, &jsonc())
            .ok()
            .and_then(|root| root.to_serde_value())
            .unwrap_or_default();
        // As the file is read: `servers` alone is VS Code's.
        let is_of_vs_code = present.get("mcpServers").is_none() && present.get("servers").is_some();
        let key = if is_of_vs_code {
            "servers"
        } else {
            "mcpServers"
        };
        let other = present.get(key).and_then(|servers| servers.get(name));
        if other.is_some_and(|other| other != entry) {
            let name = name.to_owned();
            return Err(InstallError::Taken { path, name });
        }
        let merged = merge_json(text, key, name, entry);
        Plan::of(path, before, merged, key, name, entry)
    }

    fn of(
        path: PathBuf,
        before: Option<String>,
        merged: Result<String, String>,
        key: &str,
        name: &str,
        entry: &Value,
    ) -> Result<Self, InstallError> {
        match merged {
            Ok(after) => Ok(Plan {
                path,
                after,
                before,
            }),
            Err(reason) => {
                let entry = json!({ key: { name: entry } });
                Err(InstallError::Unmergeable {
                    path,
                    reason,
                    entry: format!("{entry:#}"),
                })
            }
        }
    }

    /// True when the file already has this entry.
    pub fn is_up_to_date(&self) -> bool {
        self.before.as_ref() == Some(&self.after)
    }

    /// Writes the file atomically and returns the path of the backup, where there was a file.
    ///
    /// # Errors
    /// [`InstallError::Io`].
    pub fn write(&self) -> Result<Option<PathBuf>, InstallError> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)
                .map_err(|source| InstallError::io("create", folder, source))?;
        }
        let backup = self.before.as_ref().map(|_| self.free_backup());
        if let Some(backup) = &backup {
            fs::copy(&self.path, backup)
                .map_err(|source| InstallError::io("write the backup", backup, source))?;
        }
        // A temporary file in the same folder, because only then is the rename atomic.
        let new = with_suffix(&self.path, "toolscout-new");
        fs::write(&new, &self.after).map_err(|source| InstallError::io("write", &new, source))?;
        if let Ok(metadata) = fs::metadata(&self.path) {
            fs::set_permissions(&new, metadata.permissions())
                .map_err(|source| InstallError::io("set the permissions of", &new, source))?;
        }
        fs::rename(&new, &self.path)
            .map_err(|source| InstallError::io("replace", &self.path, source))?;
        Ok(backup)
    }

    fn free_backup(&self) -> PathBuf {
        (1..MAX_BACKUPS)
            .map(|number| with_suffix(&self.path, &format!("backup-{number}")))
            .find(|path| !path.exists())
            .unwrap_or_else(|| with_suffix(&self.path, "backup"))
    }
}

/// The path of a file of settings and its text, if there is one. The target of a symbolic link is
/// written, so that the link stays one.
fn read_settings(path: &Path) -> Result<(PathBuf, Option<String>), InstallError> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, Some(text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path, None)),
        Err(source) => Err(InstallError::io("read", &path, source)),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// Sets `key.name` in a JSON document, with or without comments. The rest stays byte for byte.
fn merge_json(text: &str, key: &str, name: &str, entry: &Value) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(text, &jsonc())
        .map_err(|error| format!("it is not valid JSON ({error})"))?;
    let settings = root.object_value().ok_or("it is not a JSON object")?;
    let servers = settings
        .object_value_or_create(key)
        .ok_or_else(|| format!("its {key:?} is not an object"))?;
    match servers.get(name) {
        Some(present) if present.to_serde_value().as_ref() == Some(entry) => {
            return Ok(text.to_owned());
        }
        Some(outdated) => outdated.set_value(json_input(entry)),
        None => {
            servers.append(name, json_input(entry));
        }
    }
    let merged = root.to_string();
    Ok(if merged.ends_with('\n') {
        merged
    } else {
        merged + "\n"
    })
}

fn json_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(json_input).collect()),
        Value::Object(fields) => CstInputValue::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), json_input(value)))
                .collect(),
        ),
    }
}

/// Appends the table `key.toolscout` to a TOML document, so that comments and order stay.
fn merge_toml(text: &str, key: &str, entry: &Value) -> Result<String, String> {
    let wanted = toml::Value::try_from(entry).map_err(|error| error.to_string())?;
    let settings: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| format!("it is not valid TOML ({})", error.message()))?;
    let present = settings
        .get(key)
        .and_then(|servers| servers.get(ENTRY_NAME));
    match present {
        Some(present) if *present == wanted => return Ok(text.to_owned()),
        Some(_) => {
            return Err(format!(
                "it has another [{key}.{ENTRY_NAME}], which has to be removed first"
            ));
        }
        None => {}
    }
    // The whole path, so that the variables become the table `key.toolscout.env`.
    let document = json!({ key: { ENTRY_NAME: entry } });
    let table = toml::to_string(&document).map_err(|error| error.to_string())?;
    let gap = if text.is_empty() || text.ends_with("\n\n") {
        ""
    } else if text.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    Ok(format!("{text}{gap}{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio() -> Endpoint {
        Endpoint::Stdio {
            command: "/bin/toolscout".into(),
            args: vec!["mcp".into()],
            env: BTreeMap::new(),
        }
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
        };
        for client in Client::ALL {
            let after = Plan::new(client, &path, &endpoint).unwrap().after;
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
        assert!(taken.to_string().contains("another name with --name"));
        let after: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(after, json!({ "mcpServers": { "a": entry, "b": entry } }));

        fs::write(&path, "// mine\n{\"servers\": {}}").unwrap();
        let added = plan("a", &entry).unwrap().after;
        assert!(added.starts_with("// mine\n") && !added.contains("mcpServers"));
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
        let other = "[mcp_servers.toolscout]\ncommand = \"old\"\n";
        assert!(
            plan(Client::Codex, &path, other)
                .unwrap_err()
                .contains("removed first")
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
}
