//! Searches a catalog whose tools are elsewhere, in a database that finds some hundreds of them for
//! each query.
//!
//! 1. Of each tool that database keeps a [`Footprint`], the vectors of its views ([`embed_views`]), and counts
//!    of all tools, the [`CatalogStatistics`].
//! 2. [`Searcher::query_terms`] says which terms' frequencies a query needs, and [`Searcher::probe`]
//!    what tools are looked for by.
//! 3. [`Part`] holds the tools that were found, and makes a [`Searcher`] of them, which scores them as
//!    if it had the others too.

mod external;
mod instead;
mod limits;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use rayon::prelude::*;

use crate::dense::TextHash;
use crate::document::{self, Weights};
use crate::embed::Embedder;
use crate::enrichment::Enrichment;
use crate::error::Result;
use crate::exact_names::{Names, name_keys};
use crate::kind::Kind;
use crate::language::Language;
use crate::lexical::{Analysis, Entry, Frequencies, LexicalIndex, LexicalSearcher};
use crate::query::{Filter, Query};
use crate::ranker::features::Sample;
use crate::search::{DenseLeg, Row, Rows, Searcher, ToolLanguages, ToolRows, Words, words};
use crate::snapshot;
use crate::tool::{Tool, ToolId};
use crate::tools_db::{StoredEnrichment, StoredTool};

pub use self::external::{Asked, AskedWords, ExternalCandidates, Found, searcher_for};
pub use self::limits::{FARTHEST, MAX_NAMED, MAX_TEXTS, SAMPLE, limit_of_text};
pub use crate::exact_names::AskedName;
pub use crate::lexical::{CatalogStatistics, NearWord, STEPS_PER_WEIGHT};
pub use crate::search::{Probe, ProbeTerm, ProbeVector, SwitchedOff, TextTerms};
pub use crate::text::{Term, name_key};

/// What has to be kept of a tool, so that it is found without reading it.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// Its terms and words.
    pub analysis: Analysis,
    /// Its name without case and separators, and the same with its server before it.
    pub name_keys: [String; 2],
    /// Its language.
    pub language: Language,
    /// What it is.
    pub kind: Kind,
    /// As [`Filter`] reads its hints.
    pub read_only: bool,
    /// As [`Filter`] reads its hints.
    pub destructive: bool,
}

impl Footprint {
    /// Of this tool, in a catalog with these field weights.
    pub fn of(tool: &Tool, weights: &Weights) -> Self {
        // By filters, so that a filter means the same where the tools are elsewhere.
        let read_only = Filter {
            kinds: BTreeSet::from([tool.kind]),
            read_only: Some(true),
            ..Filter::default()
        };
        let destructive = Filter {
            kinds: BTreeSet::from([tool.kind]),
            destructive: Some(true),
            ..Filter::default()
        };
        Footprint {
            analysis: Analysis::of(tool, weights),
            name_keys: name_keys(&tool.id),
            language: Row::language_of(tool),
            kind: tool.kind,
            read_only: read_only.accepts(tool),
            destructive: destructive.accepts(tool),
        }
    }
}

/// The footprints of these tools, in their order.
pub fn footprints(tools: &[&Tool], weights: &Weights) -> Vec<Footprint> {
    let tools = tools.par_iter();
    tools.map(|tool| Footprint::of(tool, weights)).collect()
}

/// The vectors of each tool's views, in their order.
///
/// # Errors
/// [`crate::Error::Embedder`].
pub fn embed_views(embedder: &dyn Embedder, tools: &[&Tool]) -> Result<Vec<Vec<Vec<f32>>>> {
    embed_all(embedder, tools, |tool| {
        let texts = document::views(tool);
        let views = embedder.views().iter();
        views.map(|&view| texts[view as usize].clone()).collect()
    })
}

