//! Found tools as a client's model is shown them.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolscout_index::formats::{Emit, is_called, model_name, model_names};
use toolscout_index::{CompanionOf, Tool, ToolId};

use toolscout_base::budget;
use toolscout_finder::finder::items::{self, Audience};
use toolscout_finder::finder::meta_tools::{self, MoreTools};
use toolscout_finder::finder::search::Found;
use toolscout_finder::finder::toolbox::Injection;
use toolscout_gate::tools::Arguments;

/// Tokens of the name of a field and the signs around it, at most.
const TOKENS_OF_FIELD: usize = 8;
/// Most nearest names in an answer without a match.
const MAX_NEAREST: usize = 5;

/// How much of each found tool is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Its id, parameters and first sentence, on one line.
    #[default]
    Signature,
    /// Its description and schema.
    Schema,
    /// Its name alone, if the client has seen more of it. No search asks for it.
    Names,
}

impl Detail {
    /// Those that a search can ask for.
    pub const ALL: [Detail; 2] = [Detail::Signature, Detail::Schema];

    /// Its name as an argument and a flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Detail::Signature => "signature",
            Detail::Schema => "schema",
            Detail::Names => "names",
        }
    }

    /// The format of the tools in an answer.
    pub fn format(self) -> Emit {
        match self {
            Detail::Signature => Emit::Signature,
            // The most compact format with a schema. The names are replaced by names with the server.
            Detail::Schema => Emit::Anthropic,
            Detail::Names => Emit::Names,
        }
    }

    /// The detail with this name.
    ///
    /// # Errors
    /// A message with the names there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        for detail in Detail::ALL {
            if detail.as_str() == name {
                return Ok(detail);
            }
        }
        let known = Detail::ALL.map(Detail::as_str).join(" or ");
        Err(format!("`detail` is {name:?}, it must be {known}"))
    }

    /// The detail that the arguments of a search ask for, or this one.
    ///
    /// # Errors
    /// As [`Detail::parse`].
    pub fn or_given(self, given: &Arguments) -> Result<Self, String> {
        match given.get("detail") {
            None | Some(Value::Null) => Ok(self),
            Some(Value::String(name)) => Detail::parse(name),
            Some(other) => Detail::parse(&other.to_string()),
        }
    }
}

/// Why a tool cannot be called right now; `None` when it can.
pub type Unavailable<'a> = &'a dyn Fn(&ToolId) -> Option<String>;

