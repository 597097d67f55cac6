//! The source of truth of a catalog: tools and vectors in SQLite.
//!
//! Readers and the writer have connections of their own; in WAL mode they do not wait for each
//! other. A vector is stored under its model's id and dimensions and the hash of its text, so a text
//! is embedded once, however many tools contain it.

mod enrichments;
mod observed;
mod owner_words;
pub mod tool_file;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Deserialize;

use crate::database::{self, first_column};
use crate::dense::TextHash;
use crate::document::{self, TEMPLATE_VERSION, VIEWS, View};
use crate::duplicates::Fingerprint;
use crate::error::{Error, Result, StoreProblem};
use crate::files::{self, CHECKSUM_BYTES};
use crate::owner_words::OwnerWords;
use crate::tool::{Labels, OwnerTexts, Tool, ToolId};
use crate::variant::CountedTexts;

pub use crate::files::{opened_vector, sealed_vector};
pub use enrichments::{EnrichmentSum, StoredEnrichment};
pub use observed::Observed;

/// Goes into the hash of every text. A new version makes all stored vectors obsolete.
const TEXT_HASH_VERSION: u32 = 1;

/// The layout of the database; a newer one is refused.
const SCHEMA_VERSION: u32 = 1;

/// How long a connection waits for another's short lock before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Tools that are prepared at once, while those before them are written.
const CHUNK: usize = 512;

// `vectors` has row ids: in a table without them, rows over about 1,000 bytes spill to a page each,
// which takes five times the disk space and read time.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS tools (
        key INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        server TEXT NOT NULL,
        hash BLOB NOT NULL,
        texts BLOB NOT NULL,
        json TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS models (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        dimensions INTEGER NOT NULL,
        UNIQUE (id, dimensions)
    );
    CREATE TABLE IF NOT EXISTS vectors (
        model INTEGER NOT NULL REFERENCES models (key),
        text BLOB NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (model, text)
    );
    INSERT OR IGNORE INTO meta VALUES ('generation', '0');
";

/// Gives a catalog its random identity, which tells it from a later one of the same name.
const GIVE_IDENTITY: &str =
    "INSERT OR IGNORE INTO meta VALUES ('identity', lower(hex(randomblob(16))))";
/// The key of the digest of all tools and its generation: see [`ToolsDb::tools`].
const DIGEST: &str = "digest";
/// The key of what the catalog follows: the generation, a space, and the source.
const FOLLOWED: &str = "followed";
/// Written beside the version of the template once the column `texts` has checksums.
const TEXTS_FORMAT: &str = "checked";

/// A tool as stored; parsed on demand.
#[derive(Clone, Debug)]
pub struct StoredTool {
    /// Its row. A changed tool gets a new key; keys are never reused.
    pub key: u64,
    /// Its part in the digest of all tools.
    pub digest: u128,
    /// Server and name.
    pub id: ToolId,
    /// The texts of its views, in the order of [`View`].
    pub texts: Vec<TextHash>,
    /// Identifies near-duplicates. `None` for a tool with too little text, and in a catalog that an
    /// earlier version wrote.
    pub fingerprint: Option<Fingerprint>,
    /// What a model wrote about when to use it; `None` until it is read by [`ToolsDb::enrichment`].
    // Few tools have one, and it is larger than all the rest.
    pub enrichment: Option<Box<StoredEnrichment>>,
    /// What the owner says of it. Its texts are those of this and of the definition together: where the
    /// owner says something else, the tool gets another key. Empty until a snapshot fills it in.
    pub owner_texts: OwnerTexts,
    /// The tool as JSON.
    pub json: SharedText,
}

/// A text, or the part of a larger one that others share.
#[derive(Clone)]
pub struct SharedText {
    whole: Arc<String>,
    part: Range<usize>,
}

impl SharedText {
    /// A part of a text; `None` where it is out of it or ends within a character.
    pub fn part_of(whole: &Arc<String>, part: Range<usize>) -> Option<Self> {
        whole.get(part.clone())?;
        Some(SharedText {
            whole: Arc::clone(whole),
            part,
        })
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        SharedText {
            part: 0..text.len(),
            whole: Arc::new(text),
        }
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.whole[self.part.clone()]
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The effect of an upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upserted {
    /// The id is new; the tool's key.
    Added(u64),
    /// The id existed with other content; the old and the new key.
    Changed(u64, u64),
    /// The same tool was already stored.
    Unchanged,
}

/// A connection to a catalog's database.
pub struct ToolsDb {
    connection: Connection,
    path: PathBuf,
    /// The exclusive or of the current transaction's changes to the digest of all tools.
    digest_change: Cell<u128>,
}

/// A state of a catalog: which catalog, and which commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Random identity of the catalog; empty if no version with identities has written to it.
    pub identity: String,
    /// The number of the last commit.
    pub generation: u64,
}

/// Up to where a catalog holds everything that another one, its source, has. The source is elsewhere:
/// the engine only remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Identity of the source. Another identity is another catalog, whatever its name.
    pub source: String,
    /// The generation of the source.
    pub generation: u64,
    /// Which state that was. A source that was put back to an older one counts on from there, and so
    /// has other states of the same numbers.
    pub mark: u64,
}

