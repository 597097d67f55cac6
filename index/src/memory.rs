//! Usage memory: what was asked, and which tool was then called, so that the same need finds the
//! same tool again.
//!
//! Off until a catalog switches it on. It lives in a file of its own in the catalog's folder and
//! knows of no other catalog; deleting the catalog deletes it. A request is compared with those
//! remembered and with the centre of each tool's; only where one of them is near does it add to a
//! tool's score.
//!
//! Every pair knows who taught it. What the owner teaches counts in full. An API key that may only
//! search has one vote a pair, and its votes are worth little alone: `trust` says how little.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

use crate::database::{self, DatabaseError};
use crate::dense::Vectors;
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::files::{self, FileId};
use crate::query::MAX_QUERY_BYTES;
use crate::tool::ToolId;

/// Most pairs of request and tool; the ones longest unused make room, those that do not count in
/// full first. About 3 KB each with two embedders.
pub const MAX_ENTRIES: usize = 10_000;
/// Most pairs that one key may have taught; its own oldest make room. A tenth, so that one key
/// cannot fill the memory.
pub const MAX_ENTRIES_OF_A_KEY: usize = MAX_ENTRIES / 10;
/// This many different keys count as much as the owner.
pub const QUORUM: usize = 3;
/// The name of the file in a catalog's folder.
pub const FILE_NAME: &str = "usage.db";

/// How long what another process has changed may go unnoticed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Neighbours that have a say.
const NEIGHBOURS: usize = 8;
/// A remembered request has no say below this cosine, which requests for different things reach
/// too, and all of it at 1.
const MIN_COSINE: f32 = 0.6;
/// From this likeness on, 1 being the most, a request is the same: what it led to is not put to the
/// vote.
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
    CREATE TABLE IF NOT EXISTS vectors (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        embedder TEXT NOT NULL,
        vector BLOB NOT NULL,
        PRIMARY KEY (entry, embedder)
    ) STRICT;
";

/// From layout 1, in which nobody was named, to layout 2. `sum` is over all else that is known of
/// an entry.
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

/// Who said that a tool was called for a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Teacher(String);

impl Teacher {
    /// How the votes of keys that may only search are marked.
    const KEY: &str = "key:";

    /// Whoever uses the command line on this machine.
    pub fn command_line() -> Self {
        Teacher("cli".to_owned())
    }

    /// Whoever reaches a server that has no keys.
    pub fn keyless() -> Self {
        Teacher("http".to_owned())
    }

    /// An API key that may change the catalog anyway.
    pub fn admin(key: &str) -> Self {
        Teacher(format!("admin:{key}"))
    }

    /// An API key that may not.
    pub fn key(id: &str) -> Self {
        Teacher(format!("{}{id}", Teacher::KEY))
    }

    /// True where one vote is not enough.
    fn is_one_of_many(&self) -> bool {
        self.0.starts_with(Teacher::KEY)
    }
}

impl fmt::Display for Teacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an entry counts, 0 to 1, by who taught it. The votes of keys count as the square of their
/// share of a quorum: a single key moves a score by an eighth of what the best plain match has, so
/// that it puts a tool first only where that was near to first anyway; two by half of it; three put
/// it first.
fn trust(teachers: &[Teacher]) -> f32 {
    if teachers.iter().any(|teacher| !teacher.is_one_of_many()) {
        return 1.0;
    }
    (teachers.len() as f32 / QUORUM as f32).min(1.0).powi(2)
}

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
    /// How often. A key that may only search counts once, however often it says so.
    pub times: u64,
    /// When last, in milliseconds since 1970.
    pub at_ms: i64,
    /// Who said so: `cli`, `http` for a server without keys, `admin:ID` or `key:ID` for a key,
    /// `unknown` for what an earlier version remembered.
    pub taught_by: Vec<Teacher>,
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
    /// Open once the file is there, with the file that is open.
    connection: Mutex<Option<(Option<FileId>, Connection)>>,
    /// What searches are answered from.
    loaded: RwLock<Loaded>,
    /// Entries that were damaged, and deleted for it, since this was opened.
    damaged: AtomicUsize,
    /// Set when the file was there and held nothing: emptied, or its creation was cut short.
    was_blank: AtomicBool,
}

