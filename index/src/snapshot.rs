//! Builds a [`Searcher`] from the store: reads one consistent state and reuses the unchanged parts
//! of the previous snapshot. After a commit of a few tools, [`changed`] makes it of the previous one
//! and of these tools alone.

mod change;
mod changed;
mod legs;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::companions::Companions;
use crate::cost::CostModel;
use crate::dense::TextHash;
use crate::document::{self, View};
use crate::duplicates::Duplicates;
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::exact_names::Names;
use crate::lexical::LexicalSearcher;
use crate::owner_words::WordIndex;
use crate::ranker::{self, Ranker};
use crate::search::{
    DenseLeg, OwnRanker, Row, Rows, Searcher, ToolLanguages, ToolRows, Words, words,
};
use crate::settings::{Options, Settings};
use crate::tool::ToolId;
use crate::tools_db::{
    EnrichmentSum, Followed, StoredTool, ToolsDb, Version, text_hash, tool_file,
};

pub(crate) use change::Change;
use legs::{
    Known, VectorFiles, is_for_other_languages, is_large, leg, previous_leg, vector_file,
    vector_files, vectors_left_in_file,
};
pub(crate) use legs::{leg_of_part, no_vectors};

/// The prefix of graphs' folders, and the extension of vector files.
pub(crate) const GRAPH_PREFIX: &str = "graph-";
pub(crate) const VECTORS: &str = "vectors";

/// The folder of a model's graph within a catalog's.
pub(crate) fn graph_dir(catalog: &Path, model: u64) -> std::path::PathBuf {
    catalog.join(format!("{GRAPH_PREFIX}{model}"))
}

/// The file of an embedder's vectors within a catalog's folder, the same for all versions of the
/// embedder.
fn vector_file_path(catalog: &Path, embedder: &dyn Embedder) -> std::path::PathBuf {
    let name = embedder.id().split('/').next().unwrap_or_default();
    // An id may have characters that a file name must not have.
    let name = name.replace(|c| !is_plain(c), "-");
    catalog.join(format!("{name}.{VECTORS}"))
}

/// True for a character that any file system takes in a name.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// A file of tools or vectors is rewritten when it lacks more than this many and more than a
/// twentieth of all. Reading one from the database takes some microseconds more, and a second copy
/// of each takes disk. Writing 50,000 vectors takes 20 ms.
const MIN_UNSAVED: usize = 1024;
/// As [`MIN_UNSAVED`], for vectors of instant embedders: embedding what is missing costs some 10 µs
/// each at every opening.
const MIN_UNSAVED_INSTANT: usize = 128;
/// What a tool takes in memory beside its texts and vectors, about: the row, its place in lists, and
/// the ranker's view of it.
const TOOL_BYTES: usize = 1000;
/// What a catalog takes beside its tools, about.
const CATALOG_BYTES: usize = 64 << 10;

/// A state of the store in memory, without the lexical index.
pub(crate) struct Loaded {
    pub(crate) version: Version,
    followed: Option<Followed>,
    pub(crate) settings: Settings,
    pub(crate) rows: Rows,
    /// Bytes that they take, about.
    row_bytes: usize,
    tool_rows: Arc<ToolRows>,
    /// What it is made of, if that is the previous snapshot and changed rows.
    pub(crate) change: Option<Change>,
    /// How many of them the file of all tools lacks.
    unsaved_tools: usize,
    /// True if none of them was read from that file alone.
    is_verified: bool,
    /// True until a writer of this version has written to the database.
    is_of_former_version: bool,
    languages: Arc<ToolLanguages>,
    names: Arc<Names>,
    duplicates: Arc<OnceLock<Duplicates>>,
    companions: Arc<Companions>,
    legs: Vec<DenseLeg>,
    ranker: Option<Arc<Ranker>>,
    own_ranker: OwnRanker,
    missing_embedder: Option<String>,
    cost_model: Arc<CostModel>,
    owner_words: Option<Arc<WordIndex>>,
}

impl DenseLeg {
    fn has_unsaved_vectors(&self) -> bool {
        let least = match self.embedder.is_instant() {
            true => MIN_UNSAVED_INSTANT,
            false => MIN_UNSAVED,
        };
        is_worth_writing(self.unsaved, self.vectors.len(), least)
    }
}

