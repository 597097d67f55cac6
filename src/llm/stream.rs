//! Decodes the OpenAI stream: bytes to server-sent events to deltas. Pure; bytes may be split
//! anywhere.

use serde_json::Value;

use crate::llm::{CallFragment, Delta, LlmError, Usage};
use crate::printable::excerpt;

/// Longest accepted event, in bytes. Chunks have a few hundred; a server that sends more than this
/// in one event is broken.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// Bytes of an answer that are kept for an error message.
const HEAD_BYTES: usize = 1000;

/// Collects the `data` of server-sent events from bytes split anywhere.
///
/// Not a library: `sse-stream` and `eventsource-stream` keep a line and an event of any length in
/// memory. At one invalid byte of UTF-8 the first fails, and the second gives no further event until
/// the stream ends; the first also fails at a line without a colon. Some servers send either.
#[derive(Debug, Default)]
pub struct SseDecoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl SseDecoder {
    /// Takes the next bytes and returns the events they complete.
    ///
    /// # Errors
    /// [`LlmError::Malformed`] for an event over [`MAX_EVENT_BYTES`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, LlmError> {
        let mut events = Vec::new();
        for &byte in bytes {
            // A `\r\n` may be split between two reads, so that the `\n` comes first in the next
            // one.
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                // The line ended at `\r` already.
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    events.extend(self.end_line());
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                return Err(self.overlong());
            }
        }
        Ok(events)
    }

    /// Returns the event completed by the end of the stream, for servers that leave out the last
    /// empty line.
    pub fn finish(&mut self) -> Option<String> {
        let unfinished = if self.line.is_empty() {
            None
        } else {
            self.end_line()
        };
        unfinished.or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event();
        }
        // Comments and other fields mean nothing for chat completions.
        let value = line.strip_prefix(b"data:")?;
        if self.has_data {
            self.data.push(b'\n');
        }
        self.has_data = true;
        self.data
            .extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        None
    }

    fn end_event(&mut self) -> Option<String> {
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data).then(|| String::from_utf8_lossy(&data).into_owned())
    }

    fn overlong(&self) -> LlmError {
        LlmError::malformed(
            format!("one event has more than {MAX_EVENT_BYTES} bytes"),
            &String::from_utf8_lossy(&self.line[..self.line.len().min(HEAD_BYTES)]),
        )
    }
}

/// Decodes a whole answer: bytes to deltas. Detects a stream that ends before the model did.
#[derive(Debug, Default)]
pub struct ReplyDecoder {
    events: SseDecoder,
    /// The first bytes, for the error message if they are not a stream.
    head: Vec<u8>,
    any_event: bool,
    /// `[DONE]` or a finish reason has arrived.
    ended: bool,
}

impl ReplyDecoder {
    /// Takes the next bytes and returns the deltas they complete.
    ///
    /// # Errors
    /// [`LlmError::Malformed`] for an event that is not a chunk, [`LlmError::Reported`] for an error
    /// in the stream.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, LlmError> {
        let missing = HEAD_BYTES.saturating_sub(self.head.len());
        self.head
            .extend_from_slice(&bytes[..bytes.len().min(missing)]);
        let events = self.events.push(bytes)?;
        self.decode(events)
    }

    /// Ends the stream and returns the last deltas.
    ///
    /// # Errors
    /// [`LlmError::CutOff`] if neither `[DONE]` nor a finish reason has arrived,
    /// [`LlmError::Malformed`] if no event has.
    pub fn finish(&mut self) -> Result<Vec<Delta>, LlmError> {
        let had_events = self.any_event;
        let last = self.events.finish();
        let cut_off = || LlmError::CutOff {
            reason: "the connection closed before the model finished".into(),
        };
        match self.decode(last.into_iter().collect()) {
            Ok(deltas) if self.ended => Ok(deltas),
            Ok(_) if self.any_event => Err(cut_off()),
            Ok(_) => Err(LlmError::malformed(
                "no server-sent event in it",
                &String::from_utf8_lossy(&self.head),
            )),
            // Part of an event after whole ones means that the stream was cut off.
            Err(LlmError::Malformed { .. }) if had_events => Err(cut_off()),
            Err(error) => Err(error),
        }
    }

    fn decode(&mut self, events: Vec<String>) -> Result<Vec<Delta>, LlmError> {
        let mut deltas = Vec::new();
        for event in events {
            self.any_event = true;
            if event.trim() == "[DONE]" {
                self.ended = true;
                continue;
            }
            let before = deltas.len();
            deltas.extend(deltas_of(&event)?);
            self.ended |= deltas[before..]
                .iter()
                .any(|delta| matches!(delta, Delta::Finish(_)));
        }
        Ok(deltas)
    }
}

/// The deltas of one chunk.
///
/// # Errors
/// [`LlmError::Malformed`] for text that is not a JSON object, [`LlmError::Reported`] for an `error`
/// in it.
pub fn deltas_of(chunk: &str) -> Result<Vec<Delta>, LlmError> {
    let malformed = |reason: String| LlmError::malformed(reason, chunk);
    let chunk: Value = serde_json::from_str(chunk).map_err(|error| malformed(error.to_string()))?;
    if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
        let message = error
            .get("message")
            .and_then(Value::as_str)
            .map(str::to_owned);
        return Err(LlmError::Reported {
            url: String::new(),
            message: excerpt(&message.unwrap_or_else(|| error.to_string()), 500),
        });
    }
    if !chunk.is_object() {
        return Err(malformed("a chunk must be a JSON object".into()));
    }
    let mut deltas = Vec::new();
    // Only the first choice: a request never asks for more than one.
    if let Some(choice) = chunk.pointer("/choices/0") {
        choice_deltas(choice, &mut deltas);
    }
    deltas.extend(usage_of(&chunk).map(Delta::Usage));
    Ok(deltas)
}

