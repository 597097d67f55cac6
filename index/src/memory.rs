//! Usage memory: what was asked, and which tool was then called, so that the same need finds the same tool again.
//!
//! Off until a catalog switches it on. It lives in a file of its own in the catalog's folder and knows of no other
//! catalog; deleting the catalog deletes it. A request is compared with those remembered and with the centre of each
//! tool's; only where one of them is near does it add to a tool's score.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::database;
use crate::dense::Vectors;
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::query::MAX_QUERY_BYTES;
use crate::tool::ToolId;

/// Most pairs of request and tool; the ones longest unused make room. About 3 KB each with two embedders.
pub const MAX_ENTRIES: usize = 10_000;
/// The name of the file in a catalog's folder.
pub const FILE_NAME: &str = "usage.db";

/// How long what another process has changed may go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Neighbours that have a say.
const NEIGHBOURS: usize = 8;
/// A remembered request has no say below this cosine, which requests for different things reach too, and all of it at 1.
const MIN_COSINE: f32 = 0.6;
/// From this likeness on, 1 being the most, a request is the same: what it led to is not put to the vote.
const SAME: f32 = 0.99;
/// What the centre of a tool's requests counts beside the nearest of them.
const CENTRE_SHARE: f32 = 0.5;
/// Fewest requests that make a centre.
const MIN_FOR_CENTRE: usize = 2;

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
    CREATE INDEX IF NOT EXISTS entries_by_age ON entries (at_ms, id);
    CREATE TABLE IF NOT EXISTS vectors (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        embedder TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (entry, embedder)
    ) STRICT;
";

/// Whether a memory is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It remembers and is asked.
    On,
    /// It keeps what it has, and neither remembers nor is asked.
    Off,
}

/// One remembered pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What was asked.
    pub query: String,
    /// The tool that was called.
    pub tool: ToolId,
    /// How often.
    pub times: u64,
    /// When last, in milliseconds since 1970.
    pub at_ms: i64,
}

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forget {
    /// Everything.
    All,
    /// What led to this tool.
    Tool(ToolId),
    /// This request, whatever tool it led to.
    Query(String),
}

/// A catalog's usage memory. Every change is durable when the call returns.
pub struct Memory {
    path: PathBuf,
    embedders: Vec<Arc<dyn Embedder>>,
    /// Open once the file is there.
    connection: Mutex<Option<Connection>>,
    /// What searches are answered from.
    loaded: RwLock<Loaded>,
}

/// The state of the file in memory.
#[derive(Clone)]
struct Loaded {
    recall: Option<Arc<Recall>>,
    /// SQLite's count of other connections' changes.
    version: i64,
    looked: Instant,
}

/// The remembered requests as vectors, by embedder id.
#[derive(Default)]
struct Recall {
    by_embedder: HashMap<String, Neighbours>,
}

/// Requests and centres of one embedder.
struct Neighbours {
    requests: Vectors,
    /// The tool of each request.
    tools: Vec<ToolId>,
    centres: Vectors,
    /// The tool of each centre.
    centred: Vec<ToolId>,
}

impl Memory {
    /// The memory in a catalog's folder; no file is made before there is something to keep.
    pub fn new(folder: &Path, embedders: &[Arc<dyn Embedder>]) -> Self {
        let loaded = Loaded { recall: None, version: -1, looked: Instant::now() };
        let memory = Memory {
            path: folder.join(FILE_NAME),
            embedders: embedders.to_vec(),
            connection: Mutex::new(None),
            loaded: RwLock::new(loaded),
        };
        // A file that cannot be read is told by whoever asks for it by name; searches go on without it.
        let _ = memory.reload();
        memory
    }

