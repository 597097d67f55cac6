//! Usage memory: requests with the tool that was called for them, so that a similar request finds
//! the same tool again.
//!
//! Off until a catalog switches it on. It has a file of its own in the catalog's folder, separate
//! from other catalogs' and deleted with the catalog. A new request is compared with every
//! remembered one and with the centroid of each tool's requests. Only those that are similar enough
//! add to a tool's score.
//!
//! Every pair of request and tool records who taught it. A pair taught by the owner has full weight.
//! An API key that may only search has one vote a pair, and few votes have little weight: see
//! `trust`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::database::{self, DatabaseError, first_column};
use crate::dense::Vectors;
use crate::embed::{Embedder, to_unit_length};
use crate::error::{Error, MemoryEntryProblem, Result};
use crate::files::{self, FileId};
use crate::hit::ranked;
use crate::query::MAX_QUERY_BYTES;
use crate::tool::ToolId;

/// Most pairs of request and tool. The least recently used are evicted, those without full weight
/// first. A pair takes about 3 KB with two embedders.
pub const MAX_ENTRIES: usize = 10_000;
/// Most pairs that one key may have taught; its own oldest are evicted. A tenth, so that one key
/// cannot fill the memory.
pub const MAX_ENTRIES_OF_A_KEY: usize = MAX_ENTRIES / 10;
/// This many different keys have as much weight as the owner.
pub const QUORUM: usize = 3;
/// The name of the file in a catalog's folder.
pub const FILE_NAME: &str = "usage.db";

/// How long changes by another process may go unnoticed.
const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Nearest remembered requests that are considered.
const NEIGHBOURS: usize = 8;
/// The cosine at which a remembered request has no weight; it has full weight at 1. Unrelated
/// requests reach this cosine too.
const MIN_COSINE: f32 = 0.6;
/// From this similarity on (1 is the most) a request counts as the same, and its tool's weight does
/// not depend on agreement with other requests.
const SAME: f32 = 0.99;
/// The weight of the centroid of a tool's requests relative to a single request.
const CENTROID_SHARE: f32 = 0.5;
/// Fewest requests of a tool that get a centroid.
const MIN_FOR_CENTROID: usize = 2;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS flags (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS entries (
        id INTEGER PRIMARY KEY,
        query TEXT NOT NULL,
        tool TEXT NOT NULL,
        times INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        UNIQUE (query, tool)
    ) STRICT;
    CREATE TABLE IF NOT EXISTS vectors (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        embedder TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (entry, embedder)
    ) STRICT;
";

/// From layout 1, which did not store who taught an entry, to layout 2. `sum` is the checksum of
/// an entry's other values.
const UPGRADE: &str = "
    ALTER TABLE entries ADD COLUMN in_full INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE entries ADD COLUMN sum BLOB NOT NULL DEFAULT x'';
    DROP INDEX IF EXISTS entries_by_age;
    CREATE INDEX entries_by_worth ON entries (in_full, at_ms, id);
    CREATE TABLE teachers (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        name TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (entry, name)
    ) STRICT;
    CREATE INDEX teachers_by_name ON teachers (name, at_ms, entry);
    INSERT INTO teachers SELECT id, 'unknown', at_ms FROM entries;
    INSERT OR IGNORE INTO flags VALUES ('on', 0);
";

/// Who taught the memory that a tool was called for a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Source(String);

impl Source {
    /// The prefix of keys that may only search.
    const KEY: &str = "key:";

    /// A user of the command line on this machine.
    pub fn command_line() -> Self {
        Source("cli".to_owned())
    }

    /// A client of a server without keys.
    pub fn keyless() -> Self {
        Source("http".to_owned())
    }

    /// An API key that may change the catalog.
    pub fn admin(key: &str) -> Self {
        Source(format!("admin:{key}"))
    }

    /// An API key that may only search.
    pub fn key(id: &str) -> Self {
        Source(format!("{}{id}", Source::KEY))
    }

    /// Reads the format of [`fmt::Display`].
    pub fn read(text: &str) -> Self {
        Source(text.to_owned())
    }

    /// True where a single vote has little weight, and counts once.
    pub fn is_voter(&self) -> bool {
        self.0.starts_with(Source::KEY)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The weight of an entry, 0 to 1, by who taught it. The weight of keys' votes is the square of
/// their share of a quorum. A single key adds an eighth of the best match's score, so that it puts a
/// tool first only where that was almost first anyway; two add half of it; three put the tool
/// first.
fn trust(sources: &[Source]) -> f32 {
    if !sources.iter().all(Source::is_voter) {
        return 1.0;
    }
    (sources.len() as f32 / QUORUM as f32).min(1.0).powi(2)
}

/// Whether a memory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It stores new requests and adds to scores.
    On,
    /// It keeps its entries, but neither stores new ones nor adds to scores.
    Off,
}

/// One remembered pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The request as it was searched for, at most [`MAX_QUERY_BYTES`].
    pub query: String,
    /// The tool that was called.
    pub tool: ToolId,
    /// How often. A key that may only search counts once.
    pub times: u64,
    /// When it was last called for, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who taught it: `cli`, `http` for a server without keys, `admin:ID` or `key:ID` for a key,
    /// `unknown` for an entry of an earlier version.
    pub taught_by: Vec<Source>,
}

/// Which entries to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Everything.
    All,
    /// The requests that led to this tool.
    Tool(ToolId),
    /// This request, with every tool it led to.
    Query(String),
}

