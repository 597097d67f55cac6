//! Divides the stream of an answer, in whichever form the API has it.

use bytes::Bytes;

use crate::wire::event_stream;
use crate::wire::failure::Failure;
use crate::wire::sse::{self, Frame, Overlong};

/// The form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events.
    Events,
    /// Messages of AWS.
    Messages,
}

/// Collects frames from bytes.
#[derive(Debug)]
pub enum Frames {
    Events(sse::Frames),
    Messages(event_stream::Messages),
}

impl Frames {
    /// None yet, of this form.
    pub fn of(framing: Framing) -> Self {
        match framing {
            Framing::Events => Frames::Events(sse::Frames::default()),
            Framing::Messages => Frames::Messages(event_stream::Messages::default()),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match self {
            Frames::Events(frames) => frames.push(bytes),
            Frames::Messages(messages) => messages.push(bytes),
        }
    }

    /// The bytes of the next whole frame, if there is one.
    ///
    /// # Errors
    /// For a frame that is too long, or damaged.
    pub fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match self {
            Frames::Events(frames) => frames.next().map_err(|Overlong| {
                Failure::malformed("one event has more bytes than any model sends", "")
            }),
            Frames::Messages(messages) => messages.next().map_err(damaged),
        }
    }

    /// The bytes that are left when the stream has ended.
    pub fn finish(&mut self) -> Option<Bytes> {
        match self {
            // With an empty line, so that an error after it is an event of its own.
            Frames::Events(frames) => {
                let rest = frames.finish()?;
                Some([&rest[..], b"\n\n"].concat().into())
            }
            Frames::Messages(messages) => messages.finish(),
        }
    }
}

impl Framing {
    /// Reads a frame.
    ///
    /// # Errors
    /// For one that is damaged.
    pub fn read(self, bytes: Bytes) -> Result<Frame, Failure> {
        match self {
            Framing::Events => Ok(Frame::of(bytes)),
            Framing::Messages => event_stream::read(bytes).map_err(damaged),
        }
    }
}

fn damaged(event_stream::Damaged(what): event_stream::Damaged) -> Failure {
    Failure::malformed(what, "")
}
