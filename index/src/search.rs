//! An immutable snapshot of a catalog that answers queries: the search pipeline, in order.
//!
//! 1. [`request`]: each text of the query is split into clauses, and corrected or translated; the
//!    budget chooses a variant.
//! 2. [`scoring`]: lexical and dense legs score every tool; their scores are fused.
//! 3. [`rerank`]: the ranker reorders the best candidates and estimates confidence.
//! 4. [`scoring`] again: the usage memory adds its scores.
//! 5. [`curation`]: the owner's boosts and pins.
//! 6. [`hits`]: tools asked for by name go first, near-duplicates are folded, the best k remain.
//! 7. [`companions`]: tools that find what the first hits need go behind them.

mod companions;
mod curation;
mod deadline;
mod explain;
mod hits;
mod languages;
mod leg_vectors;
mod legs;
mod needs;
mod no_match;
mod probe;
mod request;
mod rerank;
mod row;
mod rows;
mod scores;
mod scoring;
mod spelling;
mod tool_rows;
mod translation;
mod under_way;
mod unmatched;
pub(crate) mod words;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use crate::companions::Companions;
use crate::cost::{CostModel, Work};
use crate::duplicates::Duplicates;
use crate::embed::{StaticTable, encoder};
use crate::enrichment::Enrichment;
use crate::error::Result;
use crate::exact_names::Names;
use crate::hit::{Degraded, DegradedCause, Match, NoMatch, NoMatchReason, Results, Timings};
use crate::kind::Kind;
use crate::language::Language;
use crate::lexical::LexicalSearcher;
use crate::memory::Memory;
use crate::owner_words::{OwnerWords, WordIndex};
use crate::query::{Effort, Filter, Fusion, Mode, Query, SearchParameters};
use crate::ranker::Ranker;
use crate::ranker::features::Sample;
use crate::settings::Settings;
use crate::tool::{Tool, ToolId};
use crate::tools_db::{Followed, Version};
use crate::variant::{InstantLeg, Parts, Variant};

pub(crate) use curation::Boosted;
use deadline::Deadline;
pub(crate) use languages::ToolLanguages;
pub(crate) use leg_vectors::{LegVectors, SavedVectors};
pub(crate) use legs::DenseLeg;
pub use probe::{Probe, ProbeTerm, ProbeVector, SwitchedOff, TextTerms};
use request::{QueryVectors, RequestTexts};
pub use rerank::RankerSample;
pub(crate) use row::Row;
pub(crate) use rows::Rows;
use scores::RequestScores;
pub(crate) use tool_rows::ToolRows;
pub(crate) use translation::Translator;
use under_way::Search;
pub(crate) use words::Words;

