//! Finds the candidates of a query, by one request for their numbers and one for their documents.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use toolscout_index::pushdown::{
    Asked, CatalogStatistics, ExternalCandidates, FARTHEST, Found, MAX_NAMED, MAX_TEXTS, NearWord,
    Part, SwitchedOff, VectorsByText, limit_of_text,
};
use toolscout_index::{Embedder, Filter, LexicalSettings, Searcher, ToolId};
use toolscout_state::shared::StoreError;

use super::{ExternalCatalog, ReadTool, State, words_of};
use crate::deadline::Deadline;
use crate::engine::{Ask, MAX_TERMS, Passing, What};
use crate::layout::{Layout, at, kept_vectors};

/// Tools that are looked for by id.
const MAX_BY_ID: usize = 200;

/// What a search looks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All that pass the filter, if they are few.
    Passing,
    /// Those that may be hits.
    Best,
    /// Those that scale the scores. Without them an answer is only less exact.
    Scale,
}

impl ExternalCatalog {
    pub(super) async fn find_tools(
        &self,
        base: &Arc<Searcher>,
        asked: Asked<'_>,
    ) -> Result<Found, StoreError> {
        let inner = &self.0;
        // The requests share the time.
        let deadline = inner.deadline(asked.words.patience);
        let state = inner.state(asked.words.patience).await?;
        // What is found has to be read within the same time.
        let limit = match asked.words.patience {
            Some(_) => deadline.left() / 2,
            None => deadline.left(),
        };
        let answers = {
            let looked_for = LookedFor::of(&state, &asked);
            let asks = self.asks(&state, &asked, &looked_for);
            let (wanted, asks): (Vec<Wanted>, Vec<Ask<'_>>) = asks.into_iter().unzip();
            let answers = inner.engine.find(&state.layout, &asks, limit).await?;
            wanted.into_iter().zip(answers)
        };
        let mut found = BTreeSet::new();
        let mut lacks = None;
        let (mut passing, mut searched) = (None, false);
        for (wanted, answer) in answers {
            match (wanted, answer) {
                (Wanted::Passing, Ok(hits)) => {
                    passing = Some((hits.ids, hits.total.unwrap_or(u64::MAX)));
                }
                (_, Ok(hits)) => {
                    searched |= wanted == Wanted::Best;
                    found.extend(hits.ids);
                }
                (Wanted::Scale, Err(failure)) => {
                    tracing::debug!(problem = failure.reason, "scores are scaled less exactly");
                }
                (Wanted::Passing | Wanted::Best, Err(failure)) => lacks = Some(failure),
            }
        }
        let most = inner.settings.candidates as u64;
        let few = passing.filter(|(_, count)| *count <= most);
        if let Some((all, _)) = few {
            found.extend(all);
            // Nothing that may be a hit is missing.
            lacks = None;
        } else if (!searched || found.is_empty())
            && let Some(failure) = lacks
        {
            // That there are no hits cannot be told from a part of the answers, some of which need no engine.
            return Err(failure.into());
        }
        let mut sample = Vec::new();
        if (found.len() as u64) < state.sketch.total {
            let others = state.sample.iter().filter(|id| !found.contains(*id));
            sample.extend(others.cloned());
        }
        let lacks =
            lacks.map(|failure| format!("not all tools were looked for: {}", failure.reason));
        let found = found.into_iter().collect();
        let candidates = Candidates {
            found,
            sample,
            lacks,
        };
        self.with_documents(base, &state, asked, candidates, deadline)
            .await
    }

    /// What is asked, each with what it is for.
    fn asks<'a>(
        &self,
        state: &State,
        asked: &'a Asked<'_>,
        looked_for: &'a LookedFor,
    ) -> Vec<(Wanted, Ask<'a>)> {
        let probe = &asked.probe;
        let passing = Passing {
            filter: &probe.filter,
            off: &probe.switched_off,
        };
        let all = Passing {
            filter: &looked_for.all,
            off: &looked_for.none_off,
        };
        let most = self.0.settings.candidates;
        let mut asks = Vec::new();
        let mut add = |wanted: Wanted, what: What<'a>, passing: Passing<'a>, size: usize| {
            asks.push((
                wanted,
                Ask {
                    what,
                    passing,
                    size,
                },
            ));
        };
        add(Wanted::Passing, What::All, passing, most);
        for (what, size) in by_words(state, asked, looked_for, most / 2) {
            add(Wanted::Best, what, passing, size);
        }
        let mut of_embedder: HashMap<&str, usize> = HashMap::new();
        // An embedder has a vector for each text, so the number of its vectors is that of the texts.
        for vector in &probe.vectors {
            *of_embedder.entry(&vector.embedder).or_default() += 1;
        }
        let mut places: HashMap<&str, usize> = HashMap::new();
        for vector in &probe.vectors {
            let place = places.entry(&vector.embedder).or_default();
            let texts = of_embedder[vector.embedder.as_str()].min(MAX_TEXTS);
            *place += 1;
            // A text without a known word has no direction.
            let is_zero = vector.vector.iter().all(|number| *number == 0.0);
            if *place > MAX_TEXTS || is_zero {
                continue;
            }
            let nearest = limit_of_text(*place - 1, texts, most / 2);
            let near = |vector: Vec<f32>, embedder| What::Near { embedder, vector };
            // The farthest from a vector are the nearest to its opposite.
            let opposite: Vec<f32> = vector.vector.iter().map(|number| -number).collect();
            let embedder = vector.embedder.as_str();
            add(
                Wanted::Best,
                near(vector.vector.clone(), embedder),
                passing,
                nearest,
            );
            add(Wanted::Scale, near(opposite, embedder), all, FARTHEST);
        }
        for name in probe.names.iter().take(MAX_TEXTS) {
            add(Wanted::Best, What::Named(name), all, MAX_NAMED);
        }
        let by_id = &probe.by_id[..probe.by_id.len().min(MAX_BY_ID)];
        if !by_id.is_empty() {
            add(Wanted::Best, What::Ids(by_id), all, by_id.len());
        }
        asks
    }