/// What a memory takes from a source that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// How far the source is.
    pub generation: u64,
    /// Whether it is in use there.
    pub switch: Switch,
    /// Entries as they are there.
    pub entries: Vec<Entry>,
    /// There are no other entries; without it, those that are not among `entries` are unchanged.
    pub is_whole: bool,
}

/// A catalog's usage memory. Every change is durable when the call returns.
pub struct Memory {
    path: PathBuf,
    embedders: RwLock<Vec<Arc<dyn Embedder>>>,
    /// Opened once the file exists, with the identity of the open file.
    connection: Mutex<Option<(Option<FileId>, Connection)>>,
    /// The state that searches read.
    loaded: RwLock<Loaded>,
    /// Damaged entries that were deleted since this was opened.
    damaged: AtomicUsize,
    /// Set when an existing file had no tables: it was emptied, or its creation was interrupted.
    was_blank: AtomicBool,
}

/// The state of the file in memory.
#[derive(Clone)]
struct Loaded {
    recall: Option<Arc<Recall>>,
    /// The file, and SQLite's count of other connections' changes to it.
    version: (Option<FileId>, i64),
    checked_at: Instant,
    /// Why the file cannot be read.
    problem: Option<String>,
}

impl Loaded {
    fn empty() -> Self {
        Loaded {
            recall: None,
            version: (None, -1),
            checked_at: Instant::now(),
            problem: None,
        }
    }
}

/// The remembered requests as vectors, by embedder id.
#[derive(Default)]
struct Recall {
    by_embedder: HashMap<String, Neighbours>,
}

/// Requests and centroids of one embedder.
struct Neighbours {
    requests: Vectors,
    /// The tool of each request.
    tools: Vec<ToolId>,
    /// The weight of each request by who taught it.
    trust: Vec<f32>,
    /// Of requests with full weight.
    centroids: Vectors,
    /// The tool of each centroid.
    centroid_tools: Vec<ToolId>,
}

impl Memory {
    /// The memory in a catalog's folder. The file is created on the first write.
    pub fn new(folder: &Path, embedders: &[Arc<dyn Embedder>]) -> Self {
        let memory = Memory {
            path: folder.join(FILE_NAME),
            embedders: RwLock::new(embedders.to_vec()),
            connection: Mutex::new(None),
            loaded: RwLock::new(Loaded::empty()),
            damaged: AtomicUsize::new(0),
            was_blank: AtomicBool::new(false),
        };
        memory.reload_or_report();
        memory
    }

    /// Recalls by these embedders from now on. Vectors of the former ones stay stored; requests
    /// without a vector of a new one are found by the others.
    pub(crate) fn set_embedders(&self, embedders: Vec<Arc<dyn Embedder>>) -> Result<()> {
        *self.embedders.write() = embedders;
        self.reload()
    }

    fn embedders(&self) -> Vec<Arc<dyn Embedder>> {
        self.embedders.read().clone()
    }

