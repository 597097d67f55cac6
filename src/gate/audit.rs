//! The audit log: what was called, by whom and why it was let through, in SQLite. Only ever added
//! to, each entry chained to the one before it by its hash, so that an edit shows.
//!
//! An entry's hash is SHA-256 over the hash before it, its number (eight bytes, big-endian) and its
//! text. The chain shows what was changed, taken out or put in between. That the newest entries
//! were cut off, or the whole log was written anew, shows by its [anchor]. Whoever can read the
//! anchor's key can forge that too; a head's hash that was kept on another machine shows it even
//! then, and [`AuditLog::verify`] takes one.

pub mod anchor;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use toolscout_index::database::{self, DatabaseError};

use crate::gate::approval::Answer;
use crate::gate::audit::anchor::{Anchor, AnchorError};
use crate::gate::class::Class;
use crate::gate::normalize::Change;
use crate::gate::policy::Decision;
use crate::tools::{ErrorCode, Status};

/// The log, in the data directory.
pub const FILE_NAME: &str = "audit.db";
/// How often an entry is tried to be added where other processes are faster.
const MAX_RACES: usize = 64;

/// The steps of the database's layout.
const LAYOUT: &[&str] = &["
    CREATE TABLE IF NOT EXISTS entries (seq INTEGER PRIMARY KEY, entry TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS anchored (once INTEGER PRIMARY KEY) STRICT;
    CREATE TRIGGER IF NOT EXISTS entries_are_not_changed BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
    CREATE TRIGGER IF NOT EXISTS entries_are_not_deleted BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;"];

/// What is written down of a call.
///
/// A call that is carried out has two entries, since its end may never come: `begun` before it,
/// `ended` after it. Any other has one, `refused` or `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A call is about to be made.
    Begun {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// What is called and why that is allowed.
        #[serde(flatten)]
        call: Box<CallEntry>,
    },
    /// A call was not made.
    Refused {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// What would have been called.
        #[serde(flatten)]
        call: Box<CallEntry>,
        /// Why not.
        error_code: ErrorCode,
    },
    /// A call was answered with what would have been called.
    DryRun {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// What would have been called.
        #[serde(flatten)]
        call: Box<CallEntry>,
    },
    /// A call that had begun has ended.
    Ended {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The number of the entry of its begin.
        begun: i64,
        /// The tool's id.
        tool: String,
        /// How it ended.
        status: Status,
        /// Why it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
        /// Milliseconds it took.
        took_ms: u64,
    },
}

/// A call as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallEntry {
    /// Who asked: a person at a terminal, or a key.
    pub who: String,
    /// On whose behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The conversation, or the session of an MCP client.
    pub conversation: String,
    /// The MCP client, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The call's id within it.
    pub call: String,
    /// The tool's id.
    pub tool: String,
    /// The arguments as the model wrote them, without secrets.
    pub given: Value,
    /// The arguments as they are sent, without secrets; absent where they are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Value>,
    /// What was changed, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What the tool can do.
    pub class: Class,
    /// What the policies say.
    pub decision: Decision,
    /// The rule that says so.
    pub rule: String,
    /// What the person said who was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// The tool whose precondition this call is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// Why it is not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is wrong with a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file cannot be used.
    #[error("the audit log {} cannot be used: {source}; check the file and the space on its disk", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database said.
        source: DatabaseError,
    },
    /// The anchor's file cannot be used.
    #[error("the anchor {} of the audit log cannot be used: {source}; check the file and its folder", path.display())]
    AnchorFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There are entries and no anchor.
    #[error("the audit log {} has {entries} entries and no anchor {}: it was taken away, or the log was copied without it; look at the entries, then `toolscout audit anchor` trusts the log as it is", path.display(), anchor.display())]
    AnchorMissing {
        /// The file.
        path: PathBuf,
        /// Where its anchor should be.
        anchor: PathBuf,
        /// Number of its entries.
        entries: i64,
    },
    /// The anchor's code does not fit.
    #[error("the anchor {} was not written by this installation: it was edited, or its key was changed; look at the entries, then `toolscout audit anchor` trusts the log as it is", anchor.display())]
    AnchorForged {
        /// The file.
        anchor: PathBuf,
    },
    /// The log ends before its anchor.
    #[error("the audit log {} holds {found} entries and its anchor counts {expected}: the newest {} were cut off, or lost when the machine lost power", path.display(), expected - found)]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Number of its entries.
        found: i64,
        /// Number that the anchor counts.
        expected: i64,
    },
    /// The log's entry at the anchor is another one.
    #[error("entry {seq} of the audit log {} is not the one that its anchor knows: entries were cut off and others added, or the log was written anew", path.display())]
    Rewritten {
        /// The file.
        path: PathBuf,
        /// The entry.
        seq: i64,
    },
    /// There is no such file.
    #[error("there is no audit log {}; an agent's first call makes it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The chain is broken.
    #[error("entry {seq} of the audit log {} {what}; from there on it is not what was written", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The first entry that does not fit.
        seq: i64,
        /// What does not fit.
        what: &'static str,
    },
    /// A hash that was kept is not in the chain.
    #[error("no entry of the audit log {} has the hash {head}; entries were cut off, or the log was written anew", path.display())]
    HeadMissing {
        /// The file.
        path: PathBuf,
        /// The hash that was looked for.
        head: String,
    },
}

