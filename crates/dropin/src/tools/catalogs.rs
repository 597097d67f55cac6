//! The catalogs in which the tools of requests are searched: one for each list of tools, by words and the
//! built-in tables.
//!
//! They are a cache. A list that was seen is known in memory; its catalog is on disk, under the name
//! of the list's id, and opened when it is searched. Deleting the folder costs time only.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Catalog, DataDir, Error, Options, Searcher, Tool};

use crate::dialect::Dialect;
use crate::tools::not_deferred::NotDeferred;
use crate::tools::tool_list::{Deferral, ListId, ToolList};
use crate::wire::json::Fields;

/// The server of all tools in these catalogs.
pub const SERVER: &str = "request";
/// Lists that a changed one is compared with.
const MAX_COMPARED: usize = 16;
/// Longest wait for a list to be indexed, which goes on afterwards.
const INDEXING_PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for lists that are being opened at the end of the server.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);
/// From this share of common names on, a changed list is applied as a difference.
const SIMILAR: f64 = 0.5;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct CatalogLimits {
    /// Lists that are known, and catalogs on disk.
    pub known: NonZeroUsize,
    /// Catalogs that are open.
    pub open: NonZeroUsize,
    /// Bytes of all known lists in memory.
    pub list_bytes: usize,
    /// Bytes of all catalogs on disk.
    pub disk_bytes: u64,
    /// Lists that are indexed at a time.
    pub indexed_at_once: usize,
}

impl Default for CatalogLimits {
    fn default() -> Self {
        CatalogLimits {
            known: NonZeroUsize::new(1000).unwrap_or(NonZeroUsize::MIN),
            open: NonZeroUsize::new(64).unwrap_or(NonZeroUsize::MIN),
            list_bytes: 256 << 20,
            disk_bytes: 2 << 30,
            indexed_at_once: 2,
        }
    }
}

/// The lists that are known, and their catalogs. Cheap to clone.
#[derive(Clone)]
pub struct RequestCatalogs(Arc<CatalogCache>);

struct CatalogCache {
    data: DataDir,
    options: Options,
    limits: CatalogLimits,
    known: Mutex<Known>,
    open: Mutex<LruCache<ListId, Arc<OnceCell<Arc<Searcher>>>>>,
    on_disk: Mutex<OnDisk>,
    /// Told when a folder is no longer in use.
    released: Condvar,
    indexing: Semaphore,
    /// Lists that are being opened, though their requests may have ended.
    opening: TaskTracker,
}

/// A list, or why nothing in it is deferred.
type Reading = Result<Arc<ToolList>, NotDeferred>;

struct Known {
    lists: LruCache<ListId, Reading>,
    bytes: usize,
}

struct OnDisk {
    /// Bytes of each folder, by name.
    folders: LruCache<String, u64>,
    bytes: u64,
    /// Folders that are being written or opened: they are neither renamed nor removed.
    in_use: BTreeSet<String>,
}

impl RequestCatalogs {
    /// The catalogs of this folder, which is created with the first one.
    pub fn new(folder: PathBuf, options: Options, limits: CatalogLimits) -> Self {
        let on_disk = OnDisk::read(&folder.join("catalogs"));
        RequestCatalogs(Arc::new(CatalogCache {
            data: DataDir::new(folder),
            options,
            limits,
            known: Mutex::new(Known {
                lists: LruCache::new(limits.known),
                bytes: 0,
            }),
            open: Mutex::new(LruCache::new(limits.open)),
            on_disk: Mutex::new(on_disk),
            released: Condvar::new(),
            indexing: Semaphore::new(limits.indexed_at_once.max(1)),
            opening: TaskTracker::new(),
        }))
    }

