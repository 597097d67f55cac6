//! Reads and checks the vectors of an answer.

use serde::Deserialize;

/// Characters of an endpoint's words in a message.
const MAX_EXCERPT_CHARS: usize = 200;

/// A usable answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Unit vectors in the order of the texts.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens that the endpoint has counted; 0 where it counts none.
    pub tokens: u64,
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Unusable {
    /// What was expected and what came.
    pub reason: String,
    /// True where only the length of the vectors is another one.
    pub is_other_length: bool,
}

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Unusable {
            reason,
            is_other_length: false,
        }
    }
}

#[derive(Deserialize)]
struct Body {
    data: Vec<Item>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    embedding: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    total_tokens: u64,
}

impl Answer {
    /// Reads the answer for this many texts. Without `dimensions` all vectors need only be of one
    /// length. `shown` gives a part of the answer as it may be shown.
    ///
    /// # Errors
    /// Anything else than one finite vector of the right length for each text.
    pub fn read(
        body: &[u8],
        texts: usize,
        dimensions: Option<usize>,
        shown: &dyn Fn(&[u8]) -> String,
    ) -> Result<Self, Unusable> {
        let body: Body =
            serde_json::from_slice(body).map_err(|error| not_json(body, &error, shown))?;
        if body.data.len() != texts {
            return Err(format!("it sent {} vectors for {texts} texts", body.data.len()).into());
        }
        let mut vectors: Vec<Option<Vec<f32>>> = vec![None; texts];
        for (place, item) in body.data.into_iter().enumerate() {
            // Vectors are in the order of texts where they have no number.
            let index = item.index.unwrap_or(place);
            let Some(slot) = vectors.get_mut(index) else {
                let last = texts - 1;
                return Err(
                    format!("it sent a vector with index {index}, the last is {last}").into(),
                );
            };
            if slot.is_some() {
                return Err(format!("it sent two vectors with index {index}").into());
            }
            *slot = Some(unit_vector(&item.embedding, index)?);
        }
        // As many as texts, and none twice: none is missing.
        let vectors: Vec<Vec<f32>> = vectors.into_iter().flatten().collect();
        let expected = match dimensions {
            Some(dimensions) => dimensions,
            None => vectors.first().map_or(0, Vec::len),
        };
        if let Some(wrong) = vectors.iter().find(|vector| vector.len() != expected) {
            return Err(Unusable {
                reason: format!(
                    "it sent a vector of {} dimensions where {expected} were expected; if its model was changed, \
                     `toolscout embed` embeds by the new one, with the new `dimensions` if the settings have them",
                    wrong.len()
                ),
                is_other_length: true,
            });
        }
        // Some endpoints fill in one of the two figures only.
        let tokens = match body.usage {
            Some(usage) => usage.prompt_tokens.max(usage.total_tokens),
            None => 0,
        };
        Ok(Answer { vectors, tokens })
    }
}

fn unit_vector(values: &[Option<f64>], index: usize) -> Result<Vec<f32>, Unusable> {
    if values.is_empty() {
        return Err(format!("vector {index} is empty").into());
    }
    // In double precision, where the squares of large values do not overflow.
    let mut squares = 0.0;
    for (place, value) in values.iter().enumerate() {
        match value {
            Some(value) if value.abs() <= f64::from(f32::MAX) => squares += value * value,
            _ => {
                let reason = format!("value {place} of vector {index} is not a finite number");
                return Err(reason.into());
            }
        }
    }
    let length = squares.sqrt();
    if !(length > 0.0 && length.is_finite()) {
        return Err(format!("vector {index} is all zeros").into());
    }
    let unit = values.iter().flatten().map(|value| (value / length) as f32);
    Ok(unit.collect())
}

fn not_json(body: &[u8], error: &serde_json::Error, shown: &dyn Fn(&[u8]) -> String) -> Unusable {
    let text = shown(body);
    // Words that Python writes for what JSON has no number for.
    if ["NaN", "Infinity"].iter().any(|word| text.contains(word)) {
        return "a vector has NaN or Infinity in it".to_owned().into();
    }
    if error.is_eof() {
        return format!("its answer ends after {} bytes, before its end", body.len()).into();
    }
    // The error may quote the answer too.
    let error = excerpt(&shown(error.to_string().as_bytes()));
    let text = excerpt(&text);
    format!("its answer is no list of vectors ({error}): {text}").into()
}

/// The beginning of a text in one line.
pub fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    toolscout_base::printable::excerpt(&line, MAX_EXCERPT_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, texts: usize) -> Result<Answer, Unusable> {
        let shown = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        Answer::read(body.as_bytes(), texts, Some(2), &shown)
    }

    #[test]
    fn vectors_are_put_in_order_and_scaled() {
        let body = r#"{"data": [{"index": 1, "embedding": [0, 2]}, {"index": 0, "embedding": [3, 4]}],
                       "usage": {"prompt_tokens": 7, "total_tokens": 7}, "model": "m"}"#;
        let answer = read(body, 2).unwrap();
        assert_eq!(answer.vectors, [vec![0.6, 0.8], vec![0.0, 1.0]]);
        assert_eq!(answer.tokens, 7);
        let plain = read(
            r#"{"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]}"#,
            2,
        )
        .unwrap();
        assert_eq!(plain.vectors, [vec![1.0, 0.0], vec![0.0, 1.0]]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, expected) in [
            (
                r#"{"data": [{"embedding": [1, 0]}]}"#,
                "1 vectors for 2 texts",
            ),
            (
                r#"{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 0, "embedding": [1, 0]}]}"#,
                "two vectors with index 0",
            ),
            (
                r#"{"data": [{"index": 1, "embedding": [1, 0]}, {"index": 2, "embedding": [1, 0]}]}"#,
                "index 2, the last is 1",
            ),
            (
                r#"{"data": [{"embedding": [1, NaN]}, {"embedding": [1, 0]}]}"#,
                "NaN",
            ),
            (
                r#"{"data": [{"embedding": [1, null]}, {"embedding": [1, 0]}]}"#,
                "value 1 of vector 0 is not a finite number",
            ),
            (
                r#"{"data": [{"embedding": [1, 1e39]}, {"embedding": [1, 0]}]}"#,
                "not a finite number",
            ),
            (
                r#"{"data": [{"embedding": [0, 0]}, {"embedding": [1, 0]}]}"#,
                "vector 0 is all zeros",
            ),
            (
                r#"{"data": [{"embedding": []}, {"embedding": [1, 0]}]}"#,
                "vector 0 is empty",
            ),
            (r#"{"data": [{"embedding": [1, 0]}, {"embedd"#, "ends after"),
            (
                r#"{"error": {"message": "no such model"}}"#,
                "no such model",
            ),
            ("<html>", "no list of vectors"),
        ] {
            let reason = read(body, 2).unwrap_err().reason;
            assert!(reason.contains(expected), "{body}: {reason}");
        }
        let other = read(r#"{"data": [{"embedding": [1, 0, 0]}]}"#, 1).unwrap_err();
        assert!(
            other.is_other_length && other.reason.contains("3 dimensions where 2"),
            "{other:?}"
        );
    }
}