/// The vectors of the texts of each of these enrichments, in their order.
///
/// # Errors
/// [`crate::Error::Embedder`].
pub fn embed_enrichments(
    embedder: &dyn Embedder,
    enrichments: &[&Enrichment],
) -> Result<Vec<Vec<Vec<f32>>>> {
    embed_all(embedder, enrichments, |enrichment| {
        enrichment.texts().to_vec()
    })
}

/// The vectors of the texts of each item.
fn embed_all<T: Sync>(
    embedder: &dyn Embedder,
    items: &[&T],
    texts: impl Fn(&T) -> Vec<String> + Sync,
) -> Result<Vec<Vec<Vec<f32>>>> {
    if embedder.is_instant() {
        let items = items.par_iter();
        return items.map(|item| embed(embedder, &texts(item))).collect();
    }
    // A slow one has threads of its own, and a size of batch that suits it.
    let mut all_texts = Vec::with_capacity(items.len());
    for item in items {
        all_texts.push(texts(item));
    }
    let mut vectors = Vec::new();
    for batch in all_texts.concat().chunks(embedder.batch().max(1)) {
        vectors.extend(embed(embedder, batch)?);
    }
    let mut vectors = vectors.into_iter();
    let mut by_item = Vec::with_capacity(items.len());
    for of_item in &all_texts {
        by_item.push(vectors.by_ref().take(of_item.len()).collect());
    }
    Ok(by_item)
}

fn embed(embedder: &dyn Embedder, texts: &[String]) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    embedder.embed_tools(&texts)
}

impl Searcher {
    /// Answers from now on in place of what has the tools of the catalog, and names this reason in
    /// [`Results::degraded`](crate::Results::degraded).
    pub fn stand_in(&self, reason: String) {
        *self.stands_in.write() = Some(reason);
    }

    /// The embedders of its legs.
    pub fn embedders(&self) -> impl Iterator<Item = &Arc<dyn Embedder>> {
        self.legs.iter().map(|leg| &leg.embedder)
    }

    /// What the tools of a query are looked for by, in a catalog with the settings and embedders of
    /// this one and with these statistics.
    ///
    /// # Errors
    /// [`crate::Error::InvalidQuery`].
    pub fn probe(&self, query: &Query, statistics: &Arc<CatalogStatistics>) -> Result<Probe> {
        let settings = &self.settings.lexical;
        let lexical = LexicalSearcher::without_tools(settings, Arc::clone(statistics));
        let mut legs = Vec::with_capacity(self.legs.len());
        for embedder in self.embedders() {
            legs.push(DenseLeg {
                is_elsewhere: true,
                ..leg_without_vectors(embedder)
            });
        }
        let searcher = self.over(Vec::new(), legs, lexical, statistics);
        searcher.probe_of(query)
    }

    /// A searcher of these tools in place of its own.
    fn over(
        &self,
        rows: Vec<Arc<Row>>,
        legs: Vec<DenseLeg>,
        lexical: LexicalSearcher,
        statistics: &Arc<CatalogStatistics>,
    ) -> Searcher {
        let ids: Vec<&ToolId> = rows.iter().map(|row| &row.stored.id).collect();
        let names = Arc::new(Names::new(&ids));
        let rows = Rows::from(rows);
        Searcher {
            version: self.version.clone(),
            followed: self.followed.clone(),
            settings: self.settings.clone(),
            row_bytes: 0,
            tool_rows: Arc::new(ToolRows::of(&rows)),
            unsaved_tools: 0,
            is_verified: AtomicBool::new(true),
            memory_bytes: 0,
            needs_writer: false,
            languages: Arc::new(ToolLanguages::within(&rows, &statistics.languages)),
            words: Words::within(lexical, Arc::clone(statistics)),
            translator: OnceLock::new(),
            names,
            duplicates: Arc::default(),
            companions: Arc::default(),
            legs,
            cost_model: Arc::clone(&self.cost_model),
            ranker: self.ranker.clone(),
            own_ranker: self.own_ranker.clone(),
            missing_embedder: self.missing_embedder.clone(),
            missing_candidates: None,
            stands_in: RwLock::default(),
            memory: self.memory.clone(),
            sample: None,
            tags: OnceLock::new(),
            owner_words: self.owner_words.clone(),
            boosted: OnceLock::new(),
            rows,
        }
    }
}