    /// The list of these tools, read if it was not seen before.
    ///
    /// # Errors
    /// Why nothing in it is deferred.
    pub fn list(
        &self,
        owner: &str,
        dialect: Dialect,
        deferral: &Deferral,
        tools: &Bytes,
    ) -> Reading {
        let id = ListId::of(owner, dialect, deferral, tools);
        if let Some(known) = self.0.known.lock().lists.get(&id) {
            return known.clone();
        }
        // Without the lock, because a long list takes a while.
        let list = ToolList::read(id, owner, dialect.protocol(), deferral, tools).map(Arc::new);
        self.0
            .known
            .lock()
            .add(id, list.clone(), self.0.limits.list_bytes);
        list
    }

    /// The tools of a list, to search in. Indexes them if that was not done before; others that ask
    /// meanwhile wait for the same work.
    ///
    /// # Errors
    /// Why they cannot be searched, for the log.
    pub async fn searcher(&self, list: &Arc<ToolList>) -> Result<Arc<Searcher>, String> {
        let cell = self
            .0
            .open
            .lock()
            .get_or_insert(list.id, Arc::default)
            .clone();
        if let Some(searcher) = cell.get() {
            return Ok(Arc::clone(searcher));
        }
        let (catalogs, list) = (self.clone(), Arc::clone(list));
        // A task of its own: a client that goes away must not leave half of the work to the next.
        let opening = self.0.opening.spawn(async move {
            let opened = cell.get_or_try_init(|| catalogs.open(list)).await;
            opened.cloned()
        });
        match timeout(INDEXING_PATIENCE, opening).await {
            Ok(opened) => opened.map_err(|error| error.to_string())?,
            Err(_) => {
                let seconds = INDEXING_PATIENCE.as_secs();
                Err(format!("they are not indexed after {seconds} s"))
            }
        }
    }

    /// Begins to index a list, so that the first search waits less.
    pub fn prepare(&self, list: &Arc<ToolList>) {
        if self.is_open(&list.id) {
            return;
        }
        let (catalogs, list) = (self.clone(), Arc::clone(list));
        self.0.opening.spawn(async move {
            if let Err(problem) = catalogs.searcher(&list).await {
                tracing::warn!(problem, "tools of a request cannot be searched");
            }
        });
    }

    /// Waits some seconds for lists that are being opened. One that is cut off is only a part of a cache, and made
    /// anew.
    pub async fn close(&self) {
        self.0.opening.close();
        if timeout(CLOSING_PATIENCE, self.0.opening.wait())
            .await
            .is_err()
        {
            tracing::warn!("tools of requests were still being indexed at the end");
        }
    }

    fn is_open(&self, id: &ListId) -> bool {
        match self.0.open.lock().peek(id) {
            Some(cell) => cell.initialized(),
            None => false,
        }
    }

    async fn open(&self, list: Arc<ToolList>) -> Result<Arc<Searcher>, String> {
        let permit = self.0.indexing.acquire().await;
        let _permit = permit.map_err(|error| error.to_string())?;
        let catalogs = self.clone();
        // Not on the threads for CPU work, because it waits for the disk. The permit bounds it.
        let opening = tokio::task::spawn_blocking(move || catalogs.open_blocking(&list));
        let opened = opening.await.map_err(|error| error.to_string())?;
        opened.map_err(|error| error.to_string())
    }

    fn open_blocking(&self, list: &ToolList) -> toolscout_index::Result<Arc<Searcher>> {
        let name = list.id.to_text();
        let _in_use = self.reserve(&name);
        // First, because it looks for a folder of this name.
        self.take_over_similar(list, &name);
        let catalog = match self.filled(list, &name) {
            // It is only a cache: what is damaged is made again.
            Err(Error::Store { .. }) => {
                self.remove(&name);
                self.filled(list, &name)?
            }
            filled => filled?,
        };
        let searcher = catalog.searcher();
        searcher.warm_up();
        searcher.prepare_ranking();
        let bytes = folder_bytes(catalog.path());
        drop(catalog);
        self.note(&name, bytes);
        Ok(searcher)
    }