impl Followed {
    /// Reads what [`ToolsDb::set_followed`] writes.
    fn parse(text: &str) -> Option<Self> {
        let (generation, rest) = text.split_once(' ')?;
        // The source comes last and may have spaces.
        let (mark, source) = rest.split_once(' ')?;
        Some(Followed {
            source: source.to_owned(),
            generation: generation.parse().ok()?,
            mark: u64::from_str_radix(mark, 16).ok()?,
        })
    }
}

impl ToolsDb {
    /// Creates the database if it does not exist. An interrupted creation leaves no tables.
    ///
    /// # Errors
    /// As [`ToolsDb::open`].
    pub fn create(path: &Path) -> Result<()> {
        ToolsDb::connect(path, OpenFlags::default()).map(drop)
    }

    /// Opens an existing database for reading and writing.
    ///
    /// # Errors
    /// [`Error::Store`] when it is damaged, has another layout, or cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        ToolsDb::connect(path, OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE)
    }

    /// Opens for reading; works in a read-only folder too.
    ///
    /// # Errors
    /// As [`ToolsDb::open`], and [`StoreProblem::UnreadableLog`].
    pub fn open_read_only(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = ToolsDb::new(path, flags)?;
        store.named(store.connection.busy_timeout(BUSY_TIMEOUT))?;
        if store.version().is_err() {
            store.open_alone()?;
        }
        store.check_version()?;
        Ok(store)
    }

    /// An empty connection, in the place of one that is kept.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn none() -> Result<Self> {
        ToolsDb::new(Path::new(":memory:"), OpenFlags::default())
    }

    fn new(path: &Path, flags: OpenFlags) -> Result<Self> {
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| store_error(path, e))?;
        Ok(ToolsDb {
            connection,
            path: path.to_owned(),
            digest_change: Cell::new(0),
        })
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self> {
        if path.exists() || flags.contains(OpenFlags::SQLITE_OPEN_CREATE) {
            database::make_private(path).map_err(|e| store_error(path, e))?;
        }
        let store = ToolsDb::new(path, flags)?;
        store.named(store.prepare())?;
        store.check_version()?;
        if store.meta("identity")?.is_none() {
            store.execute(GIVE_IDENTITY, [])?;
        }
        store.add_enrichments()?;
        Ok(store)
    }

    /// Replaces the connection by one that needs no log, if that can read the database. Without
    /// write permission SQLite cannot share a log, but then no other process writes either. Changes
    /// in an existing log would be missing, so there must be none.
    fn open_alone(&mut self) -> Result<()> {
        let Ok(connection) = database::open_alone(&self.path) else {
            return Ok(());
        };
        let shared = std::mem::replace(&mut self.connection, connection);
        if self.version().is_err() {
            self.connection = shared;
            return Ok(());
        }
        if database::has_log(&self.path) {
            let [_, log, _] = database::with_logs(&self.path);
            return Err(self.error(StoreProblem::UnreadableLog { log }));
        }
        Ok(())
    }

    /// The catalog's identity and its last commit.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn state(&self) -> Result<Version> {
        Ok(Version {
            identity: self.meta("identity")?.unwrap_or_default(),
            generation: self.generation()?,
        })
    }

    /// The number of the last commit.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn generation(&self) -> Result<u64> {
        let text = self.meta("generation")?.unwrap_or_default();
        match text.parse() {
            Ok(generation) => Ok(generation),
            Err(_) => Err(self.damaged(format!("its generation is {text:?} and not a number"))),
        }
    }

    /// A value stored with the catalog.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn meta(&self, key: &str) -> Result<Option<String>> {
        let mut statement = self.sql("SELECT value FROM meta WHERE key = ?1")?;
        self.named(statement.query_row([key], first_column).optional())
    }

    /// Stores a value with the catalog.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        self.execute(
            "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
            params![key, value],
        )
    }

    /// What the catalog follows, if it follows another one.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn followed(&self) -> Result<Option<Followed>> {
        let Some(text) = self.meta(FOLLOWED)? else {
            return Ok(None);
        };
        match Followed::parse(&text) {
            Some(followed) => Ok(Some(followed)),
            None => Err(self.damaged(format!("what it follows is {text:?}"))),
        }
    }

    /// Stores what the catalog follows.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_followed(&self, followed: &Followed) -> Result<()> {
        let Followed {
            source,
            generation,
            mark,
        } = followed;
        self.set_meta(FOLLOWED, &format!("{generation} {mark:x} {source}"))
    }

    /// Starts a read transaction: until [`ToolsDb::end`] all reads see one state.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn begin_read(&self) -> Result<()> {
        self.execute("BEGIN DEFERRED", [])
    }

    /// Starts the one write transaction.
    ///
    /// # Errors
    /// [`Error::Store`], also when the file cannot be written.
    pub fn begin_write(&self) -> Result<()> {
        self.execute("BEGIN IMMEDIATE", [])
    }

    /// Ends a read transaction.
    pub fn end(&self) {
        self.rollback();
    }

    /// Moves the log into the database file, as far as no reader still needs it.
    pub fn checkpoint(&self) {
        // The log is as durable as the database file, so a failure loses nothing.
        let _ = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Undoes the write transaction, if one is open.
    pub fn rollback(&self) {
        self.digest_change.set(0);
        if !self.connection.is_autocommit() {
            // A rollback that fails leaves a transaction that SQLite rolls back when the connection
            // closes.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Makes the write transaction durable under the next generation, which is returned.
    ///
    /// # Errors
    /// [`Error::Store`], for a full disk among others; the transaction is then undone.
    pub fn commit(&self) -> Result<u64> {
        let committed = self.try_commit();
        if committed.is_err() {
            self.rollback();
        }
        committed
    }

    fn try_commit(&self) -> Result<u64> {
        let before = self.generation()?;
        let generation = before + 1;
        // Reading all hashes takes time in a large catalog, so the digest is only changed.
        let digest = match self.digest(before)? {
            Some(digest) => digest ^ self.digest_change.get(),
            None => self.digest_of_all()?,
        };
        self.set_meta(DIGEST, &format!("{generation} {digest:032x}"))?;
        self.set_meta("generation", &generation.to_string())?;
        self.execute("COMMIT", [])?;
        self.digest_change.set(0);
        Ok(generation)
    }

    /// The digest of all tools at this generation; `None` if an earlier version wrote it, which
    /// stored none.
    fn digest(&self, generation: u64) -> Result<Option<u128>> {
        let Some(text) = self.meta(DIGEST)? else {
            return Ok(None);
        };
        let Some((of, digest)) = text.split_once(' ') else {
            return Ok(None);
        };
        // A version without digests has committed since, and its changes are not in this one.
        if of != generation.to_string() {
            return Ok(None);
        }
        Ok(u128::from_str_radix(digest, 16).ok())
    }

    fn digest_of_all(&self) -> Result<u128> {
        let mut statement = self.sql("SELECT hash FROM tools")?;
        let hashes = self.named(statement.query_map([], first_column::<[u8; 32]>))?;
        let mut digest = 0;
        for hash in hashes {
            digest ^= digest_of(&self.named(hash)?);
        }
        Ok(digest)
    }

    /// The number of tools.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn count(&self) -> Result<usize> {
        let mut statement = self.sql("SELECT count(*) FROM tools")?;
        let count: u64 = self.named(statement.query_row([], first_column))?;
        Ok(count as usize)
    }

    /// The keys of all tools, in the order of their ids.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn keys(&self) -> Result<Vec<u64>> {
        let mut statement = self.sql("SELECT key FROM tools ORDER BY id")?;
        let keys = statement.query_map([], first_column);
        self.named(keys.and_then(Iterator::collect))
    }

    /// Every tool, in the order of ids. The digest of all detects rows that a damaged page has lost,
    /// which SQLite does not notice.
    ///
    /// # Errors
    /// [`Error::Store`], also when these are not the tools that were committed.
    pub fn tools(&self) -> Result<Vec<StoredTool>> {
        let mut tools = Vec::new();
        self.for_each_tool(|tool| tools.push(tool))?;
        Ok(tools)
    }

    /// As [`ToolsDb::tools`], one after another.
    ///
    /// # Errors
    /// As [`ToolsDb::tools`].
    pub fn for_each_tool(&self, mut found: impl FnMut(StoredTool)) -> Result<()> {
        let mut statement =
            self.sql("SELECT key, id, server, texts, json, hash FROM tools ORDER BY id")?;
        let rows = self.named(statement.query_map([], read_tool))?;
        let mut digests = Vec::new();
        for row in rows {
            let tool = self.checked(row)?;
            digests.push(tool.digest);
            found(tool);
        }
        self.check_digests(digests.into_iter())
    }

    /// Compares the digests of all tools with that of those that were committed.
    ///
    /// # Errors
    /// [`Error::Store`] when they are not the same.
    pub fn check_digests(&self, digests: impl ExactSizeIterator<Item = u128>) -> Result<()> {
        let count = digests.len();
        let mut digest = 0;
        for part in digests {
            digest ^= part;
        }
        match self.digest(self.generation()?)? {
            Some(expected) if expected != digest => Err(self.damaged(format!(
                "its {count} tools are not those that were committed"
            ))),
            _ => Ok(()),
        }
    }

    /// What a file of all tools must be of: this catalog, and the template by which the hashes of
    /// texts are stored. `None` for a catalog of an earlier version without an identity.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn origin(&self) -> Result<Option<String>> {
        let identity = self.meta("identity")?;
        let template = self.meta("template_version")?.unwrap_or_default();
        Ok(identity.map(|identity| format!("{identity}, template {template}")))
    }

    /// The key of the tool that has this id now.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn key(&self, id: &ToolId) -> Result<Option<u64>> {
        Ok(self.key_and_hash(id)?.map(|(key, _)| key))
    }

    /// One tool.
    ///
    /// # Errors
    /// [`Error::Store`], also when it is not there.
    pub fn tool(&self, key: u64) -> Result<StoredTool> {
        let mut statement =
            self.sql("SELECT key, id, server, texts, json, hash FROM tools WHERE key = ?1")?;
        self.checked(statement.query_row([key], read_tool))
    }

    /// The ids of a server's tools.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn ids_of_server(&self, server: &str) -> Result<Vec<ToolId>> {
        let mut statement = self.sql("SELECT id FROM tools WHERE server = ?1 ORDER BY id")?;
        let rows = self.named(statement.query_map([server], first_column::<String>))?;
        let mut ids = Vec::new();
        for id in rows {
            ids.push(self.tool_id(server, &self.named(id)?)?);
        }
        Ok(ids)
    }

    /// Adds tools or replaces those of their ids. No two may have the same id.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn upsert(&self, tools: &[Tool]) -> Result<Vec<Upserted>> {
        let words = self.owner_words()?;
        let known = tools.iter().map(|tool| self.key_and_hash(&tool.id));
        let known: Vec<Option<Stored>> = known.collect::<Result<_>>()?;
        let prepare = |(tools, known)| changes(tools, known, words.as_ref());
        let mut chunks = tools.chunks(CHUNK).zip(known.chunks(CHUNK));
        let mut upserted = Vec::with_capacity(tools.len());
        let mut prepared = chunks.next().map(prepare).transpose()?;
        while let Some(changes) = prepared {
            let (chunk, mut next) = (chunks.next(), None);
            // The database has one writer. The next tools are prepared meanwhile, in parallel.
            rayon::in_place_scope(|scope| {
                if chunk.is_some() {
                    scope.spawn(|_| next = chunk.map(prepare));
                }
                for change in changes {
                    upserted.push(self.apply(change)?);
                }
                Ok(())
            })?;
            prepared = next.transpose()?;
        }
        Ok(upserted)
    }

    fn apply(&self, change: Change<'_>) -> Result<Upserted> {
        let Change {
            id,
            known,
            hash,
            new: Some((texts, json)),
        } = change
        else {
            return Ok(Upserted::Unchanged);
        };
        if let Some((key, old_hash)) = &known {
            self.delete(*key, old_hash)?;
        }
        let key = self.insert(id, hash.as_bytes(), &texts, &json)?;
        Ok(match known {
            Some((old, _)) => Upserted::Changed(old, key),
            None => Upserted::Added(key),
        })
    }

    /// Inserts a tool and returns its key.
    fn insert(&self, id: &ToolId, hash: &[u8; 32], texts: &[u8], json: &str) -> Result<u64> {
        let sql = "INSERT INTO tools (id, server, hash, texts, json) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.execute(sql, params![id.as_str(), id.server(), hash, texts, json])?;
        self.change_digest(hash);
        Ok(self.connection.last_insert_rowid() as u64)
    }

    /// Removes a tool. Returns the key it had, if it existed.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remove(&self, id: &ToolId) -> Result<Option<u64>> {
        let Some((key, hash)) = self.key_and_hash(id)? else {
            return Ok(None);
        };
        self.delete(key, &hash)?;
        Ok(Some(key))
    }

    fn delete(&self, key: u64, hash: &[u8; 32]) -> Result<()> {
        self.execute("DELETE FROM tools WHERE key = ?1", [key])?;
        self.delete_enrichment(key)?;
        self.change_digest(hash);
        Ok(())
    }

    fn change_digest(&self, hash: &[u8; 32]) {
        self.digest_change
            .set(self.digest_change.get() ^ digest_of(hash));
    }

    /// The key of a model's vectors; `None` when it has none yet.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn model(&self, id: &str, dimensions: usize) -> Result<Option<u64>> {
        let mut statement = self.sql("SELECT key FROM models WHERE id = ?1 AND dimensions = ?2")?;
        let key = statement.query_row(params![id, dimensions as u64], first_column);
        self.named(key.optional())
    }

    /// The key of a model's vectors, assigned if it has none yet.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn register_model(&self, id: &str, dimensions: usize) -> Result<u64> {
        self.execute(
            "INSERT OR IGNORE INTO models (id, dimensions) VALUES (?1, ?2)",
            params![id, dimensions as u64],
        )?;
        match self.model(id, dimensions)? {
            Some(key) => Ok(key),
            None => Err(self.damaged("a model that was just added is missing")),
        }
    }

    /// The models that have had vectors, with their dimensions.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn models(&self) -> Result<Vec<(String, usize)>> {
        let mut statement =
            self.sql("SELECT id, dimensions FROM models ORDER BY id, dimensions")?;
        let models = statement.query_map([], read_counted);
        self.named(models.and_then(Iterator::collect))
    }

    /// How many vectors each model has.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn vector_counts(&self) -> Result<Vec<(String, usize)>> {
        let mut statement = self.sql(
            "SELECT models.id, count(*) FROM vectors JOIN models ON models.key = vectors.model GROUP BY models.id ORDER BY 1",
        )?;
        let counts = statement.query_map([], read_counted);
        self.named(counts.and_then(Iterator::collect))
    }

    /// Every intact vector of a model, and the number of damaged ones.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn vectors(
        &self,
        model: u64,
        dimensions: usize,
    ) -> Result<(HashMap<TextHash, Vec<f32>>, usize)> {
        let mut statement = self.sql("SELECT text, vector FROM vectors WHERE model = ?1")?;
        let mut rows = self.named(statement.query([model]))?;
        let (mut vectors, mut damaged) = (HashMap::new(), 0);
        while let Some(row) = self.named(rows.next())? {
            match read_vector(row, model, dimensions) {
                Some((text, vector)) => drop(vectors.insert(text, vector)),
                None => damaged += 1,
            }
        }
        Ok((vectors, damaged))
    }

    /// One vector of a model; `None` if it is missing or damaged.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn vector(
        &self,
        model: u64,
        dimensions: usize,
        text: &TextHash,
    ) -> Result<Option<Vec<f32>>> {
        let mut statement =
            self.sql("SELECT text, vector FROM vectors WHERE model = ?1 AND text = ?2")?;
        let mut rows = self.named(statement.query(params![model, text]))?;
        let Some(row) = self.named(rows.next())? else {
            return Ok(None);
        };
        Ok(read_vector(row, model, dimensions).map(|(_, vector)| vector))
    }

    /// Stores a vector.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn put_vector(&self, model: u64, text: &TextHash, vector: &[f32]) -> Result<()> {
        let bytes = sealed_vector(vector, &[&model.to_le_bytes(), text]);
        self.execute(
            "INSERT OR REPLACE INTO vectors VALUES (?1, ?2, ?3)",
            params![model, text, bytes],
        )
    }

    /// Updates the hashes of texts if the program's template has changed since they were stored. True
    /// if it has.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn refresh_texts(&self) -> Result<bool> {
        if !self.is_of_former_version()? {
            return Ok(false);
        }
        self.begin_write()?;
        let words = self.owner_words()?;
        for stored in self.tools()? {
            let tool = stored.parse()?;
            let texts = checked_texts(&searched(&tool, words.as_ref()));
            self.execute(
                "UPDATE tools SET texts = ?2 WHERE key = ?1",
                params![stored.key, texts],
            )?;
        }
        self.set_meta("template_version", &texts_version())?;
        self.commit()?;
        Ok(true)
    }

    /// True until a writer of this version has brought the hashes of texts up to date.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn is_of_former_version(&self) -> Result<bool> {
        Ok(self.meta("template_version")? != Some(texts_version()))
    }

    /// The error for a database in which this was found.
    pub fn damaged(&self, found: impl fmt::Display) -> Error {
        self.error(StoreProblem::Damaged {
            found: found.to_string(),
        })
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        database::use_wal(&self.connection, BUSY_TIMEOUT)?;
        // In WAL mode NORMAL survives a killed process, FULL also a power cut. Commits are rare, so
        // the sync is worth its time.
        self.connection.pragma_update(None, "synchronous", "full")?;
        let version: u32 =
            self.connection
                .pragma_query_value(None, "user_version", first_column)?;
        if version == 0 {
            // Another process may create the tables at the same time. It waits for the lock, and
            // then `IF NOT EXISTS` leaves them as they are.
            self.connection.execute_batch(&format!(
                "BEGIN IMMEDIATE; {SCHEMA} {GIVE_IDENTITY}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT"
            ))?;
        }
        Ok(())
    }

    fn version(&self) -> rusqlite::Result<u32> {
        let version = self
            .connection
            .pragma_query_value(None, "user_version", first_column)?;
        // The version is in the header of the file; this shows that the schema can be read too.
        self.connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(version)
    }

    fn check_version(&self) -> Result<()> {
        match self.named(self.version())? {
            SCHEMA_VERSION => Ok(()),
            0 => Err(self.damaged("it has no layout")),
            found => Err(self.error(StoreProblem::Layout {
                found,
                known: SCHEMA_VERSION,
            })),
        }
    }

    fn key_and_hash(&self, id: &ToolId) -> Result<Option<Stored>> {
        let mut statement = self.sql("SELECT key, hash FROM tools WHERE id = ?1")?;
        let found = statement
            .query_row([id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional();
        self.named(found)
    }

    /// Checks a row against its hash, which detects changed bytes that SQLite does not notice.
    fn checked(&self, row: rusqlite::Result<ToolRow>) -> Result<StoredTool> {
        let (key, id, server, texts, json, hash) = match row {
            Ok(row) => row,
            Err(e @ rusqlite::Error::SqliteFailure(..)) => return Err(self.error(e)),
            // A value of another type, or text that is not UTF-8.
            Err(e) => return Err(self.damaged(e)),
        };
        if blake3::hash(json.as_bytes()) != hash {
            return Err(self.damaged(format!("the tool {id:?} is not what was written")));
        }
        let id = self.tool_id(&server, &id)?;
        let stored = StoredTool {
            key,
            digest: digest_of(&hash),
            id,
            texts: Vec::new(),
            fingerprint: None,
            enrichment: None,
            owner_texts: OwnerTexts::default(),
            json: json.into(),
        };
        // The hash does not cover the column `texts`, and all in it follows from the tool.
        let texts = match intact_texts(&texts, &stored.id) {
            Some(texts) => texts.to_vec(),
            None => self.texts_anew(&stored)?,
        };
        let (texts, fingerprint) = texts.split_at(texts.len().min(VIEWS * size_of::<TextHash>()));
        let fingerprint = Fingerprint::from_bytes(fingerprint);
        Ok(StoredTool {
            texts: texts.as_chunks().0.to_vec(),
            fingerprint,
            ..stored
        })
    }

    /// Computes the column `texts` of a tool whose stored one is damaged.
    fn texts_anew(&self, stored: &StoredTool) -> Result<Vec<u8>> {
        let tool = stored.parse()?;
        // The damage may also have moved the row's content to another id.
        if tool.id != stored.id {
            return Err(self.damaged(format!(
                "the tool {:?} is stored under the id {:?}",
                tool.id, stored.id
            )));
        }
        Ok(texts(&searched(&tool, self.owner_words()?.as_ref())))
    }

    /// The id in a row, checked against the server in the same row.
    fn tool_id(&self, server: &str, id: &str) -> Result<ToolId> {
        let name = match id.strip_prefix(server) {
            Some(name) if server.is_empty() => Some(name),
            Some(rest) => rest.strip_prefix('/'),
            None => None,
        };
        let Some(name) = name else {
            return Err(self.damaged(format!("the tool {id:?} is not of the server {server:?}")));
        };
        ToolId::new(server, name).map_err(|e| self.damaged(e))
    }

    fn sql(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.named(self.connection.prepare_cached(sql))
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> Result<()> {
        self.named(self.sql(sql)?.execute(params))?;
        Ok(())
    }

    /// The result, whose error then names this database.
    fn named<T>(&self, result: Result<T, impl Into<StoreProblem>>) -> Result<T> {
        result.map_err(|problem| self.error(problem))
    }

    fn error(&self, problem: impl Into<StoreProblem>) -> Error {
        store_error(&self.path, problem)
    }
}

/// What [`ToolsDb::refresh_texts`] stores.
fn texts_version() -> String {
    format!("{TEMPLATE_VERSION} {TEXTS_FORMAT}")
}

/// The key and the hash of a stored tool.
type Stored = (u64, [u8; 32]);

/// What has to be written for these tools, in whose place others may be stored.
fn changes<'a>(
    tools: &'a [Tool],
    known: &[Option<Stored>],
    words: Option<&OwnerWords>,
) -> Result<Vec<Change<'a>>> {
    let pairs = tools.par_iter().zip(known);
    pairs
        .map(|(tool, known)| Change::of(tool, *known, words))
        .collect()
}

