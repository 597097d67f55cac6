//! Builds a [`Searcher`] from the store: reads one consistent state and reuses the unchanged parts
//! of the previous snapshot.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::companions::Companions;
use crate::cost::CostModel;
use crate::dense::{Graph, RowsByText, TextHash, VectorFile, Vectors};
use crate::document::{self, View};
use crate::duplicates::{Duplicates, Fingerprint};
use crate::embed::{Embedder, Languages};
use crate::error::{Error, Result};
use crate::exact_names::Names;
use crate::lexical::LexicalSearcher;
use crate::owner_words::WordIndex;
use crate::ranker::{self, Ranker};
use crate::search::{
    DenseLeg, LegVectors, OwnRanker, Row, SavedVectors, Searcher, ToolLanguages, ToolRows, Words,
    words,
};
use crate::settings::{Options, Settings};
use crate::tool::ToolId;
use crate::tools_db::{
    EnrichmentSum, Followed, StoredTool, ToolsDb, Version, text_hash, tool_file,
};

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

/// Rows embedded at once, in parallel; only these are in memory twice.
const CHUNK: usize = 1024;
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
    pub(crate) rows: Vec<Arc<Row>>,
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
        let languages = Arc::new(ToolLanguages::of(&rows));
        let names = names(&rows, previous);
        let duplicates = duplicates(&rows, previous);
        let positions = match previous {
            Some(previous) => previous_positions(&rows, &previous.rows),
            None => Vec::new(),
        };
        let companions = companions(&positions, previous);
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
            rows,
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
        words::ordinals(&self.rows)
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
            let embedded: HashSet<TextHash> = leg.vectors.get().hashes().iter().copied().collect();
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
        let mut bytes = CATALOG_BYTES;
        for row in &self.rows {
            let texts = row.stored.texts.len() * size_of::<TextHash>();
            bytes += row.stored.json.len() + texts + TOOL_BYTES;
        }
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
                || self.legs.iter().any(|leg| leg.lacks_texts)
                || self.legs_without_graph().next().is_some(),
            version: self.version,
            followed: self.followed,
            settings: self.settings,
            tool_rows: ToolRows::of(&self.rows),
            rows: self.rows,
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
            memory: None,
            sample: None,
            cost_model: self.cost_model,
            owner_words: self.owner_words,
            boosted: OnceLock::new(),
        }
    }
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
fn pending_texts(rows: &[Arc<Row>], views: &[View], embedded: &HashSet<TextHash>) -> PendingTexts {
    let mut pending: HashMap<TextHash, String> = HashMap::new();
    for row in rows {
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
            all.push(row(store, stored, owner_words, &enrichments)?);
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
                row(store, store.tool(key)?, owner_words, &enrichments)?
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
    enrichments: &HashMap<u64, EnrichmentSum>,
) -> Result<Arc<Row>> {
    if let Some(words) = owner_words {
        stored.owner_texts = words.texts_of(&stored.id);
    }
    // Few tools have one, so most are not asked for.
    if enrichments.contains_key(&stored.key) {
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

/// The names of these rows; reused from the previous snapshot if the ids are the same.
fn names(rows: &[Arc<Row>], previous: Option<&Searcher>) -> Arc<Names> {
    match previous {
        Some(previous) if ids(rows).eq(ids(&previous.rows)) => Arc::clone(&previous.names),
        _ => Arc::new(Names::new(&ids(rows).collect::<Vec<_>>())),
    }
}

fn ids(rows: &[Arc<Row>]) -> impl Iterator<Item = &ToolId> {
    rows.iter().map(|row| &row.stored.id)
}

/// The near-duplicates of the previous snapshot, if it has looked for them and all ids and
/// fingerprints are the same; else to be looked for on first use.
fn duplicates(rows: &[Arc<Row>], previous: Option<&Searcher>) -> Arc<OnceLock<Duplicates>> {
    fn fingerprints(rows: &[Arc<Row>]) -> impl Iterator<Item = (&ToolId, Option<&Fingerprint>)> {
        rows.iter()
            .map(|row| (&row.stored.id, row.stored.fingerprint.as_ref()))
    }
    match previous {
        Some(known)
            if known.duplicates.get().is_some()
                && fingerprints(rows).eq(fingerprints(&known.rows)) =>
        {
            Arc::clone(&known.duplicates)
        }
        _ => Arc::default(),
    }
}

/// The companions of the previous snapshot, if that has the same rows; else to be looked for on first
/// use. `positions` are those of [`previous_positions`].
fn companions(positions: &[Option<usize>], previous: Option<&Searcher>) -> Arc<Companions> {
    match previous {
        Some(same)
            if positions.len() == same.rows.len() && positions.iter().all(Option::is_some) =>
        {
            Arc::clone(&same.companions)
        }
        _ => Arc::default(),
    }
}

/// Each row's position in a previous snapshot, if that has the same row. Both are in the order of
/// ids.
fn previous_positions(rows: &[Arc<Row>], previous: &[Arc<Row>]) -> Vec<Option<usize>> {
    let mut positions = Vec::with_capacity(rows.len());
    let mut at = 0;
    for row in rows {
        while at < previous.len() && previous[at].stored.id < row.stored.id {
            at += 1;
        }
        let is_same = at < previous.len() && Arc::ptr_eq(&previous[at], row);
        positions.push(is_same.then_some(at));
    }
    positions
}

/// The leg of this number and embedder in a previous snapshot.
fn previous_leg<'a>(
    previous: Option<&'a Searcher>,
    number: usize,
    embedder: &dyn Embedder,
) -> Option<&'a DenseLeg> {
    let leg = previous?.legs.get(number)?;
    // The catalog may have got other embedders since.
    (leg.embedder.id() == embedder.id()).then_some(leg)
}

/// A leg of the previous snapshot, and each row's position in it.
type PreviousLeg<'a> = (&'a DenseLeg, &'a [Option<usize>]);

/// The vectors that need neither be computed nor read from the database.
enum Known<'a> {
    Previous(PreviousLeg<'a>),
    /// Without a previous snapshot.
    Saved(VectorFile),
    Nothing,
}

/// The file of each embedder, where there is an intact one.
type VectorFiles = Vec<Option<VectorFile>>;

/// Reads the files of these embedders' vectors at the same time, apart from those that may stay in
/// their files.
fn vector_files(dir: &Path, embedders: &[Arc<dyn Embedder>]) -> VectorFiles {
    let load = |embedder: &Arc<dyn Embedder>| match is_for_other_languages(embedder.as_ref()) {
        true => None,
        false => vector_file(&vector_file_path(dir, embedder.as_ref()), embedder.as_ref()),
    };
    embedders.par_iter().map(load).collect()
}

/// The vectors of an intact file of this embedder.
fn vector_file(path: &Path, embedder: &dyn Embedder) -> Option<VectorFile> {
    let (dimensions, leading) = (embedder.dimensions(), embedder.leading_dimensions());
    VectorFile::load(path, embedder.id(), dimensions, leading).ok()
}

/// Vectors of this embedder, without tools yet.
pub(crate) fn no_vectors(embedder: &dyn Embedder) -> Vectors {
    Vectors::with_leading(embedder.dimensions(), embedder.leading_dimensions())
}

/// The texts that an embedder embeds of each row.
fn texts_of<'a>(
    rows: &'a [Arc<Row>],
    embedder: &'a dyn Embedder,
) -> impl Iterator<Item = impl Iterator<Item = TextHash>> {
    rows.iter()
        .map(|row| row.stored.embedded_texts(embedder.views()))
}

