//! Percent-encoded texts.

/// The text with its percent-encoded bytes as they are.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%'
            && let Some(two) = after.get(..2)
            && let Ok(digits) = std::str::from_utf8(two)
            && let Ok(byte) = u8::from_str_radix(digits, 16)
        {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            // A percent sign without two digits stands for itself.
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