fn choice_deltas(choice: &Value, deltas: &mut Vec<Delta>) {
    // A server that does not stream sends `message` where a chunk has `delta`.
    let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) else {
        return;
    };
    let text_of = |field: &str| {
        delta
            .get(field)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    // `reasoning_content` is DeepSeek's and llama.cpp's name for it, `reasoning` OpenRouter's and
    // newer vLLM's.
    if let Some(thinking) = text_of("reasoning_content").or_else(|| text_of("reasoning")) {
        deltas.push(Delta::Thinking(thinking.to_owned()));
    }
    if let Some(text) = text_of("content") {
        deltas.push(Delta::Text(text.to_owned()));
    }
    let calls = delta.get("tool_calls").and_then(Value::as_array);
    deltas.extend(calls.into_iter().flatten().map(fragment).map(Delta::Call));
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        deltas.push(Delta::Finish(reason.to_owned()));
    }
}

fn fragment(call: &Value) -> CallFragment {
    // Some servers leave out the `function` object around name and arguments.
    let function = call.get("function").unwrap_or(call);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    CallFragment {
        index: call
            .get("index")
            .and_then(Value::as_u64)
            .and_then(|index| usize::try_from(index).ok()),
        id: text(call.get("id")).filter(|id| !id.is_empty()),
        name: text(function.get("name")).filter(|name| !name.is_empty()),
        // Some gateways send the arguments as the object itself.
        arguments: match function.get("arguments") {
            Some(Value::String(text)) => Some(text.clone()),
            None | Some(Value::Null) => None,
            Some(other) => Some(other.to_string()),
        },
    }
}

fn usage_of(chunk: &Value) -> Option<Usage> {
    // Usually in a last chunk without choices. Counts of another form are ignored, and the agent
    // estimates the tokens.
    let usage = chunk.get("usage").filter(|usage| usage.is_object())?;
    serde_json::from_value(usage.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of(parts: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events: Vec<String> = parts
            .iter()
            .flat_map(|part| decoder.push(part).unwrap())
            .collect();
        events.extend(decoder.finish());
        events
    }

    #[test]
    fn events_are_the_same_for_every_line_ending_and_split() {
        let expected = vec![
            "{\"a\":\"é\"}".to_owned(),
            "one\ntwo".to_owned(),
            "[DONE]".to_owned(),
        ];
        for ending in ["\n", "\r\n", "\r"] {
            let text = ": comment\nid: 7\ndata: {\"a\":\"é\"}\n\nevent: x\ndata:one\ndata: two\n\n\n\ndata: [DONE]\n\n";
            let bytes = text.replace('\n', ending).into_bytes();
            for cut in 0..=bytes.len() {
                assert_eq!(
                    events_of(&[&bytes[..cut], &bytes[cut..]]),
                    expected,
                    "{ending:?} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn a_last_event_without_an_empty_line_is_decoded() {
        assert_eq!(events_of(&[b"data: last"]), ["last"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = SseDecoder::default();
        let megabyte = vec![b'x'; 1 << 20];
        let error = (0..20).find_map(|_| decoder.push(&megabyte).err()).unwrap();
        assert!(
            error.to_string().contains("more than 16777216 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_chunk_gives_its_deltas_in_order() {
        let chunk = r#"{"choices":[{"delta":{"reasoning_content":"hm","content":"hi","tool_calls":[
            {"index":1,"id":"c1","function":{"name":"f","arguments":"{\"a\""}},
            {"function":{"arguments":{"b":1}}}]},"finish_reason":"tool_calls"}],
            "usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
        let call = |index, id: Option<&str>, name: Option<&str>, arguments: &str| {
            Delta::Call(CallFragment {
                index,
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                arguments: Some(arguments.to_owned()),
            })
        };
        assert_eq!(
            deltas_of(chunk).unwrap(),
            [
                Delta::Thinking("hm".into()),
                Delta::Text("hi".into()),
                call(Some(1), Some("c1"), Some("f"), "{\"a\""),
                call(None, None, None, "{\"b\":1}"),
                Delta::Finish("tool_calls".into()),
                Delta::Usage(Usage {
                    input: 5,
                    output: 2
                }),
            ]
        );
    }

    #[test]
    fn malformed_and_reported_errors_are_distinguished() {
        assert!(matches!(
            deltas_of("<html>").unwrap_err(),
            LlmError::Malformed { .. }
        ));
        assert!(matches!(
            deltas_of("[1]").unwrap_err(),
            LlmError::Malformed { .. }
        ));
        let error =
            deltas_of(r#"{"error":{"message":"context too long","code":400}}"#).unwrap_err();
        assert_eq!(
            error,
            LlmError::Reported {
                url: String::new(),
                message: "context too long".into()
            }
        );
    }

    #[test]
    fn a_stream_without_an_end_is_cut_off() {
        let mut decoder = ReplyDecoder::default();
        decoder
            .push(b"data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n")
            .unwrap();
        assert!(matches!(
            decoder.finish().unwrap_err(),
            LlmError::CutOff { .. }
        ));
    }

    #[test]
    fn an_html_page_instead_of_a_stream_is_reported() {
        let mut decoder = ReplyDecoder::default();
        decoder.push(b"<html>502 Bad Gateway</html>").unwrap();
        let message = decoder.finish().unwrap_err().to_string();
        assert!(
            message.contains("no server-sent event") && message.contains("): 502 Bad Gateway;"),
            "{message}"
        );
    }
}
