//! The folder of an index, written without syncing: the index is derived data. After a power failure
//! its files may be cut short, empty or of an earlier commit. The manifest then does not fit them,
//! and the index is built again.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, TerminatingWrite,
    WatchCallback, WatchHandle, WritePtr,
};

/// Numbers drafts of this process, so that no two threads write the same.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Debug)]
pub struct UnsyncedDirectory {
    folder: PathBuf,
    mapped: MmapDirectory,
}

impl UnsyncedDirectory {
    /// An existing folder.
    ///
    /// # Errors
    /// tantivy's, for a folder that cannot be opened.
    pub fn open(folder: &Path) -> tantivy::Result<Self> {
        Ok(UnsyncedDirectory {
            mapped: MmapDirectory::open(folder)?,
            folder: folder.to_owned(),
        })
    }
}

impl Directory for UnsyncedDirectory {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.mapped.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.mapped.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.mapped.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let created = File::options()
            .write(true)
            .create_new(true)
            .open(self.folder.join(path));
        match created {
            Ok(file) => Ok(BufWriter::new(Box::new(UnsyncedFile(file)))),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(OpenWriteError::FileAlreadyExists(path.to_owned()))
            }
            Err(error) => Err(OpenWriteError::wrap_io_error(error, path.to_owned())),
        }
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.mapped.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = self
            .folder
            .join(format!(".{}-{number}.new", std::process::id()));
        let written = fs::write(&draft, data);
        let replaced = written.and_then(|()| fs::rename(&draft, self.folder.join(path)));
        if replaced.is_err() {
            // On a full disk it would keep what the database needs.
            let _ = fs::remove_file(&draft);
        }
        replaced
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.mapped.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.mapped.watch(callback)
    }
}

struct UnsyncedFile(File);

impl Write for UnsyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl TerminatingWrite for UnsyncedFile {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.0.flush()
    }
}
