//! An immutable snapshot that answers queries. The one file that knows the pipeline.

mod explain;
mod legs;
mod rerank;
pub(crate) mod words;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::clauses;
use crate::cost::{CostModel, Work};
use crate::dense::UNKNOWN;
use crate::duplicates::Duplicates;
use crate::error::Result;
use crate::exact_names::Names;
use crate::fuse;
use crate::hit::{Degraded, Hit, NameMatch, NoMatch, Results, Signals, Timings, ranked};
use crate::lexical::{QueryTerms, Scored};
use crate::memory::Memory;
use crate::query::{Effort, Filter, Fusion, Mode, Query, read_part};
use crate::ranker::features::CANDIDATES;
use crate::ranker::{Ranker, ToolProfile};
use crate::settings::Settings;
use crate::store::{StoredTool, Version};
use crate::text;
use crate::tool::{Tool, ToolId};
use crate::top_k::{self, TopK};
use crate::variant::{InstantLeg, Parts, Variant};

pub(crate) use legs::DenseLeg;
use legs::{LegResult, LegScan, LegScores};
use rerank::RankerOutput;
pub use rerank::RankerSample;
pub(crate) use words::Words;

/// The share of the clauses in a request's score; the rest is the request as a whole.
const CLAUSES_SHARE: f32 = 0.5;
/// What a request that was asked before, word for word, adds to its tool's score; less the less
/// alike it is. Above 1, so that what was called for the very same request comes before the best
/// match by content.
const MEMORY_WEIGHT: f32 = 1.2;
/// The best tools by rough scores that are scored again: several times the candidates of the
/// ranker, by the formula, and as many as have a say in what is sample of a leg.
const LIKELY: usize = 256;
const LIKELY_BY_LEG: usize = 64;
/// Names offered when nothing fits.
const NEAREST_NAMES: usize = 3;

/// One state of a catalog; answers queries from any number of threads and never changes.
pub struct Searcher {
    pub(crate) version: Version,
    pub(crate) settings: Settings,
    /// Every tool, by id, so that position is the tie-break too.
    pub(crate) rows: Vec<Arc<Row>>,
    pub(crate) words: Words,
    pub(crate) names: Arc<Names>,
    pub(crate) duplicates: Arc<Duplicates>,
    pub(crate) legs: Vec<DenseLeg>,
    /// How fast searches have been, here and in the snapshots before.
    pub(crate) cost_model: Arc<CostModel>,
    /// The catalog's own, or the one the crate carries.
    pub(crate) ranker: Option<Arc<Ranker>>,
    pub(crate) own_ranker: OwnRanker,
    /// What was asked before and which tools were called then; shared by all snapshots of a
    /// catalog.
    pub(crate) memory: Option<Arc<Memory>>,
}

/// Whether a catalog has a ranker of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OwnRanker {
    /// It has none: the crate's ranks.
    None,
    /// It has, and it ranks.
    Used,
    /// It has one that cannot be used, for this reason.
    Unusable(String),
}

/// A tool of a snapshot, parsed on first use.
pub(crate) struct Row {
    pub(crate) stored: StoredTool,
    parsed: OnceLock<Option<Arc<Tool>>>,
    facts: OnceLock<ToolProfile>,
}

/// One text of a query and the texts it is searched by: itself, then its clauses if it has several.
struct RequestTexts {
    texts: Vec<String>,
    cjk_share: f32,
}

/// All that is known about one request before ranking.
#[derive(Default)]
struct RequestScores {
    /// By text.
    terms: Vec<QueryTerms>,
    lexical: LegScores,
    /// The legs that were contributing.
    dense: Vec<LegResult>,
    named: HashMap<u32, NameMatch>,
    /// What a full match of each of the whole request's terms is worth, and all of them together.
    gains: Vec<f32>,
    limit: f32,
    /// One score per tool by the formula, without the name tier.
    fused: Vec<f32>,
    dense_weight: f32,
    signals: Signals,
    /// What the ranker says, where it has a say.
    ranker_output: Option<RankerOutput>,
    /// One score per tool with what the ranker and the memory say, without the name tier; none
    /// where neither has a say.
    reranked: Option<Vec<f32>>,
    /// How strongly remembered requests speak for tools, by position.
    memory_scores: HashMap<usize, f32>,
}

/// The vectors of every text: by leg (`None` for one that takes no part), by request, by text (the
/// request as a whole first, then those clauses the leg is asked about).
type QueryVectors = Vec<Option<Vec<Vec<Vec<f32>>>>>;

