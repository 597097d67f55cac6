//! The ranker's part of a search: from fused scores to candidates, their new scores, and the
//! confidence in the answer.

use std::sync::{Arc, OnceLock};

use super::legs::{LegResult, LegScores};
use super::scores::{RankerOutput, RequestScores};
use super::{DenseLeg, RequestTexts, Search};
use crate::document::View;
use crate::embed::Languages;
use crate::hit::{Match, Reranked};
use crate::language::Language;
use crate::query::{Fusion, Mode};
use crate::ranker::features::{self, Candidates, DenseView, Feature, LegView};
use crate::ranker::leg_name;
use crate::text;
use crate::tool::ToolId;

/// The ranker's score of tools in the request's own language, from 0 for the worst candidate to 1
/// for the best. With 1, Chinese requests for English tools in a catalog of both lose .06 of nDCG@10;
/// with .8, those for Chinese tools lose as much.
const OWN_LANGUAGE_RANK: f64 = 0.95;

/// The ranker's input for one request, as it is trained on.
#[derive(Clone, Debug)]
pub struct RankerSample {
    /// The candidates' ids, in order.
    pub tools: Vec<ToolId>,
    /// Their features, one row each, end to end.
    pub rows: Vec<f32>,
    /// The signals of the formula's answer.
    pub signals: Vec<f32>,
    /// Names of the embedders that scored the request.
    pub legs: Vec<String>,
}

/// Runs the ranker on a request. Returns its output and one score per tool, from 0 to 1, without
/// the name tier. `None` where no model was trained for the legs that scored the request.
pub(super) fn rerank(
    search: &Search<'_>,
    request: &RequestTexts,
    scores: &RequestScores,
) -> Option<(RankerOutput, Vec<f32>)> {
    let ranker = Arc::clone(search.searcher.ranker.as_ref()?);
    let legs = contributing_legs(search, scores)?;
    let model = ranker.model_or_stand_in(ids(&legs))?;
    let is_calibrated = ranker.model(ids(&legs)).is_some();
    // Without the ranker's part the model still gives the confidence.
    let mix = if search.parts.ranker {
        model.mix()
    } else {
        0.0
    };
    let (candidates, forest_scores, confidence) =
        with_ranker_input(search, request, scores, &legs, |input| {
            let candidates = Candidates::measure(input);
            let mut forest_scores = model.scores(&candidates);
            keep_rank_of_own_language(search, scores, &candidates, &mut forest_scores);
            // Not scaled as `mixed` scales them: the signals are differences of plain sums.
            let mut sums = formula_scores(&candidates, scores);
            for (sum, &forest_score) in sums.iter_mut().zip(&forest_scores) {
                *sum += mix * forest_score as f32;
            }
            let signals = candidates.signals(input, &sums, &forest_scores);
            (candidates, forest_scores, model.confidence(&signals))
        });
    let by_tool = mixed(&scores.fused, &candidates, &forest_scores, mix);
    // The confidence of a model that stands in for another is that of other cosines.
    let (confidence, matched) = match is_calibrated {
        true => (Some(confidence), model.matched(confidence, scores.language)),
        false => (None, Match::Possible),
    };
    let output = RankerOutput {
        legs: ids(&legs).map(str::to_owned).collect(),
        ranker,
        candidates,
        forest_scores,
        mix,
        matched,
        confidence,
        by_tool: OnceLock::new(),
    };
    Some((output, by_tool))
}

/// True where a model was trained for the legs that scored the request.
pub(super) fn applies(search: &Search<'_>, scores: &RequestScores) -> bool {
    let Some(ranker) = &search.searcher.ranker else {
        return false;
    };
    match contributing_legs(search, scores) {
        Some(legs) => ranker.model_or_stand_in(ids(&legs)).is_some(),
        None => false,
    }
}

/// Measures a request without ranking it.
pub(super) fn sample(
    search: &Search<'_>,
    request: &RequestTexts,
    scores: &RequestScores,
) -> Option<RankerSample> {
    let legs = contributing_legs(search, scores)?;
    let (candidates, signals) = with_ranker_input(search, request, scores, &legs, |input| {
        let candidates = Candidates::measure(input);
        let fused = formula_scores(&candidates, scores);
        // No forest has scored this sample yet, so its scores are 0.
        let signals = candidates.signals(input, &fused, &vec![0.0; fused.len()]);
        (candidates, signals)
    });
    let rows = &search.searcher.rows;
    let tools = candidates.tools.iter();
    Some(RankerSample {
        tools: tools.map(|&tool| rows[tool as usize].id()).collect(),
        rows: candidates.rows,
        signals,
        legs: ids(&legs).map(leg_name).map(str::to_owned).collect(),
    })
}

