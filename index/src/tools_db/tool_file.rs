//! All tools of a commit in a flat file beside the database, which is read several times faster.
//! Tools that changed since are read from the database.
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 4 | tools |
//! | 4 | bytes of all ids |
//! | 8 | bytes of all definitions |
//! | 32 | BLAKE3 of the origin and all the rest of the file |
//! | 104 a tool | key, part in the digest, lengths, hashes of texts, fingerprint |
//! | | the ids, end to end |
//! | | the definitions as JSON, end to end |
//!
//! The origin is the catalog's identity and the template of its texts, so that a file of another
//! catalog, or with hashes of other texts, is not used.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::{SharedText, StoredTool};
use crate::checked_file::{FileProblem, Kind};
use crate::dense::TextHash;
use crate::document::VIEWS;
use crate::duplicates::Fingerprint;
use crate::error::{Error, Result};
use crate::tool::{OwnerTexts, ToolId};

/// The file within a catalog's folder.
pub const FILE_NAME: &str = "tools.snapshot";

const KIND: Kind = Kind {
    magic: *b"toolscTO",
    version: 1,
    content: "tools",
};
/// Hashes of all views.
const TEXTS_BYTES: usize = VIEWS * size_of::<TextHash>();
/// Key, digest, and the lengths of id, server, texts and fingerprint; then the definition's.
const FIXED_BYTES: usize = 8 + 16 + 4 * 2 + 4;
const RECORD_BYTES: usize = FIXED_BYTES + TEXTS_BYTES + Fingerprint::BYTES;
/// Bytes that are written together.
const WRITE_BYTES: usize = 1 << 16;

/// The tools of a file, in the order of ids.
///
/// # Errors
/// [`Error::Derived`] if it is missing, damaged, or of another origin or layout; the caller reads
/// the database.
pub fn load(path: &Path, origin: &str) -> Result<Vec<StoredTool>> {
    match read(path, origin) {
        Ok(tools) => Ok(tools),
        Err(reason) => Err(Error::Derived {
            index: "tools",
            path: path.to_owned(),
            reason: reason.to_string(),
        }),
    }
}

/// Replaces the file in one step. It is not synced: a file cut short by a power failure fails its
/// checksum and is not used.
///
/// # Errors
/// [`Error::Io`].
pub fn save<'a>(
    path: &Path,
    origin: &str,
    tools: impl Iterator<Item = &'a StoredTool> + Clone,
) -> Result<()> {
    let (mut count, mut ids, mut definitions) = (0, 0, 0);
    for tool in tools.clone() {
        count += 1;
        ids += tool.id.as_str().len();
        definitions += tool.json.len() as u64;
    }
    let numbers = [
        count,
        ids as u32,
        definitions as u32,
        (definitions >> 32) as u32,
    ];
    KIND.save(path, origin, &numbers, |write| {
        for_each_part(tools.clone(), write)
    })
}

/// Everything after the checksum, piece by piece.
fn for_each_part<'a>(
    tools: impl Iterator<Item = &'a StoredTool> + Clone,
    write: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let parts: [fn(&StoredTool, &mut Vec<u8>); 3] = [put_record, put_id, put_definition];
    let mut bytes = Vec::with_capacity(2 * WRITE_BYTES);
    for put in parts {
        for tool in tools.clone() {
            put(tool, &mut bytes);
            if bytes.len() >= WRITE_BYTES {
                write(&bytes)?;
                bytes.clear();
            }
        }
    }
    write(&bytes)
}

fn put_id(tool: &StoredTool, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(tool.id.as_str().as_bytes());
}

fn put_definition(tool: &StoredTool, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(tool.json.as_bytes());
}

fn put_record(tool: &StoredTool, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    let texts = tool.texts.as_flattened();
    let fingerprint = tool.fingerprint.map(Fingerprint::to_bytes);
    let fingerprint = fingerprint.unwrap_or_default();
    bytes.extend_from_slice(&tool.key.to_le_bytes());
    bytes.extend_from_slice(&tool.digest.to_le_bytes());
    for length in [
        tool.id.as_str().len(),
        tool.id.server().len(),
        texts.len(),
        fingerprint.len(),
    ] {
        // A name has at most some hundred bytes.
        bytes.extend_from_slice(&(length as u16).to_le_bytes());
    }
    bytes.extend_from_slice(&(tool.json.len() as u32).to_le_bytes());
    bytes.extend_from_slice(texts);
    bytes.resize(start + FIXED_BYTES + TEXTS_BYTES, 0);
    bytes.extend_from_slice(&fingerprint);
    bytes.resize(start + RECORD_BYTES, 0);
}

/// What a record says of a tool, with the places of its id and definition.
struct Record<'a> {
    key: u64,
    digest: u128,
    id: Range<usize>,
    server_len: usize,
    definition: Range<usize>,
    texts: &'a [u8],
    fingerprint: &'a [u8],
}