/// What a whole log amounts to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Number of its entries.
    pub entries: i64,
    /// The hash of the last one in hexadecimal: kept elsewhere, it shows later whether entries were
    /// cut off.
    pub head: String,
    /// Number of entries that the anchor vouches for. It may be behind by those of a process that
    /// was killed.
    pub anchored: i64,
}

/// An audit log. Cheap to append to (one statement and one small file without a disk flush, some 40
/// µs); methods block for that long.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    anchor: Anchor,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    connection: Connection,
    /// The last entry, as far as this process knows.
    last: Link,
    /// Whether what is appended is anchored: not where the log was found not to be the anchor's.
    trust: Trust,
}

/// Whether a log is that of its anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Not looked at yet.
    Unknown,
    /// It is.
    Anchored,
    /// It is not. What is appended now must not make good what is missing.
    Broken,
}

/// The place of an entry in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The entry's number.
    pub seq: i64,
    /// Its hash.
    pub hash: [u8; 32],
}

impl Link {
    /// Before the first entry.
    const GENESIS: Link = Link {
        seq: 0,
        hash: [0; 32],
    };

    fn last_of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut last =
            connection.prepare_cached("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1")?;
        let link = last
            .query_row([], |row| {
                Ok(Link {
                    seq: row.get(0)?,
                    hash: row.get(1)?,
                })
            })
            .optional()?;
        Ok(link.unwrap_or(Link::GENESIS))
    }

    /// The entry of this number.
    fn at(connection: &Connection, seq: i64) -> Option<Self> {
        let hash = connection.query_row("SELECT hash FROM entries WHERE seq = ?1", [seq], |row| {
            row.get(0)
        });
        hash.ok().map(|hash| Link { seq, hash })
    }

    /// Number and hash of the entry that comes next.
    fn after(&self, text: &str) -> (i64, [u8; 32]) {
        let seq = self.seq + 1;
        let hash = Sha256::new()
            .chain_update(self.hash)
            .chain_update(seq.to_be_bytes())
            .chain_update(text)
            .finalize();
        (seq, hash.into())
    }
}

