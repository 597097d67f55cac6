//! The values of an entry: variables, headers and command lines.

use std::ffi::OsString;

use reqwest::header::{HeaderName, HeaderValue};

use super::{EntryError, Environment};
use toolscout_base::known_secrets;
use toolscout_gate::gate::redact;

/// A header whose value no log shows.
pub(super) fn secret_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let Ok(header) = name.parse::<HeaderName>() else {
        return Err(format!("header {name:?} has an invalid name"));
    };
    let Ok(mut value) = HeaderValue::from_str(value.trim()) else {
        return Err(format!("header {name:?} has an invalid value"));
    };
    // Keeps the value out of debug output.
    value.set_sensitive(true);
    if redact::names_secret(name) {
        known_secrets::add(value.to_str().unwrap_or_default());
    }
    Ok((header, value))
}

/// As [`expand`], for a text that may be left out.
pub(super) fn expand_given(
    text: Option<&str>,
    environment: Environment<'_>,
) -> Result<Option<String>, EntryError> {
    match text {
        Some(text) => Ok(Some(expand(text, environment)?)),
        None => Ok(None),
    }
}

/// Replaces references to environment variables.
pub(super) fn expand(text: &str, environment: Environment<'_>) -> Result<String, EntryError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else {
            return Err(format!("a `${{` without `}}` in {text:?}").into());
        };
        expanded.push_str(before);
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        // As in a shell, `:-` replaces an empty variable too: `lookup` treats it as unset.
        match (lookup(name, environment), default) {
            (Ok(value), _) => expanded.push_str(&value),
            (Err(_), Some(default)) => expanded.push_str(default),
            (Err(reason), None) => return Err(reason),
        }
        // The value itself is not expanded again: it may contain `${` literally.
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// The value of an environment variable.
pub(super) fn lookup(name: &str, environment: Environment<'_>) -> Result<String, EntryError> {
    let reason = match environment(name).map(OsString::into_string) {
        Some(Ok(value)) if !value.is_empty() => return Ok(value),
        Some(Err(_)) => format!("the environment variable {name} is not valid UTF-8"),
        _ => format!("the environment variable {name} is not set; set it, or write a value"),
    };
    Err(EntryError(reason))
}

/// Splits a command line into words.
pub(super) fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            // As in a shell, a backslash is literal within single quotes.
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("a {open} is not closed in {text:?}"));
    }
    words.extend(word);
    Ok(words)
}
