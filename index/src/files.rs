//! Files: atomic replacement, detection of replaced files, and checksums.
//!
//! Replacement is written out, since no library that was tried gives all of its guarantees.
//! `tempfile` 3.27 persists a file without syncing it or its folder, and creates it for its owner
//! alone, so that other users could not read a shared catalog. `atomic-write-file` 0.3.1 syncs both
//! and leaves its draft behind where the rename fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// Bytes of a [`checksum`]: random damage passes once in 2^64 times.
// Against damage and not against forgery: whoever can write the bytes can write a sum too.
pub const CHECKSUM_BYTES: usize = 8;

/// The longest tick of a file system's clock, FAT's.
const COARSEST_CLOCK: Duration = Duration::from_secs(2);

/// Replaces a file atomically: at any moment it has its old content or all of `bytes`. When this
/// returns, the new content survives a power cut.
///
/// # Errors
/// [`Error::Io`]; the file is then as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = draft_of(path);
    let Err(error) = replace_by(&draft, path, bytes) else {
        return Ok(());
    };
    // A draft that is left behind does no harm.
    let _ = fs::remove_file(&draft);
    Err(Error::io("write", path, error))
}

fn replace_by(draft: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_synced(draft, bytes)?;
    fs::rename(draft, path)?;
    sync_folder(path)
}

/// As [`replace`], with what `write` writes, and not synced: for files that are made again when they
/// are damaged. One process at a time may write the file.
///
/// # Errors
/// [`Error::Io`]; the file is then as it was.
pub fn replace_derived(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let draft = path.with_extension("new");
    let written = write(&draft).and_then(|()| fs::rename(&draft, path));
    let Err(error) = written else {
        return Ok(());
    };
    // On a full disk it would keep what the database needs.
    let _ = fs::remove_file(&draft);
    Err(Error::io("write", path, error))
}

/// A name beside the file that no other thread or process writes to.
fn draft_of(path: &Path) -> PathBuf {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(format!(
        ".{}-{}.new",
        std::process::id(),
        DRAFTS.fetch_add(1, Ordering::Relaxed)
    ));
    path.with_file_name(name)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    // Before the rename: otherwise the new name can be durable before the content is.
    file.sync_all()
}

/// Makes a rename in the folder of this file durable, where folders can be opened.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// The identity of a file: a file that was deleted and created again has another one.
// File systems reuse numbers, so equal ids are the same file only while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// The file at this path; `None` where there is none, and on systems that do not number files.
    pub fn of(path: &Path) -> Option<Self> {
        FileId::of_metadata(&fs::metadata(path).ok()?)
    }

    #[cfg(unix)]
    fn of_metadata(found: &fs::Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        Some(FileId {
            device: found.dev(),
            number: found.ino(),
        })
    }

    #[cfg(not(unix))]
    fn of_metadata(_found: &fs::Metadata) -> Option<Self> {
        None
    }
}

/// What the file system tells of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    id: Option<FileId>,
    bytes: u64,
    modified: SystemTime,
}

impl FileState {
    /// The file at this path; `None` where there is none, or where it is empty.
    pub fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        if found.len() == 0 {
            return None;
        }
        Some(FileState {
            id: FileId::of_metadata(&found),
            bytes: found.len(),
            modified: found.modified().unwrap_or(SystemTime::now()),
        })
    }

    /// True once a write to the file would give it another state: the clocks of file systems are
    /// coarse, and two writes in one tick leave the same.
    pub fn is_settled(&self) -> bool {
        let age = SystemTime::now().duration_since(self.modified);
        // A time in the future has no age: the clock was set back, or is another machine's.
        matches!(age, Ok(age) if age > COARSEST_CLOCK)
    }
}

/// A checksum over bytes and their place: `parts` are the bytes and the name of their row, so that
/// bytes moved to another row fail too.
pub fn checksum(parts: &[&[u8]]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher
            // The lengths separate the parts: `ab`, `c` and `a`, `bc` must have different sums.
            .update(&(part.len() as u64).to_le_bytes())
            .update(part);
    }
    let mut sum = [0; CHECKSUM_BYTES];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM_BYTES]);
    sum
}

/// The stored form of a vector: its floats, then their checksum. `place` names the row.
pub fn sealed_vector(vector: &[f32], place: &[&[u8]]) -> Vec<u8> {
    let mut bytes: Vec<u8> = vector.iter().copied().flat_map(f32::to_le_bytes).collect();
    let sum = checksum(&[&[bytes.as_slice()], place].concat());
    bytes.extend(sum);
    bytes
}

/// How far a vector without a checksum may be from unit length.
const LENGTH_TOLERANCE: f32 = 0.05;

/// The vector that [`sealed_vector`] wrote; `None` if it is damaged or of another row. Earlier
/// versions wrote no checksum; their vectors are only checked to have length 1.
pub fn opened_vector(bytes: &[u8], dimensions: usize, place: &[&[u8]]) -> Option<Vec<f32>> {
    let (floats, sum) = bytes.split_at_checked(dimensions * size_of::<f32>())?;
    let vector: Vec<f32> = floats
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(f32::from_le_bytes)
        .collect();
    let is_sound = match sum.len() {
        0 => {
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            // A text without known tokens has a vector of zeros. A NaN fails both comparisons.
            length == 0.0 || (length - 1.0).abs() <= LENGTH_TOLERANCE
        }
        _ => sum == checksum(&[&[floats], place].concat()),
    };
    is_sound.then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_file_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.vectors");
        replace_derived(&path, |draft| fs::write(draft, "whole")).unwrap();
        let failed = replace_derived(&path, |draft| {
            fs::write(draft, "ha")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_failure_leaves_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let folder = dir.path().join("folder.json");
        fs::create_dir(&folder).unwrap();
        assert!(
            replace(&folder, b"x")
                .unwrap_err()
                .to_string()
                .contains("folder.json")
        );
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "a draft was left"
        );
    }

    #[test]
    fn a_replaced_file_has_another_id() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "x").unwrap();
        let before = FileId::of(&path);
        fs::write(&path, "y").unwrap();
        assert_eq!(FileId::of(&path), before);
        fs::write(&other, "z").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!cfg!(unix) || FileId::of(&path) != before);
    }

    #[test]
    fn a_vector_is_read_back_unless_it_or_its_place_has_changed() {
        let vector = [0.6, 0.8];
        let good = sealed_vector(&vector, &[b"text"]);
        assert_eq!(opened_vector(&good, 2, &[b"text"]).unwrap(), vector);
        assert_eq!(opened_vector(&good, 2, &[b"other"]), None);
        assert_eq!(opened_vector(&good, 3, &[b"text"]), None);
        for place in 0..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 1;
            assert_eq!(opened_vector(&damaged, 2, &[b"text"]), None, "byte {place}");
        }
        assert_eq!(
            opened_vector(&good[..8], 2, &[b"text"]).unwrap(),
            vector,
            "of an earlier version"
        );
        for bad in [[0.0, 7.0], [f32::NAN, 0.0], [f32::INFINITY, 0.0]] {
            let bytes: Vec<u8> = bad.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(opened_vector(&bytes, 2, &[b"text"]), None, "{bad:?}");
        }
    }
}