    /// Reads the documents of the candidates, and all that scoring them takes.
    async fn with_documents(
        &self,
        base: &Arc<Searcher>,
        state: &Arc<State>,
        asked: Asked<'_>,
        candidates: Candidates,
        deadline: Deadline,
    ) -> Result<Found, StoreError> {
        let Candidates {
            found,
            sample,
            lacks,
        } = candidates;
        let read = self.read(state, &found, deadline).await?;
        // Scores are only scaled less exactly without them.
        let sampled = self.read(state, &sample, deadline).await;
        let sampled = sampled.unwrap_or_default();
        // The vectors of instant embedders are computed anew, which takes less than reading them.
        let slow: Vec<Arc<dyn Embedder>> = base
            .embedders()
            .filter(|embedder| !embedder.is_instant())
            .cloned()
            .collect();
        let mut terms: Vec<String> = words_of(asked.words.texts).into_keys().collect();
        terms.extend(asked.near_words.iter().map(NearWord::term));
        let (lexical, state) = (base.settings().lexical, Arc::clone(state));
        let near_words = asked.near_words;
        self.on_cpu(move || {
            let mut statistics = state.sketch.statistics();
            let mut vectors = HashMap::new();
            let texts = TextVectors::of(&state.layout, &slow, read.iter().chain(&sampled));
            let part = part(read, sampled, lexical);
            for term in terms {
                let tools = state.frequency(&term);
                statistics.frequencies.insert(term, tools);
            }
            for (term, of_part) in part.frequencies() {
                // What was counted in a sample may be less than what is here.
                let tools = state.frequency(term).max(of_part);
                statistics.frequencies.insert(term.to_owned(), tools);
            }
            statistics.tools = statistics.tools.max(part.len() as u64);
            for embedder in &slow {
                vectors.insert(
                    embedder.id().to_owned(),
                    texts.by_text(embedder.as_ref(), &part),
                );
            }
            statistics.near_words = near_words;
            Found {
                part,
                statistics,
                vectors,
                generation: state.generation,
                lacks,
            }
        })
        .await
    }
}

/// What the searches of a query share.
struct LookedFor {
    statistics: CatalogStatistics,
    /// Words that misspelt ones may be.
    near: Vec<String>,
    /// A filter that everything passes.
    all: Filter,
    none_off: SwitchedOff,
}

impl LookedFor {
    fn of(state: &State, asked: &Asked<'_>) -> Self {
        let mut statistics = state.sketch.statistics();
        for term in asked.probe.texts.iter().take(MAX_TEXTS).flatten() {
            let tools = state.frequency(&term.term);
            statistics.frequencies.insert(term.term.clone(), tools);
        }
        let near = asked.near_words.iter().take(MAX_TERMS);
        LookedFor {
            statistics,
            near: near.map(|near| near.word.clone()).collect(),
            all: Filter::default(),
            none_off: SwitchedOff::default(),
        }
    }
}

