//! Percent-encoded texts.

use percent_encoding::percent_decode_str;

/// The text with its percent-encoded bytes as they are. A percent sign without two digits stands for itself.
pub fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