fn is_for_other_languages(embedder: &dyn Embedder) -> bool {
    embedder.is_instant() && embedder.languages() == Languages::OtherThanEnglish
}

/// The vectors of such an embedder if they can stay in their file until a request needs them:
/// requests in English over English tools do without.
fn vectors_left_in_file(
    path: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    languages: &ToolLanguages,
) -> Option<SavedVectors> {
    if !languages.are_english() {
        return None;
    }
    let (dimensions, leading) = (embedder.dimensions(), embedder.leading_dimensions());
    let texts = texts_of(rows, embedder.as_ref()).flatten();
    let count = VectorFile::count_of_same(path, embedder.id(), dimensions, leading, texts);
    let len = count.ok()?;
    let (path, embedder, rows) = (path.to_owned(), Arc::clone(embedder), rows.to_vec());
    Some(SavedVectors {
        len,
        memory_bytes: Vectors::bytes_of(rows.len(), len, dimensions),
        read: Box::new(move || vectors_of_file(&path, embedder.as_ref(), &rows)),
    })
}

/// The vectors of a file that had exactly those of these rows. Where it has since been damaged, or
/// replaced by that of another commit, they are computed.
fn vectors_of_file(path: &Path, embedder: &dyn Embedder, rows: &[Arc<Row>]) -> Vectors {
    let texts = texts_of(rows, embedder);
    match vector_file(path, embedder) {
        Some(file) => {
            if let Ok(vectors) = file.into_vectors_of(texts) {
                return with_written_texts(vectors, embedder, rows);
            }
        }
        // A damaged file looks good until it is read; without one the next opening writes it.
        None => drop(std::fs::remove_file(path)),
    }
    let mut vectors = no_vectors(embedder);
    for row in rows {
        // No instant embedder is known to fail. A tool without vectors is found by words.
        for (text, vector) in computed(embedder, row).unwrap_or_default() {
            let _ = vectors.push(embedder.id(), text, &vector);
        }
        vectors.end_tool();
    }
    with_written_texts(vectors, embedder, rows)
}