/// A search under way.
struct Search<'a> {
    searcher: &'a Searcher,
    query: &'a Query,
    /// What is possible of what was asked.
    mode: Mode,
    /// How much of what was asked for there is time for, and what takes part in that.
    variant: Variant,
    parts: Parts,
    /// True by position for tools that may be hits; `None` when all may.
    allowed: Option<Vec<bool>>,
}

impl Searcher {
    /// Answers a query.
    ///
    /// # Errors
    /// [`crate::Error::InvalidQuery`] for a query out of its ranges.
    pub fn search(&self, query: &Query) -> Result<Results> {
        let clock = Instant::now();
        let mut timings = Timings::default();
        let mut degraded = self.degraded(query.mode);
        let (search, requests, mut evidence) = self.gather(query, &mut degraded, &mut timings)?;
        let deadline = Deadline::of(query.effort, clock);
        lap(&mut timings.rank_ms, || {
            for (request, evidence) in requests.iter().zip(&mut evidence) {
                if search.is_in_time_to_rank(evidence, deadline) {
                    (evidence.ranker_output, evidence.reranked) =
                        rerank::rerank(&search, request, evidence).unzip();
                } else {
                    degraded.get_or_insert_with(|| deadline.missed());
                }
                search.remember(evidence);
            }
        });
        let (hits, no_match) = lap(&mut timings.fuse_ms, || search.rank(&requests, &evidence));
        timings.total_ms = clock.elapsed().as_secs_f64() * 1e3;
        let work = self.work(search.parts, &requests);
        let by_tool_ms = timings.lexical_ms + timings.fuse_ms + timings.rank_ms;
        self.cost_model
            .learn(&work, timings.embed_ms, by_tool_ms, timings.dense_ms);
        Ok(Results {
            hits,
            mode: search.mode,
            variant: search.variant,
            embedders: contributing(&evidence),
            degraded,
            no_match,
            signals: strongest(&evidence),
            confidence: confidence(&evidence),
            timings,
            generation: self.generation(),
        })
    }

    /// Measures the candidates of a query's first text, as the ranker sees them. `None` where it
    /// has no say: in dense mode and with reciprocal rank fusion.
    ///
    /// # Errors
    /// As [`Searcher::search`].
    pub fn measure(&self, query: &Query) -> Result<Option<RankerSample>> {
        let (search, requests, evidence) =
            self.gather(query, &mut None, &mut Timings::default())?;
        let first = requests.first().zip(evidence.first());
        Ok(first.and_then(|(request, evidence)| rerank::sample(&search, request, evidence)))
    }

