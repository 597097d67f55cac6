//! Which field of a document is what.
//!
//! An index that toolscout has written has [our fields](Own): the analysed terms of each tool as text whose words
//! are separated by spaces, so that the engine's words are exactly ours, and one field of vectors for each view of
//! each embedder. Of an index that somebody else fills, the owner names the fields ([`FieldMapping`]).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};
use toolscout_base::config::{ExternalProduct, FieldMapping};
use toolscout_index::pushdown::{Footprint, STEPS_PER_WEIGHT};
use toolscout_index::{Embedder, LexicalSettings, Tool};

use crate::failure::{Cause, Failure};

/// Changes whenever the fields do, so that an index of another version is written anew.
const FORMAT: u64 = 1;
/// Repeats of a term in a document at most.
const MAX_REPEATS: u32 = 64;
/// Bytes of the text of terms at most: some ten thousand words.
const MAX_TERMS_BYTES: usize = 1 << 20;
/// The field of the terms.
pub const TERMS: &str = "terms";
/// The name of the similarity with our parameters of BM25.
const SIMILARITY: &str = "toolscout";

/// How the documents of an index are read.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// toolscout has written them.
    Own(Own),
    /// Somebody else has.
    Mapped(Box<FieldMapping>),
}

/// The fields of vectors in an index that toolscout has written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Own {
    /// One for each embedder.
    pub embedders: Vec<KeptEmbedder>,
}

/// An embedder whose vectors an index has.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptEmbedder {
    /// Its id.
    pub id: String,
    /// The length of its vectors.
    pub dimensions: usize,
    /// The fields of its views, in their order.
    pub fields: Vec<String>,
    /// The field with the vectors of all views as they were computed, for an embedder that is too slow to compute
    /// them for each search.
    pub kept: Option<String>,
}

impl Own {
    /// The fields of these embedders.
    pub fn of<'a>(embedders: impl Iterator<Item = &'a dyn Embedder>) -> Self {
        let mut all = Vec::new();
        for (number, embedder) in embedders.enumerate() {
            let views = 0..embedder.views().len();
            all.push(KeptEmbedder {
                id: embedder.id().to_owned(),
                dimensions: embedder.dimensions(),
                fields: views.map(|view| format!("v{number}_{view}")).collect(),
                kept: (!embedder.is_instant()).then(|| format!("kept{number}")),
            });
        }
        Own { embedders: all }
    }

    /// What the index says of itself, beside its fields.
    pub fn meta(&self, identity: &str, generation: u64) -> Value {
        let mut embedders = Vec::new();
        for embedder in &self.embedders {
            embedders.push(json!({
                "id": embedder.id,
                "dimensions": embedder.dimensions,
                "fields": embedder.fields,
                "kept": embedder.kept,
            }));
        }
        json!({ "toolscout": {
            "format": FORMAT,
            "catalog": identity,
            "generation": generation,
            "embedders": embedders,
        } })
    }

    /// The identity of the catalog that was written, and its generation, as [`Own::meta`] has them.
    pub fn written_by(meta: &Value) -> (&str, u64) {
        let meta = &meta["toolscout"];
        (
            meta["catalog"].as_str().unwrap_or_default(),
            meta["generation"].as_u64().unwrap_or_default(),
        )
    }

    /// Reads [`Own::meta`], with the generation; `None` for an index that toolscout has not written.
    ///
    /// # Errors
    /// [`Cause::Version`] for one that another version has written.
    pub fn read(meta: &Value) -> Result<Option<(Self, u64)>, Failure> {
        let meta = &meta["toolscout"];
        if meta.is_null() {
            return Ok(None);
        }
        if meta["format"].as_u64() != Some(FORMAT) {
            let reason = "another version of toolscout has written this index; run `toolscout external write` with this \
                          version";
            return Err(Failure::new(Cause::Version, reason));
        }
        let generation = meta["generation"].as_u64().unwrap_or_default();
        let mut embedders = Vec::new();
        for embedder in meta["embedders"].as_array().into_iter().flatten() {
            let fields = embedder["fields"].as_array().into_iter().flatten();
            embedders.push(KeptEmbedder {
                id: embedder["id"].as_str().unwrap_or_default().to_owned(),
                dimensions: embedder["dimensions"].as_u64().unwrap_or_default() as usize,
                fields: fields
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
                kept: embedder["kept"].as_str().map(str::to_owned),
            });
        }
        Ok(Some((Own { embedders }, generation)))
    }

    /// The body that creates an index.
    pub fn index(
        &self,
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
        for embedder in &self.embedders {
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
        if product == ExternalProduct::OpenSearch && !self.embedders.is_empty() {
            settings["knn"] = true.into();
        }
        // Strict, so that a field of a later version is refused and not guessed.
        json!({
            "settings": { "index": settings },
            "mappings": {
                "dynamic": "strict",
                "_meta": self.meta(identity, 0),
                "properties": properties,
            },
        })
    }
}

