//! The fields of an index: those that toolscout makes, and what has to be true of those that somebody else made.

use serde_json::{Map, Value, json};
use toolscout_base::config::{ExternalProduct, FieldMapping};
use toolscout_index::LexicalSettings;
use toolscout_index::pushdown::{Footprint, STEPS_PER_WEIGHT};

use crate::engine::NewDocument;
use crate::failure::{Cause, Failure};
use crate::layout::{Own, TERMS};

/// Repeats of a term in a document at most.
const MAX_REPEATS: u32 = 64;
/// Bytes of the text of terms at most: some ten thousand words.
const MAX_TERMS_BYTES: usize = 1 << 20;
/// The name of the similarity with our parameters of BM25.
const SIMILARITY: &str = "toolscout";
/// Names that a field may have until it is found: an alias stands for a field, not for another alias.
const MAX_ALIASES: usize = 2;

/// The body that creates an index.
pub fn index(
    own: &Own,
    product: ExternalProduct,
    lexical: &LexicalSettings,
    identity: &str,
) -> Value {
    let keyword = || json!({ "type": "keyword" });
    let stored = || json!({ "type": "keyword", "index": false, "doc_values": false });
    let mut properties = Map::new();
    for field in [
        "id", "server", "tags", "kind", "name_key", "full_key", "hash",
    ] {
        properties.insert(field.to_owned(), keyword());
    }
    for field in ["read_only", "destructive"] {
        properties.insert(field.to_owned(), json!({ "type": "boolean" }));
    }
    // The whole definition is read, and never searched.
    properties.insert("tool".to_owned(), stored());
    // The analyzer `whitespace` takes each word as it is, so the words are our terms.
    properties.insert(
        TERMS.to_owned(),
        json!({
            "type": "text", "analyzer": "whitespace", "index_options": "freqs", "similarity": SIMILARITY,
        }),
    );
    for embedder in &own.embedders {
        for field in &embedder.fields {
            properties.insert(field.clone(), vector_field(product, embedder.dimensions));
        }
        if let Some(kept) = &embedder.kept {
            properties.insert(kept.clone(), stored());
        }
    }
    let mut settings = json!({
        "similarity": { SIMILARITY: { "type": "BM25", "k1": lexical.k1, "b": lexical.b } },
    });
    if product == ExternalProduct::OpenSearch && !own.embedders.is_empty() {
        settings["knn"] = true.into();
    }
    // Strict, so that a field of a later version is refused and not guessed.
    json!({
        "settings": { "index": settings },
        "mappings": {
            "dynamic": "strict",
            "_meta": own.meta(identity, 0),
            "properties": properties,
        },
    })
}

/// A field of vectors that can be searched.
fn vector_field(product: ExternalProduct, dimensions: usize) -> Value {
    match product {
        ExternalProduct::OpenSearch => json!({
            "type": "knn_vector", "dimension": dimensions,
            "method": { "name": "hnsw", "engine": "lucene", "space_type": "cosinesimil" },
        }),
        // `cosine`, since our vectors of length 1 are rounded.
        _ => json!({
            "type": "dense_vector", "dims": dimensions, "index": true, "similarity": "cosine",
            "index_options": { "type": "int8_hnsw" },
        }),
    }
}

/// A document of an index that toolscout writes.
pub fn document(new: &NewDocument<'_>) -> String {
    let mut document = new.fields();
    document[TERMS] = terms_text(new.footprint).into();
    for (field, vector) in new.searched() {
        document[field] = json!(vector);
    }
    document.to_string()
}

/// The terms of a tool, each as often as it weighs.
fn terms_text(footprint: &Footprint) -> String {
    let mut text = String::new();
    for (term, steps) in &footprint.analysis.terms {
        let weight = (*steps as f32 / STEPS_PER_WEIGHT).round() as u32;
        // Repeated, since the engine counts how often a word is in a text.
        for _ in 0..weight.clamp(1, MAX_REPEATS) {
            if text.len() + term.len() >= MAX_TERMS_BYTES {
                return text;
            }
            text.push_str(term);
            text.push(' ');
        }
    }
    text
}

/// The fields of an index that somebody else made, with aliases of fields replaced by what they stand for: a document
/// has the fields alone.
///
/// # Errors
/// [`Cause::Request`] for a field that is missing, or has another type than is needed.
pub fn resolved(fields: &FieldMapping, mappings: &Value) -> Result<FieldMapping, Failure> {
    let mut fields = fields.clone();
    for field in &fields.search {
        let name = field.split('^').next().unwrap_or_default();
        find(name, mappings)?;
    }
    let optional = [
        &mut fields.server,
        &mut fields.description,
        &mut fields.title,
        &mut fields.schema,
        &mut fields.tags,
        &mut fields.vector,
    ];
    for field in optional.into_iter().flatten() {
        *field = find(field, mappings)?.0;
    }
    fields.name = find(&fields.name, mappings)?.0;
    let exact = [
        Some(&fields.name),
        fields.server.as_ref(),
        fields.tags.as_ref(),
    ];
    for field in exact.into_iter().flatten() {
        check_exact(field, mapping(mappings, field))?;
    }
    if let Some(field) = &fields.vector {
        check_vector(field, mapping(mappings, field))?;
    }
    Ok(fields)
}

