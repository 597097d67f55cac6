//! What an engine is asked, as JSON: pure functions of a query and a layout.

use serde::Serialize;
use serde_json::{Value, json};
use toolscout_base::config::{ExternalProduct, FieldMapping};
use toolscout_index::pushdown::{AskedName, CatalogStatistics, ProbeTerm, TextTerms};
use toolscout_index::{Kind, ToolId};

use crate::engine::{Ask, Listed, MAX_TERMS, Passing, What, Which};
use crate::layout::{Label, Layout, TERMS, servers_of, vector_fields};

/// Ids that a filter may name. The engines allow 65,536 terms in one clause.
const MAX_IDS: usize = 60_000;
/// Neighbours that a search of vectors looks at, per neighbour that is wanted, and at most.
const LOOK_AROUND: usize = 2;
const MAX_LOOK_AROUND: usize = 10_000;
/// Documents that one search may answer with.
const MAX_SIZE: usize = 10_000;

/// One search of several.
pub fn of_ask(product: ExternalProduct, layout: &Layout, ask: &Ask<'_>) -> Option<Value> {
    let passing = || clause(layout, &ask.passing);
    Some(match &ask.what {
        What::All => all(layout, &passing(), ask.size),
        // The engines take a clause without alternatives for one that all documents match.
        What::Terms { terms: [], .. } => return None,
        What::Terms { terms, statistics } => {
            by_words(own_words(terms, statistics), &passing(), ask.size)
        }
        What::Words { text, further } => {
            let Layout::Mapped(fields) = layout else {
                return None;
            };
            by_words(
                mapped_words(text, further, &fields.search)?,
                &passing(),
                ask.size,
            )
        }
        What::Near { embedder, vector } => {
            let fields = vector_fields(layout, embedder, vector.len());
            if fields.is_empty() {
                return None;
            }
            by_vector(product, &fields, vector, &passing(), ask.size)
        }
        What::Named(name) => named(layout, name, ask.size)?,
        What::Ids([]) => return None,
        What::Ids(ids) => of_ids(layout, ids),
        What::Sample => sample(layout, 0, ask.size, &Value::Bool(false)),
    })
}

/// The clause for `bool.filter`: which documents pass.
pub fn clause(layout: &Layout, passing: &Passing<'_>) -> Value {
    let (must, must_not) = match layout {
        Layout::Own(_) => own_clauses(passing),
        Layout::Mapped(fields) => mapped_clauses(fields, passing),
    };
    json!({ "bool": { "filter": must, "must_not": must_not } })
}

