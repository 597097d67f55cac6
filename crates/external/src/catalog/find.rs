//! Finds the candidates of a query, by one request for their numbers and one for their documents.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use toolscout_index::pushdown::{Asked, ExternalCandidates, Found, NearWord, Part, VectorsByText};
use toolscout_index::{Embedder, LexicalSettings, Searcher, ToolId};
use toolscout_state::shared::StoreError;

use super::{ExternalCatalog, ReadTool, State, words_of};
use crate::elastic::{ids, total};
use crate::layout::{Layout, at, kept_vectors};
use crate::query::{self, Passing};

/// Texts of a query, clauses included, for which tools are looked for, and tools for each of them at least.
const MAX_TEXTS: usize = 12;
const MIN_FOR_TEXT: usize = 20;
/// Tools that are least similar to a text. Scores are scaled from the least similar one of all.
const FARTHEST: usize = 8;
/// Tools that stand for those that are not found.
const SAMPLE: usize = 100;
/// Tools that are looked for by name, and by id.
const MAX_NAMED: usize = 50;
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
    /// Those that stand for the others.
    Sample,
}

/// How many tools are looked for, for one of several texts. The first is the whole request.
fn limit_of(place: usize, texts: usize, all: usize) -> usize {
    let limit = match (place, texts) {
        (_, 1) => all,
        (0, _) => all / 2,
        _ => all / 2 / (texts - 1),
    };
    limit.max(MIN_FOR_TEXT)
}

impl ExternalCatalog {
    pub(super) async fn find_tools(
        &self,
        base: &Arc<Searcher>,
        asked: Asked<'_>,
    ) -> Result<Found, StoreError> {
        let inner = &self.0;
        let state = inner.state(asked.words.patience).await?;
        // Two requests share the time.
        let limit = inner.limit(asked.words.patience.map(|patience| patience / 2));
        let searches = self.searches(&state, &asked);
        let all: Vec<Value> = searches.iter().map(|(_, search)| search.clone()).collect();
        let answers = inner.elastic.search(&all, limit).await?;
        let mut found = BTreeSet::new();
        let (mut sample, mut lacks) = (Vec::new(), None);
        let (mut passing, mut searched) = (None, false);
        for ((wanted, _), answer) in searches.iter().zip(answers) {
            match (wanted, answer) {
                (Wanted::Passing, Ok(answer)) => {
                    passing = Some((ids(&answer), total(&answer).unwrap_or(u64::MAX)));
                }
                (Wanted::Sample, Ok(answer)) => sample = ids(&answer),
                (_, Ok(answer)) => {
                    searched |= *wanted == Wanted::Best;
                    found.extend(ids(&answer));
                }
                (Wanted::Scale | Wanted::Sample, Err(failure)) => {
                    tracing::debug!(problem = failure.reason, "scores are scaled less exactly");
                }
                (Wanted::Passing | Wanted::Best, Err(failure)) => lacks = Some(failure),
            }
        }
        let most = inner.settings.candidates as u64;
        let few = passing.filter(|(_, count)| *count <= most);
        if let Some((all, _)) = few {
            found.extend(all);
        } else if !searched && let Some(failure) = lacks {
            // Nothing at all was searched, so there is no answer.
            return Err(failure.into());
        }
        sample.retain(|id| !found.contains(id));
        if found.len() as u64 >= state.sketch.total {
            sample.clear();
        }
        let lacks =
            lacks.map(|failure| format!("not all tools were looked for: {}", failure.reason));
        let found = found.into_iter().collect();
        let candidates = Candidates {
            found,
            sample,
            lacks,
        };
        self.with_documents(base, &state, asked, candidates, limit)
            .await
    }