    /// Whether it is asked.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn switch(&self) -> Result<Switch> {
        self.read(Switch::Off, switch)
    }

    /// Switches it on or off; what is remembered stays.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_switch(&self, switch: Switch) -> Result<()> {
        let value = i64::from(switch == Switch::On);
        self.write(|connection| {
            connection.execute("INSERT OR REPLACE INTO flags VALUES ('on', ?1)", [value]).map(drop)
        })?;
        self.reload()
    }

    /// Remembers that a tool was called for a request. Does nothing while it is switched off; says whether it did.
    ///
    /// # Errors
    /// [`Error::InvalidQuery`] for an empty request, [`Error::Store`], [`Error::Embedder`].
    pub fn remember(&self, query: &str, tool: &ToolId, at_ms: i64) -> Result<bool> {
        if self.switch()? == Switch::Off {
            return Ok(false);
        }
        let entry = Entry { query: query.trim().to_owned(), tool: tool.clone(), times: 1, at_ms };
        self.insert(&[entry])?;
        Ok(true)
    }

    /// Takes entries in, as [`Memory::entries`] gave them; of those that are there the larger count holds.
    ///
    /// # Errors
    /// As [`Memory::remember`]; nothing is kept then.
    pub fn insert(&self, entries: &[Entry]) -> Result<()> {
        entries.iter().try_for_each(Entry::validate)?;
        let texts: Vec<&str> = entries.iter().map(|entry| entry.query.as_str()).collect();
        let embedded = self.embedders.iter().map(|embedder| Ok((embedder.id(), embedder.embed_queries(&texts)?)));
        let embedded = embedded.collect::<Result<Vec<_>>>()?;
        self.write(|connection| {
            let change = connection.transaction()?;
            for (number, entry) in entries.iter().enumerate() {
                let id = put(&change, entry)?;
                for (embedder, vectors) in &embedded {
                    put_vector(&change, id, embedder, &vectors[number])?;
                }
            }
            make_room(&change)?;
            change.commit()
        })?;
        self.reload()
    }

    /// What is remembered, by request and tool, after this pair (exclusive): a page of at most `limit`.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn entries(&self, after: Option<(&str, &str)>, limit: usize) -> Result<Vec<Entry>> {
        let (query, tool) = after.unwrap_or(("", ""));
        self.read(Vec::new(), |connection| {
            let mut page = connection.prepare_cached(
                "SELECT query, tool, times, at_ms FROM entries WHERE (query, tool) > (?1, ?2)
                 ORDER BY query, tool LIMIT ?3",
            )?;
            let rows = page.query_map(params![query, tool, limit as u64], read_entry)?;
            rows.filter_map(rusqlite::Result::transpose).collect()
        })
    }

    /// Number of entries.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn len(&self) -> Result<usize> {
        let count =
            |connection: &Connection| connection.query_row("SELECT count(*) FROM entries", [], |row| row.get(0));
        self.read(0u64, count).map(|count| count as usize)
    }

    /// True without entries.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|entries| entries == 0)
    }

    /// Forgets, and says how many entries. What is forgotten is overwritten in the file.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn forget(&self, what: &Forget) -> Result<usize> {
        if !self.path.exists() {
            return Ok(0);
        }
        let forgotten = self.write(|connection| match what {
            Forget::All => connection.execute("DELETE FROM entries", []),
            Forget::Tool(tool) => connection.execute("DELETE FROM entries WHERE tool = ?1", [tool.as_str()]),
            Forget::Query(query) => connection.execute("DELETE FROM entries WHERE query = ?1", [query.trim()]),
        })?;
        self.write(|connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))?;
        self.reload()?;
        Ok(forgotten)
    }

    /// True when it is switched on and holds anything; looks for what other processes have changed.
    pub(crate) fn is_asked(&self) -> bool {
        let loaded = self.loaded();
        if loaded.looked.elapsed() >= LOOK_AGAIN {
            // Searches go on with what was known where the file cannot be read.
            let _ = self.look_again(loaded.version);
        }
        self.loaded().recall.is_some()
    }

    /// How strongly remembered requests speak for tools, 0 to 1, by the vectors of a request: an embedder's id, its say
    /// and the vector each. Only tools that anything speaks for.
    pub(crate) fn recall<'a>(&self, voices: impl Iterator<Item = (&'a str, f32, &'a [f32])>) -> HashMap<ToolId, f32> {
        let Some(recall) = self.loaded().recall else { return HashMap::new() };
        let heard: Vec<_> =
            voices.filter_map(|(id, share, vector)| Some((recall.by_embedder.get(id)?, share, vector))).collect();
        let shares: f32 = heard.iter().map(|(_, share, _)| share).sum();
        let mut recalled = HashMap::new();
        for (neighbours, share, vector) in heard {
            for (tool, weight) in neighbours.near(vector) {
                *recalled.entry(tool).or_insert(0.0) += weight * share / shares;
            }
        }
        recalled
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look_again(&self, known: i64) -> Result<()> {
        if self.read(-1, data_version)? != known {
            return self.reload();
        }
        self.loaded.write().unwrap_or_else(PoisonError::into_inner).looked = Instant::now();
        Ok(())
    }

    fn reload(&self) -> Result<()> {
        let read = self.read((None, -1), |connection| {
            let recall = match switch(connection)? {
                Switch::On => Some(Arc::new(Recall::read(connection, &self.embedders)?)),
                Switch::Off => None,
            };
            Ok((recall, data_version(connection)?))
        });
        let (recall, version) = read?;
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) =
            Loaded { recall, version, looked: Instant::now() };
        Ok(())
    }

    /// Reads from the file; `absent` where there is none.
    fn read<T>(&self, absent: T, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        if !self.path.exists() {
            return Ok(absent);
        }
        self.write(|connection| read(connection))
    }

    fn write<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        // A file that was deleted under an open connection takes no more changes.
        if connection.is_some() && !self.path.exists() {
            *connection = None;
        }
        let open = match connection.take() {
            Some(open) => open,
            None => database::open(&self.path, &[SCHEMA]).map_err(|e| self.error(e))?,
        };
        work(connection.insert(open)).map_err(|e| self.error(e))
    }

    fn error(&self, reason: impl ToString) -> Error {
        let reason = format!("{}; deleting it forgets all and mends that", reason.to_string());
        Error::Store { path: self.path.clone(), reason }
    }
}

