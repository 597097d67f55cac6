//! From the store to a [`Searcher`]: reads one consistent state and takes over what a previous snapshot already holds.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::dense::{Graph, TextHash, Vectors};
use crate::document::{self, View, Weights};
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::lexical::{Entry, LexicalIndex, LexicalSearcher};
use crate::names::Names;
use crate::search::{DenseLeg, Row, Searcher};
use crate::settings::Settings;
use crate::store::{Store, text_hash};

/// The folder of a model's graph within a catalog's.
pub(crate) fn graph_dir(catalog: &Path, model: u64) -> std::path::PathBuf {
    catalog.join(format!("graph-{model}"))
}

/// A state of the store in memory, all but the lexical index.
pub(crate) struct Loaded {
    pub(crate) generation: u64,
    pub(crate) settings: Settings,
    pub(crate) rows: Vec<Arc<Row>>,
    legs: Vec<DenseLeg>,
}

impl Loaded {
    /// Reads the store's present state.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) fn read(
        store: &Store,
        dir: &Path,
        embedders: &[Arc<dyn Embedder>],
        previous: Option<&Searcher>,
    ) -> Result<Self> {
        store.begin_read()?;
        let loaded = Loaded::read_in_transaction(store, dir, embedders, previous);
        store.end();
        loaded
    }

    fn read_in_transaction(
        store: &Store,
        dir: &Path,
        embedders: &[Arc<dyn Embedder>],
        previous: Option<&Searcher>,
    ) -> Result<Self> {
        let generation = store.generation()?;
        let settings = settings(store)?;
        let rows = rows(store, previous)?;
        let legs = embedders
            .iter()
            .enumerate()
            .map(|(number, embedder)| leg(store, dir, embedder, &rows, &settings, previous, number))
            .collect::<Result<_>>()?;
        Ok(Loaded { generation, settings, rows, legs })
    }

    /// Tool position by store key, which is how the lexical index names tools.
    pub(crate) fn ordinals(&self) -> HashMap<u64, u32> {
        self.rows.iter().enumerate().map(|(place, row)| (row.stored.key, place as u32)).collect()
    }

    /// The legs that are large enough for a graph and have none that fits.
    pub(crate) fn legs_without_graph(&self) -> impl Iterator<Item = &DenseLeg> {
        let large = |leg: &&DenseLeg| leg.vectors.len() >= self.settings.graph_min_vectors;
        self.legs.iter().filter(large).filter(|leg| leg.graph.is_none())
    }

    /// The snapshot, with this lexical index.
    pub(crate) fn into_searcher(self, lexical: LexicalSearcher) -> Searcher {
        let names = Names::new(self.rows.iter().map(|row| &row.stored.id));
        Searcher {
            generation: self.generation,
            settings: self.settings,
            rows: self.rows,
            lexical: Arc::new(lexical),
            names,
            legs: self.legs,
        }
    }
}

/// The settings kept with a catalog.
///
/// # Errors
/// [`Error::Store`] when they cannot be read.
pub(crate) fn settings(store: &Store) -> Result<Settings> {
    let Some(json) = store.meta("settings")? else { return Ok(Settings::default()) };
    serde_json::from_str(&json).map_err(|e| Error::InvalidQuery { reason: format!("the catalog's settings: {e}") })
}

/// Fills an empty lexical index with all rows.
///
/// # Errors
/// [`Error::Derived`].
pub(crate) fn fill(index: &LexicalIndex, rows: &[Arc<Row>], settings: &Settings) -> Result<()> {
    let mut writer = index.writer()?;
    // A chunk at a time: analysis runs in parallel, writing in order, and only a chunk is in memory twice.
    for chunk in rows.chunks(4096) {
        for entry in entries(chunk, &settings.lexical.weights) {
            writer.add(&entry)?;
        }
    }
    writer.commit(&settings.lexical.stamp())?;
    writer.finish();
    Ok(())
}

/// Analyzes tools in parallel.
pub(crate) fn entries(rows: &[Arc<Row>], weights: &Weights) -> Vec<Entry> {
    let analyzed =
        rows.par_iter().filter_map(|row| Some(Entry::new(row.stored.key, &row.stored.parse().ok()?, weights)));
    analyzed.collect()
}