/// Vectors of these rows that know which of them are of texts that a language model wrote.
fn with_written_texts(mut vectors: Vectors, embedder: &dyn Embedder, rows: &[Arc<Row>]) -> Vectors {
    let counts = rows.iter().map(|row| row.stored.written_texts());
    vectors.set_written_texts(embedder.views().len(), counts);
    vectors
}

fn leg(
    store: &ToolsDb,
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    settings: &Settings,
    known: Known<'_>,
) -> Result<DenseLeg> {
    // Vectors of instant embedders are not in the database, and have no graph.
    let model = match embedder.is_instant() {
        true => None,
        false => store.model(embedder.id(), embedder.dimensions())?,
    };
    let known = match known {
        Known::Saved(file) => match file.into_vectors_of(texts_of(rows, embedder.as_ref())) {
            Ok(vectors) => {
                return Ok(finished_leg(dir, embedder, rows, settings, vectors, model));
            }
            // It does not have exactly those of these tools, so each is looked up in it.
            Err(file) => Known::Saved(*file),
        },
        known => known,
    };
    if embedder.is_instant() {
        return instant_leg(embedder, rows, &known);
    }
    let read = slow_vectors(store, embedder.as_ref(), model, rows, &known)?;
    Ok(DenseLeg {
        damaged: read.damaged,
        unsaved: read.unsaved,
        ..finished_leg(dir, embedder, rows, settings, read.vectors, model)
    })
}

/// The leg with these vectors, with its model's graph where there is one.
fn finished_leg(
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    settings: &Settings,
    vectors: Vectors,
    model: Option<u64>,
) -> DenseLeg {
    let mut graph = None;
    if let Some(model) = model
        && is_large(settings, embedder.as_ref(), vectors.len())
    {
        // Without an intact one all vectors are compared, until a writer builds it again.
        graph = Graph::load(&graph_dir(dir, model), embedder.id(), &vectors).ok();
    }
    DenseLeg {
        graph,
        ..leg_without_graph(embedder, rows, vectors)
    }
}

/// True for so many vectors of an embedder that a graph is used.
fn is_large(settings: &Settings, embedder: &dyn Embedder, vectors: usize) -> bool {
    let least = match settings.graph_min_vectors {
        Some(least) => least,
        None => embedder.profile().graph_min_vectors(),
    };
    vectors >= least
}

fn leg_without_graph(
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    vectors: Vectors,
) -> DenseLeg {
    let (mut pending, mut lacks_texts) = (0, false);
    for (position, row) in rows.iter().enumerate() {
        let found = vectors.rows_of(position).len();
        // Without the vectors of its enrichment and its aliases a tool is found as any other.
        if found < row.stored.texts_of(embedder.views()).count() {
            pending += 1;
        }
        // One such tool is enough: counting the texts of another takes hashing its aliases.
        lacks_texts = lacks_texts || found < row.stored.embedded_texts(embedder.views()).count();
    }
    DenseLeg {
        pending,
        lacks_texts,
        ..DenseLeg::new(
            embedder,
            with_written_texts(vectors, embedder.as_ref(), rows),
        )
    }
}