/// The found tools within a token budget. In inject style also the changes of the session's list.
pub fn describe(
    found: &Found,
    injection: Option<&Injection>,
    detail: Detail,
    max_tokens: usize,
    more: MoreTools,
    unavailable: Unavailable<'_>,
) -> Value {
    let tools = meta_tools::merged(std::slice::from_ref(found));
    let mut answer = found.verdict();
    answer.extend(match detail {
        Detail::Names => names(&tools),
        Detail::Signature => signatures(&tools, max_tokens, unavailable),
        Detail::Schema => definitions(&tools, max_tokens, unavailable),
    });
    let companions = companions(found);
    if !companions.is_empty() {
        answer.insert("companions".into(), companions.into());
    }
    let flagged = flagged(&tools);
    if !flagged.is_empty() {
        answer.insert("flagged".into(), flagged.into());
    }
    let more = more.describe(found);
    if !more.is_empty() {
        answer.insert("more".into(), more.into());
    }
    let others = items::describe(&found.items, Audience::Client);
    if !others.is_empty() {
        answer.insert("others".into(), others.into());
    }
    if let Some(injection) = injection {
        let added = names_in_list(injection, &injection.added);
        answer.insert("added_to_your_list".into(), added);
        if !injection.evicted.is_empty() {
            let removed = names_in_list(injection, &injection.evicted);
            answer.insert("removed_from_your_list".into(), removed);
        }
    }
    // Also beside tools: of several names or queries, some may have found nothing.
    if (tools.is_empty() && found.items.is_empty()) || found.no_match.is_some() {
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

fn names_in_list(injection: &Injection, ids: &[ToolId]) -> Value {
    ids.iter().map(|id| injection.name_of(id)).collect()
}

/// The name of each tool.
fn names(tools: &[Arc<Tool>]) -> Map<String, Value> {
    let names: Vec<String> = tools.iter().map(|tool| model_name(&tool.id)).collect();
    Map::from_iter([("tools".to_owned(), names.into())])
}

/// A line for each tool, and why some of them cannot be called now.
pub fn signatures(
    tools: &[Arc<Tool>],
    max_tokens: usize,
    unavailable: Unavailable<'_>,
) -> Map<String, Value> {
    let fitted = budget::fit(tools, Detail::Signature.format(), max_tokens);
    let mut answer = Map::from_iter([("tools".to_owned(), fitted.value)]);
    let mut reasons = Map::new();
    for tool in tools {
        if let Some(reason) = unavailable(&tool.id) {
            reasons.insert(tool.id.to_string(), reason.into());
        }
    }
    if !reasons.is_empty() {
        answer.insert("unavailable".into(), reasons.into());
    }
    insert_omitted(&mut answer, &fitted.omitted);
    answer
}

/// The tools with their schemas, each with its server.
pub fn definitions(
    tools: &[Arc<Tool>],
    max_tokens: usize,
    unavailable: Unavailable<'_>,
) -> Map<String, Value> {
    let fitted = budget::fit(tools, Detail::Schema.format(), max_tokens);
    let mut shown = Vec::with_capacity(tools.len());
    for tool in tools {
        if !fitted.omitted.contains(&tool.id) {
            shown.push(&tool.id);
        }
    }
    let values = fitted.value.as_array().cloned().unwrap_or_default();
    // Of tools that share a name each has another one here.
    let names = model_names(shown.iter().copied());
    let mut described = Vec::with_capacity(values.len());
    for ((id, name), value) in shown.into_iter().zip(names).zip(values) {
        described.push(entry(id, name, value, unavailable));
    }
    let mut answer = Map::from_iter([("tools".to_owned(), described.into())]);
    insert_omitted(&mut answer, &fitted.omitted);
    answer
}

/// The tools with all that a client may want to know of them: as [`definitions`], with title, hints,
/// examples of arguments and the schema of the result as far as there is room.
pub fn whole_definitions(
    tools: &[Arc<Tool>],
    max_tokens: usize,
    unavailable: Unavailable<'_>,
) -> Map<String, Value> {
    let mut answer = definitions(tools, max_tokens, unavailable);
    let mut room =
        max_tokens.saturating_sub(budget::count(&Value::from(answer.clone()).to_string()));
    let Some(Value::Array(described)) = answer.get_mut("tools") else {
        return answer;
    };
    for entry in described {
        let Some(tool) = tools.iter().find(|tool| is_of(entry, tool)) else {
            continue;
        };
        // The smallest first, so that a long one does not take the room of the others.
        for (field, value) in further_fields(tool) {
            let tokens = budget::count(&value.to_string()) + TOKENS_OF_FIELD;
            if tokens <= room {
                room -= tokens;
                entry[field] = value;
            }
        }
    }
    answer
}

/// Whether this is what [`definitions`] says of a tool.
fn is_of(entry: &Value, tool: &Tool) -> bool {
    let name = entry["name"].as_str().unwrap_or_default();
    entry["server"] == tool.id.server() && is_called(&tool.id, name)
}

/// What a definition does not have for models, the smallest first.
fn further_fields(tool: &Tool) -> Vec<(&'static str, Value)> {
    let mut fields = Vec::new();
    if let Some(title) = &tool.title {
        fields.push(("title", title.as_str().into()));
    }
    let annotations = json!(tool.annotations);
    if annotations != json!({}) {
        fields.push(("annotations", annotations));
    }
    if let Some(examples) = tool.metadata.get("input_examples") {
        fields.push(("input_examples", examples.clone()));
    }
    if let Some(schema) = tool.shown_output_schema() {
        fields.push(("output_schema", schema.into()));
    }
    fields
}

/// Which of the found tools are there because another one needs what they find, by their ids.
fn companions(found: &Found) -> Map<String, Value> {
    let mut companions = Map::new();
    for hit in &found.hits {
        let Some(CompanionOf {
            id,
            parameter,
            reason,
        }) = &hit.companion_of
        else {
            continue;
        };
        let of = json!({ "companion_of": id, "parameter": parameter, "reason": reason });
        companions.insert(hit.tool.id.to_string(), of);
    }
    companions
}

/// What is suspicious about the found tools, by their ids.
fn flagged(tools: &[Arc<Tool>]) -> Map<String, Value> {
    let mut flagged = Map::new();
    for tool in tools {
        let flags = tool.flags();
        if !flags.is_empty() {
            flagged.insert(tool.id.to_string(), flags.into());
        }
    }
    flagged
}

fn insert_omitted(answer: &mut Map<String, Value>, omitted: &[ToolId]) {
    if !omitted.is_empty() {
        let names: Vec<String> = omitted.iter().map(model_name).collect();
        answer.insert("no_room_for".into(), names.into());
    }
}

fn entry(id: &ToolId, name: String, mut value: Value, unavailable: Unavailable<'_>) -> Value {
    value["name"] = name.into();
    value["server"] = id.server().into();
    if let Some(reason) = unavailable(id) {
        value["unavailable"] = reason.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolscout_finder::finder::search::NoMatch;
    use toolscout_finder::finder::search::doubles::{found, tool};

    #[test]
    fn every_tool_has_its_server_and_whether_it_can_be_called() {
        let answer = describe(
            &found(&["mail/send", "chat/send"]),
            None,
            Detail::Schema,
            1000,
            MoreTools::default(),
            &|_| Some("it is not connected here".to_owned()),
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
    fn whole_definitions_have_title_hints_and_result_as_far_as_there_is_room() {
        let mut good = Tool::new("crm", "good")
            .unwrap()
            .with_description("Does it.");
        good.title = Some("Good".into());
        good.annotations.read_only_hint = Some(true);
        let examples = json!([{ "month": "2026-11" }]);
        good.metadata
            .insert("input_examples".into(), examples.clone());
        let schema = json!({ "type": "object", "properties": { "total": { "type": "integer" } } });
        good.output_schema = schema.as_object().cloned();
        let plain = Tool::new("crm", "plain").unwrap();
        let tools = [Arc::new(good), Arc::new(plain)];
        let described = |tokens| whole_definitions(&tools, tokens, &|_| None)["tools"].clone();
        let whole = described(1000);
        assert_eq!(whole[0]["title"], "Good");
        assert_eq!(whole[0]["annotations"], json!({ "readOnlyHint": true }));
        assert_eq!(whole[0]["input_examples"], examples);
        assert_eq!(
            whole[0]["output_schema"]["properties"],
            schema["properties"]
        );
        assert!(whole[1].get("annotations").is_none() && whole[1].get("title").is_none());
        let whole_tokens = budget::count(&json!({ "tools": whole }).to_string());
        let short = described(whole_tokens - 10);
        assert_eq!(short[0]["title"], "Good");
        assert_eq!(short[0].get("output_schema"), None);
    }

    #[test]
    fn a_repeated_answer_has_names_alone() {
        let mut again = found(&["mail/send"]);
        again.repeats = 1;
        again.more = vec![tool("chat/send", "Sends a message")];
        let answer = describe(
            &again,
            None,
            Detail::Names,
            1000,
            MoreTools::default(),
            &|_| None,
        );
        assert_eq!(answer["tools"], json!(["mail__send"]));
        assert_eq!(answer.get("more"), None);
        assert!(
            answer["repeated"]
                .as_str()
                .unwrap()
                .contains("the same tools")
        );
        again.repeats = 2;
        let third = describe(
            &again,
            None,
            Detail::Names,
            1000,
            MoreTools::default(),
            &|_| None,
        );
        assert!(
            third["repeated"]
                .as_str()
                .unwrap()
                .contains("Stop searching")
        );
    }

    #[test]
    fn flagged_tools_are_marked() {
        let mut searched = found(&["crm/good", "crm/odd"]);
        let odd = Tool::clone(&searched.hits[1].tool);
        searched.hits[1].tool = Arc::new(odd.with_flags(["asks for secrets".to_owned()]));
        for detail in Detail::ALL {
            let answer = describe(&searched, None, detail, 1000, MoreTools::default(), &|_| {
                None
            });
            assert_eq!(
                answer["flagged"],
                json!({ "crm/odd": ["asks for secrets"] })
            );
        }
    }

    #[test]
    fn a_companion_says_for_which_tool_it_is_there() {
        let mut searched = found(&["crm/update_person", "crm/search_people"]);
        searched.hits[1].companion_of = Some(CompanionOf {
            id: ToolId::parse("crm/update_person").unwrap(),
            parameter: "person_id".into(),
            reason: "it lists people".into(),
        });
        for detail in Detail::ALL {
            let answer = describe(&searched, None, detail, 1000, MoreTools::default(), &|_| {
                None
            });
            let expected = json!({ "crm/search_people": {
                "companion_of": "crm/update_person", "parameter": "person_id", "reason": "it lists people",
            } });
            assert_eq!(answer["companions"], expected);
        }
        let without = describe(
            &found(&["a"]),
            None,
            Detail::Schema,
            1000,
            MoreTools::default(),
            &|_| None,
        );
        assert!(without.get("companions").is_none());
    }

    #[test]
    fn a_signature_is_a_line_and_says_apart_what_cannot_be_called() {
        let answer = describe(
            &found(&["mail/send"]),
            None,
            Detail::Signature,
            1000,
            MoreTools::default(),
            &|_| Some("it is not connected here".to_owned()),
        );
        assert_eq!(answer["tools"], json!(["mail/send() — does it"]));
        let reason = answer["unavailable"]["mail/send"].as_str().unwrap();
        assert!(reason.contains("not connected"), "{reason}");
    }

    #[test]
    fn an_unknown_detail_is_named_with_those_there_are() {
        let given = |detail: Value| Map::from_iter([("detail".to_owned(), detail)]);
        assert_eq!(
            Detail::Signature.or_given(&given(json!("schema"))),
            Ok(Detail::Schema)
        );
        assert_eq!(
            Detail::Schema.or_given(&Map::new()),
            Ok(Detail::Schema),
            "the gateway's own"
        );
        for wrong in [json!("all"), json!(3)] {
            let message = Detail::Signature.or_given(&given(wrong)).unwrap_err();
            assert!(message.contains("must be signature or schema"), "{message}");
        }
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
            Detail::Signature,
            1000,
            MoreTools::default(),
            &|_| Some("it is not connected here".to_owned()),
        );
        assert_eq!(answer["added_to_your_list"], json!(["mail__send"]));
        assert_eq!(answer["removed_from_your_list"], json!(["old__one"]));
    }

    #[test]
    fn the_tools_after_the_hits_are_lines_that_a_setting_bounds() {
        let mut searched = found(&["mail/send"]);
        searched.more = vec![tool("chat/send", "Sends a message"), tool("old/one", "")];
        let lines = |more| {
            describe(&searched, None, Detail::Signature, 1000, more, &|_| None)["more"].clone()
        };
        assert_eq!(
            lines(MoreTools::default()),
            json!(["chat__send: Sends a message", "old__one"])
        );
        let short = MoreTools { lines: 1, chars: 5 };
        assert_eq!(lines(short), json!(["chat__send: Sends…"]));
        let names = MoreTools { lines: 9, chars: 0 };
        assert_eq!(lines(names), json!(["chat__send", "old__one"]));
        assert_eq!(lines(MoreTools { lines: 0, chars: 9 }), Value::Null);
    }

    #[test]
    fn no_match_has_a_reason_and_nearest_names() {
        let no_match = NoMatch {
            reason: "nothing like it".into(),
            nearest: vec![ToolId::parse("s/x").unwrap()],
        };
        let nothing = Found {
            no_match: Some(no_match),
            ..Found::default()
        };
        let answer = describe(
            &nothing,
            None,
            Detail::Schema,
            1000,
            MoreTools::default(),
            &|_| None,
        );
        assert_eq!(
            answer["no_match"],
            json!({ "reason": "nothing like it", "nearest_names": ["s__x"] })
        );
        assert!(
            describe(
                &Found::default(),
                None,
                Detail::Signature,
                1000,
                MoreTools::default(),
                &|_| None
            )["no_match"]["reason"]
                .is_string()
        );
    }
}
