//! Builds a [`Searcher`] from the store: reads one consistent state and reuses the unchanged parts
//! of the previous snapshot.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::cost::CostModel;
use crate::dense::{Graph, TextHash, VectorFile, Vectors};
use crate::document::{self, View};
use crate::duplicates::{Duplicates, Fingerprint};
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::exact_names::Names;
use crate::lexical::LexicalSearcher;
use crate::ranker::{self, Ranker};
use crate::search::{DenseLeg, OwnRanker, Row, Searcher, ToolLanguages, Words, words};
use crate::settings::{Options, Settings};
use crate::store::{Store, StoredTool, Version, text_hash};
use crate::tool::ToolId;

/// The prefix of graphs' folders, and the extension of vector files.
pub(crate) const GRAPH_PREFIX: &str = "graph-";
pub(crate) const VECTORS: &str = "vectors";

/// The folder of a model's graph within a catalog's.
pub(crate) fn graph_dir(catalog: &Path, model: u64) -> std::path::PathBuf {
    catalog.join(format!("{GRAPH_PREFIX}{model}"))
}

/// The file of an instant embedder's vectors within a catalog's folder, the same for all versions
/// of the embedder.
fn vector_file_path(catalog: &Path, embedder: &dyn Embedder) -> std::path::PathBuf {
    let name = embedder.id().split('/').next().unwrap_or_default();
    catalog.join(format!("{name}.{VECTORS}"))
}

/// Rows embedded at once, in parallel; only these are in memory twice.
const CHUNK: usize = 4096;
/// The file of an instant embedder's vectors is rewritten when it lacks more than this many and
/// more than a twentieth of all. A missing vector costs some 10 µs at every opening; writing 50,000
/// takes 20 ms.
const MIN_UNSAVED: usize = 1024;

/// A state of the store in memory, without the lexical index.
pub(crate) struct Loaded {
    pub(crate) version: Version,
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<Arc<Row>>,
    languages: Arc<ToolLanguages>,
    names: Arc<Names>,
    duplicates: Arc<Duplicates>,
    legs: Vec<DenseLeg>,
    ranker: Option<Arc<Ranker>>,
    own_ranker: OwnRanker,
    missing_embedder: Option<String>,
    cost_model: Arc<CostModel>,
}

impl DenseLeg {
    fn has_unsaved_vectors(&self) -> bool {
        self.unsaved > MIN_UNSAVED.max(self.vectors.len() / 20)
    }
}

