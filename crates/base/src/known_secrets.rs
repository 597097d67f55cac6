//! The secrets that the process knows, such as keys of providers, and their masks in everything that
//! leaves it: answers, results of calls, logs and records.
//!
//! A secret is found as it is, percent-encoded, and within Base64 of any text. Its mask has the
//! length of what it replaces, so that lengths of answers stay.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use parking_lot::RwLock;
use regex::bytes::{Regex, RegexBuilder};

/// Shorter secrets would mask words.
const MIN_BYTES: usize = 8;
/// A longer secret of small letters alone is no word.
const MAX_WORD_BYTES: usize = 20;
/// Most secrets that are known; renewed tokens add to them.
const MAX_SECRETS: usize = 1_000;
/// The beginning of a mask.
const MASK: &[u8] = b"[redacted]";
/// Most bytes of the compiled search.
const MAX_SEARCH_BYTES: usize = 64 << 20;

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

#[derive(Default)]
struct Known {
    secrets: BTreeSet<String>,
    /// What is looked for, the longest first.
    forms: Vec<Vec<u8>>,
    search: Option<Regex>,
}

/// Notes a secret. A value of several words, such as `Bearer KEY`, has it in the last one.
pub fn add(value: &str) {
    let secret = value.split_whitespace().next_back().unwrap_or_default();
    if secret.len() < MIN_BYTES || is_word(secret) {
        return;
    }
    // Most calls are about a known one, and building the search anew is slow.
    if KNOWN.read().secrets.contains(secret) {
        return;
    }
    let mut known = KNOWN.write();
    if known.secrets.len() >= MAX_SECRETS {
        known.secrets.pop_first();
    }
    known.secrets.insert(secret.to_owned());
    let mut all = BTreeSet::new();
    for secret in &known.secrets {
        all.extend(forms(secret));
    }
    known.forms = all.into_iter().collect();
    // The first alternative that fits is found, so a longer form comes before its beginning.
    known
        .forms
        .sort_by_key(|form| std::cmp::Reverse(form.len()));
    let written: Vec<String> = known.forms.iter().map(|form| escaped(form)).collect();
    let search = RegexBuilder::new(&written.join("|"))
        .unicode(false)
        .size_limit(MAX_SEARCH_BYTES)
        .build();
    match search {
        Ok(search) => known.search = Some(search),
        Err(error) => tracing::error!(%error, "new secrets are not masked"),
    }
}

/// Whether this may be a word, as `password`, which would be masked wherever it is written.
fn is_word(secret: &str) -> bool {
    secret.len() <= MAX_WORD_BYTES && secret.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether any secret is known.
pub fn is_empty() -> bool {
    KNOWN.read().search.is_none()
}

/// The bytes with masks in place of secrets.
pub fn mask_bytes(bytes: &[u8]) -> Cow<'_, [u8]> {
    let known = KNOWN.read();
    let Some(search) = &known.search else {
        return Cow::Borrowed(bytes);
    };
    // Nearly everything has no secret in it, and is not copied.
    if !search.is_match(bytes) {
        return Cow::Borrowed(bytes);
    }
    let mut masked = bytes.to_vec();
    for found in search.find_iter(bytes) {
        for (at, place) in masked[found.range()].iter_mut().enumerate() {
            *place = MASK.get(at).copied().unwrap_or(b'*');
        }
    }
    Cow::Owned(masked)
}

/// The text with masks in place of secrets.
pub fn mask(text: &str) -> Cow<'_, str> {
    match mask_bytes(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        // Whole texts were replaced by letters of ASCII.
        Cow::Owned(masked) => Cow::Owned(String::from_utf8_lossy(&masked).into_owned()),
    }
}

/// Masks secrets in bytes that come in parts, also where a secret is split.
#[derive(Debug, Default)]
pub struct StreamMask {
    /// The end of what has come, which may be the beginning of a secret.
    held: Vec<u8>,
}

