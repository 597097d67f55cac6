//! One event of a stream, or an answer that came as a whole.

use serde_json::Value;

use crate::llm::{LlmError, context_length};
use toolscout_base::printable::excerpt;

/// Most characters of a provider's error that are kept.
const MAX_ERROR_CHARS: usize = 500;

/// Parses an event.
///
/// # Errors
/// [`LlmError::Malformed`] for text that is not a JSON object; [`LlmError::ContextTooLong`] or
/// [`LlmError::Reported`] for an `error` in it.
pub fn parse_event(text: &str) -> Result<Value, LlmError> {
    let malformed = |reason: String| LlmError::malformed(reason, text);
    let event: Value = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
        let message = error.get("message").and_then(Value::as_str);
        let message = message.map_or_else(|| error.to_string(), str::to_owned);
        let message = excerpt(&message, MAX_ERROR_CHARS);
        let too_long = context_length::refusal(&error.to_string(), &message);
        return Err(too_long.unwrap_or(LlmError::Reported {
            url: String::new(),
            message,
        }));
    }
    if !event.is_object() {
        return Err(malformed("an event must be a JSON object".into()));
    }
    Ok(event)
}
