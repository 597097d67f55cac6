//! Whether the tools of a server are still those that were approved: by the catalog, or by a lock file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};
use toolscout_index::{Tool, ToolId};

use crate::changes::ApprovedBefore;
use crate::config::ServerConfig;
use crate::connection::Connector;
use crate::sync::{CONCURRENT_FETCHES, FetchError, OfferedTools, fetch};
use toolscout_base::regular_file;
use toolscout_gate::gate::Definition;
use toolscout_state::approved::{BlockedBy, ChangeKind};

/// The format of a lock file.
const LOCK_VERSION: u32 = 1;

/// How the tools of a server differ from those that were approved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    /// Tools with another definition.
    pub changed: Vec<ToolId>,
    /// Tools that were not there.
    pub new: Vec<ToolId>,
    /// Tools that are no longer offered.
    pub gone: Vec<ToolId>,
    /// Tools that a person has blocked.
    pub blocked: Vec<ToolId>,
}

impl Differences {
    /// True if the tools are those that were approved.
    pub fn is_empty(&self) -> bool {
        *self == Differences::default()
    }

    /// How the offered tools differ from those that the catalog has approved; `None` if nothing of the
    /// server was ever approved.
    pub fn since_approval(offered: &[Tool], before: &ApprovedBefore<'_>) -> Option<Self> {
        if before.is_first_list() {
            return None;
        }
        let mut differences = Differences::default();
        for tool in offered {
            let id = tool.id.clone();
            // In the catalog, but no person has accepted it.
            let undecided = before.remembered.undecided.get(&id);
            match (undecided, before.record(&id)) {
                (Some(change), _) if change.blocked_by == Some(BlockedBy::Person) => {
                    differences.blocked.push(id);
                }
                (_, None) => differences.new.push(id),
                (Some(change), Some(_)) if change.kind == ChangeKind::New => {
                    differences.new.push(id)
                }
                (Some(_), Some(_)) => differences.changed.push(id),
                (None, Some(record)) if record.definition != Definition::of(tool) => {
                    differences.changed.push(id);
                }
                (None, Some(_)) => {}
            }
        }
        let is_offered = |id: &ToolId| offered.iter().any(|tool| tool.id == *id);
        for (id, tool) in &before.catalog {
            // Prompts and resources are not compared here.
            if tool.kind.is_tool() && !is_offered(id) {
                differences.gone.push(id.clone());
            }
        }
        Some(differences)
    }
}

/// The offered tools that a person has blocked.
pub fn blocked(offered: &[Tool], before: &ApprovedBefore<'_>) -> Vec<ToolId> {
    let mut blocked = Vec::new();
    for tool in offered {
        let undecided = before.remembered.undecided.get(&tool.id);
        if undecided.is_some_and(|change| change.blocked_by == Some(BlockedBy::Person)) {
            blocked.push(tool.id.clone());
        }
    }
    blocked
}

/// The definitions of the tools of servers, by their digests, in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    /// Digests by server and tool.
    servers: BTreeMap<String, BTreeMap<String, String>>,
}

/// Why a lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no lock file.
    #[error("{path} is no lock file of this version: {reason}; write it anew with --write-lock", path = path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Lock {
    /// Reads a lock file.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn read(path: &Path) -> Result<Self, LockError> {
        let text = regular_file::read_to_string(path).map_err(|source| LockError::File {
            path: path.to_owned(),
            source,
        })?;
        let invalid = |reason: String| LockError::Invalid {
            path: path.to_owned(),
            reason,
        };
        let lock: Lock = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        match lock.version {
            LOCK_VERSION => Ok(lock),
            other => Err(invalid(format!("its version is {other}"))),
        }
    }

    /// Writes a lock file, whole or not at all.
    ///
    /// # Errors
    /// [`LockError::File`].
    pub fn write(&self, path: &Path) -> Result<(), LockError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
        written.map_err(|source| LockError::File {
            path: path.to_owned(),
            source,
        })
    }

    /// Adds the tools of a server.
    pub fn add(&mut self, server: &str, offered: &[Tool]) {
        self.version = LOCK_VERSION;
        let digests = offered.iter().map(|tool| {
            let name = tool.id.name().to_owned();
            (name, digest(tool))
        });
        self.servers.insert(server.to_owned(), digests.collect());
    }

    /// How the offered tools differ from the file; `None` if it does not have the server.
    pub fn differences(&self, server: &str, offered: &[Tool]) -> Option<Differences> {
        let locked = self.servers.get(server)?;
        let mut differences = Differences::default();
        for tool in offered {
            match locked.get(tool.id.name()) {
                Some(known) if *known == digest(tool) => {}
                Some(_) => differences.changed.push(tool.id.clone()),
                None => differences.new.push(tool.id.clone()),
            }
        }
        for name in locked.keys() {
            let is_offered = offered.iter().any(|tool| tool.id.name() == name);
            if !is_offered && let Ok(id) = ToolId::new(server, name) {
                differences.gone.push(id);
            }
        }
        Some(differences)
    }
}

fn digest(tool: &Tool) -> String {
    hex::encode(Definition::of(tool).as_bytes())
}

/// Lists the tools of every server once, all within this time. `None` for a server that did not answer
/// in time; what was started for it is ended.
pub async fn fetch_within(
    servers: &[ServerConfig],
    connector: &Connector,
    within: Duration,
) -> Vec<Option<Result<OfferedTools, FetchError>>> {
    let deadline = Instant::now() + within;
    let fetched = stream::iter(servers)
        .map(|server| async move { timeout_at(deadline, fetch(server, connector)).await.ok() });
    fetched.buffered(CONCURRENT_FETCHES).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Tool {
        Tool::new("s", name).unwrap().with_description(description)
    }

    #[test]
    fn a_lock_file_tells_what_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.lock");
        let mut lock = Lock::default();
        lock.add(
            "s",
            &[tool("same", ""), tool("other", "a"), tool("gone", "")],
        );
        lock.write(&path).unwrap();
        let lock = Lock::read(&path).unwrap();
        let now = [tool("same", ""), tool("other", "b"), tool("new", "")];
        let differences = lock.differences("s", &now).unwrap();
        let id = |name: &str| vec![ToolId::new("s", name).unwrap()];
        assert_eq!(
            differences,
            Differences {
                changed: id("other"),
                new: id("new"),
                gone: id("gone"),
                blocked: Vec::new(),
            }
        );
        assert_eq!(lock.differences("t", &now), None);
        let same = lock.differences(
            "s",
            &[tool("gone", ""), tool("other", "a"), tool("same", "")],
        );
        assert!(same.unwrap().is_empty());
    }

    #[test]
    fn what_is_no_lock_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.lock");
        assert!(matches!(Lock::read(&path), Err(LockError::File { .. })));
        for text in ["", "{}", r#"{"version": 9, "servers": {}}"#] {
            fs::write(&path, text).unwrap();
            let message = Lock::read(&path).unwrap_err().to_string();
            assert!(message.contains("--write-lock"), "{message}");
        }
    }
}
