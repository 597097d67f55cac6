//! How many tokens the prompt of a request has: the provider is asked, and where it has no such
//! route they are counted here.

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::wire::failure::Failure;
use crate::wire::json::{self, Fields};
use crate::{AnswerBody, DropIn, DropInAnswer, DropInRequest, MAX_ANSWER_BYTES, Planned, provider};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::finder::toolbox::o200k;

/// Fields that are part of the prompt.
const PROMPT: [&str; 8] = [
    "tools",
    "system",
    "instructions",
    "messages",
    "input",
    "systemInstruction",
    "contents",
    "generateContentRequest",
];
/// Fields within them that hold bytes of images and files, which are not counted as text.
const BYTES: [&str; 4] = ["data", "image_url", "file_data", "encrypted_content"];
/// The levels of a request that are looked at; the parser allows no more.
const MAX_DEPTH: usize = 128;

impl DropIn {
    /// Counts the tokens that the prompt of this request would have, with the tools that the model
    /// would be shown.
    ///
    /// # Errors
    /// Where the provider gives no answer.
    pub async fn count(&self, request: DropInRequest) -> Result<DropInAnswer, Failure> {
        let request = std::sync::Arc::new(request);
        let body = match self.planned(&request).await? {
            Planned::AsItIs { .. } => request.body.clone(),
            Planned::Translated { body, .. } => body,
            Planned::Searching(mut exchange) => exchange.counted(),
            Planned::Refused { failure, .. } => return Err(failure),
        };
        let provider = &self.0.provider;
        let mut response = provider.count(&request, body.clone()).await?;
        // The providers' own APIs answer these to a path that they do not have.
        if matches!(response.status().as_u16(), 404 | 405 | 501) {
            return counted_here(&self.0.cpu_pool, request.dialect, body).await;
        }
        let counted = provider.whole(&mut response, MAX_ANSWER_BYTES).await?;
        Ok(DropInAnswer {
            body: AnswerBody::Whole(counted),
            status: response.status().as_u16(),
            headers: provider::response_headers(response.headers()),
        })
    }
}

/// The answer to a request for the number of tokens, counted here: about right for every model.
///
/// # Errors
/// For a body that is no JSON object, and when too much work waits for the threads.
pub async fn counted_here(
    cpu_pool: &CpuPool,
    dialect: Dialect,
    body: Bytes,
) -> Result<DropInAnswer, Failure> {
    let counted = cpu_pool.run(move || tokens_of(&body)).await;
    let Some(tokens) = counted.map_err(Failure::from)? else {
        let message =
            "the body is no JSON object; send a request to the model, whose tokens are counted";
        return Err(Failure::new(400, "invalid_request", message));
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut answer = json!({ "input_tokens": tokens });
    match dialect {
        Dialect::Responses => answer["object"] = "response.input_tokens".into(),
        Dialect::Gemini => answer = json!({ "totalTokens": tokens }),
        Dialect::Converse => answer = json!({ "inputTokens": tokens }),
        Dialect::Chat | Dialect::Messages => {}
    }
    Ok(DropInAnswer {
        status: 200,
        headers,
        body: AnswerBody::Whole(json::bytes(&answer)),
    })
}

fn tokens_of(body: &Bytes) -> Option<usize> {
    let fields = Fields::read(body)?;
    let mut tokens = 0;
    for field in PROMPT {
        if let Some(value) = fields.value(field) {
            tokens += tokens_within(&value, MAX_DEPTH);
        }
    }
    Some(tokens)
}

/// Names and texts each count as they are, without the signs of JSON between them.
fn tokens_within(value: &Value, depth: usize) -> usize {
    let Some(depth) = depth.checked_sub(1) else {
        return 0;
    };
    match value {
        Value::String(text) => o200k(text),
        Value::Array(items) => items.iter().map(|item| tokens_within(item, depth)).sum(),
        Value::Object(fields) => {
            let mut tokens = 0;
            for (name, value) in fields {
                if !BYTES.contains(&name.as_str()) {
                    tokens += o200k(name) + 1 + tokens_within(value, depth);
                }
            }
            tokens
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_the_tokens_of_its_texts_and_tools() {
        let count = |value: &Value| tokens_of(&json::bytes(value)).unwrap();
        let message =
            json!({ "messages": [{ "role": "user", "content": "tool search finds tools" }] });
        let short = count(&message);
        assert!((4..20).contains(&short), "{short}");
        let mut with_tools = message.clone();
        with_tools["tools"] =
            json!([{ "name": "a", "description": "Sends an email to a person." }]);
        assert!(count(&with_tools) > short + 6);
        let mut with_image = message.clone();
        with_image["messages"][0]["content"] =
            json!([{ "type": "image", "source": { "data": "x".repeat(10_000) } }]);
        assert!(count(&with_image) < 100);
        assert_eq!(tokens_of(&Bytes::from_static(b"[]")), None);
    }
}