/// The texts of these rows' views that are not embedded, with their hashes, shortest first: batches of equal length
/// waste no padding.
pub(crate) fn pending_texts(
    rows: &[Arc<Row>],
    views: &[View],
    is_embedded: impl Fn(&TextHash) -> bool,
) -> Vec<(TextHash, String)> {
    let mut pending: HashMap<TextHash, String> = HashMap::new();
    for row in rows.iter().filter(|row| !row.stored.texts_of(views).all(&is_embedded)) {
        let Some(tool) = row.tool() else { continue };
        let texts = document::views(&tool);
        let wanted = views.iter().map(|&view| &texts[view as usize]).map(|text| (text_hash(text), text));
        pending.extend(wanted.filter(|(hash, _)| !is_embedded(hash)).map(|(hash, text)| (hash, text.clone())));
    }
    let mut pending: Vec<(TextHash, String)> = pending.into_iter().collect();
    pending.sort_unstable_by(|a, b| (a.1.len(), &a.1).cmp(&(b.1.len(), &b.1)));
    pending
}

fn rows(store: &Store, previous: Option<&Searcher>) -> Result<Vec<Arc<Row>>> {
    let Some(previous) = previous else {
        return Ok(store.tools()?.into_iter().map(|stored| Arc::new(Row::new(stored))).collect());
    };
    let known: HashMap<u64, &Arc<Row>> = previous.rows.iter().map(|row| (row.stored.key, row)).collect();
    let keys = store.keys()?.into_iter();
    keys.map(|key| match known.get(&key) {
        Some(row) => Ok(Arc::clone(row)),
        None => Ok(Arc::new(Row::new(store.tool(key)?))),
    })
    .collect()
}

fn leg(
    store: &Store,
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &[Arc<Row>],
    settings: &Settings,
    previous: Option<&Searcher>,
    number: usize,
) -> Result<DenseLeg> {
    let model = store.model(embedder.id(), embedder.dimensions())?;
    let previous = previous.and_then(|previous| Some((previous, previous.legs.get(number)?)));
    let vectors = vectors(store, embedder.as_ref(), model, rows, previous)?;
    let wanted = |row: &Row| row.stored.texts_of(embedder.views()).count();
    let pending = rows.iter().enumerate().filter(|(place, row)| vectors.rows_of(*place).len() < wanted(row)).count();
    let graph = model
        .filter(|_| vectors.len() >= settings.graph_min_vectors)
        .and_then(|model| Graph::load(&graph_dir(dir, model), &vectors).ok());
    Ok(DenseLeg { embedder: Arc::clone(embedder), vectors, graph, pending })
}

fn vectors(
    store: &Store,
    embedder: &dyn Embedder,
    model: Option<u64>,
    rows: &[Arc<Row>],
    previous: Option<(&Searcher, &DenseLeg)>,
) -> Result<Vectors> {
    let mut vectors = Vectors::new(embedder.dimensions());
    let known: HashMap<TextHash, usize> = match previous {
        Some((_, leg)) => leg.vectors.hashes().iter().enumerate().map(|(row, hash)| (*hash, row)).collect(),
        None => HashMap::new(),
    };
    let mut found = match (model, previous) {
        (None, _) => HashMap::new(),
        (Some(model), None) => store.vectors(model)?,
        (Some(model), Some(_)) => {
            stored(store, model, wanted(rows, embedder).filter(|hash| !known.contains_key(*hash)))?
        }
    };
    if embedder.is_instant() {
        let is_embedded = |hash: &TextHash| known.contains_key(hash) || found.contains_key(hash);
        let missing = pending_texts(rows, embedder.views(), is_embedded);
        let texts: Vec<&str> = missing.iter().map(|(_, text)| text.as_str()).collect();
        let embedded = embedder.embed_tools(&texts)?;
        found.extend(missing.iter().map(|(hash, _)| *hash).zip(embedded));
    }
    for row in rows {
        for hash in row.stored.texts_of(embedder.views()) {
            if let (Some(&known), Some((_, leg))) = (known.get(hash), previous) {
                vectors.push_row(&leg.vectors, known);
            } else if let Some(vector) = found.get(hash) {
                vectors.push(embedder.id(), *hash, vector)?;
            }
        }
        vectors.end_tool();
    }
    Ok(vectors)
}

/// The texts these rows are embedded by.
fn wanted<'a>(rows: &'a [Arc<Row>], embedder: &'a dyn Embedder) -> impl Iterator<Item = &'a TextHash> {
    rows.iter().flat_map(|row| row.stored.texts_of(embedder.views()))
}

/// The vectors of these texts that the store holds.
fn stored<'a>(
    store: &Store,
    model: u64,
    texts: impl Iterator<Item = &'a TextHash>,
) -> Result<HashMap<TextHash, Vec<f32>>> {
    let mut found = HashMap::new();
    for text in texts {
        if let Some(vector) = store.vector(model, text)? {
            found.insert(*text, vector);
        }
    }
    Ok(found)
}
