//! Thinking apart from text: `<think>` tags in a stream that may be cut anywhere.

const OPEN: [&str; 2] = ["<think>", "<thinking>"];
const CLOSE: [&str; 2] = ["</think>", "</thinking>"];

/// A piece of a model's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// For the user.
    Text(String),
    /// The model's own.
    Thinking(String),
}

/// Splits a stream of words into text and thinking.
///
/// Words go out as soon as they cannot be part of a tag any more: at most ten bytes are held back.
/// A closing tag without an opening one (templates that open the tag in the prompt) is dropped.
#[derive(Debug, Default)]
pub struct ThinkSplitter {
    held: String,
    thinking: bool,
}

impl ThinkSplitter {
    /// Takes the next words.
    pub fn push(&mut self, words: &str) -> Vec<Piece> {
        self.held.push_str(words);
        let mut pieces = Vec::new();
        while let Some((start, end)) = self.next_tag() {
            self.emit(start, &mut pieces);
            self.thinking = OPEN.contains(&&self.held[..end - start]);
            self.held.drain(..end - start);
        }
        let safe = self.held.len() - self.partial_tag_bytes();
        self.emit(safe, &mut pieces);
        pieces
    }

    /// Ends the stream: what was held back is no tag.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.emit(self.held.len(), &mut pieces);
        pieces
    }

    /// The first whole tag in what is held, as a byte range.
    fn next_tag(&self) -> Option<(usize, usize)> {
        let tags = OPEN.iter().chain(&CLOSE);
        tags.filter_map(|tag| self.held.find(tag).map(|at| (at, at + tag.len())))
            .min()
    }

    /// Moves the first bytes out.
    fn emit(&mut self, bytes: usize, pieces: &mut Vec<Piece>) {
        if bytes == 0 {
            return;
        }
        let words: String = self.held.drain(..bytes).collect();
        pieces.push(if self.thinking {
            Piece::Thinking(words)
        } else {
            Piece::Text(words)
        });
    }

    /// Length of the longest end of what is held that may begin a tag.
    fn partial_tag_bytes(&self) -> usize {
        let longest = CLOSE[1].len() - 1;
        let begins_tag = |end: &str| OPEN.iter().chain(&CLOSE).any(|tag| tag.starts_with(end));
        (1..=longest.min(self.held.len()))
            .rev()
            .find(|&bytes| {
                self.held
                    .get(self.held.len() - bytes..)
                    .is_some_and(begins_tag)
            })
            .unwrap_or(0)
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
    fn tags_are_found_wherever_the_stream_is_cut() {
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
    fn text_that_cannot_be_a_tag_is_not_held_back() {
        let mut splitter = ThinkSplitter::default();
        assert_eq!(splitter.push("now"), [Piece::Text("now".into())]);
        assert_eq!(splitter.push("<th"), []);
        assert_eq!(splitter.push("ree"), [Piece::Text("<three".into())]);
    }

    #[test]
    fn an_unclosed_thought_stays_a_thought_and_a_stray_close_is_dropped() {
        assert_eq!(
            split(&["<think>never ends"]),
            (String::new(), "never ends".into())
        );
        assert_eq!(split(&["so</think>yes"]), ("soyes".into(), String::new()));
    }
}
