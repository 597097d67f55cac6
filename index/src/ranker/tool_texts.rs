//! The analyzed texts of a tool, from which the ranker's view of it is made.

use super::head;
use crate::document::Field;
use crate::text;
use crate::tool::Tool;

/// A tool's texts by part, each analyzed once.
pub struct ToolTexts {
    /// The name.
    pub name: Analyzed,
    /// The server's name.
    pub server: Analyzed,
    /// Title, description and tags.
    pub description: Analyzed,
    /// The names of the parameters.
    pub parameter_names: Analyzed,
    /// Their descriptions and values, the names of the result's fields, and examples.
    pub parameter_texts: Analyzed,
}

/// Texts with all their terms.
// Without an allocation for each term: every tool of a catalog is analyzed.
#[derive(Default)]
pub struct Analyzed {
    /// The texts.
    pub texts: Vec<String>,
    /// [`text::term_hash`] of each of their terms, in order.
    pub terms: Vec<u32>,
    /// The terms' words as written, end to end.
    words: String,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl ToolTexts {
    /// Analyzes a tool.
    pub fn new(tool: &Tool) -> Self {
        let description = [Field::Title, Field::Description, Field::Tags];
        let parameter_texts = [
            Field::ParameterDescriptions,
            Field::EnumValues,
            Field::ResultNames,
            Field::Examples,
        ];
        ToolTexts {
            name: Analyzed::new(tool, &[Field::Name]),
            server: Analyzed::new(tool, &[Field::Server]),
            description: Analyzed::new(tool, &description),
            parameter_names: Analyzed::new(tool, &[Field::ParameterNames]),
            parameter_texts: Analyzed::new(tool, &parameter_texts),
        }
    }

    /// All parts.
    pub fn parts(&self) -> [&Analyzed; 5] {
        [
            &self.name,
            &self.server,
            &self.description,
            &self.parameter_names,
            &self.parameter_texts,
        ]
    }
}

impl Analyzed {
    fn new(tool: &Tool, fields: &[Field]) -> Self {
        let mut analyzed = Analyzed {
            texts: fields.iter().map(|&field| head(tool, field)).collect(),
            ..Analyzed::default()
        };
        for text in &analyzed.texts {
            text::for_each_term(text, |word, term| {
                analyzed.terms.push(text::term_hash(term));
                analyzed.words.push_str(word);
                analyzed.ends.push(analyzed.words.len());
            });
        }
        analyzed
    }

    /// The word of each term as written, lowercased.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(&start, &end)| &self.words[start..end])
    }

    /// True if all words are.
    pub fn is_ascii(&self) -> bool {
        self.words.is_ascii()
    }
}