/// What has to be written for a tool.
struct Change<'a> {
    id: &'a ToolId,
    /// The tool that has its id now.
    known: Option<Stored>,
    hash: blake3::Hash,
    /// The texts and the JSON of another tool than that; `None` where it is the same.
    new: Option<(Vec<u8>, String)>,
}

impl<'a> Change<'a> {
    fn of(tool: &'a Tool, known: Option<Stored>, words: Option<&OwnerWords>) -> Result<Self> {
        let json = serde_json::to_string(tool)
            .map_err(|e| Error::invalid_tool(tool.id.to_string(), e.to_string()))?;
        let hash = blake3::hash(json.as_bytes());
        let new = match known {
            Some((_, known)) if known == *hash.as_bytes() => None,
            _ => Some((checked_texts(&searched(tool, words)), json)),
        };
        Ok(Change {
            id: &tool.id,
            known,
            hash,
            new,
        })
    }
}

impl StoredTool {
    /// A tool as it would be stored in this row, without what an owner says of it.
    pub fn new(key: u64, tool: &Tool, json: String) -> Self {
        let texts = document::views(tool);
        StoredTool {
            key,
            digest: digest_of(blake3::hash(json.as_bytes()).as_bytes()),
            id: tool.id.clone(),
            texts: texts.iter().map(String::as_str).map(text_hash).collect(),
            fingerprint: Fingerprint::of(tool),
            enrichment: None,
            owner_texts: OwnerTexts::default(),
            json: json.into(),
        }
    }

