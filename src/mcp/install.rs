//! Adding this program to the settings of MCP clients. Other settings stay unchanged.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use directories::BaseDirs;
use serde_json::{Map, Value, json};

/// The name of this program in the settings of clients.
pub const ENTRY_NAME: &str = "toolscout";
/// Most backups of one file with a number. A further one replaces the backup without a number.
const MAX_BACKUPS: usize = 1000;

/// A client whose settings this program can change.
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

    /// Its name on the command line.
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

    /// The path of its settings; `None` without a home directory.
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

    /// The key of the servers in its settings.
    fn key(self) -> &'static str {
        match self {
            Client::VsCode => "servers",
            Client::Codex => "mcp_servers",
            _ => "mcpServers",
        }
    }

    fn entry(self, reached: &Reached) -> Value {
        match (self, reached) {
            (Client::VsCode | Client::ClaudeCode, Reached::Stdio { command, args }) => {
                json!({ "type": "stdio", "command": command, "args": args })
            }
            (_, Reached::Stdio { command, args }) => json!({ "command": command, "args": args }),
            (Client::GeminiCli, Reached::Http { url }) => json!({ "httpUrl": url }),
            (Client::Windsurf, Reached::Http { url }) => json!({ "serverUrl": url }),
            (Client::Codex, Reached::Http { url }) => json!({ "url": url }),
            (_, Reached::Http { url }) => json!({ "type": "http", "url": url }),
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
        let names = || Client::ALL.map(Client::as_str).join(", ");
        let known = Client::ALL
            .into_iter()
            .find(|client| client.as_str() == text);
        known.ok_or_else(|| format!("unknown client {text:?}; known are {}", names()))
    }
}

/// How the client connects to this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It starts the program.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
    },
    /// It connects to a running server.
    Http {
        /// The endpoint.
        url: String,
    },
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The client starts its servers itself.
    #[error("{client} starts its servers itself and cannot be given a URL; leave out --url")]
    StdioOnly {
        /// The client.
        client: Client,
    },
    /// The file does not have the format of the client's settings.
    #[error("{path} cannot be merged: {reason}; nothing was changed, add this by hand:\n{entry}", path = path.display())]
    Unmergeable {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
        /// What would have been added.
        entry: String,
    },
    /// The file cannot be read or written.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// The action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// A change of a client's settings.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The file.
    pub path: PathBuf,
    /// Its new content.
    pub after: String,
    before: Option<String>,
}

impl Plan {
    /// Reads the settings and adds this program to them. Nothing is written yet.
    ///
    /// # Errors
    /// [`InstallError`] when the settings cannot be read, or have an unknown format.
    pub fn new(client: Client, path: &Path, reached: &Reached) -> Result<Self, InstallError> {
        if client == Client::ClaudeDesktop && matches!(reached, Reached::Http { .. }) {
            return Err(InstallError::StdioOnly { client });
        }
        // A symbolic link stays one: its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(InstallError::Io {
                    action: "read",
                    path,
                    source,
                });
            }
        };
        let entry = client.entry(reached);
        let text = before.as_deref().unwrap_or_default();
        let merged = match client {
            Client::Codex => merge_toml(text, client.key(), &entry),
            _ => merge_json(text, client.key(), &entry),
        };
        match merged {
            Ok(after) => Ok(Plan {
                path,
                after,
                before,
            }),
            Err(reason) => {
                let entry = json!({ client.key(): { ENTRY_NAME: entry } });
                Err(InstallError::Unmergeable {
                    path,
                    reason,
                    entry: format!("{entry:#}"),
                })
            }
        }
    }

    /// Whether the settings have the entry already.
    pub fn is_done(&self) -> bool {
        self.before.as_ref() == Some(&self.after)
    }

    /// Writes the file atomically, and returns the path of the backup.
    ///
    /// # Errors
    /// [`InstallError::Io`].
    pub fn carry_out(&self) -> Result<Option<PathBuf>, InstallError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| InstallError::Io {
                action,
                path,
                source,
            }
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed("create", folder))?;
        }
        let backup = self.before.as_ref().map(|_| self.free_backup());
        if let Some(backup) = &backup {
            fs::copy(&self.path, backup).map_err(failed("write the backup", backup))?;
        }
        // Written beside the file and renamed, so that a crash leaves the old or the new settings.
        let fresh = beside(&self.path, "toolscout-new");
        fs::write(&fresh, &self.after).map_err(failed("write", &fresh))?;
        if let Ok(metadata) = fs::metadata(&self.path) {
            fs::set_permissions(&fresh, metadata.permissions())
                .map_err(failed("set the permissions of", &fresh))?;
        }
        fs::rename(&fresh, &self.path).map_err(failed("replace", &self.path))?;
        Ok(backup)
    }

    fn free_backup(&self) -> PathBuf {
        for number in 1..MAX_BACKUPS {
            let backup = beside(&self.path, &format!("backup-{number}"));
            if !backup.exists() {
                return backup;
            }
        }
        beside(&self.path, "backup")
    }
}