    /// Asks every leg about every request of a query.
    fn gather<'a>(
        &'a self,
        query: &'a Query,
        degraded: &mut Option<Degraded>,
        timings: &mut Timings,
    ) -> Result<(Search<'a>, Vec<RequestTexts>, Vec<RequestScores>)> {
        query.validate()?;
        let asked = asked_parts(query);
        let mut requests: Vec<RequestTexts> = query
            .texts
            .iter()
            .map(|text| RequestTexts::new(text, asked.clauses))
            .collect();
        let variant = self.variant(query, asked, &requests);
        let parts = variant.of(asked, self.instant_leg(asked));
        if !parts.clauses {
            requests
                .iter_mut()
                .for_each(|request| request.texts.truncate(1));
        }
        let vectors = lap(&mut timings.embed_ms, || {
            self.embed(&requests, parts, degraded)
        });
        let mode = match query.mode {
            _ if vectors.iter().all(Option::is_none) => Mode::Lexical,
            Mode::Auto => Mode::Hybrid,
            asked => asked,
        };
        let search = Search {
            searcher: self,
            query,
            mode,
            variant,
            parts,
            allowed: self.allowed(&query.filter),
        };
        let numbered = requests.iter().enumerate();
        let evidence = numbered
            .map(|(number, request)| search.score(request, number, &vectors, timings))
            .collect();
        Ok((search, requests, evidence))
    }

    /// The tool of this id.
    pub fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.rows
            .binary_search_by(|row| row.stored.id.cmp(id))
            .ok()
            .and_then(|place| self.rows[place].tool())
    }

    /// Every tool, by id.
    pub fn tools(&self) -> impl Iterator<Item = Arc<Tool>> + '_ {
        self.rows.iter().filter_map(|row| row.tool())
    }

    /// The ids after this one (exclusive), in order: the page of a cursor list.
    pub fn ids_after<'a>(&'a self, after: Option<&str>) -> impl Iterator<Item = &'a ToolId> + 'a {
        let first = after.map_or(0, |after| {
            self.rows
                .partition_point(|row| row.stored.id.as_str() <= after)
        });
        self.rows[first..].iter().map(|row| &row.stored.id)
    }

    /// The ids whose names look most like this one, nearest first: what may have been meant by an
    /// unknown name.
    pub fn similar_names(&self, name: &str, most: usize) -> Vec<ToolId> {
        let similar = self.names.similar(name, most);
        similar
            .into_iter()
            .map(|tool| self.rows[tool as usize].stored.id.clone())
            .collect()
    }

    /// Number of tools.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without tools.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The commit this snapshot shows.
    pub fn generation(&self) -> u64 {
        self.version.generation
    }

    /// The commit this snapshot shows, and of which catalog: one that was made anew under the same
    /// name is another.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Stored vectors that were found damaged when the catalog was opened. Embedding computes them
    /// anew.
    pub fn damaged_vectors(&self) -> usize {
        self.legs.iter().map(|leg| leg.damaged).sum()
    }

    /// The settings it answers with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// True where the catalog has a ranker of its own, usable or not.
    pub fn has_own_ranker(&self) -> bool {
        self.own_ranker != OwnRanker::None
    }

    /// The ranker it ranks with.
    pub fn ranker(&self) -> Option<&Arc<Ranker>> {
        self.ranker.as_ref()
    }

    /// Tools that the dense legs cannot find yet.
    pub fn pending_embeddings(&self) -> usize {
        self.legs.iter().map(|leg| leg.pending).max().unwrap_or(0)
    }

    /// Ids of embedders whose vectors the store does not keep, with their number.
    pub(crate) fn instant_vector_counts(&self) -> impl Iterator<Item = (String, usize)> {
        let instant = self.legs.iter().filter(|leg| leg.embedder.is_instant());
        instant.map(|leg| (leg.embedder.id().to_owned(), leg.vectors.len()))
    }

    /// True by position for tools that may be hits; `None` when all may.
    fn allowed(&self, filter: &Filter) -> Option<Vec<bool>> {
        let reads_content = filter.reads_content();
        let accepts = |row: &Arc<Row>| {
            filter.accepts_id(&row.stored.id)
                && (!reads_content || row.tool().is_some_and(|tool| filter.accepts(&tool)))
        };
        (!filter.is_empty()).then(|| self.rows.iter().map(accepts).collect())
    }

    fn degraded(&self, mode: Mode) -> Option<Degraded> {
        let pending_embeddings = self.pending_embeddings();
        let damaged_memory = self.memory.as_ref().and_then(|memory| memory.problem());
        let reason = if mode == Mode::Lexical || self.is_empty() {
            return None;
        } else if self.damaged_vectors() > 0 && pending_embeddings > 0 {
            format!(
                "{} stored vectors are damaged and {pending_embeddings} tools are found less precisely; `toolscout embed` computes them anew",
                self.damaged_vectors()
            )
        } else if self.legs.is_empty() {
            "no embedding model is loaded, so only words are matched; `embedder = \"auto\"` takes the built-in table"
                .to_owned()
        } else if pending_embeddings > 0 {
            let found = if self.legs.iter().any(|leg| leg.pending == 0) {
                "less precisely"
            } else {
                "by words only"
            };
            format!(
                "{pending_embeddings} tools are not embedded yet and are found {found}; `toolscout embed` goes on"
            )
        } else if let OwnRanker::Unusable(problem) = &self.own_ranker {
            problem.clone()
        } else {
            damaged_memory?
        };
        Some(Degraded {
            reason,
            pending_embeddings,
        })
    }

    /// How much of what is asked is done: what the query says, or what its budget is expected to
    /// suffice for.
    fn variant(&self, query: &Query, asked: Parts, requests: &[RequestTexts]) -> Variant {
        let instant_leg = self.instant_leg(asked);
        match query.effort {
            Effort::All => Variant::Full,
            Effort::Variant(variant) => variant,
            Effort::BudgetMs(budget_ms) => {
                let possible = Variant::ALL
                    .into_iter()
                    .filter(|&v| query.mode != Mode::Dense || v != Variant::Lexical);
                let offered = possible
                    .map(|variant| (variant, self.work(variant.of(asked, instant_leg), requests)));
                self.cost_model.choose(budget_ms, offered)
            }
        }
    }

    fn instant_leg(&self, parts: Parts) -> InstantLeg {
        let instant = |leg: &DenseLeg| leg.embedder.is_instant() && leg.takes_part(parts);
        if self.legs.iter().any(instant) {
            InstantLeg::Present
        } else {
            InstantLeg::Absent
        }
    }

    /// What a search with these parts has to do.
    fn work(&self, parts: Parts, requests: &[RequestTexts]) -> Work {
        let scored: usize = requests.iter().map(|request| request.of(parts).len()).sum();
        let mut work = Work {
            scored: self.len() * scored,
            ..Work::default()
        };
        for leg in self.legs.iter().filter(|leg| leg.takes_part(parts)) {
            let texts: usize = requests
                .iter()
                .map(|request| self.texts_for(leg, request, parts).len())
                .sum();
            work.compared_bytes += leg.vectors.scanned_bytes() * texts;
            work.slow_texts += if leg.embedder.is_instant() { 0 } else { texts };
        }
        work
    }

    /// What of a request a leg is asked about. Most of a slow embedder's time would go to clauses;
    /// where an instant one tells them apart, asking both is worth .1 points of nDCG@10.
    fn texts_for<'a>(
        &self,
        leg: &DenseLeg,
        request: &'a RequestTexts,
        parts: Parts,
    ) -> &'a [String] {
        let stands_by = |other: &DenseLeg| {
            other.embedder.is_instant()
                && other.takes_part(parts)
                && other.knows_script_of(request.cjk_share, parts)
        };
        if !leg.embedder.is_instant() && self.legs.iter().any(stands_by) {
            return &request.texts[..1];
        }
        request.of(parts)
    }

    fn embed(
        &self,
        requests: &[RequestTexts],
        parts: Parts,
        degraded: &mut Option<Degraded>,
    ) -> QueryVectors {
        let by_leg = self.legs.iter().map(|leg| {
            if !leg.takes_part(parts) {
                return None;
            }
            let asked: Vec<&[String]> = requests
                .iter()
                .map(|request| self.texts_for(leg, request, parts))
                .collect();
            let texts: Vec<&str> = asked
                .iter()
                .copied()
                .flatten()
                .map(String::as_str)
                .collect();
            match leg.embedder.embed_queries(&texts) {
                Ok(vectors) => {
                    let mut vectors = vectors.into_iter();
                    Some(
                        asked
                            .iter()
                            .map(|texts| vectors.by_ref().take(texts.len()).collect())
                            .collect(),
                    )
                }
                Err(error) => {
                    let pending_embeddings = self.pending_embeddings();
                    *degraded = Some(Degraded {
                        reason: error.to_string(),
                        pending_embeddings,
                    });
                    None
                }
            }
        });
        by_leg.collect()
    }
}