/// A field of vectors that can be searched.
fn vector_field(product: ExternalProduct, dimensions: usize) -> Value {
    match product {
        // `cosine`, since our vectors of length 1 are rounded.
        ExternalProduct::Elasticsearch => json!({
            "type": "dense_vector", "dims": dimensions, "index": true, "similarity": "cosine",
            "index_options": { "type": "int8_hnsw" },
        }),
        ExternalProduct::OpenSearch => json!({
            "type": "knn_vector", "dimension": dimensions,
            "method": { "name": "hnsw", "engine": "lucene", "space_type": "cosinesimil" },
        }),
    }
}

/// A document of an index that toolscout writes.
pub fn document(
    tool: &Tool,
    json: &str,
    hash: &str,
    footprint: &Footprint,
    vectors: &[(&KeptEmbedder, &[Vec<f32>])],
) -> Value {
    let [name_key, full_key] = &footprint.name_keys;
    let mut document = json!({
        "id": tool.id.as_str(),
        "server": tool.id.server(),
        "tags": tool.tags,
        "kind": tool.kind.as_str(),
        "read_only": footprint.read_only,
        "destructive": footprint.destructive,
        "name_key": name_key,
        "full_key": full_key,
        "hash": hash,
        "tool": json,
        TERMS: terms_text(footprint),
    });
    for (embedder, views) in vectors {
        for (field, vector) in embedder.fields.iter().zip(*views) {
            // A text without a known word has no direction, which `cosine` refuses.
            if vector.iter().any(|number| *number != 0.0) {
                document[field] = json!(vector);
            }
        }
        if let Some(kept) = &embedder.kept {
            let encoded: Vec<String> = views.iter().map(|vector| encoded(vector)).collect();
            document[kept] = json!(encoded);
        }
    }
    document
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

fn encoded(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    BASE64_STANDARD.encode(bytes)
}

/// The vectors of a tool's views, as [`document`] has kept them; none where they are damaged.
pub fn kept_vectors(source: &Value, embedder: &KeptEmbedder) -> Vec<Vec<f32>> {
    let kept = embedder.kept.as_ref().map(|field| &source[field]);
    let mut vectors = Vec::new();
    for text in kept.and_then(Value::as_array).into_iter().flatten() {
        let bytes = BASE64_STANDARD.decode(text.as_str().unwrap_or_default());
        let bytes = bytes.unwrap_or_default();
        let (numbers, _) = bytes.as_chunks::<4>();
        if numbers.len() != embedder.dimensions {
            return Vec::new();
        }
        vectors.push(
            numbers
                .iter()
                .map(|bytes| f32::from_le_bytes(*bytes))
                .collect(),
        );
    }
    vectors
}

impl Layout {
    /// The fields that are read of a document to make a tool of it.
    pub fn source(&self) -> Vec<String> {
        match self {
            Layout::Own(own) => {
                let kept = own
                    .embedders
                    .iter()
                    .filter_map(|embedder| embedder.kept.clone());
                std::iter::once("tool".to_owned()).chain(kept).collect()
            }
            Layout::Mapped(fields) => {
                let optional = [
                    &fields.server,
                    &fields.description,
                    &fields.title,
                    &fields.schema,
                    &fields.tags,
                    &fields.vector,
                ];
                let optional = optional.into_iter().flatten();
                optional.chain([&fields.name]).cloned().collect()
            }
        }
    }

    /// The field that tools are listed by.
    pub fn order(&self) -> &str {
        match self {
            Layout::Own(_) => "id",
            Layout::Mapped(fields) => &fields.name,
        }
    }

    /// The tool of a document; `None` for a document that is none.
    pub fn tool(&self, source: &Value) -> Option<Tool> {
        match self {
            Layout::Own(_) => serde_json::from_str(source["tool"].as_str()?).ok(),
            Layout::Mapped(fields) => mapped(fields, source),
        }
    }
}

fn mapped(fields: &FieldMapping, source: &Value) -> Option<Tool> {
    let text = |field: &Option<String>| field.as_ref().and_then(|field| text_at(source, field));
    let server = text(&fields.server).unwrap_or_else(|| fields.default_server.clone());
    let mut tool = Tool::new(&server, &text_at(source, &fields.name)?).ok()?;
    tool.description = text(&fields.description).unwrap_or_default();
    tool.title = text(&fields.title);
    if let Some(field) = &fields.tags {
        tool.tags = texts_at(source, field);
    }
    if let Some(field) = &fields.schema {
        let schema = match at(source, field) {
            Value::String(text) => serde_json::from_str(text).ok(),
            Value::Object(object) => Some(object.clone()),
            _ => None,
        };
        if let Some(schema) = schema {
            tool.input_schema = schema;
        }
    }
    // What the engine would not have stored is not searched either.
    tool.validate().ok()?;
    Some(tool)
}

/// The value of a field, whose name may be a path.
pub fn at<'a>(source: &'a Value, field: &str) -> &'a Value {
    if let Some(value) = source.get(field) {
        return value;
    }
    let mut value = source;
    for part in field.split('.') {
        value = &value[part];
    }
    value
}

fn text_at(source: &Value, field: &str) -> Option<String> {
    texts_at(source, field).into_iter().next()
}

/// A field of a document may have one value or several.
fn texts_at(source: &Value, field: &str) -> Vec<String> {
    let of = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match at(source, field) {
        Value::Array(values) => values.iter().filter_map(of).collect(),
        value => of(value).into_iter().collect(),
    }
}
