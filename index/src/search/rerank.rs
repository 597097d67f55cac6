//! The ranker's part of a search: from the evidence to candidates, their new scores, and the
//! confidence in the answer.

use std::sync::Arc;

use super::{DenseLeg, LegResult, LegScores, RequestScores, RequestTexts, Search};
use crate::document::View;
use crate::hit::Reranked;
use crate::query::{Fusion, Mode};
use crate::ranker::Ranker;
use crate::ranker::features::{self, Candidates, DenseView, Feature, LegView};
use crate::text;

/// What the ranker says of one request.
pub(super) struct RankerOutput {
    ranker: Arc<Ranker>,
    legs: Vec<String>,
    candidates: Candidates,
    /// What the forest gives each candidate.
    given: Vec<f64>,
    /// Its weight; 0 where the formula decides alone.
    mix: f32,
    /// How likely one of the first five hits is right.
    pub(super) confidence: f32,
}

/// What is sample of a request: the columns of training.
#[derive(Clone, Debug)]
pub struct RankerSample {
    /// The candidates' ids, in order.
    pub tools: Vec<crate::tool::ToolId>,
    /// Their features, a row each, end to end.
    pub rows: Vec<f32>,
    /// What is sample of the formula's answer.
    pub signals: Vec<f32>,
    /// Names of the embedders that were contributing.
    pub legs: Vec<String>,
}

/// Asks the ranker about a request, for its ranker_output and one score per tool, from 0 to 1, without
/// the name tier. `None` where none was trained for the legs that were contributing.
pub(super) fn rerank(
    search: &Search<'_>,
    request: &RequestTexts,
    evidence: &RequestScores,
) -> Option<(RankerOutput, Vec<f32>)> {
    let ranker = Arc::clone(search.searcher.ranker.as_ref()?);
    let legs = contributing(search, evidence)?;
    let model = ranker.model(ids(&legs))?;
    let mix = if search.parts.ranker {
        model.mix()
    } else {
        0.0
    };
    let (candidates, given, confidence) =
        with_columns(search, request, evidence, &legs, |columns| {
            let candidates = Candidates::measure(columns);
            let given = model.scores(&candidates);
            let scores: Vec<f32> = candidates
                .tools
                .iter()
                .zip(&given)
                .map(|(&tool, &given)| evidence.fused[tool as usize] + mix * given as f32)
                .collect();
            let confidence = model.confidence(&candidates.signals(columns, &scores, &given));
            (candidates, given, confidence)
        });
    let scores = mixed(&evidence.fused, &candidates, &given, mix);
    let legs = legs.iter().map(|(_, result)| result.id.clone()).collect();
    Some((
        RankerOutput {
            ranker,
            legs,
            candidates,
            given,
            mix,
            confidence,
        },
        scores,
    ))
}

/// True where a ranker was trained for the legs that take part.
pub(super) fn applies(search: &Search<'_>, evidence: &RequestScores) -> bool {
    let model = |legs: Vec<ContributingLeg<'_>>| {
        search
            .searcher
            .ranker
            .as_ref()?
            .model(ids(&legs))
            .map(|_| ())
    };
    contributing(search, evidence).and_then(model).is_some()
}

/// Measures a request without judging it.
pub(super) fn sample(
    search: &Search<'_>,
    request: &RequestTexts,
    evidence: &RequestScores,
) -> Option<RankerSample> {
    let legs = contributing(search, evidence)?;
    let (candidates, signals) = with_columns(search, request, evidence, &legs, |columns| {
        let candidates = Candidates::measure(columns);
        let scores: Vec<f32> = candidates
            .tools
            .iter()
            .map(|&tool| evidence.fused[tool as usize])
            .collect();
        let signals = candidates.signals(columns, &scores, &vec![0.0; scores.len()]);
        (candidates, signals)
    });
    let tools = candidates
        .tools
        .iter()
        .map(|&tool| search.searcher.rows[tool as usize].id())
        .collect();
    let legs = ids(&legs)
        .map(|id| crate::ranker::leg_name(id).to_owned())
        .collect();
    Some(RankerSample {
        tools,
        rows: candidates.rows,
        signals,
        legs,
    })
}

impl RankerOutput {
    /// What the ranker made of a hit.
    pub(super) fn explain(
        &self,
        search: &Search<'_>,
        evidence: &RequestScores,
        tool: usize,
    ) -> Option<Reranked> {
        if self.mix == 0.0 {
            return None;
        }
        let place = self.candidates.tools.binary_search(&(tool as u32)).ok()?;
        let width = Feature::ALL.len();
        let row = &self.candidates.rows[place * width..(place + 1) * width];
        let reasons = self
            .ranker
            .model(self.legs.iter().map(String::as_str))
            .map(|model| model.reasons(row));
        Some(Reranked {
            before: search.place(&evidence.fused, tool),
            after: search.place(evidence.scores(), tool),
            score: self.given[place] as f32,
            reasons: reasons.unwrap_or_default(),
        })
    }
}

type ContributingLeg<'a> = (&'a DenseLeg, &'a LegResult);

