//! Catalogs on disk: open, write, search.
//!
//! A catalog is a folder. `tools.db` is the source of truth, `lexical/` and `graph-*/` are derived
//! from it, and `writer.lock` is held by the one writer. Derived data that does not match the
//! database is rebuilt: on disk by a process that can take the lock, else in memory. So readers never
//! wait, and a crash at any moment needs no repair.

mod listing;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::database;
use crate::dense::Graph;
use crate::embed::Embedder;
use crate::enrichment::Enrichment;
use crate::error::{Error, IoResult, Result, StoreProblem};
use crate::files::FileState;
use crate::lexical::{Changed, LexicalIndex, LexicalSearcher, LexicalWriter, guarded};
use crate::memory::Memory;
use crate::owner_words::OwnerWords;
use crate::query::Filter;
use crate::ranker::{self, Ranker};
use crate::search::{Row, Searcher, words};
use crate::settings::{Options, Settings};
use crate::snapshot::{GRAPH_PREFIX, Loaded, VECTORS, graph_dir, is_plain};
use crate::tool::{Tool, ToolId};
use crate::tools_db::{Followed, Observed, ToolsDb, Upserted, tool_file};

pub use listing::Listing;

/// How long a writer waits for the lock, and how often it tries. A reader that rebuilds an index
/// holds the lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(20);
/// Up to so many tools, a commit writes to the lexical index with little memory.
const FEW_ADDED: usize = 512;
/// Longest catalog name, in bytes.
const MAX_CATALOG_NAME_BYTES: usize = 64;

/// The directory under which catalogs live side by side, each in its own folder.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// Names a data directory. It is created with its first catalog.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        DataDir { path: path.into() }
    }

    /// The folder given to [`DataDir::new`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the catalogs in it, sorted, including damaged ones. A folder whose creation was
    /// interrupted is not a catalog.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn catalogs(&self) -> Result<Vec<String>> {
        let names = Listing::new(self.clone()).names()?;
        Ok(names.iter().cloned().collect())
    }

    /// False where there is no catalog of this name. Looks for the file alone.
    ///
    /// # Errors
    /// [`Error::InvalidCatalogName`].
    pub fn may_have(&self, name: &str) -> Result<bool> {
        let dir = self.catalog_dir(name)?;
        Ok(dir.join(DATABASE).exists() || holds_index(&dir))
    }

    /// What a catalog has, read without opening it.
    ///
    /// # Errors
    /// As [`DataDir::settings`].
    pub fn summary(&self, name: &str) -> Result<Summary> {
        let (_, store) = self.read_only(name)?;
        store.begin_read()?;
        let summary = Summary {
            tools: store.count()?,
            generation: match store.followed()? {
                Some(followed) => followed.generation,
                None => store.generation()?,
            },
            settings: crate::snapshot::settings(&store)?,
        };
        store.end();
        Ok(summary)
    }

    /// The settings of an existing catalog, without opening it.
    ///
    /// # Errors
    /// [`Error::UnknownCatalog`], [`Error::Store`].
    pub fn settings(&self, name: &str) -> Result<Settings> {
        crate::snapshot::settings(&self.read_only(name)?.1)
    }

    /// The folder of an existing catalog, and its database.
    fn read_only(&self, name: &str) -> Result<(PathBuf, ToolsDb)> {
        let dir = self.catalog_dir(name)?;
        if let Ok(store) = ToolsDb::open_read_only(&dir.join(DATABASE)) {
            return Ok((dir, store));
        }
        match Contents::of(&dir) {
            Contents::Nothing => Err(self.unknown(name)),
            Contents::IndexAlone => Err(database_lost(&dir)),
            // Its creation may have ended since, so the error of the second time counts.
            Contents::Catalog => {
                let store = ToolsDb::open_read_only(&dir.join(DATABASE))?;
                Ok((dir, store))
            }
        }
    }

    /// What an existing catalog follows, without opening it.
    ///
    /// # Errors
    /// As [`DataDir::settings`].
    pub fn followed(&self, name: &str) -> Result<Option<Followed>> {
        self.read_only(name)?.1.followed()
    }

    /// Opens an existing catalog.
    ///
    /// # Errors
    /// [`Error::UnknownCatalog`], [`Error::Store`].
    pub fn open(&self, name: &str, options: Options) -> Result<Catalog> {
        self.open_with(name, |_| options)
    }

    /// As [`DataDir::open`], with options that depend on the catalog's settings, which may name its
    /// embedders.
    ///
    /// # Errors
    /// As [`DataDir::open`].
    pub fn open_with(
        &self,
        name: &str,
        options: impl FnOnce(&Settings) -> Options,
    ) -> Result<Catalog> {
        let (dir, store) = self.read_only(name)?;
        let options = options(&crate::snapshot::settings(&store)?);
        Catalog::open(dir, &store, options)
    }

    /// Opens a catalog, created empty if it does not exist.
    ///
    /// # Errors
    /// [`Error::InvalidCatalogName`], [`Error::Store`], [`Error::Io`].
    pub fn open_or_create(&self, name: &str, options: Options) -> Result<Catalog> {
        let (dir, store) = match self.read_only(name) {
            Err(Error::UnknownCatalog { .. }) => {
                self.create(name)?;
                self.read_only(name)?
            }
            found => found?,
        };
        Catalog::open(dir, &store, options)
    }

    fn create(&self, name: &str) -> Result<()> {
        let dir = self.catalog_dir(name)?;
        database::create_private_dir(&dir).named("create", &dir)?;
        self.finish_deletion(name);
        ToolsDb::create(&dir.join(DATABASE))
    }

    /// Deletes a catalog with its memory, damaged or not. Once this has begun, the catalog is gone
    /// even if the process is killed.
    ///
    /// # Errors
    /// [`Error::UnknownCatalog`], [`Error::Locked`] while it is being written.
    pub fn delete(&self, name: &str) -> Result<()> {
        let dir = self.catalog_dir(name)?;
        if Contents::of(&dir) == Contents::Nothing {
            return Err(self.unknown(name));
        }
        let _lock = lock(&dir)?;
        self.finish_deletion(name);
        let renamed = self.dir_being_deleted(name);
        std::fs::rename(&dir, &renamed).named("delete", &dir)?;
        std::fs::remove_dir_all(&renamed).named("delete", &renamed)
    }

    /// Where a catalog's folder is moved before its files are deleted. The name is not a valid
    /// catalog name.
    fn dir_being_deleted(&self, name: &str) -> PathBuf {
        self.path.join(CATALOGS).join(format!(".deleted-{name}"))
    }

    /// Deletes the files that a killed process has left of this catalog.
    fn finish_deletion(&self, name: &str) {
        // What is left does no harm; if it cannot be deleted, the next deletion reports that.
        let _ = std::fs::remove_dir_all(self.dir_being_deleted(name));
    }

    fn unknown(&self, name: &str) -> Error {
        Error::UnknownCatalog {
            name: name.to_owned(),
            data_dir: self.path.clone(),
        }
    }

    /// The folder of a catalog of this name, whether or not it exists.
    ///
    /// # Errors
    /// [`Error::InvalidCatalogName`].
    pub fn catalog_dir(&self, name: &str) -> Result<PathBuf> {
        if !is_valid_name(name) {
            return Err(Error::InvalidCatalogName {
                name: name.to_owned(),
            });
        }
        Ok(self.path.join(CATALOGS).join(name))
    }
}

