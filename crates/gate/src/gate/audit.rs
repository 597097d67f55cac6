//! The audit log in SQLite: which calls were made, for whom, and by which rule. It is append-only,
//! and a hash chain makes edits evident.
//!
//! An entry's hash is SHA-256 over the previous entry's hash, its own number (eight bytes,
//! big-endian) and its text. The chain reveals entries that were changed, removed or inserted. The
//! [anchor] reveals a truncated or rewritten log. An attacker who can read the anchor's key can
//! forge the anchor too; [`AuditLog::verify`] detects even that, given a head hash that was stored
//! on another machine.

pub mod anchor;
pub mod page;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::Mutex;
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
use toolscout_base::clock::unix_ms;
use toolscout_base::printable::counted;

/// The log's file name in the data directory.
pub const FILE_NAME: &str = "audit.db";
/// Attempts to append an entry while other processes append too.
const MAX_RACES: usize = 64;

/// The migrations of the database's schema.
const LAYOUT: &[&str] = &["
    CREATE TABLE IF NOT EXISTS entries (seq INTEGER PRIMARY KEY, entry TEXT NOT NULL, hash BLOB NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS anchored (once INTEGER PRIMARY KEY) STRICT;
    CREATE TRIGGER IF NOT EXISTS entries_are_not_changed BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
    CREATE TRIGGER IF NOT EXISTS entries_are_not_deleted BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;"];

/// One entry of the log.
///
/// A call that is made has two entries, `begun` before it and `ended` after it, since the process
/// may die in between. A call that is not made has one, `refused` or `dry_run`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A call is about to be made.
    Begun {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The call, and the rule that allows it.
        #[serde(flatten)]
        call: Box<CallEntry>,
    },
    /// A call was not made.
    Refused {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The call as it was decided on.
        #[serde(flatten)]
        call: Box<CallEntry>,
        /// Why it was not made.
        error_code: ErrorCode,
    },
    /// A call was answered by a dry run.
    DryRun {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The call as it was decided on.
        #[serde(flatten)]
        call: Box<CallEntry>,
    },
    /// A call has ended.
    Ended {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The number of its `begun` entry.
        begun: i64,
        /// The tool's id.
        tool: String,
        /// Success or failure.
        status: Status,
        /// Why it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
        /// Duration in milliseconds.
        took_ms: u64,
    },
    /// A person has decided on a tool that changed, or has blocked one.
    Reviewed {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The person at the terminal, or the key.
        who: String,
        /// The catalog.
        catalog: String,
        /// The tool's id.
        tool: String,
        /// `accept` or `block`.
        verdict: String,
        /// What had become of the tool: `new`, `changed` or `removed`.
        change: String,
        /// The parts of its definition that had changed.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        parts: Vec<String>,
    },
    /// A person has taken an earlier version of a profile into use.
    ProfileRolledBack {
        /// When, in Unix milliseconds.
        time_ms: u64,
        /// The person at the terminal.
        who: String,
        /// The profile.
        profile: String,
        /// The new version.
        version: u64,
        /// The version whose settings it has.
        rolled_back_to: u64,
        /// The digest of these settings.
        digest: String,
    },
}

/// A call as logged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallEntry {
    /// The person at the terminal, or the key.
    pub who: String,
    /// The user on whose behalf the call is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The conversation, or the session of an MCP client.
    pub conversation: String,
    /// The MCP client, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The call's id within the conversation.
    pub call: String,
    /// The tool's id.
    pub tool: String,
    /// The arguments as the model wrote them, without secrets.
    pub given: Value,
    /// The arguments as sent, without secrets; absent if they are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Value>,
    /// Changes made to the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// How much harm the tool can do.
    pub class: Class,
    /// The policies' decision.
    pub decision: Decision,
    /// The rule that made the decision.
    pub rule: String,
    /// The person's answer, if one was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Checks that failed before the call, which was made nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The tool whose precondition this call is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// Why the call is not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Errors of an audit log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The database cannot be read or written.
    #[error("the audit log {} cannot be used: {source}; check the file and the space on its disk", path.display())]
    Database {
        /// The path of the audit log.
        path: PathBuf,
        /// The database's error.
        source: DatabaseError,
    },
    /// The anchor's file cannot be read or written.
    #[error("the anchor {} of the audit log cannot be used: {source}; check the file and its folder", path.display())]
    AnchorFile {
        /// The path of the audit log.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// There are entries but no anchor.
    #[error("the audit log {} has {} and no anchor {}: the anchor was deleted, or the log was copied without it; review the entries, then trust the log with `toolscout audit anchor`", path.display(), counted(*entries, "entry"), anchor.display())]
    AnchorMissing {
        /// The path of the audit log.
        path: PathBuf,
        /// Where the anchor should be.
        anchor: PathBuf,
        /// Number of entries.
        entries: i64,
    },
    /// The anchor's authentication code is wrong.
    #[error("the anchor {} was not written by this installation: it was edited, or its key was changed; review the entries, then trust the log with `toolscout audit anchor`", anchor.display())]
    AnchorForged {
        /// The path of the anchor.
        anchor: PathBuf,
    },
    /// The log ends before its anchor.
    #[error("the audit log {} has {} and its anchor counts {expected}: the newest {} were cut off, or lost when the machine lost power", path.display(), counted(*found, "entry"), expected - found)]
    CutOff {
        /// The path of the audit log.
        path: PathBuf,
        /// Number of entries.
        found: i64,
        /// The anchored entry's number.
        expected: i64,
    },
    /// The log's entry at the anchor has another hash.
    #[error("entry {seq} of the audit log {} is not the anchored one: entries were cut off and others added, or the log was rewritten", path.display())]
    Rewritten {
        /// The path of the audit log.
        path: PathBuf,
        /// The number of the entry that the anchor names, from 1.
        seq: i64,
    },
    /// The file does not exist.
    #[error("there is no audit log {}; an agent's first call creates it", path.display())]
    Missing {
        /// The path of the audit log.
        path: PathBuf,
    },
    /// The chain is broken.
    #[error("entry {seq} of the audit log {} {what}; the log was changed at this entry or before", path.display())]
    Broken {
        /// The path of the audit log.
        path: PathBuf,
        /// The first entry that breaks the chain.
        seq: i64,
        /// How it breaks the chain.
        what: &'static str,
    },
    /// The verification was stopped.
    #[error("the check of the audit log {} was stopped before it ended", path.display())]
    Stopped {
        /// The path of the audit log.
        path: PathBuf,
    },
    /// The given head hash is not in the chain.
    #[error("no entry of the audit log {} has the hash {head}; entries were cut off, or the log was rewritten", path.display())]
    HeadMissing {
        /// The path of the audit log.
        path: PathBuf,
        /// The hash that was asked for, in hex.
        head: String,
    },
}

/// The result of a successful verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Number of entries.
    pub entries: i64,
    /// The hash of the last entry in hexadecimal. Stored elsewhere, it reveals later whether
    /// entries were cut off.
    pub head: String,
    /// Number of entries that the anchor covers. Entries of a process that was killed may be
    /// missing from it.
    pub anchored: i64,
}

