//! The vectors of a snapshot in a flat file. Reading it is much faster than computing them or reading
//! them from the database, which is done for those that it lacks.
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 4 | dimensions |
//! | 4 | leading dimensions |
//! | 4 | rows |
//! | 32 | BLAKE3 of the embedder's id and all the rest of the file |
//! | 16 a row | the hash of its text |
//! | 4 a row | the value of code 1 |
//! | 1 a row and leading dimension | their codes |
//! | 1 a row and other dimension | their codes |
//!
//! Rows are in the order of the tools that they were saved of, so that an unchanged catalog takes
//! them as they are.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::path::Path;

use super::part::Part;
use super::{TextHash, Vectors};
use crate::checked_file::{CheckedFile, FileProblem, Kind};
use crate::error::{Error, Result};
use crate::text::TermHasher;

const KIND: Kind = Kind {
    magic: *b"toolscVE",
    version: 2,
    content: "vectors",
};
/// Bytes of a row without its codes.
const ROW_HEAD: usize = size_of::<TextHash>() + size_of::<f32>();

/// The vectors of a file.
pub struct VectorFile {
    dimensions: usize,
    leading: usize,
    /// Without tools.
    rows: Part,
}

/// The rows of a file by their text. Hashes need no further hashing.
pub struct RowsByText<'a> {
    file: &'a VectorFile,
    rows: HashMap<u64, usize, BuildHasherDefault<TermHasher>>,
}

impl VectorFile {
    /// Reads a file. Vectors of another embedder, or of another version of it, are refused.
    ///
    /// # Errors
    /// [`Error::Derived`] if it is missing, damaged, or of another embedder or layout; the caller
    /// does without it.
    pub fn load(path: &Path, embedder: &str, dimensions: usize, leading: usize) -> Result<Self> {
        // Read and not mapped: the checksum covers every byte anyway, and a mapped file can change.
        match read(path, embedder, (dimensions, leading.min(dimensions))) {
            Ok(file) => Ok(file),
            Err(problem) => Err(derived(path, problem.to_string())),
        }
    }

    /// Number of vectors of a file that has exactly those of tools with these texts, in this order.
    /// Its vectors are not read, so they may be damaged.
    ///
    /// # Errors
    /// [`FileProblem`] if it has others, or cannot be used.
    pub fn count_of_same(
        path: &Path,
        embedder: &str,
        dimensions: usize,
        leading: usize,
        mut texts: impl Iterator<Item = TextHash>,
    ) -> Result<usize, FileProblem> {
        let (mut file, rows) = open(path, embedder, (dimensions, leading.min(dimensions)))?;
        let hashes = file.next(rows * size_of::<TextHash>())?;
        let mut saved = hashes.as_chunks().0.iter();
        let is_same = saved.all(|hash| texts.next().as_ref() == Some(hash));
        if !is_same || texts.next().is_some() {
            return Err(FileProblem::OtherTexts);
        }
        Ok(rows)
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without vectors.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vectors of tools with these texts, given tool by tool, if the file has exactly them in
    /// this order; else the file itself.
    ///
    /// # Errors
    /// The file.
    pub fn into_vectors_of<T: Iterator<Item = TextHash>>(
        self,
        tools: impl Iterator<Item = T>,
    ) -> Result<Vectors, Box<Self>> {
        let mut row = 0;
        let mut ends = Vec::new();
        for texts in tools {
            for text in texts {
                if self.rows.hashes.get(row) != Some(&text) {
                    return Err(Box::new(self));
                }
                row += 1;
            }
            ends.push(row as u32);
        }
        if row != self.len() {
            return Err(Box::new(self));
        }
        let vectors = Vectors::of_rows(self.dimensions, self.leading, self.rows, &ends);
        Ok(vectors)
    }

    /// Its rows by their text.
    pub fn by_text(&self) -> RowsByText<'_> {
        let hashes = self.rows.hashes.iter().enumerate();
        RowsByText {
            file: self,
            rows: hashes.map(|(row, hash)| (half(hash), row)).collect(),
        }
    }
}

