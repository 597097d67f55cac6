//! The fields of a result that the owner wants.

use rmcp::model::{CallToolResult, ContentBlock};
use toolscout_base::tool_edit::Fields;

/// The result with these fields alone, in its structured content and in texts that are JSON. A value
/// that has none of them stays whole, and so does a failure.
pub fn of(mut result: CallToolResult, paths: &[String]) -> CallToolResult {
    if result.is_error == Some(true) {
        return result;
    }
    let fields = Fields::of(paths);
    if let Some(structured) = &mut result.structured_content {
        fields.keep_in(structured);
    }
    for block in &mut result.content {
        if let ContentBlock::Text(text) = block
            && let Some(kept) = fields.kept_text(&text.text)
        {
            text.text = kept;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn viewed(result: Value, paths: &[&str]) -> Value {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let result = serde_json::from_value(result).unwrap();
        serde_json::to_value(of(result, &paths)).unwrap()
    }

    #[test]
    fn fields_are_kept_in_lists_and_within_fields() {
        let issue = |number: u32| json!({ "number": number, "body": "long", "user": { "login": "ada", "id": 7 }, "labels": [{ "name": "bug", "color": "red" }] });
        let list = json!({ "items": [issue(1), issue(2)], "total": 2, "took": 3 });
        let paths = [
            "total",
            "items.number",
            "items.user.login",
            "items.labels.name",
        ];
        let short = |number: u32| json!({ "number": number, "user": { "login": "ada" }, "labels": [{ "name": "bug" }] });
        let expected = json!({ "items": [short(1), short(2)], "total": 2 });
        let text = serde_json::to_string_pretty(&list).unwrap();
        let result = viewed(
            json!({ "content": [{ "type": "text", "text": text }], "structuredContent": list }),
            &paths,
        );
        assert_eq!(result["structuredContent"], expected);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), expected);
        let bare = json!([issue(1)]).to_string();
        let result = viewed(
            json!({ "content": [{ "type": "text", "text": bare }] }),
            &["number"],
        );
        assert_eq!(result["content"][0]["text"], "[{\"number\":1}]");
    }

    #[test]
    fn what_has_none_of_the_fields_stays_and_so_do_failures() {
        for (text, is_error) in [
            ("{\"a\":1}", false),
            ("number: 7", false),
            ("[1,2]", false),
            ("{\"number\":1,\"b\":2}", true),
        ] {
            let result =
                json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
            assert_eq!(
                viewed(result.clone(), &["number"])["content"],
                result["content"]
            );
        }
    }
}
