//! Temporary folders for incomplete downloads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that is deleted on drop.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates one inside this folder, which is created if missing. Files can then be moved to the
    /// folder by a rename, because both are on one file system.
    pub fn within(folder: &Path) -> Result<Self> {
        let path = folder.join(format!(".partial-{}", std::process::id()));
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

/// Total size of the files below a folder; files that vanish meanwhile count 0.
pub fn bytes_under(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_under(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}