/// What documents that toolscout has written must match, and must not match.
fn own_clauses(passing: &Passing<'_>) -> (Vec<Value>, Vec<Value>) {
    let (filter, off) = (passing.filter, passing.off);
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
fn mapped_clauses(fields: &FieldMapping, passing: &Passing<'_>) -> (Vec<Value>, Vec<Value>) {
    let (filter, off) = (passing.filter, passing.off);
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
    if !filter.ids.is_empty() && filter.ids.len() <= MAX_IDS {
        must.push(any_of(mapped_ids(
            fields,
            filter.ids.iter().map(String::as_str),
        )));
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

/// The documents of tools in an index that somebody else fills: a clause for each server.
fn mapped_ids<'a>(fields: &FieldMapping, ids: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let mut clauses = Vec::new();
    for (server, names) in servers_of(ids) {
        let named = json!({ "terms": { &fields.name: names } });
        let of_server = of_servers(fields, &[server]);
        clauses.push(json!({ "bool": { "filter": [named, of_server] } }));
    }
    clauses
}

/// The documents that match one of these, of which there is one at least.
fn any_of(clauses: Vec<Value>) -> Value {
    json!({ "bool": { "should": clauses, "minimum_should_match": 1 } })
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
fn by_words(words: Value, passing: &Value, size: usize) -> Value {
    json!({
        "size": size, "_source": false, "track_total_hits": false,
        "query": { "bool": { "must": [words], "filter": [passing] } },
    })
}

/// The words of a text in an index that toolscout has written. The engine multiplies by its own inverse document
/// frequency, so that is divided out: what a term is worth is what toolscout says.
fn own_words(terms: &[ProbeTerm], statistics: &CatalogStatistics) -> Value {
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
fn mapped_words(text: &TextTerms, further: &[String], fields: &[String]) -> Option<Value> {
    if text.own.is_empty() && text.added.is_empty() && further.is_empty() {
        return None;
    }
    let words = text.own.iter().chain(&text.added);
    let words: Vec<&str> = words
        .map(|term| term.word.as_str())
        .take(4 * MAX_TERMS)
        .collect();
    let all = [words, refs(further)].concat().join(" ");
    Some(json!({ "multi_match": { "query": all, "fields": fields, "type": "most_fields" } }))
}

/// The nearest documents by one vector, in each of these fields.
fn by_vector(
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
            ExternalProduct::OpenSearch => json!({
                "knn": { field: { "vector": vector, "k": nearest, "filter": passing } },
            }),
            _ => json!({
                "field": field, "query_vector": vector, "k": nearest, "filter": passing,
                "num_candidates": (nearest * LOOK_AROUND).clamp(100, MAX_LOOK_AROUND).max(nearest),
            }),
        });
    }
    let mut search = json!({ "size": size, "_source": false, "track_total_hits": false });
    match product {
        ExternalProduct::OpenSearch => search["query"] = json!({ "bool": { "should": clauses } }),
        _ => search["knn"] = clauses.into(),
    }
    search
}

/// The documents whose names a text may be.
fn named(layout: &Layout, name: &AskedName, size: usize) -> Option<Value> {
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
fn of_ids(layout: &Layout, ids: &[ToolId]) -> Value {
    let clauses: Vec<Value> = match layout {
        Layout::Own(_) => {
            let ids: Vec<&str> = ids.iter().map(ToolId::as_str).collect();
            vec![json!({ "terms": { "id": ids } })]
        }
        Layout::Mapped(fields) => mapped_ids(fields, ids.iter().map(ToolId::as_str)),
    };
    json!({
        "size": ids.len().min(MAX_SIZE), "_source": false, "track_total_hits": false,
        "query": any_of(clauses),
    })
}

/// How many documents there are.
pub fn count(layout: &Layout, which: Which) -> Value {
    let counted = match which {
        Which::All => json!({ "exists": { "field": layout.order() } }),
        Which::Tools => only_tools(layout),
    };
    json!({
        "size": 0, "_source": false, "track_total_hits": true,
        "query": { "bool": { "filter": [counted] } },
    })
}

/// The documents of tools, without those of other kinds.
fn only_tools(layout: &Layout) -> Value {
    match layout {
        Layout::Own(_) => json!({ "term": { "kind": Kind::Tool.as_str() } }),
        Layout::Mapped(fields) => json!({ "exists": { "field": fields.name } }),
    }
}

/// All that pass, counted; the first of them, up to `size`.
fn all(layout: &Layout, passing: &Value, size: usize) -> Value {
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
pub fn frequencies(layout: &Layout, terms: &[(String, String)]) -> Value {
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

/// A page of the documents that are listed.
pub fn listed(layout: &Layout, listed: &Listed<'_>, after: Option<&Value>) -> Value {
    let mut filters = vec![clause(layout, &listed.passing)];
    if !listed.part.is_empty() {
        let pattern = format!("*{}*", escaped(listed.part));
        filters.push(json!({ "wildcard": { layout.order(): {
            "value": pattern, "case_insensitive": true,
        } } }));
    }
    if let Some(ids) = listed.ids {
        filters.push(of_ids(layout, ids)["query"].clone());
    }
    let query = json!({ "bool": { "filter": filters } });
    page(layout, query, after, listed.size, &json!(layout.source()))
}

/// The most frequent values of a label; `None` if the index has no field of it.
pub fn values(layout: &Layout, label: Label, most: usize) -> Option<Value> {
    let field = layout.label(label)?;
    let of = only_tools(layout);
    Some(
        json!({ "size": 0, "query": of, "aggs": { "values": { "terms": {
        "field": field, "size": most.max(1), "order": [{ "_count": "desc" }, { "_key": "asc" }],
    } } } }),
    )
}

/// A text in which the engine's wildcards stand for themselves.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
