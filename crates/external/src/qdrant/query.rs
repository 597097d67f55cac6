//! What Qdrant is asked, as JSON: pure functions of a query and a layout.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use toolscout_base::config::FieldMapping;
use toolscout_index::pushdown::{AskedName, ProbeTerm, TextTerms};
use toolscout_index::{Kind, ToolId};
use uuid::Uuid;

use super::WORDS;
use crate::engine::{Ask, Listed, MAX_TERMS, Passing, What};
use crate::layout::{Layout, servers_of, vector_fields};

/// Ids that a filter may name.
const MAX_IDS: usize = 60_000;
/// Words of a text that are looked for in a collection that somebody else fills, and points for each at least.
const MAX_WORDS: usize = 8;
const MIN_FOR_WORD: usize = 20;

/// The number of the point of a tool.
pub fn point(id: &str) -> String {
    let hash = blake3::hash(id.as_bytes());
    let (bytes, _) = hash.as_bytes().split_at(16);
    Uuid::from_slice(bytes).unwrap_or_default().to_string()
}

/// The number of a term in the sparse vector. Two terms with one number only make a tool a candidate for nothing.
pub fn dimension(term: &str) -> u32 {
    let hash = blake3::hash(term.as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The requests of one search, of which there may be none or several.
pub fn searches(layout: &Layout, ask: &Ask<'_>) -> Vec<Value> {
    let filter = || filter(layout, &ask.passing);
    let of = |filter: Value| json!({ "filter": filter, "limit": ask.size.max(1) });
    match &ask.what {
        // Without a query, points come in the order of their numbers.
        What::All => vec![of(filter())],
        What::Sample => vec![json!({ "limit": ask.size.max(1) })],
        What::Terms { terms: [], .. } | What::Ids([]) => Vec::new(),
        What::Terms { terms, .. } => {
            let mut search = of(filter());
            search["query"] = by_worth(terms);
            search["using"] = WORDS.into();
            vec![search]
        }
        What::Words { text, further } => match layout {
            Layout::Own(_) => Vec::new(),
            Layout::Mapped(fields) => by_words(fields, text, further, &filter(), ask.size),
        },
        What::Near { embedder, vector } => {
            let mut searches = Vec::new();
            for field in vector_fields(layout, embedder, vector.len()) {
                let mut search = of(filter());
                search["query"] = json!(vector);
                if !field.is_empty() {
                    search["using"] = field.into();
                }
                // toolscout scores what is found by the vectors as they are.
                search["params"] = json!({ "quantization": { "rescore": false } });
                searches.push(search);
            }
            searches
        }
        What::Named(name) => named(layout, name).map(of).into_iter().collect(),
        What::Ids(ids) => vec![of(of_ids(layout, ids))],
    }
}

/// The terms of a text, each with its worth.
fn by_worth(terms: &[ProbeTerm]) -> Value {
    let mut worth: BTreeMap<u32, f32> = BTreeMap::new();
    for term in terms.iter().take(MAX_TERMS) {
        *worth.entry(dimension(&term.term)).or_default() += term.gain;
    }
    let (indices, values): (Vec<u32>, Vec<f32>) = worth.into_iter().unzip();
    json!({ "indices": indices, "values": values })
}

/// The points with the words of a text in a collection that somebody else fills. Its filters do not rank, so those with
/// several of the words are looked for, and some with each of them.
fn by_words(
    fields: &FieldMapping,
    text: &TextTerms,
    further: &[String],
    passing: &Value,
    size: usize,
) -> Vec<Value> {
    let mut words: Vec<&str> = Vec::new();
    let all = text.own.iter().chain(&text.added);
    for word in all
        .map(|term| term.word.as_str())
        .chain(further.iter().map(String::as_str))
    {
        if words.len() < MAX_WORDS && !words.contains(&word) {
            words.push(word);
        }
    }
    if words.is_empty() {
        return Vec::new();
    }
    let conditions: Vec<Value> = words.iter().map(|word| has_word(fields, word)).collect();
    let mut searches = Vec::new();
    if conditions.len() > 1 {
        let several = json!({
            "conditions": conditions, "min_count": conditions.len().div_ceil(2),
        });
        let filter = json!({ "must": [passing], "min_should": several });
        searches.push(json!({ "filter": filter, "limit": size.max(1) }));
    }
    let of_word = (size / conditions.len()).max(MIN_FOR_WORD);
    for condition in conditions {
        searches.push(json!({ "filter": { "must": [passing, condition] }, "limit": of_word }));
    }
    searches
}

/// The points with a word in one of the fields that are searched.
fn has_word(fields: &FieldMapping, word: &str) -> Value {
    let mut should = Vec::with_capacity(fields.search.len());
    for field in &fields.search {
        let name = field.split('^').next().unwrap_or_default();
        should.push(json!({ "key": name, "match": { "text": word } }));
    }
    json!({ "should": should })
}

/// The points with a word, which is a term if toolscout has written them.
pub fn with_word(layout: &Layout, term: &str, word: &str) -> Value {
    match layout {
        Layout::Own(_) => json!({ "must": [is("terms", term)] }),
        Layout::Mapped(fields) => has_word(fields, word),
    }
}

/// Which points pass.
pub fn filter(layout: &Layout, passing: &Passing<'_>) -> Value {
    let (must, must_not) = match layout {
        Layout::Own(_) => own_conditions(passing),
        Layout::Mapped(fields) => mapped_conditions(fields, passing),
    };
    json!({ "must": must, "must_not": must_not })
}

fn own_conditions(passing: &Passing<'_>) -> (Vec<Value>, Vec<Value>) {
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
    // More than that are left to the engine of toolscout, which filters what comes back.
    if !filter.ids.is_empty() && filter.ids.len() <= MAX_IDS {
        must.push(points_of(filter.ids.iter().map(String::as_str)));
    }
    for (field, wanted) in [
        ("read_only", filter.read_only),
        ("destructive", filter.destructive),
    ] {
        if let Some(wanted) = wanted {
            must.push(is(field, wanted));
        }
    }
    let mut must_not = Vec::new();
    if !off.tools.is_empty() {
        must_not.push(points_of(off.tools.iter().map(String::as_str)));
    }
    must_not.extend(one_of("server", &off.servers));
    must_not.extend(one_of("tags", &off.tags));
    (must, must_not)
}

/// The same of points that somebody else writes. The engine of toolscout applies the whole filter to what comes back,
/// so the rest is only less exact.
fn mapped_conditions(fields: &FieldMapping, passing: &Passing<'_>) -> (Vec<Value>, Vec<Value>) {
    let (filter, off) = (passing.filter, passing.off);
    let (mut must, mut must_not) = (Vec::new(), Vec::new());
    if !filter.accepts_kind(Kind::Tool) {
        must.push(nothing());
    }
    if !filter.servers.is_empty() {
        let servers: Vec<&str> = filter.servers.iter().map(String::as_str).collect();
        must.push(of_servers(fields, &servers));
    }
    if !off.servers.is_empty() {
        let servers: Vec<&str> = off.servers.iter().map(String::as_str).collect();
        must_not.push(of_servers(fields, &servers));
    }
    if !filter.ids.is_empty() && filter.ids.len() <= MAX_IDS {
        must.push(mapped_ids(fields, filter.ids.iter().map(String::as_str)));
    }
    match &fields.tags {
        Some(field) => {
            must.extend(one_of(field, &filter.tags));
            must_not.extend(one_of(field, &off.tags));
        }
        // Without a field no point has a tag.
        None if !filter.tags.is_empty() => must.push(nothing()),
        None => {}
    }
    must_not.push(is_empty(&fields.name));
    (must, must_not)
}

/// The points of these tools.
pub fn of_ids(layout: &Layout, ids: &[ToolId]) -> Value {
    match layout {
        Layout::Own(_) => json!({ "must": [points_of(ids.iter().map(ToolId::as_str))] }),
        Layout::Mapped(fields) => mapped_ids(fields, ids.iter().map(ToolId::as_str)),
    }
}

/// A condition for each server.
fn mapped_ids<'a>(fields: &FieldMapping, ids: impl Iterator<Item = &'a str>) -> Value {
    let mut should = Vec::new();
    for (server, names) in servers_of(ids) {
        let mut must = vec![of_servers(fields, &[server.as_str()])];
        must.extend(one_of(&fields.name, names));
        should.push(json!({ "must": must }));
    }
    json!({ "should": should })
}

/// The points of these servers in a collection that somebody else fills. Those without the field are of the default
/// server.
fn of_servers(fields: &FieldMapping, servers: &[&str]) -> Value {
    let has_default = servers.contains(&fields.default_server.as_str());
    match &fields.server {
        Some(field) => {
            let mut should = Vec::from_iter(one_of(field, servers));
            if has_default {
                should.push(is_empty(field));
            }
            json!({ "should": should })
        }
        None if has_default => json!({ "must_not": [nothing()] }),
        None => nothing(),
    }
}

/// The points whose names a text may be.
fn named(layout: &Layout, name: &AskedName) -> Option<Value> {
    let Layout::Own(_) = layout else {
        // The words of the name find them.
        return None;
    };
    let mut should = vec![is("name_key", &name.key), is("full_key", &name.key)];
    if name.may_be_suffix {
        should.push(is("name_ends", &name.key));
    }
    Some(json!({ "should": should }))
}

/// Points of tools, without those of other kinds.
pub fn only_tools(layout: &Layout) -> Value {
    match layout {
        Layout::Own(_) => json!({ "must": [is("kind", Kind::Tool.as_str())] }),
        Layout::Mapped(fields) => json!({ "must_not": [is_empty(&fields.name)] }),
    }
}

/// Restricts a filter to what is listed, but for the part of a name.
pub fn restrict(filter: &mut Value, layout: &Layout, listed: &Listed<'_>) {
    if let (Some(ids), Some(must)) = (listed.ids, filter["must"].as_array_mut()) {
        must.push(of_ids(layout, ids));
    }
}

/// Leaves a point out.
pub fn without(filter: &mut Value, point: &Value) {
    if let Some(must_not) = filter["must_not"].as_array_mut() {
        must_not.push(json!({ "has_id": [point] }));
    }
}

/// The fields of points that are read.
pub fn with_payload(layout: &Layout) -> Value {
    let mut source = layout.source();
    if let Layout::Mapped(fields) = layout {
        source.retain(|field| Some(field) != fields.vector.as_ref());
    }
    json!(source)
}

/// Which vectors are read of points: those that somebody else has written. Ours are among the fields.
pub fn with_vector(layout: &Layout) -> Value {
    match layout {
        Layout::Own(_) => false.into(),
        Layout::Mapped(fields) => match fields.vector.as_deref() {
            None => false.into(),
            Some("") => true.into(),
            Some(name) => json!([name]),
        },
    }
}

fn points_of<'a>(ids: impl Iterator<Item = &'a str>) -> Value {
    let points: Vec<String> = ids.map(point).collect();
    json!({ "has_id": points })
}

fn is(field: &str, value: impl Serialize) -> Value {
    json!({ "key": field, "match": { "value": value } })
}

/// `None` without values, which restrict nothing.
fn one_of<V: Serialize>(field: &str, values: impl IntoIterator<Item = V>) -> Option<Value> {
    let values: Vec<V> = values.into_iter().collect();
    if values.is_empty() {
        return None;
    }
    Some(json!({ "key": field, "match": { "any": values } }))
}

fn is_empty(field: &str) -> Value {
    json!({ "is_empty": { "key": field } })
}

/// Matches no point.
fn nothing() -> Value {
    json!({ "has_id": [] })
}
