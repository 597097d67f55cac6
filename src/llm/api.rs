//! The two APIs of models: that of OpenAI, which most servers have, and that of Anthropic.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::llm::{ChatRequest, Delta, LlmError, anthropic, openai};

/// An API of chat models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Chat completions, as OpenAI, Ollama, llama.cpp, vLLM and OpenRouter have them.
    #[default]
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

impl Api {
    /// The path of requests below the base URL.
    pub(super) fn path(self) -> &'static str {
        match self {
            Api::OpenAi => "/chat/completions",
            Api::Anthropic => "/messages",
        }
    }

    /// The headers of a request with this key.
    pub(crate) fn headers(self, key: Option<&str>) -> Vec<(&'static str, String)> {
        match self {
            Api::OpenAi => {
                Vec::from_iter(key.map(|key| ("authorization", format!("Bearer {key}"))))
            }
            Api::Anthropic => {
                let version = ("anthropic-version", anthropic::VERSION.to_owned());
                let key = key.map(|key| ("x-api-key", key.to_owned()));
                Vec::from_iter([version].into_iter().chain(key))
            }
        }
    }

    /// The body of a request. The parameters cannot replace the fields that the client depends on.
    pub(super) fn body(
        self,
        request: &ChatRequest,
        model: &str,
        parameters: &Map<String, Value>,
    ) -> Value {
        let mut body = parameters.clone();
        body.insert("model".into(), model.into());
        body.insert("stream".into(), true.into());
        match self {
            Api::OpenAi => openai::body(request, body),
            Api::Anthropic => anthropic::body(request, body),
        }
    }

    pub(super) fn event_decoder(self) -> EventDecoder {
        match self {
            Api::OpenAi => EventDecoder::OpenAi,
            Api::Anthropic => EventDecoder::Anthropic(anthropic::EventDecoder::default()),
        }
    }
}

impl FromStr for Api {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "openai" => Ok(Api::OpenAi),
            "anthropic" => Ok(Api::Anthropic),
            _ => Err("there are openai and anthropic".to_owned()),
        }
    }
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub(super) enum EventDecoder {
    #[default]
    OpenAi,
    Anthropic(anthropic::EventDecoder),
}

impl EventDecoder {
    /// The deltas of one event, or of an answer that is not streamed.
    pub fn deltas(&mut self, event: &str) -> Result<Vec<Delta>, LlmError> {
        match self {
            EventDecoder::OpenAi => openai::deltas_of(event),
            EventDecoder::Anthropic(decoder) => decoder.deltas(event),
        }
    }
}
