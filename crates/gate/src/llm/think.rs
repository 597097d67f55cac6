//! Separates thinking from text: finds `<think>` tags in a stream that may be split anywhere.

const OPEN: [&str; 2] = ["<think>", "<thinking>"];
const CLOSE: [&str; 2] = ["</think>", "</thinking>"];

/// A piece of a model's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text for the user.
    Text(String),
    /// The model's thinking.
    Thinking(String),
}

/// Splits a stream into text and thinking.
///
/// Output is emitted as soon as it cannot be part of a tag: at most ten bytes are buffered. A
/// closing tag without an opening one (some templates open the tag in the prompt) is dropped.
#[derive(Debug, Default)]
pub struct ThinkSplitter {
    buffer: String,
    thinking: bool,
}

impl ThinkSplitter {
    /// Takes the next part of the stream.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.buffer.push_str(text);
        let mut pieces = Vec::new();
        while let Some((start, end)) = self.next_tag() {
            self.emit(start, &mut pieces);
            // `emit` has removed the text before the tag, so the tag is at the start now.
            self.thinking = OPEN.contains(&&self.buffer[..end - start]);
            self.buffer.drain(..end - start);
        }
        let safe = self.buffer.len() - self.partial_tag_bytes();
        self.emit(safe, &mut pieces);
        pieces
    }

    /// Ends the stream: the buffered bytes are not a tag.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.emit(self.buffer.len(), &mut pieces);
        pieces
    }

    /// The first whole tag in the buffer, as a byte range.
    fn next_tag(&self) -> Option<(usize, usize)> {
        let mut first: Option<(usize, usize)> = None;
        for tag in OPEN.iter().chain(&CLOSE) {
            if let Some(at) = self.buffer.find(tag) {
                let range = (at, at + tag.len());
                first = Some(first.unwrap_or(range).min(range));
            }
        }
        first
    }

    /// Emits the first bytes of the buffer.
    fn emit(&mut self, bytes: usize, pieces: &mut Vec<Piece>) {
        if bytes == 0 {
            return;
        }
        let text: String = self.buffer.drain(..bytes).collect();
        pieces.push(if self.thinking {
            Piece::Thinking(text)
        } else {
            Piece::Text(text)
        });
    }

    /// Length of the longest suffix of the buffer that may begin a tag.
    fn partial_tag_bytes(&self) -> usize {
        let longest = CLOSE[1].len() - 1;
        for bytes in (1..=longest.min(self.buffer.len())).rev() {
            // `get` is `None` within a character, where no tag can begin.
            let mut tags = OPEN.iter().chain(&CLOSE);
            if let Some(suffix) = self.buffer.get(self.buffer.len() - bytes..)
                && tags.any(|tag| tag.starts_with(suffix))
            {
                return bytes;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(parts: &[&str]) -> (String, String) {
        let mut splitter = ThinkSplitter::default();
        let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| splitter.push(part)).collect();
        pieces.extend(splitter.finish());
        let (mut text, mut thinking) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Text(words) => text.push_str(&words),
                Piece::Thinking(words) => thinking.push_str(&words),
            }
        }
        (text, thinking)
    }

    #[test]
    fn tags_are_found_wherever_the_stream_is_split() {
        let words = "a < b <think>wäge < ab</think> also <thinking>x</thinking>ünd </thin";
        let expected = ("a < b  also ünd </thin".to_owned(), "wäge < abx".to_owned());
        for cut in (0..=words.len()).filter(|&at| words.is_char_boundary(at)) {
            assert_eq!(
                split(&[&words[..cut], &words[cut..]]),
                expected,
                "cut at {cut}"
            );
        }
        let characters: Vec<String> = words.chars().map(String::from).collect();
        assert_eq!(
            split(&characters.iter().map(String::as_str).collect::<Vec<_>>()),
            expected
        );
    }

    #[test]
    fn text_that_cannot_be_a_tag_is_emitted_at_once() {
        let mut splitter = ThinkSplitter::default();
        assert_eq!(splitter.push("now"), [Piece::Text("now".into())]);
        assert_eq!(splitter.push("<th"), []);
        assert_eq!(splitter.push("ree"), [Piece::Text("<three".into())]);
    }

    #[test]
    fn an_unclosed_tag_is_thinking_to_the_end_and_a_stray_closing_tag_is_dropped() {
        assert_eq!(
            split(&["<think>never ends"]),
            (String::new(), "never ends".into())
        );
        assert_eq!(split(&["so</think>yes"]), ("soyes".into(), String::new()));
    }
}