/// A tool of a [`Part`].
#[derive(Clone, Debug)]
pub struct PartTool {
    /// The tool.
    pub tool: Tool,
    /// As it is stored.
    pub json: String,
    /// What was written about it.
    pub enrichment: Option<Enrichment>,
    /// True if it was not found but chosen at random, to stand for tools that are not here. What the
    /// ranker says of the answer as a whole depends on how all tools score.
    pub is_sample: bool,
}

impl PartTool {
    fn into_row(self, place: usize) -> Arc<Row> {
        let key = place as u64 + 1;
        let enrichment = self.enrichment;
        let enrichment = enrichment.map(|one| Box::new(StoredEnrichment::new(key, one)));
        let stored = StoredTool {
            enrichment,
            ..StoredTool::new(key, &self.tool, self.json)
        };
        Arc::new(Row::of_tool(stored, Arc::new(self.tool)))
    }
}

/// These tools, each once.
fn by_id(mut tools: Vec<PartTool>) -> Vec<PartTool> {
    tools.sort_unstable_by(|one, other| one.tool.id.cmp(&other.tool.id));
    tools.dedup_by(|one, other| one.tool.id == other.tool.id);
    tools
}

/// These tools to be read, in place of those of `base`. Nothing finds them, so their words are not read.
pub fn to_be_read(tools: Vec<PartTool>, base: &Searcher) -> Searcher {
    let statistics = Arc::new(CatalogStatistics::default());
    let lexical = LexicalSearcher::without_tools(&base.settings.lexical, Arc::clone(&statistics));
    let rows = by_id(tools).into_par_iter().enumerate();
    let rows = rows.map(|(place, part)| part.into_row(place)).collect();
    let rows = with_descriptions(rows, base);
    base.over(rows, Vec::new(), lexical, &statistics)
}

/// Tools that may be hits of a query.
pub struct Part {
    /// By id.
    rows: Vec<Arc<Row>>,
    /// In the same order.
    analyses: Vec<Analysis>,
    /// In the same order: [`PartTool::is_sample`].
    is_sample: Vec<bool>,
}

/// Vectors by the hashes of their texts.
pub type VectorsByText = HashMap<TextHash, Vec<f32>>;

impl Part {
    /// These tools of a catalog with these field weights. One that occurs twice counts once.
    pub fn new(tools: Vec<PartTool>, weights: &Weights) -> Self {
        let tools = by_id(tools);
        let is_sample = tools.iter().map(|tool| tool.is_sample).collect();
        let read = tools.into_par_iter().enumerate();
        let (rows, analyses) = read
            .map(|(place, part)| {
                let analysis = Analysis::of(&part.tool, weights);
                (part.into_row(place), analysis)
            })
            .unzip();
        Part {
            rows,
            analyses,
            is_sample,
        }
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without tools.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The terms of all tools, whose frequencies have to be known.
    pub fn terms(&self) -> HashSet<&str> {
        let mut terms = HashSet::new();
        for analysis in &self.analyses {
            terms.extend(analysis.terms.keys().map(String::as_str));
        }
        terms
    }

    /// The texts whose vectors a slow embedder has to have, each once.
    pub fn texts(&self, embedder: &dyn Embedder) -> HashSet<TextHash> {
        let mut texts = HashSet::new();
        for row in &self.rows {
            texts.extend(row.stored.embedded_texts(embedder.views()));
        }
        texts
    }

    /// The texts of each tool that a slow embedder embeds, those of its views first.
    pub fn texts_by_tool(&self, embedder: &dyn Embedder) -> Vec<(&ToolId, Vec<TextHash>)> {
        let mut texts = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let of_tool = row.stored.embedded_texts(embedder.views()).collect();
            texts.push((&row.stored.id, of_tool));
        }
        texts
    }

