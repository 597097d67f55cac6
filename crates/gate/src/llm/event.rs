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
    let event: Value = match serde_json::from_str(text) {
        Ok(event) => event,
        Err(error) => return Err(LlmError::malformed(error.to_string(), text)),
    };
    // Some servers send a null where there is no error.
    if let Some(error) = event.get("error")
        && !error.is_null()
    {
        let message = match error.get("message") {
            Some(Value::String(message)) => message.clone(),
            _ => error.to_string(),
        };
        let message = excerpt(&message, MAX_ERROR_CHARS);
        let too_long = context_length::refusal(&error.to_string(), &message);
        return Err(too_long.unwrap_or(LlmError::Reported {
            url: String::new(),
            message,
        }));
    }
    if !event.is_object() {
        return Err(LlmError::malformed("an event must be a JSON object", text));
    }
    Ok(event)
}
