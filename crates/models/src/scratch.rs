//! Temporary folders for incomplete downloads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

const PREFIX: &str = ".partial-";
/// A folder that nobody has changed for so long was left by a process that was killed.
const ABANDONED: Duration = Duration::from_hours(24);

/// A folder that is deleted on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates one inside this folder, which is created if missing. Files can then be moved to the
    /// folder by a rename, because both are on one file system.
    pub fn within(folder: &Path) -> Result<Self> {
        remove_abandoned(folder);
        let path = folder.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| {
            format!(
                "create {}; choose another cache with --cache",
                folder.display()
            )
        })?;
        Ok(Scratch(path))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure leaves a few megabytes in the cache and does no other harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Deletes folders of processes that were killed.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        // A time in the future is that of a clock that was wrong, and says nothing.
        if is_scratch
            && let Ok(changed) = changed
            && let Ok(age) = changed.elapsed()
            && age > ABANDONED
        {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Total size of the files below a folder; files that vanish meanwhile count 0.
pub fn bytes_under(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn folders_of_killed_processes_are_deleted_after_a_day() {
        let cache = tempfile::tempdir().unwrap();
        for name in [".partial-1", ".partial-2", "kept"] {
            std::fs::create_dir(cache.path().join(name)).unwrap();
        }
        let age = |name: &str| {
            let folder = File::open(cache.path().join(name)).unwrap();
            folder
                .set_modified(SystemTime::now() - 2 * ABANDONED)
                .unwrap();
        };
        age(".partial-1");
        age("kept");
        let scratch = Scratch::within(cache.path()).unwrap();
        let left = |name: &str| cache.path().join(name).exists();
        assert!(!left(".partial-1") && left(".partial-2") && left("kept"));
        assert!(scratch.path().exists());
    }
}
