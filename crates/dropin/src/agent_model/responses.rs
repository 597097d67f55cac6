//! An answer of the agent as OpenAI's responses have it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Head, Tokens};
use crate::dialect::Dialect;
use crate::wire::failure::Failure;
use crate::wire::sse;

#[derive(Default)]
pub struct Form {
    /// The number of the next event.
    sequence: u64,
}

impl super::Form for Form {
    fn whole(&self, head: &Head, text: &str, tokens: Tokens) -> Value {
        let output = json!([message(head, "completed", &json!([part(text)]))]);
        response(head, "completed", &output, usage(tokens))
    }

    fn begin(&mut self, head: &Head) -> Bytes {
        let response = response(head, "in_progress", &json!([]), Value::Null);
        let item = message(head, "in_progress", &json!([]));
        self.events(vec![
            json!({ "type": "response.created", "response": response }),
            json!({ "type": "response.in_progress", "response": response }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
            of_part(head, "response.content_part.added", "part", part("")),
        ])
    }

    fn text(&mut self, head: &Head, part: &str) -> Bytes {
        let mut delta = of_part(head, "response.output_text.delta", "delta", part.into());
        delta["logprobs"] = json!([]);
        self.events(vec![delta])
    }

    fn end(&mut self, head: &Head, text: &str, tokens: Tokens) -> Bytes {
        let item = message(head, "completed", &json!([part(text)]));
        let mut done = of_part(head, "response.output_text.done", "text", text.into());
        done["logprobs"] = json!([]);
        let response = self.whole(head, text, tokens);
        self.events(vec![
            done,
            of_part(head, "response.content_part.done", "part", part(text)),
            json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
            json!({ "type": "response.completed", "response": response }),
        ])
    }

    fn error(&mut self, failure: &Failure) -> Bytes {
        Dialect::Responses.numbered_error_event(failure, self.sequence)
    }
}

impl Form {
    /// Events with their numbers.
    fn events(&mut self, events: Vec<Value>) -> Bytes {
        let mut frames = Vec::new();
        for mut event in events {
            event["sequence_number"] = self.sequence.into();
            self.sequence += 1;
            let name = event.get("type").and_then(Value::as_str);
            frames.extend_from_slice(&sse::frame(name, &event.to_string()));
        }
        frames.into()
    }
}

fn response(head: &Head, status: &str, output: &Value, usage: Value) -> Value {
    json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created_s,
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "metadata": {},
        "model": head.model,
        "output": output,
        // The agent has its own, and calls them itself.
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "previous_response_id": head.previous_id,
        "temperature": null,
        "top_p": null,
        "usage": usage,
    })
}

fn usage(tokens: Tokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": tokens.output,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": tokens.input + tokens.output,
    })
}

/// The one item of the answer.
fn message(head: &Head, status: &str, content: &Value) -> Value {
    json!({
        "id": item_id(head),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// An event of the one part of the item, with this field.
fn of_part(head: &Head, kind: &str, field: &str, value: Value) -> Value {
    let mut event = json!({
        "type": kind,
        "item_id": item_id(head),
        "output_index": 0,
        "content_index": 0,
    });
    event[field] = value;
    event
}

fn item_id(head: &Head) -> String {
    format!("msg_{}", head.unique)
}