/// The dense legs that were contributing and know every tool; `None` where the ranker has no say.
fn contributing<'a>(
    search: &Search<'a>,
    evidence: &'a RequestScores,
) -> Option<Vec<ContributingLeg<'a>>> {
    if search.mode == Mode::Dense || search.query.fusion == Fusion::Rrf {
        return None;
    }
    let leg_of = |result: &&LegResult| {
        search
            .searcher
            .legs
            .iter()
            .find(|leg| leg.embedder.id() == result.id)
    };
    // Beside a leg that is being embedded, tools it does not know yet would look like bad ones.
    let contributing = evidence
        .dense
        .iter()
        .filter_map(|result| Some((leg_of(&result)?, result)));
    Some(contributing.filter(|(leg, _)| leg.pending == 0).collect())
}

fn ids<'a>(legs: &'a [ContributingLeg<'_>]) -> impl Iterator<Item = &'a str> {
    legs.iter().map(|(_, result)| result.id.as_str())
}

/// Hands over all that features are sample from.
fn with_columns<T>(
    search: &Search<'_>,
    request: &RequestTexts,
    evidence: &RequestScores,
    legs: &[ContributingLeg<'_>],
    run: impl FnOnce(&features::RankerInput<'_>) -> T,
) -> T {
    let rows = &search.searcher.rows;
    let instant = legs.iter().find(|(leg, _)| leg.embedder.is_instant());
    let slow = legs.iter().find(|(leg, _)| !leg.embedder.is_instant());
    let (instant_cosines, slow_cosines) = (instant.map(Cosines::new), slow.map(Cosines::new));
    let terms = evidence.terms[0]
        .terms()
        .map(str::to_owned)
        .zip(evidence.gains.iter().copied());
    run(&features::RankerInput {
        text: &request.texts[0],
        clause_texts: if evidence.terms.len() > 1 {
            &request.texts[1..]
        } else {
            &[]
        },
        clauses: &evidence.terms[1..]
            .iter()
            .map(|terms| terms.terms().collect())
            .collect::<Vec<_>>(),
        terms: &terms.collect::<Vec<_>>(),
        unknown: evidence.terms[0].unknown(),
        limit: evidence.limit,
        rarities: search.searcher.ask_words(|words| words.rarities()),
        lexical: evidence.lexical.view(),
        table: dense_view(instant, instant_cosines.as_ref()),
        model: dense_view(slow, slow_cosines.as_ref()),
        fused: &evidence.fused,
        allowed: &|tool| search.is_allowed(tool),
        facts: &|tool| rows[tool].facts(),
        server: &|tool| {
            let server = rows[tool].stored.id.server();
            (!server.is_empty()).then(|| text::term_hash(server))
        },
    })
}

fn dense_view<'a>(
    leg: Option<&ContributingLeg<'a>>,
    cosines: Option<&'a Cosines<'a>>,
) -> Option<DenseView<'a>> {
    let cosines = cosines?;
    let leg = leg?.1.scores.view();
    Some(DenseView {
        leg,
        text_cosine: &*cosines.text,
        name_cosine: &*cosines.name,
        description_cosine: &*cosines.description,
    })
}

/// Cosines of a request with single views of tools.
struct Cosines<'a> {
    text: Box<dyn Fn(usize) -> f32 + 'a>,
    name: Box<dyn Fn(usize) -> f32 + 'a>,
    description: Box<dyn Fn(usize) -> f32 + 'a>,
}

impl<'a> Cosines<'a> {
    fn new((leg, result): &ContributingLeg<'a>) -> Self {
        let (leg, result) = (*leg, *result);
        let cosine = |view| cosine(leg, result, view);
        Cosines {
            text: cosine(View::Everything),
            name: cosine(View::Name),
            description: cosine(View::Description),
        }
    }
}

/// Tells the cosine of one view of a tool; 0 where the leg does not embed such views, or not this
/// tool's.
fn cosine<'a>(
    leg: &'a DenseLeg,
    result: &'a LegResult,
    view: View,
) -> Box<dyn Fn(usize) -> f32 + 'a> {
    let views = leg.embedder.views();
    let Some(place) = views.iter().position(|other| *other == view) else {
        return Box::new(|_| 0.0);
    };
    let cosine = leg.vectors.view_cosine(&result.query, place, views.len());
    Box::new(move |tool| cosine(tool).unwrap_or(0.0))
}

impl LegScores {
    fn view(&self) -> LegView<'_> {
        LegView {
            raw: &self.raw,
            by_text: &self.by_text,
        }
    }
}

/// Formula and ranker together, scaled so that scores stay from 0 to 1. What is no candidate gets
/// as much from the ranker as the worst that is one.
fn mixed(fused: &[f32], candidates: &Candidates, given: &[f64], mix: f32) -> Vec<f32> {
    let lowest = given.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = given.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let span = if lowest < highest {
        mix * (highest - lowest) as f32
    } else {
        0.0
    };
    let scale = 1.0 / (1.0 + span);
    let mut scores: Vec<f32> = fused.iter().map(|score| score * scale).collect();
    for (&tool, given) in candidates.tools.iter().zip(given) {
        let score = &mut scores[tool as usize];
        // Rounding could put the best a hair above 1.
        *score = (*score + mix * (given - lowest) as f32 * scale).min(1.0);
    }
    scores
}
