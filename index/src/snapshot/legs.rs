//! The dense legs of a snapshot: their vectors come from the previous snapshot, from a file, from the
//! database, or are computed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::{Change, graph_dir, vector_file_path};
use crate::dense::{Graph, RowsByText, TextHash, VectorFile, Vectors};
use crate::document;
use crate::embed::{Embedder, Languages};
use crate::error::Result;
use crate::search::{DenseLeg, LegVectors, Row, Rows, SavedVectors, Searcher, ToolLanguages};
use crate::settings::Settings;
use crate::tools_db::ToolsDb;

/// The leg of this number and embedder in a previous snapshot.
pub(super) fn previous_leg<'a>(
    previous: Option<&'a Searcher>,
    number: usize,
    embedder: &dyn Embedder,
) -> Option<&'a DenseLeg> {
    let leg = previous?.legs.get(number)?;
    // The catalog may have got other embedders since.
    (leg.embedder.id() == embedder.id()).then_some(leg)
}

/// A leg of the previous snapshot, and each row's position in it. Unlike after a commit of a few tools, rows that
/// are the same may have got vectors since, so each is looked at.
pub(super) type PreviousLeg<'a> = (&'a DenseLeg, &'a [Option<usize>]);

/// The vectors that need neither be computed nor read from the database.
pub(super) enum Known<'a> {
    Previous(PreviousLeg<'a>),
    /// Without a previous snapshot.
    Saved(VectorFile),
    Nothing,
}

/// The file of each embedder, where there is an intact one.
pub(super) type VectorFiles = Vec<Option<VectorFile>>;

/// Reads the files of these embedders' vectors at the same time, apart from those that may stay in
/// their files.
pub(super) fn vector_files(dir: &Path, embedders: &[Arc<dyn Embedder>]) -> VectorFiles {
    let load = |embedder: &Arc<dyn Embedder>| match is_for_other_languages(embedder.as_ref()) {
        true => None,
        false => vector_file(&vector_file_path(dir, embedder.as_ref()), embedder.as_ref()),
    };
    embedders.par_iter().map(load).collect()
}

/// The vectors of an intact file of this embedder.
pub(super) fn vector_file(path: &Path, embedder: &dyn Embedder) -> Option<VectorFile> {
    let (dimensions, leading) = (embedder.dimensions(), embedder.leading_dimensions());
    VectorFile::load(path, embedder.id(), dimensions, leading).ok()
}

/// Vectors of this embedder, without tools yet.
pub(crate) fn no_vectors(embedder: &dyn Embedder) -> Vectors {
    Vectors::with_leading(embedder.dimensions(), embedder.leading_dimensions())
}

/// The texts that an embedder embeds of each row.
fn texts_of<'a>(
    rows: &'a Rows,
    embedder: &'a dyn Embedder,
) -> impl Iterator<Item = impl Iterator<Item = TextHash>> {
    rows.iter()
        .map(|row| row.stored.embedded_texts(embedder.views()))
}

pub(super) fn is_for_other_languages(embedder: &dyn Embedder) -> bool {
    embedder.is_instant() && embedder.languages() == Languages::OtherThanEnglish
}

/// The vectors of such an embedder if they can stay in their file until a request needs them:
/// requests in English over English tools do without.
pub(super) fn vectors_left_in_file(
    path: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &Rows,
    languages: &ToolLanguages,
) -> Option<SavedVectors> {
    if !languages.are_english() {
        return None;
    }
    let (dimensions, leading) = (embedder.dimensions(), embedder.leading_dimensions());
    let texts = texts_of(rows, embedder.as_ref()).flatten();
    let count = VectorFile::count_of_same(path, embedder.id(), dimensions, leading, texts);
    let len = count.ok()?;
    Some(saved_vectors(path, embedder, rows, len))
}