fn is_valid_name(name: &str) -> bool {
    // None begins with a dot: `..` leads out of the folder, and `.deleted-` is for what is being
    // deleted.
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= MAX_CATALOG_NAME_BYTES
        && name.chars().all(is_plain)
}

const CATALOGS: &str = "catalogs";
const DATABASE: &str = "tools.db";
const LEXICAL: &str = "lexical";
const LOCK: &str = "writer.lock";

/// The contents of a folder that may be a catalog's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// No catalog: nothing, or the remains of an interrupted creation.
    Nothing,
    /// A database, damaged or not.
    Catalog,
    /// Derived data without the database, which was lost.
    IndexAlone,
}

impl Contents {
    fn of(dir: &Path) -> Self {
        if has_tables(dir) {
            Contents::Catalog
        } else if !holds_index(dir) {
            Contents::Nothing
        } else if has_tables(dir) {
            // Its creation was under way: an index is created after the tables.
            Contents::Catalog
        } else {
            Contents::IndexAlone
        }
    }
}

fn has_tables(dir: &Path) -> bool {
    let database = dir.join(DATABASE);
    database.exists() && !database::is_blank(&database)
}

/// True where a folder holds data derived from a database.
fn holds_index(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name == LEXICAL
            || name == tool_file::FILE_NAME
            || name.starts_with(GRAPH_PREFIX)
            || Path::new(&name).extension() == Some(VECTORS.as_ref())
        {
            return true;
        }
    }
    false
}

fn database_lost(dir: &Path) -> Error {
    Error::Store {
        path: dir.join(DATABASE),
        problem: StoreProblem::Missing,
    }
}

/// An open catalog. Cheap to clone; all clones share one state.
///
/// - Guarantee: [`Catalog::searcher`] returns the last commit of this process; [`Catalog::refresh`]
///   looks for those of others.
/// - Cost: opening takes some 60 ms at 18,917 tools; `searcher` takes a read lock and does no I/O.
/// - Failure: damaged derived data is rebuilt on opening. Damage to the database is
///   [`Error::Store`], which names the next step.
#[derive(Clone)]
pub struct Catalog {
    shared: Arc<CatalogState>,
}

struct CatalogState {
    dir: PathBuf,
    /// Replaced only while `observed` is locked.
    options: RwLock<Options>,
    /// The files as they were when the newest snapshot was read. Held while a snapshot is made,
    /// never while one is searched.
    observed: Mutex<Observed>,
    /// The published snapshot.
    current: RwLock<Arc<Searcher>>,
    memory: Arc<Memory>,
    resting: Mutex<Option<RestingStore>>,
}

/// A writer's connection to the database, kept for the next writer.
struct RestingStore {
    store: ToolsDb,
    /// The database file when the writer ended. With another one, the connection is closed.
    file: FileState,
    since: Instant,
}

impl Catalog {
    fn open(dir: PathBuf, store: &ToolsDb, options: Options) -> Result<Self> {
        let observed = Observed::of(&dir.join(DATABASE));
        let mut loaded = Loaded::read(store, &dir, &options, None)?;
        let lexical = match lexical_on_disk(&dir, &loaded) {
            Ok(lexical) => lexical,
            Err(_) => rebuilt(&dir, &loaded)?,
        };
        if loaded.has_unsaved()
            && let Ok(_lock) = lock(&dir)
        {
            loaded.save(store, &dir);
        }
        let memory = Arc::new(Memory::new(&dir, &options.embedders));
        let searcher = Searcher {
            memory: Some(Arc::clone(&memory)),
            ..loaded.into_searcher(lexical)
        };
        let current = RwLock::new(Arc::new(searcher));
        let shared = CatalogState {
            dir,
            options: RwLock::new(options),
            observed: Mutex::new(observed),
            current,
            memory,
            resting: Mutex::default(),
        };
        Ok(Catalog {
            shared: Arc::new(shared),
        })
    }

