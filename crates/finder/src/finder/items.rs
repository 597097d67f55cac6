//! Found items that are no tools, as a model is shown them: what each is, and how it is used. Pure.

use serde_json::{Map, Value, json};
use toolscout_index::formats::{ADDRESS, BODY, FILES, FOLDER};
use toolscout_index::{Kind, Tool};

use crate::finder::search::FoundItem;
use toolscout_base::printable::excerpt;

/// Characters of a description in an answer to a search.
const SUMMARY_CHARS: usize = 300;
/// Bytes of a skill's text in an answer, some 16,000 tokens.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The keys of a resource's metadata that hold its URI, or that of a template.
const URI: &str = "uri";
const URI_TEMPLATE: &str = "uriTemplate";

/// Who is shown an item, which decides how it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// A client of the MCP gateway.
    Client,
    /// The agent of this program.
    Agent,
}

/// A line for each item: its kind, what it does and how it is used. `rank` is its place among all hits,
/// those that are tools included.
pub fn describe(items: &[FoundItem], audience: Audience) -> Vec<Value> {
    let mut described = Vec::with_capacity(items.len());
    for FoundItem { item, rank } in items {
        described.push(match rank {
            Some(rank) => {
                let mut line = summary(item, audience);
                line.insert("rank".into(), (*rank).into());
                Value::Object(line)
            }
            // Whoever selects an item wants to read it.
            None => whole(item, audience),
        });
    }
    described
}

/// All that a model may want to know of an item, the text of a skill included.
pub fn whole(item: &Tool, audience: Audience) -> Value {
    let mut shown = summary(item, audience);
    shown.insert("description".into(), item.shown_description().into());
    if item.has_parameters() {
        shown.insert("arguments".into(), item.input_schema.clone().into());
    }
    for key in [FOLDER, FILES, URI, "mimeType"] {
        if let Some(value) = item.metadata.get(key) {
            shown.insert(key.into(), value.clone());
        }
    }
    if let Some(body) = item.metadata.get(BODY).and_then(Value::as_str) {
        // It is here, so nobody has to be told how to get it.
        shown.shift_remove("how_to_use");
        let head = &body[..body.floor_char_boundary(MAX_TEXT_BYTES)];
        shown.insert("text".into(), head.into());
        if head.len() < body.len() {
            shown.insert("left_out_bytes".into(), (body.len() - head.len()).into());
        }
    }
    Value::Object(shown)
}

fn summary(item: &Tool, audience: Audience) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("kind".into(), item.kind.as_str().into());
    shown.insert("id".into(), item.id.as_str().into());
    if let Some(title) = &item.title {
        shown.insert("title".into(), title.as_str().into());
    }
    let description = excerpt(item.shown_description(), SUMMARY_CHARS);
    shown.insert("description".into(), description.into());
    shown.insert("how_to_use".into(), how_to_use(item, audience).into());
    let flags = item.flags();
    if !flags.is_empty() {
        shown.insert("flagged".into(), flags.into());
    }
    shown
}

fn how_to_use(item: &Tool, audience: Audience) -> String {
    let (id, server) = (item.id.as_str(), item.id.server());
    let text = |key: &str| item.metadata.get(key).and_then(Value::as_str);
    match (item.kind, audience) {
        (Kind::Tool, _) => "call it".to_owned(),
        (Kind::Prompt, Audience::Client) => {
            let name = format!("{server}__{}", item.bare_name());
            format!("get it with `prompts/get`, name {}", json!(name))
        }
        (Kind::Resource, Audience::Client) => match (text(URI), text(URI_TEMPLATE)) {
            (None, Some(template)) => format!(
                "put values for the variables into the URI {}, then read that with `resources/read`",
                json!(template)
            ),
            (uri, _) => {
                let uri = uri.unwrap_or(item.bare_name());
                format!("read it with `resources/read`, URI {}", json!(uri))
            }
        },
        (Kind::Prompt | Kind::Resource, Audience::Agent) => format!(
            "you cannot read it; tell the person that the MCP server {} has it",
            json!(server)
        ),
        (Kind::Skill, Audience::Client) => {
            format!("read its text with `describe_tool`, names {}", json!([id]))
        }
        (Kind::Skill, Audience::Agent) => {
            let query = format!("select:{id}");
            format!("read its text with `tool_search`, query {}", json!(query))
        }
        (Kind::Agent, _) => {
            let address = text(ADDRESS).unwrap_or("unknown");
            format!("another agent, which answers by the A2A protocol at {address}")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn item(server: &str, kind: Kind, name: &str, metadata: Value) -> Arc<Tool> {
        let mut item = Tool::new(server, &kind.item_name(name)).unwrap();
        item = item.of_kind(kind).with_description("Does it.");
        item.metadata = metadata.as_object().unwrap().clone();
        Arc::new(item)
    }

    fn items() -> Vec<FoundItem> {
        let items = [
            item("s", Kind::Prompt, "review", json!({})),
            item(
                "s",
                Kind::Resource,
                "file:///a",
                json!({ URI: "file:///a" }),
            ),
            item(
                "s",
                Kind::Resource,
                "log://{day}",
                json!({ URI_TEMPLATE: "log://{day}" }),
            ),
            item(
                "",
                Kind::Skill,
                "report",
                json!({ BODY: "# Report", FILES: ["form.md"] }),
            ),
            item(
                "",
                Kind::Agent,
                "Travel",
                json!({ ADDRESS: "https://travel.example" }),
            ),
        ];
        let ranked = items.into_iter().enumerate();
        ranked
            .map(|(place, item)| FoundItem {
                item,
                rank: Some(place + 1),
            })
            .collect()
    }

    #[test]
    fn every_item_says_what_it_is_and_how_it_is_used() {
        let described = describe(&items(), Audience::Client);
        let uses: Vec<&str> = described
            .iter()
            .map(|item| item["how_to_use"].as_str().unwrap())
            .collect();
        for (place, expected) in [
            "`prompts/get`, name \"s__review\"",
            "`resources/read`, URI \"file:///a\"",
            "URI \"log://{day}\", then read that",
            "`describe_tool`, names [\"skill:report\"]",
            "https://travel.example",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(uses[place].contains(expected), "{}", uses[place]);
        }
        assert_eq!(described[3]["kind"], "skill");
        assert_eq!(described[3]["rank"], 4);
        assert!(described[3].get("text").is_none());
        let by_agent = describe(&items(), Audience::Agent);
        let skill = by_agent[3]["how_to_use"].as_str().unwrap();
        assert!(skill.contains("select:skill:report"), "{skill}");
    }

    #[test]
    fn a_skill_that_is_selected_is_shown_whole() {
        let mut skill = items().remove(3);
        skill.rank = None;
        let described = describe(&[skill], Audience::Agent).remove(0);
        assert_eq!(described["text"], "# Report");
        assert_eq!(described["files"], json!(["form.md"]));
        assert!(described.get("how_to_use").is_none());
        let long = "word ".repeat(MAX_TEXT_BYTES);
        let long = item("", Kind::Skill, "long", json!({ BODY: long }));
        let shown = whole(&long, Audience::Client);
        assert_eq!(shown["text"].as_str().unwrap().len(), MAX_TEXT_BYTES);
        assert_eq!(shown["left_out_bytes"], 4 * MAX_TEXT_BYTES);
    }
}
