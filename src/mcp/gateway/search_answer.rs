//! The answer to a search of a client.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolscout_index::formats::Emit;
use toolscout_index::formats::model_name;
use toolscout_index::{Tool, ToolId};

use crate::budget;
use crate::finder::meta_tools;
use crate::finder::search::Found;
use crate::finder::toolbox::Injection;
use crate::mcp::pool::Pool;

/// Most nearest names in an answer without a match.
const MAX_NEAREST: usize = 5;

/// The found tools with their schemas within a token budget, each with its server. In inject style
/// also the changes of the session's list.
pub fn describe(
    found: &Found,
    injection: Option<&Injection>,
    max_tokens: usize,
    pool: &Pool,
) -> Value {
    let tools = meta_tools::merged(std::slice::from_ref(found));
    let mut answer = Map::new();
    let (described, omitted) = fit(&tools, max_tokens, pool);
    answer.insert("tools".into(), described.into());
    if !omitted.is_empty() {
        answer.insert("no_room_for".into(), omitted.into());
    }
    if let Some(injection) = injection {
        let names = |ids: &[ToolId]| -> Value { ids.iter().map(model_name).collect() };
        answer.insert("added_to_your_list".into(), names(&injection.added));
        if !injection.evicted.is_empty() {
            answer.insert("removed_from_your_list".into(), names(&injection.evicted));
        }
    }
    if tools.is_empty() || found.no_match.is_some() {
        let (reason, nearest) = match &found.no_match {
            Some(no_match) => (no_match.reason.as_str(), no_match.nearest.as_slice()),
            None => ("nothing was found; try other words", &[][..]),
        };
        let nearest: Vec<String> = nearest.iter().take(MAX_NEAREST).map(model_name).collect();
        answer.insert(
            "no_match".into(),
            json!({ "reason": reason, "nearest_names": nearest }),
        );
    }
    Value::Object(answer)
}

/// The definitions that fit into the budget, and the names of the tools that do not.
fn fit(tools: &[Arc<Tool>], max_tokens: usize, pool: &Pool) -> (Vec<Value>, Vec<String>) {
    // The most compact format with a schema. The names are replaced by names with the server.
    let fitted = budget::fit(tools, Emit::Anthropic, max_tokens);
    let shown = tools
        .iter()
        .filter(|tool| !fitted.omitted.contains(&tool.id));
    let values = fitted.value.as_array().cloned().unwrap_or_default();
    let described = shown
        .zip(values)
        .map(|(tool, value)| entry(&tool.id, value, pool))
        .collect();
    (described, fitted.omitted.iter().map(model_name).collect())
}

fn entry(id: &ToolId, mut value: Value, pool: &Pool) -> Value {
    value["name"] = model_name(id).into();
    value["server"] = id.server().into();
    if let Some(reason) = pool.unavailable_tool(id) {
        value["unavailable"] = reason.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::search::NoMatch;
    use crate::finder::search::doubles::found;

    #[test]
    fn every_tool_has_its_server_and_whether_it_can_be_called() {
        let answer = describe(
            &found(&["mail/send", "chat/send"]),
            None,
            1000,
            &Pool::default(),
        );
        assert_eq!(answer["tools"][1]["name"], "chat__send");
        assert_eq!(
            (&answer["tools"][0]["server"], answer.get("no_match")),
            (&"mail".into(), None)
        );
        assert!(
            answer["tools"][0]["unavailable"]
                .as_str()
                .unwrap()
                .contains("not connected")
        );
        assert!(answer["tools"][0]["input_schema"].is_object());
    }

    #[test]
    fn changes_of_the_list_are_in_the_answer_in_inject_style() {
        let injection = Injection {
            added: vec![ToolId::parse("mail/send").unwrap()],
            evicted: vec![ToolId::parse("old/one").unwrap()],
            ..Injection::default()
        };
        let answer = describe(
            &found(&["mail/send"]),
            Some(&injection),
            1000,
            &Pool::default(),
        );
        assert_eq!(answer["added_to_your_list"], json!(["mail__send"]));
        assert_eq!(answer["removed_from_your_list"], json!(["old__one"]));
    }

    #[test]
    fn no_match_has_a_reason_and_nearest_names() {
        let no_match = NoMatch {
            reason: "nothing like it".into(),
            nearest: vec![ToolId::parse("s/x").unwrap()],
        };
        let nothing = Found {
            hits: Vec::new(),
            no_match: Some(no_match),
        };
        let answer = describe(&nothing, None, 1000, &Pool::default());
        assert_eq!(
            answer["no_match"],
            json!({ "reason": "nothing like it", "nearest_names": ["s__x"] })
        );
        assert!(
            describe(&Found::default(), None, 1000, &Pool::default())["no_match"]["reason"]
                .is_string()
        );
    }
}