    /// The text hashes of these views. A catalog of an earlier version may lack some until it is
    /// next written to.
    pub fn texts_of<'a>(&'a self, views: &'a [View]) -> impl Iterator<Item = &'a TextHash> {
        views
            .iter()
            .filter_map(|&view| self.texts.get(view as usize))
    }

    /// The texts that are embedded beside its views: those of its enrichment, and its aliases. None where
    /// the hash of a view is missing, since a view is found by its number.
    pub fn further_texts(&self) -> impl Iterator<Item = &str> {
        let (enrichment, aliases) = self.embedded_beside_views();
        let written = enrichment.map_or(&[][..], |stored| stored.enrichment.texts());
        written.iter().chain(aliases).map(String::as_str)
    }

    /// The hashes of [`StoredTool::further_texts`].
    pub fn further_hashes(&self) -> impl Iterator<Item = TextHash> {
        let (enrichment, aliases) = self.embedded_beside_views();
        let written = enrichment.map_or(&[][..], |stored| &stored.hashes);
        let aliases = aliases.iter().map(String::as_str).map(text_hash);
        written.iter().copied().chain(aliases)
    }

    /// How many of [`StoredTool::further_texts`] a language model wrote; they are the first ones.
    pub fn written_texts(&self) -> usize {
        let (enrichment, _) = self.embedded_beside_views();
        enrichment.map_or(0, |stored| stored.hashes.len())
    }

