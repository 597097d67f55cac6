//! Assembles one answer of the model from its stream.

use futures_util::StreamExt;

use crate::llm::calls::{CallAssembler, MAX_ARGUMENT_BYTES, RawCall};
use crate::llm::think::{Piece, ThinkSplitter};
use crate::llm::{ChatModel, ChatRequest, Delta, LlmError, Usage};

/// Longest text and thinking of one answer, in bytes. A model that writes more repeats itself.
pub const MAX_TEXT_BYTES: usize = 4 << 20;
/// Maximum number of calls kept of one answer, which bounds memory; the run's settings limit how
/// many are executed.
const MAX_CALLS: usize = 256;

/// A complete answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The text, without thinking.
    pub text: String,
    /// The calls, in the order of their first fragments.
    pub calls: Vec<RawCall>,
    /// Token counts, if the provider sends them.
    pub usage: Option<Usage>,
}

/// Asks a model and returns its whole answer, cut off once it is overlong.
///
/// # Errors
/// As [`ChatModel::stream`].
pub async fn complete(model: &dyn ChatModel, request: ChatRequest) -> Result<Reply, LlmError> {
    let mut deltas = model.stream(request).await?;
    let mut builder = ReplyBuilder::default();
    while let Some(delta) = deltas.next().await {
        builder.push(delta?);
        if builder.is_overlong() {
            break;
        }
    }
    Ok(builder.finish().1)
}

/// Assembles a reply delta by delta, and returns the pieces to show meanwhile.
#[derive(Debug)]
pub struct ReplyBuilder {
    splitter: ThinkSplitter,
    reply: Reply,
    calls: CallAssembler,
    /// Bytes of text and thinking so far.
    text_bytes: usize,
}

impl Default for ReplyBuilder {
    fn default() -> Self {
        ReplyBuilder {
            splitter: ThinkSplitter::default(),
            reply: Reply::default(),
            calls: CallAssembler::new(MAX_CALLS, MAX_ARGUMENT_BYTES),
            text_bytes: 0,
        }
    }
}

impl ReplyBuilder {
    /// Takes the next delta and returns the pieces that can be shown now.
    pub fn push(&mut self, delta: Delta) -> Vec<Piece> {
        match delta {
            Delta::Text(text) => {
                let pieces = self.splitter.push(&text);
                self.keep(pieces)
            }
            Delta::Thinking(text) => self.keep(vec![Piece::Thinking(text)]),
            Delta::Call(fragment) => {
                self.calls.push(fragment);
                Vec::new()
            }
            Delta::Usage(usage) => {
                self.reply.usage = Some(usage);
                Vec::new()
            }
            Delta::Finish(_) => Vec::new(),
        }
    }

    /// Ends the reply and returns it with the last pieces to show.
    pub fn finish(mut self) -> (Vec<Piece>, Reply) {
        let pieces = self.splitter.finish();
        let pieces = self.keep(pieces);
        self.reply.calls = self.calls.into_calls();
        (pieces, self.reply)
    }

    /// True once text and thinking exceed [`MAX_TEXT_BYTES`].
    pub fn is_overlong(&self) -> bool {
        self.text_bytes > MAX_TEXT_BYTES
    }

    fn keep(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        for piece in &pieces {
            match piece {
                Piece::Text(text) => {
                    self.text_bytes += text.len();
                    self.reply.text.push_str(text);
                }
                // Thinking is shown and counted, but not kept: it is no part of the answer or of
                // the context.
                Piece::Thinking(text) => self.text_bytes += text.len(),
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::stream::ReplyDecoder;

    /// A stream with both forms of thinking, text around it, two interleaved calls and usage.
    const RECORDED: &str = include_str!("../../../../fixtures/agent/recorded.sse");

    fn replay(parts: &[&[u8]]) -> (String, String, Reply) {
        let (mut decoder, mut builder) = (ReplyDecoder::default(), ReplyBuilder::default());
        let mut deltas: Vec<Delta> = parts
            .iter()
            .flat_map(|part| decoder.push(part).unwrap())
            .collect();
        deltas.extend(decoder.finish().unwrap());
        let mut pieces: Vec<Piece> = deltas
            .into_iter()
            .flat_map(|delta| builder.push(delta))
            .collect();
        let (last, reply) = builder.finish();
        pieces.extend(last);
        let (mut text, mut thinking) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Text(words) => text.push_str(&words),
                Piece::Thinking(words) => thinking.push_str(&words),
            }
        }
        (text, thinking, reply)
    }

    fn shape(calls: &[RawCall]) -> Vec<(&str, &str)> {
        calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.as_str()))
            .collect()
    }

    #[test]
    fn a_recorded_stream_split_at_every_byte_gives_the_same_reply() {
        let bytes = RECORDED.as_bytes();
        let whole = replay(&[bytes]);
        let (text, thinking, reply) = &whole;
        assert_eq!(text, "I look for both: é ✓ now.");
        assert_eq!(thinking, "The user wants weather and mail. Two searches?");
        assert_eq!(
            shape(&reply.calls),
            [
                ("tool_search", r#"{"query":"weather ☀ forecast"}"#),
                ("tool_search", r#"{"query":"send mail","limit":3}"#)
            ]
        );
        assert_eq!(
            reply.usage,
            Some(Usage {
                input: 412,
                output: 57
            })
        );
        for cut in 0..=bytes.len() {
            assert_eq!(
                replay(&[&bytes[..cut], &bytes[cut..]]),
                whole,
                "cut at byte {cut}"
            );
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(replay(&single), whole);
    }

    #[test]
    fn endless_text_is_detected() {
        let mut builder = ReplyBuilder::default();
        builder.push(Delta::Thinking("x".repeat(MAX_TEXT_BYTES)));
        assert!(!builder.is_overlong());
        builder.push(Delta::Text("x".into()));
        assert!(builder.is_overlong());
    }
}
