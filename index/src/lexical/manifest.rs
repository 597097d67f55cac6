//! The manifest of an index on disk: the hash of every file, to verify the index before use.
//!
//! tantivy's own checksums do not cover file names: two files with swapped names pass them, and
//! reading such an index panics or finds wrong tools. They also do not cover the list of files.
//!
//! The manifest is text: the BLAKE3 hash of all that follows, the stamp of the index, and a line
//! `HASH NAME` for each file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use tantivy::Index;
use thiserror::Error;

use crate::files;

const FILE_NAME: &str = "files.manifest";
/// tantivy's list of segments.
const META: &str = "meta.json";

/// The hash of each file by its name.
type Hashes = BTreeMap<String, String>;

/// Writes the manifest. Segment files never change, so only new ones are read.
///
/// # Errors
/// Those of reading and writing files.
pub fn write(folder: &Path, stamp: &str, index: &Index) -> io::Result<()> {
    let known = read(folder, stamp).unwrap_or_default();
    let mut hashes = Hashes::new();
    for name in file_names(folder, index)? {
        let hash = match known.get(&name) {
            // tantivy rewrites only its list of segments.
            Some(hash) if name != META => hash.clone(),
            _ => hash_of(&folder.join(&name))?,
        };
        hashes.insert(name, hash);
    }
    let mut body = format!("{stamp}\n");
    for (name, hash) in &hashes {
        body.extend([hash.as_str(), " ", name, "\n"]);
    }
    let text = format!("{}\n{body}", blake3::hash(body.as_bytes()).to_hex());
    // Not synced, as the files that it is about: an index that differs from it is built again.
    let written = files::replace_derived(&folder.join(FILE_NAME), |draft| {
        std::fs::write(draft, &text)
    });
    written.map_err(io::Error::other)
}

/// Checks every file of an index against the manifest. Reads them all.
///
/// # Errors
/// The first [`Mismatch`].
pub fn check(folder: &Path, stamp: &str, index: &Index) -> Result<(), Mismatch> {
    let hashes = read(folder, stamp).ok_or(Mismatch::NoManifest)?;
    let names = file_names(folder, index).map_err(Mismatch::Folder)?;
    if !names.iter().eq(hashes.keys()) {
        return Err(Mismatch::OtherFiles);
    }
    for (name, hash) in &hashes {
        let found = hash_of(&folder.join(name)).map_err(|error| unreadable(name, error))?;
        if found != *hash {
            return Err(Mismatch::Damaged(name.clone()));
        }
    }
    Ok(())
}

/// Every file of an index of at most `max_bytes`, by name, each checked against the manifest; `None`
/// for a larger index.
///
/// # Errors
/// The first [`Mismatch`].
pub fn read_files(
    folder: &Path,
    stamp: &str,
    max_bytes: u64,
) -> Result<Option<BTreeMap<String, Vec<u8>>>, Mismatch> {
    let hashes = read(folder, stamp).ok_or(Mismatch::NoManifest)?;
    let (mut files, mut bytes) = (BTreeMap::new(), 0);
    for (name, hash) in hashes {
        let path = folder.join(&name);
        let failed = |error| unreadable(&name, error);
        bytes += std::fs::metadata(&path).map_err(failed)?.len();
        if bytes > max_bytes {
            return Ok(None);
        }
        let content = std::fs::read(&path).map_err(failed)?;
        if blake3::hash(&content).to_hex().as_str() != hash {
            return Err(Mismatch::Damaged(name));
        }
        files.insert(name, content);
    }
    Ok(Some(files))
}

/// How the files of an index differ from the manifest.
#[derive(Debug, Error)]
pub enum Mismatch {
    /// There is no manifest, or that of another index.
    #[error("it has no manifest of its files that fits")]
    NoManifest,
    /// The list of its files cannot be read.
    #[error(transparent)]
    Folder(io::Error),
    /// It has other files.
    #[error("its files are not those that were written down")]
    OtherFiles,
    /// A file has another content.
    #[error("{0} is damaged")]
    Damaged(String),
    /// A file cannot be read.
    #[error("{name}: {error}")]
    Unreadable { name: String, error: io::Error },
}

fn unreadable(name: &str, error: io::Error) -> Mismatch {
    Mismatch::Unreadable {
        name: name.to_owned(),
        error,
    }
}

/// The manifest of a folder, if it is intact and has this stamp.
fn read(folder: &Path, stamp: &str) -> Option<Hashes> {
    let text = std::fs::read_to_string(folder.join(FILE_NAME)).ok()?;
    let (hash, body) = text.split_once('\n')?;
    let (found, lines) = body.split_once('\n')?;
    if found != stamp || blake3::hash(body.as_bytes()).to_hex().as_str() != hash {
        return None;
    }
    let mut hashes = Hashes::new();
    for line in lines.lines() {
        let (hash, name) = line.split_once(' ')?;
        hashes.insert(name.to_owned(), hash.to_owned());
    }
    Some(hashes)
}

/// The files of an index, sorted.
fn file_names(folder: &Path, index: &Index) -> io::Result<Vec<String>> {
    let metas = index.load_metas().map_err(io::Error::other)?;
    let mut names = vec![META.to_owned()];
    for file in metas.list_segment_files() {
        // A segment's list names every file that it could have. One that is lost is noticed all
        // the same, as the manifest has it.
        if let Ok(name) = file.into_os_string().into_string()
            && folder.join(&name).exists()
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn hash_of(file: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    io::copy(&mut std::fs::File::open(file)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}
