//! What a language model wrote about when to use a tool: a few requests as people say them.
//!
//! It is kept apart from the tool. It belongs to no field and no export, and nobody is shown it as
//! the tool's description: only the dense legs read it, as further texts of the tool.

use std::fmt::Display;

use crate::error::{EnrichmentProblem, Error, Result};

/// Most texts of one tool.
pub const MAX_ENRICHMENT_TEXTS: usize = 8;
/// Longest text, in characters. A request is a sentence or two.
pub const MAX_ENRICHMENT_CHARS: usize = 200;
/// Longest name of a model, in characters.
const MAX_MODEL_CHARS: usize = 200;

/// Requests for which a tool is the right one, and the model that wrote them. Checked when it is
/// made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrichment {
    texts: Vec<String>,
    model: String,
}

impl Enrichment {
    /// Checks texts and the name of their model. Space around a text is cut off.
    ///
    /// # Errors
    /// [`Error::InvalidEnrichment`] for no text or more than [`MAX_ENRICHMENT_TEXTS`], and for a text
    /// or a model's name that is empty, longer than [`MAX_ENRICHMENT_CHARS`], or holds control
    /// characters.
    pub fn new(
        texts: impl IntoIterator<Item = impl Into<String>>,
        model: impl Into<String>,
    ) -> Result<Self> {
        let texts: Vec<String> = texts
            .into_iter()
            // One more than allowed is enough to refuse them.
            .take(MAX_ENRICHMENT_TEXTS + 1)
            .map(|text| text.into().trim().to_owned())
            .collect();
        let model = model.into();
        check(&texts, &model).map_err(Error::InvalidEnrichment)?;
        Ok(Enrichment { texts, model })
    }

    /// The requests.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The name of the model that wrote them.
    pub fn model(&self) -> &str {
        &self.model
    }
}

fn check(texts: &[String], model: &str) -> Result<(), EnrichmentProblem> {
    if texts.is_empty() || texts.len() > MAX_ENRICHMENT_TEXTS {
        return Err(EnrichmentProblem::Count {
            max: MAX_ENRICHMENT_TEXTS,
        });
    }
    for (number, text) in (1..).zip(texts) {
        check_text(text, MAX_ENRICHMENT_CHARS, format_args!("text {number}"))?;
    }
    check_text(model, MAX_MODEL_CHARS, "the model's name")
}

/// Checks one text; `what` names it in messages.
fn check_text(text: &str, max: usize, what: impl Display) -> Result<(), EnrichmentProblem> {
    let chars = text.chars().count();
    if chars == 0 || chars > max {
        return Err(EnrichmentProblem::Length {
            what: what.to_string(),
            chars,
            max,
        });
    }
    // They could forge lines in logs and on terminals.
    match text.chars().find(|c| c.is_control()) {
        Some(control) => Err(EnrichmentProblem::Control {
            what: what.to_string(),
            control,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_short_texts_are_accepted_and_trimmed() {
        let enrichment = Enrichment::new([" send a note ", "tell Ana"], "m").unwrap();
        assert_eq!(enrichment.texts(), ["send a note", "tell Ana"]);
        assert_eq!(enrichment.model(), "m");
    }

    #[test]
    fn what_is_empty_long_or_not_printable_is_refused_by_its_place() {
        let long = "é".repeat(MAX_ENRICHMENT_CHARS + 1);
        let refused = |texts: &[&str], model: &str| {
            let error = Enrichment::new(texts.iter().copied(), model).unwrap_err();
            error.to_string()
        };
        assert!(refused(&[], "m").contains("1 to 8"));
        assert!(refused(&["a"; MAX_ENRICHMENT_TEXTS + 1], "m").contains("1 to 8"));
        assert!(refused(&["a", " "], "m").contains("text 2 has 0 characters"));
        assert!(refused(&[&long], "m").contains("text 1 has 201 characters"));
        assert!(refused(&["a\u{1b}[2J"], "m").contains(r"'\u{1b}'"));
        assert!(refused(&["a"], "").contains("the model's name has 0 characters"));
    }
}
