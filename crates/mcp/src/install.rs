//! Changes the settings of MCP clients, and files of servers. Everything else in those files stays as it
//! is, comments included.

mod backups;
mod client;
mod edits;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jsonc_parser::cst::CstObjectProp;
use serde_json::{Map, Value, json};

use self::backups::{free_name, remove_old_backups};
use self::edits::{edit_json, merge_toml, servers_of, set_server, switch};

pub use self::backups::{Restored, restore};
pub use self::client::{Client, Endpoint};

/// The name of our entry in a client's list of servers.
pub const ENTRY_NAME: &str = "toolscout";

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

/// The servers that a file of servers lists, in its order.
///
/// # Errors
/// [`InstallError::Io`].
pub fn listed_servers(path: &Path) -> Result<Map<String, Value>, InstallError> {
    let (_, text) = read_settings(path)?;
    Ok(servers_of(&text.unwrap_or_default()).1)
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

#[cfg(test)]
mod tests;
