//! Changes the settings of MCP clients, and files of servers. Everything else in those files stays as it
//! is, comments included.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use directories::BaseDirs;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, RawString, Table};

use crate::config::jsonc;

/// The name of our entry in a client's list of servers.
pub const ENTRY_NAME: &str = "toolscout";
/// Numbered backups of one file; after these, the last one is overwritten.
const MAX_BACKUPS: usize = 1000;
/// The newest backups of one file that are kept.
const KEPT_BACKUPS: usize = 10;

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
    fn key(self) -> &'static str {
        match self {
            Client::VsCode => "servers",
            Client::Codex => "mcp_servers",
            Client::Zed => "context_servers",
            Client::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// The server entry in this client's own format.
    fn entry(self, endpoint: &Endpoint) -> Value {
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
    #[error("{path} has another server {name:?}; choose another name, or remove that one first with `toolscout mcp remove`", path = path.display())]
    Taken {
        /// The file of servers.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The file has no server of this name.
    #[error("{path} has no server {name:?}; it has {known}", path = path.display())]
    Unknown {
        /// The file of servers.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names of its servers.
        known: String,
    },
    /// There is nothing to put back.
    #[error("there is no backup of {path}, which would be {path}.backup-1", path = path.display())]
    NoBackup {
        /// The path of the settings.
        path: PathBuf,
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
    /// That the file lists these servers, and not the one of this name.
    pub fn unknown(path: PathBuf, name: String, listed: &Map<String, Value>) -> Self {
        let known: Vec<&str> = listed.keys().map(String::as_str).collect();
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        };
        InstallError::Unknown { path, name, known }
    }

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
        Plan::replacing(client, path, endpoint, &[])
    }

    /// Reads the settings, and puts this program in the place of these servers. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read or has an unknown format.
    pub fn replacing(
        client: Client,
        path: &Path,
        endpoint: &Endpoint,
        servers: &[String],
    ) -> Result<Self, InstallError> {
        if client == Client::ClaudeDesktop && matches!(endpoint, Endpoint::Http { .. }) {
            return Err(InstallError::StdioOnly { client });
        }
        let (path, before) = read_settings(path)?;
        let entry = client.entry(endpoint);
        let text = before.as_deref().unwrap_or_default();
        let merged = match client {
            Client::Codex => merge_toml(text, client.key(), &entry, servers),
            Client::Goose => Err("its format, YAML, is not written here".into()),
            _ => edit_json(text, client.key(), |listed| {
                for server in servers {
                    if let Some(replaced) = listed.get(server) {
                        replaced.remove();
                    }
                }
                set_server(listed, ENTRY_NAME, &entry);
            }),
        };
        let by_hand = json!({ client.key(): { ENTRY_NAME: entry } });
        Plan::of(path, before, merged, &by_hand)
    }

    /// Reads a file of servers and adds one. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read, has an unknown format, or has another server
    /// of this name.
    pub fn adding(path: &Path, name: &str, entry: &Value) -> Result<Self, InstallError> {
        let (path, before) = read_settings(path)?;
        let text = before.as_deref().unwrap_or_default();
        let (key, listed) = servers_of(text);
        if let Some(other) = listed.get(name)
            && other != entry
        {
            let name = name.to_owned();
            return Err(InstallError::Taken { path, name });
        }
        let merged = edit_json(text, key, |listed| set_server(listed, name, entry));
        Plan::of(path, before, merged, &json!({ key: { name: entry } }))
    }

    /// Reads a file of servers, and adds several, or puts them in the place of those of their names.
    /// Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read or has an unknown format.
    pub fn setting_all(path: &Path, servers: &[(String, Value)]) -> Result<Self, InstallError> {
        let (path, before) = read_settings(path)?;
        let text = before.as_deref().unwrap_or_default();
        let key = servers_of(text).0;
        let merged = edit_json(text, key, |listed| {
            for (name, entry) in servers {
                set_server(listed, name, entry);
            }
        });
        let entries: Value = servers.iter().cloned().collect();
        Plan::of(path, before, merged, &json!({ key: entries }))
    }

    /// Reads a file of servers, and removes some. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read or lacks one of them.
    pub fn removing(path: &Path, names: &[String]) -> Result<Self, InstallError> {
        Plan::editing(path, names, CstObjectProp::remove)
    }

    /// Reads a file of servers, and switches some on or off. Writes nothing.
    ///
    /// # Errors
    /// [`InstallError`] when the file cannot be read or lacks one of them.
    pub fn switching(path: &Path, names: &[String], is_on: bool) -> Result<Self, InstallError> {
        Plan::editing(path, names, |server| switch(&server, is_on))
    }

    fn editing(
        path: &Path,
        names: &[String],
        edit: impl Fn(CstObjectProp),
    ) -> Result<Self, InstallError> {
        let (path, before) = read_settings(path)?;
        let Some(text) = before.as_deref() else {
            let missing = io::Error::from(io::ErrorKind::NotFound);
            return Err(InstallError::io("read", &path, missing));
        };
        let (key, listed) = servers_of(text);
        // Before the first edit: either all of them are edited, or none.
        if let Some(unknown) = names.iter().find(|name| !listed.contains_key(*name)) {
            return Err(InstallError::unknown(path, unknown.clone(), &listed));
        }
        let edited = edit_json(text, key, |listed| {
            for name in names {
                if let Some(server) = listed.get(name) {
                    edit(server);
                }
            }
        });
        Plan::of(path, before, edited, &json!({ key: listed }))
    }

    /// The plan, or an error that shows what to add by hand.
    fn of(
        path: PathBuf,
        before: Option<String>,
        merged: Result<String, String>,
        by_hand: &Value,
    ) -> Result<Self, InstallError> {
        match merged {
            Ok(after) => Ok(Plan {
                path,
                after,
                before,
            }),
            Err(reason) => Err(InstallError::Unmergeable {
                path,
                reason,
                entry: format!("{by_hand:#}"),
            }),
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
            done("create", folder, fs::create_dir_all(folder))?;
        }
        let mut backup = None;
        if self.before.is_some() {
            let copy = free_name(&self.path, "backup");
            done("write the backup", &copy, fs::copy(&self.path, &copy))?;
            remove_old_backups(&self.path)?;
            backup = Some(copy);
        }
        // A temporary file in the same folder, because only then is the rename atomic.
        let new = with_suffix(&self.path, "toolscout-new");
        done("write", &new, write_private(&new, &self.after))?;
        if let Ok(metadata) = fs::metadata(&self.path) {
            let permissions = metadata.permissions();
            let set = fs::set_permissions(&new, permissions);
            done("set the permissions of", &new, set)?;
        }
        done("replace", &self.path, fs::rename(&new, &self.path))?;
        Ok(backup)
    }
}

/// The result of an operation, whose error says what was done to which file.
fn done<T>(action: &'static str, path: &Path, result: io::Result<T>) -> Result<T, InstallError> {
    result.map_err(|source| InstallError::io(action, path, source))
}

/// Switches a server on or off. One that is off is `"disabled": true`, and one that is on has no such
/// key.
fn switch(server: &CstObjectProp, is_on: bool) {
    let Some(entry) = server.object_value() else {
        return;
    };
    match entry.get("disabled") {
        Some(disabled) if is_on => disabled.remove(),
        Some(disabled) => disabled.set_value(CstInputValue::Bool(true)),
        None if is_on => {}
        None => {
            entry.append("disabled", CstInputValue::Bool(true));
        }
    }
}

/// The servers that a file of servers lists, in its order.
///
/// # Errors
/// [`InstallError::Io`].
pub fn listed_servers(path: &Path) -> Result<Map<String, Value>, InstallError> {
    let (_, text) = read_settings(path)?;
    Ok(servers_of(&text.unwrap_or_default()).1)
}

/// Settings that were put back.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where they were.
    pub backup: PathBuf,
    /// Where those are that they replaced.
    pub replaced: Option<PathBuf>,
}