    /// The newest snapshot that this process has published. Never waits for a writer.
    pub fn searcher(&self) -> Arc<Searcher> {
        Arc::clone(&self.shared.current.read())
    }

    /// Publishes the commits of other processes and returns the newest snapshot. During another
    /// process's commit the present snapshot stays. A catalog that was deleted and created again is
    /// opened again.
    ///
    /// # Errors
    /// [`Error::Store`], also when the catalog was deleted.
    pub fn refresh(&self) -> Result<Arc<Searcher>> {
        let mut observed = self.shared.observed.lock();
        if observed.is_current(&self.database()) {
            return Ok(self.searcher());
        }
        let store = self.read_only()?;
        // Before the state is read: what is committed in between is noticed later.
        let now = Observed::of(&self.database());
        let current = self.searcher();
        let version = store.state()?;
        if version == *current.version() {
            *observed = now;
            return Ok(current);
        }
        // Nothing can be reused of a catalog that was deleted and created again.
        let is_same = current.version().identity == version.identity;
        let previous = is_same.then_some(&*current);
        let loaded = Loaded::read(&store, &self.shared.dir, &self.options(), previous)?;
        let lexical = match lexical_on_disk(&self.shared.dir, &loaded) {
            Ok(lexical) => lexical,
            Err(_) if matches!(lock(&self.shared.dir), Err(Error::Locked { .. })) => {
                return Ok(current);
            }
            Err(_) => rebuilt(&self.shared.dir, &loaded)?,
        };
        *observed = now;
        Ok(self.publish(loaded.into_searcher(lexical)))
    }

    /// False while nobody has committed since the newest snapshot was read. May be true for a moment
    /// after a commit that was seen. Looks at the times of two files, in microseconds.
    pub fn may_be_behind(&self) -> bool {
        match self.shared.observed.try_lock() {
            Some(observed) => !observed.is_current(&self.database()),
            // A snapshot is being made.
            None => true,
        }
    }

    /// True when a writer has something to do without a change: texts to embed, a graph to build, or
    /// what an earlier version wrote to bring up to date.
    pub fn needs_writer(&self) -> bool {
        self.searcher().needs_writer
    }

    /// Reads every tool from the database, which opening does not need to do: a damaged one is an
    /// error.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn verify(&self) -> Result<()> {
        self.read_only()?.for_each_tool(drop)?;
        self.searcher().is_verified.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the writer's lock.
    ///
    /// # Errors
    /// [`Error::Locked`] while another writer exists, in this process or another; [`Error::Store`]
    /// for a damaged database, on which nothing may be built.
    pub fn writer(&self) -> Result<Writer> {
        let lock = lock_soon(&self.shared.dir)?;
        let store = match self.rested_store() {
            Some(store) => store,
            None => ToolsDb::open(&self.database())?,
        };
        if !self.searcher().is_verified.load(Ordering::Relaxed) {
            self.verify()?;
        }
        let is_another = store.state()?.identity != self.searcher().version().identity;
        if store.refresh_texts()? || is_another {
            self.reload()?;
        }
        Ok(Writer {
            catalog: self.clone(),
            store,
            lexical: None,
            pending: Pending::default(),
            rests: false,
            _lock: lock,
        })
    }

    /// The connection that the last writer kept, if the database file is the one that it left.
    fn rested_store(&self) -> Option<ToolsDb> {
        let resting = self.shared.resting.lock().take()?;
        let is_same = FileState::of(&self.database()) == Some(resting.file);
        is_same.then_some(resting.store)
    }

    /// Closes a connection that [`Writer::rest`] has kept, if no writer has used it for so long.
    pub fn close_resting(&self, unused_for: Duration) {
        let mut resting = self.shared.resting.lock();
        if let Some(kept) = &*resting
            && kept.since.elapsed() >= unused_for
        {
            *resting = None;
        }
    }

    /// Replaces the dense legs, for all clones of this catalog, and publishes a snapshot with them.
    /// Searches under way finish with the legs they have. Vectors of the former embedders stay
    /// stored. While nothing can be read, the former legs stay in use.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Memory`] where the usage memory cannot be read for them.
    pub fn set_options(&self, options: Options) -> Result<()> {
        self.reload_with(Some(options))
    }

    /// How it was opened, or what [`Catalog::set_options`] has set since.
    pub fn options(&self) -> Options {
        self.shared.options.read().clone()
    }

    /// Reads everything again and reuses nothing of the present snapshot.
    fn reload(&self) -> Result<()> {
        self.reload_with(None)
    }