    /// Whether it is in use.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn switch(&self) -> Result<Switch> {
        self.read(Switch::Off, switch)
    }

    /// Switches it on or off; its entries stay.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn set_switch(&self, switch: Switch) -> Result<()> {
        let value = i64::from(switch == Switch::On);
        self.write(|connection| {
            connection.execute("INSERT OR REPLACE INTO flags VALUES ('on', ?1)", [value])?;
            Ok(())
        })?;
        self.reload()
    }

    /// Stores that a tool was called for a request, and who taught it. Does nothing while it is
    /// switched off. Returns whether it stored the pair.
    ///
    /// # Errors
    /// [`Error::InvalidMemoryEntry`] for an empty request, [`Error::Memory`], [`Error::Embedder`].
    pub fn remember(
        &self,
        query: &str,
        tool: &ToolId,
        at_ms: i64,
        source: &Source,
    ) -> Result<bool> {
        if self.switch()? == Switch::Off {
            return Ok(false);
        }
        let taught_by = vec![source.clone()];
        let entry = Entry {
            query: query.trim().to_owned(),
            tool: tool.clone(),
            times: 1,
            at_ms,
            taught_by,
        };
        self.store(&[entry], Counting::Add)?;
        Ok(true)
    }

    /// Imports entries as [`Memory::entries`] returned them. Of an entry that exists the larger
    /// count stays, so importing the same entries again changes nothing. The switch has no effect
    /// on this.
    ///
    /// # Errors
    /// As [`Memory::remember`]; nothing is stored then.
    pub fn insert(&self, entries: &[Entry]) -> Result<()> {
        self.store(entries, Counting::Larger)
    }

    /// Stores entries with their vectors, all or none.
    fn store(&self, entries: &[Entry], counting: Counting) -> Result<()> {
        entries.iter().try_for_each(Entry::validate)?;
        // Embedded before the database is locked: a model takes milliseconds a text.
        let embedded = self.embed(&entries.iter().collect::<Vec<_>>())?;
        self.write(|connection| {
            let change = connection.transaction()?;
            for (number, entry) in entries.iter().enumerate() {
                let id = put(&change, entry, counting)?;
                for (embedder, vectors) in &embedded {
                    put_vector(&change, id, &entry.query, embedder, &vectors[number])?;
                }
                for source in &entry.taught_by {
                    evict_votes_of(&change, source)?;
                }
            }
            // In the same transaction, so that no reader sees more than the limit.
            evict_entries(&change)?;
            Ok(change.commit()?)
        })?;
        self.reload()
    }

    /// How far it is with the source that it follows; `None` where it has followed none.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn followed(&self) -> Result<Option<u64>> {
        self.read(None, |connection| {
            let followed = "SELECT value FROM flags WHERE key = 'followed'";
            Ok(connection
                .query_row(followed, [], first_column)
                .optional()?)
        })
    }

    /// Takes what a source has, in one transaction with how far that is.
    ///
    /// # Errors
    /// As [`Memory::remember`]; nothing is changed then.
    pub fn follow(&self, state: &SourceState) -> Result<()> {
        state.entries.iter().try_for_each(Entry::validate)?;
        let known = match state.is_whole {
            true => self.entries(None, MAX_ENTRIES)?,
            false => self.stored(&state.entries)?,
        };
        let known: HashMap<(&str, &ToolId), &Entry> =
            known.iter().map(|entry| (entry.pair(), entry)).collect();
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for entry in &state.entries {
            match known.get(&entry.pair()) {
                Some(known) if *known == entry => continue,
                // Its vectors stay, since its request is the same.
                Some(_) => {}
                None => new.push(entry),
            }
            changed.push(entry);
        }
        let mut gone = Vec::new();
        if state.is_whole {
            let kept: HashSet<_> = state.entries.iter().map(Entry::pair).collect();
            gone.extend(known.keys().copied().filter(|pair| !kept.contains(pair)));
        }
        let embedded = self.embed(&new)?;
        self.write(|connection| {
            let change = connection.transaction()?;
            for (query, tool) in &gone {
                let delete = "DELETE FROM entries WHERE query = ?1 AND tool = ?2";
                change.execute(delete, params![query, tool.as_str()])?;
            }
            for entry in &changed {
                set(&change, entry)?;
            }
            for (number, entry) in new.iter().enumerate() {
                let id = id_of(&change, entry)?;
                for (embedder, vectors) in &embedded {
                    put_vector(&change, id, &entry.query, embedder, &vectors[number])?;
                }
            }
            evict_entries(&change)?;
            let is_on = u64::from(state.switch == Switch::On);
            for (key, value) in [("on", is_on), ("followed", state.generation)] {
                let flag = "INSERT OR REPLACE INTO flags VALUES (?1, ?2)";
                change.execute(flag, params![key, value])?;
            }
            change.commit()?;
            if !gone.is_empty() {
                // The log still holds the deleted rows until it is written back.
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
            Ok(())
        })?;
        self.reload()
    }

    /// What is stored of the same requests and tools.
    fn stored(&self, entries: &[Entry]) -> Result<Vec<Entry>> {
        self.read(Vec::new(), |connection| {
            let mut select = connection.prepare_cached(
                "SELECT query, tool, times, at_ms, id FROM entries WHERE query = ?1 AND tool = ?2",
            )?;
            let mut stored = Vec::new();
            for entry in entries {
                let (query, tool) = entry.pair();
                let mut rows = select.query([query, tool.as_str()])?;
                while let Some(row) = rows.next()? {
                    stored.extend(read_entry(row, sources_of(connection, row.get(4)?)?)?);
                }
            }
            Ok(stored)
        })
    }

    /// The vectors of these requests, by embedder id.
    fn embed(&self, entries: &[&Entry]) -> Result<Vec<(String, Vec<Vec<f32>>)>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Vec<&str> = entries.iter().map(|entry| entry.query.as_str()).collect();
        let (mut embedded, mut failed) = (Vec::new(), None);
        for embedder in &self.embedders() {
            match embedder.embed_queries(&texts) {
                Ok(vectors) => embedded.push((embedder.id().to_owned(), vectors)),
                Err(error) => failed = Some(error),
            }
        }
        // A request is worth keeping even if only one embedder can find it.
        match failed {
            Some(error) if embedded.is_empty() => Err(error),
            _ => Ok(embedded),
        }
    }

    /// A page of at most `limit` entries after this pair of request and tool (exclusive), in that
    /// order.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn entries(&self, after: Option<(&str, &str)>, limit: usize) -> Result<Vec<Entry>> {
        let (query, tool) = after.unwrap_or(("", ""));
        self.read(Vec::new(), |connection| {
            // A comparison of pairs is one range of the unique index on (query, tool).
            let mut page = connection.prepare_cached(
                "SELECT query, tool, times, at_ms, id FROM entries WHERE (query, tool) > (?1, ?2)
                 ORDER BY query, tool LIMIT ?3",
            )?;
            let mut rows = page.query(params![query, tool, limit as u64])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.extend(read_entry(row, sources_of(connection, row.get(4)?)?)?);
            }
            Ok(entries)
        })
    }

    /// Number of entries.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn len(&self) -> Result<usize> {
        let count: u64 = self.read(0, |connection| {
            Ok(connection.query_row("SELECT count(*) FROM entries", [], first_column)?)
        })?;
        Ok(count as usize)
    }

    /// True without entries.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Deletes entries and returns how many. Their bytes are overwritten in the file.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn forget(&self, what: &Deletion) -> Result<usize> {
        if !self.path.exists() {
            return Ok(0);
        }
        let deleted = self.write(|connection| {
            let deleted = match what {
                Deletion::All => connection.execute("DELETE FROM entries", []),
                Deletion::Tool(tool) => {
                    connection.execute("DELETE FROM entries WHERE tool = ?1", [tool.as_str()])
                }
                Deletion::Query(query) => {
                    connection.execute("DELETE FROM entries WHERE query = ?1", [query.trim()])
                }
            }?;
            // The log still holds the deleted rows until it is written back.
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(deleted)
        })?;
        self.reload()?;
        Ok(deleted)
    }

    /// True when it is switched on. Picks up other processes' changes, at most once in
    /// `RECHECK_AFTER`.
    pub fn is_active(&self) -> bool {
        let loaded = self.loaded();
        // Asking SQLite takes a lock and a read of the file, which a search should not wait for.
        if loaded.checked_at.elapsed() >= RECHECK_AFTER {
            self.recheck(loaded.version);
        }
        self.loaded().recall.is_some()
    }

    /// The weights, 0 to 1, of the tools that similar requests led to. `vectors` are the request's:
    /// each with its embedder's id and share.
    pub(crate) fn recall<'a>(
        &self,
        vectors: impl Iterator<Item = (&'a str, f32, &'a [f32])>,
    ) -> HashMap<ToolId, f32> {
        let Some(recall) = self.loaded().recall else {
            return HashMap::new();
        };
        let known: Vec<_> = vectors
            .filter_map(|(id, share, vector)| Some((recall.by_embedder.get(id)?, share, vector)))
            .collect();
        // Embedders without remembered vectors are left out, so the others get their share.
        let shares: f32 = known.iter().map(|(_, share, _)| share).sum();
        let mut recalled = HashMap::new();
        for (neighbours, share, vector) in known {
            for (tool, weight) in neighbours.near(vector) {
                *recalled.entry(tool).or_insert(0.0) += weight * share / shares;
            }
        }
        recalled
    }

    /// Bytes of the remembered requests in memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let Some(recall) = self.loaded().recall else {
            return 0;
        };
        let neighbours = recall.by_embedder.values();
        neighbours.map(Neighbours::memory_bytes).sum()
    }

    /// What is wrong with the file, for the `degraded` field of answers.
    pub fn problem(&self) -> Option<String> {
        match self.damaged.load(Ordering::Relaxed) {
            0 if self.was_blank.load(Ordering::Relaxed) => {
                let lost = "the file of the usage memory was damaged: it was empty, and its entries are lost";
                Some(lost.to_owned())
            }
            0 => self.loaded().problem,
            1 => Some("1 remembered request was damaged and is deleted".to_owned()),
            damaged => Some(format!(
                "{damaged} remembered requests were damaged and are deleted"
            )),
        }
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().clone()
    }

    fn recheck(&self, known: (Option<FileId>, i64)) {
        // SQLite's data version counts the commits of other connections only, so our own writes
        // reload explicitly.
        if let Ok(version) = self.read(-1, data_version)
            && known == (FileId::of(&self.path), version)
        {
            self.loaded.write().checked_at = Instant::now();
        } else {
            self.reload_or_report();
        }
    }

    /// Reloads the file. One that cannot be read is reported by [`Memory::problem`], and searches
    /// continue without it.
    fn reload_or_report(&self) {
        if let Err(Error::Memory { source, .. }) = self.reload() {
            // SQLite's message may name the file. Answers must not tell clients where it is.
            let folder = self
                .path
                .parent()
                .unwrap_or(&self.path)
                .display()
                .to_string();
            let source = source.to_string().replace(&format!("{folder}/"), "");
            let problem = format!(
                "the usage memory cannot be used and nothing is remembered: {source}; deleting \
                 the file fixes this and forgets every request"
            );
            *self.loaded.write() = Loaded {
                problem: Some(problem),
                ..Loaded::empty()
            };
        }
    }

    fn reload(&self) -> Result<()> {
        let file = FileId::of(&self.path);
        let is_another = self.loaded().version.0 != file || self.loaded().version.1 < 0;
        let read = self.read((None, -1, 0), |connection| {
            // Checked once for each file: this process does not cause the damage.
            let damaged = if is_another {
                delete_damaged(connection, &self.embedders())?
            } else {
                0
            };
            let recall = match switch(connection)? {
                Switch::On => Some(Arc::new(Recall::read(connection, &self.embedders())?)),
                Switch::Off => None,
            };
            Ok((recall, data_version(connection)?, damaged))
        });
        let (recall, version, damaged) = read?;
        self.damaged.fetch_add(damaged, Ordering::Relaxed);
        let version = (file, version);
        *self.loaded.write() = Loaded {
            recall,
            version,
            ..Loaded::empty()
        };
        Ok(())
    }

    /// Reads the file; returns `absent` if it does not exist.
    fn read<T>(
        &self,
        absent: T,
        read: impl FnOnce(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T> {
        if !self.path.exists() {
            return Ok(absent);
        }
        self.write(|connection| read(connection))
    }

    /// Opens the file, creating it if necessary, and uses its connection.
    fn write<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T> {
        let mut connection = self.connection.lock();
        // Writes to a deleted file are lost, and another file may have taken its path.
        if let Some((file, _)) = &*connection
            && (*file != FileId::of(&self.path) || !self.path.exists())
        {
            *connection = None;
        }
        let open = match connection.take() {
            Some(open) => open,
            None => {
                let (open, was_blank) = connect(&self.path).map_err(|e| self.error(e))?;
                self.was_blank.fetch_or(was_blank, Ordering::Relaxed);
                (FileId::of(&self.path), open)
            }
        };
        let (_, open) = connection.insert(open);
        work(open).map_err(|e| self.error(e))
    }

    fn error(&self, source: impl Into<DatabaseError>) -> Error {
        Error::Memory {
            path: self.path.clone(),
            source: source.into(),
        }
    }
}

impl Entry {
    fn pair(&self) -> (&str, &ToolId) {
        (self.query.trim(), &self.tool)
    }

    fn validate(&self) -> Result<()> {
        let problem = match self.query.trim().len() {
            0 => MemoryEntryProblem::Empty,
            bytes if bytes > MAX_QUERY_BYTES => MemoryEntryProblem::TooLong {
                bytes,
                max: MAX_QUERY_BYTES,
            },
            _ => return Ok(()),
        };
        Err(Error::InvalidMemoryEntry(problem))
    }
}

impl Recall {
    fn read(connection: &Connection, embedders: &[Arc<dyn Embedder>]) -> rusqlite::Result<Self> {
        let mut by_embedder = HashMap::new();
        for embedder in embedders {
            let mut neighbours = Neighbours::new(embedder.dimensions());
            let mut statement = connection.prepare_cached(VECTORS)?;
            let mut rows = statement.query([embedder.id()])?;
            while let Some(row) = rows.next()? {
                let Ok(tool) = ToolId::parse(&row.get::<_, String>(2)?) else {
                    continue;
                };
                let Some(vector) = read_vector(row, embedder.as_ref())? else {
                    continue;
                };
                let has_full_weight: bool = row.get(4)?;
                let trust = if has_full_weight {
                    1.0
                } else {
                    trust(&sources_of(connection, row.get(0)?)?)
                };
                neighbours.push(embedder.id(), tool, trust, &vector);
            }
            neighbours.add_centroids(embedder.id());
            by_embedder.insert(embedder.id().to_owned(), neighbours);
        }
        Ok(Recall { by_embedder })
    }
}

impl Neighbours {
    fn new(dimensions: usize) -> Self {
        Neighbours {
            requests: Vectors::new(dimensions),
            tools: Vec::new(),
            trust: Vec::new(),
            centroids: Vectors::new(dimensions),
            centroid_tools: Vec::new(),
        }
    }

    /// Bytes in memory, about.
    fn memory_bytes(&self) -> usize {
        let mut bytes = self.requests.memory_bytes() + self.centroids.memory_bytes();
        for id in self.tools.iter().chain(&self.centroid_tools) {
            bytes += size_of::<ToolId>() + id.as_str().len();
        }
        bytes
    }

    /// Adds a request; one of other dimensions cannot be compared and is left out.
    fn push(&mut self, embedder: &str, tool: ToolId, trust: f32, vector: &[f32]) {
        if self.requests.push(embedder, [0; 16], vector).is_ok() {
            self.requests.end_tool();
            self.tools.push(tool);
            self.trust.push(trust);
        }
    }

    /// Adds the centroid of each tool's requests, by those with full weight only.
    fn add_centroids(&mut self, embedder: &str) {
        let mut by_tool: BTreeMap<&ToolId, Vec<usize>> = BTreeMap::new();
        for (request, tool) in self.tools.iter().enumerate() {
            if self.trust[request] >= 1.0 {
                by_tool.entry(tool).or_default().push(request);
            }
        }
        // In the order of tools, which breaks ties between centroids.
        for (tool, requests) in by_tool {
            if requests.len() < MIN_FOR_CENTROID {
                continue;
            }
            let centroid = self.centroid(&requests);
            if self.centroids.push(embedder, [0; 16], &centroid).is_ok() {
                self.centroids.end_tool();
                self.centroid_tools.push(tool.clone());
            }
        }
    }

    /// The mean of these requests' vectors, of length 1.
    fn centroid(&self, requests: &[usize]) -> Vec<f32> {
        let mut sum = vec![0.0f32; self.requests.dimensions()];
        for &request in requests {
            for (sum, value) in sum.iter_mut().zip(self.requests.decoded(request)) {
                *sum += value;
            }
        }
        to_unit_length(&mut sum);
        sum
    }

    /// The tools of similar requests and centroids, each with its largest weight. Requests with
    /// full weight are compared among themselves only, so that no key's votes can reduce their
    /// agreement or displace them among the nearest.
    fn near(&self, vector: &[f32]) -> HashMap<ToolId, f32> {
        let query = [vector.to_vec()];
        let cosines = &self.requests.scores(&query)[0];
        let centroid_cosines = &self.centroids.scores(&query)[0];
        let has_full_weight = |request: usize| self.trust[request] >= 1.0;
        let taught = nearest(cosines, &self.tools, has_full_weight);
        let centroids = nearest(centroid_cosines, &self.centroid_tools, |_| true);
        let voted = nearest(cosines, &self.tools, |request| !has_full_weight(request));
        let mut all: Vec<Neighbour<'_>> = taught.iter().chain(&voted).copied().collect();
        all.sort_by(|a, b| ranked((a.similarity, a.number), (b.similarity, b.number)));

        let mut weights = HashMap::new();
        for neighbour in &taught {
            raise(&mut weights, neighbour, &taught, 1.0);
        }
        for centroid in &centroids {
            raise(&mut weights, centroid, &centroids, CENTROID_SHARE);
        }
        for neighbour in &voted {
            raise(&mut weights, neighbour, &all, self.trust[neighbour.number]);
        }
        weights
    }
}

/// A remembered request, or a centroid, that is similar to the request.
#[derive(Clone, Copy)]
struct Neighbour<'a> {
    /// Its number among the requests or the centroids.
    number: usize,
    tool: &'a ToolId,
    /// Its similarity to the request, 0 to 1.
    similarity: f32,
}