    /// Reserves a folder, once nobody else uses it.
    fn reserve(&self, name: &str) -> FolderInUse<'_> {
        let mut on_disk = self.0.on_disk.lock();
        while !on_disk.in_use.insert(name.to_owned()) {
            self.0.released.wait(&mut on_disk);
        }
        FolderInUse {
            state: &self.0,
            name: name.to_owned(),
        }
    }

    /// The catalog of this name with the tools of the list. Its description says which list it
    /// holds, since it may have been that of another.
    fn filled(&self, list: &ToolList, name: &str) -> toolscout_index::Result<Catalog> {
        let catalog = self.0.data.open_or_create(name, self.0.options.clone())?;
        if catalog.searcher().settings().description == name {
            return Ok(catalog);
        }
        let mut tools = Vec::with_capacity(list.len());
        for (name, json) in list.searched() {
            tools.extend(tool(name, &json));
        }
        let mut writer = catalog.writer()?;
        writer.sync(SERVER, &tools)?;
        let mut settings = writer.settings()?;
        name.clone_into(&mut settings.description);
        // In the same commit, so that a folder never claims tools that it does not have.
        writer.set_settings(&settings)?;
        writer.commit()?;
        drop(writer);
        Ok(catalog)
    }

    /// Renames the catalog of a list that this one is a changed version of, so that only what
    /// changed is indexed. Whoever searches the former one has it open.
    fn take_over_similar(&self, list: &ToolList, name: &str) {
        if self.0.on_disk.lock().folders.contains(name) {
            return;
        }
        let Some(former) = self.most_similar(list) else {
            return;
        };
        let former_name = former.to_text();
        self.0.open.lock().pop(&former);
        let folder = self.0.data.path().join("catalogs");
        let mut on_disk = self.0.on_disk.lock();
        // It may have been reserved meanwhile.
        if on_disk.can_be_moved(&former_name)
            && std::fs::rename(folder.join(&former_name), folder.join(name)).is_ok()
            && let Some(bytes) = on_disk.folders.pop(&former_name)
        {
            on_disk.folders.put(name.to_owned(), bytes);
        }
    }

    fn most_similar(&self, list: &ToolList) -> Option<ListId> {
        let recent = self.recent_of_owner(list);
        let on_disk = self.0.on_disk.lock();
        let mut best: Option<(f64, ListId)> = None;
        for known in &recent {
            if !on_disk.can_be_moved(&known.id.to_text()) {
                continue;
            }
            let share = list.shared_with(known);
            let is_better = match best {
                // The id decides between equal shares, so that the choice is always the same.
                Some((most, id)) => share.total_cmp(&most).then(known.id.cmp(&id)).is_gt(),
                None => share >= SIMILAR,
            };
            if is_better {
                best = Some((share, known.id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// The last used lists of the same owner: nobody's tools may get into the catalog of another.
    fn recent_of_owner(&self, list: &ToolList) -> Vec<Arc<ToolList>> {
        let known = self.0.known.lock();
        let mut recent = Vec::new();
        for (_, reading) in &known.lists {
            let Ok(known) = reading else {
                continue;
            };
            if recent.len() == MAX_COMPARED {
                break;
            }
            if known.owner == list.owner && known.id != list.id {
                recent.push(Arc::clone(known));
            }
        }
        recent
    }

    /// Notes a catalog's size, and removes those that were not used for longest.
    fn note(&self, name: &str, bytes: u64) {
        let limits = &self.0.limits;
        let mut removed = Vec::new();
        // Folders are removed after the lock is released, since that takes long.
        {
            let mut on_disk = self.0.on_disk.lock();
            let former = on_disk.folders.put(name.to_owned(), bytes);
            on_disk.bytes = on_disk.bytes.saturating_sub(former.unwrap_or_default()) + bytes;
            // The one that was just used stays, however large it is.
            while on_disk.folders.len() > 1
                && (on_disk.folders.len() > limits.known.get() || on_disk.bytes > limits.disk_bytes)
            {
                let Some((name, bytes)) = on_disk.folders.pop_lru() else {
                    break;
                };
                on_disk.bytes = on_disk.bytes.saturating_sub(bytes);
                // Whoever uses it notes it again.
                if on_disk.in_use.insert(name.clone()) {
                    removed.push(FolderInUse {
                        state: &self.0,
                        name,
                    });
                }
            }
        }
        for folder in removed {
            self.remove(&folder.name);
        }
    }

    fn remove(&self, name: &str) {
        let folder = self.0.data.path().join("catalogs").join(name);
        if let Err(error) = std::fs::remove_dir_all(&folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(folder = %folder.display(), %error, "a catalog of a request was not removed");
        }
    }
}

impl Known {
    fn add(&mut self, id: ListId, list: Reading, most_bytes: usize) {
        self.bytes += bytes_of(&list);
        if let Some((_, former)) = self.lists.push(id, list) {
            self.bytes = self.bytes.saturating_sub(bytes_of(&former));
        }
        while self.bytes > most_bytes && self.lists.len() > 1 {
            let Some((_, oldest)) = self.lists.pop_lru() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(bytes_of(&oldest));
        }
    }
}

fn bytes_of(list: &Reading) -> usize {
    match list {
        Ok(list) => list.bytes,
        // An entry without a list takes little, and their number is bounded.
        Err(_) => 0,
    }
}

/// A folder that nobody else uses until this is dropped.
struct FolderInUse<'s> {
    state: &'s CatalogCache,
    name: String,
}

impl Drop for FolderInUse<'_> {
    fn drop(&mut self) {
        self.state.on_disk.lock().in_use.remove(&self.name);
        self.state.released.notify_all();
    }
}

impl OnDisk {
    fn can_be_moved(&self, name: &str) -> bool {
        self.folders.contains(name) && !self.in_use.contains(name)
    }

    /// The catalogs that an earlier process has left, the last used at the end.
    fn read(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries.filter_map(folder_of).collect();
        found.sort();
        let mut on_disk = OnDisk {
            folders: LruCache::unbounded(),
            bytes: 0,
            in_use: BTreeSet::new(),
        };
        for (_, name, bytes) in found {
            on_disk.bytes += bytes;
            on_disk.folders.put(name, bytes);
        }
        on_disk
    }
}

/// When a folder was last used, its name and its bytes.
fn folder_of(entry: DirEntry) -> Option<(SystemTime, String, u64)> {
    let name = entry.file_name().into_string().ok()?;
    let used = entry.metadata().ok()?.modified().ok()?;
    Some((used, name, folder_bytes(&entry.path())))
}

/// Bytes of the files in a folder and those below it.
fn folder_bytes(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            // A file may be removed meanwhile.
            Err(_) => 0,
        };
    }
    bytes
}

/// A tool as the engine has it. One whose definition it does not accept is found by name and
/// description.
fn tool(name: &str, json: &Bytes) -> Option<Tool> {
    let options = ReadOptions {
        server: Some(SERVER.to_owned()),
        ..ReadOptions::default()
    };
    if let Ok(parsed) = formats::parse(json, &options)
        && let Some(read) = parsed.tools.into_iter().next()
        && read.id.name() == name
        && read.validate().is_ok()
    {
        return Some(read);
    }
    let fields = Fields::read(json).unwrap_or_default();
    let inside = fields.get("function").or(fields.get("toolSpec"));
    let inside = inside.and_then(Fields::read);
    let inside = inside.unwrap_or_default();
    let description = fields.text("description");
    let description = description.or(inside.text("description"));
    let tool = Tool::new(SERVER, name).ok()?;
    let tool = tool.with_description(description.unwrap_or_default());
    tool.validate().is_ok().then_some(tool)
}
