//! How a request is put: in everyday words or in terms, at length or in haste, for one thing or for
//! several.

use crate::text;

/// Figures of a request's wording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wording {
    /// The share of its words that are in the stop-list.
    pub function_words: f32,
    /// 1 if it has a digit.
    pub digits: f32,
    /// Commas, and "and" between words.
    pub list_items: f32,
    /// ln(1 + words).
    pub words: f32,
}

impl Wording {
    /// Reads a request.
    pub fn of(request: &str) -> Self {
        let (mut words, mut function_words) = (0, 0);
        for word in request.split(|char: char| !char.is_alphanumeric()) {
            // Between two separators.
            if word.is_empty() {
                continue;
            }
            words += 1;
            function_words += usize::from(text::is_stop_word(&word.to_lowercase()));
        }
        let has_digit = request.as_bytes().iter().any(u8::is_ascii_digit);
        Wording {
            function_words: function_words as f32 / words.max(1) as f32,
            digits: f32::from(u8::from(has_digit)),
            list_items: (request.matches(',').count() + request.matches(" and ").count()) as f32,
            words: (words as f32).ln_1p(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wordings_are_told_apart() {
        let said = Wording::of("I need to tell Ann that we are late, and move the call.");
        assert_eq!(said.list_items, 2.0);
        assert_eq!(said.digits, 0.0);
        assert!((said.function_words - 8.0 / 13.0).abs() < 1e-6, "{said:?}");
        let typed = Wording {
            function_words: 0.0,
            digits: 1.0,
            list_items: 0.0,
            words: 5.0_f32.ln(),
        };
        assert_eq!(Wording::of("restart pod web_1"), typed);
    }

    #[test]
    fn no_words_are_no_figures() {
        assert_eq!(Wording::of(" … "), Wording::default());
        assert_eq!(Wording::of(""), Wording::default());
    }
}