/// Raises the weight of a neighbour's tool to the neighbour's, if that is larger.
fn raise(
    weights: &mut HashMap<ToolId, f32>,
    neighbour: &Neighbour<'_>,
    neighbours: &[Neighbour<'_>],
    share: f32,
) {
    let agreement = if neighbour.similarity >= SAME {
        1.0
    } else {
        agreement(neighbours, neighbour.tool)
    };
    let weight = weights.entry(neighbour.tool.clone()).or_insert(0.0);
    *weight = weight.max(share * neighbour.similarity * agreement);
}

/// The part of the neighbours, by similarity, that led to this tool, cubed: where requests in nearly
/// the same words led to different tools, they are weak evidence. A request that led to several tools
/// counts once.
fn agreement(neighbours: &[Neighbour<'_>], tool: &ToolId) -> f32 {
    let (mut similarities, mut own) = (Vec::new(), 0.0);
    for neighbour in neighbours {
        similarities.push(neighbour.similarity);
        if neighbour.tool == tool {
            own += neighbour.similarity;
        }
    }
    // Nearest first, so the entries of one request are adjacent.
    similarities.dedup();
    // Two requests that are equally near count as one above, so this may be more than 1.
    (own / similarities.iter().sum::<f32>()).min(1.0).powi(3)
}

/// The nearest of those that are similar enough and pass the filter, nearest first.
fn nearest<'a>(
    cosines: &[f32],
    tools: &'a [ToolId],
    accepts: impl Fn(usize) -> bool,
) -> Vec<Neighbour<'a>> {
    let mut near = Vec::new();
    for (number, &cosine) in cosines.iter().enumerate() {
        // Strictly above, so that no similarity is 0 and their sum can be divided by.
        if cosine > MIN_COSINE && accepts(number) {
            near.push((number, cosine));
        }
    }
    near.sort_unstable_by(|a, b| ranked((a.1, a.0), (b.1, b.0)));
    near.truncate(NEIGHBOURS);
    let mut nearest = Vec::with_capacity(near.len());
    for (number, cosine) in near {
        nearest.push(Neighbour {
            number,
            tool: &tools[number],
            // Rounded codes can give a cosine slightly above 1.
            similarity: ((cosine - MIN_COSINE) / (1.0 - MIN_COSINE)).min(1.0),
        });
    }
    nearest
}

