//! Percent-encoded texts.

use percent_encoding::percent_decode_str;

/// The text with its percent-encoded bytes as they are. A percent sign without two digits stands for itself.
pub fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_hexadecimal_digits_are_an_escape() {
        for (text, expected) in [
            ("%41", "A"),
            ("%+f", "%+f"),
            ("%4", "%4"),
            ("100%", "100%"),
            ("%c3%a9", "é"),
        ] {
            assert_eq!(decoded(text), expected);
        }
    }
}
