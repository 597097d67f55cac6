//! What was changed in a catalog by accepted changes, so that a change can be taken back. A catalog of a data
//! directory has it in a file in its folder; one of a shared store has it in the store.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Change, Content, Entry};
use crate::error::{EvalError, Result};

/// The name of the file.
const FILE_NAME: &str = "improvements.jsonl";

/// One line: a change that was written to the catalog, or one that was taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number in this catalog, from 1.
    pub id: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The generation of the catalog with it.
    pub generation: u64,
    /// What was done.
    #[serde(flatten)]
    pub what: What,
}

/// What a line is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A change was written.
    Applied {
        /// Number of queries that it was measured with.
        queries: usize,
        /// The change.
        change: Change,
    },
    /// The change of this line was taken back.
    Reverted(u64),
}

/// The changes of a catalog.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    lines: Vec<Line>,
}

impl Journal {
    /// Of these lines, the oldest first.
    pub fn new(lines: Vec<Line>) -> Self {
        Journal { lines }
    }

    /// Its lines, oldest first.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Whether the change of this line was taken back.
    pub fn is_reverted(&self, id: u64) -> bool {
        let mut lines = self.lines.iter();
        lines.any(|line| line.what == What::Reverted(id))
    }

    /// The entries of a change that is in the catalog; `None` if there is none with this number.
    pub fn applied(&self, id: u64) -> Option<&[Entry]> {
        let line = self.lines.iter().find(|line| line.id == id)?;
        match &line.what {
            What::Applied { change, .. } if !self.is_reverted(id) => Some(&change.entries),
            _ => None,
        }
    }
}

/// The file of a catalog.
pub struct JournalFile {
    path: PathBuf,
    journal: Journal,
}

impl JournalFile {
    /// Reads that of the catalog in this folder; without a file it is empty.
    ///
    /// # Errors
    /// [`EvalError::Io`], and [`EvalError::Malformed`] for a line that is none.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(EvalError::io("read", &path, error)),
        };
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(line) => lines.push(line),
                Err(error) => {
                    return Err(EvalError::malformed(&path, number + 1, error.to_string()));
                }
            }
        }
        let journal = Journal::new(lines);
        Ok(JournalFile { path, journal })
    }

    /// What it has.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Appends a line. Returns its number.
    ///
    /// # Errors
    /// [`EvalError::Io`].
    pub fn append(&mut self, at_ms: i64, generation: u64, what: What) -> Result<u64> {
        let id = self.journal.lines.last().map_or(1, |line| line.id + 1);
        let line = Line {
            id,
            at_ms,
            generation,
            what,
        };
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        // It has the texts of requests.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
        // Synced, because without its line a change could not be taken back.
        let written = options.open(&self.path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(EvalError::failed_to("write", &self.path))?;
        self.journal.lines.push(line);
        Ok(id)
    }
}

/// The content without these entries, and how many of them it had.
pub fn without(entries: &[Entry], content: &Content) -> (Content, usize) {
    let mut content = content.clone();
    let mut removed = 0;
    // In the reverse of the order in which they were added.
    for entry in entries.iter().rev() {
        removed += usize::from(entry.remove_from(&mut content));
    }
    (content, removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::improve::{Decision, Kind};

    fn applied() -> What {
        What::Applied {
            queries: 40,
            change: Change {
                kind: Kind::Aliases,
                decision: Decision::Accepted,
                proposed: 2,
                entries: vec![Entry::Alias {
                    tool: "mail/send".into(),
                    name: "drop a line".into(),
                }],
                before: 0.5,
                after: 0.6,
                gain_ci95: [0.05, 0.15],
                p: 0.007,
                lost: 1,
            },
        }
    }

    #[test]
    fn a_change_is_found_until_it_is_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = JournalFile::open(folder.path()).unwrap();
        assert_eq!(file.append(1, 7, applied()).unwrap(), 1);
        assert_eq!(file.append(2, 8, applied()).unwrap(), 2);
        let mut file = JournalFile::open(folder.path()).unwrap();
        assert_eq!(file.journal().applied(1).unwrap().len(), 1);
        assert_eq!(file.append(3, 9, What::Reverted(1)).unwrap(), 3);
        let file = JournalFile::open(folder.path()).unwrap();
        let journal = file.journal();
        assert!(journal.applied(1).is_none() && journal.applied(2).is_some());
        assert!(journal.applied(3).is_none() && journal.applied(4).is_none());
        assert_eq!(journal.lines().len(), 3);
    }

    #[test]
    fn a_broken_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE_NAME), "{\"id\": 1}\n").unwrap();
        let error = JournalFile::open(folder.path())
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("improvements.jsonl:1"), "{error}");
    }
}
