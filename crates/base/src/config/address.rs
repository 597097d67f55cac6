//! Addresses as they may be shown: what may be a key in them is masked.

/// An address without user, password and query, which may be or hold a key. The model after `#`
/// stays. Anything else is as it was.
pub fn masked(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    // First and at the last one: a password may have any of these marks in it. Where a query or a
    // model has one, more is masked than need be.
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => ("***@", rest),
        None => ("", rest),
    };
    let (rest, model) = match rest.split_once('#') {
        Some((rest, model)) => (rest, format!("#{model}")),
        None => (rest, String::new()),
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, _)) => (rest, "?…"),
        None => (rest, ""),
    };
    format!("{scheme}://{user}{rest}{query}{model}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_key_is_masked() {
        for (address, expected) in [
            ("http://h:1/v1#org/m", "http://h:1/v1#org/m"),
            ("https://h/v1?key=secret", "https://h/v1?…"),
            ("https://u:p@ss@h/v1?key=k#m", "https://***@h/v1?…#m"),
            ("https://u:p#s?s@h/v1#m", "https://***@h/v1#m"),
            ("https://h/v1?a=b@c", "https://***@c"),
            ("bge-m3@main", "bge-m3@main"),
        ] {
            assert_eq!(masked(address), expected);
        }
    }
}