    fn reload_with(&self, options: Option<Options>) -> Result<()> {
        let mut observed = self.shared.observed.lock();
        let store = self.read_only()?;
        *observed = Observed::of(&self.database());
        let is_replaced = options.is_some();
        let options = options.unwrap_or_else(|| self.options());
        let loaded = Loaded::read(&store, &self.shared.dir, &options, None)?;
        let lexical = match lexical_on_disk(&self.shared.dir, &loaded) {
            Ok(lexical) => lexical,
            Err(_) => in_memory(&loaded)?,
        };
        if is_replaced {
            // First, since only this can fail, and a failure must leave everything as it was.
            let memory = &self.shared.memory;
            if let Err(error) = memory.set_embedders(options.embedders.clone()) {
                // They are the former ones again, even if the file still cannot be read.
                let _ = memory.set_embedders(self.options().embedders);
                return Err(error);
            }
            *self.shared.options.write() = options;
        }
        self.publish(loaded.into_searcher(lexical));
        Ok(())
    }

    /// Sizes on disk and in memory.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn stats(&self) -> Result<Stats> {
        let searcher = self.searcher();
        let mut vectors = self.read_only()?.vector_counts()?;
        vectors.extend(searcher.instant_vector_counts());
        vectors.sort_unstable();
        let mut servers: Vec<(String, usize)> = Vec::new();
        for id in searcher.ids_passing(&Filter::default()) {
            // From the last one: in the order of ids, a server's tools are nearly all adjacent.
            match servers
                .iter_mut()
                .rfind(|(server, _)| server == id.server())
            {
                Some((_, tools)) => *tools += 1,
                None => servers.push((id.server().to_owned(), 1)),
            }
        }
        Ok(Stats {
            tools: searcher.tool_count(),
            servers,
            generation: searcher.generation(),
            vectors,
            pending_embeddings: searcher.pending_embeddings(),
            disk_bytes: disk_bytes(&self.shared.dir),
        })
    }

    /// The catalog's usage memory; off until it is switched on.
    pub fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    /// False once another process has deleted the catalog.
    pub fn exists(&self) -> bool {
        self.shared.dir.join(DATABASE).exists()
    }

    /// Bytes in memory of the newest snapshot and of the remembered requests, about. Vectors that are
    /// cached by embedders are not among them.
    pub fn memory_bytes(&self) -> usize {
        self.searcher().memory_bytes + self.shared.memory.memory_bytes()
    }

    /// The catalog's folder.
    pub fn path(&self) -> &Path {
        &self.shared.dir
    }

    /// A connection of its own. None is kept: it would take three descriptors and a page cache of each
    /// catalog, and most are read once when they are opened.
    fn read_only(&self) -> Result<ToolsDb> {
        ToolsDb::open_read_only(&self.database())
    }

    fn database(&self) -> PathBuf {
        self.shared.dir.join(DATABASE)
    }

    fn publish(&self, searcher: Searcher) -> Arc<Searcher> {
        let searcher = Arc::new(Searcher {
            memory: Some(Arc::clone(&self.shared.memory)),
            ..searcher
        });
        *self.shared.current.write() = Arc::clone(&searcher);
        searcher
    }
}

/// The one writer of a catalog, across processes.
///
/// - Guarantee: changes are collected in one transaction. [`Writer::commit`] makes all of them
///   durable and visible at once.
/// - Cost: a commit of a few tools takes some milliseconds, whatever the catalog's size, and one sync
///   of the database. Slow embedders work in
///   [`Writer::embed_pending`] only.
/// - Failure: an error of the store, like dropping the writer without a commit, discards what was
///   not committed. An invalid tool is refused before anything is written, and what was collected
///   before it stays. Another open writer is [`Error::Locked`].
pub struct Writer {
    catalog: Catalog,
    store: ToolsDb,
    /// Open once something was committed.
    lexical: Option<OpenLexical>,
    pending: Pending,
    /// True if its connection is kept for the next writer.
    rests: bool,
    _lock: File,
}

/// The lexical index on disk, open from commit to commit.
struct OpenLexical {
    index: LexicalIndex,
    writer: LexicalWriter,
    /// True if the writer is one for few tools.
    is_small: bool,
    /// The settings it was built with.
    stamp: String,
}

impl OpenLexical {
    /// Opens it for a commit that adds so many tools, and others after it.
    fn open(dir: &Path, stamp: &str, added: usize) -> Result<Self> {
        let index = LexicalIndex::reopen(dir, stamp)?;
        let is_small = added <= FEW_ADDED;
        let writer = match is_small {
            true => index.small_writer()?,
            false => index.writer()?,
        };
        Ok(OpenLexical {
            index,
            writer,
            is_small,
            stamp: stamp.to_owned(),
        })
    }
}

/// The changes of the current transaction.
#[derive(Default)]
struct Pending {
    /// True once the store's transaction has begun.
    open: bool,
    removed: Vec<u64>,
    added: Vec<u64>,
    ranker: Option<RankerChange>,
    /// True once something of the catalog was changed that it would have from its source.
    is_changed: bool,
    /// True once the source's generation was set that has the changes.
    is_followed: bool,
    /// The tools that were changed or removed.
    tools: BTreeSet<ToolId>,
    /// True once something else was changed that a snapshot has.
    is_more_than_tools: bool,
}

/// A change of the catalog's own ranker.
enum RankerChange {
    Replace(Ranker),
    Delete,
}

impl RankerChange {
    fn apply(&self, path: &Path) -> Result<()> {
        match self {
            RankerChange::Replace(ranker) => ranker.save(path),
            RankerChange::Delete => match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::io("delete", path, error))
                }
                _ => Ok(()),
            },
        }
    }
}

