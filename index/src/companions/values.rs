//! Identifiers that a request gives itself: "close ticket 4711" needs no search for the ticket.

/// Words of a request that are looked at.
const MAX_WORDS: usize = 256;

/// The number of identifiers in a request.
pub fn given(request: &str) -> usize {
    let words = request.split_whitespace().take(MAX_WORDS);
    words.filter(|word| is_identifier(word)).count()
}

/// True for numbers of four digits or more, and for words of letters and digits such as `WEB-51`,
/// `usr_9f3` and UUIDs. Not for dates, amounts, versions, addresses and links.
fn is_identifier(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '#' | '_' | '-'));
    if let Some(number) = word.strip_prefix('#') {
        return !number.is_empty() && are_digits(number);
    }
    // Colons, slashes and dots are in times, links and versions.
    if !word.chars().all(is_plain) {
        return false;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    let is_joined = word.contains(['_', '-']);
    match (digits, letters) {
        (0, _) => false,
        (_, 0) => digits >= 4 && !is_joined && !is_year(word),
        _ if is_amount(word) => false,
        _ if is_joined => !begins_as_date(word),
        _ => digits >= 2 && word.len() >= 5,
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && (word.starts_with("19") || word.starts_with("20"))
}

/// A number with a unit: `10am`, `180MB`.
fn is_amount(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len()
        && unit.len() <= 3
        && unit.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// `3-day`, `24-May`; a UUID begins with eight characters.
fn begins_as_date(word: &str) -> bool {
    let first = word.split(['_', '-']).next().unwrap_or_default();
    first.len() <= 4 && are_digits(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_a_request_are_counted() {
        for (request, number) in [
            ("close ticket 4711", 1),
            ("move WEB-51 to usr_9f3", 2),
            ("delete #7, please", 1),
            ("retry 01HXZ9", 1),
            ("drop 3f2b8c1a-9d4e-4f6a-8b7c-1234567890ab", 1),
            ("close Anna's ticket", 0),
            ("the report of 2024, from 2024-05-04 to May", 0),
            ("at 10am for 30min in the 3-day plan", 0),
            ("write to anna@firm.example about v2.3.1", 0),
            ("", 0),
        ] {
            assert_eq!(given(request), number, "{request}");
        }
    }
}