fn is_worth_writing(unsaved: usize, all: usize, least: usize) -> bool {
    unsaved > least.max(all / 20)
}

impl Loaded {
    /// Reads the store's present state. `previous` must be a snapshot of the same catalog.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub(crate) fn read(
        store: &ToolsDb,
        dir: &Path,
        options: &Options,
        previous: Option<&Searcher>,
    ) -> Result<Self> {
        store.begin_read()?;
        let loaded = Loaded::read_in_transaction(store, dir, options, previous);
        store.end();
        loaded
    }

    fn read_in_transaction(
        store: &ToolsDb,
        dir: &Path,
        options: &Options,
        previous: Option<&Searcher>,
    ) -> Result<Self> {
        let version = store.state()?;
        let followed = store.followed()?;
        let settings = settings(store)?;
        let owner_words = owner_words(store, previous)?;
        let (rows, files) = rows_and_files(store, dir, options, previous, owner_words.as_deref())?;
        let Present {
            all: rows,
            unsaved: unsaved_tools,
            is_verified,
        } = rows;
        let rows = Rows::from(rows);
        let languages = Arc::new(ToolLanguages::of(&rows));
        let change = previous.map(|previous| (previous, Change::between(&previous.rows, &rows)));
        let names = match &change {
            Some((previous, change)) => change.names(previous),
            None => {
                let ids: Vec<&ToolId> = rows.iter().map(|row| &row.stored.id).collect();
                Arc::new(Names::new(&ids))
            }
        };
        let (mut duplicates, mut companions, mut positions) = Default::default();
        if let Some((previous, change)) = &change {
            duplicates = change.duplicates(previous);
            companions = change.companions(previous);
            positions = change.moves.former_positions();
        }
        let mut legs = Vec::with_capacity(options.embedders.len());
        for (number, (embedder, mut file)) in options.embedders.iter().zip(files).enumerate() {
            let previous = previous_leg(previous, number, embedder.as_ref());
            if previous.is_none() && is_for_other_languages(embedder.as_ref()) {
                let path = vector_file_path(dir, embedder.as_ref());
                if let Some(left) = vectors_left_in_file(&path, embedder, &rows, &languages) {
                    legs.push(DenseLeg::new(embedder, left));
                    continue;
                }
                file = vector_file(&path, embedder.as_ref());
            }
            let known = match (previous, file) {
                (Some(leg), _) => Known::Previous((leg, &positions)),
                (None, Some(file)) => Known::Saved(file),
                (None, None) => Known::Nothing,
            };
            legs.push(leg(store, dir, embedder, &rows, &settings, known)?);
        }
        let (ranker, own_ranker) = ranker(dir, previous);
        let cost_model = match previous {
            Some(previous) => Arc::clone(&previous.cost_model),
            None => Arc::default(),
        };
        Ok(Loaded {
            is_of_former_version: version.identity.is_empty() || store.is_of_former_version()?,
            version,
            followed,
            settings,
            row_bytes: rows.iter().map(|row| bytes_of(row)).sum(),
            tool_rows: Arc::new(ToolRows::of(&rows)),
            rows,
            // The lexical index may have changed besides, so it is read as a whole too.
            change: None,
            unsaved_tools,
            is_verified,
            languages,
            names,
            duplicates,
            companions,
            legs,
            ranker,
            own_ranker,
            missing_embedder: options.missing_embedder.clone(),
            cost_model,
            owner_words,
        })
    }

    /// The stamp that a lexical index must carry: its settings and its catalog. The same key means
    /// another tool in another catalog.
    pub(crate) fn lexical_stamp(&self) -> String {
        format!(
            "{}, catalog {}",
            self.settings.lexical.stamp(),
            self.version.identity
        )
    }

    /// Positions by store key. The lexical index names tools by their store key.
    pub(crate) fn ordinals(&self) -> HashMap<u64, u32> {
        words::ordinals(self.rows.len(), self.rows.iter())
    }

    /// The legs that are large enough for a graph and have no usable one. Those of instant embedders
    /// never have one.
    pub(crate) fn legs_without_graph(&self) -> impl Iterator<Item = &DenseLeg> {
        self.legs.iter().filter(|leg| self.lacks_graph(leg))
    }

    fn lacks_graph(&self, leg: &DenseLeg) -> bool {
        is_large(&self.settings, leg.embedder.as_ref(), leg.vectors.len())
            && leg.graph.is_none()
            && !leg.embedder.is_instant()
    }

    /// The texts without an intact vector, for each slow embedder.
    pub(crate) fn pending_texts(&self) -> Vec<(PendingTexts, Arc<dyn Embedder>)> {
        let mut pending = Vec::new();
        for leg in &self.legs {
            if leg.embedder.is_instant() {
                continue;
            }
            let embedded: HashSet<TextHash> = leg.vectors.get().hashes().copied().collect();
            let texts = pending_texts(&self.rows, leg.embedder.views(), &embedded);
            pending.push((texts, Arc::clone(&leg.embedder)));
        }
        pending
    }

    /// True when a file of tools or vectors lacks so much that it should be rewritten.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.has_unsaved_tools() || self.legs.iter().any(DenseLeg::has_unsaved_vectors)
    }

    fn has_unsaved_tools(&self) -> bool {
        is_worth_writing(self.unsaved_tools, self.rows.len(), MIN_UNSAVED)
    }

    /// Rewrites the files of tools and vectors that lack too much. The caller must hold the writer's
    /// lock. A failure is no error: the next opening reads from the database, and computes again.
    pub(crate) fn save(&mut self, store: &ToolsDb, dir: &Path) {
        if self.has_unsaved_tools()
            && let Ok(Some(origin)) = store.origin()
        {
            let tools = self.rows.iter().map(|row| &row.stored);
            if tool_file::save(&dir.join(tool_file::FILE_NAME), &origin, tools).is_ok() {
                self.unsaved_tools = 0;
            }
        }
        for leg in &mut self.legs {
            if !leg.has_unsaved_vectors() {
                continue;
            }
            let path = vector_file_path(dir, leg.embedder.as_ref());
            if leg.vectors.get().save(&path, leg.embedder.id()).is_err() {
                continue;
            }
            leg.unsaved = 0;
            // From now on they need no memory until a request needs them.
            if is_for_other_languages(leg.embedder.as_ref())
                && let Some(saved) =
                    vectors_left_in_file(&path, &leg.embedder, &self.rows, &self.languages)
            {
                leg.vectors = saved.into();
            }
        }
    }

    /// Bytes in memory without the lexical index, about, once all tools were ranked.
    fn memory_bytes(&self) -> usize {
        let mut bytes = CATALOG_BYTES + self.row_bytes;
        for leg in &self.legs {
            bytes += leg.vectors.memory_bytes();
        }
        bytes
    }

    /// The snapshot with this lexical index.
    pub(crate) fn into_searcher(self, lexical: LexicalSearcher) -> Searcher {
        Searcher {
            memory_bytes: self.memory_bytes() + lexical.memory_bytes(),
            needs_writer: self.is_of_former_version
                || self.legs.iter().any(|leg| leg.lacking > 0)
                || self.legs_without_graph().next().is_some(),
            version: self.version,
            followed: self.followed,
            settings: self.settings,
            tool_rows: self.tool_rows,
            rows: self.rows,
            row_bytes: self.row_bytes,
            unsaved_tools: self.unsaved_tools,
            is_verified: AtomicBool::new(self.is_verified),
            languages: self.languages,
            words: Words::new(lexical),
            translator: OnceLock::new(),
            names: self.names,
            duplicates: self.duplicates,
            companions: self.companions,
            tags: OnceLock::new(),
            legs: self.legs,
            ranker: self.ranker,
            own_ranker: self.own_ranker,
            missing_embedder: self.missing_embedder,
            missing_candidates: None,
            stands_in: RwLock::default(),
            memory: None,
            sample: None,
            cost_model: self.cost_model,
            owner_words: self.owner_words,
            boosted: OnceLock::new(),
        }
    }
}