impl Search<'_> {
    /// Gathers what every leg says of a request.
    fn score(
        &self,
        request: &RequestTexts,
        number: usize,
        vectors: &QueryVectors,
        timings: &mut Timings,
    ) -> RequestScores {
        let searcher = self.searcher;
        let (terms, gains, limit, lexical) = lap(&mut timings.lexical_ms, || {
            let analyzed = request.texts.iter().map(|text| text::terms(text));
            let resolve = |terms: Vec<_>| searcher.ask_words(|words| words.resolve(&terms));
            let terms: Vec<QueryTerms> = analyzed.map(resolve).collect();
            let score = |terms: &QueryTerms| searcher.ask_words(|words| words.score(terms));
            let mut scored: Vec<Scored> = terms.iter().map(score).collect();
            let (gains, limit) = (std::mem::take(&mut scored[0].gains), scored[0].limit);
            let raw = scored.into_iter().map(|scored| scored.by_tool).collect();
            (
                terms,
                gains,
                limit,
                LegScores::new(raw, |_| 0.0, self.allowed.as_deref()),
            )
        });
        let dense = lap(&mut timings.dense_ms, || {
            let legs = searcher.legs.iter().zip(vectors);
            let results = legs.filter_map(|(leg, vectors)| Some((leg, &vectors.as_ref()?[number])));
            let contributing = results.filter(|(leg, _)| {
                self.mode == Mode::Dense || leg.knows_script_of(request.cjk_share, self.parts)
            });
            self.scan(
                contributing
                    .map(|(leg, queries)| leg.scan(queries, self.parts))
                    .collect(),
                &lexical,
            )
        });
        lap(&mut timings.fuse_ms, || {
            let dense_weight = self.dense_weight(dense.len());
            let fused = self.fuse(&lexical, &dense);
            let named = searcher
                .names
                .find(&request.texts[0], |tool| searcher.rows[tool as usize].id());
            let named = named.into_iter().collect();
            let signals = signals(limit, &lexical, &dense);
            RequestScores {
                terms,
                lexical,
                dense,
                named,
                gains,
                limit,
                fused,
                dense_weight,
                signals,
                ..RequestScores::default()
            }
        })
    }

    /// What the dense legs say. Where one has scored roughly, the tools that may be hits by what
    /// all say so far are scored again.
    fn scan(&self, mut contributing: Vec<LegScan<'_>>, lexical: &LegScores) -> Vec<LegResult> {
        let result = |scan: &LegScan<'_>| scan.result(self.allowed.as_deref());
        let mut results: Vec<LegResult> = contributing.iter().map(result).collect();
        if contributing.iter().any(|scan| scan.is_rough) {
            let likely = self.likely(&self.fuse(lexical, &results), &results);
            for (scan, result) in contributing
                .iter_mut()
                .zip(&mut results)
                .filter(|(scan, _)| scan.is_rough)
            {
                scan.refine(&likely);
                *result = scan.result(self.allowed.as_deref());
            }
        }
        results
    }

    /// The tools that may be hits by these scores: the best of the formula, and of each dense leg.
    fn likely(&self, fused: &[f32], results: &[LegResult]) -> Vec<usize> {
        let best = |scores: &[f32], count: usize| {
            top_k::above(UNKNOWN, scores, count, |tool| self.is_allowed(tool))
        };
        let of_legs = results
            .iter()
            .flat_map(|result| best(&result.scores.raw, LIKELY_BY_LEG));
        let mut likely: Vec<usize> = best(fused, LIKELY.max(2 * self.query.k))
            .into_iter()
            .chain(of_legs)
            .map(|(tool, _)| tool)
            .collect();
        likely.sort_unstable();
        likely.dedup();
        likely
    }

    /// Reads what the ranker has to know of the candidates. False where time is up before all are
    /// read; those that were are kept, so that the next search gets further.
    fn is_in_time_to_rank(&self, evidence: &RequestScores, deadline: Deadline) -> bool {
        if deadline.budget_ms.is_none() || !rerank::applies(self, evidence) {
            return true;
        }
        let candidates = top_k::above(0.0, &evidence.fused, CANDIDATES, |tool| {
            self.is_allowed(tool)
        });
        candidates.into_iter().all(|(tool, _)| {
            let is_in_time = !deadline.is_over();
            if is_in_time {
                self.searcher.rows[tool].facts();
            }
            is_in_time
        })
    }

    /// Adds what remembered requests say to the scores.
    fn remember(&self, evidence: &mut RequestScores) {
        let Some(memory) = self
            .searcher
            .memory
            .as_ref()
            .filter(|memory| memory.is_asked())
        else {
            return;
        };
        let results = evidence
            .dense
            .iter()
            .map(|result| (result.id.as_str(), result.share, result.query.as_slice()));
        let place = |id: &ToolId| {
            self.searcher
                .rows
                .binary_search_by(|row| row.stored.id.cmp(id))
                .ok()
        };
        // The surer the answer is without, the less requests that are merely alike change it.
        let sure = evidence
            .ranker_output
            .as_ref()
            .map_or(0.0, |ranker_output| ranker_output.confidence);
        let gated = |weight: f32| weight * (1.0 - sure * (1.0 - weight));
        evidence.memory_scores = memory
            .recall(results)
            .into_iter()
            .filter_map(|(id, weight)| Some((place(&id)?, gated(weight))))
            .collect();
        if evidence.memory_scores.is_empty() {
            return;
        }
        let scale = 1.0 / (1.0 + MEMORY_WEIGHT);
        let mut scores = evidence
            .reranked
            .take()
            .unwrap_or_else(|| evidence.fused.clone());
        scores.iter_mut().for_each(|score| *score *= scale);
        for (&tool, weight) in &evidence.memory_scores {
            scores[tool] += MEMORY_WEIGHT * weight * scale;
        }
        evidence.reranked = Some(scores);
    }

    /// The weight of this many dense legs together.
    fn dense_weight(&self, legs: usize) -> f32 {
        let settings = &self.searcher.settings;
        match (self.mode, legs) {
            (_, 0) => 0.0,
            (Mode::Dense, _) => 1.0,
            (_, 1) => self.query.dense_weight.unwrap_or(settings.dense_weight),
            _ => self
                .query
                .dense_weight
                .unwrap_or(settings.joint_dense_weight),
        }
    }

    /// One score per tool, 0 to 1: half by the request as a whole, half by its clauses where it has
    /// several. A leg that was not asked about clauses leaves its say in them to those that were.
    fn fuse(&self, lexical: &LegScores, dense: &[LegResult]) -> Vec<f32> {
        let whole: Vec<(&[f32], f32)> = dense
            .iter()
            .map(|result| (result.scores.whole(), result.share))
            .collect();
        let fused = self.fuse_part(lexical.whole(), &whole);
        let Some(by_words) = &lexical.clauses else {
            return fused;
        };
        let results = dense
            .iter()
            .filter_map(|result| Some((result.scores.clauses.as_deref()?, result.share)));
        let clauses = self.fuse_part(by_words, &results.collect::<Vec<_>>());
        fused
            .iter()
            .zip(clauses)
            .map(|(&whole, clauses)| fuse::convex(whole, clauses, CLAUSES_SHARE))
            .collect()
    }

    /// Fuses what the legs, each with its share, say of one part of a request. A tool without a
    /// vector is judged by its words alone.
    fn fuse_part(&self, lexical: &[f32], dense: &[(&[f32], f32)]) -> Vec<f32> {
        let dense_weight = self.dense_weight(dense.len());
        let shares: f32 = dense.iter().map(|(_, share)| share).sum();
        let weighted = dense
            .iter()
            .map(|&(scores, share)| (scores, dense_weight * share / shares));
        if self.query.fusion == Fusion::Rrf && !dense.is_empty() {
            let lists: Vec<(&[f32], f32)> = [(lexical, 1.0 - dense_weight)]
                .into_iter()
                .chain(weighted)
                .collect();
            return fuse::reciprocal_rank(&lists, 0.0, lexical.len());
        }
        let mut fused: Vec<f32> = lexical
            .iter()
            .map(|score| score * (1.0 - dense_weight))
            .collect();
        for (scores, weight) in weighted {
            for ((fused, &score), &by_words) in fused.iter_mut().zip(scores).zip(lexical) {
                *fused += weight * if score.is_finite() { score } else { by_words };
            }
        }
        fused
    }

    /// Orders all requests' tools into one list.
    fn rank(
        &self,
        requests: &[RequestTexts],
        evidence: &[RequestScores],
    ) -> (Vec<Hit>, Option<NoMatch>) {
        let mut best: HashMap<usize, (f32, Vec<usize>)> = HashMap::new();
        for (number, evidence) in evidence
            .iter()
            .enumerate()
            .filter(|(_, evidence)| self.is_match(evidence))
        {
            for (tool, score) in self.top(evidence) {
                let (known, found_by) = best.entry(tool).or_insert((score, Vec::new()));
                if score > *known {
                    *known = score;
                    found_by.insert(0, number);
                } else {
                    found_by.push(number);
                }
            }
        }
        let mut found: Vec<(usize, (f32, Vec<usize>))> = best
            .into_iter()
            .filter(|(_, (score, _))| *score >= self.query.min_score)
            .collect();
        found.sort_unstable_by(|(a, (a_score, _)), (b, (b_score, _))| {
            ranked((*a_score, a), (*b_score, b))
        });
        let mut folded = HashSet::new();
        found.retain(|(tool, _)| {
            self.duplicates(*tool)
                .first()
                .is_none_or(|first| folded.insert(*first))
        });
        found.truncate(self.query.k);
        let hits: Vec<Hit> = found
            .into_iter()
            .filter_map(|(tool, (score, found_by))| {
                self.hit(tool, score, found_by, requests, evidence)
            })
            .collect();
        let no_match = hits.is_empty().then(|| self.no_match(evidence));
        (hits, no_match)
    }

    fn hit(
        &self,
        tool: usize,
        score: f32,
        found_by: Vec<usize>,
        requests: &[RequestTexts],
        evidence: &[RequestScores],
    ) -> Option<Hit> {
        let row = &self.searcher.rows[tool];
        let best = found_by.first().copied().unwrap_or(0);
        let mut matched_queries = found_by;
        matched_queries.sort_unstable();
        let explain = self
            .query
            .explain
            .then(|| explain::explain(self, tool, &requests[best], &evidence[best]));
        let others = self
            .duplicates(tool)
            .iter()
            .map(|&other| other as usize)
            .filter(|&other| other != tool);
        let also_on = others
            .filter(|&other| self.is_allowed(other))
            .map(|other| self.searcher.rows[other].id())
            .collect();
        Some(Hit {
            tool: row.tool()?,
            id: row.id(),
            score,
            matched_queries,
            also_on,
            explain,
        })
    }

    /// The best tools of one request, best first.
    fn top(&self, evidence: &RequestScores) -> Vec<(usize, f32)> {
        let matches = |tool: usize| {
            let found = evidence.fused[tool] > 0.0 || evidence.memory_scores.contains_key(&tool);
            found && self.is_allowed(tool) && !evidence.named.contains_key(&(tool as u32))
        };
        let named = evidence
            .named
            .keys()
            .map(|&tool| tool as usize)
            .filter(|&tool| self.is_allowed(tool));
        let named = named.map(|tool| (tool, evidence.scores()[tool] + evidence.name_bonus(tool)));
        let mut best = TopK::new(self.query.k);
        if self.query.fold {
            let matching = evidence
                .scores()
                .iter()
                .copied()
                .enumerate()
                .filter(|(tool, _)| matches(*tool));
            let mut scored: Vec<(usize, f32)> = matching.chain(named).collect();
            self.fold(&mut scored);
            scored
                .into_iter()
                .for_each(|(tool, score)| best.offer(tool, score));
        } else {
            named.for_each(|(tool, score)| best.offer(tool, score));
            best.offer_all(evidence.scores(), matches);
        }
        best.into_ranked()
    }

    /// Keeps of near-duplicates the best.
    fn fold(&self, scored: &mut Vec<(usize, f32)>) {
        let mut best: HashMap<u32, (usize, f32)> = HashMap::new();
        scored.retain(|&(tool, score)| {
            let Some(&first) = self.duplicates(tool).first() else {
                return true;
            };
            let known = best.entry(first).or_insert((tool, score));
            if ranked((score, tool), (known.1, known.0)).is_lt() {
                *known = (tool, score);
            }
            false
        });
        scored.extend(best.into_values());
    }

    /// A tool and its near-duplicates where they are to be folded and it has any.
    fn duplicates(&self, tool: usize) -> &[u32] {
        if self.query.fold {
            self.searcher.duplicates.of(tool as u32)
        } else {
            &[]
        }
    }

    /// False when a request's words and meaning are both strange to the catalog.
    fn is_match(&self, evidence: &RequestScores) -> bool {
        let settings = &self.searcher.settings;
        let Signals { coverage, cosine } = evidence.signals;
        let in_words = coverage
            >= if cosine.is_some() {
                settings.no_match_coverage
            } else {
                f32::MIN_POSITIVE
            };
        let in_meaning = cosine.is_some_and(|cosine| cosine >= settings.no_match_cosine);
        let confident = evidence
            .confidence()
            .is_none_or(|confidence| confidence >= self.query.min_confidence);
        !evidence.named.is_empty() || ((in_words || in_meaning) && confident)
    }

    fn no_match(&self, evidence: &[RequestScores]) -> NoMatch {
        let reason = if self.searcher.is_empty() {
            "the catalog has no tools".to_owned()
        } else if self
            .allowed
            .as_ref()
            .is_some_and(|allowed| !allowed.contains(&true))
        {
            "no tool passes the filter".to_owned()
        } else if let Some(confidence) =
            confidence(evidence).filter(|found| *found < self.query.min_confidence)
        {
            format!(
                "the confidence is {confidence:.2}, below {:.2}",
                self.query.min_confidence
            )
        } else if self.query.min_score > 0.0 {
            format!("no tool scores {} or more", self.query.min_score)
        } else {
            "no tool shares a word with the request or is near to it in meaning".to_owned()
        };
        let mut nearest: Vec<(usize, f32)> = evidence
            .iter()
            .flat_map(|evidence| self.top(evidence))
            .collect();
        nearest.sort_unstable_by(|a, b| ranked((a.1, a.0), (b.1, b.0)));
        nearest.dedup_by_key(|(tool, _)| *tool);
        let nearest = nearest
            .into_iter()
            .take(NEAREST_NAMES)
            .map(|(tool, _)| self.searcher.rows[tool].id())
            .collect();
        NoMatch { reason, nearest }
    }

    /// The place of a tool among those that may be hits, from 1.
    fn place(&self, scores: &[f32], tool: usize) -> usize {
        let score = scores[tool];
        let ahead = |(other, other_score): &(usize, &f32)| {
            self.is_allowed(*other)
                && (**other_score > score || (**other_score == score && *other < tool))
        };
        1 + scores.iter().enumerate().filter(ahead).count()
    }

    fn is_allowed(&self, tool: usize) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed[tool])
    }
}

