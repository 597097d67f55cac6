//! What a download has written: sizes and checksums of a model's files, in a file beside them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Depth, pins};

/// The file's name, in the folder of a revision.
const FILE: &str = "toolscout-files.json";

/// The files of one revision. Empty where another program has put them there.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Manifest(BTreeMap<String, Entry>);

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    bytes: u64,
    sha256: String,
}

impl Manifest {
    /// That of a folder.
    pub fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Writes it to a folder.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::write(folder.join(FILE), serde_json::to_vec_pretty(self)?)
    }

    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: u64, sha256: String) {
        self.0.insert(name.to_owned(), Entry { bytes, sha256 });
    }

    /// Checks a file: by what is known of it, else that it is not empty.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, path: &Path, name: &str, depth: Depth) -> Result<(), String> {
        let metadata =
            std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
        // Nothing is known of a file that another program has put there.
        let Some(entry) = self.0.get(name) else {
            return match metadata.len() {
                0 => Err("is empty".to_owned()),
                _ => Ok(()),
            };
        };
        if metadata.len() != entry.bytes {
            return Err(format!(
                "is damaged: {} bytes where {} were downloaded",
                metadata.len(),
                entry.bytes
            ));
        }
        if depth == Depth::Sizes {
            return Ok(());
        }
        let sum = File::open(path).and_then(|file| pins::copy_summed(file, io::sink()));
        match sum {
            Ok(sum) if sum == entry.sha256 => Ok(()),
            Ok(_) => Err("is damaged: its checksum is not the one that was downloaded".to_owned()),
            Err(error) => Err(format!("cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_noticed_by_size_or_by_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        let sum = pins::copy_summed(b"abc".as_slice(), io::sink()).unwrap();
        let mut manifest = Manifest::default();
        manifest.add("a", 3, sum);
        manifest.write(folder.path()).unwrap();
        let check = |depth| Manifest::read(folder.path()).check(&path, "a", depth);
        assert_eq!(check(Depth::Checksums), Ok(()));
        std::fs::write(&path, "abd").unwrap();
        assert_eq!(check(Depth::Sizes), Ok(()));
        assert!(check(Depth::Checksums).unwrap_err().contains("checksum"));
        std::fs::write(&path, "ab").unwrap();
        assert!(check(Depth::Sizes).unwrap_err().contains("2 bytes where 3"));
    }
}
