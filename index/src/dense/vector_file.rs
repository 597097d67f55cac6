//! Vectors in a flat file, for embedders that are faster than a database. Vectors that the file
//! lacks are computed again.
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 4 | dimensions |
//! | 8 | rows |
//! | 32 | BLAKE3 of the embedder's id and all the rest of the file |
//! | 16 a row | the hash of its text |
//! | 4 a row | the value of code 1 |
//! | 1 a row and dimension | the codes |

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use super::{TextHash, Vectors};
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"toolscVE";
const VERSION: u32 = 1;
const CHECKSUM: Range<usize> = 24..56;
/// Bytes of a row without its codes.
const ROW_HEAD: usize = size_of::<TextHash>() + size_of::<f32>();

/// The vectors of a file by their text.
pub struct VectorFile {
    /// With all dimensions leading.
    vectors: Vectors,
    rows: HashMap<TextHash, usize>,
}

impl VectorFile {
    /// None.
    pub fn empty(dimensions: usize) -> Self {
        VectorFile {
            vectors: Vectors::new(dimensions),
            rows: HashMap::new(),
        }
    }

    /// Reads a file. Vectors of another embedder, or of another version of it, are refused.
    ///
    /// # Errors
    /// [`Error::Derived`] if it is missing, damaged, or of another embedder or layout; the caller
    /// computes the vectors again.
    pub fn load(path: &Path, embedder: &str, dimensions: usize) -> Result<Self> {
        // Read and not mapped: the checksum covers every byte anyway, and a mapped file can change.
        let bytes = std::fs::read(path).map_err(|e| derived(path, e))?;
        let rows =
            checked_rows(&bytes, embedder, dimensions).map_err(|reason| derived(path, reason))?;
        let (hashes, rest) = bytes[CHECKSUM.end..].split_at(rows * size_of::<TextHash>());
        let (scales, codes) = rest.split_at(rows * size_of::<f32>());
        let hashes = hashes.as_chunks().0.to_vec();
        let scales = scales
            .as_chunks()
            .0
            .iter()
            .map(|scale| f32::from_le_bytes(*scale))
            .collect();
        let codes = codes.iter().map(|code| code.cast_signed()).collect();
        let rows = hashes
            .iter()
            .enumerate()
            .map(|(row, hash)| (*hash, row))
            .collect();
        Ok(VectorFile {
            vectors: Vectors {
                // Whole rows, so that a file does not depend on how many dimensions are leading.
                leads: codes,
                scales,
                hashes,
                ..Vectors::new(dimensions)
            },
            rows,
        })
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without vectors.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True when it has the vector of this text.
    pub fn contains(&self, text: &TextHash) -> bool {
        self.rows.contains_key(text)
    }
}

impl Vectors {
    /// Adds a view of the tool under construction from a file, if the file has it.
    pub fn push_from(&mut self, file: &VectorFile, text: &TextHash) {
        let Some(&row) = file.rows.get(text) else {
            return;
        };
        self.push_codes(file.vectors.lead(row), file.vectors.scales[row], *text);
    }

    /// Replaces a file by these vectors in one step. It is not synced: a file cut short by a power
    /// failure fails its checksum and is computed again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path, embedder: &str) -> Result<()> {
        let mut seen = HashSet::new();
        let rows: Vec<usize> = (0..self.len())
            // Equal texts share a row.
            .filter(|&row| seen.insert(self.hashes[row]))
            .collect();
        let mut bytes =
            Vec::with_capacity(CHECKSUM.end + rows.len() * (ROW_HEAD + self.dimensions));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(self.dimensions as u32).to_le_bytes());
        bytes.extend_from_slice(&(rows.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&[0; CHECKSUM.end - CHECKSUM.start]);
        rows.iter()
            // Column by column, so that reading takes one pass for each column.
            .for_each(|&row| bytes.extend_from_slice(&self.hashes[row]));
        rows.iter()
            .for_each(|&row| bytes.extend_from_slice(&self.scales[row].to_le_bytes()));
        rows.iter()
            .for_each(|&row| bytes.extend(self.codes(row).map(i8::cast_unsigned)));
        let sum = checksum(&bytes, embedder);
        bytes[CHECKSUM].copy_from_slice(&sum);
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, bytes).map_err(|e| Error::io("write", &fresh, e))?;
        std::fs::rename(&fresh, path).map_err(|e| Error::io("rename", &fresh, e))
    }
}

