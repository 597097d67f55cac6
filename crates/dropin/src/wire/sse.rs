//! Splits a stream of server-sent events into frames that keep their bytes. Pure; bytes may be
//! split anywhere.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr2;
use serde_json::Value;

use toolscout_gate::llm::stream::MAX_EVENT_BYTES;

/// One event with its bytes, the empty line at its end included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// As it was sent.
    pub bytes: Bytes,
    /// Its data; `None` for a frame that has only comments or other fields, or blank data.
    pub data: Option<String>,
    /// The name of its event.
    pub event: Option<String>,
}

/// An event with more than [`MAX_EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlong;

/// Collects frames from bytes.
#[derive(Debug, Default)]
pub struct Frames {
    buffer: BytesMut,
    /// Bytes at the front that were looked at and hold no end of a frame.
    scanned: usize,
}

impl Frames {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The bytes of the next whole frame, if there is one.
    ///
    /// # Errors
    /// [`Overlong`].
    pub fn next(&mut self) -> Result<Option<Bytes>, Overlong> {
        loop {
            let Some(end) = self.end_of_frame() else {
                if self.buffer.len() > MAX_EVENT_BYTES {
                    return Err(Overlong);
                }
                return Ok(None);
            };
            let bytes = self.buffer.split_to(end).freeze();
            self.scanned = 0;
            // Empty lines alone are no frame.
            if bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n')) {
                return Ok(Some(bytes));
            }
        }
    }

    /// The bytes that are left when the stream has ended: a last frame without an empty line.
    pub fn finish(&mut self) -> Option<Bytes> {
        let rest = self.buffer.copy_to_bytes(self.buffer.len());
        let is_blank = rest.iter().all(u8::is_ascii_whitespace);
        (!is_blank).then_some(rest)
    }

    /// The length of the first frame with its empty line. Lines end with `\n`, `\r\n` or `\r`.
    fn end_of_frame(&mut self) -> Option<usize> {
        // An end may have begun in the bytes before.
        let mut at = self.scanned.saturating_sub(3);
        while let Some(further) = memchr2(b'\n', b'\r', &self.buffer[at..]) {
            at += further;
            let Some(first) = line_end(&self.buffer, at) else {
                at += 1;
                continue;
            };
            let after = at + first;
            match line_end(&self.buffer, after) {
                Some(second) => return Some(after + second),
                None => at = after,
            }
        }
        self.scanned = self.buffer.len();
        None
    }
}

/// The length of the line end at this place. A `\r` that is the last byte may be followed by `\n`,
/// so it only counts once more has come.
fn line_end(bytes: &[u8], at: usize) -> Option<usize> {
    match (bytes.get(at)?, bytes.get(at + 1)) {
        (b'\n', _) => Some(1),
        (b'\r', Some(b'\n')) => Some(2),
        (b'\r', Some(_)) => Some(1),
        _ => None,
    }
}

/// The lines of a text, which may be very long.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr2(b'\n', b'\r', text.as_bytes());
        rest = end.map(|end| &text[end + 1..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

impl Frame {
    /// Reads a frame.
    pub fn of(bytes: Bytes) -> Self {
        let text = String::from_utf8_lossy(&bytes);
        let mut data: Option<String> = None;
        let mut event = None;
        for line in lines(&text) {
            if let Some(name) = line.strip_prefix("event:") {
                event = Some(name.trim().to_owned());
            }
            let Some(value) = line.strip_prefix("data:") else {
                continue;
            };
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            }
        }
        // It borrows the bytes, which go into the frame.
        drop(text);
        // Some servers keep a connection open with blank data.
        let data = data.filter(|data| !data.trim().is_empty());
        Frame { bytes, data, event }
    }

    /// What kind of event this is: the `type` in its data, or the name of the event where that has
    /// none.
    pub fn kind<'f>(&'f self, data: &'f Value) -> Option<&'f str> {
        let kind = data.get("type").and_then(Value::as_str);
        kind.or(self.event.as_deref())
            .filter(|kind| !kind.is_empty())
    }
}

/// A frame with this data, and with the name of an event where the dialect has one.
pub fn frame(event: Option<&str>, data: &str) -> Bytes {
    match event {
        Some(event) => format!("event: {event}\ndata: {data}\n\n").into(),
        None => format!("data: {data}\n\n").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]]) -> Vec<Frame> {
        let mut frames = Frames::default();
        let mut all = Vec::new();
        for part in parts {
            frames.push(part);
            while let Some(frame) = frames.next().unwrap() {
                all.push(Frame::of(frame));
            }
        }
        all.extend(frames.finish().map(Frame::of));
        all
    }

    #[test]
    fn frames_are_the_same_for_every_line_ending_and_split() {
        for ending in ["\n", "\r\n", "\r"] {
            let text = ": note\n\nevent: x\ndata: {\"a\":\"é\"}\n\ndata:one\ndata: two\n\n\n\ndata: [DONE]\n\n";
            let bytes = text.replace('\n', ending).into_bytes();
            for cut in 0..=bytes.len() {
                let frames = read(&[&bytes[..cut], &bytes[cut..]]);
                let data: Vec<Option<&str>> =
                    frames.iter().map(|frame| frame.data.as_deref()).collect();
                let expected = [
                    None,
                    Some("{\"a\":\"é\"}"),
                    Some("one\ntwo"),
                    Some("[DONE]"),
                ];
                assert_eq!(data, expected, "{ending:?} cut at {cut}");
                assert!(frames[1].bytes.starts_with(b"event: x"));
            }
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut frames = Frames::default();
        frames.push(&vec![b'x'; MAX_EVENT_BYTES + 1]);
        assert_eq!(frames.next(), Err(Overlong));
    }
}
