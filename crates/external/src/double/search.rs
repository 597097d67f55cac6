//! The searches of the double: the clauses that toolscout sends, scored as Lucene does.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use toolscout_base::config::ExternalProduct;

use super::{Answer, Index, MAX_WINDOW, error};
use crate::layout::at;

/// The parameters of BM25 that an index has by default.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// What was read of the documents of an index, by field.
#[derive(Default)]
pub struct Read {
    words: Mutex<HashMap<String, Arc<FieldWords>>>,
    vectors: Mutex<HashMap<String, Arc<VectorsOfDocuments>>>,
}

/// The vector of each document that has one.
type VectorsOfDocuments = HashMap<String, Vec<f64>>;

/// The words of a field.
#[derive(Default)]
struct FieldWords {
    /// Of each document that has some.
    lengths: HashMap<String, f64>,
    /// How often each document has a word.
    counts: HashMap<String, HashMap<String, f64>>,
}

/// A search of one index.
struct Search<'a> {
    index: &'a Index,
    product: ExternalProduct,
}

/// The answer to a search.
pub fn search(index: &Index, product: ExternalProduct, body: &Value) -> Answer {
    let (from, size) = (
        body["from"].as_u64().unwrap_or(0),
        body["size"].as_u64().unwrap_or(10),
    );
    if from + size > MAX_WINDOW {
        let reason =
            "Result window is too large, from + size must be less than or equal to: [10000]";
        return Err((400, error("illegal_argument_exception", reason)));
    }
    let search = Search { index, product };
    let mut scores = match body.get("query") {
        Some(query) => search.scores(query)?,
        None if body.get("knn").is_none() => search.all(),
        None => HashMap::new(),
    };
    if let Some(Value::Array(clauses)) = body.get("knn") {
        if product == ExternalProduct::OpenSearch {
            return Err((
                400,
                error("parsing_exception", "unknown key [knn] in the search"),
            ));
        }
        for clause in clauses {
            let field = clause["field"].as_str().unwrap_or_default();
            let (k, around) = (clause["k"].as_u64(), clause["num_candidates"].as_u64());
            if k > around || around > Some(MAX_WINDOW) {
                return Err((
                    400,
                    error(
                        "x_content_parse_exception",
                        "[num_candidates] is out of range",
                    ),
                ));
            }
            for (id, score) in
                search.nearest(field, &clause["query_vector"], k, &clause["filter"])?
            {
                *scores.entry(id).or_default() += score;
            }
        }
    }
    let mut hits: Vec<(&str, f64)> = scores.into_iter().collect();
    let total = hits.len();
    let sort = body["sort"][0]
        .as_object()
        .and_then(|sort| sort.keys().next());
    match sort {
        Some(field) => search.sort_by(&mut hits, field, &body["search_after"][0])?,
        None => hits.sort_unstable_by(|(one, a), (other, b)| b.total_cmp(a).then(one.cmp(other))),
    }
    let mut found = Vec::new();
    for (id, score) in hits.iter().skip(from as usize).take(size as usize) {
        let source = index.refreshed[*id].source.as_ref().unwrap_or(&Value::Null);
        found.push(match &body["_source"] {
            Value::Bool(false) => json!({ "_id": id, "_score": score }),
            fields => json!({ "_id": id, "_score": score, "_source": chosen(source, fields) }),
        });
        if let (Some(field), Some(hit)) = (sort, found.last_mut()) {
            hit["sort"] = json!([values(source, field).first()]);
        }
    }
    let mut answer = json!({
        "took": 1, "timed_out": false, "_shards": { "total": 1, "successful": 1, "failed": 0 },
        "hits": { "hits": found },
    });
    if body["track_total_hits"] != false {
        answer["hits"]["total"] = json!({ "value": total, "relation": "eq" });
    }
    if let Some(aggregations) = body["aggs"].as_object() {
        for (name, aggregation) in aggregations {
            answer["aggregations"][name] = search.aggregated(aggregation, &hits)?;
        }
    }
    Ok(answer)
}

/// Some of the fields of a document.
pub fn chosen(source: &Value, fields: &Value) -> Value {
    let Some(fields) = fields.as_array() else {
        return source.clone();
    };
    let mut chosen = Map::new();
    for field in fields.iter().filter_map(Value::as_str) {
        let value = at(source, field);
        if !value.is_null() {
            chosen.insert(field.to_owned(), value.clone());
        }
    }
    chosen.into()
}