/// One state of a catalog; answers queries from any number of threads and never changes.
///
/// - Guarantee: a query gets the same hits each time, unless the usage memory learns in between or
///   a time budget is set. No search waits for the writer.
/// - Cost: a search scores every tool, .4 ms at 5,000 without the embedding. Whoever keeps an old
///   snapshot keeps its vectors in memory.
/// - Failure: only an invalid query is an error. A retriever that fails is left out, and named in
///   [`Results::degraded`].
pub struct Searcher {
    pub(crate) version: Version,
    /// Set where the catalog follows another one.
    pub(crate) followed: Option<Followed>,
    pub(crate) settings: Settings,
    /// Every tool, by id, so that a row's position also breaks ties.
    pub(crate) rows: Rows,
    /// Bytes that they take, about.
    pub(crate) row_bytes: usize,
    /// Which of them are tools.
    pub(crate) tool_rows: Arc<ToolRows>,
    /// How many of them the file of all tools lacks.
    pub(crate) unsaved_tools: usize,
    /// True once all of them were read from the database, and not only from that file.
    pub(crate) is_verified: AtomicBool,
    /// See [`crate::Catalog::memory_bytes`].
    pub(crate) memory_bytes: usize,
    /// See [`crate::Catalog::needs_writer`].
    pub(crate) needs_writer: bool,
    pub(crate) languages: Arc<ToolLanguages>,
    pub(crate) words: Words,
    /// Made for the first request in another language than English.
    pub(crate) translator: OnceLock<Option<Translator>>,
    pub(crate) names: Arc<Names>,
    /// Looked for on first use.
    pub(crate) duplicates: Arc<OnceLock<Duplicates>>,
    /// Looked for on first use, server by server.
    pub(crate) companions: Arc<Companions>,
    /// See [`Searcher::tags`].
    pub(crate) tags: OnceLock<Vec<(String, usize)>>,
    pub(crate) legs: Vec<DenseLeg>,
    /// Measured speed of searches, shared with the catalog's earlier snapshots.
    pub(crate) cost_model: Arc<CostModel>,
    /// The catalog's own ranker, or the bundled one.
    pub(crate) ranker: Option<Arc<Ranker>>,
    pub(crate) own_ranker: OwnRanker,
    /// See [`crate::Options::missing_embedder`].
    pub(crate) missing_embedder: Option<String>,
    /// Why tools that may be hits are missing, where only some tools of the catalog are here.
    pub(crate) missing_candidates: Option<String>,
    /// Why it answers in place of what has the tools of the catalog; see [`Searcher::stand_in`].
    pub(crate) stands_in: RwLock<Option<String>>,
    /// Remembered requests; shared by all snapshots of a catalog.
    pub(crate) memory: Option<Arc<Memory>>,
    /// Where only some tools of the catalog are here, those that stand for the others.
    pub(crate) sample: Option<Sample>,
    /// What the catalog's owner said beside the tools; `None` for nothing.
    pub(crate) owner_words: Option<Arc<WordIndex>>,
    /// The factors of their boosts, computed on first use; `None` without any.
    pub(crate) boosted: OnceLock<Option<Boosted>>,
}

/// Whether a catalog has a ranker of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnRanker {
    /// The catalog has none and uses the bundled one.
    None,
    /// The catalog's own ranker is in use.
    Used,
    /// The catalog's own ranker cannot be used, for this reason.
    Unusable(String),
}

/// Tools that [`Searcher::prepare_ranking`] reads: more than most catalogs have, in less than a
/// second.
const MAX_PREPARED: usize = 1 << 15;

/// The texts of a query, ready to be scored.
struct Prepared {
    requests: Vec<RequestTexts>,
    variant: Variant,
    parts: Parts,
    vectors: QueryVectors,
}

impl Searcher {
    /// Answers a query.
    ///
    /// # Errors
    /// [`crate::Error::InvalidQuery`] for a query out of its ranges.
    pub fn search(&self, query: &Query) -> Result<Results> {
        let clock = Instant::now();
        let mut timings = Timings::default();
        query.validate()?;
        let parameters = self.parameters(query);
        let mut degraded = self.degraded(parameters.mode);
        let (search, requests, mut scores) =
            self.score_requests(query, parameters, &mut degraded, &mut timings);
        let deadline = Deadline::of(query.effort, clock);
        let ranking = Instant::now();
        if !search.rerank(&requests, &mut scores, deadline) {
            // An earlier cause stays: it has the larger effect.
            degraded.get_or_insert_with(|| deadline.missed());
        }
        timings.rank_ms += ms_since(ranking);
        let choosing = Instant::now();
        let (hits, no_match) = search.rank(&requests, &scores);
        let near = search.near(&hits, &scores);
        let better_hidden = search.better_hidden(&scores);
        let matched = match_of(&scores, no_match.as_ref(), better_hidden);
        let unmatched = match matched {
            // A word that nothing matches is then most often a value: a name, a place.
            Match::Good => Vec::new(),
            _ => search.unmatched(&requests, &hits),
        };
        timings.fuse_ms += ms_since(choosing);
        timings.total_ms = ms_since(clock);
        let work = self.work(search.parts, &requests);
        self.learn_speed(work, degraded.as_ref(), &timings);
        Ok(Results {
            hits,
            near,
            mode: search.mode,
            variant: search.variant,
            embedders: scores::contributing_embedders(&scores),
            degraded,
            matched,
            confidence: confidence_of(&scores, no_match.as_ref()),
            no_match,
            unmatched,
            better_hidden,
            signals: scores::strongest_signals(&scores),
            timings,
            generation: self.generation(),
        })
    }