impl RowsByText<'_> {
    /// The row of a text.
    pub fn find(&self, text: &TextHash) -> Option<usize> {
        let row = *self.rows.get(&half(text))?;
        (self.file.rows.hashes[row] == *text).then_some(row)
    }
}

impl Vectors {
    /// Adds a view of the tool under construction from a row of a file.
    pub fn push_row_of(&mut self, file: &VectorFile, row: usize) {
        let (leading, others) = (self.leading, self.dimensions - self.leading);
        let from = &file.rows;
        let lead = &from.leads[row * leading..(row + 1) * leading];
        let rest = &from.rests[row * others..(row + 1) * others];
        self.push_row(lead, rest, from.scales[row], from.hashes[row]);
    }

    /// Replaces a file by these vectors in one step. It is not synced: a file cut short by a power
    /// failure fails its checksum and is computed again.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path, embedder: &str) -> Result<()> {
        let numbers = [self.dimensions, self.leading, self.len()].map(|number| number as u32);
        KIND.save(path, embedder, &numbers, |write| self.for_each_part(write))
    }

    /// Everything after the checksum, piece by piece.
    fn for_each_part(
        &self,
        write: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            write(part.hashes.as_flattened())?;
        }
        for part in &self.parts {
            bytes.clear();
            bytes.extend(part.scales.iter().copied().flat_map(f32::to_le_bytes));
            write(&bytes)?;
        }
        for part in &self.parts {
            bytes.clear();
            bytes.extend(part.leads.iter().copied().map(i8::cast_unsigned));
            write(&bytes)?;
        }
        for part in &self.parts {
            bytes.clear();
            bytes.extend(part.rests.iter().copied().map(i8::cast_unsigned));
            write(&bytes)?;
        }
        Ok(())
    }
}

/// Opens a file of vectors with so many dimensions, and so many of them leading, and gives its number of rows, or says why it cannot be used.
fn open(
    path: &Path,
    embedder: &str,
    (expected, expected_leading): (usize, usize),
) -> Result<(CheckedFile, usize), FileProblem> {
    let (file, numbers) = KIND.open(path, embedder)?;
    let [dimensions, leading, rows] = numbers.map(|number: u32| number as usize);
    if (dimensions, leading) != (expected, expected_leading) {
        return Err(FileProblem::Dimensions {
            dimensions,
            leading,
            embedder: embedder.to_owned(),
            expected,
            expected_leading,
        });
    }
    // Before the checksum, so that a file cut short is named as such.
    file.check_length(
        format_args!("{rows} rows"),
        rows as u128 * (ROW_HEAD + dimensions) as u128,
    )?;
    Ok((file, rows))
}

/// Reads a file, or says why it cannot be used.
fn read(
    path: &Path,
    embedder: &str,
    (dimensions, leading): (usize, usize),
) -> Result<VectorFile, FileProblem> {
    let (mut file, rows) = open(path, embedder, (dimensions, leading))?;
    let hashes = file.next(rows * size_of::<TextHash>())?;
    let scales = file.next(rows * size_of::<f32>())?;
    let leads = file.next(rows * leading)?;
    let rests = file.next(rows * (dimensions - leading))?;
    if !file.is_intact() {
        return Err(FileProblem::Damaged(format!("embedder than {embedder}")));
    }
    let scales = scales.as_chunks().0.iter().copied();
    Ok(VectorFile {
        dimensions,
        leading,
        rows: Part {
            hashes: hashes.as_chunks().0.to_vec(),
            scales: scales.map(f32::from_le_bytes).collect(),
            // Collected in place: a code takes the room of its byte.
            leads: leads.into_iter().map(u8::cast_signed).collect(),
            rests: rests.into_iter().map(u8::cast_signed).collect(),
            ..Part::default()
        },
    })
}

