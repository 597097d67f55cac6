//! An answer of the agent as Anthropic's messages have it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Head, Tokens};
use crate::dialect::Dialect;
use crate::wire::failure::Failure;
use crate::wire::sse;

pub struct Form;

impl super::Form for Form {
    fn whole(&self, head: &Head, text: &str, tokens: Tokens) -> Value {
        let content = json!([{ "type": "text", "text": text }]);
        message(head, &content, "end_turn".into(), tokens)
    }

    fn begin(&mut self, head: &Head) -> Bytes {
        // The tokens are known at the end alone.
        let message = message(head, &json!([]), Value::Null, Tokens::default());
        let block = json!({ "type": "text", "text": "" });
        events(&[
            json!({ "type": "message_start", "message": message }),
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        ])
    }

    fn text(&mut self, _head: &Head, part: &str) -> Bytes {
        let delta = json!({ "type": "text_delta", "text": part });
        events(&[json!({ "type": "content_block_delta", "index": 0, "delta": delta })])
    }

    fn end(&mut self, _head: &Head, _text: &str, tokens: Tokens) -> Bytes {
        let delta = json!({ "stop_reason": "end_turn", "stop_sequence": null });
        events(&[
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": delta, "usage": usage(tokens) }),
            json!({ "type": "message_stop" }),
        ])
    }

    fn error(&mut self, failure: &Failure) -> Bytes {
        Dialect::Messages.error_event(failure)
    }
}

fn message(head: &Head, content: &Value, stop_reason: Value, tokens: Tokens) -> Value {
    json!({
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": usage(tokens),
    })
}

fn usage(tokens: Tokens) -> Value {
    json!({ "input_tokens": tokens.input, "output_tokens": tokens.output })
}

fn events(events: &[Value]) -> Bytes {
    let mut frames = Vec::new();
    for event in events {
        let name = event.get("type").and_then(Value::as_str);
        frames.extend_from_slice(&sse::frame(name, &event.to_string()));
    }
    frames.into()
}
