//! What an engine is asked, as JSON: pure functions of a query and a layout.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};
use toolscout_base::config::{ExternalProduct, FieldMapping};
use toolscout_index::pushdown::{AskedName, CatalogStatistics, ProbeTerm, SwitchedOff, TextTerms};
use toolscout_index::{Filter, Kind, ToolId};

use crate::layout::{KeptEmbedder, Layout, TERMS};

/// Terms of a text that are looked for: those that are worth most.
pub const MAX_TERMS: usize = 16;
/// Ids that a filter may name. The engines allow 65,536 terms in one clause.
pub const MAX_IDS: usize = 60_000;
/// Neighbours that a search of vectors looks at, per neighbour that is wanted, and at most.
const LOOK_AROUND: usize = 2;
const MAX_LOOK_AROUND: usize = 10_000;
/// Documents that one search may answer with.
const MAX_SIZE: usize = 10_000;

/// Which documents may be candidates.
pub struct Passing<'a> {
    pub layout: &'a Layout,
    pub filter: &'a Filter,
    pub off: &'a SwitchedOff,
}

impl Passing<'_> {
    /// The clause for `bool.filter`.
    pub fn clause(&self) -> Value {
        let (must, must_not) = match self.layout {
            Layout::Own(_) => self.own_clauses(),
            Layout::Mapped(fields) => self.mapped_clauses(fields),
        };
        json!({ "bool": { "filter": must, "must_not": must_not } })
    }

    /// What documents that toolscout has written must match, and must not match.
    fn own_clauses(&self) -> (Vec<Value>, Vec<Value>) {
        let (filter, off) = (self.filter, self.off);
        let mut kinds = Vec::new();
        for kind in Kind::ALL {
            if filter.accepts_kind(kind) {
                kinds.push(kind.as_str());
            }
        }
        let mut must = Vec::new();
        must.extend(one_of("kind", &kinds));
        must.extend(one_of("server", &filter.servers));
        must.extend(one_of("tags", &filter.tags));
        // More than a clause takes are left to the engine of toolscout, which filters what comes back.
        if filter.ids.len() <= MAX_IDS {
            must.extend(one_of("id", filter.ids.iter()));
        }
        for (field, wanted) in [
            ("read_only", filter.read_only),
            ("destructive", filter.destructive),
        ] {
            if let Some(wanted) = wanted {
                must.push(json!({ "term": { field: wanted } }));
            }
        }
        let mut must_not = Vec::new();
        must_not.extend(one_of("id", &off.tools));
        must_not.extend(one_of("server", &off.servers));
        must_not.extend(one_of("tags", &off.tags));
        (must, must_not)
    }

    /// The same of documents that somebody else writes. The engine of toolscout applies the whole filter to what comes
    /// back, so the rest is only less exact.
    fn mapped_clauses(&self, fields: &FieldMapping) -> (Vec<Value>, Vec<Value>) {
        let (filter, off) = (self.filter, self.off);
        let (mut must, mut must_not) = (Vec::new(), Vec::new());
        if !filter.accepts_kind(Kind::Tool) {
            must.push(nothing());
        }
        if !filter.servers.is_empty() {
            let servers: Vec<String> = filter.servers.iter().cloned().collect();
            must.push(of_servers(fields, &servers));
        }
        if !off.servers.is_empty() {
            must_not.push(of_servers(fields, &off.servers));
        }
        match &fields.tags {
            Some(field) => {
                must.extend(one_of(field, &filter.tags));
                must_not.extend(one_of(field, &off.tags));
            }
            // Without a field no document has a tag.
            None if !filter.tags.is_empty() => must.push(nothing()),
            None => {}
        }
        must.push(json!({ "exists": { "field": fields.name } }));
        (must, must_not)
    }
}

/// The documents whose field has one of these values. `None` without values, which restrict nothing.
fn one_of<V: Serialize>(field: &str, values: impl IntoIterator<Item = V>) -> Option<Value> {
    let values: Vec<V> = values.into_iter().collect();
    if values.is_empty() {
        return None;
    }
    Some(json!({ "terms": { field: values } }))
}

/// Matches no document.
fn nothing() -> Value {
    json!({ "match_none": {} })
}