/// Bytes in memory of a row, about, once its tool was ranked.
fn bytes_of(row: &Row) -> usize {
    let texts = row.stored.texts.len() * size_of::<TextHash>();
    row.stored.json.len() + texts + TOOL_BYTES
}

/// The settings stored with a catalog.
///
/// # Errors
/// [`crate::Error::Store`] if they cannot be parsed, or have a value out of its range, which would
/// fail every search as if its query had it.
pub(crate) fn settings(store: &ToolsDb) -> Result<Settings> {
    let Some(json) = store.meta("settings")? else {
        return Ok(Settings::default());
    };
    let settings: Settings = match serde_json::from_str(&json) {
        Ok(settings) => settings,
        Err(e) => return Err(store.damaged(format!("its settings cannot be read ({e})"))),
    };
    match settings.validate() {
        Ok(()) => Ok(settings),
        Err(e) => Err(store.damaged(format!("its settings are wrong ({e})"))),
    }
}

/// What the owner said; of the previous snapshot if it is the same.
fn owner_words(store: &ToolsDb, previous: Option<&Searcher>) -> Result<Option<Arc<WordIndex>>> {
    let Some(stored) = store.stored_owner_words()? else {
        return Ok(None);
    };
    // Reading a long document takes as long as a commit.
    let sum = stored.split(' ').next().unwrap_or_default();
    if let Some(previous) = previous
        && let Some(known) = &previous.owner_words
        && known.sum() == sum
    {
        return Ok(Some(Arc::clone(known)));
    }
    let words = store.read_owner_words(&stored)?;
    Ok(WordIndex::new(words, sum).map(Arc::new))
}