    /// Does what the first search would do beside its own work: reads what the program carries, and
    /// prepares what all searches share. Asks no embedder but the built-in ones.
    pub fn warm_up(&self) {
        let parts = Parts {
            slow_embedders: self.legs.iter().all(is_built_in),
            ..Parts::ALL
        };
        // What goes wrong here goes wrong for the first request too, which reports it.
        let _ = self.search(&Query::new("list the files of a folder").parts(parts));
    }

    /// Reads the tools for the ranker and for companions, which a search otherwise does with those that
    /// it is the first to need. Takes some 40 microseconds and two kilobytes a tool; a larger catalog's
    /// other tools, and its companions, are left to the searches.
    pub fn prepare_ranking(&self) {
        if self.may_rank() {
            for row in self.rows.iter().take(MAX_PREPARED) {
                row.words();
            }
        }
        if self.parameters(&Query::new("")).companions && self.rows.len() <= MAX_PREPARED {
            self.companions.prepare(&self.rows);
        }
    }

    /// True if some search of this snapshot may be ranked: no ranker that ships knows answers by words
    /// alone.
    pub(crate) fn may_rank(&self) -> bool {
        self.ranker.is_some() && !self.legs.is_empty()
    }

    /// The ranker's input for a query's first text: its candidates with their features. `None`
    /// where the ranker takes no part: in dense mode and with reciprocal rank fusion.
    ///
    /// # Errors
    /// As [`Searcher::search`].
    pub fn ranker_sample(&self, query: &Query) -> Result<Option<RankerSample>> {
        query.validate()?;
        let parameters = self.parameters(query);
        let (search, requests, scores) =
            self.score_requests(query, parameters, &mut None, &mut Timings::default());
        let Some((request, scores)) = requests.first().zip(scores.first()) else {
            return Ok(None);
        };
        Ok(rerank::sample(&search, request, scores))
    }

    /// The query's options, then the catalog's defaults, then the engine's.
    fn parameters(&self, query: &Query) -> SearchParameters {
        query.options.or(self.settings.search).resolve()
    }

    /// Finds the words of every text of a query in the catalog, and embeds the texts.
    fn prepare(
        &self,
        query: &Query,
        parameters: SearchParameters,
        degraded: &mut Option<Degraded>,
        timings: &mut Timings,
    ) -> Prepared {
        let requested = requested_parts(query, parameters.mode);
        let mut requests = Vec::with_capacity(query.texts.len());
        for text in &query.texts {
            requests.push(RequestTexts::new(text, requested));
        }
        let variant = self.variant(query.effort, parameters.mode, requested, &requests);
        let parts = variant.of(requested, self.instant_leg(requested));
        if !parts.clauses {
            for request in &mut requests {
                request.drop_clauses();
            }
        }
        for request in &requests {
            if self.translates(request.language, parts) {
                // Made once a snapshot, so it belongs to no stage whose speed is learned.
                self.translator();
            }
        }
        let looking_up = Instant::now();
        for request in &mut requests {
            self.look_up_words(request, parts);
            // By words alone and by rank they cost .007 of nDCG@10 on seven sets: without
            // embeddings and the ranker nothing corrects a wrong guess.
            if parameters.fusion != Fusion::Rrf && self.is_embedded(parts) {
                self.add_everyday_words(request);
            }
        }
        timings.lexical_ms += ms_since(looking_up);
        let embedding = Instant::now();
        let vectors = self.embed(&requests, parameters.mode, parts, query.effort, degraded);
        timings.embed_ms += ms_since(embedding);
        Prepared {
            requests,
            variant,
            parts,
            vectors,
        }
    }

