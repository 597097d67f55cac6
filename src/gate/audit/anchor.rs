//! The anchor of an audit log: number and hash of its newest entry in a file of its own, under a
//! code (HMAC-SHA256) of a key that is kept in a third file. It is moved after each entry, so that
//! a log which ends before it was cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use toolscout_index::database;

use super::{Link, hex};

/// Bytes of the key: as many as the hash has.
const KEY_BYTES: usize = 32;
/// What the code is for, so that it vouches for nothing else.
const PURPOSE: &[u8] = b"toolscout audit anchor 1";

/// The two files beside a log.
#[derive(Debug)]
pub struct Anchor {
    path: PathBuf,
    key_file: PathBuf,
    /// The key, once it was read.
    key: OnceLock<[u8; KEY_BYTES]>,
}

/// What is wrong with an anchor.
#[derive(Debug, thiserror::Error)]
pub enum AnchorError {
    /// Its code does not fit, or it is no anchor at all.
    #[error("the code of the anchor does not fit")]
    Forged,
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] io::Error),
}

impl Anchor {
    /// The anchor of the log of this path.
    pub fn beside(log: &Path) -> Self {
        Anchor {
            path: log.with_extension("anchor"),
            key_file: log.with_extension("key"),
            key: OnceLock::new(),
        }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entry it knows; `None` where there is no anchor.
    ///
    /// # Errors
    /// [`AnchorError`].
    pub fn read(&self) -> Result<Option<Link>, AnchorError> {
        match File::open(&self.path) {
            Ok(file) => {
                file.lock_shared()?;
                self.read_from(file).map(Some)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves it to a later entry; one that another process has moved further stays.
    ///
    /// # Errors
    /// [`AnchorError`].
    pub fn advance(&self, to: Link) -> Result<(), AnchorError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        file.lock()?;
        if self.read_from(&file)?.seq < to.seq {
            self.write_to(&file, to)
        } else {
            Ok(())
        }
    }

    /// Makes it, or puts it to an entry whatever it knew before.
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
        let mut text = String::new();
        // A number, two hashes and what is between them.
        file.by_ref()
            .take(256)
            .read_to_string(&mut text)
            .map_err(|_| AnchorError::Forged)?;
        let mut parts = text.split_whitespace();
        let seq = parts.next().and_then(|seq| seq.parse().ok());
        let (hash, code) = (parts.next().and_then(bytes), parts.next().and_then(bytes));
        let (Some(seq), Some(hash), Some(code)) = (seq, hash, code) else {
            return Err(AnchorError::Forged);
        };
        let link = Link { seq, hash };
        self.code_of(link)?
            .verify_slice(&code)
            .map(|()| link)
            .map_err(|_| AnchorError::Forged)
    }

    /// In place and in one piece of fixed length, so that a process that is killed leaves the old
    /// or the new one.
    fn write_to(&self, mut file: &File, link: Link) -> Result<(), AnchorError> {
        let code: [u8; 32] = self.code_of(link)?.finalize().into_bytes().into();
        let text = format!("{:020} {} {}\n", link.seq, hex(&link.hash), hex(&code));
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

    /// The key, made when it is not there. A key that was taken away is another one then, and the
    /// anchor's code does not fit it.
    fn read_key(&self) -> Result<[u8; KEY_BYTES], AnchorError> {
        database::make_private(&self.key_file)?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&self.key_file)?;
        file.lock()?;
        let mut kept = Vec::new();
        Read::take(&mut file, KEY_BYTES as u64).read_to_end(&mut kept)?;
        if let Ok(key) = kept.as_slice().try_into() {
            return Ok(key);
        }
        if !kept.is_empty() {
            return Err(AnchorError::Forged);
        }
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        file.write_all(&key)?;
        Ok(key)
    }
}

/// The bytes of a hash that is written in hexadecimal.
fn bytes(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}