/// When the time for a search is used up.
#[derive(Clone, Copy)]
struct Deadline {
    started: Instant,
    /// `None` for a search that may take as long as it takes.
    budget_ms: Option<f64>,
}

impl Deadline {
    fn of(effort: Effort, started: Instant) -> Self {
        let budget_ms = match effort {
            Effort::BudgetMs(budget_ms) => Some(budget_ms),
            Effort::All | Effort::Variant(_) => None,
        };
        Deadline { started, budget_ms }
    }

    fn is_over(self) -> bool {
        self.budget_ms
            .is_some_and(|budget_ms| self.started.elapsed().as_secs_f64() * 1e3 >= budget_ms)
    }

    fn missed(self) -> Degraded {
        let budget_ms = self.budget_ms.unwrap_or_default();
        let reason = format!(
            "the budget of {budget_ms} ms was used up before ranking, so the order is less precise; give more"
        );
        Degraded {
            reason,
            pending_embeddings: 0,
        }
    }
}

impl RequestTexts {
    fn new(text: &str, split: bool) -> Self {
        let text = read_part(text);
        let mut texts = vec![text.to_owned()];
        let clauses = if split {
            clauses::clauses(text)
        } else {
            Vec::new()
        };
        if clauses.len() > 1 {
            texts.extend(clauses);
        }
        RequestTexts {
            texts,
            cjk_share: text::cjk_share(text),
        }
    }