/// What the mappings say of a field, or `null`.
fn mapping<'a>(mappings: &'a Value, field: &str) -> &'a Value {
    let mut found = mappings;
    for part in field.split('.') {
        let within = &found["properties"][part];
        found = match within.is_null() {
            true => &found["fields"][part],
            false => within,
        };
    }
    found
}

/// A field by its name or by that of an alias, with its own name.
fn find<'a>(field: &str, mappings: &'a Value) -> Result<(String, &'a Value), Failure> {
    let mut name = field;
    for _ in 0..MAX_ALIASES {
        let found = mapping(mappings, name);
        match found["path"].as_str() {
            Some(path) if found["type"] == "alias" => name = path,
            _ if found.is_null() => break,
            _ => return Ok((name.to_owned(), found)),
        }
    }
    let reason =
        format!("it has no field {field:?}, which the table fields names; name one that it has");
    Err(Failure::new(Cause::Request, reason))
}

/// Fields that are compared as a whole.
fn check_exact(field: &str, found: &Value) -> Result<(), Failure> {
    let kind = found["type"].as_str().unwrap_or("object");
    if matches!(kind, "keyword" | "constant_keyword" | "wildcard") {
        return Ok(());
    }
    let mut keywords = found["fields"].as_object().into_iter().flatten();
    let next_step = match keywords.find(|(_, sub_field)| sub_field["type"] == "keyword") {
        Some((sub_field, _)) => format!("name its sub-field {field}.{sub_field}"),
        None => "name a field that is one".to_owned(),
    };
    let reason =
        format!("its field {field:?} has the type {kind}, and has to be a keyword; {next_step}");
    Err(Failure::new(Cause::Request, reason))
}

/// Fields of vectors, which are compared with vectors of length 1.
fn check_vector(field: &str, found: &Value) -> Result<(), Failure> {
    let kind = found["type"].as_str().unwrap_or("object");
    let said = |reason: String| Err(Failure::new(Cause::Request, reason));
    if !matches!(kind, "dense_vector" | "knn_vector") {
        return said(format!(
            "its field {field:?} has the type {kind}, and has no vectors that can be searched; name another in \
             fields.vector"
        ));
    }
    if found["index"] == false {
        return said(format!(
            "its field {field:?} has vectors without an index; name another in fields.vector"
        ));
    }
    let bytes = found["element_type"]
        .as_str()
        .or(found["data_type"].as_str());
    if let Some(numbers @ ("byte" | "bit" | "binary")) = bytes {
        return said(format!(
            "its field {field:?} has vectors of the type {numbers}, and has to have vectors of floats; name another in \
             fields.vector"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings() -> Value {
        json!({ "properties": {
            "heading": { "type": "alias", "path": "title" },
            "title": { "type": "text", "fields": { "raw": { "type": "keyword" } } },
            "slug": { "type": "keyword" },
            "body": { "type": "text" },
            "bytes": { "type": "dense_vector", "dims": 8, "element_type": "byte" },
            "stored": { "type": "dense_vector", "dims": 8, "index": false },
            "vector": { "type": "dense_vector", "dims": 8 },
        } })
    }

    fn fields(change: impl Fn(&mut FieldMapping)) -> Result<FieldMapping, Failure> {
        let mut fields = FieldMapping {
            name: "slug".to_owned(),
            title: Some("heading".to_owned()),
            search: vec!["heading^2".to_owned(), "body".to_owned()],
            ..FieldMapping::default()
        };
        change(&mut fields);
        resolved(&fields, &mappings())
    }

    #[test]
    fn an_alias_is_read_as_the_field_that_it_stands_for() {
        let read = fields(|fields| fields.name = "title.raw".to_owned()).unwrap();
        assert_eq!(read.title.as_deref(), Some("title"));
        assert_eq!(read.search[0], "heading^2");
        assert_eq!(read.name, "title.raw");
    }

    #[test]
    fn a_field_that_cannot_serve_is_named_with_the_next_step() {
        let vector = |name: &str| {
            let name = name.to_owned();
            fields(move |fields| fields.vector = Some(name.clone()))
        };
        assert!(vector("vector").is_ok());
        for (refused, said) in [
            (
                fields(|fields| fields.name = "title".to_owned()),
                "title.raw",
            ),
            (
                fields(|fields| fields.name = "nothing".to_owned()),
                "no field \"nothing\"",
            ),
            (vector("body"), "no vectors that can be searched"),
            (vector("bytes"), "vectors of the type byte"),
            (vector("stored"), "without an index"),
        ] {
            let reason = refused.unwrap_err().reason;
            assert!(reason.contains(said), "{reason}");
        }
    }
}