/// Puts the newest backup of these settings back, byte for byte. The backup is used up: the next call puts
/// back the one before it.
///
/// # Errors
/// [`InstallError`] when there is no backup, or it cannot be moved.
pub fn restore(path: &Path) -> Result<Restored, InstallError> {
    let path = target_of(path);
    let Some(newest) = newest_number(&path, "backup") else {
        return Err(InstallError::NoBackup { path });
    };
    let backup = numbered(&path, "backup", newest);
    // The client may have written to them since.
    let mut replaced = None;
    if path.exists() {
        let kept = free_name(&path, "replaced");
        done("write", &kept, fs::rename(&path, &kept))?;
        replaced = Some(kept);
    }
    done("replace", &path, fs::rename(&backup, &path))?;
    Ok(Restored { backup, replaced })
}

/// The path with the number behind it that follows the newest one. A number that somebody deleted is not
/// taken again, so that the highest is always the newest.
fn free_name(path: &Path, suffix: &str) -> PathBuf {
    let next = newest_number(path, suffix).map_or(1, |newest| newest + 1);
    // Nobody needs more of them, so the last one is overwritten.
    numbered(path, suffix, next.min(MAX_BACKUPS))
}

/// Keeps the newest backups alone.
fn remove_old_backups(path: &Path) -> Result<(), InstallError> {
    let newest = newest_number(path, "backup").unwrap_or_default();
    for number in 1..=newest.saturating_sub(KEPT_BACKUPS) {
        let old = numbered(path, "backup", number);
        match fs::remove_file(&old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(InstallError::io("remove the old backup", &old, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number of the file that was written last beside this path, as its `suffix-NUMBER`; the highest, since
/// numbers grow and are not taken again.
fn newest_number(path: &Path, suffix: &str) -> Option<usize> {
    for number in (1..=MAX_BACKUPS).rev() {
        if numbered(path, suffix, number).exists() {
            return Some(number);
        }
    }
    None
}

fn numbered(path: &Path, suffix: &str, number: usize) -> PathBuf {
    with_suffix(path, &format!("{suffix}-{number}"))
}

/// The key under which a file of servers lists them, and the servers. As the file is read: `servers`
/// alone is VS Code's.
fn servers_of(text: &str) -> (&'static str, Map<String, Value>) {
    let file: Value = match CstRootNode::parse(text, &jsonc()) {
        Ok(root) => root.to_serde_value().unwrap_or_default(),
        // An edit of such a file fails, and says what is wrong with it.
        Err(_) => Value::Null,
    };
    let is_of_vs_code = file.get("mcpServers").is_none() && file.get("servers").is_some();
    let key = match is_of_vs_code {
        true => "servers",
        false => "mcpServers",
    };
    let listed = file.get(key).and_then(Value::as_object).cloned();
    (key, listed.unwrap_or_default())
}

/// Writes a file that only its owner reads: it may have secrets.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// The path of a file of settings and its text, if there is one. The target of a symbolic link is
/// written, so that the link stays one.
fn read_settings(path: &Path) -> Result<(PathBuf, Option<String>), InstallError> {
    let path = target_of(path);
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, Some(text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path, None)),
        Err(source) => Err(InstallError::io("read", &path, source)),
    }
}

fn target_of(path: &Path) -> PathBuf {
    // A file that is not there yet has no other path.
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{suffix}"));
    path.with_file_name(name)
}

/// Edits the servers under `key` of a JSON document, with or without comments. The rest stays byte
/// for byte, and so does the whole if the edit changes nothing.
fn edit_json(text: &str, key: &str, edit: impl FnOnce(&CstObject)) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{}\n" } else { text };
    let root = CstRootNode::parse(text, &jsonc())
        .map_err(|error| format!("it is not valid JSON ({error})"))?;
    let before = root.to_serde_value();
    let settings = root.object_value().ok_or("it is not a JSON object")?;
    let Some(servers) = settings.object_value_or_create(key) else {
        return Err(format!("its {key:?} is not an object"));
    };
    edit(&servers);
    if root.to_serde_value() == before {
        return Ok(text.to_owned());
    }
    let merged = root.to_string();
    Ok(if merged.ends_with('\n') {
        merged
    } else {
        merged + "\n"
    })
}

/// Sets the entry of a server. One that has this value stays as it is written.
fn set_server(listed: &CstObject, name: &str, entry: &Value) {
    match listed.get(name) {
        Some(present) if present.to_serde_value().as_ref() == Some(entry) => {}
        Some(outdated) => outdated.set_value(json_input(entry)),
        None => {
            listed.append(name, json_input(entry));
        }
    }
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

/// Sets the table `key.toolscout` of a TOML document in the place of these servers, so that comments
/// and order stay.
fn merge_toml(text: &str, key: &str, entry: &Value, servers: &[String]) -> Result<String, String> {
    let mut settings = match text.parse::<DocumentMut>() {
        Ok(settings) => settings,
        Err(error) => return Err(format!("it is not valid TOML ({})", error.message())),
    };
    let listed = settings.entry(key).or_insert_with(|| {
        let mut listed = Table::new();
        // Its servers have headers of their own.
        listed.set_implicit(true);
        Item::Table(listed)
    });
    let Some(listed) = listed.as_table_like_mut() else {
        return Err(format!("its {key:?} is not a table"));
    };
    let mut comments = String::new();
    for server in servers {
        let removed = listed.remove(server);
        // What stands above a table belongs to it, also at the beginning of the file.
        let above = match &removed {
            Some(Item::Table(table)) => table.decor().prefix(),
            _ => None,
        };
        let above = above.and_then(RawString::as_str).unwrap_or_default();
        if above.contains('#') {
            comments.push_str(above);
        }
    }
    let mut item = toml_item(entry);
    if let Some(table) = item.as_table_mut()
        && !comments.is_empty()
    {
        table.decor_mut().set_prefix(comments);
    }
    listed.insert(ENTRY_NAME, item);
    Ok(settings.to_string())
}

fn toml_item(value: &Value) -> Item {
    match value {
        Value::Object(fields) => {
            let mut table = Table::new();
            for (name, value) in fields {
                table.insert(name, toml_item(value));
            }
            Item::Table(table)
        }
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().unwrap_or_default());
            toml_edit::value(toml_edit::Array::from_iter(texts))
        }
        Value::Bool(value) => toml_edit::value(*value),
        value => toml_edit::value(value.as_str().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
