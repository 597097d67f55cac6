//! An answer of the agent as OpenAI's chat completions have it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Head, Tokens};
use crate::dialect::Dialect;
use crate::wire::failure::Failure;
use crate::wire::sse;

pub struct Form {
    /// Whether a stream has a chunk with the tokens.
    pub has_usage: bool,
}

impl super::Form for Form {
    fn whole(&self, head: &Head, text: &str, tokens: Tokens) -> Value {
        json!({
            "id": head.id,
            "object": "chat.completion",
            "created": head.created_s,
            "model": head.model,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": text, "refusal": null },
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": usage(tokens),
        })
    }

    fn begin(&mut self, head: &Head) -> Bytes {
        let delta = json!({ "role": "assistant", "content": "" });
        chunk(head, &json!([choice(&delta, Value::Null)]), Value::Null)
    }

    fn text(&mut self, head: &Head, part: &str) -> Bytes {
        let delta = json!({ "content": part });
        chunk(head, &json!([choice(&delta, Value::Null)]), Value::Null)
    }

    fn end(&mut self, head: &Head, _text: &str, tokens: Tokens) -> Bytes {
        let last = json!([choice(&json!({}), "stop".into())]);
        let mut end = chunk(head, &last, Value::Null).to_vec();
        // As OpenAI has it: a chunk of its own, without choices.
        if self.has_usage {
            end.extend_from_slice(&chunk(head, &json!([]), usage(tokens)));
        }
        end.extend_from_slice(&sse::frame(None, "[DONE]"));
        end.into()
    }

    fn error(&mut self, failure: &Failure) -> Bytes {
        Dialect::Chat.error_event(failure)
    }
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
    })
}

fn choice(delta: &Value, finish_reason: Value) -> Value {
    json!({ "index": 0, "delta": delta, "finish_reason": finish_reason })
}

fn chunk(head: &Head, choices: &Value, usage: Value) -> Bytes {
    let mut chunk = json!({
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created_s,
        "model": head.model,
        "choices": choices,
    });
    if !usage.is_null() {
        chunk["usage"] = usage;
    }
    sse::frame(None, &chunk.to_string())
}
