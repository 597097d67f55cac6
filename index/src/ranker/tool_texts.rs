//! The analyzed texts of a tool, from which the ranker's view of it is made.

use super::head;
use crate::document::Field;
use crate::text::{self, Term};
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
    /// Their descriptions and values.
    pub parameter_texts: Analyzed,
}

/// Texts with all their terms.
pub struct Analyzed {
    /// The texts.
    pub texts: Vec<String>,
    /// Their terms, in order.
    pub terms: Vec<Term>,
}

impl ToolTexts {
    /// Analyzes a tool.
    pub fn new(tool: &Tool) -> Self {
        let part = |fields: &[Field]| Analyzed::new(tool, fields);
        ToolTexts {
            name: part(&[Field::Name]),
            server: part(&[Field::Server]),
            description: part(&[Field::Title, Field::Description, Field::Tags]),
            parameter_names: part(&[Field::ParameterNames]),
            parameter_texts: part(&[Field::ParameterDescriptions, Field::EnumValues]),
        }
    }
}

impl Analyzed {
    fn new(tool: &Tool, fields: &[Field]) -> Self {
        let texts: Vec<String> = fields.iter().map(|&field| head(tool, field)).collect();
        let terms = texts.iter().flat_map(|text| text::terms(text)).collect();
        Analyzed { texts, terms }
    }
}