/// Opens the file. Returns whether it existed without tables.
fn connect(path: &Path) -> Result<(Connection, bool), DatabaseError> {
    // Before opening, which creates the tables.
    let was_blank = path.exists() && database::is_blank(path);
    let mut connection = database::open(path, &[SCHEMA, UPGRADE])?;
    seal_older(&mut connection)?;
    Ok((connection, was_blank))
}

/// Adds checksums to entries of an earlier layout. Takes the write lock only if there are any.
fn seal_older(connection: &mut Connection) -> rusqlite::Result<()> {
    if unsealed(connection)?.is_empty() {
        return Ok(());
    }
    let change = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Read again under the lock: another process may have sealed some meanwhile.
    for id in unsealed(&change)? {
        seal(&change, id)?;
    }
    change.commit()
}

fn unsealed(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare("SELECT id FROM entries WHERE sum = x''")?
        .query_map([], first_column)?
        .collect()
}

/// Whether it is switched on. A file always has the flag, as 0 or 1.
fn switch(connection: &Connection) -> Result<Switch, DatabaseError> {
    let sql = "SELECT value FROM flags WHERE key = 'on'";
    let on = connection.query_row(sql, [], first_column::<i64>);
    match on.optional()? {
        Some(1) => Ok(Switch::On),
        Some(0) => Ok(Switch::Off),
        _ => Err(DatabaseError::Damaged("its switch is damaged")),
    }
}

