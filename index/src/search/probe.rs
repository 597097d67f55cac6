//! What tools are looked for by that may be hits of a query, where the catalog is elsewhere.

use super::request::RequestTexts;
use super::{Prepared, Searcher, requested_parts};
use crate::error::Result;
use crate::everyday::Lexicon;
use crate::exact_names::AskedName;
use crate::hit::Timings;
use crate::query::{Filter, Query};
use crate::text::{self, Term};
use crate::tool::ToolId;

/// What the tools of a query are looked for by. Whoever finds fewer tools than there are for one of
/// these should find the best.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// The terms of each text, the one that is worth most first.
    pub texts: Vec<Vec<ProbeTerm>>,
    /// The vectors of all texts.
    pub vectors: Vec<ProbeVector>,
    /// The texts that may be names.
    pub names: Vec<AskedName>,
    /// Tools that were called for similar requests, and those that the owner's words name for the
    /// query.
    pub by_id: Vec<ToolId>,
    /// Which tools may be hits.
    pub filter: Filter,
}

/// A term that tools are scored by.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeTerm {
    /// As it is indexed.
    pub term: String,
    /// What it is worth to a tool with unlimited occurrences of it.
    pub gain: f32,
}

/// The terms of a text whose frequencies have to be known.
#[derive(Clone, Debug, Default)]
pub struct TextTerms {
    /// Its own, repeats included.
    pub own: Vec<Term>,
    /// What tools may say instead of its phrases.
    pub added: Vec<Term>,
}

/// A vector that tools are scored by.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeVector {
    /// The id of the embedder.
    pub embedder: String,
    /// Of one text, of length 1.
    pub vector: Vec<f32>,
}

impl Searcher {
    /// The terms of each text that a query is searched by.
    pub fn query_terms(&self, query: &Query) -> Vec<TextTerms> {
        let requested = requested_parts(query, self.parameters(query).mode);
        let texts = query
            .texts
            .iter()
            .flat_map(|text| RequestTexts::new(text, requested).texts);
        let terms = texts.map(|text| {
            let phrases = Lexicon::bundled().phrases(&text);
            let added = phrases.iter().flat_map(|phrase| phrase.words);
            let mut added: Vec<Term> = added.cloned().collect();
            if let Some(words) = &self.owner_words {
                let found = words.synonyms(&text);
                let synonyms = found.iter().flat_map(|phrase| &phrase.synonyms);
                added.extend(synonyms.flat_map(|synonym| synonym.terms.iter().cloned()));
            }
            TextTerms {
                own: text::terms(&text),
                added,
            }
        });
        terms.collect()
    }

    /// What the tools of a query are looked for by, from a searcher without tools.
    pub(crate) fn probe_of(&self, query: &Query) -> Result<Probe> {
        query.validate()?;
        let parameters = self.parameters(query);
        let prepared = self.prepare(query, parameters, &mut None, &mut Timings::default());
        let requests = &prepared.requests;
        Ok(Probe {
            texts: self.probe_texts(requests),
            vectors: self.probe_vectors(&prepared),
            names: requests
                .iter()
                .filter_map(|request| AskedName::of(request.whole_text()))
                .collect(),
            by_id: self.tools_by_id(&prepared),
            filter: query.filter.clone(),
        })
    }

    fn probe_texts(&self, requests: &[RequestTexts]) -> Vec<Vec<ProbeTerm>> {
        let texts = requests.iter().flat_map(|request| &request.terms);
        texts
            .map(|terms| {
                let gains = self.with_words(|words| words.gains(terms));
                let mut terms: Vec<ProbeTerm> = gains
                    .into_iter()
                    .map(|(term, gain)| ProbeTerm { term, gain })
                    .collect();
                terms.sort_unstable_by(|one, other| {
                    let by_gain = other.gain.total_cmp(&one.gain);
                    by_gain.then_with(|| one.term.cmp(&other.term))
                });
                terms
            })
            .filter(|terms| !terms.is_empty())
            .collect()
    }

    fn probe_vectors(&self, prepared: &Prepared) -> Vec<ProbeVector> {
        let mut all = Vec::new();
        for (place, leg) in self.legs.iter().enumerate() {
            for number in 0..prepared.requests.len() {
                let vectors = prepared.vectors.of(place, number).unwrap_or_default();
                all.extend(vectors.iter().map(|vector| ProbeVector {
                    embedder: leg.embedder.id().to_owned(),
                    vector: vector.clone(),
                }));
            }
        }
        all
    }

    /// The tools that may become hits whatever their scores are.
    fn tools_by_id(&self, prepared: &Prepared) -> Vec<ToolId> {
        let mut tools = self.remembered(prepared);
        if let Some(words) = &self.owner_words {
            for request in &prepared.requests {
                let text = request.whole_text();
                tools.extend(words.named(text).map(|(tool, _)| tool.clone()));
                tools.extend(words.pins(text).into_iter().map(|pin| pin.tool.clone()));
            }
        }
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// The tools that the memory may add, by the requests as they are searched and as they were
    /// written.
    fn remembered(&self, prepared: &Prepared) -> Vec<ToolId> {
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.is_active()) else {
            return Vec::new();
        };
        let mut tools = Vec::new();
        for (number, request) in prepared.requests.iter().enumerate() {
            for (place, leg) in self.legs.iter().enumerate() {
                let searched = prepared.vectors.of(place, number).unwrap_or_default();
                let mut vectors: Vec<Vec<f32>> = searched.iter().take(1).cloned().collect();
                if request.is_rewritten() && leg.embedder.is_instant() {
                    let written = leg.embedder.embed_queries(&[request.whole_text()]);
                    vectors.extend(written.into_iter().flatten());
                }
                for vector in &vectors {
                    let vector = (leg.embedder.id(), leg.embedder.share(), vector.as_slice());
                    tools.extend(memory.recall(std::iter::once(vector)).into_keys());
                }
            }
        }
        tools
    }
}