impl Writer {
    /// Adds tools, or replaces those with the same id.
    ///
    /// # Errors
    /// [`Error::DuplicateTool`] for one id twice, [`Error::InvalidTool`]; both before anything is
    /// written. [`Error::Store`].
    pub fn upsert(&mut self, tools: &[Tool]) -> Result<Changes> {
        check_tools(tools)?;
        self.write(|writer| {
            let mut changes = Changes::default();
            for (tool, upserted) in tools.iter().zip(writer.store.upsert(tools)?) {
                match upserted {
                    Upserted::Added(key) => {
                        writer.pending.tools.insert(tool.id.clone());
                        writer.pending.added.push(key);
                        changes.added.push(tool.id.clone());
                    }
                    Upserted::Changed(old, new) => {
                        writer.pending.tools.insert(tool.id.clone());
                        writer.pending.replace(old, new);
                        changes.changed.push(tool.id.clone());
                    }
                    Upserted::Unchanged => changes.unchanged += 1,
                }
            }
            writer.pending.is_changed |= changes.unchanged < tools.len();
            changes.sort();
            Ok(changes)
        })
    }

    /// Removes tools; unknown ids are ignored.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn remove(&mut self, ids: &[ToolId]) -> Result<Changes> {
        self.write(|writer| {
            let mut changes = Changes::default();
            for id in ids {
                if let Some(key) = writer.store.remove(id)? {
                    writer.pending.tools.insert(id.clone());
                    writer.pending.remove(key);
                    changes.removed.push(id.clone());
                }
            }
            writer.pending.is_changed |= !changes.removed.is_empty();
            changes.sort();
            Ok(changes)
        })
    }

    /// Replaces all tools of a server by these.
    ///
    /// # Errors
    /// [`Error::InvalidTool`] for a tool of another server, else as [`Writer::upsert`].
    pub fn sync(&mut self, server: &str, tools: &[Tool]) -> Result<Changes> {
        check_server(server, tools)?;
        let mut changes = self.upsert(tools)?;
        let wanted: HashSet<&ToolId> = tools.iter().map(|tool| &tool.id).collect();
        let mut gone = self.write(|writer| writer.store.ids_of_server(server))?;
        gone.retain(|id| !wanted.contains(id));
        changes.removed = self.remove(&gone)?.removed;
        Ok(changes)
    }

    /// Stores when to use a tool, in a language model's words, for the dense legs. False where the
    /// catalog no longer has the tool, or has another definition of it than this one, for which the
    /// texts were not written.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_enrichment(&mut self, tool: &Tool, enrichment: &Enrichment) -> Result<bool> {
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            writer.store.set_enrichment(tool, enrichment)
        })
    }

    /// Deletes the enrichments of these tools. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn clear_enrichments(&mut self, ids: &[ToolId]) -> Result<usize> {
        self.write(|writer| {
            let mut cleared = 0;
            for id in ids {
                cleared += usize::from(writer.store.clear_enrichment(id)?);
            }
            writer.pending.is_changed |= cleared > 0;
            writer.pending.is_more_than_tools |= cleared > 0;
            Ok(cleared)
        })
    }

    /// The catalog's settings, as this writer has set them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn settings(&self) -> Result<Settings> {
        crate::snapshot::settings(&self.store)
    }

    /// Replaces the catalog's settings from the next commit on.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`], [`Error::Store`].
    pub fn set_settings(&mut self, settings: &Settings) -> Result<()> {
        settings.validate()?;
        let json = serde_json::to_string(settings).unwrap_or_default();
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            writer.store.set_meta("settings", &json)
        })
    }

    /// The owner's words, as this writer has set them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn owner_words(&self) -> Result<OwnerWords> {
        Ok(self.store.owner_words()?.unwrap_or_default())
    }

    /// Replaces the owner's words from the next commit on. Tools with another description or other
    /// aliases than before are indexed and embedded again.
    ///
    /// # Errors
    /// [`Error::InvalidOwnerWords`], [`Error::Store`].
    pub fn set_owner_words(&mut self, words: &OwnerWords) -> Result<()> {
        words.validate()?;
        self.write(|writer| {
            writer.pending.is_changed = true;
            writer.pending.is_more_than_tools = true;
            for (old, new) in writer.store.set_owner_words(words)? {
                writer.pending.replace(old, new);
            }
            Ok(())
        })
    }

    /// Stores vectors of texts from the next commit on, which were computed elsewhere: by this model,
    /// each with this many dimensions, under the hashes of [`crate::tools_db::text_hash`].
    ///
    /// # Errors
    /// [`Error::DimensionMismatch`], [`Error::Store`].
    pub fn put_vectors(
        &mut self,
        model: &str,
        dimensions: usize,
        vectors: &[(crate::dense::TextHash, Vec<f32>)],
    ) -> Result<()> {
        check_dimensions(model, dimensions, vectors.iter().map(|(_, vector)| vector))?;
        self.write(|writer| {
            writer.pending.is_more_than_tools = true;
            let model = writer.store.register_model(model, dimensions)?;
            for (text, vector) in vectors {
                writer.store.put_vector(model, text, vector)?;
            }
            Ok(())
        })
    }

    /// Stores, with the changes of this transaction, up to which generation of its source the catalog
    /// holds everything. From then on it follows that source: its snapshots have the generation of
    /// the source, and changes are committed only together with the generation that has them.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_followed(&mut self, followed: &Followed) -> Result<()> {
        self.write(|writer| {
            writer.pending.is_followed = true;
            writer.store.set_followed(followed)
        })
    }

    /// Gives the catalog a ranker of its own, or with `None` the bundled one, from the next commit
    /// on.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub fn set_ranker(&mut self, ranker: Option<&Ranker>) -> Result<()> {
        self.begin()?;
        self.pending.ranker = Some(match ranker {
            Some(ranker) => RankerChange::Replace(ranker.clone()),
            None => RankerChange::Delete,
        });
        self.pending.is_changed = true;
        self.pending.is_more_than_tools = true;
        Ok(())
    }

    /// Makes the changes durable, publishes a snapshot with them, and returns the new generation.
    /// Embeds with instant embedders only.
    ///
    /// # Errors
    /// [`Error::Store`]; the changes are then discarded, as with [`Error::Followed`] for changes to a
    /// catalog that follows another one. [`Error::Io`] if a new ranker cannot be written; all other
    /// changes are then durable.
    pub fn commit(&mut self) -> Result<u64> {
        self.begin()?;
        self.check_follows()?;
        // Taken first: a failed commit discards all changes, and the next change begins a new
        // transaction.
        let pending = std::mem::take(&mut self.pending);
        let generation = self.store.commit()?;
        // The ranker is a file of its own. It is written after the store, so that a writer dropped
        // without a commit leaves it alone, and published with the rest even if that fails.
        let ranker_written = match &pending.ranker {
            Some(change) => change.apply(&self.catalog.shared.dir.join(ranker::FILE_NAME)),
            None => Ok(()),
        };
        let previous = self.catalog.searcher();
        let mut loaded = self.load_after(&previous, generation, &pending)?;
        loaded.save(&self.store, &self.catalog.shared.dir);
        // The store is committed. A lexical index that cannot be updated to it is rebuilt, if
        // necessary in memory.
        let lexical_dir = self.catalog.shared.dir.join(LEXICAL);
        let lexical = match guarded(&lexical_dir, || {
            self.update_lexical(&loaded, &pending, &previous)
        }) {
            Ok(lexical) => lexical,
            Err(_) => {
                self.lexical = None;
                match create_lexical(&self.catalog.shared.dir, &loaded) {
                    Ok(lexical) => lexical,
                    Err(_) => in_memory(&loaded)?,
                }
            }
        };
        let searcher = self.catalog.publish(loaded.into_searcher(lexical));
        if searcher.may_rank() {
            // Now, so that the first search after the change does not have to.
            searcher.with_words(|words| words.rarities());
        }
        ranker_written?;
        Ok(generation)
    }

    /// Ends the writer, as dropping it does, and keeps its connection to the database for the next one:
    /// opening it, and moving its log into the database when it is closed, take longer than a commit of
    /// one tool. [`Catalog::close_resting`] closes it.
    pub fn rest(mut self) {
        self.rests = true;
    }

    /// Commits, embeds texts without vectors, builds missing or damaged graphs, and publishes a
    /// snapshot. Every batch of vectors is durable when the next one begins. Ends early when
    /// `progress` breaks. Returns how many texts were embedded.
    ///
    /// # Errors
    /// [`Error::Embedder`], [`Error::DimensionMismatch`], [`Error::Store`]; [`Error::Io`] or
    /// [`Error::Derived`] for a graph that cannot be written.
    pub fn embed_pending(
        &mut self,
        progress: &mut dyn FnMut(EmbedProgress) -> ControlFlow<()>,
    ) -> Result<usize> {
        if self.pending.open {
            self.commit()?;
        }
        let work = self.load()?.pending_texts();
        let mut state = EmbedProgress {
            done: 0,
            total: work.iter().map(|(texts, _)| texts.len()).sum(),
        };
        let mut result = Ok(());
        'legs: for (texts, embedder) in &work {
            for batch in spread(texts.chunks(embedder.batch().max(1))) {
                if progress(state).is_break() {
                    break 'legs;
                }
                if let Err(error) = self.embed_batch(embedder.as_ref(), batch) {
                    // The first error is returned; the other embedders may work.
                    result = result.and(Err(error));
                    continue 'legs;
                }
                state.done += batch.len();
            }
        }
        if state.total > 0 {
            let _ = progress(state);
        }
        let graphs = self.build_graphs();
        // Also without new texts: the published snapshot does not have the new graphs.
        if state.done > 0 || matches!(graphs, Ok(1..)) {
            self.commit()?;
        }
        result.and(graphs)?;
        Ok(state.done)
    }

    /// Runs a change within the transaction. If it fails, all changes since the last commit are
    /// discarded. SQLite does so itself when the disk is full, so half a change must never be
    /// continued.
    fn write<T>(&mut self, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.begin()?;
        let changed = change(self);
        if changed.is_err() {
            self.discard();
        }
        changed
    }

    /// Discards all changes since the last commit.
    fn discard(&mut self) {
        self.store.rollback();
        self.pending = Pending::default();
    }

    /// Discards changes of its own to a catalog that follows another one.
    fn check_follows(&mut self) -> Result<()> {
        let has_own_changes = self.pending.is_changed && !self.pending.is_followed;
        if !has_own_changes || self.store.followed()?.is_none() {
            return Ok(());
        }
        self.discard();
        Err(Error::Followed {
            path: self.catalog.shared.dir.clone(),
        })
    }

    fn begin(&mut self) -> Result<()> {
        if !self.pending.open {
            self.store.begin_write()?;
            self.pending.open = true;
        }
        Ok(())
    }

    /// The state after this commit.
    fn load_after(
        &self,
        previous: &Searcher,
        generation: u64,
        pending: &Pending,
    ) -> Result<Loaded> {
        if !pending.is_more_than_tools {
            let _observed = self.catalog.shared.observed.lock();
            let options = self.catalog.options();
            let dir = &self.catalog.shared.dir;
            let tools = &pending.tools;
            if let Some(loaded) =
                Loaded::after(&self.store, dir, &options, previous, generation, tools)?
            {
                return Ok(loaded);
            }
        }
        self.load()
    }

    fn load(&self) -> Result<Loaded> {
        let _observed = self.catalog.shared.observed.lock();
        Loaded::read(
            &self.catalog.read_only()?,
            &self.catalog.shared.dir,
            &self.catalog.options(),
            Some(&self.catalog.searcher()),
        )
    }

    fn update_lexical(
        &mut self,
        loaded: &Loaded,
        pending: &Pending,
        previous: &Searcher,
    ) -> Result<LexicalSearcher> {
        let stamp = loaded.lexical_stamp();
        let dir = self.catalog.shared.dir.join(LEXICAL);
        let is_few = pending.added.len() <= FEW_ADDED;
        let open = match self.lexical.take() {
            Some(open) if open.stamp == stamp && (is_few || !open.is_small) => open,
            // Dropped before the index is opened again: tantivy allows one writer a folder.
            previous => {
                drop(previous);
                OpenLexical::open(&dir, &stamp, pending.added.len())?
            }
        };
        let OpenLexical { index, writer, .. } = self.lexical.insert(open);
        for &key in &pending.removed {
            writer.remove(key);
        }
        let settings = &loaded.settings.lexical;
        let Some(change) = &loaded.change else {
            let added: HashSet<u64> = pending.added.iter().copied().collect();
            let mut rows = Vec::new();
            for row in loaded.rows.iter() {
                if added.contains(&row.stored.key) {
                    rows.push(Arc::clone(row));
                }
            }
            words::add(writer, &rows, settings)?;
            if !pending.removed.is_empty() || !rows.is_empty() {
                writer.commit(&stamp)?;
            }
            let small = LexicalIndex::read_small(&dir, &stamp)?;
            let index = small.as_ref().unwrap_or(index);
            return index.searcher(&loaded.ordinals(), settings);
        };
        let added = words::analyzed(&change.added, settings);
        words::add_analyzed(writer, &added, settings)?;
        if !pending.removed.is_empty() || !added.is_empty() {
            writer.commit(&stamp)?;
        }
        if let Some(small) = LexicalIndex::read_small(&dir, &stamp)? {
            return small.searcher(&loaded.ordinals(), settings);
        }
        let removed: Vec<Arc<Row>> = change
            .removed
            .iter()
            .map(|(_, row)| Arc::clone(row))
            .collect();
        let changed = Changed {
            moves: &change.moves,
            added: &added,
            removed: &words::analyzed(&removed, settings),
            key_of: &|position| previous.rows[position].stored.key,
        };
        previous.with_words(|former| index.searcher_after(former, settings, &changed))
    }

    fn embed_batch(
        &mut self,
        embedder: &dyn Embedder,
        batch: &[(crate::dense::TextHash, String)],
    ) -> Result<()> {
        let texts: Vec<&str> = batch.iter().map(|(_, text)| text.as_str()).collect();
        let vectors = embedder.embed_tools(&texts)?;
        let expected = embedder.dimensions();
        check_dimensions(embedder.id(), expected, vectors.iter())?;
        self.write(|writer| {
            let model = writer.store.register_model(embedder.id(), expected)?;
            for ((hash, _), vector) in batch.iter().zip(&vectors) {
                writer.store.put_vector(model, hash, vector)?;
            }
            writer.store.commit()?;
            writer.pending.open = false;
            Ok(())
        })
    }

    /// Builds the graphs of legs that are large enough and have no usable one. Returns how many.
    fn build_graphs(&self) -> Result<usize> {
        let loaded = self.load()?;
        let mut built = 0;
        for leg in loaded.legs_without_graph() {
            let Some(model) = self
                .store
                .model(leg.embedder.id(), leg.embedder.dimensions())?
            else {
                continue;
            };
            Graph::build(leg.vectors.get()).save(
                &graph_dir(&self.catalog.shared.dir, model),
                leg.embedder.id(),
            )?;
            built += 1;
        }
        Ok(built)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.store.rollback();
        if let Some(lexical) = self.lexical.take() {
            lexical.writer.finish();
        }
        let file = FileState::of(&self.catalog.database());
        if self.rests
            && let Some(file) = file
            && let Ok(none) = ToolsDb::none()
        {
            let resting = RestingStore {
                store: std::mem::replace(&mut self.store, none),
                file,
                since: Instant::now(),
            };
            *self.catalog.shared.resting.lock() = Some(resting);
            return;
        }
        self.store.checkpoint();
    }
}