/// The state of the file in memory.
#[derive(Clone)]
struct Loaded {
    recall: Option<Arc<Recall>>,
    /// The file, and SQLite's count of other connections' changes to it.
    version: (Option<FileId>, i64),
    looked: Instant,
    /// Why the file cannot be read.
    problem: Option<String>,
}

impl Loaded {
    fn nothing() -> Self {
        Loaded {
            recall: None,
            version: (None, -1),
            looked: Instant::now(),
            problem: None,
        }
    }
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
    /// What each request counts.
    trust: Vec<f32>,
    /// Of requests that count in full.
    centres: Vectors,
    /// The tool of each centre.
    centred: Vec<ToolId>,
}

impl Memory {
    /// The memory in a catalog's folder; no file is made before there is something to keep.
    pub fn new(folder: &Path, embedders: &[Arc<dyn Embedder>]) -> Self {
        let memory = Memory {
            path: folder.join(FILE_NAME),
            embedders: embedders.to_vec(),
            connection: Mutex::new(None),
            loaded: RwLock::new(Loaded::nothing()),
            damaged: AtomicUsize::new(0),
            was_blank: AtomicBool::new(false),
        };
        memory.reload_or_note();
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
            connection
                .execute("INSERT OR REPLACE INTO flags VALUES ('on', ?1)", [value])
                .map(drop)
        })?;
        self.reload()
    }

    /// Remembers who said that a tool was called for a request. Does nothing while it is switched
    /// off; says whether it did.
    ///
    /// # Errors
    /// [`Error::InvalidQuery`] for an empty request, [`Error::Store`], [`Error::Embedder`].
    pub fn remember(
        &self,
        query: &str,
        tool: &ToolId,
        at_ms: i64,
        teacher: &Teacher,
    ) -> Result<bool> {
        if self.switch()? == Switch::Off {
            return Ok(false);
        }
        let taught_by = vec![teacher.clone()];
        let entry = Entry {
            query: query.trim().to_owned(),
            tool: tool.clone(),
            times: 1,
            at_ms,
            taught_by,
        };
        self.insert(&[entry])?;
        Ok(true)
    }

    /// Takes entries in, as [`Memory::entries`] gave them; of those that are there the larger count
    /// holds.
    ///
    /// # Errors
    /// As [`Memory::remember`]; nothing is kept then.
    pub fn insert(&self, entries: &[Entry]) -> Result<()> {
        entries.iter().try_for_each(Entry::validate)?;
        let texts: Vec<&str> = entries.iter().map(|entry| entry.query.as_str()).collect();
        let embedded = self
            .embedders
            .iter()
            .map(|embedder| Ok((embedder.id(), embedder.embed_queries(&texts)?)));
        let embedded = embedded.collect::<Result<Vec<_>>>()?;
        self.write(|connection| {
            let change = connection.transaction()?;
            for (number, entry) in entries.iter().enumerate() {
                let id = put(&change, entry)?;
                for (embedder, vectors) in &embedded {
                    put_vector(&change, id, &entry.query, embedder, &vectors[number])?;
                }
                entry
                    .taught_by
                    .iter()
                    .try_for_each(|teacher| make_room_of(&change, teacher))?;
            }
            make_room(&change)?;
            change.commit()
        })?;
        self.reload()
    }

    /// What is remembered, by request and tool, after this pair (exclusive): a page of at most
    /// `limit`.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn entries(&self, after: Option<(&str, &str)>, limit: usize) -> Result<Vec<Entry>> {
        let (query, tool) = after.unwrap_or(("", ""));
        self.read(Vec::new(), |connection| {
            let mut page = connection.prepare_cached(
                "SELECT query, tool, times, at_ms, id FROM entries WHERE (query, tool) > (?1, ?2)
                 ORDER BY query, tool LIMIT ?3",
            )?;
            let mut rows = page.query(params![query, tool, limit as u64])?;
            let mut entries = Vec::new();
            while let Some(row) = rows.next()? {
                entries.extend(read_entry(row, teachers_of(connection, row.get(4)?)?)?);
            }
            Ok(entries)
        })
    }

    /// Number of entries.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn len(&self) -> Result<usize> {
        let count = |connection: &Connection| {
            connection.query_row("SELECT count(*) FROM entries", [], |row| row.get(0))
        };
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
            Forget::Tool(tool) => {
                connection.execute("DELETE FROM entries WHERE tool = ?1", [tool.as_str()])
            }
            Forget::Query(query) => {
                connection.execute("DELETE FROM entries WHERE query = ?1", [query.trim()])
            }
        })?;
        self.write(|connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })?;
        self.reload()?;
        Ok(forgotten)
    }

    /// True when it is switched on and holds anything; looks for what other processes have changed.
    pub(crate) fn is_asked(&self) -> bool {
        let loaded = self.loaded();
        if loaded.looked.elapsed() >= LOOK_AGAIN {
            self.look_again(loaded.version);
        }
        self.loaded().recall.is_some()
    }

    /// How strongly remembered requests speak for tools, 0 to 1, by the vectors of a request: an
    /// embedder's id, its say and the vector each. Only tools that anything speaks for.
    pub(crate) fn recall<'a>(
        &self,
        voices: impl Iterator<Item = (&'a str, f32, &'a [f32])>,
    ) -> HashMap<ToolId, f32> {
        let Some(recall) = self.loaded().recall else {
            return HashMap::new();
        };
        let heard: Vec<_> = voices
            .filter_map(|(id, share, vector)| Some((recall.by_embedder.get(id)?, share, vector)))
            .collect();
        let shares: f32 = heard.iter().map(|(_, share, _)| share).sum();
        let mut recalled = HashMap::new();
        for (neighbours, share, vector) in heard {
            for (tool, weight) in neighbours.near(vector) {
                *recalled.entry(tool).or_insert(0.0) += weight * share / shares;
            }
        }
        recalled
    }

    /// What is wrong with the file, for answers that are less for it.
    pub fn problem(&self) -> Option<String> {
        match self.damaged.load(Ordering::Relaxed) {
            0 if self.was_blank.load(Ordering::Relaxed) => {
                Some("the file of the usage memory was damaged: it was empty, and what it held is forgotten".to_owned())
            }
            0 => self.loaded().problem,
            damaged => Some(format!("{damaged} remembered requests were damaged and are forgotten")),
        }
    }

    fn loaded(&self) -> Loaded {
        self.loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn look_again(&self, known: (Option<FileId>, i64)) {
        let found = self
            .read(-1, data_version)
            .map(|version| (FileId::of(&self.path), version));
        if found.is_ok_and(|found| found == known) {
            self.loaded
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .looked = Instant::now();
        } else {
            self.reload_or_note();
        }
    }

    /// Searches go on without a file that cannot be read, and say so.
    fn reload_or_note(&self) {
        if let Err(Error::Store { reason, .. }) = self.reload() {
            // Answers tell what is wrong and not where it lies.
            let folder = self
                .path
                .parent()
                .unwrap_or(&self.path)
                .display()
                .to_string();
            let reason = reason.replace(&format!("{folder}/"), "");
            let problem =
                format!("the usage memory cannot be used and nothing is remembered: {reason}");
            *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Loaded {
                problem: Some(problem),
                ..Loaded::nothing()
            };
        }
    }

    fn reload(&self) -> Result<()> {
        let file = FileId::of(&self.path);
        let is_another = self.loaded().version.0 != file || self.loaded().version.1 < 0;
        let read = self.read((None, -1, 0), |connection| {
            // Looked for once a file: what this process writes it need not doubt.
            let damaged = if is_another {
                forget_damaged(connection, &self.embedders)?
            } else {
                0
            };
            let recall = match switch(connection)? {
                Switch::On => Some(Arc::new(Recall::read(connection, &self.embedders)?)),
                Switch::Off => None,
            };
            Ok((recall, data_version(connection)?, damaged))
        });
        let (recall, version, damaged) = read?;
        self.damaged.fetch_add(damaged, Ordering::Relaxed);
        let version = (file, version);
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Loaded {
            recall,
            version,
            ..Loaded::nothing()
        };
        Ok(())
    }

    /// Reads from the file; `absent` where there is none.
    fn read<T>(
        &self,
        absent: T,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        if !self.path.exists() {
            return Ok(absent);
        }
        self.write(|connection| read(connection))
    }

    fn write<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        let mut connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A file that was deleted under an open connection takes no more changes, and another may
        // stand in its place.
        let is_gone = |file: Option<FileId>| file != FileId::of(&self.path) || !self.path.exists();
        connection.take_if(|(file, _)| is_gone(*file));
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

    fn error(&self, reason: impl ToString) -> Error {
        let reason = format!(
            "{}; deleting it forgets all and mends that",
            reason.to_string()
        );
        Error::Store {
            path: self.path.clone(),
            reason,
        }
    }
}

