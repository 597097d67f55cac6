//! References: the web pages in the results of search tools, at any depth.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use toolscout_base::printable::excerpt;
use toolscout_state::session::Reference;

/// Maximum number of references of one turn.
const MAX_REFERENCES: usize = 50;
/// Characters kept of a reference's content.
const CONTENT_CHARS: usize = 500;
/// Levels of a result that are searched, JSON inside strings included.
const MAX_DEPTH: usize = 8;
/// Longest string that is parsed as JSON, in bytes.
const MAX_NESTED_BYTES: usize = 4 << 20;

/// Collects references, each URL once.
#[derive(Debug, Default)]
pub struct References {
    found: Vec<Reference>,
    urls: BTreeSet<String>,
}

impl References {
    /// Collects every entry with a `url` from every `results` list in this data, also from JSON
    /// inside strings (as in MCP's text content).
    pub fn collect(&mut self, data: &Value) {
        self.visit(data, MAX_DEPTH);
    }

    /// The collected references, in order.
    pub fn into_vec(self) -> Vec<Reference> {
        self.found
    }

    fn visit(&mut self, value: &Value, depth: usize) {
        if depth == 0 {
            return;
        }
        match value {
            Value::Object(fields) => self.visit_object(fields, depth),
            Value::Array(items) => items.iter().for_each(|item| self.visit(item, depth - 1)),
            Value::String(text) => self.visit_text(text, depth),
            _ => {}
        }
    }

    fn visit_object(&mut self, fields: &Map<String, Value>, depth: usize) {
        if let Some(Value::Array(results)) = fields.get("results") {
            for reference in results.iter().filter_map(reference_of) {
                self.add(reference);
            }
        }
        for value in fields.values() {
            self.visit(value, depth - 1);
        }
    }

    fn visit_text(&mut self, text: &str, depth: usize) {
        // The search for the key is much cheaper than parsing every long text.
        let may_have_results = text.len() <= MAX_NESTED_BYTES && text.contains("\"results\"");
        if may_have_results && let Ok(value) = serde_json::from_str::<Value>(text) {
            self.visit(&value, depth - 1);
        }
    }

    fn add(&mut self, reference: Reference) {
        if self.found.len() < MAX_REFERENCES && self.urls.insert(reference.url.clone()) {
            self.found.push(reference);
        }
    }
}

fn reference_of(entry: &Value) -> Option<Reference> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let url = text("url");
    // Clients make links of references: a `javascript:` URL must not become one.
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return None;
    }
    let content = match text("content") {
        "" => text("snippet"),
        content => content,
    };
    Some(Reference {
        url: url.to_owned(),
        title: excerpt(text("title"), CONTENT_CHARS),
        content: excerpt(content, CONTENT_CHARS),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_at_any_depth_and_in_strings_each_once() {
        let page = |n: u32| json!({ "url": format!("https://a.example/{n}"), "title": "t", "content": "c".repeat(900) });
        let inner = json!({ "query": "q", "results": [page(2), page(1)] }).to_string();
        let mut references = References::default();
        references.collect(&json!({ "results": [page(1), { "title": "no url" }, { "url": "javascript:alert(1)" }] }));
        references.collect(&json!({ "content": [{ "type": "text", "text": inner }] }));
        references.collect(&json!("no results here"));
        let found = references.into_vec();
        let urls: Vec<&str> = found
            .iter()
            .map(|reference| reference.url.as_str())
            .collect();
        assert_eq!(urls, ["https://a.example/1", "https://a.example/2"]);
        assert_eq!(found[0].content.chars().count(), CONTENT_CHARS + 1);
    }

    #[test]
    fn the_number_of_references_is_bounded() {
        let results: Vec<Value> = (0..500)
            .map(|n| json!({ "url": format!("http://a/{n}") }))
            .collect();
        let mut references = References::default();
        references.collect(&json!({ "results": results }));
        assert_eq!(references.into_vec().len(), MAX_REFERENCES);
    }
}