/// The formula's score of each candidate.
fn formula_scores(candidates: &Candidates, scores: &RequestScores) -> Vec<f32> {
    let tools = candidates.tools.iter();
    tools.map(|&tool| scores.fused[tool as usize]).collect()
}

impl RankerOutput {
    /// One score per tool, without the memory's part; `fused` are the formula's scores of the same
    /// request.
    pub(super) fn scores(&self, fused: &[f32]) -> &[f32] {
        self.by_tool
            .get_or_init(|| mixed(fused, &self.candidates, &self.forest_scores, self.mix))
    }

    /// How the ranker moved a hit. `None` where it took no part or the hit was no candidate.
    pub(super) fn explain(
        &self,
        search: &Search<'_>,
        scores: &RequestScores,
        tool: usize,
    ) -> Option<Reranked> {
        if self.mix == 0.0 {
            return None;
        }
        let candidate = self.candidates.tools.binary_search(&(tool as u32)).ok()?;
        let width = Feature::ALL.len();
        let row = &self.candidates.rows[candidate * width..(candidate + 1) * width];
        let legs = self.legs.iter().map(String::as_str);
        let model = self.ranker.model_or_stand_in(legs)?;
        Some(Reranked {
            before: search.rank_of(&scores.fused, tool),
            after: search.rank_of(self.scores(&scores.fused), tool),
            score: self.forest_scores[candidate] as f32,
            reasons: model.reasons(row),
        })
    }
}

type ContributingLeg<'a> = (&'a DenseLeg, &'a LegResult);

/// The dense legs that scored the request and have vectors of every tool. `None` where the ranker
/// takes no part.
fn contributing_legs<'a>(
    search: &Search<'a>,
    scores: &'a RequestScores,
) -> Option<Vec<ContributingLeg<'a>>> {
    if search.mode == Mode::Dense || search.parameters.fusion == Fusion::Rrf {
        return None;
    }
    let mut contributing = Vec::new();
    for result in &scores.dense {
        let Some(leg) = search.searcher.leg_of(result) else {
            continue;
        };
        // The forests are trained on legs that know English.
        let knows_english = leg.embedder.languages() != Languages::OtherThanEnglish;
        if scores.dense.len() > 1 && !knows_english {
            continue;
        }
        // In a leg that is still being embedded, tools without a vector would look like bad
        // matches.
        if leg.pending == 0 {
            contributing.push((leg, result));
        }
    }
    Some(contributing)
}

