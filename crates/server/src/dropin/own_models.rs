//! The embedders of this server as models.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Problem;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::printable::excerpt;
use toolscout_dropin::Failure;
use toolscout_finder::finder::toolbox::o200k;
use toolscout_index::embed::{Embedder, Encoder, MultilingualTable, StaticTable};

/// Most texts of a request, as of OpenAI.
const MAX_TEXTS: usize = 2_048;
/// Most bytes of all texts of a request.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// Longest request: a character of a text may take six bytes of JSON.
const MAX_BODY_BYTES: usize = 6 * MAX_TEXT_BYTES;
/// Texts that are embedded without letting other work in between.
const TEXTS_AT_ONCE: usize = 32;
/// Most characters of what a client sent, in a message.
const MAX_EXCERPT_CHARS: usize = 100;

/// An embedder of this server, as a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnModel {
    /// The table of English words.
    Table,
    /// The table of other languages.
    Languages,
    /// The transformer.
    Encoder,
}

impl OwnModel {
    /// All of them.
    pub const ALL: [OwnModel; 3] = [OwnModel::Table, OwnModel::Languages, OwnModel::Encoder];

    /// The model of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            OwnModel::Table => "toolscout/table",
            OwnModel::Languages => "toolscout/languages",
            OwnModel::Encoder => "toolscout/encoder",
        }
    }

    /// As an entry of a list of models.
    pub fn entry(self) -> Bytes {
        let entry = json!({
            "id": self.name(), "object": "model", "type": "model", "display_name": self.name(),
            "created": 0, "created_at": "1970-01-01T00:00:00Z", "owned_by": "toolscout",
        });
        entry.to_string().into()
    }

    fn embedder(self) -> toolscout_index::Result<Arc<dyn Embedder>> {
        Ok(match self {
            OwnModel::Table => StaticTable::bundled()?,
            OwnModel::Languages => MultilingualTable::bundled()?,
            OwnModel::Encoder => Encoder::bundled()?,
        })
    }

    /// The answer to a request for this model.
    pub(super) async fn answer(self, cpu_pool: &CpuPool, body: &Bytes) -> Result<Bytes, Problem> {
        let asked = Asked::read(body)?;
        let embedder = cpu_pool.run(move || self.embedder()).await;
        let embedder = embedder.map_err(Failure::from)?.map_err(failed)?;
        asked.require_dimensions(self, embedder.dimensions())?;
        let mut data = Vec::with_capacity(asked.texts.len());
        let mut tokens = 0;
        let texts = Arc::new(asked.texts);
        // In parts, so that one request does not keep a thread for long.
        for from in (0..texts.len()).step_by(TEXTS_AT_ONCE) {
            let (texts, embedder) = (Arc::clone(&texts), Arc::clone(&embedder));
            let embedding = cpu_pool.run(move || {
                let part: Vec<&str> = texts[from..]
                    .iter()
                    .take(TEXTS_AT_ONCE)
                    .map(String::as_str)
                    .collect();
                let tokens: usize = part.iter().map(|text| o200k(text)).sum();
                (embedder.embed_queries(&part), tokens)
            });
            let (vectors, counted) = embedding.await.map_err(Failure::from)?;
            tokens += counted;
            for vector in vectors.map_err(failed)? {
                data.push(json!({
                    "object": "embedding",
                    "index": data.len(),
                    "embedding": asked.format.written(&vector),
                }));
            }
        }
        let answer = json!({
            "object": "list",
            "data": data,
            "model": self.name(),
            "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        });
        Ok(answer.to_string().into())
    }
}

fn failed(error: toolscout_index::Error) -> Problem {
    Failure::new(500, "internal", error.to_string()).into()
}

/// What is asked of an own model.
struct Asked {
    texts: Vec<String>,
    format: VectorFormat,
    dimensions: Option<usize>,
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VectorFormat {
    /// As numbers.
    #[default]
    Float,
    /// As the bytes of 32-bit floats, little end first.
    Base64,
}

impl VectorFormat {
    fn written(self, vector: &[f32]) -> Value {
        match self {
            VectorFormat::Float => json!(vector),
            VectorFormat::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|one| one.to_le_bytes()).collect();
                STANDARD.encode(bytes).into()
            }
        }
    }
}

#[derive(Deserialize)]
struct Body {
    input: Value,
    #[serde(default)]
    encoding_format: Option<VectorFormat>,
    #[serde(default)]
    dimensions: Option<usize>,
}

impl Asked {
    fn read(body: &Bytes) -> Result<Self, Failure> {
        // Before it is parsed: small values take much more memory than their text.
        if body.len() > MAX_BODY_BYTES {
            return Err(invalid(format!(
                "the request has {} bytes; send at most {MAX_BODY_BYTES}",
                body.len()
            )));
        }
        let body: Body = serde_json::from_slice(body).map_err(|error| {
            let reason = excerpt(&error.to_string(), MAX_EXCERPT_CHARS);
            invalid(format!("the body is no request for embeddings: {reason}"))
        })?;
        let texts = match body.input {
            Value::String(text) => vec![text],
            Value::Array(items) => {
                let mut texts = Vec::with_capacity(items.len().min(MAX_TEXTS));
                for item in items {
                    match item {
                        Value::String(text) => texts.push(text),
                        other => return Err(no_text(&other)),
                    }
                }
                texts
            }
            other => return Err(no_text(&other)),
        };
        let bytes: usize = texts.iter().map(String::len).sum();
        if texts.is_empty() || texts.len() > MAX_TEXTS || bytes > MAX_TEXT_BYTES {
            return Err(invalid(format!(
                "`input` has {} texts of {bytes} bytes; send 1 to {MAX_TEXTS} texts of at most {MAX_TEXT_BYTES} bytes \
                 together",
                texts.len()
            )));
        }
        if let Some(place) = texts.iter().position(String::is_empty) {
            return Err(invalid(format!(
                "`input[{place}]` is an empty text; leave it out"
            )));
        }
        Ok(Asked {
            texts,
            format: body.encoding_format.unwrap_or_default(),
            dimensions: body.dimensions,
        })
    }

    fn require_dimensions(&self, model: OwnModel, has: usize) -> Result<(), Failure> {
        match self.dimensions {
            Some(asked) if asked != has => Err(invalid(format!(
                "`dimensions` is {asked}, and vectors of {} have {has}; leave it out",
                model.name()
            ))),
            _ => Ok(()),
        }
    }
}

fn no_text(value: &Value) -> Failure {
    let shown = excerpt(&value.to_string(), MAX_EXCERPT_CHARS);
    invalid(format!(
        "`input` has {shown}, and this server's models embed texts; send a text or a list of texts"
    ))
}

fn invalid(message: String) -> Failure {
    Failure::new(400, "invalid_request", message)
}