    fn embedded_beside_views(&self) -> (Option<&StoredEnrichment>, &[String]) {
        match self.texts.len() {
            VIEWS => (self.enrichment.as_deref(), self.owner_texts.aliases()),
            _ => (None, &[]),
        }
    }

    /// The text hashes of these views, then those of [`StoredTool::further_texts`].
    pub fn embedded_texts<'a>(&'a self, views: &'a [View]) -> impl Iterator<Item = TextHash> + 'a {
        self.texts_of(views).copied().chain(self.further_hashes())
    }

    /// The tool itself, with what the owner says of it.
    ///
    /// # Errors
    /// [`Error::InvalidTool`] when the stored JSON is not a tool.
    pub fn parse(&self) -> Result<Tool> {
        let tool: Tool = serde_json::from_str(&self.json)
            .map_err(|e| Error::invalid_tool(self.id.to_string(), format!("stored JSON: {e}")))?;
        Ok(Tool {
            owner_texts: self.owner_texts.clone(),
            ..tool
        })
    }

    /// The description for models and people: the owner's, or else the tool's own. Reads no more of the
    /// tool; empty where the stored JSON is not a tool.
    pub fn shown_description(&self) -> String {
        #[derive(Deserialize)]
        struct Described {
            #[serde(default)]
            description: String,
        }
        if let Some(of_owner) = self.owner_texts.description() {
            return of_owner.to_owned();
        }
        match serde_json::from_str(&self.json) {
            Ok(Described { description }) => description,
            Err(_) => String::new(),
        }
    }