impl Pending {
    fn remove(&mut self, key: u64) {
        // A key that was added in this transaction is not in the index yet.
        match self.added.iter().position(|&added| added == key) {
            Some(position) => {
                self.added.swap_remove(position);
            }
            None => self.removed.push(key),
        }
    }

    fn replace(&mut self, old: u64, new: u64) {
        self.remove(old);
        self.added.push(new);
    }
}

/// The progress of embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedProgress {
    /// Texts embedded so far.
    pub done: usize,
    /// Texts to embed in all.
    pub total: usize,
}

/// The effect of a write, by id, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// New tools.
    pub added: Vec<ToolId>,
    /// Replaced tools.
    pub changed: Vec<ToolId>,
    /// Removed tools.
    pub removed: Vec<ToolId>,
    /// Tools that were already stored as they are.
    pub unchanged: usize,
}

impl Changes {
    fn sort(&mut self) {
        self.added.sort_unstable();
        self.changed.sort_unstable();
        self.removed.sort_unstable();
    }
}

/// What a catalog has, without what only an open one knows.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Number of tools.
    pub tools: usize,
    /// The last commit, of its source where it follows one.
    pub generation: u64,
    /// Its settings.
    pub settings: Settings,
}

/// Sizes of a catalog.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Tools.
    pub tools: usize,
    /// Servers, with the number of their tools.
    pub servers: Vec<(String, usize)>,
    /// The last commit.
    pub generation: u64,
    /// Embedder ids with the number of their vectors.
    pub vectors: Vec<(String, usize)>,
    /// Tools that the dense legs cannot find yet.
    pub pending_embeddings: usize,
    /// Bytes on disk: database, lexical index, graph.
    pub disk_bytes: u64,
}