/// An audit log. Appending costs some 40 µs, one statement and one small file write without a disk
/// flush; methods block for that long.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    anchor: Anchor,
    log: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    connection: Connection,
    /// The last entry that this process knows of.
    last: Link,
    anchoring: Anchoring,
}

/// Whether the log matches its anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Anchoring {
    /// Not checked yet.
    Unknown,
    /// The log matches, and each append moves the anchor.
    Matches,
    /// The log does not match. Moving the anchor would hide the missing entries, so it stays.
    Differs,
}

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedEntry {
    /// Its number, from 1.
    pub seq: i64,
    /// Its text, a JSON object.
    pub text: String,
    /// Its hash.
    pub hash: Vec<u8>,
}

/// Verifies a chain entry by entry, wherever its entries come from.
#[derive(Clone, Copy, Debug)]
pub struct ChainCheck {
    last: Link,
}

impl Default for ChainCheck {
    fn default() -> Self {
        ChainCheck {
            last: Link::GENESIS,
        }
    }
}

impl ChainCheck {
    /// Takes the next entry.
    ///
    /// # Errors
    /// How it breaks the chain.
    pub fn push(&mut self, entry: &ChainedEntry) -> Result<(), &'static str> {
        let (next, chained) = self.last.after(&entry.text);
        if entry.seq != next {
            return Err("does not have the next number");
        }
        if entry.hash != chained {
            return Err("does not match its hash");
        }
        self.last = Link {
            seq: next,
            hash: chained,
        };
        Ok(())
    }

    /// The last entry so far; number 0 before the first.
    pub fn last(&self) -> Link {
        self.last
    }
}