    /// What is asked, each with what it is for.
    fn searches(&self, state: &State, asked: &Asked<'_>) -> Vec<(Wanted, Value)> {
        let (layout, probe) = (&state.layout, &asked.probe);
        let passing = Passing {
            layout,
            filter: &probe.filter,
            off: &probe.switched_off,
        };
        let passing = passing.clause();
        let most = self.0.settings.candidates;
        let mut searches = vec![(Wanted::Passing, query::all(layout, &passing, most))];
        searches.extend(self.by_words(state, asked, &passing));
        let product = self.0.elastic.product();
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
            let fields = query::vector_fields(layout, &vector.embedder, vector.vector.len());
            // A text without a known word has no direction.
            let is_zero = vector.vector.iter().all(|number| *number == 0.0);
            if *place > MAX_TEXTS || fields.is_empty() || is_zero {
                continue;
            }
            let nearest = limit_of(*place - 1, texts, most / 2);
            let near = query::by_vector(product, &fields, &vector.vector, &passing, nearest);
            searches.push((Wanted::Best, near));
            // The farthest from a vector are the nearest to its opposite.
            let opposite: Vec<f32> = vector.vector.iter().map(|number| -number).collect();
            let all = Passing {
                layout,
                filter: &Default::default(),
                off: &Default::default(),
            };
            let far = query::by_vector(product, &fields, &opposite, &all.clause(), FARTHEST);
            searches.push((Wanted::Scale, far));
        }
        for name in probe.names.iter().take(MAX_TEXTS) {
            let named = query::named(layout, name, MAX_NAMED);
            searches.extend(named.map(|search| (Wanted::Best, search)));
        }
        let by_id: Vec<ToolId> = probe.by_id.iter().take(MAX_BY_ID).cloned().collect();
        if !by_id.is_empty() {
            searches.push((Wanted::Best, query::of_ids(layout, &by_id)));
        }
        let none = Value::Bool(false);
        searches.push((Wanted::Sample, query::sample(layout, 0, SAMPLE, &none)));
        searches
    }

    fn by_words(&self, state: &State, asked: &Asked<'_>, passing: &Value) -> Vec<(Wanted, Value)> {
        let half = self.0.settings.candidates / 2;
        let mut searches = Vec::new();
        match &state.layout {
            Layout::Own(_) => {
                let texts = &asked.probe.texts[..asked.probe.texts.len().min(MAX_TEXTS)];
                let mut statistics = state.sketch.statistics();
                for term in texts.iter().flatten() {
                    let tools = state.frequency(&term.term);
                    statistics.frequencies.insert(term.term.clone(), tools);
                }
                for (place, terms) in texts.iter().enumerate() {
                    // The engines take a clause without alternatives for one that all documents match.
                    if terms.is_empty() {
                        continue;
                    }
                    let words = query::own_words(terms, &statistics);
                    let size = limit_of(place, texts.len(), half);
                    searches.push((Wanted::Best, query::by_words(words, passing, size)));
                }
            }
            Layout::Mapped(fields) => {
                let texts = &asked.words.texts[..asked.words.texts.len().min(MAX_TEXTS)];
                let near: Vec<String> = asked
                    .near_words
                    .iter()
                    .take(query::MAX_TERMS)
                    .map(|near| near.word.clone())
                    .collect();
                for (place, text) in texts.iter().enumerate() {
                    if text.own.is_empty() && text.added.is_empty() && near.is_empty() {
                        continue;
                    }
                    let words = query::mapped_words(text, &near, &fields.search);
                    let size = limit_of(place, texts.len(), half);
                    searches.push((Wanted::Best, query::by_words(words, passing, size)));
                }
            }
        }
        searches
    }

    /// Reads the documents of the candidates, and all that scoring them takes.
    async fn with_documents(
        &self,
        base: &Arc<Searcher>,
        state: &Arc<State>,
        asked: Asked<'_>,
        candidates: Candidates,
        limit: Duration,
    ) -> Result<Found, StoreError> {
        let Candidates {
            found,
            sample,
            lacks,
        } = candidates;
        let read = self.read(state, &found, limit).await?;
        let sampled = self.read(state, &sample, limit).await?;
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
