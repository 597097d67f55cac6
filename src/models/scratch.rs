//! A place for what is not yet whole.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder that goes away with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one inside this folder, which is made too: what is moved out of it never crosses file
    /// systems.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it being gone; a leftover is a few megabytes in a cache.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes of all files below a folder; what vanishes meanwhile counts nothing.
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