    /// The tool's labels, without the rest of it; none where the stored JSON is not a tool.
    pub(crate) fn labels(&self) -> Labels {
        serde_json::from_str(&self.json).unwrap_or_default()
    }
}

/// A tool as it is searched in a catalog with these words.
fn searched<'a>(tool: &'a Tool, words: Option<&OwnerWords>) -> Cow<'a, Tool> {
    let owner_texts = match words {
        Some(words) => words.texts_of(&tool.id),
        None => OwnerTexts::default(),
    };
    // The tool may come with what the owner of another catalog says of it.
    if owner_texts.is_empty() && tool.owner_texts.is_empty() {
        return Cow::Borrowed(tool);
    }
    Cow::Owned(Tool {
        owner_texts,
        ..tool.clone()
    })
}

/// The hashes of a tool's views, then its fingerprint.
fn texts(tool: &Tool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for view in document::views(tool) {
        bytes.extend(text_hash(&view));
    }
    if let Some(fingerprint) = Fingerprint::of(tool) {
        bytes.extend(fingerprint.to_bytes());
    }
    bytes
}

/// The value of the column `texts`: [`texts`], then their checksum.
fn checked_texts(tool: &Tool) -> Vec<u8> {
    let mut bytes = texts(tool);
    bytes.extend(files::checksum(&[&bytes, tool.id.as_str().as_bytes()]));
    bytes
}