fn data_version(connection: &Connection) -> Result<i64, DatabaseError> {
    Ok(connection.pragma_query_value(None, "data_version", first_column)?)
}

/// How the count of an entry changes that is stored again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    /// The request led to the tool once more. A voter that is already counted adds nothing.
    Add,
    /// The entry is imported: the larger count stays.
    Larger,
}

/// Stores an entry, or merges it with the one of the same request and tool. Returns its id.
fn put(connection: &Connection, entry: &Entry, counting: Counting) -> rusqlite::Result<i64> {
    let (query, tool) = (entry.query.trim(), entry.tool.as_str());
    let mut known = connection
        .prepare_cached("SELECT id, times FROM entries WHERE query = ?1 AND tool = ?2")?;
    let known = known
        .query_row([query, tool], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, u64>(1)?))
        })
        .optional()?;
    let times = match known {
        None => entry.times,
        Some((_, times)) if counting == Counting::Larger => entry.times.max(times),
        Some((id, times)) => {
            let counted = sources_of(connection, id)?;
            let adds = entry
                .taught_by
                .iter()
                .any(|source| !source.is_voter() || !counted.contains(source));
            times + u64::from(adds)
        }
    };
    let mut statement = connection.prepare_cached(
        "INSERT INTO entries (query, tool, times, at_ms) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (query, tool) DO UPDATE SET times = ?3, at_ms = max(at_ms, ?4) RETURNING id",
    )?;
    let id = statement.query_row(params![query, tool, times, entry.at_ms], first_column)?;
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO teachers VALUES (?1, ?2, ?3)")?;
    for source in &entry.taught_by {
        statement.execute(params![id, source.0, entry.at_ms])?;
    }
    seal(connection, id)?;
    Ok(id)
}