    /// Scores every text of a query by every leg, up to and including fusion.
    fn score_requests<'a>(
        &'a self,
        query: &'a Query,
        parameters: SearchParameters,
        degraded: &mut Option<Degraded>,
        timings: &mut Timings,
    ) -> (Search<'a>, Vec<RequestTexts>, Vec<RequestScores>) {
        let Prepared {
            requests,
            variant,
            parts,
            vectors,
        } = self.prepare(query, parameters, degraded, timings);
        let mode = match parameters.mode {
            // Without any vector of the query only words are left, whatever was asked for.
            _ if vectors.is_empty() => Mode::Lexical,
            Mode::Auto => Mode::Hybrid,
            requested => requested,
        };
        let search = Search {
            searcher: self,
            query,
            parameters,
            mode,
            variant,
            parts,
            allowed: self.allowed(&query.filter),
            off: self.switched_off(),
        };
        let mut scores = Vec::with_capacity(requests.len());
        for (number, request) in requests.iter().enumerate() {
            scores.push(search.score(request, number, &vectors, timings));
        }
        (search, requests, scores)
    }

    /// Finds the words of a request in the catalog, and rewrites the texts for what knows English
    /// only.
    fn look_up_words(&self, request: &mut RequestTexts, parts: Parts) {
        if let Some(words) = &self.owner_words {
            request.find_synonyms(words);
        }
        self.find_terms(request, parts);
        request.expand();
    }

    fn find_terms(&self, request: &mut RequestTexts, parts: Parts) {
        if !self.translated(request, parts) {
            request.resolve(self);
            if self.is_embedded(parts)
                && request.language == Language::English
                && let Ok(table) = StaticTable::bundled()
            {
                // After the terms are found: a word that tools have is no sign of another language.
                if self.translates(Language::OtherLatin, parts) && request.is_foreign(&table) {
                    request.language = Language::OtherLatin;
                    self.translated(request, parts);
                } else {
                    request.correct(&table);
                }
            }
        }
        if self.is_embedded(parts) {
            request.recognise_nonsense();
        }
    }

    /// Translates a request where that is possible; true if it was.
    fn translated(&self, request: &mut RequestTexts, parts: Parts) -> bool {
        if !self.translates(request.language, parts) {
            return false;
        }
        let Some(translator) = self.translator() else {
            return false;
        };
        request.translate(translator, self);
        true
    }

    fn is_embedded(&self, parts: Parts) -> bool {
        self.legs.iter().any(|leg| leg.takes_part(parts))
    }

    fn add_everyday_words(&self, request: &mut RequestTexts) {
        // The phrases are English.
        if request.language == Language::English {
            request.add_everyday_words(self);
        }
    }

    fn translator(&self) -> Option<&Translator> {
        let make = || Translator::new(self.with_words(LexicalSearcher::written_words));
        self.translator.get_or_init(make).as_ref()
    }

    /// The tool of this id.
    pub fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.rows[self.position(id)?].tool()
    }

    /// True for a tool of the catalog.
    pub fn has(&self, id: &ToolId) -> bool {
        self.position(id).is_some()
    }

    /// True where the catalog has a tool of this server.
    pub fn has_server(&self, server: &str) -> bool {
        // Ids are in order, so the tools of a server follow its prefix.
        let prefix = format!("{server}/");
        match self.ids_after(Some(&prefix)).next() {
            Some(id) => id.as_str().starts_with(&prefix),
            None => false,
        }
    }

    /// What the catalog's owner said beside the tools; `None` for nothing.
    pub fn owner_words(&self) -> Option<&OwnerWords> {
        Some(self.owner_words.as_ref()?.words())
    }

    /// A tool that was read elsewhere, with what the owner says of it.
    pub fn with_owner_texts(&self, tool: Tool) -> Tool {
        match &self.owner_words {
            Some(words) => words.with_texts(tool),
            None => tool,
        }
    }

    /// The tools that the owner gave this name, in the order of ids.
    pub fn aliased(&self, name: &str) -> Vec<ToolId> {
        let Some(words) = &self.owner_words else {
            return Vec::new();
        };
        let mut tools = Vec::new();
        for (tool, _) in words.named(name) {
            tools.push(tool.clone());
        }
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// What a language model wrote about when to use the tool of this id; `None` where it wrote
    /// nothing about its present definition.
    pub fn enrichment(&self, id: &ToolId) -> Option<&Enrichment> {
        let stored = self.rows[self.position(id)?].stored.enrichment.as_ref()?;
        Some(&stored.enrichment)
    }

    /// The position of a tool.
    fn position(&self, id: &ToolId) -> Option<usize> {
        self.rows.position(id)
    }

    /// Every tool, by id, without items of other kinds.
    pub fn tools(&self) -> impl Iterator<Item = Arc<Tool>> + '_ {
        let tools = self.rows.iter().filter(|row| row.kind.is_tool());
        tools.filter_map(|row| row.tool())
    }

    /// Every item of every kind, by id.
    pub fn items(&self) -> impl Iterator<Item = Arc<Tool>> + '_ {
        self.rows.iter().filter_map(|row| row.tool())
    }

    /// What the item of this id is.
    pub fn kind(&self, id: &ToolId) -> Option<Kind> {
        Some(self.rows[self.position(id)?].kind)
    }

    /// Number of items by kind, of the kinds that there are.
    pub fn count_by_kind(&self) -> BTreeMap<Kind, usize> {
        let mut counts = BTreeMap::new();
        for row in self.rows.iter() {
            *counts.entry(row.kind).or_insert(0) += 1;
        }
        counts
    }

    /// Number of tools, without items of other kinds.
    pub fn tool_count(&self) -> usize {
        self.tool_rows.count()
    }

    /// Whether a search for tools alone keeps most of what it finds.
    pub(crate) fn is_mostly_tools(&self) -> bool {
        self.tool_count() * 2 >= self.rows.len()
    }

    /// The ids of items that pass a filter, in order. A definition is read only if the filter asks for more
    /// than kind and id.
    pub fn ids_passing<'a>(&'a self, filter: &'a Filter) -> impl Iterator<Item = &'a ToolId> + 'a {
        let reads_content = filter.reads_content();
        let passing = self.rows.iter().filter(move |row| {
            filter.accepts_kind(row.kind)
                && filter.accepts_id(&row.stored.id)
                && (!reads_content || filter.accepts_labels(row.labels()))
        });
        passing.map(|row| &row.stored.id)
    }

    /// The ids after this one (exclusive), in order: one page of a list with a cursor.
    pub fn ids_after<'a>(&'a self, after: Option<&str>) -> impl Iterator<Item = &'a ToolId> + 'a {
        let first = match after {
            Some(after) => self.rows.first_not(|id| id.as_str() <= after),
            None => 0,
        };
        self.rows.iter_from(first).map(|row| &row.stored.id)
    }

    /// Every tag with the number of its tools: the most frequent first, equal ones by name. Counted
    /// once for a snapshot; the tags of a tool are read once for all snapshots that have it.
    pub fn tags(&self) -> &[(String, usize)] {
        self.tags.get_or_init(|| count_tags(&self.rows))
    }

    /// The entries of an owner's words that are about tools, servers or tags that are not there, by
    /// their places in the document.
    pub fn entries_without_tool(&self, words: &OwnerWords) -> Vec<String> {
        let servers: HashSet<&str> = self.rows.iter().map(|row| row.stored.id.server()).collect();
        let tags: HashSet<&str> = self.tags().iter().map(|(tag, _)| tag.as_str()).collect();
        words.entries_without_tool(
            |id| self.has(id),
            |server| servers.contains(server),
            |tag| tags.contains(tag),
        )
    }

    /// Number of items of all kinds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Number of tools of the catalog, of which a snapshot for one query may have only some.
    pub fn catalog_len(&self) -> usize {
        match self.words.whole() {
            Some(whole) => whole.tools as usize,
            None => self.rows.len(),
        }
    }

    /// True without tools.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The commit this snapshot shows: of the catalog that it follows, if there is one, so that all
    /// that follow the same one count alike.
    pub fn generation(&self) -> u64 {
        match &self.followed {
            Some(followed) => followed.generation,
            None => self.version.generation,
        }
    }

    /// What the catalog follows: see [`crate::Writer::set_followed`].
    pub fn followed(&self) -> Option<&Followed> {
        self.followed.as_ref()
    }

    /// The commit this snapshot shows and the catalog it belongs to. A catalog that was deleted and
    /// created again under the same name has another identity.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Stored vectors that were found damaged when the catalog was opened. Embedding computes them
    /// again.
    pub fn damaged_vectors(&self) -> usize {
        self.legs.iter().map(|leg| leg.damaged).sum()
    }

    /// The catalog's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// True where the catalog has a ranker of its own, usable or not.
    pub fn has_own_ranker(&self) -> bool {
        self.own_ranker != OwnRanker::None
    }

    /// The ranker in use.
    pub fn ranker(&self) -> Option<&Arc<Ranker>> {
        self.ranker.as_ref()
    }

    /// The ids of the embedders in use, joined with `+`; `none` without embedders.
    pub fn embedder_ids(&self) -> String {
        let ids: Vec<&str> = self.legs.iter().map(|leg| leg.embedder.id()).collect();
        if ids.is_empty() {
            "none".to_owned()
        } else {
            ids.join("+")
        }
    }

    /// Tools that the dense legs cannot find yet.
    pub fn pending_embeddings(&self) -> usize {
        self.legs.iter().map(|leg| leg.pending).max().unwrap_or(0)
    }

    /// The number of vectors of each embedder whose vectors are not in the store, by id.
    pub(crate) fn instant_vector_counts(&self) -> impl Iterator<Item = (String, usize)> {
        self.legs
            .iter()
            .filter(|leg| leg.embedder.is_instant())
            .map(|leg| (leg.embedder.id().to_owned(), leg.vectors.len()))
    }

    /// True by position for items that pass the filter; `None` where all do.
    fn allowed(&self, filter: &Filter) -> Option<Cow<'_, [bool]>> {
        if filter.is_empty() {
            return self.tool_rows.by_position().map(Cow::Borrowed);
        }
        // Reading every tool's labels is slow, so a filter by id alone reads none.
        let reads_content = filter.reads_content();
        // Rows and ids are in the same order, so one pass over both finds those that are in both.
        let mut ids = filter.ids.iter().peekable();
        let mut allowed = Vec::with_capacity(self.rows.len());
        for row in self.rows.iter() {
            let id = row.stored.id.as_str();
            while ids.next_if(|listed| listed.as_str() < id).is_some() {}
            let is_listed =
                filter.ids.is_empty() || matches!(ids.peek(), Some(listed) if *listed == id);
            allowed.push(
                is_listed
                    && filter.accepts_kind(row.kind)
                    && filter.accepts_server(&row.stored.id)
                    && (!reads_content || filter.accepts_labels(row.labels())),
            );
        }
        Some(Cow::Owned(allowed))
    }

    fn duplicates(&self) -> &Duplicates {
        self.duplicates.get_or_init(|| {
            let stored = self.rows.iter().map(|row| &row.stored);
            Duplicates::new(stored.map(|tool| (&tool.id, tool.fingerprint.as_ref())))
        })
    }

    /// What the snapshot itself lacks for a search in this mode. Only the first cause is reported:
    /// the one with the largest effect.
    fn degraded(&self, mode: Mode) -> Option<Degraded> {
        let stands_in = self.stands_in.read();
        let missing_candidates = self.missing_candidates.as_ref().or(stands_in.as_ref());
        let lacks_candidates = missing_candidates.is_some();
        if !lacks_candidates && (mode == Mode::Lexical || self.is_empty()) {
            return None;
        }
        let pending = self.pending_embeddings();
        let damaged = self.damaged_vectors();
        let cause = if let Some(reason) = missing_candidates {
            DegradedCause::Candidates(reason.clone())
        } else if let Some(reason) = &self.missing_embedder {
            DegradedCause::EmbedderNotLoaded(reason.clone())
        } else if damaged > 0 && pending > 0 {
            DegradedCause::DamagedVectors { damaged, pending }
        } else if self.legs.is_empty() {
            DegradedCause::NoEmbedder
        } else if pending > 0 {
            if self.legs.iter().any(|leg| leg.pending == 0) {
                DegradedCause::PartlyEmbedded { pending }
            } else {
                DegradedCause::NotEmbedded { pending }
            }
        } else if let OwnRanker::Unusable(problem) = &self.own_ranker {
            DegradedCause::Ranker(problem.clone())
        } else {
            DegradedCause::Memory(self.memory.as_ref()?.problem()?)
        };
        Some(Degraded {
            cause,
            pending_embeddings: pending,
        })
    }

    /// The variant that the query asks for, or the best one expected to fit its budget.
    fn variant(
        &self,
        effort: Effort,
        mode: Mode,
        requested: Parts,
        requests: &[RequestTexts],
    ) -> Variant {
        let budget_ms = match effort {
            Effort::All => return Variant::Full,
            Effort::Variant(variant) => return variant,
            Effort::BudgetMs(budget_ms) => budget_ms,
        };
        let instant_leg = self.instant_leg(requested);
        let offered = Variant::ALL
            .into_iter()
            // Dense mode has no use for a search by words alone.
            .filter(|variant| mode != Mode::Dense || *variant != Variant::Lexical)
            .map(|variant| {
                let parts = variant.of(requested, instant_leg);
                (variant, self.work(parts, requests))
            });
        self.cost_model.choose(budget_ms, offered)
    }

    fn instant_leg(&self, parts: Parts) -> InstantLeg {
        for leg in &self.legs {
            if leg.embedder.is_instant() && leg.takes_part(parts) {
                return InstantLeg::Present;
            }
        }
        InstantLeg::Absent
    }

    /// The work of a search with these parts, for the cost model.
    fn work(&self, parts: Parts, requests: &[RequestTexts]) -> Work {
        let scored: usize = requests.iter().map(|request| request.of(parts).len()).sum();
        let mut work = Work {
            scored: self.len() * scored,
            ..Work::default()
        };
        for leg in &self.legs {
            if !leg.takes_part(parts) {
                continue;
            }
            for request in requests {
                if !self.scores_any(leg, request.language, parts) {
                    continue;
                }
                let texts = self.texts_for(leg, request, parts).len();
                let scored = self.scored_count(leg, request.language, parts);
                work.compared_bytes += leg.vectors.get().read_bytes(scored) * texts;
                // An instant leg embeds in microseconds, which the model leaves out.
                work.slow_texts += if leg.embedder.is_instant() { 0 } else { texts };
            }
        }
        work
    }

    /// The texts of a request that a leg embeds. Clauses would take most of a slow embedder's time.
    /// Where an instant leg scores them, embedding them by both is worth .1 points of nDCG@10, so
    /// the slow one gets the whole request only.
    fn texts_for<'a>(
        &self,
        leg: &DenseLeg,
        request: &'a RequestTexts,
        parts: Parts,
    ) -> &'a [String] {
        let languages = leg.embedder.languages();
        if !leg.embedder.is_instant() && self.is_scored_instantly(request.language, parts) {
            let whole = Parts {
                clauses: false,
                ..parts
            };
            return request.embedded(languages, whole);
        }
        request.embedded(languages, parts)
    }

    /// True if an instant leg scores requests in a language.
    fn is_scored_instantly(&self, request: Language, parts: Parts) -> bool {
        for leg in &self.legs {
            if leg.embedder.is_instant()
                && leg.takes_part(parts)
                && self.scores_any(leg, request, parts)
            {
                return true;
            }
        }
        false
    }

    /// Teaches the cost model how long a search took.
    fn learn_speed(&self, mut work: Work, degraded: Option<&Degraded>, timings: &Timings) {
        if let Some(degraded) = degraded
            && degraded.cause.is_failed_embedder()
        {
            self.leave_out_failure(&mut work, timings.embed_ms);
        }
        // Fusion and ranking are part of every search, as the lexical leg is, so the model counts
        // their time with it.
        let by_tool_ms = timings.lexical_ms + timings.fuse_ms + timings.rank_ms;
        self.cost_model
            .learn(&work, timings.embed_ms, by_tool_ms, timings.dense_ms);
    }

    /// Leaves the work of embedding out where it failed sooner than it usually takes: that says
    /// nothing about its speed.
    fn leave_out_failure(&self, work: &mut Work, embed_ms: f64) {
        let slow_texts = work.slow_texts;
        let usual_ms = self.cost_model.expected_ms(&Work {
            slow_texts,
            ..Work::default()
        });
        if embed_ms < usual_ms {
            work.slow_texts = 0;
        }
    }

    /// Embeds the texts of all requests. A leg that fails is left out and reported in `degraded`.
    fn embed(
        &self,
        requests: &[RequestTexts],
        mode: Mode,
        parts: Parts,
        effort: Effort,
        degraded: &mut Option<Degraded>,
    ) -> QueryVectors {
        let mut all = QueryVectors::default();
        let limit = match effort {
            // A budget that is too long for a duration is no limit.
            Effort::BudgetMs(budget_ms) => Duration::try_from_secs_f64(budget_ms / 1e3).ok(),
            Effort::All | Effort::Variant(_) => None,
        };
        let clock = Instant::now();
        for leg in &self.legs {
            let is_wanted = requests
                .iter()
                .any(|request| self.takes_part(leg, request.language, mode, parts));
            if !is_wanted {
                all.push_absent();
                continue;
            }
            // One call for all texts: a model's batch is cheaper than its texts one by one.
            let mut texts: Vec<&str> = Vec::new();
            let mut counts = Vec::with_capacity(requests.len());
            for request in requests {
                let of_request = self.texts_for(leg, request, parts);
                counts.push(of_request.len());
                texts.extend(of_request.iter().map(String::as_str));
            }
            let left = limit.map(|limit| limit.saturating_sub(clock.elapsed()));
            match leg.embedder.embed_queries_within(&texts, left) {
                Ok(vectors) => all.push(vectors, &counts),
                // A model that fails must not fail the search: the other legs still answer.
                Err(error) => {
                    all.push_absent();
                    *degraded = Some(Degraded {
                        cause: DegradedCause::EmbedderFailed(error.to_string()),
                        pending_embeddings: self.pending_embeddings(),
                    });
                }
            }
        }
        all
    }
}

