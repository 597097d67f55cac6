//! Our own agent as a model of chat completions: the question in a request, and the answer in the
//! form of the API.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::proxy::dialect::{Dialect, Item};
use crate::proxy::failure::Failure;
use crate::proxy::json::{self, Fields};
use crate::proxy::memory::{ConversationKey, Identity};
use crate::proxy::sse;

/// The name of the model that is our agent.
pub const AGENT_MODEL: &str = "toolscout/agent";

/// A question to the agent.
pub struct AgentQuestion {
    /// The last message of the user.
    pub text: String,
    /// Whether the answer is streamed.
    pub streams: bool,
    /// The conversation that it continues, by what the client sees of it.
    pub continued: Option<ConversationKey>,
    identity: Identity,
}

impl AgentQuestion {
    /// Reads a request; `None` where it is for another model.
    ///
    /// # Errors
    /// For a request without a question, and for one of another API.
    pub fn read(dialect: Dialect, owner: &str, body: &Bytes) -> Result<Option<Self>, Failure> {
        let Some(fields) = Fields::read(body) else {
            return Ok(None);
        };
        if fields.text("model").as_deref() != Some(AGENT_MODEL) {
            return Ok(None);
        }
        let protocol = dialect.protocol();
        if dialect != Dialect::Chat {
            let message =
                format!("{AGENT_MODEL} answers chat completions; send it to /v1/chat/completions");
            return Err(Failure::new(400, "unsupported_dialect", message));
        }
        let items = protocol.conversation(&fields).unwrap_or_default();
        let mut identity = Identity::new(owner, AGENT_MODEL);
        let (mut continued, mut text) = (None, String::new());
        for item in &items {
            let item: Value = serde_json::from_slice(item).unwrap_or_default();
            let is_question = item.get("role").is_some_and(|role| role == "user");
            if is_question {
                text = super::dialect::content_text(item.get("content"));
            }
            let item = protocol.item(&item);
            let is_answer = matches!(item, Item::OfModel { .. });
            identity.add(item);
            if is_answer {
                continued = Some(identity.key());
                text.clear();
            }
        }
        if text.trim().is_empty() {
            let message = "the last message has no question; send one of the user, with a text";
            return Err(Failure::new(400, "no_question", message));
        }
        Ok(Some(AgentQuestion {
            text,
            streams: fields.flag("stream") == Some(true),
            continued,
            identity,
        }))
    }

    /// The conversation after this answer, by what the client sees of it.
    pub fn after(&self, answer: &str) -> ConversationKey {
        let mut identity = self.identity.clone();
        identity.add(Item::OfModel {
            text: answer.to_owned(),
            calls: Vec::new(),
        });
        identity.key()
    }
}

/// The parts of an answer of the agent.
pub struct AgentAnswer {
    /// Its id.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
}

impl AgentAnswer {
    /// The whole answer.
    pub fn whole(&self, text: &str, input_tokens: u64, output_tokens: u64) -> Bytes {
        json::bytes(&json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": AGENT_MODEL,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": text, "refusal": null },
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": input_tokens,
                "completion_tokens": output_tokens,
                "total_tokens": input_tokens + output_tokens,
            },
        }))
    }

    /// The beginning of a stream.
    pub fn begin(&self) -> Bytes {
        self.chunk(&json!({ "role": "assistant", "content": "" }), Value::Null)
    }

    /// A part of the text.
    pub fn text(&self, text: &str) -> Bytes {
        self.chunk(&json!({ "content": text }), Value::Null)
    }

    /// The end of a stream.
    pub fn end(&self) -> Bytes {
        let mut end = self.chunk(&json!({}), "stop".into()).to_vec();
        end.extend_from_slice(&sse::frame(None, "[DONE]"));
        end.into()
    }

    fn chunk(&self, delta: &Value, finish_reason: Value) -> Bytes {
        let chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": AGENT_MODEL,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        });
        sse::frame(None, &chunk.to_string())
    }
}

/// Adds the agent to a provider's list of models.
pub fn add_agent(list: &Bytes) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(list) else {
        return list.clone();
    };
    let Some(models) = list.get_mut("data").and_then(Value::as_array_mut) else {
        return json::bytes(&list);
    };
    models.push(agent_entry());
    json::bytes(&list)
}

/// A list of models that has the agent alone.
pub fn agent_alone() -> Bytes {
    json::bytes(&json!({ "object": "list", "data": [agent_entry()] }))
}

fn agent_entry() -> Value {
    json!({
        "id": AGENT_MODEL,
        "object": "model",
        "type": "model",
        "display_name": "toolscout agent",
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "toolscout",
    })
}