    /// Its texts, as far as they take part.
    fn of(&self, parts: Parts) -> &[String] {
        if parts.clauses {
            &self.texts
        } else {
            &self.texts[..1]
        }
    }

    /// The needs it was split into; none when it was taken whole.
    fn clauses(&self) -> &[String] {
        &self.texts[1..]
    }
}

impl RequestScores {
    /// One score per tool, without the name tier.
    fn scores(&self) -> &[f32] {
        self.reranked.as_deref().unwrap_or(&self.fused)
    }

    /// How likely one of the first five hits is right; certain for a tool that was asked for by
    /// name.
    fn confidence(&self) -> Option<f32> {
        let named = self.named.values().any(|name| *name >= NameMatch::Exact);
        if named {
            Some(1.0)
        } else {
            self.ranker_output
                .as_ref()
                .map(|ranker_output| ranker_output.confidence)
        }
    }

    fn name_bonus(&self, tool: usize) -> f32 {
        match self.named.get(&(tool as u32)) {
            None => 0.0,
            Some(NameMatch::Suffix) => 1.0,
            Some(NameMatch::Exact) => 2.0,
            Some(NameMatch::Verbatim) => 3.0,
        }
    }
}

impl Row {
    pub(crate) fn new(stored: StoredTool) -> Self {
        Row {
            stored,
            parsed: OnceLock::new(),
            facts: OnceLock::new(),
        }
    }

