//! Whether a client searches among its tools itself. Two searches confuse a model, so ours steps
//! aside.

use bytes::Bytes;

use crate::dialect::{OfferedTool, ToolKind};
use crate::wire::json::Fields;

/// The ends of names of such tools, without separators and case.
const NAMES: [&str; 8] = [
    "findtools",
    "loadtools",
    "searchfortools",
    "searchtools",
    "toolfinder",
    "toolsearch",
    "toolssearch",
    "toolsearcher",
];
/// Names of parameters with what is searched for.
const QUERIES: [&str; 8] = [
    "intent", "keywords", "names", "pattern", "queries", "query", "search", "tools",
];
/// What a conversation has of the results of such a search.
const RESULTS: [&str; 3] = [
    "\"tool_reference\"",
    "\"tool_search_call\"",
    "\"tool_search_output\"",
];

/// Whether a tool of the client searches among its tools: its name says so, it takes a query, and
/// its description speaks of tools.
pub fn is_search(tool: &OfferedTool) -> bool {
    if tool.kind != ToolKind::Function {
        return false;
    }
    let letters = tool.name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    if !NAMES.iter().any(|name| plain.ends_with(name)) {
        return false;
    }
    let fields = Fields::read(&tool.json).unwrap_or_default();
    let inside = fields.get("function").or(fields.get("toolSpec"));
    let definition = inside.and_then(Fields::read).unwrap_or(fields);
    let description = definition.text("description").unwrap_or_default();
    // A search for something else may have such a name: the description decides.
    takes_query(&definition) && description.to_lowercase().contains("tool")
}

fn takes_query(definition: &Fields) -> bool {
    // Anthropic's API calls it `input_schema`.
    let schema = definition.value("parameters");
    let schema = schema.or(definition.value("input_schema"));
    let schema = schema.or(definition.value("parametersJsonSchema"));
    let schema = schema.or_else(|| Some(definition.value("inputSchema")?["json"].take()));
    let schema = schema.unwrap_or_default();
    let properties = &schema["properties"];
    QUERIES.iter().any(|query| properties.get(query).is_some())
}

/// Whether a conversation has results of such a search, or of the provider's.
pub fn has_results(conversation: &Bytes) -> bool {
    let text = String::from_utf8_lossy(conversation);
    RESULTS.iter().any(|result| text.contains(result))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Dialect;

    fn tool(name: &str, description: &str, parameter: &str) -> OfferedTool {
        let parameters =
            json!({ "type": "object", "properties": { parameter: { "type": "string" } } });
        let definition = json!({ "type": "function", "function": {
            "name": name, "description": description, "parameters": parameters } });
        let json = Bytes::from(definition.to_string());
        Dialect::Chat.protocol().tool(&json)
    }

    #[test]
    fn a_search_for_tools_is_known_by_name_parameter_and_description() {
        for name in [
            "ToolSearch",
            "tool_search",
            "mcp__toolscout__tool_search",
            "search_tools",
        ] {
            assert!(is_search(&tool(name, "Loads deferred tools.", "query")));
        }
        for (name, description, parameter) in [
            ("tool_search", "Searches for hammers and saws.", "hammer"),
            ("tool_search", "Searches a shop.", "query"),
            ("web_search", "A tool that searches.", "query"),
        ] {
            assert!(!is_search(&tool(name, description, parameter)));
        }
    }

    #[test]
    fn results_are_known_and_texts_about_them_are_not() {
        let block = json!([{ "content": [{ "type": "tool_reference", "tool_name": "a" }] }]);
        assert!(has_results(&block.to_string().into()));
        let text = json!([{ "content": block.to_string() }]);
        assert!(!has_results(&text.to_string().into()));
    }
}