/// Stores an entry as it is, in place of what is stored of the same request and tool.
fn set(connection: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    let (query, tool) = entry.pair();
    let mut statement = connection.prepare_cached(
        "INSERT INTO entries (query, tool, times, at_ms) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (query, tool) DO UPDATE SET times = ?3, at_ms = ?4",
    )?;
    statement.execute(params![query, tool.as_str(), entry.times, entry.at_ms])?;
    let id = id_of(connection, entry)?;
    connection.execute("DELETE FROM teachers WHERE entry = ?1", [id])?;
    let mut statement = connection.prepare_cached("INSERT INTO teachers VALUES (?1, ?2, ?3)")?;
    for source in &entry.taught_by {
        statement.execute(params![id, source.0, entry.at_ms])?;
    }
    seal(connection, id)
}

fn id_of(connection: &Connection, entry: &Entry) -> rusqlite::Result<i64> {
    let (query, tool) = entry.pair();
    connection
        .prepare_cached("SELECT id FROM entries WHERE query = ?1 AND tool = ?2")?
        .query_row([query, tool.as_str()], first_column)
}

/// Who taught an entry, in the order of names.
fn sources_of(connection: &Connection, entry: i64) -> rusqlite::Result<Vec<Source>> {
    let mut statement =
        connection.prepare_cached("SELECT name FROM teachers WHERE entry = ?1 ORDER BY name")?;
    statement
        .query_map([entry], |row| row.get(0).map(Source))?
        .collect()
}

fn ids(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached("SELECT id FROM entries")?
        .query_map([], first_column)?
        .collect()
}

/// The computed and the stored checksum of an entry.
type Sums = ([u8; files::CHECKSUM_BYTES], Vec<u8>);

/// The checksums of an entry; `None` if it cannot be read.
fn sums(connection: &Connection, entry: i64) -> rusqlite::Result<Option<Sums>> {
    let mut statement = connection.prepare_cached(
        "SELECT query, tool, times, at_ms, in_full, sum FROM entries WHERE id = ?1",
    )?;
    let taught_by = sources_of(connection, entry)?;
    match statement.query_row([entry], |row| read_sums(row, &taught_by)) {
        // The database failed, which says nothing about the entry. Any other error is in its
        // values.
        Err(error @ rusqlite::Error::SqliteFailure(..)) => Err(error),
        read => Ok(read.ok()),
    }
}

fn read_sums(row: &rusqlite::Row<'_>, taught_by: &[Source]) -> rusqlite::Result<Sums> {
    let (query, tool): (String, String) = (row.get(0)?, row.get(1)?);
    let numbers = [row.get::<_, i64>(2)?, row.get(3)?, row.get(4)?].map(i64::to_le_bytes);
    let mut parts = vec![query.as_bytes(), tool.as_bytes(), numbers.as_flattened()];
    for source in taught_by {
        parts.push(source.0.as_bytes());
    }
    Ok((files::checksum(&parts), row.get(5)?))
}