fn read(path: &Path, origin: &str) -> Result<Vec<StoredTool>, FileProblem> {
    let (mut file, [tools, id_bytes, low, high]) = KIND.open(path, origin)?;
    let definition_bytes = u64::from(low) | u64::from(high) << 32;
    file.check_length(
        format_args!("{tools} tools"),
        u128::from(tools) * RECORD_BYTES as u128
            + u128::from(id_bytes)
            + u128::from(definition_bytes),
    )?;
    let (tools, id_bytes) = (tools as usize, id_bytes as usize);
    let definition_bytes = definition_bytes as usize;
    let records = file.next(tools * RECORD_BYTES)?;
    let ids = file.next(id_bytes)?;
    let definitions = file.next(definition_bytes)?;
    if !file.is_intact() {
        return Err(FileProblem::Damaged("catalog".to_owned()));
    }
    let ids = String::from_utf8(ids)?;
    let definitions = String::from_utf8(definitions)?;
    let (mut id_end, mut definition_end) = (0, 0);
    let mut found = Vec::with_capacity(tools);
    for record in records.chunks_exact(RECORD_BYTES) {
        found.push(Record::read(record, &mut id_end, &mut definition_end));
    }
    if (id_end, definition_end) != (id_bytes, definition_bytes) {
        return Err(FileProblem::Lengths);
    }
    let definitions = Arc::new(definitions);
    let tools: Option<Vec<StoredTool>> = found
        .par_iter()
        .map(|record| record.tool(&ids, &definitions))
        .collect();
    tools.ok_or(FileProblem::Id)
}

fn bytes_at<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[place + i])
}

fn length_at(bytes: &[u8], place: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes_at(bytes, place)))
}

impl<'a> Record<'a> {
    fn read(bytes: &'a [u8], id_end: &mut usize, definition_end: &mut usize) -> Self {
        let (fixed, rest) = bytes.split_at(FIXED_BYTES);
        let (texts, fingerprint) = rest.split_at(TEXTS_BYTES);
        let definition = u32::from_le_bytes(bytes_at(fixed, 32));
        // The file has the lengths of ids and definitions, not their places: they lie end to end.
        let (id_start, definition_start) = (*id_end, *definition_end);
        *id_end += length_at(fixed, 24);
        *definition_end += definition as usize;
        Record {
            key: u64::from_le_bytes(bytes_at(fixed, 0)),
            digest: u128::from_le_bytes(bytes_at(fixed, 8)),
            id: id_start..*id_end,
            server_len: length_at(fixed, 26),
            definition: definition_start..*definition_end,
            texts: &texts[..length_at(fixed, 28).min(TEXTS_BYTES)],
            fingerprint: &fingerprint[..length_at(fixed, 30).min(Fingerprint::BYTES)],
        }
    }

    fn tool(&self, ids: &str, definitions: &Arc<String>) -> Option<StoredTool> {
        let id = ids.get(self.id.clone())?;
        let id = match id.split_at_checked(self.server_len)? {
            ("", name) => ToolId::new("", name),
            (server, name) => ToolId::new(server, name.strip_prefix('/')?),
        };
        Some(StoredTool {
            key: self.key,
            digest: self.digest,
            id: id.ok()?,
            texts: self.texts.as_chunks().0.to_vec(),
            fingerprint: Fingerprint::from_bytes(self.fingerprint),
            enrichment: None,
            owner_texts: OwnerTexts::default(),
            json: SharedText::part_of(definitions, self.definition.clone())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;
    use crate::tools_db::ToolsDb;

    fn tools(folder: &Path) -> Vec<StoredTool> {
        let path = folder.join("tools.db");
        ToolsDb::create(&path).unwrap();
        let store = ToolsDb::open(&path).unwrap();
        store.begin_write().unwrap();
        for (server, name, description) in [
            ("", "alone", "A tool without a server."),
            (
                "mail",
                "send",
                "Sends a message to one or more people, with attachments.",
            ),
            ("a/b", "c/d", "发送消息"),
        ] {
            let tool = Tool::new(server, name)
                .unwrap()
                .with_description(description);
            store.upsert(&[tool]).unwrap();
        }
        store.commit().unwrap();
        store.tools().unwrap()
    }

    #[test]
    fn a_file_gives_back_every_tool() {
        let dir = tempfile::tempdir().unwrap();
        let tools = tools(dir.path());
        let path = dir.path().join(FILE_NAME);
        save(&path, "origin", tools.iter()).unwrap();
        let found = load(&path, "origin").unwrap();
        assert_eq!(format!("{found:?}"), format!("{tools:?}"));
        assert_eq!(found[0].id.server(), "a/b");
        assert!(found.iter().all(|tool| tool.parse().is_ok()));
        save(&path, "origin", [].iter()).unwrap();
        assert!(load(&path, "origin").unwrap().is_empty());
    }

    #[test]
    fn another_origin_and_every_damage_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        assert!(load(&path, "origin").is_err());
        save(&path, "origin", tools(dir.path()).iter()).unwrap();
        assert!(load(&path, "other").is_err());
        let good = std::fs::read(&path).unwrap();
        for place in 0..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert!(load(&path, "origin").is_err(), "byte {place}");
        }
        for length in 0..good.len() {
            std::fs::write(&path, &good[..length]).unwrap();
            assert!(load(&path, "origin").is_err(), "{length} bytes");
        }
    }
}
