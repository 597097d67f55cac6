//! The clients whose settings are known, and the entry of this program in them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use directories::BaseDirs;
use serde_json::{Value, json};

use super::ENTRY_NAME;

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
    /// Zed.
    Zed,
    /// Goose, whose settings are read and not written.
    Goose,
}

impl Client {
    /// Every client, in the order of the documentation.
    pub const ALL: [Client; 9] = [
        Client::ClaudeDesktop,
        Client::ClaudeCode,
        Client::Cursor,
        Client::VsCode,
        Client::Windsurf,
        Client::GeminiCli,
        Client::Codex,
        Client::Zed,
        Client::Goose,
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
            Client::Zed => "zed",
            Client::Goose => "goose",
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
            Client::Zed if cfg!(windows) => config.join("Zed/settings.json"),
            Client::Zed => home.join(".config/zed/settings.json"),
            Client::Goose if cfg!(windows) => config.join("Block/goose/config/config.yaml"),
            Client::Goose => home.join(".config/goose/config.yaml"),
        })
    }

    /// The key of its settings whose value lists the servers.
    pub(super) fn key(self) -> &'static str {
        match self {
            Client::VsCode => "servers",
            Client::Codex => "mcp_servers",
            Client::Zed => "context_servers",
            Client::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// The server entry in this client's own format.
    pub(super) fn entry(self, endpoint: &Endpoint) -> Value {
        match endpoint {
            Endpoint::Stdio {
                command, args, env, ..
            } if self == Client::Goose => json!({
                "name": ENTRY_NAME, "type": "stdio", "enabled": true, "cmd": command, "args": args, "envs": env,
            }),
            Endpoint::Stdio {
                command,
                args,
                env,
                passed_on,
            } => {
                let mut entry = json!({ "command": command, "args": args });
                if matches!(self, Client::VsCode | Client::ClaudeCode) {
                    entry["type"] = json!("stdio");
                }
                if !env.is_empty() {
                    entry["env"] = json!(env);
                }
                // What the settings set themselves is not taken from the environment.
                let names: Vec<&String> = passed_on
                    .iter()
                    .filter(|name| !env.contains_key(*name))
                    .collect();
                if self == Client::Codex && !names.is_empty() {
                    entry["env_vars"] = json!(names);
                }
                entry
            }
            // Each of these clients has a name of its own for the URL of streamable HTTP.
            Endpoint::Http { url } => match self {
                Client::GeminiCli => json!({ "httpUrl": url }),
                Client::Windsurf => json!({ "serverUrl": url }),
                Client::Codex | Client::Zed => json!({ "url": url }),
                Client::Goose => json!({
                    "name": ENTRY_NAME, "type": "streamable_http", "enabled": true, "uri": url,
                }),
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
        for client in Client::ALL {
            if client.as_str() == text {
                return Ok(client);
            }
        }
        let names = Client::ALL.map(Client::as_str).join(", ");
        Err(format!(
            "unknown client {text:?}; known clients are {names}"
        ))
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
        /// Variables of the client's environment that its servers need. Codex passes only those that its
        /// settings name.
        passed_on: BTreeSet<String>,
    },
    /// The client connects to a running server.
    Http {
        /// The URL of the gateway.
        url: String,
    },
}
