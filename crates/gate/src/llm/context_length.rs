//! Recognizes that a provider refused a prompt because it is longer than the model's context.
//! Providers have no common code for it, so their messages are compared.

use crate::llm::LlmError;

/// Parts of codes and messages, in lower case, with the servers that send them.
const PHRASES: &[&str] = &[
    // OpenAI, Azure, LiteLLM, OpenRouter; vLLM and Mistral say "maximum context length".
    "context_length_exceeded",
    "maximum context length",
    "contextwindowexceeded",
    // Anthropic, also behind Bedrock.
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    // llama.cpp.
    "exceed_context_size",
    "available context size",
    // Ollama and LM Studio.
    "exceeds the context length",
    "exceeds context length",
    "context length is only",
    // Gemini.
    "exceeds the maximum number of tokens",
    // Groq and Together.
    "reduce the length of the messages",
    "exceeds the context window",
    "exceeds the model's context",
];
/// Words of a message before the number of tokens that the model takes.
const BEFORE_LIMIT: &[&str] = &[
    "maximum context length is",
    "maximum context length of",
    "context length is only",
    "available context size (",
    "available context size of",
    "maximum number of tokens allowed (",
    "tokens >",
];

/// The error for a refusal with this text, which may be JSON; `None` if it has another reason.
pub fn refusal(text: &str, message: &str) -> Option<LlmError> {
    let lower = text.to_lowercase();
    if !PHRASES.iter().any(|phrase| lower.contains(phrase)) {
        return None;
    }
    Some(LlmError::ContextTooLong {
        url: String::new(),
        message: message.to_owned(),
        limit: limit_in(&lower),
    })
}

fn limit_in(message: &str) -> Option<usize> {
    for words in BEFORE_LIMIT {
        let Some((_, rest)) = message.split_once(words) else {
            continue;
        };
        let rest = rest.trim_start_matches([' ', ':', '`', '*']);
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',');
        let digits = rest[..end.unwrap_or(rest.len())].replace(',', "");
        if let Ok(limit) = digits.parse() {
            return Some(limit);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(text: &str) -> Option<Option<usize>> {
        match refusal(text, text) {
            Some(LlmError::ContextTooLong { limit, .. }) => Some(limit),
            _ => None,
        }
    }

    #[test]
    fn refusals_of_providers_are_recognized_with_their_limit() {
        for (text, limit) in [
            (
                "This model's maximum context length is 8,192 tokens. However, your messages resulted in 9000.",
                Some(8192),
            ),
            (
                "prompt is too long: 210000 tokens > 200000 maximum",
                Some(200_000),
            ),
            (
                "the request exceeds the available context size (4096 tokens), try increasing it",
                Some(4096),
            ),
            (
                r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#,
                None,
            ),
            (
                "Please reduce the length of the messages or completion.",
                None,
            ),
            (
                "The input token count (40000) exceeds the maximum number of tokens allowed (32768).",
                Some(32_768),
            ),
        ] {
            assert_eq!(limit_of(text), Some(limit), "{text}");
        }
        for text in ["model not found", "rate limit of 100 tokens", ""] {
            assert_eq!(limit_of(text), None, "{text}");
        }
    }
}