/// The leg of an instant embedder, which is faster than reading vectors from the database. Vectors
/// come from the previous snapshot or from a file beside the index; missing ones are computed. No
/// tool is ever pending.
fn instant_leg(
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    known: &Known<'_>,
) -> Result<DenseLeg> {
    let lookup = Lookup::new(embedder.as_ref(), known);
    let mut vectors = lookup.empty();
    let mut unsaved = lookup.unsaved();
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        let first = number * CHUNK;
        let mut missing = Vec::new();
        for (position, row) in (first..).zip(chunk) {
            if !lookup.has(position, row) {
                missing.push(row);
            }
        }
        let mut computed = compute(embedder.as_ref(), &missing)?.into_iter();
        for (position, row) in (first..).zip(chunk) {
            if lookup.has(position, row) {
                lookup.push_onto(&mut vectors, position, row);
                continue;
            }
            // `computed` has the missing rows in the same order.
            for (text, vector) in computed.next().unwrap_or_default() {
                vectors.push(embedder.id(), text, &vector)?;
                unsaved += 1;
            }
            vectors.end_tool();
        }
    }
    Ok(DenseLeg {
        unsaved,
        ..DenseLeg::new(
            embedder,
            with_written_texts(vectors, embedder.as_ref(), rows),
        )
    })
}

/// The leg of rows that are some of a catalog's: an instant embedder embeds them, and a slow one has
/// these vectors. Of all tools of the catalog, the share `without_texts` has no enrichment.
pub(crate) fn leg_of_part(
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    stored: &HashMap<TextHash, Vec<f32>>,
    without_texts: f32,
) -> Result<DenseLeg> {
    let mut leg = match embedder.is_instant() {
        true => instant_leg(embedder, rows, &Known::Nothing)?,
        false => slow_leg_of_part(embedder, rows, stored)?,
    };
    if let LegVectors::InMemory(vectors) = &mut leg.vectors {
        vectors.set_share_without_texts(without_texts);
    }
    Ok(leg)
}

fn slow_leg_of_part(
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    stored: &HashMap<TextHash, Vec<f32>>,
) -> Result<DenseLeg> {
    let mut vectors = Lookup::new(embedder.as_ref(), &Known::Nothing).empty();
    for row in rows {
        push_row(&mut vectors, embedder.as_ref(), row, |hash| {
            Ok(stored.get(hash).map(Cow::Borrowed))
        })?;
    }
    Ok(leg_without_graph(embedder, rows, vectors))
}

/// Finds the known vectors of rows.
struct Lookup<'a> {
    embedder: &'a dyn Embedder,
    previous: Option<PreviousLeg<'a>>,
    saved: Option<(&'a VectorFile, RowsByText<'a>)>,
}

impl<'a> Lookup<'a> {
    fn new(embedder: &'a dyn Embedder, known: &'a Known<'a>) -> Self {
        let (previous, saved) = match known {
            Known::Previous(previous) => (Some(*previous), None),
            Known::Saved(file) => (None, Some((file, file.by_text()))),
            Known::Nothing => (None, None),
        };
        Lookup {
            embedder,
            previous,
            saved,
        }
    }

    /// No vectors yet, with room for those of the previous snapshot.
    fn empty(&self) -> Vectors {
        match self.previous {
            Some((leg, _)) => Vectors::with_capacity_of(leg.vectors.get()),
            None => no_vectors(self.embedder),
        }
    }

    /// How many vectors of the previous snapshot are not in the file.
    fn unsaved(&self) -> usize {
        match self.previous {
            Some((leg, _)) => leg.unsaved,
            None => 0,
        }
    }

    /// True when all vectors of a row are known.
    fn has(&self, position: usize, row: &Row) -> bool {
        if let Some((leg, positions)) = self.previous {
            let Some(previous) = positions[position] else {
                return false;
            };
            // It may lack some: a slow embedder makes them after the commit.
            let wanted = row.stored.embedded_texts(self.embedder.views()).count();
            return leg.vectors.get().rows_of(previous).len() == wanted;
        }
        let Some((_, by_text)) = &self.saved else {
            return false;
        };
        let mut texts = row.stored.embedded_texts(self.embedder.views());
        texts.all(|text| by_text.find(&text).is_some())
    }