/// The documents of these servers in an index that somebody else fills. Those without the field are of the default
/// server.
fn of_servers(fields: &FieldMapping, servers: &[String]) -> Value {
    let has_default = servers.contains(&fields.default_server);
    match &fields.server {
        Some(field) => {
            let mut should = vec![json!({ "terms": { field: servers } })];
            if has_default {
                should.push(json!({ "bool": { "must_not": [{ "exists": { "field": field } }] } }));
            }
            json!({ "bool": { "should": should, "minimum_should_match": 1 } })
        }
        None if has_default => json!({ "match_all": {} }),
        None => nothing(),
    }
}

fn refs(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}

/// Documents by words, the best first.
pub fn by_words(words: Value, passing: &Value, size: usize) -> Value {
    json!({
        "size": size, "_source": false, "track_total_hits": false,
        "query": { "bool": { "must": [words], "filter": [passing] } },
    })
}

/// The words of a text in an index that toolscout has written. The engine multiplies by its own inverse document
/// frequency, so that is divided out: what a term is worth is what toolscout says.
pub fn own_words(terms: &[ProbeTerm], statistics: &CatalogStatistics) -> Value {
    let mut should = Vec::new();
    for term in terms.iter().take(MAX_TERMS) {
        let with = statistics.frequency(&term.term) as f64;
        let all = (statistics.tools as f64).max(with);
        let idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        // Bounded: a word of nearly all tools has almost no frequency of its own to divide by.
        let boost = (f64::from(term.gain) / idf.max(1e-3)).clamp(1e-3, 1e3);
        should.push(json!({ "term": { TERMS: { "value": term.term, "boost": boost } } }));
    }
    json!({ "bool": { "should": should, "minimum_should_match": 1 } })
}

/// The words of a text in an index that somebody else fills, whose own analyzer reads them.
pub fn mapped_words(text: &TextTerms, further: &[String], fields: &[String]) -> Value {
    let words = text.own.iter().chain(&text.added);
    let words: Vec<&str> = words
        .map(|term| term.word.as_str())
        .take(4 * MAX_TERMS)
        .collect();
    let all = [words, refs(further)].concat().join(" ");
    json!({ "multi_match": { "query": all, "fields": fields, "type": "most_fields" } })
}

/// The nearest documents by one vector, in each of these fields.
pub fn by_vector(
    product: ExternalProduct,
    fields: &[String],
    vector: &[f32],
    passing: &Value,
    nearest: usize,
) -> Value {
    // The scores of several fields are added up, and nothing that one field finds is to be cut off.
    let size = nearest * fields.len().max(1);
    let mut clauses = Vec::with_capacity(fields.len());
    for field in fields {
        // Elasticsearch refuses fewer candidates than neighbours.
        clauses.push(match product {
            ExternalProduct::Elasticsearch => json!({
                "field": field, "query_vector": vector, "k": nearest, "filter": passing,
                "num_candidates": (nearest * LOOK_AROUND).clamp(100, MAX_LOOK_AROUND).max(nearest),
            }),
            ExternalProduct::OpenSearch => json!({
                "knn": { field: { "vector": vector, "k": nearest, "filter": passing } },
            }),
        });
    }
    let mut search = json!({ "size": size, "_source": false, "track_total_hits": false });
    match product {
        ExternalProduct::Elasticsearch => search["knn"] = clauses.into(),
        ExternalProduct::OpenSearch => search["query"] = json!({ "bool": { "should": clauses } }),
    }
    search
}

/// The documents whose names a text may be.
pub fn named(layout: &Layout, name: &AskedName, size: usize) -> Option<Value> {
    let Layout::Own(_) = layout else {
        // The words of the name find them.
        return None;
    };
    let mut should = vec![
        json!({ "term": { "name_key": { "value": name.key, "boost": 4.0 } } }),
        json!({ "term": { "full_key": { "value": name.key, "boost": 4.0 } } }),
    ];
    if name.may_be_suffix {
        // A key has letters and digits only, so there is nothing to escape.
        should.push(json!({ "wildcard": { "name_key": { "value": format!("*{}", name.key) } } }));
    }
    Some(json!({
        "size": size, "_source": false, "track_total_hits": false,
        "query": { "bool": { "should": should, "minimum_should_match": 1 } },
    }))
}

