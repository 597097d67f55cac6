//! The tokens of a text, as the layers take them.

use crate::{MAX_TOKENS, Unreadable, Vocabulary, failed};

/// Bytes read of a text: a description may have 16 MiB.
const MAX_BYTES: usize = 16 << 10;

/// A vocabulary, and the tokens around every text and for words that cannot be spelt.
pub(crate) struct Tokens {
    vocabulary: Vocabulary,
    first: u32,
    last: u32,
    unknown: u32,
}

impl Tokens {
    /// Numbers the tokens in the given order.
    pub fn new<'a>(tokens: impl Iterator<Item = &'a str> + Clone) -> Result<Self, Unreadable> {
        Ok(Tokens {
            first: number_of("[CLS]", tokens.clone())?,
            last: number_of("[SEP]", tokens.clone())?,
            unknown: number_of("[UNK]", tokens.clone())?,
            vocabulary: Vocabulary::new(tokens),
        })
    }

    /// The tokens of a text, of at most [`MAX_TOKENS`].
    pub fn of(&self, text: &str) -> Vec<u32> {
        // More bytes than so many tokens have in any text of words.
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        let mut tokens = vec![self.first];
        self.vocabulary
            .tokens_or(text, Some(self.unknown), |token| {
                if tokens.len() < MAX_TOKENS - 1 {
                    tokens.push(token);
                }
            });
        tokens.push(self.last);
        tokens
    }
}

/// The number of a token that every text needs.
fn number_of<'a>(name: &str, mut tokens: impl Iterator<Item = &'a str>) -> Result<u32, Unreadable> {
    match tokens.position(|token| token == name) {
        Some(number) => Ok(number as u32),
        None => Err(failed(format!("its tokens lack {name}"))),
    }
}
