//! Assembles one answer of the model from its stream.

use futures_util::StreamExt;

use crate::agent::think::{Piece, ThinkSplitter};
use crate::llm::{CallFragment, ChatModel, ChatRequest, Delta, LlmError, Usage};
use crate::tools::arguments::MAX_ARGUMENT_BYTES;

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

/// An assembled call, unchecked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCall {
    /// The call's id, if the model gave one.
    pub id: Option<String>,
    /// The tool's name; empty if the model gave none.
    pub name: String,
    /// The text of the arguments, cut at [`MAX_ARGUMENT_BYTES`].
    pub arguments: String,
    /// Bytes of the arguments before the cut.
    pub argument_bytes: usize,
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
#[derive(Debug, Default)]
pub struct ReplyBuilder {
    splitter: ThinkSplitter,
    reply: Reply,
    /// The index of each call, if its fragments have one.
    indices: Vec<Option<usize>>,
    /// Bytes of text and thinking so far.
    text_bytes: usize,
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
                self.merge(fragment);
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

    fn merge(&mut self, fragment: CallFragment) {
        let Some(position) = self.call_of(&fragment) else {
            return;
        };
        self.indices[position] = self.indices[position].or(fragment.index);
        let call = &mut self.reply.calls[position];
        call.id = call.id.take().or(fragment.id);
        if let Some(name) = fragment.name {
            merge_name(call, &name);
        }
        let arguments = fragment.arguments.unwrap_or_default();
        call.argument_bytes += arguments.len();
        // Never negative: the cut below keeps the arguments at the limit.
        let free_bytes = MAX_ARGUMENT_BYTES - call.arguments.len();
        call.arguments
            .push_str(&arguments[..arguments.floor_char_boundary(free_bytes)]);
    }

    /// The position of the call that a fragment continues, or of a new call; `None` when there are
    /// too many calls.
    ///
    /// The index decides, unless the fragment has another id: some servers send every call with
    /// index 0. Without an index the id decides. A fragment with neither continues the last call
    /// unless it names another tool.
    fn call_of(&mut self, fragment: &CallFragment) -> Option<usize> {
        let calls = &self.reply.calls;
        let mut latest_first = (0..calls.len()).rev();
        let found = match (fragment.index, &fragment.id) {
            (Some(_), id) => latest_first.find(|&at| {
                let other_id = calls[at].id.is_some() && id.is_some() && calls[at].id != *id;
                self.indices[at] == fragment.index && !other_id
            }),
            (None, Some(_)) => latest_first.find(|&at| calls[at].id == fragment.id),
            (None, None) => latest_first
                .next()
                .filter(|&last| continues(&calls[last], fragment)),
        };
        if found.is_none() && calls.len() < MAX_CALLS {
            self.reply.calls.push(RawCall::default());
            self.indices.push(None);
            return Some(self.reply.calls.len() - 1);
        }
        found
    }
}

/// True when a fragment without index and id continues the last call. It begins a new call if it
/// names a tool although the last call has a name or arguments.
fn continues(last: &RawCall, fragment: &CallFragment) -> bool {
    fragment.name.is_none() || last.arguments.is_empty() && last.name.is_empty()
}

/// Adds to a call's name. Names come whole, in parts before the arguments, or repeated in every
/// fragment.
fn merge_name(call: &mut RawCall, name: &str) {
    if call.name.is_empty() {
        call.name = name.to_owned();
    } else if call.arguments.is_empty() && call.name != name {
        call.name.push_str(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::stream::ReplyDecoder;

    /// A stream with both forms of thinking, text around it, two interleaved calls and usage.
    const RECORDED: &str = include_str!("../../fixtures/agent/recorded.sse");

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

    /// Index, id, name and arguments of a fragment.
    type Fragment<'a> = (Option<usize>, Option<&'a str>, Option<&'a str>, &'a str);

    fn assembled(fragments: &[Fragment<'_>]) -> Vec<RawCall> {
        let mut builder = ReplyBuilder::default();
        for (index, id, name, arguments) in fragments {
            builder.push(Delta::Call(CallFragment {
                index: *index,
                id: id.map(str::to_owned),
                name: name.map(str::to_owned),
                arguments: Some((*arguments).to_owned()),
            }));
        }
        builder.finish().1.calls
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
    fn fragments_are_assigned_by_index_id_or_order() {
        let (zero, one) = (Some(0), Some(1));
        let by_index = assembled(&[
            (zero, Some("a"), Some("f"), "{"),
            (one, Some("b"), Some("g"), "["),
            (zero, None, None, "}"),
            (one, None, None, "]"),
        ]);
        assert_eq!(shape(&by_index), [("f", "{}"), ("g", "[]")]);
        let by_id = assembled(&[
            (None, Some("a"), Some("f"), "{"),
            (None, Some("b"), Some("g"), "["),
            (None, Some("a"), None, "}"),
        ]);
        assert_eq!(shape(&by_id), [("f", "{}"), ("g", "[")]);
        let all_zero = assembled(&[
            (zero, Some("a"), Some("f"), "{}"),
            (zero, Some("b"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&all_zero), [("f", "{}"), ("g", "[]")]);
        let neither = assembled(&[
            (None, None, Some("f"), "{"),
            (None, None, None, "}"),
            (None, None, Some("f"), "{}"),
        ]);
        assert_eq!(shape(&neither), [("f", "{}"), ("f", "{}")]);
        let same_id = assembled(&[
            (zero, Some("a"), Some("f"), "{}"),
            (one, Some("a"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&same_id), [("f", "{}"), ("g", "[]")]);
    }

    #[test]
    fn names_may_come_in_parts_or_repeated() {
        let zero = Some(0);
        assert_eq!(
            shape(&assembled(&[
                (zero, None, Some("get_"), ""),
                (zero, None, Some("it"), "{}")
            ])),
            [("get_it", "{}")]
        );
        assert_eq!(
            shape(&assembled(&[
                (zero, None, Some("f"), "{"),
                (zero, None, Some("f"), "}")
            ])),
            [("f", "{}")]
        );
    }

    #[test]
    fn ten_megabytes_of_arguments_are_counted_but_not_kept() {
        let megabyte = "x".repeat(1 << 20);
        let mut fragments = vec![(Some(0), None, Some("f"), megabyte.as_str())];
        fragments.extend(std::iter::repeat_n(
            (Some(0), None, None, megabyte.as_str()),
            9,
        ));
        let calls = assembled(&fragments);
        assert_eq!(
            (calls[0].arguments.len(), calls[0].argument_bytes),
            (MAX_ARGUMENT_BYTES, 10 << 20)
        );
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