impl Entry {
    fn validate(&self) -> Result<()> {
        let reason = match self.query.trim().len() {
            0 => "an empty request cannot be remembered".to_owned(),
            bytes if bytes > MAX_QUERY_BYTES => {
                format!("a request of {bytes} bytes cannot be remembered, {MAX_QUERY_BYTES} are allowed")
            }
            _ => return Ok(()),
        };
        Err(Error::InvalidQuery { reason })
    }
}

impl Recall {
    fn read(connection: &Connection, embedders: &[Arc<dyn Embedder>]) -> rusqlite::Result<Self> {
        let by_embedder = embedders.iter().map(|embedder| {
            let mut rows = connection.prepare_cached(
                "SELECT entries.tool, vectors.vector FROM vectors JOIN entries ON entries.id = vectors.entry
                 WHERE vectors.embedder = ?1 ORDER BY entries.id",
            )?;
            let rows = rows.query_map([embedder.id()], |row| {
                Ok((row.get::<_, String>(0)?, row.get_ref(1)?.as_blob()?.to_vec()))
            })?;
            let mut neighbours = Neighbours::new(embedder.dimensions());
            for row in rows {
                let (tool, bytes) = row?;
                let vector: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
                if let Ok(tool) = ToolId::parse(&tool) {
                    neighbours.push(embedder.id(), tool, &vector);
                }
            }
            neighbours.find_centres(embedder.id());
            Ok((embedder.id().to_owned(), neighbours))
        });
        Ok(Recall { by_embedder: by_embedder.collect::<rusqlite::Result<_>>()? })
    }
}

impl Neighbours {
    fn new(dimensions: usize) -> Self {
        Neighbours {
            requests: Vectors::new(dimensions),
            tools: Vec::new(),
            centres: Vectors::new(dimensions),
            centred: Vec::new(),
        }
    }

    /// Adds a request; one of other dimensions is of no use and left out.
    fn push(&mut self, embedder: &str, tool: ToolId, vector: &[f32]) {
        if self.requests.push(embedder, [0; 16], vector).is_ok() {
            self.requests.end_tool();
            self.tools.push(tool);
        }
    }