/// Checks tools as [`Writer::upsert`] does before it writes them.
///
/// # Errors
/// [`Error::DuplicateTool`] for one id twice, [`Error::InvalidTool`].
pub fn check_tools(tools: &[Tool]) -> Result<()> {
    no_duplicates(tools)?;
    tools.iter().try_for_each(Tool::validate)
}

/// Checks, as [`Writer::sync`] does, that all of these are tools of the server.
///
/// # Errors
/// [`Error::InvalidTool`].
pub fn check_server(server: &str, tools: &[Tool]) -> Result<()> {
    for tool in tools {
        if tool.id.server() != server {
            let reason = format!("its server is not {server:?}, the one being synchronised");
            return Err(Error::invalid_tool(tool.id.to_string(), reason));
        }
    }
    Ok(())
}

/// Checks vectors before any of them is stored.
fn check_dimensions<'a>(
    embedder: &str,
    expected: usize,
    vectors: impl Iterator<Item = &'a Vec<f32>>,
) -> Result<()> {
    for vector in vectors {
        if vector.len() != expected {
            return Err(Error::DimensionMismatch {
                embedder: embedder.to_owned(),
                expected,
                received: vector.len(),
            });
        }
    }
    Ok(())
}

fn no_duplicates(tools: &[Tool]) -> Result<()> {
    let mut first_of = HashMap::new();
    for (position, tool) in tools.iter().enumerate() {
        if let Some(first) = first_of.insert(&tool.id, position) {
            return Err(Error::DuplicateTool {
                id: tool.id.to_string(),
                first: first + 1,
                second: position + 1,
            });
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .named("open", &path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            path: dir.to_owned(),
        }),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", &path, e)),
    }
}