/// An entry's number and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The entry's number.
    pub seq: i64,
    /// SHA-256 of the hash before it, its number and its text.
    pub hash: [u8; 32],
}

impl Link {
    /// The link before the first entry.
    const GENESIS: Link = Link {
        seq: 0,
        hash: [0; 32],
    };

    fn last_of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut last =
            connection.prepare_cached("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1")?;
        let link = last.query_row([], |row| {
            Ok(Link {
                seq: row.get(0)?,
                hash: row.get(1)?,
            })
        });
        Ok(link.optional()?.unwrap_or(Link::GENESIS))
    }

    /// The entry of this number.
    fn at(connection: &Connection, seq: i64) -> Option<Self> {
        let select = "SELECT hash FROM entries WHERE seq = ?1";
        let hash = connection.query_row(select, [seq], |row| row.get(0));
        Some(Link {
            seq,
            hash: hash.ok()?,
        })
    }

    /// Number and hash of the next entry, which has this text.
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
    /// Opens a log for appending, creating it if missing.
    ///
    /// # Errors
    /// [`AuditError::Database`].
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let log = AuditLog::with_connection(path, opened(path))?;
        log.anchor_first_time()?;
        Ok(log)
    }

    /// Opens an existing log for reading.
    ///
    /// # Errors
    /// [`AuditError::Missing`], [`AuditError::Database`].
    pub fn open_existing(path: &Path) -> Result<Self, AuditError> {
        if !path.is_file() {
            return Err(AuditError::Missing {
                path: path.to_owned(),
            });
        }
        // Writable, since SQLite has to write to recover the write-ahead log of a process that was
        // killed.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(DatabaseError::from);
        AuditLog::with_connection(path, connection)
    }

    /// Appends an entry and returns its number.
    ///
    /// # Errors
    /// [`AuditError::Database`]; nothing is written then.
    pub fn append(&self, entry: &Entry) -> Result<i64, AuditError> {
        // An enum of strings and numbers always serializes.
        let text = serde_json::to_string(entry).unwrap_or_default();
        let seq = self.append_text(&text);
        seq.map_err(|source| self.database_error(source))
    }

    /// Verifies the whole chain and that it contains the anchored entry; with `head`, also that it
    /// contains an entry with this hash.
    ///
    /// # Errors
    /// [`AuditError::Broken`] for the first entry that breaks the chain,
    /// [`AuditError::HeadMissing`], and the errors of the anchor.
    pub fn verify(&self, head: Option<&str>) -> Result<Verified, AuditError> {
        self.verify_while(head, |_| true)
    }

    /// Verifies as [`AuditLog::verify`] does. `go_on` is told the number of each entry before it is
    /// checked; false stops there.
    ///
    /// # Errors
    /// Those of [`AuditLog::verify`], and [`AuditError::Stopped`].
    pub fn verify_while(
        &self,
        head: Option<&str>,
        mut go_on: impl FnMut(i64) -> bool,
    ) -> Result<Verified, AuditError> {
        // Read before the entries, so that an entry appended meanwhile does not count as missing.
        let anchored = self.anchor.read();
        let (mut last, mut head_found) = (Link::GENESIS, head.is_none());
        let mut at_anchor = None;
        self.for_each_entry(|seq, text, hash| {
            if !go_on(seq) {
                let path = self.path.clone();
                return Err(AuditError::Stopped { path });
            }
            let (next, chained) = last.after(text);
            if seq != next {
                return Err(self.broken(seq, "does not have the next number"));
            }
            if hash != chained {
                return Err(self.broken(seq, "does not match its hash"));
            }
            last = Link { seq, hash };
            if let Ok(Some(anchored)) = &anchored
                && anchored.seq == seq
            {
                at_anchor = Some(hash);
            }
            if let Some(head) = head {
                head_found |= head.eq_ignore_ascii_case(&hex::encode(hash));
            }
            Ok(())
        })?;
        if let (false, Some(head)) = (head_found, head) {
            return Err(AuditError::HeadMissing {
                path: self.path.clone(),
                head: head.to_owned(),
            });
        }
        let anchored = self.check_anchor(anchored, last, at_anchor)?;
        Ok(Verified {
            entries: last.seq,
            head: hex::encode(last.hash),
            anchored,
        })
    }

    /// Anchors the log as it is now, whatever the anchor was before.
    ///
    /// # Errors
    /// [`AuditError::Database`], [`AuditError::AnchorFile`].
    pub fn trust(&self) -> Result<(), AuditError> {
        // Under the lock, so that no entry is appended between reading the last one and anchoring it.
        let mut log = self.log.lock();
        log.last = Link::last_of(&log.connection).map_err(|source| self.database_error(source))?;
        let anchored = self.anchor.replace(log.last);
        anchored.map_err(|error| self.anchor_error(error))?;
        log.anchoring = Anchoring::Matches;
        Ok(())
    }

    /// Compares the anchor with a log that ends with `last` and has the hash `at_anchor` at the
    /// anchor's number. Returns the number of anchored entries.
    fn check_anchor(
        &self,
        anchored: Result<Option<Link>, AnchorError>,
        last: Link,
        at_anchor: Option<[u8; 32]>,
    ) -> Result<i64, AuditError> {
        let (path, anchor) = (self.path.clone(), self.anchor.path().to_owned());
        match anchored.map_err(|error| self.anchor_error(error))? {
            None if last.seq == 0 => Ok(0),
            None => Err(AuditError::AnchorMissing {
                path,
                anchor,
                entries: last.seq,
            }),
            // An anchor of an empty log covers no entry, so none can be missing.
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

    /// Anchors a new log, or one of a version without anchors. Only once, as the table `anchored`
    /// records: an anchor that is missing later was deleted.
    fn anchor_first_time(&self) -> Result<(), AuditError> {
        let log = self.log.lock();
        // Marked in the database and not by the anchor's file, which whoever cuts the log would
        // delete too.
        let mark = "INSERT OR IGNORE INTO anchored VALUES (1)";
        match log.connection.execute(mark, []) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(source) => return Err(self.database_error(source)),
        }
        // `trust` takes the lock itself.
        drop(log);
        self.trust()
    }

    /// At most `limit` entries after this number, as they are stored.
    ///
    /// # Errors
    /// [`AuditError::Database`].
    pub fn entries_after(&self, seq: i64, limit: usize) -> Result<Vec<ChainedEntry>, AuditError> {
        let entries = entries_after(&self.log.lock().connection, seq, limit);
        entries.map_err(|source| self.database_error(source))
    }

    /// Passes every entry to `write` as one line of JSON: `{"seq", "hash", ...}`.
    ///
    /// # Errors
    /// [`AuditError::Database`], and the first error of `write`.
    pub fn export<E: From<AuditError>>(
        &self,
        mut write: impl FnMut(&str) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        self.for_each_entry(|seq, text, hash| {
            if outcome.is_ok() {
                // The entry's text is an object: number and hash become its first fields.
                let rest = text.strip_prefix('{').unwrap_or(text);
                let hash = hex::encode(hash);
                outcome = write(&format!("{{\"seq\":{seq},\"hash\":\"{hash}\",{rest}"));
            }
            Ok(())
        })?;
        outcome
    }

    fn with_connection(
        path: &Path,
        connection: Result<Connection, DatabaseError>,
    ) -> Result<Self, AuditError> {
        let path = path.to_owned();
        let connection = match connection {
            Ok(connection) => connection,
            Err(source) => return Err(AuditError::Database { path, source }),
        };
        // The last entry is read on the first append: a damaged log can still be opened, and
        // `verify` describes the damage.
        let log = Mutex::new(LogState {
            connection,
            last: Link::GENESIS,
            anchoring: Anchoring::Unknown,
        });
        let anchor = Anchor::beside(&path);
        Ok(AuditLog { path, anchor, log })
    }

    /// Moves the anchor to the entry just appended, unless the log differs from the anchor. Calls
    /// are made either way: the entry is written, and `verify` reports what is wrong.
    fn move_anchor(&self, log: &mut LogState) {
        if log.anchoring == Anchoring::Unknown {
            log.anchoring = self.compare_with_anchor(log);
            if log.anchoring == Anchoring::Differs {
                tracing::warn!(path = %self.path.display(), "the audit log does not match its anchor; run `toolscout audit verify` for details");
            }
        }
        if log.anchoring == Anchoring::Matches
            && let Err(error) = self.anchor.advance(log.last)
        {
            tracing::error!(%error, "the anchor of the audit log was not written");
        }
    }

    fn compare_with_anchor(&self, log: &LogState) -> Anchoring {
        match self.anchor.read() {
            Ok(Some(link)) if link.seq == 0 => Anchoring::Matches,
            Ok(Some(link)) if Link::at(&log.connection, link.seq) == Some(link) => {
                Anchoring::Matches
            }
            _ => Anchoring::Differs,
        }
    }

    /// Appends an entry after the last known one. When another process has used the number
    /// meanwhile, reads the new last entry and tries again.
    fn append_text(&self, text: &str) -> rusqlite::Result<i64> {
        let mut log = self.log.lock();
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
            // The number is the primary key, so two processes cannot append the same one. A process
            // that loses continues the chain after the other's entry.
            let is_taken =
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation);
            if !is_taken || races == MAX_RACES {
                return Err(error);
            }
            races += 1;
            log.last = Link::last_of(&log.connection)?;
        }
    }

    fn for_each_entry(
        &self,
        mut visit: impl FnMut(i64, &str, [u8; 32]) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        let log = self.log.lock();
        let failed = |source| self.database_error(source);
        let mut statement = log
            .connection
            .prepare("SELECT seq, entry, hash FROM entries ORDER BY seq")
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let seq = row.get(0).map_err(failed)?;
            let text: String = row.get(1).map_err(failed)?;
            // A hash of another length matches no entry, as the genesis hash matches none.
            let hash: Vec<u8> = row.get(2).map_err(failed)?;
            visit(seq, &text, hash.try_into().unwrap_or(Link::GENESIS.hash))?;
        }
        Ok(())
    }

    fn broken(&self, seq: i64, what: &'static str) -> AuditError {
        let path = self.path.clone();
        AuditError::Broken { path, seq, what }
    }

    fn database_error(&self, source: rusqlite::Error) -> AuditError {
        AuditError::Database {
            path: self.path.clone(),
            source: source.into(),
        }
    }

    fn anchor_error(&self, error: AnchorError) -> AuditError {
        let path = self.anchor.path().to_owned();
        match error {
            AnchorError::Forged => AuditError::AnchorForged { anchor: path },
            AnchorError::File(source) => AuditError::AnchorFile { path, source },
        }
    }
}

