//! Splits the event streams of AWS into messages that keep their bytes, and writes messages. Each
//! message has checksums. Pure; bytes may be split anywhere.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::wire::sse::Frame;
use toolscout_gate::llm::stream::MAX_EVENT_BYTES;

/// Length of the message, length of its headers, and the checksum of both.
const PRELUDE: usize = 12;
/// The checksum at the end.
const CHECKSUM: usize = 4;
/// The type of a header that is a text.
const TEXT: u8 = 7;
/// The names of the headers that say what a message is.
const KINDS: [&str; 3] = [":event-type", ":exception-type", ":error-code"];

/// What makes a stream unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

/// Collects messages from bytes.
#[derive(Debug, Default)]
pub struct Messages(BytesMut);

impl Messages {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The bytes of the next whole message, if there is one.
    ///
    /// # Errors
    /// For a message that is damaged or too long.
    pub fn next(&mut self) -> Result<Option<Bytes>, Damaged> {
        let Some(prelude) = self.0.get(..PRELUDE) else {
            return Ok(None);
        };
        let (length, checksum) = (number(&prelude[..4]), number(&prelude[8..]));
        if crc32fast::hash(&prelude[..8]) != checksum {
            return Err(Damaged("the checksum of a message's lengths is wrong"));
        }
        let length = length as usize;
        if !(PRELUDE + CHECKSUM..=MAX_EVENT_BYTES).contains(&length) {
            return Err(Damaged("a message has an impossible length"));
        }
        Ok((self.0.len() >= length).then(|| self.0.split_to(length).freeze()))
    }

    /// The bytes that are left when the stream has ended.
    pub fn finish(&mut self) -> Option<Bytes> {
        let rest = self.0.copy_to_bytes(self.0.len());
        (!rest.is_empty()).then_some(rest)
    }
}

/// Reads a message: its payload is the data, and its type the name of the event.
///
/// # Errors
/// For a message that is damaged.
pub fn read(bytes: Bytes) -> Result<Frame, Damaged> {
    let damaged = Damaged("a message is damaged");
    let end = bytes.len().checked_sub(CHECKSUM).ok_or(damaged)?;
    if end < PRELUDE || crc32fast::hash(&bytes[..end]) != number(&bytes[end..]) {
        return Err(Damaged("the checksum of a message is wrong"));
    }
    let headers_end = PRELUDE + number(&bytes[4..8]) as usize;
    let headers = bytes.get(PRELUDE..headers_end.min(end)).ok_or(damaged)?;
    let payload = bytes.get(headers_end..end).ok_or(damaged)?;
    let event = kind(headers).ok_or(damaged)?;
    let data = String::from_utf8_lossy(payload).into_owned();
    Ok(Frame {
        data: (!data.trim().is_empty()).then_some(data),
        event,
        bytes,
    })
}

/// What the headers say a message is; `None` where they cannot be read.
fn kind(mut headers: &[u8]) -> Option<Option<String>> {
    let mut found = None;
    while !headers.is_empty() {
        let name = text(&mut headers, 1)?;
        let (kind, rest) = headers.split_first()?;
        headers = rest;
        let length = match kind {
            0 | 1 => 0,
            2 => 1,
            3 => 2,
            4 => 4,
            5 | 8 => 8,
            9 => 16,
            // Bytes and texts say how long they are.
            6 | &TEXT => {
                let value = text(&mut headers, 2)?;
                if KINDS.contains(&name.as_str()) {
                    found = Some(value);
                }
                continue;
            }
            _ => return None,
        };
        headers = headers.get(length..)?;
    }
    Some(found)
}

/// A text after its length, which takes so many bytes.
fn text(bytes: &mut &[u8], length_bytes: usize) -> Option<String> {
    let length = number(bytes.get(..length_bytes)?) as usize;
    let end = length_bytes + length;
    let text = String::from_utf8_lossy(bytes.get(length_bytes..end)?).into_owned();
    *bytes = &bytes[end..];
    Some(text)
}

/// A number of at most 4 bytes, the highest first.
fn number(bytes: &[u8]) -> u32 {
    let digits = bytes.iter().take(4);
    digits.fold(0, |number, byte| (number << 8) | u32::from(*byte))
}

/// A message with an event.
pub fn event(name: &str, payload: &str) -> Bytes {
    message("event", ":event-type", name, payload)
}

/// A message with an error, which is the last of its stream.
pub fn exception(name: &str, payload: &str) -> Bytes {
    message("exception", ":exception-type", name, payload)
}

fn message(kind: &str, kind_header: &str, name: &str, payload: &str) -> Bytes {
    let mut headers = Vec::with_capacity(128);
    for (name, value) in [
        (kind_header, name),
        (":content-type", "application/json"),
        (":message-type", kind),
    ] {
        headers.put_u8(u8::try_from(name.len()).unwrap_or_default());
        headers.put_slice(name.as_bytes());
        headers.put_u8(TEXT);
        headers.put_u16(u16::try_from(value.len()).unwrap_or_default());
        headers.put_slice(value.as_bytes());
    }
    let length = PRELUDE + headers.len() + payload.len() + CHECKSUM;
    let mut message = BytesMut::with_capacity(length);
    message.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.put_u32(u32::try_from(headers.len()).unwrap_or(u32::MAX));
    message.put_u32(crc32fast::hash(&message));
    message.put_slice(&headers);
    message.put_slice(payload.as_bytes());
    message.put_u32(crc32fast::hash(&message));
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_for_every_split() {
        let written = [event("messageStart", r#"{"a":"é"}"#), exception("x", "{}")];
        let bytes: Vec<u8> = written.concat();
        for cut in 0..=bytes.len() {
            let (mut messages, mut all) = (Messages::default(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                messages.push(part);
                while let Some(message) = messages.next().unwrap() {
                    all.push(message);
                }
            }
            assert_eq!((all.as_slice(), messages.finish()), (&written[..], None));
        }
        let first = read(written[0].clone()).unwrap();
        assert_eq!(first.event.as_deref(), Some("messageStart"));
        assert_eq!(first.data.as_deref(), Some(r#"{"a":"é"}"#));
        assert_eq!(
            read(written[1].clone()).unwrap().event.as_deref(),
            Some("x")
        );
    }

    #[test]
    fn a_message_of_the_documentation_is_read() {
        // The empty message among the published test vectors.
        let empty = hex::decode("000000100000000005c248eb7d98c8ff").unwrap();
        let mut messages = Messages::default();
        messages.push(&empty);
        let message = messages.next().unwrap().unwrap();
        let frame = read(message).unwrap();
        assert_eq!((frame.data, frame.event), (None, None));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let good = event("messageStop", r#"{"stopReason":"end_turn"}"#);
        for at in 0..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 0x10;
            let mut messages = Messages::default();
            messages.push(&bad);
            let read = messages.next().and_then(|message| match message {
                Some(message) => read(message).map(|_| ()),
                None => Err(Damaged("it is not whole")),
            });
            assert!(read.is_err(), "{at}");
        }
    }
}
