//! The APIs of models: that of OpenAI, which most servers have, and those of Anthropic and Ollama.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::llm::{ChatRequest, Delta, LlmError, anthropic, ollama, openai};

/// An API of chat models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// Chat completions, as OpenAI, Ollama, llama.cpp, vLLM and OpenRouter have them.
    #[default]
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Ollama's own chat API, which alone takes `num_ctx`.
    Ollama,
}

impl Api {
    /// The address of requests below a base URL.
    pub(super) fn address(self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        match self {
            Api::OpenAi => format!("{base}/chat/completions"),
            Api::Anthropic => format!("{base}/messages"),
            // Its own API is beside the one below `/v1`.
            Api::Ollama => format!("{}/api/chat", base.strip_suffix("/v1").unwrap_or(base)),
        }
    }

    /// Whether an answer is streamed as lines of JSON, and not as server-sent events.
    pub(super) fn streams_lines(self) -> bool {
        self == Api::Ollama
    }

    /// The headers of a request with this key.
    pub fn headers(self, key: Option<&str>) -> Vec<(&'static str, String)> {
        match self {
            Api::OpenAi | Api::Ollama => {
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
            Api::Ollama => ollama::body(request, body),
        }
    }

    pub(super) fn event_decoder(self) -> EventDecoder {
        match self {
            Api::OpenAi => EventDecoder::OpenAi,
            Api::Anthropic => EventDecoder::Anthropic(anthropic::EventDecoder::default()),
            Api::Ollama => EventDecoder::Ollama(ollama::EventDecoder::default()),
        }
    }
}

impl FromStr for Api {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "openai" => Ok(Api::OpenAi),
            "anthropic" => Ok(Api::Anthropic),
            "ollama" => Ok(Api::Ollama),
            _ => Err("there are openai, anthropic and ollama".to_owned()),
        }
    }
}

/// Decodes the events of one answer.
#[derive(Debug, Default)]
pub(super) enum EventDecoder {
    #[default]
    OpenAi,
    Anthropic(anthropic::EventDecoder),
    Ollama(ollama::EventDecoder),
}

impl EventDecoder {
    /// The deltas of one event, or of an answer that is not streamed.
    pub fn deltas(&mut self, event: &str) -> Result<Vec<Delta>, LlmError> {
        match self {
            EventDecoder::OpenAi => openai::deltas_of(event),
            EventDecoder::Anthropic(decoder) => decoder.deltas(event),
            EventDecoder::Ollama(decoder) => decoder.deltas(event),
        }
    }
}
