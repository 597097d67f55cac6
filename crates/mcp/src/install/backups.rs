//! The backups of settings that were changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{InstallError, done, target_of, with_suffix};

/// Numbered backups of one file; after these, the last one is overwritten.
const MAX_BACKUPS: usize = 1000;
/// The newest backups of one file that are kept.
const KEPT_BACKUPS: usize = 10;

/// Settings that were put back.
#[derive(Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where they were.
    pub backup: PathBuf,
    /// Where those are that they replaced.
    pub replaced: Option<PathBuf>,
}

/// Puts the newest backup of these settings back, byte for byte. The backup is used up: the next call puts
/// back the one before it.
///
/// # Errors
/// [`InstallError`] when there is no backup, or it cannot be moved.
pub fn restore(path: &Path) -> Result<Restored, InstallError> {
    let path = target_of(path);
    let Some(newest) = newest_number(&path, "backup") else {
        return Err(InstallError::NoBackup { path });
    };
    let backup = numbered(&path, "backup", newest);
    // The client may have written to them since.
    let mut replaced = None;
    if path.exists() {
        let kept = free_name(&path, "replaced");
        done("write", &kept, fs::rename(&path, &kept))?;
        replaced = Some(kept);
    }
    done("replace", &path, fs::rename(&backup, &path))?;
    Ok(Restored { backup, replaced })
}

/// The path with the number behind it that follows the newest one. A number that somebody deleted is not
/// taken again, so that the highest is always the newest.
pub(super) fn free_name(path: &Path, suffix: &str) -> PathBuf {
    let next = newest_number(path, suffix).map_or(1, |newest| newest + 1);
    // Nobody needs more of them, so the last one is overwritten.
    numbered(path, suffix, next.min(MAX_BACKUPS))
}

/// Keeps the newest backups alone.
pub(super) fn remove_old_backups(path: &Path) -> Result<(), InstallError> {
    let newest = newest_number(path, "backup").unwrap_or_default();
    for number in 1..=newest.saturating_sub(KEPT_BACKUPS) {
        let old = numbered(path, "backup", number);
        match fs::remove_file(&old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(InstallError::io("remove the old backup", &old, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The number of the file that was written last beside this path, as its `suffix-NUMBER`; the highest, since
/// numbers grow and are not taken again.
fn newest_number(path: &Path, suffix: &str) -> Option<usize> {
    (1..=MAX_BACKUPS).rfind(|number| numbered(path, suffix, *number).exists())
}

pub(super) fn numbered(path: &Path, suffix: &str, number: usize) -> PathBuf {
    with_suffix(path, &format!("{suffix}-{number}"))
}
