//! Reads relevance judgements in the TREC format (`query 0 document grade`) and BEIR's (`query
//! document grade`, with a header).

use std::collections::HashMap;
use std::path::Path;

use crate::eval::error::{EvalError, Result, read_text};

/// The relevant documents of each query, in the order of the file. A grade of 0 or less marks a
/// document that is not relevant.
pub(super) type Judgements = HashMap<String, Vec<String>>;

/// Adds the judgements of a file.
pub(super) fn read_into(judgements: &mut Judgements, path: &Path) -> Result<()> {
    read_text_into(judgements, path, &read_text(path)?)
}

/// Adds the judgements of a text. `path` is its name in messages.
pub(super) fn read_text_into(judgements: &mut Judgements, path: &Path, text: &str) -> Result<()> {
    for (index, line) in text.lines().enumerate() {
        let fields = fields(line);
        match fields.as_slice() {
            [] => {}
            [_, _, grade] if index == 0 && grade.parse::<f64>().is_err() => {}
            [query, document, grade] | [query, _, document, grade] => {
                if grade_of(grade).ok_or_else(|| bad_grade(path, index, grade))? > 0.0 {
                    judgements
                        .entry(unescape(query))
                        .or_default()
                        .push((*document).to_owned());
                }
            }
            _ => {
                let reason = format!(
                    "{} columns; a judgement has `query 0 tool grade` or `query tool grade`",
                    fields.len()
                );
                return Err(EvalError::malformed(path, index + 1, reason));
            }
        }
    }
    Ok(())
}

/// An id as one column of a TREC file: white space and `%` are percent-encoded.
pub(crate) fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    for c in id.chars() {
        match c {
            '%' => escaped.push_str("%25"),
            c if c.is_whitespace() => c
                .to_string()
                .bytes()
                .for_each(|byte| escaped.push_str(&format!("%{byte:02X}"))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The id that [`escape`] was given; text without escapes as it is.
pub(crate) fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%')
            .then(|| tail.get(..2).and_then(hex_byte))
            .flatten();
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Tabs separate where there are any, so that ids may contain spaces; else white space does.
fn fields(line: &str) -> Vec<&str> {
    match line.trim() {
        "" => Vec::new(),
        line if line.contains('\t') => line.split('\t').map(str::trim).collect(),
        line => line.split_whitespace().collect(),
    }
}

fn grade_of(text: &str) -> Option<f64> {
    text.parse().ok().filter(|grade: &f64| grade.is_finite())
}

fn bad_grade(path: &Path, index: usize, grade: &str) -> EvalError {
    EvalError::malformed(
        path,
        index + 1,
        format!("the grade {grade:?} is not a number"),
    )
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_is_undone_and_leaves_one_column() {
        for id in [
            "plain",
            "two words",
            "a%20b",
            "100%",
            "tab\there",
            "全角\u{3000}空白",
            "%zz",
            "",
        ] {
            let escaped = escape(id);
            assert!(!escaped.contains(char::is_whitespace), "{escaped}");
            assert_eq!(unescape(&escaped), id);
        }
    }

    #[test]
    fn an_invalid_judgement_is_a_named_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qrels");
        for (text, expected) in [
            ("q 0 d 1\nq d", "qrels:2: 2 columns"),
            ("q 0 d high", "qrels:1: the grade \"high\""),
        ] {
            std::fs::write(&path, text).unwrap();
            let message = read_into(&mut Judgements::new(), &path)
                .unwrap_err()
                .to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