impl Loaded {
    /// Reads the store's present state. `previous` must be a snapshot of the same catalog.
    ///
    /// # Errors
    /// [`crate::Error::Store`].
    pub(crate) fn read(
        store: &Store,
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
        store: &Store,
        dir: &Path,
        options: &Options,
        previous: Option<&Searcher>,
    ) -> Result<Self> {
        let version = store.state()?;
        let settings = settings(store)?;
        let rows = rows(store, previous)?;
        let languages = Arc::new(ToolLanguages::of(&rows));
        let names = names(&rows, previous);
        let duplicates = duplicates(&rows, previous);
        let positions = previous.map_or_else(Vec::new, |previous| {
            previous_positions(&rows, &previous.rows)
        });
        let legs = options
            .embedders
            .iter()
            .enumerate()
            .map(|(number, embedder)| {
                let previous = previous
                    .and_then(|previous| previous.legs.get(number))
                    // The catalog may have got other embedders since.
                    .filter(|leg| leg.embedder.id() == embedder.id())
                    .map(|leg| (leg, positions.as_slice()));
                leg(store, dir, embedder, &rows, &settings, previous)
            })
            .collect::<Result<_>>()?;
        let (ranker, own_ranker) = ranker(dir, previous);
        let cost_model = previous
            .map(|previous| Arc::clone(&previous.cost_model))
            .unwrap_or_default();
        Ok(Loaded {
            version,
            settings,
            rows,
            languages,
            names,
            duplicates,
            legs,
            ranker,
            own_ranker,
            missing_embedder: options.missing_embedder.clone(),
            cost_model,
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

    /// The legs that are large enough for a graph and have no usable one.
    pub(crate) fn legs_without_graph(&self) -> impl Iterator<Item = &DenseLeg> {
        let large = |leg: &&DenseLeg| leg.vectors.len() >= self.settings.graph_min_vectors;
        self.legs
            .iter()
            .filter(large)
            .filter(|leg| leg.graph.is_none())
    }

    /// The texts without an intact vector, for each slow embedder.
    pub(crate) fn pending_texts(&self) -> Vec<(PendingTexts, Arc<dyn Embedder>)> {
        let slow = self.legs.iter().filter(|leg| !leg.embedder.is_instant());
        let texts_of = |leg: &DenseLeg| {
            let embedded: HashSet<TextHash> = leg.vectors.hashes().iter().copied().collect();
            pending_texts(&self.rows, leg.embedder.views(), &embedded)
        };
        slow.map(|leg| (texts_of(leg), Arc::clone(&leg.embedder)))
            .collect()
    }

    /// True when the file of an instant embedder lacks so many vectors that it should be rewritten.
    pub(crate) fn has_unsaved_vectors(&self) -> bool {
        self.legs.iter().any(DenseLeg::has_unsaved_vectors)
    }

    /// Rewrites the files of instant embedders that lack too many vectors. The caller must hold the
    /// writer's lock.
    pub(crate) fn save_vectors(&mut self, dir: &Path) {
        for leg in self.legs.iter_mut().filter(|leg| leg.has_unsaved_vectors()) {
            let path = vector_file_path(dir, leg.embedder.as_ref());
            // A failure is no error: the next opening computes the missing vectors again.
            if leg.vectors.save(&path, leg.embedder.id()).is_ok() {
                leg.unsaved = 0;
            }
        }
    }

    /// The snapshot with this lexical index.
    pub(crate) fn into_searcher(self, lexical: LexicalSearcher) -> Searcher {
        Searcher {
            version: self.version,
            settings: self.settings,
            rows: self.rows,
            languages: self.languages,
            words: Words::new(lexical),
            translator: OnceLock::new(),
            names: self.names,
            duplicates: self.duplicates,
            legs: self.legs,
            ranker: self.ranker,
            own_ranker: self.own_ranker,
            missing_embedder: self.missing_embedder,
            memory: None,
            cost_model: self.cost_model,
        }
    }
}

/// The settings stored with a catalog.
///
/// # Errors
/// [`crate::Error::Store`] if they cannot be parsed, or have a value out of its range, which would
/// fail every search as if its query had it.
pub(crate) fn settings(store: &Store) -> Result<Settings> {
    let Some(json) = store.meta("settings")? else {
        return Ok(Settings::default());
    };
    let settings: Settings = serde_json::from_str(&json)
        .map_err(|e| store.damaged(format!("its settings cannot be read ({e})")))?;
    settings
        .validate()
        .map_err(|e| store.damaged(format!("its settings are wrong ({e})")))?;
    Ok(settings)
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
    for row in rows.iter().filter(|row| {
        row.stored
            .embedded_texts(views)
            .any(|hash| !embedded.contains(hash))
    }) {
        let Some(tool) = row.tool() else { continue };
        let texts = document::views(&tool);
        let views = views.iter().map(|&view| texts[view as usize].clone());
        let texts = views
            .chain(row.stored.enrichment_texts().iter().cloned())
            .map(|text| (text_hash(&text), text));
        pending.extend(texts.filter(|(hash, _)| !embedded.contains(hash)));
    }
    let mut pending: Vec<(TextHash, String)> = pending.into_iter().collect();
    pending.sort_unstable_by(|a, b| (a.1.len(), &a.1).cmp(&(b.1.len(), &b.1)));
    pending
}

fn rows(store: &Store, previous: Option<&Searcher>) -> Result<Vec<Arc<Row>>> {
    let enrichments = store.enrichment_sums()?;
    let row = |mut stored: StoredTool| {
        if enrichments.contains_key(&stored.key) {
            stored.enrichment = store.enrichment(stored.key)?;
        }
        Ok(Arc::new(Row::new(stored)))
    };
    let Some(previous) = previous else {
        return store.tools()?.into_iter().map(row).collect();
    };
    let known: HashMap<u64, &Arc<Row>> = previous
        .rows
        .iter()
        .map(|row| (row.stored.key, row))
        .collect();
    // A row with another enrichment is another row, so that nothing of it is reused.
    let is_current = |row: &Row| {
        let stored = row.stored.enrichment.as_ref();
        stored.map(|stored| &stored.sum) == enrichments.get(&row.stored.key)
    };
    let keys = store.keys()?.into_iter();
    keys.map(|key| match known.get(&key) {
        Some(row) if is_current(row) => Ok(Arc::clone(row)),
        _ => row(store.tool(key)?),
    })
    .collect()
}

/// The names of these rows; reused from the previous snapshot if the ids are the same.
fn names(rows: &[Arc<Row>], previous: Option<&Searcher>) -> Arc<Names> {
    let ids = || rows.iter().map(|row| &row.stored.id);
    match previous {
        Some(previous) if ids().eq(previous.rows.iter().map(|row| &row.stored.id)) => {
            Arc::clone(&previous.names)
        }
        _ => Arc::new(Names::new(ids())),
    }
}

/// The near-duplicates among these rows; reused from the previous snapshot if all ids and
/// fingerprints are the same.
fn duplicates(rows: &[Arc<Row>], previous: Option<&Searcher>) -> Arc<Duplicates> {
    fn fingerprints(rows: &[Arc<Row>]) -> impl Iterator<Item = (&ToolId, Option<&Fingerprint>)> {
        rows.iter()
            .map(|row| (&row.stored.id, row.stored.fingerprint.as_ref()))
    }
    match previous {
        Some(previous) if fingerprints(rows).eq(fingerprints(&previous.rows)) => {
            Arc::clone(&previous.duplicates)
        }
        _ => Arc::new(Duplicates::new(fingerprints(rows))),
    }
}

/// Each row's position in a previous snapshot, if that has the same row. Both are in the order of
/// ids.
fn previous_positions(rows: &[Arc<Row>], previous: &[Arc<Row>]) -> Vec<Option<usize>> {
    let mut before = previous.iter().enumerate().peekable();
    rows.iter()
        .map(|row| {
            while before
                .next_if(|(_, other)| other.stored.id < row.stored.id)
                .is_some()
            {}
            before
                .next_if(|(_, other)| Arc::ptr_eq(other, row))
                .map(|(position, _)| position)
        })
        .collect()
}

/// A leg of the previous snapshot, and each row's position in it.
type PreviousLeg<'a> = (&'a DenseLeg, &'a [Option<usize>]);

fn leg(
    store: &Store,
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    settings: &Settings,
    previous: Option<PreviousLeg<'_>>,
) -> Result<DenseLeg> {
    if embedder.is_instant() {
        return instant_leg(dir, embedder, rows, previous);
    }
    let model = store.model(embedder.id(), embedder.dimensions())?;
    let (vectors, damaged) = match previous {
        Some(previous) => (
            changed_vectors(store, embedder.as_ref(), model, rows, previous)?,
            0,
        ),
        None => all_vectors(store, embedder.as_ref(), model, rows)?,
    };
    // Without the vectors of its enrichment a tool is found as any other.
    let wanted = |row: &Row| row.stored.texts_of(embedder.views()).count();
    let pending = rows
        .iter()
        .enumerate()
        .filter(|(position, row)| vectors.rows_of(*position).len() < wanted(row))
        .count();
    let graph = model
        .filter(|_| vectors.len() >= settings.graph_min_vectors)
        .and_then(|model| Graph::load(&graph_dir(dir, model), embedder.id(), &vectors).ok());
    Ok(DenseLeg {
        embedder: Arc::clone(embedder),
        vectors,
        graph,
        pending,
        damaged,
        unsaved: 0,
    })
}

/// The leg of an instant embedder, which is faster than reading vectors from the database. Vectors
/// come from the previous snapshot or from a file beside the index; missing ones are computed. No
/// tool is ever pending.
fn instant_leg(
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    previous: Option<PreviousLeg<'_>>,
) -> Result<DenseLeg> {
    let known = KnownVectors::new(dir, embedder.as_ref(), previous);
    let mut vectors = match previous {
        Some((leg, _)) => Vectors::with_capacity_of(&leg.vectors),
        None => Vectors::with_leading(embedder.dimensions(), embedder.leading_dimensions()),
    };
    let mut unsaved = previous.map_or(0, |(leg, _)| leg.unsaved);
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        let first = number * CHUNK;
        let missing: Vec<&Arc<Row>> = (first..)
            .zip(chunk)
            .filter(|(position, row)| !known.has(*position, row))
            .map(|(_, row)| row)
            .collect();
        let mut computed = compute(embedder.as_ref(), &missing)?.into_iter();
        for (position, row) in (first..).zip(chunk) {
            if known.has(position, row) {
                known.push_onto(&mut vectors, position, row);
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
        embedder: Arc::clone(embedder),
        vectors,
        graph: None,
        pending: 0,
        damaged: 0,
        unsaved,
    })
}

/// The vectors of an instant embedder that need not be computed.
struct KnownVectors<'a> {
    views: &'a [View],
    previous: Option<PreviousLeg<'a>>,
    saved: VectorFile,
}

impl<'a> KnownVectors<'a> {
    /// The vectors of the previous snapshot; without one, those of the file. A snapshot has all
    /// that its file has.
    fn new(dir: &Path, embedder: &'a dyn Embedder, previous: Option<PreviousLeg<'a>>) -> Self {
        let dimensions = embedder.dimensions();
        let saved = match previous {
            Some(_) => None,
            None => {
                VectorFile::load(&vector_file_path(dir, embedder), embedder.id(), dimensions).ok()
            }
        };
        KnownVectors {
            views: embedder.views(),
            previous,
            saved: saved.unwrap_or_else(|| VectorFile::empty(dimensions)),
        }
    }

    fn has(&self, position: usize, row: &Row) -> bool {
        match self.previous {
            Some((_, positions)) => positions[position].is_some(),
            None => {
                !self.saved.is_empty()
                    && row
                        .stored
                        .embedded_texts(self.views)
                        .all(|text| self.saved.contains(text))
            }
        }
    }

    /// Adds the vectors of a row that [`KnownVectors::has`] accepts.
    fn push_onto(&self, vectors: &mut Vectors, position: usize, row: &Row) {
        if let Some((leg, positions)) = self.previous
            && let Some(previous) = positions[position]
        {
            return vectors.push_tool(&leg.vectors, previous);
        }
        for text in row.stored.embedded_texts(self.views) {
            vectors.push_from(&self.saved, text);
        }
        vectors.end_tool();
    }
}

/// A row's texts with their vectors.
type Computed = Vec<(TextHash, Vec<f32>)>;

/// The vectors of these rows' texts, row by row.
fn compute(embedder: &dyn Embedder, rows: &[&Arc<Row>]) -> Result<Vec<Computed>> {
    let of_row = |row: &&Arc<Row>| {
        let Ok(tool) = row.stored.parse() else {
            return Ok(Vec::new());
        };
        let texts = document::views(&tool);
        let views = embedder
            .views()
            .iter()
            // A catalog of an earlier version may lack some.
            .filter(|&&view| row.stored.texts.len() > view as usize)
            .map(|&view| texts[view as usize].as_str());
        let enrichment = row.stored.enrichment_texts().iter().map(String::as_str);
        let wanted: Vec<&str> = views.chain(enrichment).collect();
        let hashes = row.stored.embedded_texts(embedder.views()).copied();
        Ok(hashes.zip(embedder.embed_tools(&wanted)?).collect())
    };
    rows.par_iter().map(of_row).collect()
}

/// The vectors of these rows, and the number of the model's damaged vectors.
fn all_vectors(
    store: &Store,
    embedder: &dyn Embedder,
    model: Option<u64>,
    rows: &[Arc<Row>],
) -> Result<(Vectors, usize)> {
    let (all, damaged) = match model {
        Some(model) => store.vectors(model, embedder.dimensions())?,
        None => (HashMap::new(), 0),
    };
    let mut vectors = Vectors::with_leading(embedder.dimensions(), embedder.leading_dimensions());
    for row in rows {
        push_row(&mut vectors, embedder, row, |hash| Ok(all.get(hash)))?;
    }
    Ok((vectors, damaged))
}

/// The vectors of these rows, reused from the previous snapshot where it has all of a row's.
fn changed_vectors(
    store: &Store,
    embedder: &dyn Embedder,
    model: Option<u64>,
    rows: &[Arc<Row>],
    (previous, positions): PreviousLeg<'_>,
) -> Result<Vectors> {
    let mut vectors = Vectors::with_capacity_of(&previous.vectors);
    for (row, position) in rows.iter().zip(positions) {
        let wanted = row.stored.embedded_texts(embedder.views()).count();
        if let Some(position) = *position
            && previous.vectors.rows_of(position).len() == wanted
        {
            vectors.push_tool(&previous.vectors, position);
            continue;
        }
        // New, changed, or embedded since the previous snapshot.
        push_row(&mut vectors, embedder, row, |hash| match model {
            Some(model) => store.vector(model, embedder.dimensions(), hash),
            None => Ok(None),
        })?;
    }
    Ok(vectors)
}

/// Adds a row's vectors, as far as there are any. Those of its enrichment come last, and only
/// after those of all views, so that a view is found by its number.
fn push_row<V: AsRef<[f32]>>(
    vectors: &mut Vectors,
    embedder: &dyn Embedder,
    row: &Row,
    vector_of: impl Fn(&TextHash) -> Result<Option<V>>,
) -> Result<()> {
    let mut has_all_views = true;
    for hash in row.stored.texts_of(embedder.views()) {
        match vector_of(hash)? {
            Some(vector) => vectors.push(embedder.id(), *hash, vector.as_ref())?,
            None => has_all_views = false,
        }
    }
    let enrichment = row.stored.enrichment_hashes();
    for hash in enrichment.iter().filter(|_| has_all_views) {
        if let Some(vector) = vector_of(hash)? {
            vectors.push(embedder.id(), *hash, vector.as_ref())?;
        }
    }
    vectors.end_tool();
    Ok(())
}