impl StreamMask {
    /// What may be passed on once this part has come.
    pub fn next(&mut self, part: &[u8]) -> Vec<u8> {
        let mut held = std::mem::take(&mut self.held);
        // A part may be long: it is copied once.
        let masked = if held.is_empty() {
            mask_bytes(part)
        } else {
            held.extend_from_slice(part);
            mask_bytes(&held)
        };
        let rest = masked.len() - begun(&masked);
        self.held = masked[rest..].to_vec();
        masked[..rest].to_vec()
    }

    /// What is left at the end.
    pub fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest end of these bytes that a secret begins with.
fn begun(bytes: &[u8]) -> usize {
    let known = KNOWN.read();
    let longest = known.forms.first().map_or(0, Vec::len);
    let from = bytes.len().saturating_sub(longest.saturating_sub(1));
    for at in from..bytes.len() {
        let end = &bytes[at..];
        if known.forms.iter().any(|form| form.starts_with(end)) {
            return end.len();
        }
    }
    0
}

/// A secret in all forms that are looked for.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let upper = |byte: u8| format!("%{byte:02X}");
    let lower = |byte: u8| format!("%{byte:02x}");
    let quoted = serde_json::Value::from(secret).to_string();
    // Some programs encode only what has to be, some every byte.
    let mut forms = vec![
        secret.to_owned(),
        percent_encoded(bytes, is_unreserved, upper),
        percent_encoded(bytes, is_unreserved, lower),
        percent_encoded(bytes, |_| false, upper),
        percent_encoded(bytes, |_| false, lower),
        quoted[1..quoted.len() - 1].to_owned(),
        quoted[1..quoted.len() - 1].replace('/', "\\/"),
    ];
    // Base64 takes three bytes at a time, so it depends on how many come before the secret.
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend(bytes);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let whole = engine.encode(&padded);
            // The letters that no neighbour of the secret has a part in.
            let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
            forms.push(whole[first..last].to_owned());
        }
    }
    let long = forms.into_iter().filter(|form| form.len() >= MIN_BYTES);
    long.map(String::into_bytes).collect()
}

/// The bytes that a URL never needs to encode.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn percent_encoded(
    bytes: &[u8],
    is_plain: impl Fn(u8) -> bool,
    escape: impl Fn(u8) -> String,
) -> String {
    let mut encoded = String::new();
    for &byte in bytes {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&escape(byte));
        }
    }
    encoded
}

/// Bytes as an expression that finds them.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_every_form() {
        let secret = "sk-masked/with+signs=42";
        add(&format!("Bearer {secret}"));
        let lower = |text: String| {
            text.replace("%2F", "%2f")
                .replace("%2B", "%2b")
                .replace("%3D", "%3d")
        };
        let encoded = "sk-masked%2Fwith%2Bsigns%3D42".to_owned();
        let bytewise: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut written = vec![secret.to_owned(), lower(encoded.clone()), encoded, bytewise];
        for user in ["", "u:", "us:", "use:", "user:"] {
            written.push(STANDARD_NO_PAD.encode(format!("{user}{secret}")));
            written.push(URL_SAFE_NO_PAD.encode(format!("{user}{secret}, and more")));
        }
        for form in written {
            let text = format!("bad key {form}!");
            let masked = mask(&text);
            assert!(masked.contains("[redacted]"), "{form}: {masked}");
            assert_eq!(masked.len(), text.len());
            // However it is split.
            for cut in 0..=text.len() {
                let mut mask = StreamMask::default();
                let mut passed = mask.next(&text.as_bytes()[..cut]);
                passed.extend(mask.next(&text.as_bytes()[cut..]));
                passed.extend(mask.end());
                assert_eq!(String::from_utf8(passed).unwrap(), masked, "cut at {cut}");
            }
        }
        assert_eq!(mask("nothing to hide"), "nothing to hide");
    }

    #[test]
    fn short_values_are_no_secrets_and_nothing_waits_that_begins_none() {
        for value in ["short", "password", "postgres", "Bearer toolscout", ""] {
            add(value);
        }
        let text = "a short text with password, postgres and toolscout";
        assert_eq!(mask(text), text);
        let mut mask = StreamMask::default();
        assert_eq!(mask.next(b"data: {}\n\n"), b"data: {}\n\n");
    }
}
