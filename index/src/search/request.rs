//! The texts of a request and their vectors.

use crate::clauses;
use crate::query::read_part;
use crate::text;
use crate::variant::Parts;

/// One text of a query with the texts it is searched by: itself, then its clauses if it has
/// several.
pub(super) struct RequestTexts {
    pub(super) texts: Vec<String>,
    /// The share of Chinese, Japanese and Korean letters.
    pub(super) cjk_share: f32,
}

impl RequestTexts {
    pub(super) fn new(text: &str, requested: Parts) -> Self {
        // The clauses are those of the part that is searched, so a pasted document costs no more.
        let text = read_part(text);
        let mut texts = vec![text.to_owned()];
        if requested.clauses {
            let clauses = clauses::clauses(text);
            // A single clause is the request itself.
            if clauses.len() > 1 {
                texts.extend(clauses);
            }
        }
        RequestTexts {
            texts,
            cjk_share: text::cjk_share(text),
        }
    }

    /// The texts that these parts of the pipeline search by.
    pub(super) fn of(&self, parts: Parts) -> &[String] {
        if parts.clauses {
            &self.texts
        } else {
            self.whole()
        }
    }

    /// The request as a whole.
    pub(super) fn whole_text(&self) -> &str {
        &self.texts[0]
    }

    /// The request as a whole, as a list of one text.
    pub(super) fn whole(&self) -> &[String] {
        &self.texts[..1]
    }

    /// The clauses it was split into; none when it was taken whole.
    pub(super) fn clauses(&self) -> &[String] {
        &self.texts[1..]
    }

    pub(super) fn drop_clauses(&mut self) {
        self.texts.truncate(1);
    }
}

/// The vectors of a query's texts, for every dense leg in the order of the searcher's legs.
#[derive(Default)]
pub(super) struct QueryVectors {
    by_leg: Vec<Option<LegVectors>>,
}

/// One leg's vectors: by request, then by text, the whole request first.
struct LegVectors {
    by_request: Vec<Vec<Vec<f32>>>,
}

impl QueryVectors {
    /// Adds a leg with the vectors of all texts; `counts` is the number of texts of each request.
    pub(super) fn push(&mut self, vectors: Vec<Vec<f32>>, counts: impl Iterator<Item = usize>) {
        let mut vectors = vectors.into_iter();
        let by_request = counts
            .map(|count| vectors.by_ref().take(count).collect())
            .collect();
        self.by_leg.push(Some(LegVectors { by_request }));
    }

    /// Adds a leg that takes no part.
    pub(super) fn push_absent(&mut self) {
        self.by_leg.push(None);
    }

    /// True when no leg takes part.
    pub(super) fn is_empty(&self) -> bool {
        self.by_leg.iter().all(Option::is_none)
    }

    /// The vectors of one request's texts, the whole request first; `None` for a leg that takes no
    /// part.
    pub(super) fn of(&self, leg: usize, request: usize) -> Option<&[Vec<f32>]> {
        let vectors = self.by_leg[leg].as_ref()?;
        Some(&vectors.by_request[request])
    }
}
