//! What tools are looked for by that may be hits of a query, where the catalog is elsewhere.

use std::collections::BTreeMap;

use super::request::RequestTexts;
use super::{Prepared, Searcher, requested_parts};
use crate::error::Result;
use crate::everyday::Lexicon;
use crate::exact_names::AskedName;
use crate::hit::Timings;
use crate::owner_words::OFF;
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
    /// Of those, the ones that the owner has switched off. No search finds them.
    pub switched_off: SwitchedOff,
}

/// What the owner has switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchedOff {
    /// The ids of tools.
    pub tools: Vec<String>,
    /// Servers with all of their tools.
    pub servers: Vec<String>,
    /// Tags: a tool with one of them is switched off.
    pub tags: Vec<String>,
}

impl SwitchedOff {
    /// True if nothing is switched off.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty() && self.tags.is_empty()
    }
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
        let mut all = Vec::new();
        for text in &query.texts {
            for text in RequestTexts::new(text, requested).texts {
                all.push(TextTerms {
                    own: text::terms(&text),
                    added: self.added_terms(&text),
                });
            }
        }
        all
    }

    /// What tools may say instead of the phrases of a text: by everyday phrases and by the owner.
    fn added_terms(&self, text: &str) -> Vec<Term> {
        let mut added = Vec::new();
        for phrase in Lexicon::bundled().phrases(text) {
            added.extend_from_slice(phrase.words);
        }
        if let Some(words) = &self.owner_words {
            for phrase in words.synonyms(text) {
                for synonym in phrase.synonyms {
                    added.extend(synonym.terms);
                }
            }
        }
        added
    }

    /// What the tools of a query are looked for by, from a searcher without tools.
    pub(crate) fn probe_of(&self, query: &Query) -> Result<Probe> {
        query.validate()?;
        let parameters = self.parameters(query);
        let prepared = self.prepare(query, parameters, &mut None, &mut Timings::default());
        let mut names = Vec::new();
        for request in &prepared.requests {
            names.extend(AskedName::of(request.whole_text()));
        }
        Ok(Probe {
            texts: self.probe_texts(&prepared.requests),
            vectors: self.probe_vectors(&prepared),
            names,
            by_id: self.tools_by_id(&prepared),
            filter: query.filter.clone(),
            switched_off: self.all_switched_off(),
        })
    }

    fn all_switched_off(&self) -> SwitchedOff {
        let Some(words) = self.owner_words() else {
            return SwitchedOff::default();
        };
        SwitchedOff {
            tools: off(&words.boosts.tools),
            servers: off(&words.boosts.servers),
            tags: off(&words.boosts.tags),
        }
    }

    fn probe_texts(&self, requests: &[RequestTexts]) -> Vec<Vec<ProbeTerm>> {
        let mut texts = Vec::new();
        for request in requests {
            for terms in &request.terms {
                let mut found = Vec::new();
                for (term, gain) in self.with_words(|words| words.gains(terms)) {
                    found.push(ProbeTerm { term, gain });
                }
                // Equal ones by term, so that the order is always the same.
                found.sort_unstable_by(|one, other| {
                    let by_gain = other.gain.total_cmp(&one.gain);
                    by_gain.then(one.term.cmp(&other.term))
                });
                if !found.is_empty() {
                    texts.push(found);
                }
            }
        }
        texts
    }

    fn probe_vectors(&self, prepared: &Prepared) -> Vec<ProbeVector> {
        let mut all = Vec::new();
        for (place, leg) in self.legs.iter().enumerate() {
            for number in 0..prepared.requests.len() {
                for vector in prepared.vectors.of(place, number).unwrap_or_default() {
                    all.push(ProbeVector {
                        embedder: leg.embedder.id().to_owned(),
                        vector: vector.clone(),
                    });
                }
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
                for (tool, _) in words.named(text) {
                    tools.push(tool.clone());
                }
                for pin in words.pins(text) {
                    tools.push(pin.tool.clone());
                }
            }
        }
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// The tools that the memory may add, by the requests as they are searched and as they were
    /// written.
    fn remembered(&self, prepared: &Prepared) -> Vec<ToolId> {
        let Some(memory) = &self.memory else {
            return Vec::new();
        };
        if !memory.is_active() {
            return Vec::new();
        }
        let mut tools = Vec::new();
        for (number, request) in prepared.requests.iter().enumerate() {
            for (place, leg) in self.legs.iter().enumerate() {
                let searched = prepared.vectors.of(place, number).unwrap_or_default();
                // The memory remembers whole requests, which are the first texts.
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

/// The names whose factor switches them off.
fn off(factors: &BTreeMap<String, f32>) -> Vec<String> {
    let off = factors.iter().filter(|(_, factor)| **factor == OFF);
    off.map(|(name, _)| name.clone()).collect()
}