impl Entry {
    fn validate(&self) -> Result<()> {
        let reason = match self.query.trim().len() {
            0 => "an empty request cannot be remembered".to_owned(),
            bytes if bytes > MAX_QUERY_BYTES => {
                format!(
                    "a request of {bytes} bytes cannot be remembered, {MAX_QUERY_BYTES} are allowed"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::InvalidQuery { reason })
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
                let trust = match row.get(4)? {
                    true => 1.0,
                    false => trust(&teachers_of(connection, row.get(0)?)?),
                };
                neighbours.push(embedder.id(), tool, trust, &vector);
            }
            neighbours.find_centres(embedder.id());
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
            centres: Vectors::new(dimensions),
            centred: Vec::new(),
        }
    }

    /// Adds a request; one of other dimensions is of no use and left out.
    fn push(&mut self, embedder: &str, tool: ToolId, trust: f32, vector: &[f32]) {
        if self.requests.push(embedder, [0; 16], vector).is_ok() {
            self.requests.end_tool();
            self.tools.push(tool);
            self.trust.push(trust);
        }
    }

    fn find_centres(&mut self, embedder: &str) {
        let mut by_tool: BTreeMap<&ToolId, Vec<usize>> = BTreeMap::new();
        let in_full = self
            .tools
            .iter()
            .enumerate()
            .filter(|(request, _)| self.trust[*request] >= 1.0);
        for (request, tool) in in_full {
            by_tool.entry(tool).or_default().push(request);
        }
        for (tool, requests) in by_tool
            .into_iter()
            .filter(|(_, requests)| requests.len() >= MIN_FOR_CENTRE)
        {
            let mut centre = vec![0.0f32; self.requests.dimensions()];
            for request in requests {
                centre
                    .iter_mut()
                    .zip(self.requests.decoded(request))
                    .for_each(|(sum, value)| *sum += value);
            }
            let length = centre
                .iter()
                .map(|value| value * value)
                .sum::<f32>()
                .sqrt()
                .max(f32::MIN_POSITIVE);
            centre.iter_mut().for_each(|value| *value /= length);
            if self.centres.push(embedder, [0; 16], &centre).is_ok() {
                self.centres.end_tool();
                self.centred.push(tool.clone());
            }
        }
    }

