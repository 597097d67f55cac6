//! Lines of `queries.jsonl` that this program writes: a query, its judgement, and where both came
//! from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Queries that were made of the definitions of tools.
pub const TEMPLATE: &str = "template";
/// Queries for which tools were called.
pub const CALLS: &str = "calls";
/// Queries that clients reported with the tool that helped.
pub const FEEDBACK: &str = "feedback";

/// A judged query, as a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedLine {
    /// Unique within its file.
    pub id: String,
    /// The text of the query.
    pub query: String,
    /// The grade of each judged tool.
    pub relevant: BTreeMap<String, f64>,
    /// How often it was asked, if that was more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// Where the query came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Who judged, if it was neither the maker of the query nor a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<String>,
}

impl JudgedLine {
    /// The line with its end.
    pub fn line(&self) -> String {
        // A struct of strings and numbers always serialises.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}

/// Lines of texts with the tools that are right for them. Equal texts are one query; ids are
/// `PREFIX-1` and so on, in the order of the first occurrences.
pub fn lines(
    prefix: &str,
    pairs: impl IntoIterator<Item = (String, String)>,
    source: &str,
) -> Vec<JudgedLine> {
    let mut lines: Vec<JudgedLine> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (query, tool) in pairs {
        let place = *places.entry(query.clone()).or_insert(lines.len());
        // The text is new: it was given the next place.
        if place == lines.len() {
            lines.push(JudgedLine {
                id: format!("{prefix}-{}", place + 1),
                query,
                relevant: BTreeMap::new(),
                times: None,
                source: Some(source.to_owned()),
                judge: None,
            });
        }
        lines[place].relevant.insert(tool, 1.0);
    }
    lines
}

/// Queries of two sources as one list: a query of both has both sources and all tools.
pub fn joined(mut lines: Vec<JudgedLine>, others: Vec<JudgedLine>) -> Vec<JudgedLine> {
    for other in others {
        match lines.iter_mut().find(|line| line.query == other.query) {
            Some(line) => {
                line.relevant.extend(other.relevant);
                // Either may say nothing of its source.
                let both = [line.source.take(), other.source];
                line.source = Some(both.into_iter().flatten().collect::<Vec<_>>().join("+"));
            }
            None => lines.push(other),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one_query_with_every_source() {
        let pair = |query: &str, tool: &str| (query.to_owned(), tool.to_owned());
        let calls = lines(
            "call",
            [pair("a", "x"), pair("b", "y"), pair("a", "z")],
            CALLS,
        );
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0].relevant.len(), 2);
        let both = joined(
            calls,
            lines("feedback", [pair("b", "x"), pair("c", "x")], FEEDBACK),
        );
        let sources: Vec<&str> = both
            .iter()
            .filter_map(|line| line.source.as_deref())
            .collect();
        assert_eq!(sources, ["calls", "calls+feedback", "feedback"]);
        let read: JudgedLine = serde_json::from_str(&both[1].line()).unwrap();
        assert_eq!(read, both[1]);
    }
}
