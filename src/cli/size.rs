//! Sizes as flags name them.

/// A number of bytes, or of units of 1,024 bytes: `4096`, `64K`, `512M`, `4G`.
///
/// # Errors
/// For another text, in words for the command line.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => (number, &text[number.len()..]),
        None => (text, ""),
    };
    let bits = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 0,
    };
    let Ok(number) = number.parse::<u64>() else {
        return Err("a number with K, M, G or T after it, such as 512M".to_owned());
    };
    match number.checked_mul(1 << bits) {
        Some(bytes) => Ok(bytes),
        None => Err("that is more than any machine has".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_is_in_bytes() {
        for (text, expected) in [("4096", 4096), ("64K", 64 << 10), ("512M", 512 << 20)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "M", "1.5G", "12 M", "-1", "99999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