/// The words of a field, as the analyzers `whitespace` and, for all others, roughly `standard` read them.
fn words(value: &Value, is_whitespace: bool) -> Vec<String> {
    let texts = match value {
        Value::Array(values) => values
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        value => value.as_str().unwrap_or_default().to_owned(),
    };
    if is_whitespace {
        return texts.split_whitespace().map(str::to_owned).collect();
    }
    let lower = texts.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The values of a keyword field.
fn values<'a>(source: &'a Value, field: &str) -> Vec<&'a Value> {
    match at(source, field) {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

type Scores<'a> = HashMap<&'a str, f64>;

impl<'a> Search<'a> {
    fn documents(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        let documents = self.index.refreshed.iter();
        documents.filter_map(|(id, document)| Some((id.as_str(), document.source.as_ref()?)))
    }

    fn all(&self) -> Scores<'a> {
        self.documents().map(|(id, _)| (id, 1.0)).collect()
    }

    fn matching(&self, matches: impl Fn(&Value) -> bool) -> Scores<'a> {
        let mut scores = HashMap::new();
        for (id, source) in self.documents() {
            if matches(source) {
                scores.insert(id, 1.0);
            }
        }
        scores
    }

    fn scores(&self, query: &Value) -> Result<Scores<'a>, (u16, Value)> {
        let Some((kind, of)) = query.as_object().and_then(|query| query.iter().next()) else {
            return Err((
                400,
                error("parsing_exception", "query malformed, empty clause found"),
            ));
        };
        let field = of.as_object().and_then(|of| of.iter().next());
        Ok(match (kind.as_str(), field) {
            ("match_all", _) => self.all(),
            ("match_none", _) => Scores::new(),
            ("bool", _) => self.bool(of)?,
            ("exists", _) => {
                let field = of["field"].as_str().unwrap_or_default();
                self.matching(|source| !values(source, field).is_empty())
            }
            ("term", Some((field, value))) => self.term(field, value),
            ("terms", Some((field, wanted))) => {
                let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
                self.matching(|source| {
                    values(source, field)
                        .iter()
                        .any(|value| wanted.contains(value))
                })
            }
            ("wildcard", Some((field, pattern))) => {
                let pattern = pattern["value"].as_str().unwrap_or_default();
                self.matching(|source| {
                    let values = values(source, field);
                    values
                        .iter()
                        .filter_map(|value| value.as_str())
                        .any(|value| matches(value, pattern))
                })
            }
            ("multi_match", _) => self.multi_match(of),
            ("function_score", _) => {
                let mut scores = self.scores(&of["query"])?;
                for (id, score) in &mut scores {
                    let hash = blake3::hash(id.as_bytes());
                    *score = f64::from(u32::from_le_bytes([
                        hash.as_bytes()[0],
                        hash.as_bytes()[1],
                        hash.as_bytes()[2],
                        hash.as_bytes()[3],
                    ]));
                }
                scores
            }
            ("knn", Some((field, of))) if self.product == ExternalProduct::OpenSearch => {
                self.nearest(field, &of["vector"], of["k"].as_u64(), &of["filter"])?
            }
            (kind, _) => {
                let reason = format!("unknown query [{kind}]");
                return Err((400, error("parsing_exception", &reason)));
            }
        })
    }

    fn bool(&self, of: &Value) -> Result<Scores<'a>, (u16, Value)> {
        let clauses = |key: &str| of[key].as_array().cloned().unwrap_or_default();
        let mut scores = Scores::new();
        let mut required: Option<Scores<'a>> = None;
        for (key, counts) in [("must", true), ("filter", false)] {
            for clause in clauses(key) {
                let found = self.scores(&clause)?;
                let before = required.take().unwrap_or_else(|| {
                    let all = self.all();
                    all.into_keys().map(|id| (id, 0.0)).collect()
                });
                let mut both = Scores::new();
                for (id, score) in before {
                    if let Some(further) = found.get(id) {
                        both.insert(id, if counts { score + further } else { score });
                    }
                }
                required = Some(both);
            }
        }
        let should = clauses("should");
        let mut optional = Scores::new();
        for clause in &should {
            for (id, score) in self.scores(clause)? {
                *optional.entry(id).or_default() += score;
            }
        }
        // Without `must` and `filter`, one of `should` has to match.
        let needs_one =
            !should.is_empty() && (required.is_none() || of["minimum_should_match"] == 1);
        for (id, score) in
            required.unwrap_or_else(|| self.all().into_keys().map(|id| (id, 0.0)).collect())
        {
            match optional.get(id) {
                Some(further) => scores.insert(id, score + further),
                None if needs_one => None,
                None => scores.insert(id, score),
            };
        }
        for clause in clauses("must_not") {
            for id in self.scores(&clause)?.into_keys() {
                scores.remove(id);
            }
        }
        Ok(scores)
    }

    fn term(&self, field: &str, of: &Value) -> Scores<'a> {
        let (value, boost) = match of {
            Value::Object(_) => (&of["value"], of["boost"].as_f64().unwrap_or(1.0)),
            value => (value, 1.0),
        };
        if self.index.mappings["properties"][field]["type"] == "text" {
            return self.bm25(field, value.as_str().unwrap_or_default(), boost);
        }
        let mut scores = self.matching(|source| values(source, field).contains(&value));
        scores.values_mut().for_each(|score| *score = boost);
        scores
    }

    /// As Lucene scores a word of a text.
    fn bm25(&self, field: &str, word: &str, boost: f64) -> Scores<'a> {
        let mapping = &self.index.mappings["properties"][field];
        let is_whitespace = mapping["analyzer"] == "whitespace";
        let similarity = mapping["similarity"].as_str().unwrap_or_default();
        let similarity = &self.index.settings["index"]["similarity"][similarity];
        let (k1, b) = (
            similarity["k1"].as_f64().unwrap_or(K1),
            similarity["b"].as_f64().unwrap_or(B),
        );
        let read = self.field_words(field, is_whitespace);
        let none = HashMap::new();
        let counts = read.counts.get(word).unwrap_or(&none);
        let all = read.lengths.len() as f64;
        let average = read.lengths.values().sum::<f64>() / all.max(1.0);
        let with = counts.len() as f64;
        let idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        let mut scores = HashMap::new();
        for (id, _) in self.documents() {
            if let Some(count) = counts.get(id) {
                let norm = k1 * (1.0 - b + b * read.lengths[id] / average);
                scores.insert(id, boost * idf * count / (count + norm));
            }
        }
        scores
    }

    fn field_words(&self, field: &str, is_whitespace: bool) -> Arc<FieldWords> {
        let mut known = self.index.read.words.lock();
        let read = known.entry(field.to_owned()).or_insert_with(|| {
            let mut read = FieldWords::default();
            for (id, source) in self.documents() {
                let words = words(at(source, field), is_whitespace);
                if !words.is_empty() {
                    read.lengths.insert(id.to_owned(), words.len() as f64);
                }
                for word in words {
                    let of_word = read.counts.entry(word).or_default();
                    *of_word.entry(id.to_owned()).or_default() += 1.0;
                }
            }
            Arc::new(read)
        });
        Arc::clone(read)
    }

    fn vectors(&self, field: &str) -> Arc<HashMap<String, Vec<f64>>> {
        let mut known = self.index.read.vectors.lock();
        let read = known.entry(field.to_owned()).or_insert_with(|| {
            let mut read = HashMap::new();
            for (id, source) in self.documents() {
                let vector = numbers(at(source, field));
                if !vector.is_empty() {
                    read.insert(id.to_owned(), vector);
                }
            }
            Arc::new(read)
        });
        Arc::clone(read)
    }

    fn multi_match(&self, of: &Value) -> Scores<'a> {
        let mut scores = Scores::new();
        let query = words(&of["query"], false);
        for field in of["fields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let (field, boost) = field.split_once('^').unwrap_or((field, "1"));
            let boost = boost.parse().unwrap_or(1.0);
            for word in &query {
                for (id, score) in self.bm25(field, word, boost) {
                    *scores.entry(id).or_default() += score;
                }
            }
        }
        scores
    }

    /// The `k` nearest by cosine, as the engines score it.
    fn nearest(
        &self,
        field: &str,
        vector: &Value,
        k: Option<u64>,
        filter: &Value,
    ) -> Result<Scores<'a>, (u16, Value)> {
        let mapping = &self.index.mappings["properties"][field];
        let length = mapping["dims"].as_u64().or(mapping["dimension"].as_u64());
        let wanted = numbers(vector);
        if length != Some(wanted.len() as u64) {
            let reason = format!(
                "the query vector has a different number of dimensions [{}]",
                wanted.len()
            );
            return Err((400, error("illegal_argument_exception", &reason)));
        }
        let passing = match filter {
            Value::Null => self.all(),
            filter => self.scores(filter)?,
        };
        let mut all = Vec::new();
        let vectors = self.vectors(field);
        for id in passing.into_keys() {
            if let Some(own) = vectors.get(id) {
                all.push((id, f64::midpoint(1.0, cosine(own, &wanted))));
            }
        }
        all.sort_unstable_by(|(one, a), (other, b)| b.total_cmp(a).then(one.cmp(other)));
        all.truncate(k.unwrap_or_default() as usize);
        Ok(all.into_iter().collect())
    }

    fn sort_by(
        &self,
        hits: &mut Vec<(&'a str, f64)>,
        field: &str,
        after: &Value,
    ) -> Result<(), (u16, Value)> {
        if self.index.mappings["properties"][field]["type"] != "keyword" {
            let reason = format!("Fielddata is disabled on [{field}]");
            return Err((400, error("illegal_argument_exception", &reason)));
        }
        let key = |id: &str| {
            let source = self.index.refreshed[id].source.as_ref();
            source.and_then(|source| {
                values(source, field)
                    .first()
                    .and_then(|value| value.as_str())
            })
        };
        hits.sort_unstable_by(|(one, _), (other, _)| match (key(one), key(other)) {
            (Some(a), Some(b)) => a.cmp(b),
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (None, None) => one.cmp(other),
        });
        if let Some(after) = after.as_str() {
            hits.retain(|(id, _)| key(id).is_none_or(|key| key > after));
        }
        Ok(())
    }

    fn aggregated(&self, aggregation: &Value, hits: &[(&'a str, f64)]) -> Answer {
        if let Some(filters) = aggregation["filters"]["filters"].as_object() {
            let mut buckets = Map::new();
            for (name, filter) in filters {
                let found = self.scores(filter)?;
                let count = hits.iter().filter(|(id, _)| found.contains_key(id)).count();
                buckets.insert(name.clone(), json!({ "doc_count": count }));
            }
            return Ok(json!({ "buckets": buckets }));
        }
        let field = aggregation["terms"]["field"].as_str().unwrap_or_default();
        let size = aggregation["terms"]["size"].as_u64().unwrap_or(10);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for (id, _) in hits {
            let Some(source) = self.index.refreshed[*id].source.as_ref() else {
                continue;
            };
            for value in values(source, field).into_iter().filter_map(Value::as_str) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_unstable_by(|(one, a), (other, b)| b.cmp(a).then(one.cmp(other)));
        counts.truncate(size as usize);
        let bucket = |(key, count): (&str, usize)| json!({ "key": key, "doc_count": count });
        let buckets: Vec<Value> = counts.into_iter().map(bucket).collect();
        Ok(json!({ "buckets": buckets }))
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().into_iter().flatten();
    numbers.filter_map(Value::as_f64).collect()
}

fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let product: f64 = one.iter().zip(other).map(|(a, b)| a * b).sum();
    let length = |vector: &[f64]| {
        vector
            .iter()
            .map(|number| number * number)
            .sum::<f64>()
            .sqrt()
    };
    product / (length(one) * length(other)).max(f64::MIN_POSITIVE)
}

/// Whether a value has the form of a pattern with `*` at its ends, in any case.
fn matches(value: &str, pattern: &str) -> bool {
    let (value, pattern) = (value.to_lowercase(), pattern.to_lowercase());
    let core = pattern.trim_matches('*');
    match (pattern.starts_with('*'), pattern.ends_with('*')) {
        (true, true) => value.contains(core),
        (true, false) => value.ends_with(core),
        (false, true) => value.starts_with(core),
        (false, false) => value == core,
    }
}
