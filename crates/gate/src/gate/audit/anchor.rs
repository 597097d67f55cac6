//! The anchor of an audit log: a file with the number and hash of the newest entry,
//! authenticated by HMAC-SHA256 with a key in a third file. It is updated after each entry. A log
//! that ends before its anchor was truncated.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use toolscout_index::database;

use super::Link;

/// Bytes of the key, as many as the hash has.
const KEY_BYTES: usize = 32;
/// Prefix of the authenticated message, so that the code is valid for anchors only.
const PURPOSE: &[u8] = b"toolscout audit anchor 1";

/// The anchor's two files, in the folder of the log.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    key_file: PathBuf,
    /// The key, cached after the first read.
    key: OnceLock<[u8; KEY_BYTES]>,
}

/// What is wrong with an anchor.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// The authentication code is wrong, or the file is not an anchor.
    #[error("the code of the anchor does not fit")]
    Forged,
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
}

impl Anchor {
    /// The anchor of the log at this path.
    pub fn beside(log: &Path) -> Self {
        Anchor {
            path: log.with_extension("anchor"),
            key_file: log.with_extension("key"),
            key: OnceLock::new(),
        }
    }

    /// The anchor's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The anchored entry; `None` when the file does not exist.
    ///
    /// # Errors
    /// [`AnchorError`].
    pub fn read(&self) -> Result<Option<Link>, AnchorError> {
        match File::open(&self.path) {
            Ok(file) => {
                // Another process may be writing it.
                file.lock_shared()?;
                Ok(Some(self.read_from(file)?))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves the anchor forward to an entry. Does nothing when another process has moved it
    /// further.
    ///
    /// # Errors
    /// [`AnchorError`].
    pub fn advance(&self, to: Link) -> Result<(), AnchorError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        // Other processes append to the same log; without the lock a slower one could move the
        // anchor back.
        file.lock()?;
        if self.read_from(&file)?.seq < to.seq {
            self.write_to(&file, to)
        } else {
            Ok(())
        }
    }

    /// Creates or overwrites the anchor.
    ///
    /// # Errors
    /// [`AnchorError`].
    pub fn replace(&self, to: Link) -> Result<(), AnchorError> {
        database::make_private(&self.path)?;
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.lock()?;
        self.write_to(&file, to)
    }

    fn read_from(&self, mut file: impl Read) -> Result<Link, AnchorError> {
        // A number, two hashes and the blanks between them are 150 bytes. Read at once.
        let mut text = String::with_capacity(256);
        if file.by_ref().take(256).read_to_string(&mut text).is_err() {
            return Err(AnchorError::Forged);
        }
        let Some((link, code)) = parse(&text) else {
            return Err(AnchorError::Forged);
        };
        match self.code_of(link)?.verify_slice(&code) {
            Ok(()) => Ok(link),
            Err(_) => Err(AnchorError::Forged),
        }
    }

    /// Writes in place, in one write of fixed length: a process that is killed leaves the old or
    /// the new anchor.
    fn write_to(&self, mut file: &File, link: Link) -> Result<(), AnchorError> {
        let code: [u8; 32] = self.code_of(link)?.finalize().into_bytes().into();
        let (hash, code) = (hex::encode(link.hash), hex::encode(code));
        let text = format!("{:020} {hash} {code}\n", link.seq);
        file.seek(SeekFrom::Start(0))?;
        file.write_all(text.as_bytes())?;
        Ok(())
    }

    fn code_of(&self, link: Link) -> Result<Hmac<Sha256>, AnchorError> {
        let key = match self.key.get() {
            Some(key) => key,
            None => {
                let key = self.read_key()?;
                self.key.get_or_init(|| key)
            }
        };
        let mut code = Hmac::<Sha256>::new_from_slice(key).map_err(|_| AnchorError::Forged)?;
        code.update(PURPOSE);
        code.update(&link.seq.to_be_bytes());
        code.update(&link.hash);
        Ok(code)
    }

    /// Reads the key, or creates it if missing. A new key does not match the code of an existing
    /// anchor, so deleting the key does not hide a truncation.
    fn read_key(&self) -> Result<[u8; KEY_BYTES], AnchorError> {
        database::make_private(&self.key_file)?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&self.key_file)?;
        file.lock()?;
        let mut stored = Vec::new();
        Read::take(&mut file, KEY_BYTES as u64).read_to_end(&mut stored)?;
        if let Ok(key) = stored.as_slice().try_into() {
            return Ok(key);
        }
        if !stored.is_empty() {
            return Err(AnchorError::Forged);
        }
        let mut key = [0; KEY_BYTES];
        // Made under the lock, so that two first processes do not make two keys.
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        file.write_all(&key)?;
        Ok(key)
    }
}

fn parse(text: &str) -> Option<(Link, [u8; 32])> {
    let mut parts = text.split_whitespace();
    let seq = parts.next()?.parse().ok()?;
    let hash = parse_hash(parts.next()?)?;
    let code = parse_hash(parts.next()?)?;
    Some((Link { seq, hash }, code))
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    hex::decode_to_slice(text, &mut hash).ok()?;
    Some(hash)
}