fn opened(path: &Path) -> Result<Connection, DatabaseError> {
    let connection = database::open(path, LAYOUT)?;
    // A crash of the machine may lose the last entries, never one in between.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

fn entries_after(
    connection: &Connection,
    seq: i64,
    limit: usize,
) -> rusqlite::Result<Vec<ChainedEntry>> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, entry, hash FROM entries WHERE seq > ?1 ORDER BY seq LIMIT ?2",
    )?;
    let entries = statement.query_map(params![seq, limit as i64], |row| {
        Ok(ChainedEntry {
            seq: row.get(0)?,
            text: row.get(1)?,
            hash: row.get(2)?,
        })
    })?;
    entries.collect()
}

/// Now, in Unix milliseconds.
pub fn now_ms() -> u64 {
    unix_ms(SystemTime::now()).unsigned_abs()
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

    /// Edits the log as an attacker with access to the file would.
    fn tamper(log: &AuditLog, sql: &str) {
        let log = log.log.lock();
        log.connection
            .execute_batch(
                "DROP TRIGGER entries_are_not_changed; DROP TRIGGER entries_are_not_deleted",
            )
            .unwrap();
        log.connection.execute_batch(sql).unwrap();
    }

    #[test]
    fn an_untouched_log_verifies_and_can_be_continued_by_another_process() {
        let (folder, log) = log();
        let head = log.verify(None).unwrap();
        let other = AuditLog::open(&folder.path().join(FILE_NAME)).unwrap();
        assert_eq!(other.append(&ended(9)).unwrap(), 6);
        assert_eq!(log.append(&ended(9)).unwrap(), 7);
        let verified = log.verify(Some(&head.head)).unwrap();
        assert_eq!((head.entries, verified.entries), (5, 7));
    }

    #[test]
    fn every_edit_is_detected() {
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
    fn truncation_is_detected_by_the_anchor_and_by_a_stored_head() {
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
    fn the_database_rejects_edits() {
        let (_folder, log) = log();
        for sql in ["UPDATE entries SET entry = ''", "DELETE FROM entries"] {
            assert!(
                log.log
                    .lock()
                    .connection
                    .execute(sql, [])
                    .unwrap_err()
                    .to_string()
                    .contains("append-only")
            );
        }
    }

    #[test]
    fn entries_are_exported_as_json_lines_with_number_and_hash() {
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
    fn a_missing_log_is_reported() {
        assert!(matches!(
            AuditLog::open_existing(Path::new("/nowhere/a.db")),
            Err(AuditError::Missing { .. })
        ));
    }
}