/// The catalog's own ranker, or the bundled one. If its own cannot be read, the previous snapshot's
/// ranker stays in use and answers report the problem.
fn ranker(dir: &Path, previous: Option<&Searcher>) -> (Option<Arc<Ranker>>, OwnRanker) {
    let path = dir.join(ranker::FILE_NAME);
    if !path.exists() {
        return (Ranker::bundled(), OwnRanker::None);
    }
    match Ranker::load(&path) {
        Ok(ranker) => (Some(Arc::new(ranker)), OwnRanker::Used),
        Err(error) => {
            let previous = previous.and_then(|previous| previous.ranker.clone());
            (
                previous.or_else(Ranker::bundled),
                OwnRanker::Unusable(ranker_problem(&error)),
            )
        }
    }
}

/// Why the catalog's own ranker cannot be used. Answers report it, so it must not contain the
/// catalog's path.
fn ranker_problem(error: &Error) -> String {
    let reason = match error {
        Error::Ranker { reason, .. } => reason.clone(),
        Error::Io { source, .. } => source.to_string(),
        _ => "it cannot be read".to_owned(),
    };
    format!(
        "the catalog's own ranker ({}) cannot be used and the previous one ranks: {reason}",
        ranker::FILE_NAME
    )
}

/// Texts with their hashes.
pub(crate) type PendingTexts = Vec<(TextHash, String)>;

/// The texts of these rows that this model has no vector of, with their hashes. Shortest first, so
/// that the texts of a batch are of similar length and need little padding.
fn pending_texts(rows: &Rows, views: &[View], embedded: &HashSet<TextHash>) -> PendingTexts {
    let mut pending: HashMap<TextHash, String> = HashMap::new();
    for row in rows.iter() {
        // By the hashes first, since making the texts takes parsing the tool.
        let mut hashes = row.stored.embedded_texts(views);
        if hashes.all(|hash| embedded.contains(&hash)) {
            continue;
        }
        let Some(tool) = row.tool() else { continue };
        let texts = document::views(&tool);
        let views = views.iter().map(|&view| texts[view as usize].as_str());
        for text in views.chain(row.stored.further_texts()) {
            let hash = text_hash(text);
            if !embedded.contains(&hash) {
                pending.insert(hash, text.to_owned());
            }
        }
    }
    let mut pending: Vec<(TextHash, String)> = pending.into_iter().collect();
    pending.sort_unstable_by(|a, b| (a.1.len(), &a.1).cmp(&(b.1.len(), &b.1)));
    pending
}

/// Tools or rows of the store's present state.
struct Present<T> {
    all: Vec<T>,
    /// How many of them the file of all tools lacks.
    unsaved: usize,
    /// True if none of them was read from that file alone.
    is_verified: bool,
}

/// The rows of the store's present state and, without a previous snapshot, the file of vectors of
/// each embedder.
fn rows_and_files(
    store: &ToolsDb,
    dir: &Path,
    options: &Options,
    previous: Option<&Searcher>,
    owner_words: Option<&WordIndex>,
) -> Result<(Present<Arc<Row>>, VectorFiles)> {
    let (rows, mut files) = std::thread::scope(|scope| {
        // At the same time as the tools: their checksums take most of the time.
        let files = scope.spawn(|| match previous {
            Some(_) => Vec::new(),
            None => vector_files(dir, &options.embedders),
        });
        let rows = rows(store, dir, previous, owner_words);
        // No panic of that thread is known. After one, the vectors are read from the database.
        (rows, files.join().unwrap_or_default())
    });
    files.resize_with(options.embedders.len(), || None);
    Ok((rows?, files))
}

