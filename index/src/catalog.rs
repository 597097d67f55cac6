//! Catalogs on disk: open, write, search.
//!
//! A catalog is a folder. `tools.db` is the source of truth, `lexical/` and `graph-*/` are derived
//! from it, and `writer.lock` is held by the one writer. Derived data that does not match the
//! database is rebuilt: on disk by a process that can take the lock, else in memory. So readers never
//! wait, and a crash at any moment needs no repair.

mod listing;
mod writer;

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::database;
use crate::error::{Error, IoResult, Result, StoreProblem};
use crate::files::FileState;
use crate::lexical::{LexicalIndex, LexicalSearcher, guarded};
use crate::memory::Memory;
use crate::query::Filter;
use crate::search::{Searcher, words};
use crate::settings::{Options, Settings};
use crate::snapshot::{GRAPH_PREFIX, Loaded, VECTORS, is_plain};
use crate::tool::Tool;
use crate::tools_db::{Followed, Observed, ToolsDb, tool_file};

pub use listing::Listing;
pub use writer::{Changes, EmbedProgress, Writer};

/// How long a writer waits for the lock, and how often it tries. A reader that rebuilds an index
/// holds the lock for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(20);
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
        Ok(Writer::new(self.clone(), store, lock))
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