/// So many vectors of these rows, most of which are in a file.
fn saved_vectors(
    path: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &Rows,
    len: usize,
) -> SavedVectors {
    let (path, embedder, rows) = (path.to_owned(), Arc::clone(embedder), rows.clone());
    SavedVectors {
        len,
        memory_bytes: Vectors::bytes_of(rows.len(), len, embedder.dimensions()),
        read: Box::new(move || vectors_of_file(&path, embedder.as_ref(), &rows)),
    }
}

/// The vectors of these rows. Those that the file lacks are computed: of tools that were changed since,
/// or all of them where it has been damaged.
fn vectors_of_file(path: &Path, embedder: &dyn Embedder, rows: &Rows) -> Vectors {
    let mut known = Known::Nothing;
    match vector_file(path, embedder) {
        Some(file) => match file.into_vectors_of(texts_of(rows, embedder)) {
            Ok(vectors) => return with_written_texts(vectors, embedder, rows.iter()),
            Err(file) => known = Known::Saved(*file),
        },
        // A damaged file looks good until it is read; without one the next opening writes it.
        None => drop(std::fs::remove_file(path)),
    }
    let lookup = Lookup::new(embedder, &known);
    let mut vectors = no_vectors(embedder);
    for (position, row) in rows.iter().enumerate() {
        if lookup.has(position, row) {
            lookup.push_onto(&mut vectors, position, row);
            continue;
        }
        // No instant embedder is known to fail. A tool without vectors is found by words.
        for (text, vector) in computed(embedder, row).unwrap_or_default() {
            let _ = vectors.push(embedder.id(), text, &vector);
        }
        vectors.end_tool();
    }
    with_written_texts(vectors, embedder, rows.iter())
}

/// Vectors of these rows that know which of them are of texts that a language model wrote.
fn with_written_texts<'a>(
    mut vectors: Vectors,
    embedder: &dyn Embedder,
    rows: impl Iterator<Item = &'a Arc<Row>>,
) -> Vectors {
    let counts = rows.map(|row| row.stored.written_texts());
    vectors.set_written_texts(embedder.views().len(), counts);
    vectors
}