fn ids<'a>(legs: &'a [ContributingLeg<'_>]) -> impl Iterator<Item = &'a str> + Clone {
    legs.iter().map(|(_, result)| result.id.as_str())
}

/// Gives the tools in the language of a request that is not English nearly the best score: the
/// forests are trained on English, and rank what was translated.
fn keep_rank_of_own_language(
    search: &Search<'_>,
    scores: &RequestScores,
    candidates: &Candidates,
    forest_scores: &mut [f64],
) {
    if scores.language == Language::English {
        return;
    }
    let (lowest, highest) = bounds(forest_scores);
    let own = lowest + OWN_LANGUAGE_RANK * (highest - lowest);
    for (&tool, score) in candidates.tools.iter().zip(forest_scores) {
        if search.searcher.languages.by_tool[tool as usize] == scores.language {
            *score = own;
        }
    }
}

/// Calls `run` with the data that features are computed from.
fn with_ranker_input<T>(
    search: &Search<'_>,
    request: &RequestTexts,
    scores: &RequestScores,
    legs: &[ContributingLeg<'_>],
    run: impl FnOnce(&features::RankerInput<'_>) -> T,
) -> T {
    let rows = &search.searcher.rows;
    let instant = legs.iter().find(|(leg, _)| leg.embedder.is_instant());
    let slow = legs.iter().find(|(leg, _)| !leg.embedder.is_instant());
    let (instant_cosines, slow_cosines) = (instant.map(view_cosines), slow.map(view_cosines));
    let (whole, clauses) = (&request.terms[0], &request.terms[1..]);
    let terms = whole.terms().map(str::to_owned);
    let terms: Vec<(String, f32)> = terms.zip(scores.gains.iter().copied()).collect();
    let mut clause_terms: Vec<Vec<&str>> = Vec::with_capacity(clauses.len());
    for clause in clauses {
        clause_terms.push(clause.terms().collect());
    }
    let mut added_terms: Vec<Vec<&str>> = Vec::with_capacity(whole.added.len());
    for added in &whole.added {
        added_terms.push(added.words.iter().map(|word| word.term.as_str()).collect());
    }
    run(&features::RankerInput {
        text: request.ranked_text(),
        clause_texts: request.ranked_clauses(),
        clauses: &clause_terms,
        terms: &terms,
        added: &added_terms,
        unknown: whole.unknown(),
        limit: scores.limit,
        tools: search.searcher.catalog_len(),
        sample: search.searcher.sample.as_ref(),
        rarities: search.searcher.with_words(|words| words.rarities()),
        lexical: scores.lexical.view(),
        table: dense_view(instant, instant_cosines.as_ref()),
        model: dense_view(slow, slow_cosines.as_ref()),
        fused: &scores.fused,
        allowed: &|tool| search.is_allowed(tool),
        tool_words: &|tool| rows[tool].words(),
        server: &|tool| match rows[tool].stored.id.server() {
            "" => None,
            server => Some(text::term_hash(server)),
        },
    })
}

fn dense_view<'a, F: Fn(usize) -> f32>(
    leg: Option<&ContributingLeg<'a>>,
    cosines: Option<&'a [F; 3]>,
) -> Option<DenseView<'a>> {
    let [text, name, description] = cosines?;
    Some(DenseView {
        leg: leg?.1.scores.view(),
        text_cosine: text,
        name_cosine: name,
        description_cosine: description,
    })
}

/// Functions from tools to the cosines of the request with their whole text, their name and their
/// description.
fn view_cosines<'a>((leg, result): &ContributingLeg<'a>) -> [impl Fn(usize) -> f32 + use<'a>; 3] {
    let (leg, result) = (*leg, *result);
    [View::Everything, View::Name, View::Description].map(|view| cosine(leg, result, view))
}

/// A function from tools to the cosine of one of their views; 0 where the leg does not embed such
/// views, or lacks the tool's.
fn cosine<'a>(
    leg: &'a DenseLeg,
    result: &'a LegResult,
    view: View,
) -> impl Fn(usize) -> f32 + use<'a> {
    let views = leg.embedder.views();
    let number = views.iter().position(|other| *other == view);
    let cosine = number.map(|number| {
        let vectors = leg.vectors.get();
        vectors.view_cosine(&result.query, number, views.len())
    });
    move |tool| match &cosine {
        Some(cosine) => cosine(tool).unwrap_or(0.0),
        None => 0.0,
    }
}

impl LegScores {
    fn view(&self) -> LegView<'_> {
        LegView {
            raw: self.raw(),
            by_text: &self.by_text,
        }
    }
}

/// The formula's scores plus the forest's with their weight, scaled so that scores stay from 0 to
/// 1. A tool that is no candidate gets as much from the forest as the worst candidate.
fn mixed(fused: &[f32], candidates: &Candidates, forest_scores: &[f64], mix: f32) -> Vec<f32> {
    let (lowest, highest) = bounds(forest_scores);
    // False without candidates too: `lowest` is then infinite and `highest` minus infinity.
    let span = if lowest < highest {
        mix * (highest - lowest) as f32
    } else {
        0.0
    };
    let scale = 1.0 / (1.0 + span);
    let mut scores = fused.to_vec();
    for score in &mut scores {
        *score *= scale;
    }
    for (&tool, forest_score) in candidates.tools.iter().zip(forest_scores) {
        let score = &mut scores[tool as usize];
        // Rounding could put the best a hair above 1.
        *score = (*score + mix * (forest_score - lowest) as f32 * scale).min(1.0);
    }
    scores
}

/// The lowest and the highest score; infinity and minus infinity without any.
fn bounds(forest_scores: &[f64]) -> (f64, f64) {
    let (mut lowest, mut highest) = (f64::INFINITY, f64::NEG_INFINITY);
    for &score in forest_scores {
        lowest = lowest.min(score);
        highest = highest.max(score);
    }
    (lowest, highest)
}