/// Half of a text's hash is enough to find it by.
fn half(text: &TextHash) -> u64 {
    let mut half = [0; 8];
    half.copy_from_slice(&text[..8]);
    u64::from_le_bytes(half)
}

fn derived(path: &Path, reason: String) -> Error {
    Error::Derived {
        index: "vectors",
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [TextHash; 3] = [[1; 16], [2; 16], [1; 16]];

    fn vectors() -> Vectors {
        let mut vectors = Vectors::with_leading(3, 2);
        for (hash, vector) in
            TEXTS
                .into_iter()
                .zip([[1.0, 0.0, -1.0], [0.5, 0.5, 0.0], [1.0, 0.0, -1.0]])
        {
            vectors.push("t", hash, &vector).unwrap();
            vectors.end_tool();
        }
        vectors
    }

    fn load(path: &Path, embedder: &str, dimensions: usize) -> Result<VectorFile> {
        VectorFile::load(path, embedder, dimensions, 2)
    }

    fn reason(path: &Path, embedder: &str, dimensions: usize) -> String {
        let loaded = load(path, embedder, dimensions);
        loaded.err().map(|e| e.to_string()).unwrap_or_default()
    }

    fn assert_equal(found: &Vectors, expected: &Vectors) {
        assert_eq!(
            (found.tools(), found.len()),
            (expected.tools(), expected.len())
        );
        assert!(found.hashes().eq(expected.hashes()));
        for tool in 0..found.tools() {
            assert_eq!(found.rows_of(tool), expected.rows_of(tool));
        }
        for row in 0..found.len() {
            assert_eq!(found.decoded(row), expected.decoded(row));
        }
    }

    #[test]
    fn a_file_gives_back_the_vectors_of_the_same_tools_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let (path, vectors) = (dir.path().join("v"), vectors());
        vectors.save(&path, "t/1").unwrap();
        let of = |tools: &[&[TextHash]]| {
            let file = load(&path, "t/1", 3).unwrap();
            file.into_vectors_of(tools.iter().map(|texts| texts.iter().copied()))
        };
        let same = of(&[&TEXTS[..1], &TEXTS[1..2], &TEXTS[2..]]).ok().unwrap();
        assert_equal(&same, &vectors);
        let joined = of(&[&TEXTS[..2], &[], &TEXTS[2..]]).ok().unwrap();
        assert_eq!(
            [0, 1, 2].map(|tool| joined.rows_of(tool)),
            [0..2, 2..2, 2..3]
        );
        for others in [
            &[&TEXTS[..2]] as &[&[TextHash]],
            &[&TEXTS[1..], &TEXTS[..1]],
            &[&TEXTS, &TEXTS],
        ] {
            assert_eq!(of(others).err().unwrap().len(), 3);
        }
    }

    #[test]
    fn the_vectors_of_other_tools_are_found_by_their_texts() {
        let dir = tempfile::tempdir().unwrap();
        let (path, vectors) = (dir.path().join("v"), vectors());
        vectors.save(&path, "t/1").unwrap();
        let file = load(&path, "t/1", 3).unwrap();
        let by_text = file.by_text();
        let mut again = Vectors::with_leading(3, 2);
        for hash in TEXTS {
            again.push_row_of(&file, by_text.find(&hash).unwrap());
            again.end_tool();
        }
        assert_equal(&again, &vectors);
        assert_eq!(by_text.find(&[9; 16]), None);
        // The same half of a hash is not the same hash.
        let mut similar = TEXTS[0];
        similar[15] = 0;
        assert_eq!(by_text.find(&similar), None);
    }

    #[test]
    fn another_embedder_other_dimensions_and_every_damage_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        assert!(load(&path, "t/1", 3).is_err());
        vectors().save(&path, "t/1").unwrap();
        assert!(reason(&path, "t/2", 3).contains("another embedder than t/2"));
        assert!(reason(&path, "t/1", 4).contains("3 dimensions, 2 of them leading; t/1 has 4"));
        assert!(VectorFile::load(&path, "t/1", 3, 1).is_err());
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