/// The texts of a tool without their checksum; `None` if they are damaged. Earlier versions wrote no
/// checksum: their hashes and fingerprints are multiples of 16 bytes long.
fn intact_texts<'a>(column: &'a [u8], id: &ToolId) -> Option<&'a [u8]> {
    if column.len().is_multiple_of(size_of::<TextHash>()) {
        return Some(column);
    }
    let (texts, sum) = column.split_at_checked(column.len().checked_sub(CHECKSUM_BYTES)?)?;
    (files::checksum(&[texts, id.as_str().as_bytes()]) == sum).then_some(texts)
}

/// The part of one tool in the digest of all. Parts are joined by exclusive or, so that one can be
/// taken out again and the order does not matter.
fn digest_of(hash: &[u8; 32]) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    u128::from_le_bytes(half)
}

/// The name under which a text's vectors are stored.
pub fn text_hash(text: &str) -> TextHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&TEXT_HASH_VERSION.to_le_bytes());
    hasher.update(text.as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    hash
}

impl CountedTexts {
    /// All but this one. A search for it is then as one for what nobody wrote down.
    pub fn without(text: &str) -> Self {
        CountedTexts::Without(text_hash(text))
    }
}

/// Key, id, server, texts, JSON and its hash.
type ToolRow = (u64, String, String, Vec<u8>, String, [u8; 32]);