/// Updates the weight and the checksum of a changed entry.
fn seal(connection: &Connection, entry: i64) -> rusqlite::Result<()> {
    // The weight comes first, since the checksum covers it.
    let in_full = trust(&sources_of(connection, entry)?) >= 1.0;
    let mut statement =
        connection.prepare_cached("UPDATE entries SET in_full = ?2 WHERE id = ?1")?;
    statement.execute(params![entry, in_full])?;
    let Some((sum, _)) = sums(connection, entry)? else {
        return Ok(());
    };
    let mut statement = connection.prepare_cached("UPDATE entries SET sum = ?2 WHERE id = ?1")?;
    statement.execute(params![entry, sum]).map(drop)
}

/// The vectors of an embedder with their entries.
// By id, so that requests that are equally near come in a fixed order.
const VECTORS: &str =
    "SELECT entries.id, entries.query, entries.tool, vectors.vector, entries.in_full FROM vectors
    JOIN entries ON entries.id = vectors.entry WHERE vectors.embedder = ?1 ORDER BY entries.id";

/// The vector in a row of [`VECTORS`]; `None` if it is damaged.
fn read_vector(
    row: &rusqlite::Row<'_>,
    embedder: &dyn Embedder,
) -> rusqlite::Result<Option<Vec<f32>>> {
    let query: String = row.get(1)?;
    let Ok(bytes) = row.get_ref(3)?.as_blob() else {
        return Ok(None);
    };
    Ok(files::opened_vector(
        bytes,
        embedder.dimensions(),
        &[query.as_bytes(), embedder.id().as_bytes()],
    ))
}

/// Deletes entries that are damaged or have a damaged vector. Returns how many.
fn delete_damaged(
    connection: &Connection,
    embedders: &[Arc<dyn Embedder>],
) -> rusqlite::Result<usize> {
    let mut damaged = Vec::new();
    for id in ids(connection)? {
        match sums(connection, id)? {
            Some((expected, found)) if found == expected => {}
            _ => damaged.push(id),
        }
    }
    for embedder in embedders {
        let mut statement = connection.prepare_cached(VECTORS)?;
        let mut rows = statement.query([embedder.id()])?;
        while let Some(row) = rows.next()? {
            if read_vector(row, embedder.as_ref())?.is_none() {
                damaged.push(row.get(0)?);
            }
        }
    }
    // An entry has a vector of each embedder, and several of them may be damaged.
    damaged.sort_unstable();
    damaged.dedup();
    for id in &damaged {
        connection.execute("DELETE FROM entries WHERE id = ?1", [id])?;
    }
    Ok(damaged.len())
}

fn put_vector(
    connection: &Connection,
    entry: i64,
    query: &str,
    embedder: &str,
    vector: &[f32],
) -> rusqlite::Result<()> {
    let bytes = files::sealed_vector(vector, &[query.trim().as_bytes(), embedder.as_bytes()]);
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO vectors VALUES (?1, ?2, ?3)")?;
    statement.execute(params![entry, embedder, bytes]).map(drop)
}

/// Deletes the oldest votes of a key that has more than [`MAX_ENTRIES_OF_A_KEY`], and entries that
/// nobody else taught.
fn evict_votes_of(connection: &Connection, source: &Source) -> rusqlite::Result<()> {
    // Only `MAX_ENTRIES` limits the owner.
    if !source.is_voter() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "SELECT entry FROM teachers WHERE name = ?1 ORDER BY at_ms DESC, entry DESC LIMIT -1 OFFSET ?2",
    )?;
    let over: Vec<i64> = statement
        .query_map(params![source.0, MAX_ENTRIES_OF_A_KEY as i64], first_column)?
        .collect::<rusqlite::Result<_>>()?;
    for entry in over {
        connection.execute(
            "DELETE FROM teachers WHERE entry = ?1 AND name = ?2",
            params![entry, source.0],
        )?;
        if sources_of(connection, entry)?.is_empty() {
            connection.execute("DELETE FROM entries WHERE id = ?1", [entry])?;
        } else {
            seal(connection, entry)?;
        }
    }
    Ok(())
}

fn evict_entries(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM entries WHERE id IN
             (SELECT id FROM entries ORDER BY in_full DESC, at_ms DESC, id DESC LIMIT -1 OFFSET ?1)",
    )?;
    statement.execute([MAX_ENTRIES as i64]).map(drop)
}

/// The entry in a row; `None` if its tool's id is invalid, which this program never writes.
fn read_entry(row: &rusqlite::Row<'_>, taught_by: Vec<Source>) -> rusqlite::Result<Option<Entry>> {
    let tool: String = row.get(1)?;
    let Ok(tool) = ToolId::parse(&tool) else {
        return Ok(None);
    };
    Ok(Some(Entry {
        query: row.get(0)?,
        tool,
        times: row.get(2)?,
        at_ms: row.get(3)?,
        taught_by,
    }))
}
