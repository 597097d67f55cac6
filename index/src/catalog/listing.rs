//! The names of a data directory's catalogs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::{CATALOGS, Contents, DataDir};
use crate::error::{IoResult, Result};
use crate::files::FileState;

/// Lists the catalogs of a data directory, and reads it again only where something was created or
/// deleted in it since: with thousands of folders, reading each takes a while.
pub struct Listing {
    data: DataDir,
    /// The folder of all catalogs when it was read.
    folder: Option<FileState>,
    is_settled: bool,
    names: Arc<BTreeSet<String>>,
    /// Folders that may become catalogs: their creation was interrupted or is under way.
    undecided: Vec<String>,
}

impl Listing {
    /// Nothing is read yet.
    pub fn new(data: DataDir) -> Self {
        Listing {
            data,
            folder: None,
            is_settled: false,
            names: Arc::default(),
            undecided: Vec::new(),
        }
    }

    /// The names of all catalogs, sorted, including damaged ones.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn names(&mut self) -> Result<Arc<BTreeSet<String>>> {
        let path = self.path();
        // Before it is read: what changes meanwhile is noticed the next time.
        let folder = FileState::of(&path);
        let is_same = folder.is_some() && folder == self.folder && self.is_settled;
        let candidates = match is_same {
            true => std::mem::take(&mut self.undecided),
            false => {
                let found = self.folders()?;
                self.forget_all_but(&found);
                self.is_settled = folder.as_ref().is_some_and(FileState::is_settled);
                self.folder = folder;
                found
            }
        };
        self.decide(candidates);
        Ok(Arc::clone(&self.names))
    }

    /// How many there are, without those that other processes have created or deleted since the last
    /// reading.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn count(&mut self) -> Result<usize> {
        match self.folder {
            Some(_) => Ok(self.names.len()),
            None => Ok(self.names()?.len()),
        }
    }

    /// Adds one that was just created, so that it need not be looked for.
    pub fn note_created(&mut self, name: &str) {
        if !self.names.contains(name) {
            Arc::make_mut(&mut self.names).insert(name.to_owned());
        }
    }

    /// Takes out one that was just deleted.
    pub fn note_deleted(&mut self, name: &str) {
        if self.names.contains(name) {
            Arc::make_mut(&mut self.names).remove(name);
        }
    }

    fn path(&self) -> PathBuf {
        self.data.path.join(CATALOGS)
    }

    fn folders(&self) -> Result<Vec<String>> {
        let path = self.path();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let entries = std::fs::read_dir(&path).named("read", &path)?;
        let mut names = Vec::new();
        for entry in entries.flatten() {
            // A catalog's name is ASCII, so a folder with another one is none.
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn forget_all_but(&mut self, found: &[String]) {
        let found: BTreeSet<&String> = found.iter().collect();
        // Callers share the names, so they are only copied for a change.
        if self.names.iter().any(|name| !found.contains(name)) {
            Arc::make_mut(&mut self.names).retain(|name| found.contains(name));
        }
        self.undecided.clear();
    }

    /// Adds those of these folders that are catalogs.
    fn decide(&mut self, candidates: Vec<String>) {
        for name in candidates {
            if self.names.contains(&name) {
                continue;
            }
            // A folder with an invalid name is no catalog and cannot become one.
            let Ok(dir) = self.data.catalog_dir(&name) else {
                continue;
            };
            match Contents::of(&dir) {
                Contents::Nothing => self.undecided.push(name),
                _ => self.note_created(&name),
            }
        }
    }
}