/// The number of rows of an intact file, or why the file cannot be used.
fn checked_rows(bytes: &[u8], embedder: &str, dimensions: usize) -> Result<usize, String> {
    if bytes.len() < CHECKSUM.end || !bytes.starts_with(MAGIC) {
        return Err("it holds no vectors".to_owned());
    }
    let fields = bytes[MAGIC.len()..CHECKSUM.start].as_chunks().0;
    let [version, found, low, high] = std::array::from_fn(|i| u32::from_le_bytes(fields[i]));
    if version != VERSION {
        return Err(format!(
            "it has layout {version}, this program reads layout {VERSION}"
        ));
    }
    if found as usize != dimensions {
        return Err(format!(
            "its vectors have {found} dimensions, {embedder} has {dimensions}"
        ));
    }
    // Not yet checked, so the products are in 128 bits, which no header can overflow.
    let rows = u128::from(low) | u128::from(high) << 32;
    let expected = CHECKSUM.end as u128 + rows * (ROW_HEAD + dimensions) as u128;
    // Before the checksum, so that a file cut short is named as such.
    if bytes.len() as u128 != expected {
        return Err(format!(
            "{rows} rows take {expected} bytes, it has {}",
            bytes.len()
        ));
    }
    if bytes[CHECKSUM] != checksum(bytes, embedder) {
        return Err(format!(
            "it is damaged or of another embedder than {embedder}"
        ));
    }
    Ok(rows as usize)
}

fn checksum(bytes: &[u8], embedder: &str) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(embedder.as_bytes())
        .update(&bytes[..CHECKSUM.start])
        .update(&bytes[CHECKSUM.end..]);
    *hasher.finalize().as_bytes()
}

fn derived(path: &Path, reason: impl ToString) -> Error {
    Error::Derived {
        index: "vectors",
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors() -> Vectors {
        let mut vectors = Vectors::with_leading(3, 2);
        for (hash, vector) in [
            ([1; 16], [1.0, 0.0, -1.0]),
            ([2; 16], [0.5, 0.5, 0.0]),
            ([1; 16], [1.0, 0.0, -1.0]),
        ] {
            vectors.push("t", hash, &vector).unwrap();
            vectors.end_tool();
        }
        vectors
    }

    fn reason(path: &Path, embedder: &str, dimensions: usize) -> String {
        VectorFile::load(path, embedder, dimensions)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_file_gives_back_each_text_once_code_for_code() {
        let dir = tempfile::tempdir().unwrap();
        let (path, vectors) = (dir.path().join("v"), vectors());
        vectors.save(&path, "t/1").unwrap();
        let file = VectorFile::load(&path, "t/1", 3).unwrap();
        assert_eq!(file.len(), 2);
        let mut again = Vectors::with_leading(3, 2);
        for hash in [[1; 16], [2; 16], [1; 16], [9; 16]] {
            again.push_from(&file, &hash);
            again.end_tool();
        }
        assert_eq!((again.leads, again.rests), (vectors.leads, vectors.rests));
        assert_eq!(
            (again.scales, again.hashes),
            (vectors.scales, vectors.hashes)
        );
        assert_eq!(again.starts, [0, 1, 2, 3, 3]);
    }

    #[test]
    fn another_embedder_other_dimensions_and_every_damage_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        assert!(VectorFile::load(&path, "t/1", 3).is_err());
        vectors().save(&path, "t/1").unwrap();
        assert!(reason(&path, "t/2", 3).contains("another embedder than t/2"));
        assert!(reason(&path, "t/1", 4).contains("3 dimensions, t/1 has 4"));
        let good = std::fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_ne!(reason(&path, "t/1", 3), "", "byte {place}");
        }
        for length in 0..good.len() {
            std::fs::write(&path, &good[..length]).unwrap();
            assert_ne!(reason(&path, "t/1", 3), "", "{length} bytes");
        }
    }
}