/// A path in the same folder, with a suffix added to the file name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// Sets `key.toolscout` in a JSON document.
fn merge_json(text: &str, key: &str, entry: &Value) -> Result<String, String> {
    let mut settings = match text.trim() {
        "" => Map::new(),
        text => match serde_json::from_str(text) {
            Ok(Value::Object(settings)) => settings,
            Ok(_) => return Err("it is not a JSON object".into()),
            Err(error) => return Err(format!("it is not plain JSON ({error})")),
        },
    };
    let servers = settings.entry(key).or_insert_with(|| json!({}));
    let servers = servers
        .as_object_mut()
        .ok_or_else(|| format!("its {key:?} is not an object"))?;
    if servers.get(ENTRY_NAME) == Some(entry) {
        return Ok(text.to_owned());
    }
    servers.insert(ENTRY_NAME.into(), entry.clone());
    let text = serde_json::to_string_pretty(&settings).map_err(|error| error.to_string())?;
    Ok(format!("{text}\n"))
}

/// Adds the table `key.toolscout` to the end of a TOML document, so that comments and order stay.
fn merge_toml(text: &str, key: &str, entry: &Value) -> Result<String, String> {
    let wanted = toml::Value::try_from(entry).map_err(|error| error.to_string())?;
    let settings: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        format!("it is not TOML ({})", error.message().replace('\n', "; "))
    })?;
    match settings
        .get(key)
        .and_then(|servers| servers.get(ENTRY_NAME))
    {
        Some(existing) if *existing == wanted => return Ok(text.to_owned()),
        Some(_) => {
            return Err(format!(
                "it has another [{key}.{ENTRY_NAME}]; remove that first"
            ));
        }
        None => {}
    }
    let table = toml::to_string(&wanted).map_err(|error| error.to_string())?;
    let gap = if text.is_empty() || text.ends_with("\n\n") {
        ""
    } else if text.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    Ok(format!("{text}{gap}[{key}.{ENTRY_NAME}]\n{table}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio() -> Reached {
        Reached::Stdio {
            command: "/bin/toolscout".into(),
            args: vec!["mcp".into()],
        }
    }

    fn plan(client: Client, path: &Path, before: &str) -> Result<Plan, String> {
        fs::write(path, before).unwrap();
        Plan::new(client, path, &stdio()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_else_is_in_the_settings_stays_and_a_backup_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        let before = r#"{"z": 1, "mcpServers": {"other": {"command": "x"}}, "a": [2]}"#;
        let first = plan(Client::Cursor, &path, before).unwrap();
        let backup = first.carry_out().unwrap().unwrap();
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
        assert!(again.is_done() && !first.is_done());
        assert_eq!(
            folder.path().read_dir().unwrap().count(),
            2,
            "nothing else is left in the folder"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/mcp.json");
        let plan = Plan::new(Client::VsCode, &path, &stdio()).unwrap();
        assert_eq!(plan.carry_out().unwrap(), None);
        let after: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(after["servers"]["toolscout"]["type"], "stdio");
    }

    #[test]
    fn toml_keeps_its_comments() {
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
        merged.carry_out().unwrap();
        assert!(Plan::new(Client::Codex, &path, &stdio()).unwrap().is_done());
        let other = "[mcp_servers.toolscout]\ncommand = \"old\"\n";
        assert!(
            plan(Client::Codex, &path, other)
                .unwrap_err()
                .contains("remove that first")
        );
    }

    #[test]
    fn settings_that_are_not_understood_are_left_alone_and_the_entry_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.json");
        for (before, expected) in [
            (
                "{ // a comment\n}",
                "not plain JSON (key must be a string at line 1",
            ),
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
        let url = Reached::Http {
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
                .contains("known are claude-desktop")
        );
    }
}