    /// The tools that near requests and centres speak for, each by the one that does so most. What
    /// counts in full is looked at by itself, so that no key can talk it down or push it out of
    /// what is near.
    fn near(&self, vector: &[f32]) -> HashMap<ToolId, f32> {
        let query = [vector.to_vec()];
        let requests = &self.requests.scores(&query)[0];
        let in_full = |place: usize| self.trust[place] >= 1.0;
        let taught = found(requests, &self.tools, in_full);
        let centres = found(&self.centres.scores(&query)[0], &self.centred, |_| true);
        let voted = found(requests, &self.tools, |place| !in_full(place));
        let mut beside: Vec<Found<'_>> = taught.iter().chain(&voted).copied().collect();
        beside.sort_by(|a, b| b.alike.total_cmp(&a.alike));

        let mut near: HashMap<ToolId, f32> = HashMap::new();
        let mut speak = |found: &Found<'_>, all: &[Found<'_>], share: f32| {
            let agreed = if found.alike >= SAME {
                1.0
            } else {
                agreement(all, found.tool)
            };
            let known = near.entry(found.tool.clone()).or_insert(0.0);
            *known = known.max(share * found.alike * agreed);
        };
        taught.iter().for_each(|found| speak(found, &taught, 1.0));
        centres
            .iter()
            .for_each(|found| speak(found, &centres, CENTRE_SHARE));
        voted
            .iter()
            .for_each(|found| speak(found, &beside, self.trust[found.place]));
        near
    }
}

/// A remembered request, or a centre, that is near.
#[derive(Clone, Copy)]
struct Found<'a> {
    place: usize,
    tool: &'a ToolId,
    /// How alike it is to what is asked, 0 to 1.
    alike: f32,
}