impl AuditLog {
    /// Opens a log to append to, created when it is not there.
    ///
    /// # Errors
    /// [`AuditError::Database`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let connection = database::open(path, LAYOUT).and_then(|connection| {
            // A crash of the machine may lose the last entries, never one in between.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            Ok(connection)
        });
        let log = AuditLog::of(path, connection)?;
        log.anchor_first_time()?;
        Ok(log)
    }

    /// Opens a log to read.
    ///
    /// # Errors
    /// [`AuditError::Missing`], [`AuditError::Database`].
    pub fn open_existing(path: &Path) -> Result<Self, AuditError> {
        if !path.is_file() {
            return Err(AuditError::Missing {
                path: path.to_owned(),
            });
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        AuditLog::of(
            path,
            Connection::open_with_flags(path, flags).map_err(DatabaseError::from),
        )
    }

    /// Appends an entry and returns its number.
    ///
    /// # Errors
    /// [`AuditError::Database`]; nothing is written then.
    pub fn append(&self, entry: &Entry) -> Result<i64, AuditError> {
        // A closed enum of strings and numbers always serialises.
        let text = serde_json::to_string(entry).unwrap_or_default();
        self.append_text(&text)
            .map_err(|source| self.failed(source))
    }

    /// Checks the whole chain, and that it holds the entry of its anchor; with `head`, also one of
    /// this hash.
    ///
    /// # Errors
    /// [`AuditError::Broken`] naming the first entry that does not fit, [`AuditError::HeadMissing`], and what is wrong with
    /// the anchor.
    pub fn verify(&self, head: Option<&str>) -> Result<Verified, AuditError> {
        // Before the entries: one that is appended meanwhile is not missing.
        let anchored = self.anchor.read();
        let (mut last, mut seen) = (Link::GENESIS, head.is_none());
        let mut at_anchor = None;
        self.each(|seq, text, hash| {
            let broken = |what| {
                Err(AuditError::Broken {
                    path: self.path.clone(),
                    seq,
                    what,
                })
            };
            let (next, chained) = last.after(text);
            if seq != next {
                return broken("has not the number that comes next");
            }
            if hash != chained {
                return broken("does not fit its hash");
            }
            last = Link { seq, hash };
            if anchored
                .as_ref()
                .is_ok_and(|anchored| anchored.is_some_and(|anchored| anchored.seq == seq))
            {
                at_anchor = Some(hash);
            }
            seen |= head.is_some_and(|head| head.eq_ignore_ascii_case(&hex(&hash)));
            Ok(())
        })?;
        if let (false, Some(head)) = (seen, head) {
            return Err(AuditError::HeadMissing {
                path: self.path.clone(),
                head: head.to_owned(),
            });
        }
        let anchored = self.checked(anchored, last, at_anchor)?;
        Ok(Verified {
            entries: last.seq,
            head: hex(&last.hash),
            anchored,
        })
    }

    /// Makes the log as it is now the one that its anchor knows, whatever it was before.
    ///
    /// # Errors
    /// [`AuditError::Database`], [`AuditError::AnchorFile`].
    pub fn trust(&self) -> Result<(), AuditError> {
        let mut log = self.lock();
        log.last = Link::last_of(&log.connection).map_err(|source| self.failed(source))?;
        self.anchor
            .replace(log.last)
            .map_err(|error| self.anchor_failed(error))?;
        log.trust = Trust::Anchored;
        Ok(())
    }

    /// What the anchor says of a log that ends with this entry, and has this hash at the anchor's
    /// number.
    fn checked(
        &self,
        anchored: Result<Option<Link>, AnchorError>,
        last: Link,
        at_anchor: Option<[u8; 32]>,
    ) -> Result<i64, AuditError> {
        let (path, anchor) = (self.path.clone(), self.anchor.path().to_owned());
        match anchored.map_err(|error| self.anchor_failed(error))? {
            None if last.seq == 0 => Ok(0),
            None => Err(AuditError::AnchorMissing {
                path,
                anchor,
                entries: last.seq,
            }),
            Some(Link { seq: 0, .. }) => Ok(0),
            Some(Link { seq, .. }) if seq > last.seq => Err(AuditError::CutOff {
                path,
                found: last.seq,
                expected: seq,
            }),
            Some(Link { seq, hash }) if at_anchor != Some(hash) => {
                Err(AuditError::Rewritten { path, seq })
            }
            Some(Link { seq, .. }) => Ok(seq),
        }
    }

    /// Anchors a log that an earlier version began, or that is new. Only once: an anchor that is
    /// missing later was taken away.
    fn anchor_first_time(&self) -> Result<(), AuditError> {
        let log = self.lock();
        let marked = log
            .connection
            .execute("INSERT OR IGNORE INTO anchored VALUES (1)", []);
        if marked.map_err(|source| self.failed(source))? == 0 {
            return Ok(());
        }
        drop(log);
        self.trust()
    }

    /// Hands out every entry as one line of JSON: `{"seq", "hash", ...}`.
    ///
    /// # Errors
    /// [`AuditError::Database`], and what `line` gives.
    pub fn export<E: From<AuditError>>(
        &self,
        mut line: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        self.each(|seq, text, hash| {
            if outcome.is_ok() {
                let rest = text.strip_prefix('{').unwrap_or(text);
                outcome = line(&format!(
                    "{{\"seq\":{seq},\"hash\":\"{}\",{rest}",
                    hex(&hash)
                ));
            }
            Ok(())
        })?;
        outcome
    }

    fn of(path: &Path, connection: Result<Connection, DatabaseError>) -> Result<Self, AuditError> {
        let connection = connection.map_err(|source| AuditError::Database {
            path: path.to_owned(),
            source,
        })?;
        // Read when it is first needed: a log that is damaged can still be opened, to be told so.
        let log = Mutex::new(Log {
            connection,
            last: Link::GENESIS,
            trust: Trust::Unknown,
        });
        Ok(AuditLog {
            path: path.to_owned(),
            anchor: Anchor::beside(path),
            log,
        })
    }

    /// Moves the anchor to the entry just appended, unless the log is not the anchor's. Calls go on
    /// either way: the entry is written, and `verify` says what is wrong.
    fn move_anchor(&self, log: &mut Log) {
        if log.trust == Trust::Unknown {
            let known = self.anchor.read().ok().flatten();
            let fits = known.is_some_and(|known| {
                known.seq == 0 || Link::at(&log.connection, known.seq) == Some(known)
            });
            log.trust = if fits { Trust::Anchored } else { Trust::Broken };
            if !fits {
                tracing::warn!(path = %self.path.display(), "the audit log is not that of its anchor; `toolscout audit verify` says why");
            }
        }
        if log.trust == Trust::Anchored
            && let Err(error) = self.anchor.advance(log.last)
        {
            tracing::error!(%error, "the anchor of the audit log was not written");
        }
    }

    /// Adds an entry after the last one that is known. Where another process was there first, its
    /// number is taken, and the new last one is read.
    fn append_text(&self, text: &str) -> rusqlite::Result<i64> {
        let mut log = self.lock();
        let mut races = 0;
        loop {
            let (seq, hash) = log.last.after(text);
            let written = log
                .connection
                .prepare_cached("INSERT INTO entries (seq, entry, hash) VALUES (?1, ?2, ?3)")?
                .execute(params![seq, text, hash]);
            let Err(error) = written else {
                log.last = Link { seq, hash };
                self.move_anchor(&mut log);
                return Ok(seq);
            };
            let is_taken =
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation);
            if !is_taken || races == MAX_RACES {
                return Err(error);
            }
            races += 1;
            log.last = Link::last_of(&log.connection)?;
        }
    }

    fn each(
        &self,
        mut visit: impl FnMut(i64, &str, [u8; 32]) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let log = self.lock();
        let failed = |source| self.failed(source);
        let mut statement = log
            .connection
            .prepare("SELECT seq, entry, hash FROM entries ORDER BY seq")
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let seq = row.get(0).map_err(failed)?;
            let text: String = row.get(1).map_err(failed)?;
            // A hash of another length fits nothing.
            let hash: Vec<u8> = row.get(2).map_err(failed)?;
            visit(seq, &text, hash.try_into().unwrap_or(Link::GENESIS.hash))?;
        }
        Ok(())
    }

    fn failed(&self, source: rusqlite::Error) -> AuditError {
        AuditError::Database {
            path: self.path.clone(),
            source: source.into(),
        }
    }

    fn anchor_failed(&self, error: AnchorError) -> AuditError {
        let path = self.anchor.path().to_owned();
        match error {
            AnchorError::Forged => AuditError::AnchorForged { anchor: path },
            AnchorError::File(source) => AuditError::AnchorFile { path, source },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(took_ms: u64) -> Entry {
        let tool = "a/b".to_owned();
        Entry::Ended {
            time_ms: 1,
            begun: 1,
            tool,
            status: Status::Ok,
            error_code: None,
            took_ms,
        }
    }

    fn log() -> (tempfile::TempDir, AuditLog) {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&folder.path().join(FILE_NAME)).unwrap();
        (0..5).for_each(|number| assert!(log.append(&ended(number)).is_ok()));
        (folder, log)
    }

    /// Edits the log as somebody with the file in hands would.
    fn tamper(log: &AuditLog, sql: &str) {
        let log = log.lock();
        log.connection
            .execute_batch(
                "DROP TRIGGER entries_are_not_changed; DROP TRIGGER entries_are_not_deleted",
            )
            .unwrap();
        log.connection.execute_batch(sql).unwrap();
    }

    #[test]
    fn a_log_that_nobody_touched_is_whole_and_goes_on_in_another_process() {
        let (folder, log) = log();
        let head = log.verify(None).unwrap();
        let other = AuditLog::open(&folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(other.append(&ended(9)).unwrap(), 6);
        assert_eq!(log.append(&ended(9)).unwrap(), 7);
        let verified = log.verify(Some(&head.head)).unwrap();
        assert_eq!((head.entries, verified.entries), (5, 7));
    }

    #[test]
    fn every_way_to_edit_shows() {
        for (sql, expected) in [
            (
                "UPDATE entries SET entry = replace(entry, 'a/b', 'a/c') WHERE seq = 3",
                "entry 3",
            ),
            ("DELETE FROM entries WHERE seq = 3", "entry 4"),
            ("DELETE FROM entries WHERE seq = 1", "entry 2"),
            ("UPDATE entries SET seq = 9 WHERE seq = 5", "entry 9"),
            ("UPDATE entries SET hash = x'00' WHERE seq = 2", "entry 2"),
            (
                "UPDATE entries SET seq = 99 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 3; UPDATE entries SET seq = 3 WHERE seq = 99",
                "entry 2",
            ),
            ("INSERT INTO entries VALUES (6, '{}', x'00')", "entry 6"),
        ] {
            let (_folder, log) = log();
            tamper(&log, sql);
            let message = log.verify(None).unwrap_err().to_string();
            assert!(message.contains(expected), "{sql}: {message}");
        }
    }

    #[test]
    fn entries_cut_off_show_by_the_anchor_and_to_who_kept_the_head() {
        let (_folder, log) = log();
        let head = log.verify(None).unwrap().head;
        tamper(&log, "DELETE FROM entries WHERE seq > 3");
        assert!(matches!(
            log.verify(None),
            Err(AuditError::CutOff {
                found: 3,
                expected: 5,
                ..
            })
        ));
        log.trust().unwrap();
        assert_eq!(log.verify(None).unwrap().entries, 3);
        assert!(matches!(
            log.verify(Some(&head)),
            Err(AuditError::HeadMissing { .. })
        ));
    }

    #[test]
    fn the_database_itself_refuses_edits() {
        let (_folder, log) = log();
        for sql in ["UPDATE entries SET entry = ''", "DELETE FROM entries"] {
            assert!(
                log.lock()
                    .connection
                    .execute(sql, [])
                    .unwrap_err()
                    .to_string()
                    .contains("append-only")
            );
        }
    }

    #[test]
    fn entries_are_exported_as_lines_with_number_and_hash() {
        let (_folder, log) = log();
        let mut lines: Vec<Value> = Vec::new();
        log.export(|line| -> Result<(), AuditError> {
            lines.push(serde_json::from_str(line).unwrap());
            Ok(())
        })
        .unwrap();
        assert_eq!(lines.len(), 5);
        assert_eq!(
            (&lines[4]["seq"], &lines[4]["event"], &lines[4]["took_ms"]),
            (&5.into(), &"ended".into(), &4.into())
        );
        assert_eq!(lines[4]["hash"], log.verify(None).unwrap().head);
    }

    #[test]
    fn a_log_that_is_not_there_is_said() {
        assert!(matches!(
            AuditLog::open_existing(Path::new("/nowhere/a.db")),
            Err(AuditError::Missing { .. })
        ));
    }
}