/// The rows of the store's present state.
fn rows(
    store: &ToolsDb,
    dir: &Path,
    previous: Option<&Searcher>,
    owner_words: Option<&WordIndex>,
) -> Result<Present<Arc<Row>>> {
    let enrichments = store.enrichment_sums()?;
    let Some(previous) = previous else {
        let tools = tools(store, dir)?;
        let mut all = Vec::with_capacity(tools.all.len());
        for stored in tools.all {
            let has_enrichment = enrichments.contains_key(&stored.key);
            all.push(row(store, stored, owner_words, has_enrichment)?);
        }
        return Ok(Present {
            all,
            unsaved: tools.unsaved,
            is_verified: tools.is_verified,
        });
    };
    let known = previous.rows.iter().map(|row| (row.stored.key, row));
    let known: HashMap<u64, &Arc<Row>> = known.collect();
    let mut unsaved = previous.unsaved_tools;
    let mut all = Vec::with_capacity(known.len());
    for key in store.keys()? {
        all.push(match known.get(&key) {
            Some(known) if is_current(known, &enrichments) => Arc::clone(known),
            _ => {
                unsaved += 1;
                let has_enrichment = enrichments.contains_key(&key);
                row(store, store.tool(key)?, owner_words, has_enrichment)?
            }
        });
    }
    Ok(Present {
        all,
        unsaved,
        is_verified: previous.is_verified.load(Ordering::Relaxed),
    })
}

/// The row of a stored tool, with what its owner says of it and its enrichment.
fn row(
    store: &ToolsDb,
    mut stored: StoredTool,
    owner_words: Option<&WordIndex>,
    has_enrichment: bool,
) -> Result<Arc<Row>> {
    if let Some(words) = owner_words {
        stored.owner_texts = words.texts_of(&stored.id);
    }
    // Few tools have one, so most are not asked for.
    if has_enrichment {
        stored.enrichment = store.enrichment(stored.key)?.map(Box::new);
    }
    Ok(Arc::new(Row::new(stored)))
}

/// False for a row with another enrichment: it is another row, so that nothing of it is reused.
fn is_current(row: &Row, enrichments: &HashMap<u64, EnrichmentSum>) -> bool {
    let enrichment = row.stored.enrichment.as_ref();
    enrichment.map(|stored| &stored.sum) == enrichments.get(&row.stored.key)
}

/// Every tool in the order of ids, from the database.
fn tools_of_store(store: &ToolsDb) -> Result<Present<StoredTool>> {
    let all = store.tools()?;
    Ok(Present {
        unsaved: all.len(),
        is_verified: true,
        all,
    })
}

/// Every tool in the order of ids, from the file as far as it has them.
fn tools(store: &ToolsDb, dir: &Path) -> Result<Present<StoredTool>> {
    let Some(origin) = store.origin()? else {
        return tools_of_store(store);
    };
    let Ok(saved) = tool_file::load(&dir.join(tool_file::FILE_NAME), &origin) else {
        return tools_of_store(store);
    };
    let keys = store.keys()?;
    // The usual case: nobody has changed a tool since the file was written.
    if saved.iter().map(|tool| tool.key).eq(keys.iter().copied()) {
        store.check_digests(saved.iter().map(|tool| tool.digest))?;
        return Ok(Present {
            all: saved,
            unsaved: 0,
            is_verified: false,
        });
    }
    let mut saved: HashMap<u64, StoredTool> =
        saved.into_iter().map(|tool| (tool.key, tool)).collect();
    let mut all = Vec::with_capacity(keys.len());
    let mut unsaved = 0;
    for key in keys {
        all.push(match saved.remove(&key) {
            Some(tool) => tool,
            None => {
                unsaved += 1;
                store.tool(key)?
            }
        });
    }
    store.check_digests(all.iter().map(|tool| tool.digest))?;
    Ok(Present {
        all,
        // Removed tools count too, since the file should be written without them.
        unsaved: unsaved + saved.len(),
        is_verified: false,
    })
}
