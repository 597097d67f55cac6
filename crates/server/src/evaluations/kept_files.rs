//! Files in a folder of a catalog, each named by a UUID that begins with the time when it was made. Everything
//! here blocks.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use toolscout_index::database;
use uuid::Uuid;

use crate::request::error::{ApiError, ApiResult};

const EXTENSION: &str = "jsonl";
/// The end of the name of a file that is being written.
const DRAFT: &str = "new";

/// The files of a folder.
pub struct KeptFiles {
    folder: PathBuf,
}

impl KeptFiles {
    /// Those in this folder of a catalog.
    pub fn new(catalog: &Path, folder: &str) -> Self {
        KeptFiles {
            folder: catalog.join(folder),
        }
    }

    /// The ids of all, oldest first.
    ///
    /// # Errors
    /// Those of the disk; a folder that is not there has no files.
    pub fn ids(&self) -> io::Result<Vec<Uuid>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut ids = Vec::new();
        for entry in entries {
            ids.extend(id_of(&entry?.path()));
        }
        // A folder lists its files in any order. Ids begin with the time, so this sorts by age.
        ids.sort_unstable();
        Ok(ids)
    }

    /// What `read` makes of each file, newest first. A file that cannot be read is logged and left out.
    ///
    /// # Errors
    /// 500 when the folder cannot be read.
    pub fn read_all<T>(&self, read: impl Fn(&Path) -> io::Result<T>) -> ApiResult<Vec<T>> {
        let ids = self.ids().map_err(|error| self.failed("read", &error))?;
        let mut all = Vec::new();
        for id in ids.iter().rev() {
            let path = self.path(*id);
            match read(&path) {
                Ok(one) => all.push(one),
                // Deleted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a file cannot be read")
                }
            }
        }
        Ok(all)
    }

    /// The path of a file.
    pub fn path(&self, id: Uuid) -> PathBuf {
        // A UUID is no path, whatever a client has sent.
        self.folder.join(id.to_string()).with_extension(EXTENSION)
    }

    /// Creates the folder, and deletes drafts left behind. One at a time.
    ///
    /// # Errors
    /// Those of the disk, and for a catalog that was deleted meanwhile.
    pub fn prepare(&self) -> io::Result<()> {
        // Its parents are not created: a catalog that was deleted meanwhile must stay deleted.
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => database::narrow(&self.folder)?,
        };
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == DRAFT) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&self, id: Uuid, bytes: &[u8]) -> io::Result<()> {
        let (path, draft) = (self.path(id), self.path(id).with_extension(DRAFT));
        let written = write_draft(&draft, bytes).and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            // On a full disk the draft would take space that others need.
            let _ = fs::remove_file(&draft);
        }
        written
    }

    /// The error for a disk that failed.
    pub fn failed(&self, action: &str, error: &io::Error) -> ApiError {
        ApiError::internal(format!("{action} {}: {error}", self.folder.display()))
    }
}

/// The id of a file; `None` for a draft, or what a person has put there.
fn id_of(path: &Path) -> Option<Uuid> {
    if path.extension()? != EXTENSION {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

fn write_draft(draft: &Path, bytes: &[u8]) -> io::Result<()> {
    database::make_private(draft)?;
    let mut file = File::create(draft)?;
    file.write_all(bytes)?;
    // Synced before the file gets its name, so that a crash never leaves a half-written file under it.
    file.sync_all()
}