fn read_tool(row: &rusqlite::Row<'_>) -> rusqlite::Result<ToolRow> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
        row.get(5)?,
    ))
}

/// The name of a model with a number of it.
fn read_counted(row: &rusqlite::Row<'_>) -> rusqlite::Result<(String, usize)> {
    Ok((row.get(0)?, row.get::<_, u64>(1)? as usize))
}

/// A text and its vector; `None` if the row is damaged.
fn read_vector(
    row: &rusqlite::Row<'_>,
    model: u64,
    dimensions: usize,
) -> Option<(TextHash, Vec<f32>)> {
    let text: TextHash = row.get(0).ok()?;
    let bytes = row.get_ref(1).ok()?.as_blob().ok()?;
    Some((
        text,
        opened_vector(bytes, dimensions, &[&model.to_le_bytes(), &text])?,
    ))
}

fn store_error(path: &Path, problem: impl Into<StoreProblem>) -> Error {
    Error::Store {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_whose_id_is_not_of_its_server_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.db");
        ToolsDb::create(&path).unwrap();
        let store = ToolsDb::open(&path).unwrap();
        store.begin_write().unwrap();
        store.upsert(&[Tool::new("mail", "send").unwrap()]).unwrap();
        store.commit().unwrap();
        for damaged in ["m", "mail", "mail/", "weather/send", "mä"] {
            store
                .execute("UPDATE tools SET id = ?1", [damaged])
                .unwrap();
            let error = store.ids_of_server("mail").unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Store {
                        problem: StoreProblem::Damaged { .. },
                        ..
                    }
                ),
                "{damaged}: {error}"
            );
        }
    }
}