    /// The tool; `None` if the store held what is no tool, which its writer rules out.
    pub(crate) fn tool(&self) -> Option<Arc<Tool>> {
        self.parsed
            .get_or_init(|| self.stored.parse().ok().map(Arc::new))
            .clone()
    }

    /// What the ranker knows of the tool; read on first use, in some 50 microseconds.
    fn facts(&self) -> &ToolProfile {
        self.facts.get_or_init(|| {
            self.tool()
                .map(|tool| ToolProfile::new(&tool))
                .unwrap_or_default()
        })
    }

    fn id(&self) -> ToolId {
        self.stored.id.clone()
    }
}

/// The parts that a query's mode leaves of those it asks for.
fn asked_parts(query: &Query) -> Parts {
    match query.mode {
        Mode::Lexical => Parts {
            instant_embedders: false,
            slow_embedders: false,
            ..query.parts
        },
        _ => query.parts,
    }
}

/// The strongest signals in what the legs say; `limit` is the most that words could score.
fn signals(limit: f32, lexical: &LegScores, dense: &[LegResult]) -> Signals {
    let coverage = if limit > 0.0 {
        lexical.best.max(0.0) / limit
    } else {
        0.0
    };
    let cosine = dense
        .iter()
        .map(|result| result.scores.best)
        .reduce(f32::max);
    Signals { coverage, cosine }
}

