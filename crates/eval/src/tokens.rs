//! Tokens of tools in the context of a model, counted with a real tokenizer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolscout_index::Tool;
use toolscout_index::formats::{Emit, emit};
use utoipa::ToSchema;

use super::dataset::{EvalSet, ToolIndex};
use super::metrics::mean;

/// Hits per search result, as agents request them.
const ANSWER_HITS: usize = 5;
/// Search results that are counted; more hardly change the mean.
const COUNTED_ANSWERS: usize = 200;
/// The formats in which models receive tools.
const FORMATS: [(&str, Emit); 6] = [
    ("openai", Emit::Openai),
    ("openai_responses", Emit::OpenaiResponses),
    ("anthropic", Emit::Anthropic),
    ("mcp", Emit::Mcp),
    ("signature", Emit::Signature),
    ("names", Emit::Names),
];

/// Tokens of the whole catalog and of a search result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationTokens)]
pub struct TokensReport {
    /// The whole catalog as OpenAI chat tools.
    pub catalog: usize,
    /// The mean search result in the same format.
    pub answer: f64,
    /// Hits per search result.
    pub answer_hits: usize,
    /// The tokenizer.
    pub tokenizer: String,
    /// The same for each format.
    pub formats: BTreeMap<String, FormatTokens>,
}

/// Tokens in one format.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationFormatTokens)]
pub struct FormatTokens {
    /// The whole catalog.
    pub catalog: usize,
    /// The mean search result.
    pub answer: f64,
}

impl TokensReport {
    /// Counts the tools of a set, and the first hits of these rankings as search results. Takes
    /// about a second for 5 MB of schemas.
    pub fn of(set: &EvalSet, rankings: &[Vec<ToolIndex>]) -> Self {
        // The same answers in every format, so that formats can be compared.
        let mut answers: Vec<Vec<&Tool>> = Vec::new();
        for hits in rankings.iter().take(COUNTED_ANSWERS) {
            let hits = hits.iter().take(ANSWER_HITS);
            answers.push(hits.map(|&hit| set.tool(hit)).collect());
        }
        let catalog: Vec<&Tool> = set.tools.iter().collect();
        let mut formats = BTreeMap::new();
        for (name, format) in FORMATS {
            let in_answers = answers.iter().map(|tools| tokens_of(tools, format) as f64);
            let tokens = FormatTokens {
                catalog: tokens_of(&catalog, format),
                answer: mean(&in_answers.collect::<Vec<_>>()),
            };
            formats.insert(name.to_owned(), tokens);
        }
        let FormatTokens { catalog, answer } = formats["openai"];
        TokensReport {
            catalog,
            answer,
            answer_hits: ANSWER_HITS,
            tokenizer: "o200k_base".to_owned(),
            formats,
        }
    }
}

/// Tokens of tools as compact JSON, as in a request to a provider.
fn tokens_of(tools: &[&Tool], format: Emit) -> usize {
    tiktoken_rs::o200k_base_singleton().count_ordinary(&emit(tools, format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

    #[test]
    fn tokens_are_counted_for_the_catalog_and_for_results() {
        let set = set(
            &[
                ("a", "Sends mail to people"),
                ("b", "Tells the weather"),
                ("c", "Plays a song"),
            ],
            &[("q", "mail", &["a"]), ("r", "rain", &["b"])],
        );
        let report = TokensReport::of(&set, &[vec![0], vec![0, 1, 2]]);
        let one = tokens_of(&[set.tool(0)], Emit::Openai);
        assert_eq!(
            report.catalog,
            tokens_of(&set.tools.iter().collect::<Vec<_>>(), Emit::Openai)
        );
        assert_eq!(report.answer, (one + report.catalog) as f64 / 2.0);
        assert!(report.formats["names"].catalog < report.formats["signature"].catalog);
        assert!(report.formats["signature"].catalog < report.formats["openai"].catalog);
    }

    #[test]
    fn the_tokenizer_is_o200k() {
        // Known encodings: "hello world" and " tokenization" have 2 tokens each.
        let count = |text: &str| {
            tiktoken_rs::o200k_base_singleton()
                .encode_ordinary(text)
                .len()
        };
        assert_eq!(
            (count("hello world"), count("antidisestablishmentarianism")),
            (2, 6)
        );
    }
}
