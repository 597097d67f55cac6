//! Which field of a document is what.
//!
//! An index that toolscout has written has [our fields](Own): the analysed terms of each tool as text whose words
//! are separated by spaces, so that the engine's words are exactly ours, and one field of vectors for each view of
//! each embedder. Of an index that somebody else fills, the owner names the fields ([`FieldMapping`]).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use toolscout_base::config::FieldMapping;
use toolscout_index::{Embedder, Tool, ToolId};

use crate::failure::{Cause, Failure};

/// Changes whenever the fields do, so that an index of another version is written anew.
const FORMAT: u64 = 1;
/// The field of the terms.
pub const TERMS: &str = "terms";

/// What tools are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Their server.
    Server,
    /// Their tags.
    Tag,
}

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
}

/// Bytes of a vector as text.
pub fn encoded(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    BASE64_STANDARD.encode(bytes)
}

/// The vectors of a tool's views, as a document has kept them; none where they are damaged.
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

    /// The field of a label; `None` if the documents have none.
    pub fn label(&self, label: Label) -> Option<&str> {
        match (self, label) {
            (Layout::Own(_), Label::Server) => Some("server"),
            (Layout::Own(_), Label::Tag) => Some("tags"),
            (Layout::Mapped(fields), Label::Server) => fields.server.as_deref(),
            (Layout::Mapped(fields), Label::Tag) => fields.tags.as_deref(),
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
        // The rest of the path is a sub-field, which a document has under the name of its field.
        if value.is_string() || value.is_array() {
            break;
        }
        value = &value[part];
    }
    value
}

/// The names of tools by their servers. An id that is none is left out: no tool has it.
pub fn servers_of<'a>(ids: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<String>> {
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in ids.filter_map(|id| ToolId::parse(id).ok()) {
        let names = servers.entry(id.server().to_owned()).or_default();
        names.push(id.name().to_owned());
    }
    servers
}

/// The fields of an embedder's vectors; none if the index has none of it.
pub fn vector_fields(layout: &Layout, embedder: &str, length: usize) -> Vec<String> {
    match layout {
        Layout::Own(own) => {
            let is_it = |kept: &&KeptEmbedder| kept.id == embedder && kept.dimensions == length;
            let kept = own.embedders.iter().find(is_it);
            kept.map(|kept| kept.fields.clone()).unwrap_or_default()
        }
        Layout::Mapped(fields) => match (&fields.vector, &fields.vector_embedder) {
            (Some(field), Some(of)) if of == embedder => vec![field.clone()],
            _ => Vec::new(),
        },
    }
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