    fn find_centres(&mut self, embedder: &str) {
        let mut by_tool: BTreeMap<&ToolId, Vec<usize>> = BTreeMap::new();
        for (request, tool) in self.tools.iter().enumerate() {
            by_tool.entry(tool).or_default().push(request);
        }
        for (tool, requests) in by_tool.into_iter().filter(|(_, requests)| requests.len() >= MIN_FOR_CENTRE) {
            let mut centre = vec![0.0f32; self.requests.dimensions()];
            for request in requests {
                centre.iter_mut().zip(self.requests.decoded(request)).for_each(|(sum, value)| *sum += value);
            }
            let length = centre.iter().map(|value| value * value).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
            centre.iter_mut().for_each(|value| *value /= length);
            if self.centres.push(embedder, [0; 16], &centre).is_ok() {
                self.centres.end_tool();
                self.centred.push(tool.clone());
            }
        }
    }

    /// The tools that near requests and centres speak for, each by the one that does so most.
    fn near(&self, vector: &[f32]) -> HashMap<ToolId, f32> {
        let query = [vector.to_vec()];
        let mut near: HashMap<ToolId, f32> = HashMap::new();
        for (vectors, tools, share) in
            [(&self.requests, &self.tools, 1.0), (&self.centres, &self.centred, CENTRE_SHARE)]
        {
            let found: Vec<(&ToolId, f32)> = nearest(&vectors.scores(&query)[0])
                .into_iter()
                .map(|(place, cosine)| (&tools[place], ((cosine - MIN_COSINE) / (1.0 - MIN_COSINE)).min(1.0)))
                .collect();
            for &(tool, alike) in &found {
                let weight = share * alike * if alike >= SAME { 1.0 } else { agreement(&found, tool) };
                let known = near.entry(tool.clone()).or_insert(0.0);
                *known = known.max(weight);
            }
        }
        near
    }
}

/// How far the near requests agree on a tool: the share of what they say that speaks for it, cubed, since where requests in
/// nearly the same words led to different tools they say little. A request that led to several tools counts once.
fn agreement(found: &[(&ToolId, f32)], tool: &ToolId) -> f32 {
    let mut requests: Vec<f32> = found.iter().map(|(_, alike)| *alike).collect();
    // Nearest first, so those of one request stand together.
    requests.dedup();
    let own: f32 = found.iter().filter(|(other, _)| *other == tool).map(|(_, alike)| alike).sum();
    (own / requests.iter().sum::<f32>()).min(1.0).powi(3)
}

/// The nearest of those near enough, nearest first.
fn nearest(cosines: &[f32]) -> Vec<(usize, f32)> {
    let near = cosines.iter().copied().enumerate().filter(|(_, cosine)| *cosine > MIN_COSINE);
    let mut near: Vec<(usize, f32)> = near.collect();
    near.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    near.truncate(NEIGHBOURS);
    near
}

fn switch(connection: &Connection) -> rusqlite::Result<Switch> {
    let on = connection.query_row("SELECT value FROM flags WHERE key = 'on'", [], |row| row.get::<_, i64>(0));
    Ok(if on.optional()? == Some(1) { Switch::On } else { Switch::Off })
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn put(connection: &Connection, entry: &Entry) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO entries (query, tool, times, at_ms) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (query, tool) DO UPDATE SET times = max(times + 1, ?3), at_ms = max(at_ms, ?4) RETURNING id",
    )?;
    statement.query_row(params![entry.query.trim(), entry.tool.as_str(), entry.times, entry.at_ms], |row| row.get(0))
}

fn put_vector(connection: &Connection, entry: i64, embedder: &str, vector: &[f32]) -> rusqlite::Result<()> {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO vectors VALUES (?1, ?2, ?3)")?;
    statement.execute(params![entry, embedder, bytes]).map(drop)
}

fn make_room(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY at_ms DESC, id DESC LIMIT -1 OFFSET ?1)",
    )?;
    statement.execute([MAX_ENTRIES as i64]).map(drop)
}

/// An entry; none where the row names no tool, which this program never writes.
fn read_entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Entry>> {
    let tool: String = row.get(1)?;
    let Ok(tool) = ToolId::parse(&tool) else { return Ok(None) };
    Ok(Some(Entry { query: row.get(0)?, tool, times: row.get(2)?, at_ms: row.get(3)? }))
}
