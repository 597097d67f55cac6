//! Flat files of derived data, each verified as it is read: magic, version and some numbers, then the
//! BLAKE3 of the file's owner and of all the rest, then its parts. The owner is what the content
//! belongs to, so that a file of another one is refused.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::string::FromUtf8Error;

use thiserror::Error;

use crate::error::Result;
use crate::files;

const MAGIC_BYTES: usize = 8;
const SUM_BYTES: usize = 32;
/// Bytes that are read and then hashed.
const PIECE_BYTES: usize = 256 << 10;

/// Why a file of derived data cannot be used.
#[derive(Debug, Error)]
pub enum FileProblem {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is of another kind.
    #[error("it holds no {0}")]
    NoContent(&'static str),
    /// Another version wrote it.
    #[error("it has layout {found}, this program reads layout {known}")]
    Layout { found: u32, known: u32 },
    /// It is cut short, or too long.
    #[error("{what} take {expected} bytes, it has {found}")]
    Length {
        what: String,
        expected: u128,
        found: u64,
    },
    /// Its vectors have other dimensions.
    #[error(
        "its vectors have {dimensions} dimensions, {leading} of them leading; {embedder} has {expected} and {expected_leading}"
    )]
    Dimensions {
        dimensions: usize,
        leading: usize,
        embedder: String,
        expected: usize,
        expected_leading: usize,
    },
    /// Its checksum is another one.
    #[error("it is damaged or of another {0}")]
    Damaged(String),
    /// It has the vectors of other texts.
    #[error("it has vectors of other texts")]
    OtherTexts,
    /// Its texts are none.
    #[error(transparent)]
    Text(#[from] FromUtf8Error),
    /// The lengths of its records do not add up.
    #[error("its lengths do not add up")]
    Lengths,
    /// One of its ids is none.
    #[error("it has an id that is none")]
    Id,
}

/// What every file of a kind begins with.
pub struct Kind {
    /// Its first bytes.
    pub magic: [u8; MAGIC_BYTES],
    /// The version of its layout.
    pub version: u32,
    /// What it holds, for messages.
    pub content: &'static str,
}

impl Kind {
    /// Replaces a file in one step. It is not synced: a file cut short by a power failure is refused.
    /// `parts` gives the content piece by piece, twice.
    ///
    /// # Errors
    /// [`crate::Error::Io`]; the file is then as it was.
    pub fn save(
        &self,
        path: &Path,
        owner: &str,
        numbers: &[u32],
        parts: impl Fn(&mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<()> {
        let mut head = self.magic.to_vec();
        head.extend(self.version.to_le_bytes());
        for number in numbers {
            head.extend(number.to_le_bytes());
        }
        files::replace_derived(path, |draft| {
            // The checksum stands before what it covers, so the parts are gone through once for it
            // and once to be written.
            let mut hasher = hasher(owner, &head);
            parts(&mut |part| {
                hasher.update(part);
                Ok(())
            })?;
            let mut file = BufWriter::new(File::create(draft)?);
            file.write_all(&head)?;
            file.write_all(hasher.finalize().as_bytes())?;
            parts(&mut |part| file.write_all(part))?;
            file.flush()
        })
    }

    /// Opens a file and reads the numbers in its head. Nothing is verified before
    /// [`CheckedFile::is_intact`].
    ///
    /// # Errors
    /// [`FileProblem`] for one that is not of this kind.
    pub fn open<const N: usize>(
        &self,
        path: &Path,
        owner: &str,
    ) -> Result<(CheckedFile, [u32; N]), FileProblem> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut head = vec![0; MAGIC_BYTES + 4 * (1 + N)];
        let begins = head.len() + SUM_BYTES;
        if length < begins as u64 {
            return Err(FileProblem::NoContent(self.content));
        }
        let mut sum = [0; SUM_BYTES];
        file.read_exact(&mut head)?;
        file.read_exact(&mut sum)?;
        let (magic, fields) = head.split_at(MAGIC_BYTES);
        if magic != self.magic {
            return Err(FileProblem::NoContent(self.content));
        }
        let fields = fields.as_chunks().0;
        let version = u32::from_le_bytes(fields[0]);
        if version != self.version {
            return Err(FileProblem::Layout {
                found: version,
                known: self.version,
            });
        }
        let opened = CheckedFile {
            file,
            hasher: hasher(owner, &head),
            sum,
            begins,
            length,
        };
        let numbers = std::array::from_fn(|i| u32::from_le_bytes(fields[1 + i]));
        Ok((opened, numbers))
    }
}

/// An open file, to be read part by part.
pub struct CheckedFile {
    file: File,
    hasher: blake3::Hasher,
    sum: [u8; SUM_BYTES],
    /// Where its parts begin.
    begins: usize,
    length: u64,
}

impl CheckedFile {
    /// Checks that all parts have so many bytes. `what` has them, for the message.
    ///
    /// # Errors
    /// [`FileProblem::Length`].
    // The bytes are in 128 bits, since no number of a head that is not verified can overflow them.
    pub fn check_length(&self, what: impl fmt::Display, bytes: u128) -> Result<(), FileProblem> {
        let expected = self.begins as u128 + bytes;
        if u128::from(self.length) != expected {
            return Err(FileProblem::Length {
                what: what.to_string(),
                expected,
                found: self.length,
            });
        }
        Ok(())
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`FileProblem::Io`].
    pub fn next(&mut self, bytes: usize) -> Result<Vec<u8>, FileProblem> {
        let mut part = vec![0; bytes];
        prefer_huge_pages(&mut part);
        // Each piece is hashed while it is in the processor's cache.
        for piece in part.chunks_mut(PIECE_BYTES) {
            self.file.read_exact(piece)?;
            self.hasher.update(piece);
        }
        Ok(part)
    }

    /// True if what was read is what was written, for the same owner.
    pub fn is_intact(&self) -> bool {
        *self.hasher.finalize().as_bytes() == self.sum
    }
}

/// Lets the system back memory that was not touched yet by pages of 2 MB. Without it every 4 KB are a
/// page fault, which takes longer than reading them.
fn prefer_huge_pages(part: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 2 << 20;
        let bytes = part.as_mut_ptr_range();
        let start = (bytes.start as usize).next_multiple_of(PAGE);
        let end = bytes.end as usize / PAGE * PAGE;
        if start < end {
            // SAFETY: the range lies within the slice, and the advice changes no content.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = part;
}

fn hasher(owner: &str, head: &[u8]) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(owner.as_bytes()).update(head);
    hasher
}