/// The searches by words, each with the number of documents that are wanted; `all` of all together.
fn by_words<'a>(
    state: &State,
    asked: &'a Asked<'_>,
    looked_for: &'a LookedFor,
    all: usize,
) -> Vec<(What<'a>, usize)> {
    let mut searches = Vec::new();
    match &state.layout {
        Layout::Own(_) => {
            let texts = &asked.probe.texts[..asked.probe.texts.len().min(MAX_TEXTS)];
            for (place, terms) in texts.iter().enumerate() {
                let what = What::Terms {
                    terms,
                    statistics: &looked_for.statistics,
                };
                searches.push((what, limit_of_text(place, texts.len(), all)));
            }
        }
        Layout::Mapped(_) => {
            let texts = &asked.words.texts[..asked.words.texts.len().min(MAX_TEXTS)];
            for (place, text) in texts.iter().enumerate() {
                let what = What::Words {
                    text,
                    further: &looked_for.near,
                };
                searches.push((what, limit_of_text(place, texts.len(), all)));
            }
        }
    }
    searches
}

/// The documents of candidates.
struct Candidates {
    found: Vec<String>,
    sample: Vec<String>,
    lacks: Option<String>,
}

fn part(read: Vec<ReadTool>, sampled: Vec<ReadTool>, lexical: LexicalSettings) -> Part {
    let mut tools = Vec::with_capacity(read.len() + sampled.len());
    tools.extend(read.into_iter().map(|tool| tool.into_part(false)));
    tools.extend(sampled.into_iter().map(|tool| tool.into_part(true)));
    Part::new(tools, &lexical.weights)
}

/// The vectors that documents have for embedders that are too slow to compute them now, by embedder and tool.
struct TextVectors(HashMap<String, HashMap<ToolId, Vec<Vec<f32>>>>);

impl TextVectors {
    fn of<'a>(
        layout: &Layout,
        embedders: &[Arc<dyn Embedder>],
        tools: impl Iterator<Item = &'a ReadTool> + Clone,
    ) -> Self {
        let mut all = HashMap::new();
        for embedder in embedders {
            let mut by_tool = HashMap::new();
            for read in tools.clone() {
                by_tool.insert(
                    read.tool.id.clone(),
                    vectors(layout, embedder.as_ref(), &read.source),
                );
            }
            all.insert(embedder.id().to_owned(), by_tool);
        }
        TextVectors(all)
    }

    fn by_text(&self, embedder: &dyn Embedder, part: &Part) -> VectorsByText {
        let mut by_text = VectorsByText::new();
        let by_tool = self.0.get(embedder.id());
        for (id, texts) in part.texts_by_tool(embedder) {
            let Some(vectors) = by_tool.and_then(|by_tool| by_tool.get(id)) else {
                continue;
            };
            for (place, text) in texts.into_iter().enumerate() {
                // A document that somebody else wrote has one vector, which stands for each view.
                if let Some(vector) = vectors.get(place).or(vectors.last()) {
                    by_text.insert(text, vector.clone());
                }
            }
        }
        by_text
    }
}

fn vectors(layout: &Layout, embedder: &dyn Embedder, source: &Value) -> Vec<Vec<f32>> {
    match layout {
        Layout::Own(own) => {
            let mut kept = own.embedders.iter();
            let kept = kept
                .find(|kept| kept.id == embedder.id() && kept.dimensions == embedder.dimensions());
            kept.map(|kept| kept_vectors(source, kept))
                .unwrap_or_default()
        }
        Layout::Mapped(fields) => {
            let is_it = fields.vector_embedder.as_deref() == Some(embedder.id());
            let field = fields.vector.as_ref().filter(|_| is_it);
            let numbers = field.and_then(|field| at(source, field).as_array());
            let numbers = numbers.map(Vec::as_slice).unwrap_or_default();
            let vector: Vec<f32> = numbers
                .iter()
                .filter_map(Value::as_f64)
                .map(|number| number as f32)
                .collect();
            match vector.len() == embedder.dimensions() {
                true => vec![of_length_one(vector)],
                false => Vec::new(),
            }
        }
    }
}

fn of_length_one(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt();
    if length > 0.0 {
        for number in &mut vector {
            *number /= length;
        }
    }
    vector
}