pub(super) fn leg(
    store: &ToolsDb,
    dir: &Path,
    embedder: &Arc<dyn Embedder>,
    rows: &Rows,
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
    rows: &Rows,
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
pub(super) fn is_large(settings: &Settings, embedder: &dyn Embedder, vectors: usize) -> bool {
    let least = match settings.graph_min_vectors {
        Some(least) => least,
        None => embedder.profile().graph_min_vectors(),
    };
    vectors >= least
}

fn leg_without_graph(embedder: &Arc<dyn Embedder>, rows: &Rows, vectors: Vectors) -> DenseLeg {
    let (mut pending, mut lacking) = (0, 0);
    for (position, row) in rows.iter().enumerate() {
        let missing = Missing::of(&vectors, position, row, embedder.as_ref());
        pending += usize::from(missing.a_view);
        lacking += usize::from(missing.any);
    }
    DenseLeg {
        pending,
        lacking,
        ..DenseLeg::new(
            embedder,
            with_written_texts(vectors, embedder.as_ref(), rows.iter()),
        )
    }
}

/// Which vectors a tool lacks.
struct Missing {
    /// That of a view. Without the vectors of its enrichment and its aliases a tool is found as any
    /// other.
    a_view: bool,
    /// That of any text.
    any: bool,
}

impl Missing {
    fn of(vectors: &Vectors, position: usize, row: &Row, embedder: &dyn Embedder) -> Self {
        let found = vectors.rows_of(position).len();
        Missing {
            a_view: found < row.stored.texts_of(embedder.views()).count(),
            any: found < row.stored.embedded_texts(embedder.views()).count(),
        }
    }
}

/// The leg, which has no graph, after a commit that changed these rows.
pub(super) fn leg_after(
    store: &ToolsDb,
    dir: &Path,
    former: &DenseLeg,
    rows: &Rows,
    change: &Change,
) -> Result<DenseLeg> {
    let embedder = &former.embedder;
    let mut unsaved = former.unsaved;
    if let LegVectors::Saved { saved, read } = &former.vectors
        && read.get().is_none()
    {
        let texts = |row: &Arc<Row>| row.stored.embedded_texts(embedder.views()).count();
        let added: usize = change.added.iter().map(texts).sum();
        let removed: usize = change.removed.iter().map(|(_, row)| texts(row)).sum();
        let path = vector_file_path(dir, embedder.as_ref());
        let len = (saved.len + added).saturating_sub(removed);
        return Ok(DenseLeg {
            unsaved: unsaved + added,
            ..DenseLeg::new(embedder, saved_vectors(&path, embedder, rows, len))
        });
    }
    let added = vectors_of_new(store, embedder.as_ref(), &change.added)?;
    unsaved += added.len();
    let vectors = former.vectors.get();
    let (mut pending, mut lacking) = (former.pending, former.lacking);
    if !embedder.is_instant() {
        for (position, row) in &change.removed {
            let missing = Missing::of(vectors, *position, row, embedder.as_ref());
            pending -= usize::from(missing.a_view);
            lacking -= usize::from(missing.any);
        }
        for (position, row) in change.added.iter().enumerate() {
            let missing = Missing::of(&added, position, row, embedder.as_ref());
            pending += usize::from(missing.a_view);
            lacking += usize::from(missing.any);
        }
    }
    Ok(DenseLeg {
        pending,
        lacking,
        damaged: former.damaged,
        unsaved,
        ..DenseLeg::new(embedder, vectors.moved(&change.moves, &added))
    })
}

/// The vectors of rows that are new: computed by an instant embedder, of a slow one those of the database.
fn vectors_of_new(store: &ToolsDb, embedder: &dyn Embedder, rows: &[Arc<Row>]) -> Result<Vectors> {
    let mut vectors = no_vectors(embedder);
    if embedder.is_instant() {
        for texts in compute(embedder, &rows.iter().collect::<Vec<_>>())? {
            for (text, vector) in texts {
                vectors.push(embedder.id(), text, &vector)?;
            }
            vectors.end_tool();
        }
    } else {
        let dimensions = embedder.dimensions();
        let model = store.model(embedder.id(), dimensions)?;
        let stored = |hash: &TextHash| match model {
            Some(model) => Ok(store.vector(model, dimensions, hash)?.map(Cow::Owned)),
            None => Ok(None),
        };
        for row in rows {
            push_row(&mut vectors, embedder, row, stored)?;
        }
    }
    Ok(with_written_texts(vectors, embedder, rows.iter()))
}

/// The leg of an instant embedder, which is faster than reading vectors from the database. Vectors
/// come from the previous snapshot or from a file beside the index; missing ones are computed. No
/// tool is ever pending.
fn instant_leg(embedder: &Arc<dyn Embedder>, rows: &Rows, known: &Known<'_>) -> Result<DenseLeg> {
    let lookup = Lookup::new(embedder.as_ref(), known);
    let mut vectors = no_vectors(embedder.as_ref());
    let mut unsaved = lookup.unsaved();
    let mut first = 0;
    // Only the rows of one part are in memory twice.
    for chunk in rows.parts() {
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
        first += chunk.len();
    }
    Ok(DenseLeg {
        unsaved,
        ..DenseLeg::new(
            embedder,
            with_written_texts(vectors, embedder.as_ref(), rows.iter()),
        )
    })
}

/// The leg of rows that are some of a catalog's: an instant embedder embeds them, and a slow one has
/// these vectors. Of all tools of the catalog, the share `without_texts` has no enrichment.
pub(crate) fn leg_of_part(
    embedder: &Arc<dyn Embedder>,
    rows: &Rows,
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
    rows: &Rows,
    stored: &HashMap<TextHash, Vec<f32>>,
) -> Result<DenseLeg> {
    let mut vectors = no_vectors(embedder.as_ref());
    for row in rows.iter() {
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
    rows: &Rows,
    known: &Known<'_>,
) -> Result<SlowVectors> {
    let lookup = Lookup::new(embedder, known);
    let mut vectors = no_vectors(embedder);
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