/// The nearest of those that count.
fn found<'a>(
    cosines: &[f32],
    tools: &'a [ToolId],
    counts: impl Fn(usize) -> bool,
) -> Vec<Found<'a>> {
    let near = nearest(cosines, counts).into_iter();
    near.map(|(place, cosine)| {
        let alike = ((cosine - MIN_COSINE) / (1.0 - MIN_COSINE)).min(1.0);
        Found {
            place,
            tool: &tools[place],
            alike,
        }
    })
    .collect()
}

/// How far the near requests agree on a tool: the share of what they say that speaks for it, cubed,
/// since where requests in nearly the same words led to different tools they say little. A request
/// that led to several tools counts once.
fn agreement(found: &[Found<'_>], tool: &ToolId) -> f32 {
    let mut requests: Vec<f32> = found.iter().map(|found| found.alike).collect();
    // Nearest first, so those of one request stand together.
    requests.dedup();
    let own: f32 = found
        .iter()
        .filter(|found| found.tool == tool)
        .map(|found| found.alike)
        .sum();
    (own / requests.iter().sum::<f32>()).min(1.0).powi(3)
}

/// The nearest of those near enough that count, nearest first.
fn nearest(cosines: &[f32], counts: impl Fn(usize) -> bool) -> Vec<(usize, f32)> {
    let near = cosines.iter().copied().enumerate();
    let mut near: Vec<(usize, f32)> = near
        .filter(|(place, cosine)| *cosine > MIN_COSINE && counts(*place))
        .collect();
    near.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    near.truncate(NEIGHBOURS);
    near
}

/// Opens the file, and says whether it was there and held nothing.
fn connect(path: &Path) -> std::result::Result<(Connection, bool), DatabaseError> {
    let was_blank = path.exists() && database::is_blank(path);
    let mut connection = database::open(path, &[SCHEMA, UPGRADE])?;
    seal_older(&mut connection)?;
    Ok((connection, was_blank))
}

/// Gives entries of an earlier layout their checksums. Takes the lock for writing only where there
/// are such.
fn seal_older(connection: &mut Connection) -> rusqlite::Result<()> {
    if unsealed(connection)?.is_empty() {
        return Ok(());
    }
    let change = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for id in unsealed(&change)? {
        seal(&change, id)?;
    }
    change.commit()
}

fn unsealed(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare("SELECT id FROM entries WHERE sum = x''")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// Whether it is switched on. A file always says so; one that says anything else is damaged.
fn switch(connection: &Connection) -> rusqlite::Result<Switch> {
    let on = connection.query_row("SELECT value FROM flags WHERE key = 'on'", [], |row| {
        row.get::<_, i64>(0)
    });
    match on.optional()? {
        Some(1) => Ok(Switch::On),
        Some(0) => Ok(Switch::Off),
        _ => Err(rusqlite::Error::InvalidColumnName(
            "its switch is damaged".to_owned(),
        )),
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

/// Keeps an entry, or adds to the one that is there; its id.
fn put(connection: &Connection, entry: &Entry) -> rusqlite::Result<i64> {
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
        Some((id, times)) => {
            let taught_by = teachers_of(connection, id)?;
            let is_new =
                |teacher: &Teacher| !teacher.is_one_of_many() || !taught_by.contains(teacher);
            if entry.taught_by.iter().any(is_new) {
                entry.times.max(times + 1)
            } else {
                times
            }
        }
    };
    let mut statement = connection.prepare_cached(
        "INSERT INTO entries (query, tool, times, at_ms) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (query, tool) DO UPDATE SET times = ?3, at_ms = max(at_ms, ?4) RETURNING id",
    )?;
    let id = statement.query_row(params![query, tool, times, entry.at_ms], |row| row.get(0))?;
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO teachers VALUES (?1, ?2, ?3)")?;
    for teacher in &entry.taught_by {
        statement.execute(params![id, teacher.0, entry.at_ms])?;
    }
    seal(connection, id)?;
    Ok(id)
}

/// Who taught an entry, by name.
fn teachers_of(connection: &Connection, entry: i64) -> rusqlite::Result<Vec<Teacher>> {
    let mut statement =
        connection.prepare_cached("SELECT name FROM teachers WHERE entry = ?1 ORDER BY name")?;
    statement
        .query_map([entry], |row| row.get(0).map(Teacher))?
        .collect()
}

fn ids(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached("SELECT id FROM entries")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// What an entry's checksum must be, and the one it has; none for an entry that cannot be read.
fn sums(
    connection: &Connection,
    entry: i64,
) -> rusqlite::Result<Option<([u8; files::CHECKSUM_BYTES], Vec<u8>)>> {
    let mut statement = connection.prepare_cached(
        "SELECT query, tool, times, at_ms, in_full, sum FROM entries WHERE id = ?1",
    )?;
    let taught_by = teachers_of(connection, entry)?;
    let names: Vec<&[u8]> = taught_by
        .iter()
        .map(|teacher| teacher.0.as_bytes())
        .collect();
    let read = |row: &rusqlite::Row<'_>| {
        let (query, tool): (String, String) = (row.get(0)?, row.get(1)?);
        let numbers = [row.get::<_, i64>(2)?, row.get(3)?, row.get(4)?].map(i64::to_le_bytes);
        let parts = [
            &[query.as_bytes(), tool.as_bytes(), numbers.as_flattened()],
            names.as_slice(),
        ]
        .concat();
        Ok((files::checksum(&parts), row.get(5)?))
    };
    match statement.query_row([entry], read) {
        Err(error @ rusqlite::Error::SqliteFailure(..)) => Err(error),
        read => Ok(read.ok()),
    }
}

/// Writes down what an entry counts and its checksum, after it has changed.
fn seal(connection: &Connection, entry: i64) -> rusqlite::Result<()> {
    let in_full = trust(&teachers_of(connection, entry)?) >= 1.0;
    let mut statement =
        connection.prepare_cached("UPDATE entries SET in_full = ?2 WHERE id = ?1")?;
    statement.execute(params![entry, in_full])?;
    let Some((sum, _)) = sums(connection, entry)? else {
        return Ok(());
    };
    let mut statement = connection.prepare_cached("UPDATE entries SET sum = ?2 WHERE id = ?1")?;
    statement.execute(params![entry, sum]).map(drop)
}

/// The vectors of an embedder with what they belong to.
const VECTORS: &str =
    "SELECT entries.id, entries.query, entries.tool, vectors.vector, entries.in_full FROM vectors
    JOIN entries ON entries.id = vectors.entry WHERE vectors.embedder = ?1 ORDER BY entries.id";

/// The vector in a row of [`VECTORS`]; none where it is damaged.
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

/// Deletes entries that are not what was written, or whose vectors are not; how many.
fn forget_damaged(
    connection: &Connection,
    embedders: &[Arc<dyn Embedder>],
) -> rusqlite::Result<usize> {
    let mut damaged = Vec::new();
    for id in ids(connection)? {
        if sums(connection, id)?.is_none_or(|(expected, found)| found != expected) {
            damaged.push(id);
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

/// Takes back the oldest votes of a key that has given more than its share; entries that nobody
/// else taught go with them.
fn make_room_of(connection: &Connection, teacher: &Teacher) -> rusqlite::Result<()> {
    if !teacher.is_one_of_many() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "SELECT entry FROM teachers WHERE name = ?1 ORDER BY at_ms DESC, entry DESC LIMIT -1 OFFSET ?2",
    )?;
    let over: Vec<i64> = statement
        .query_map(params![teacher.0, MAX_ENTRIES_OF_A_KEY as i64], |row| {
            row.get(0)
        })?
        .collect::<rusqlite::Result<_>>()?;
    for entry in over {
        connection.execute(
            "DELETE FROM teachers WHERE entry = ?1 AND name = ?2",
            params![entry, teacher.0],
        )?;
        match teachers_of(connection, entry)?.is_empty() {
            true => drop(connection.execute("DELETE FROM entries WHERE id = ?1", [entry])?),
            false => seal(connection, entry)?,
        }
    }
    Ok(())
}

fn make_room(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM entries WHERE id IN
             (SELECT id FROM entries ORDER BY in_full DESC, at_ms DESC, id DESC LIMIT -1 OFFSET ?1)",
    )?;
    statement.execute([MAX_ENTRIES as i64]).map(drop)
}

/// An entry; none where the row names no tool, which this program never writes.
fn read_entry(row: &rusqlite::Row<'_>, taught_by: Vec<Teacher>) -> rusqlite::Result<Option<Entry>> {
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