/// As [`lock`], but waits for a reader that is rebuilding an index.
fn lock_soon(dir: &Path) -> Result<File> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match lock(dir) {
            Err(Error::Locked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY)
            }
            result => return result,
        }
    }
}

fn lexical_on_disk(dir: &Path, loaded: &Loaded) -> Result<LexicalSearcher> {
    let dir = dir.join(LEXICAL);
    guarded(&dir, || {
        let index = LexicalIndex::open(&dir, &loaded.lexical_stamp())?;
        index.searcher(&loaded.ordinals(), &loaded.settings.lexical)
    })
}

/// A new lexical index: on disk if the lock is free and the folder can be written, else in memory.
fn rebuilt(dir: &Path, loaded: &Loaded) -> Result<LexicalSearcher> {
    if let Ok(_lock) = lock(dir)
        && let Ok(lexical) = create_lexical(dir, loaded)
    {
        return Ok(lexical);
    }
    in_memory(loaded)
}

fn create_lexical(dir: &Path, loaded: &Loaded) -> Result<LexicalSearcher> {
    let index = LexicalIndex::create(&dir.join(LEXICAL))?;
    words::fill(
        &index,
        &loaded.rows,
        &loaded.settings.lexical,
        &loaded.lexical_stamp(),
    )?;
    let small = LexicalIndex::read_small(&dir.join(LEXICAL), &loaded.lexical_stamp())?;
    small
        .as_ref()
        .unwrap_or(&index)
        .searcher(&loaded.ordinals(), &loaded.settings.lexical)
}

fn in_memory(loaded: &Loaded) -> Result<LexicalSearcher> {
    words::in_memory(&loaded.rows, &loaded.settings.lexical)
}

fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut bytes = 0;
    for entry in entries {
        bytes += match entry.metadata() {
            Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
            Ok(found) => found.len(),
            // Such as a file that was deleted meanwhile.
            Err(_) => 0,
        };
    }
    bytes
}

/// Orders batches, which are sorted by the length of their texts, so that any stretch has long and
/// short ones: the rate so far then tells the time left.
fn spread<T>(batches: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    // Multiples of the golden ratio, in 64 bits, are spread evenly.
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut numbered: Vec<(u64, T)> = (0..).zip(batches).collect();
    numbered.sort_unstable_by_key(|(number, _)| number.wrapping_mul(GOLDEN));
    numbered.into_iter().map(|(_, batch)| batch)
}