/// The documents of these tools.
pub fn of_ids(layout: &Layout, ids: &[ToolId]) -> Value {
    let clauses: Vec<Value> = match layout {
        Layout::Own(_) => {
            let ids: Vec<&str> = ids.iter().map(ToolId::as_str).collect();
            vec![json!({ "terms": { "id": ids } })]
        }
        Layout::Mapped(fields) => ids
            .iter()
            .map(|id| {
                let named = json!({ "term": { &fields.name: id.name() } });
                let of_server = of_servers(fields, &[id.server().to_owned()]);
                json!({ "bool": { "filter": [named, of_server] } })
            })
            .collect(),
    };
    json!({
        "size": ids.len().min(MAX_SIZE), "_source": false, "track_total_hits": false,
        "query": { "bool": { "should": clauses, "minimum_should_match": 1 } },
    })
}

/// How many tools there are, without items of other kinds.
pub fn count_tools(layout: &Layout) -> Value {
    json!({
        "size": 0, "_source": false, "track_total_hits": true,
        "query": { "bool": { "filter": [only_tools(layout)] } },
    })
}

/// The documents of tools, without those of other kinds.
pub fn only_tools(layout: &Layout) -> Value {
    match layout {
        Layout::Own(_) => json!({ "term": { "kind": Kind::Tool.as_str() } }),
        Layout::Mapped(fields) => json!({ "exists": { "field": fields.name } }),
    }
}

/// All that pass, counted; the first of them, up to `size`.
pub fn all(layout: &Layout, passing: &Value, size: usize) -> Value {
    json!({
        "size": size, "_source": false, "track_total_hits": true,
        "query": { "bool": { "filter": [passing] } }, "sort": [{ layout.order(): "asc" }],
    })
}

/// Some of all documents, the same each time.
pub fn sample(layout: &Layout, from: usize, size: usize, source: &Value) -> Value {
    let all = json!({ "exists": { "field": layout.order() } });
    // With a seed, the order is a hash of the number that a document keeps until it is written again.
    json!({
        "from": from, "size": size, "_source": source, "track_total_hits": true,
        "query": { "function_score": {
            "query": { "bool": { "filter": [all] } }, "boost_mode": "replace",
            "random_score": { "seed": 1, "field": "_seq_no" },
        } },
    })
}

/// A page of documents by their order, with some of their fields. `after` are sort values.
pub fn page(
    layout: &Layout,
    query: Value,
    after: Option<&Value>,
    size: usize,
    source: &Value,
) -> Value {
    let mut search = json!({
        "size": size.min(MAX_SIZE), "_source": source, "track_total_hits": true,
        "query": query, "sort": [{ layout.order(): "asc" }],
    });
    if let Some(after) = after {
        search["search_after"] = after.clone();
    }
    search
}

/// How many documents have each of these words.
pub fn frequencies(layout: &Layout, terms: &HashMap<String, String>) -> Value {
    let mut filters = serde_json::Map::new();
    for (term, word) in terms {
        filters.insert(
            term.clone(),
            match layout {
                Layout::Own(_) => json!({ "term": { TERMS: term } }),
                Layout::Mapped(fields) => {
                    json!({ "multi_match": { "query": word, "fields": fields.search } })
                }
            },
        );
    }
    json!({
        "size": 0, "track_total_hits": true,
        "aggs": { "words": { "filters": { "filters": filters } } },
    })
}

/// The fields of an embedder's vectors; none if the index has none of it.
pub fn vector_fields<'a>(layout: &'a Layout, embedder: &str, length: usize) -> Vec<String> {
    match layout {
        Layout::Own(own) => {
            let is_it = |kept: &&'a KeptEmbedder| kept.id == embedder && kept.dimensions == length;
            let kept = own.embedders.iter().find(is_it);
            kept.map(|kept| kept.fields.clone()).unwrap_or_default()
        }
        Layout::Mapped(fields) => match (&fields.vector, &fields.vector_embedder) {
            (Some(field), Some(of)) if of == embedder => vec![field.clone()],
            _ => Vec::new(),
        },
    }
}