    /// Adds the vectors of a row that [`Lookup::has`] accepts.
    fn push_onto(&self, vectors: &mut Vectors, position: usize, row: &Row) {
        if let Some((leg, positions)) = self.previous
            && let Some(previous) = positions[position]
        {
            return vectors.push_tool(leg.vectors.get(), previous);
        }
        if let Some((file, by_text)) = &self.saved {
            for text in row.stored.embedded_texts(self.embedder.views()) {
                if let Some(found) = by_text.find(&text) {
                    vectors.push_row_of(file, found);
                }
            }
        }
        vectors.end_tool();
    }
}

/// A row's texts with their vectors.
type Computed = Vec<(TextHash, Vec<f32>)>;

/// The vectors of these rows' texts, row by row.
fn compute(embedder: &dyn Embedder, rows: &[&Arc<Row>]) -> Result<Vec<Computed>> {
    rows.par_iter().map(|row| computed(embedder, row)).collect()
}

/// The vectors of a row's texts.
fn computed(embedder: &dyn Embedder, row: &Row) -> Result<Computed> {
    let Ok(tool) = row.stored.parse() else {
        return Ok(Vec::new());
    };
    let texts = document::views(&tool);
    let mut wanted = Vec::new();
    for &view in embedder.views() {
        // A catalog of an earlier version may lack the hashes of some.
        if row.stored.texts.len() > view as usize {
            wanted.push(texts[view as usize].as_str());
        }
    }
    wanted.extend(row.stored.further_texts());
    // In the same order as the texts.
    let hashes = row.stored.embedded_texts(embedder.views());
    Ok(hashes.zip(embedder.embed_tools(&wanted)?).collect())
}

/// Vectors of a slow embedder.
struct SlowVectors {
    vectors: Vectors,
    /// Stored vectors that fail their checksum.
    damaged: usize,
    /// How many are not in the file.
    unsaved: usize,
}

/// The vectors of these rows, read from the database where they are not known.
fn slow_vectors(
    store: &ToolsDb,
    embedder: &dyn Embedder,
    model: Option<u64>,
    rows: &[Arc<Row>],
    known: &Known<'_>,
) -> Result<SlowVectors> {
    let lookup = Lookup::new(embedder, known);
    let mut vectors = lookup.empty();
    let mut unsaved = lookup.unsaved();
    // All at once where nothing is known, which is faster than one by one.
    let (all, damaged) = match (known, model) {
        (Known::Nothing, Some(model)) => store.vectors(model, embedder.dimensions())?,
        _ => (HashMap::new(), 0),
    };
    let stored = |hash: &TextHash| match (known, model) {
        (Known::Nothing, _) => Ok(all.get(hash).map(Cow::Borrowed)),
        (_, Some(model)) => {
            let vector = store.vector(model, embedder.dimensions(), hash)?;
            Ok(vector.map(Cow::Owned))
        }
        (_, None) => Ok(None),
    };
    for (position, row) in rows.iter().enumerate() {
        if lookup.has(position, row) {
            lookup.push_onto(&mut vectors, position, row);
            continue;
        }
        // New, changed, or embedded since.
        let before = vectors.len();
        push_row(&mut vectors, embedder, row, stored)?;
        unsaved += vectors.len() - before;
    }
    Ok(SlowVectors {
        vectors,
        damaged,
        unsaved,
    })
}

/// Adds a row's vectors, as far as there are any. Those of texts beside its views come last, up to the
/// first that is missing, and only after those of all views: each is known by its number.
fn push_row<'a>(
    vectors: &mut Vectors,
    embedder: &dyn Embedder,
    row: &Row,
    vector_of: impl Fn(&TextHash) -> Result<Option<Cow<'a, Vec<f32>>>>,
) -> Result<()> {
    let mut has_all_views = true;
    for hash in row.stored.texts_of(embedder.views()) {
        match vector_of(hash)? {
            Some(vector) => vectors.push(embedder.id(), *hash, &vector)?,
            None => has_all_views = false,
        }
    }
    if has_all_views {
        for hash in row.stored.further_hashes() {
            let Some(vector) = vector_of(&hash)? else {
                break;
            };
            vectors.push(embedder.id(), hash, &vector)?;
        }
    }
    vectors.end_tool();
    Ok(())
}