/// The highest confidence of any request.
fn confidence(evidence: &[RequestScores]) -> Option<f32> {
    evidence
        .iter()
        .filter_map(RequestScores::confidence)
        .reduce(f32::max)
}

/// The strongest signals of any request.
fn strongest(evidence: &[RequestScores]) -> Signals {
    let stronger = |a: Signals, b: Signals| Signals {
        coverage: a.coverage.max(b.coverage),
        cosine: [a.cosine, b.cosine].into_iter().flatten().reduce(f32::max),
    };
    evidence
        .iter()
        .map(|evidence| evidence.signals)
        .reduce(stronger)
        .unwrap_or_default()
}

/// The ids of the embedders that any request was judged by.
fn contributing(evidence: &[RequestScores]) -> Vec<String> {
    let mut contributing: Vec<String> = evidence
        .iter()
        .flat_map(|evidence| &evidence.dense)
        .map(|result| result.id.clone())
        .collect();
    contributing.sort_unstable();
    contributing.dedup();
    contributing
}

/// Runs a stage and adds its time.
fn lap<T>(total_ms: &mut f64, stage: impl FnOnce() -> T) -> T {
    let clock = Instant::now();
    let result = stage();
    *total_ms += clock.elapsed().as_secs_f64() * 1e3;
    result
}
