//! One answer of the model, put together from its stream.

use crate::agent::think::{Piece, ThinkSplitter};
use crate::llm::{CallFragment, Delta, Usage};
use crate::tools::arguments::MAX_ARGUMENT_BYTES;

/// Longest text and thinking of one answer, in bytes. A model beyond it repeats itself.
pub const MAX_WORDS_BYTES: usize = 4 << 20;
/// Most calls kept of one answer, a bound on memory; how many are carried out is the run's setting.
const MAX_CALLS: usize = 256;

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// What it says, without thinking.
    pub text: String,
    /// Its calls, in the order of their first fragments.
    pub calls: Vec<RawCall>,
    /// Token counts, where the provider sends them.
    pub usage: Option<Usage>,
}

/// A call as put together; nothing of it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawCall {
    /// Its id, where the model gave one.
    pub id: Option<String>,
    /// The tool's name; empty when the model gave none.
    pub name: String,
    /// The text of its arguments, or of their beginning.
    pub arguments: String,
    /// Bytes of the arguments before they were cut at [`MAX_ARGUMENT_BYTES`].
    pub argument_bytes: usize,
}

/// Puts a reply together, delta by delta, and says what to show meanwhile.
#[derive(Debug, Default)]
pub struct ReplyBuilder {
    splitter: ThinkSplitter,
    reply: Reply,
    /// The index each call came under, where it came with one.
    indices: Vec<Option<usize>>,
    words_bytes: usize,
}

impl ReplyBuilder {
    /// Takes the next delta and returns the words that can be shown now.
    pub fn push(&mut self, delta: Delta) -> Vec<Piece> {
        match delta {
            Delta::Text(words) => {
                let pieces = self.splitter.push(&words);
                self.keep(pieces)
            }
            Delta::Thinking(words) => self.keep(vec![Piece::Thinking(words)]),
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

    /// Ends the reply and returns it with the last words to show.
    pub fn finish(mut self) -> (Vec<Piece>, Reply) {
        let pieces = self.splitter.finish();
        let pieces = self.keep(pieces);
        (pieces, self.reply)
    }

    /// True once the model has said more than any answer needs.
    pub fn is_overlong(&self) -> bool {
        self.words_bytes > MAX_WORDS_BYTES
    }

    fn keep(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        for piece in &pieces {
            match piece {
                Piece::Text(words) => {
                    self.words_bytes += words.len();
                    self.reply.text.push_str(words);
                }
                Piece::Thinking(words) => self.words_bytes += words.len(),
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
        let room = MAX_ARGUMENT_BYTES - call.arguments.len();
        call.arguments
            .push_str(&arguments[..arguments.floor_char_boundary(room)]);
    }

    /// The position of the call that a fragment continues, or of a new one; `None` when there are
    /// too many.
    ///
    /// The index decides, unless the id under it changed: some servers send every call under index
    /// 0. Without an index the id decides, and a fragment with neither continues the last call
    /// unless it names another tool.
    fn call_of(&mut self, fragment: &CallFragment) -> Option<usize> {
        let calls = &self.reply.calls;
        let same_id = |position: usize| match (&calls[position].id, &fragment.id) {
            (Some(known), Some(new)) => known == new,
            _ => true,
        };
        let by_id = || {
            (0..calls.len())
                .rev()
                .find(|&at| fragment.id.is_some() && calls[at].id == fragment.id)
        };
        let found = match (fragment.index, &fragment.id) {
            (Some(index), _) => (0..calls.len())
                .rev()
                .find(|&at| self.indices[at] == Some(index) && same_id(at)),
            (None, Some(_)) => by_id(),
            (None, None) => calls
                .len()
                .checked_sub(1)
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

/// A fragment without index and id begins a new call when it names a tool after arguments have
/// come.
fn continues(last: &RawCall, fragment: &CallFragment) -> bool {
    fragment.name.is_none() || last.arguments.is_empty() && last.name.is_empty()
}

/// Names come whole, in parts before the arguments, or whole again in every fragment.
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

    /// A stream with thinking in both ways, text around it, two interleaved calls and usage.
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

    fn of(fragments: &[Fragment<'_>]) -> Vec<RawCall> {
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
    fn a_recorded_stream_cut_at_every_byte_gives_the_same_reply() {
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
    fn fragments_find_their_call_by_index_id_or_place() {
        let (zero, one) = (Some(0), Some(1));
        let by_index = of(&[
            (zero, Some("a"), Some("f"), "{"),
            (one, Some("b"), Some("g"), "["),
            (zero, None, None, "}"),
            (one, None, None, "]"),
        ]);
        assert_eq!(shape(&by_index), [("f", "{}"), ("g", "[]")]);
        let by_id = of(&[
            (None, Some("a"), Some("f"), "{"),
            (None, Some("b"), Some("g"), "["),
            (None, Some("a"), None, "}"),
        ]);
        assert_eq!(shape(&by_id), [("f", "{}"), ("g", "[")]);
        let all_zero = of(&[
            (zero, Some("a"), Some("f"), "{}"),
            (zero, Some("b"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&all_zero), [("f", "{}"), ("g", "[]")]);
        let neither = of(&[
            (None, None, Some("f"), "{"),
            (None, None, None, "}"),
            (None, None, Some("f"), "{}"),
        ]);
        assert_eq!(shape(&neither), [("f", "{}"), ("f", "{}")]);
        let same_id = of(&[
            (zero, Some("a"), Some("f"), "{}"),
            (one, Some("a"), Some("g"), "[]"),
        ]);
        assert_eq!(shape(&same_id), [("f", "{}"), ("g", "[]")]);
    }

    #[test]
    fn names_may_come_in_parts_or_again() {
        let zero = Some(0);
        assert_eq!(
            shape(&of(&[
                (zero, None, Some("get_"), ""),
                (zero, None, Some("it"), "{}")
            ])),
            [("get_it", "{}")]
        );
        assert_eq!(
            shape(&of(&[
                (zero, None, Some("f"), "{"),
                (zero, None, Some("f"), "}")
            ])),
            [("f", "{}")]
        );
    }

    #[test]
    fn ten_megabytes_of_arguments_are_counted_and_not_kept() {
        let megabyte = "x".repeat(1 << 20);
        let mut fragments = vec![(Some(0), None, Some("f"), megabyte.as_str())];
        fragments.extend(std::iter::repeat_n(
            (Some(0), None, None, megabyte.as_str()),
            9,
        ));
        let calls = of(&fragments);
        assert_eq!(
            (calls[0].arguments.len(), calls[0].argument_bytes),
            (MAX_ARGUMENT_BYTES, 10 << 20)
        );
    }

    #[test]
    fn endless_words_are_noticed() {
        let mut builder = ReplyBuilder::default();
        builder.push(Delta::Thinking("x".repeat(MAX_WORDS_BYTES)));
        assert!(!builder.is_overlong());
        builder.push(Delta::Text("x".into()));
        assert!(builder.is_overlong());
    }
}