impl Search<'_> {
    /// Reorders the best tools of each request, by the ranker, the usage memory and the owner. Returns whether there
    /// was time for the ranker.
    fn rerank(
        &self,
        requests: &[RequestTexts],
        all_scores: &mut [RequestScores],
        deadline: Deadline,
    ) -> bool {
        let mut in_time = true;
        for (request, scores) in requests.iter().zip(all_scores) {
            if self.is_in_time_to_rank(scores, deadline) {
                (scores.ranker_output, scores.reranked) =
                    rerank::rerank(self, request, scores).unzip();
            } else {
                in_time = false;
            }
            // After the ranker, whose confidence limits what similar requests may change.
            self.add_memory_scores(request, scores);
            self.curate(request, scores);
        }
        in_time
    }
}

fn match_of(
    all_scores: &[RequestScores],
    no_match: Option<&NoMatch>,
    better_hidden: usize,
) -> Match {
    match no_match {
        Some(_) => Match::None,
        // The filter hides tools that fit better.
        None if better_hidden > 0 => scores::match_of_all(all_scores).min(Match::Possible),
        None => scores::match_of_all(all_scores),
    }
}

fn confidence_of(all_scores: &[RequestScores], no_match: Option<&NoMatch>) -> Option<f32> {
    match no_match.map(|no_match| &no_match.reason) {
        // The scores are those of tools that the filter leaves out.
        Some(NoMatchReason::Filter { .. } | NoMatchReason::Kinds { .. }) => None,
        _ => scores::highest_confidence(all_scores),
    }
}

/// The parts that a query asks for, less those that its mode excludes.
fn requested_parts(query: &Query, mode: Mode) -> Parts {
    match mode {
        Mode::Lexical => Parts {
            instant_embedders: false,
            slow_embedders: false,
            ..query.parts
        },
        _ => query.parts,
    }
}

fn count_tags(rows: &Rows) -> Vec<(String, usize)> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for row in rows.iter() {
        for tag in &row.labels().tags {
            *numbers.entry(tag).or_default() += 1;
        }
    }
    let mut tags = Vec::with_capacity(numbers.len());
    for (tag, number) in numbers {
        tags.push((tag.to_owned(), number));
    }
    tags.sort_unstable_by(|(one, of_one), (other, of_other)| {
        of_other.cmp(of_one).then(one.cmp(other))
    });
    tags
}

/// True for an embedder that comes with the program, whose first use loads it.
fn is_built_in(leg: &DenseLeg) -> bool {
    leg.embedder.is_instant() || leg.embedder.id().starts_with(encoder::NAME)
}

/// The time since a stage of the search began.
fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
