//! Decodes a model's stream: bytes to server-sent events to deltas. Pure; bytes may be split
//! anywhere.

use memchr::memchr2;

use crate::llm::api::{Api, EventDecoder};
use crate::llm::{Delta, LlmError};

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
    /// Each line is an event, whole and without a field's name.
    is_of_lines: bool,
}

impl SseDecoder {
    /// A decoder of lines, each of which is an event.
    pub fn of_lines() -> Self {
        SseDecoder {
            is_of_lines: true,
            ..SseDecoder::default()
        }
    }

    /// Takes the next bytes and returns the events they complete.
    ///
    /// # Errors
    /// [`LlmError::Malformed`] for an event over [`MAX_EVENT_BYTES`].
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, LlmError> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            // A `\r\n` may be split between two reads, so that the `\n` comes first in the next
            // one. The line ended at `\r` already.
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest);
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            self.line.extend_from_slice(line);
            if self.held_bytes() > MAX_EVENT_BYTES {
                return Err(self.overlong());
            }
            rest = after;
            if let Some((ending, after)) = after.split_first() {
                self.after_cr = *ending == b'\r';
                events.extend(self.end_line());
                rest = after;
            }
        }
        Ok(events)
    }

    /// Bytes of the event that is being read.
    fn held_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Returns the event completed by the end of the stream, for servers that leave out the last
    /// empty line.
    pub fn finish(&mut self) -> Option<String> {
        // The last line may lack its end too.
        if !self.line.is_empty()
            && let Some(event) = self.end_line()
        {
            return Some(event);
        }
        self.end_event()
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event();
        }
        if self.is_of_lines {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
        // Comments mean nothing, and the name of an event is in its data too.
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
    decoder: EventDecoder,
}

impl ReplyDecoder {
    /// A decoder for an answer in this API.
    pub fn new(api: Api) -> Self {
        let events = if api.streams_lines() {
            SseDecoder::of_lines()
        } else {
            SseDecoder::default()
        };
        ReplyDecoder {
            events,
            decoder: api.event_decoder(),
            ..ReplyDecoder::default()
        }
    }

    /// The deltas of an answer that came as one JSON object.
    ///
    /// # Errors
    /// As [`ReplyDecoder::push`].
    pub fn whole(&mut self, answer: &str) -> Result<Vec<Delta>, LlmError> {
        self.decoder.deltas(answer)
    }

    /// Bytes of the event that is being read.
    pub fn held_bytes(&self) -> usize {
        self.events.held_bytes()
    }

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
        match self.decode(last.into_iter().collect()) {
            Ok(deltas) if self.ended => Ok(deltas),
            Ok(_) if self.any_event => Err(closed_early()),
            Ok(_) => Err(LlmError::malformed(
                "no server-sent event in it",
                &String::from_utf8_lossy(&self.head),
            )),
            // Part of an event after whole ones means that the stream was cut off.
            Err(LlmError::Malformed { .. }) if had_events => Err(closed_early()),
            Err(error) => Err(error),
        }
    }

    fn decode(&mut self, events: Vec<String>) -> Result<Vec<Delta>, LlmError> {
        let mut deltas = Vec::new();
        // Some servers keep a connection open with blank data.
        for event in events.iter().filter(|event| !event.trim().is_empty()) {
            self.any_event = true;
            if event.trim() == "[DONE]" {
                self.ended = true;
                continue;
            }
            for delta in self.decoder.deltas(event)? {
                // Some servers send no `[DONE]` after it.
                self.ended |= matches!(delta, Delta::Finish(_));
                deltas.push(delta);
            }
        }
        Ok(deltas)
    }
}

fn closed_early() -> LlmError {
    LlmError::CutOff {
        reason: "the connection closed before the model finished".into(),
    }
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
    fn blank_data_is_no_event() {
        for blank in ["data: \n\n", "data:\n\n", ": ping\ndata:  \n\n"] {
            let mut decoder = ReplyDecoder::default();
            let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
            let text = format!("{blank}{chunk}{blank}data: [DONE]\n\n{blank}");
            let deltas = decoder.push(text.as_bytes()).unwrap();
            assert_eq!(deltas, [Delta::Text("a".into())], "{blank:?}");
            assert_eq!(decoder.finish(), Ok(Vec::new()));
        }
    }

    #[test]
    fn an_answer_of_lines_is_decoded_however_it_is_split() {
        let text = concat!(
            r#"{"message":{"content":"hé"},"done":false}"#,
            "\n",
            r#"{"message":{"content":"llo"},"done":true,"done_reason":"stop"}"#,
            "\n"
        );
        for cut in 0..=text.len() {
            let mut decoder = ReplyDecoder::new(Api::Ollama);
            let (first, second) = text.as_bytes().split_at(cut);
            let mut deltas = decoder.push(first).unwrap();
            deltas.extend(decoder.push(second).unwrap());
            deltas.extend(decoder.finish().unwrap());
            let expected = [
                Delta::Text("hé".into()),
                Delta::Text("llo".into()),
                Delta::Finish("stop".into()),
            ];
            assert_eq!(deltas, expected, "cut at {cut}");
        }
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