    /// How many of these tools have each term.
    pub fn frequencies(&self) -> HashMap<&str, u64> {
        let mut frequencies = HashMap::new();
        for analysis in &self.analyses {
            for term in analysis.terms.keys() {
                *frequencies.entry(term.as_str()).or_default() += 1;
            }
        }
        frequencies
    }

    /// A searcher of these tools, with all else of `base`. `vectors` has those of slow embedders, by
    /// their ids; instant ones embed now.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`], [`crate::Error::Derived`].
    pub fn searcher(
        self,
        base: &Searcher,
        statistics: CatalogStatistics,
        vectors: &HashMap<String, VectorsByText>,
        generation: u64,
    ) -> Result<Searcher> {
        let statistics = Arc::new(statistics);
        let entries = self.rows.iter().zip(&self.analyses);
        let frequencies = Frequencies::new(&base.settings.lexical.weights);
        let entries =
            entries.map(|(row, analysis)| Entry::new(row.stored.key, analysis, &frequencies));
        let lexical = LexicalIndex::of_entries(entries)?.searcher_within(
            &words::ordinals(self.rows.len(), self.rows.iter()),
            &base.settings.lexical,
            Some(Arc::clone(&statistics)),
        )?;
        let none = HashMap::new();
        let without_texts = 1.0 - statistics.enriched as f32 / statistics.tools.max(1) as f32;
        let mut legs = Vec::with_capacity(base.legs.len());
        let rows = Rows::from(self.rows.clone());
        for embedder in base.embedders() {
            let vectors = vectors.get(embedder.id()).unwrap_or(&none);
            let leg = snapshot::leg_of_part(embedder, &rows, vectors, without_texts)?;
            // Tools that are elsewhere may wait for their vectors too.
            let pending = statistics.pending.get(embedder.id()).copied();
            legs.push(DenseLeg {
                pending: leg.pending.max(pending.unwrap_or_default()),
                ..leg
            });
        }
        let sample = sample(self.is_sample, statistics.tools);
        let rows = with_descriptions(self.rows, base);
        let mut searcher = base.over(rows, legs, lexical, &statistics);
        searcher.sample = sample;
        if let Some(followed) = &mut searcher.followed {
            followed.generation = generation;
        }
        Ok(searcher)
    }
}

/// The rows with what the owner says of their tools. What was kept of them to find them is without it,
/// so their texts in the legs are the tools' own.
fn with_descriptions(rows: Vec<Arc<Row>>, base: &Searcher) -> Vec<Arc<Row>> {
    let Some(words) = &base.owner_words else {
        return rows;
    };
    let mut described = Vec::with_capacity(rows.len());
    for row in rows {
        described.push(match row.tool() {
            Some(tool) if !words.texts_of(&tool.id).is_empty() => {
                let tool = words.with_texts(Tool::clone(&tool));
                Arc::new(Row::of_tool(row.stored.clone(), Arc::new(tool)))
            }
            _ => row,
        });
    }
    described
}

/// `None` without a sample: then all tools of the catalog are here.
fn sample(is_chosen: Vec<bool>, tools: u64) -> Option<Sample> {
    let chosen = is_chosen.iter().filter(|is_chosen| **is_chosen).count();
    if chosen == 0 {
        return None;
    }
    let found = is_chosen.len() - chosen;
    // Each stands for itself at least.
    let others = (tools as f64 - found as f64).max(chosen as f64);
    Some(Sample {
        is_chosen,
        weight: others / chosen as f64,
    })
}

fn leg_without_vectors(embedder: &Arc<dyn Embedder>) -> DenseLeg {
    DenseLeg::new(embedder, snapshot::no_vectors(embedder.as_ref()))
}

#[cfg(test)]
mod tests;
