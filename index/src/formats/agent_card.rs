//! Agents: the cards of the A2A protocol, by which an agent says what it can do and where it is.

use serde_json::{Map, Value};

use super::{Outline, cut};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::tool::Tool;

/// Largest card, in bytes as JSON. It is kept whole.
const MAX_CARD_BYTES: usize = 256 << 10;
/// Skills of a card that are searched.
const MAX_SKILLS: usize = 64;
/// The key of an agent's metadata that holds its address.
pub const ADDRESS: &str = "address";
/// The key of an agent's metadata that holds its card.
pub const CARD: &str = "card";

/// Whether an object is the card of an agent: it lists skills and says how the agent is spoken to.
pub(super) fn is_card(fields: &Outline<'_>) -> bool {
    fields.has("name")
        && fields.begins("skills", '[')
        && fields.begins("capabilities", '{')
        && (fields.begins("url", '"') || fields.begins("supportedInterfaces", '['))
        && !fields.has("inputSchema")
}

/// Reads a card.
///
/// # Errors
/// [`Error::InvalidTool`] with the field that is missing or wrong.
pub(super) fn agent(card: Map<String, Value>, server: &str) -> Result<Tool> {
    let name = text(&card, "name").to_owned();
    let refused = |reason: String| Error::invalid_tool(format!("{name:?}"), reason);
    if name.trim().is_empty() {
        return Err(refused("its `name` is no text; an agent needs one".into()));
    }
    let Some(address) = address(&card).map(str::to_owned) else {
        let reason = "it has no address: neither `url` nor `supportedInterfaces` has one";
        return Err(refused(reason.into()));
    };
    let bytes = Value::Object(card.clone()).to_string().len();
    if bytes > MAX_CARD_BYTES {
        return Err(refused(format!(
            "its card has {bytes} bytes, {MAX_CARD_BYTES} are allowed"
        )));
    }
    let mut agent = Tool::new(server, &Kind::Agent.item_name(name.trim()))?.of_kind(Kind::Agent);
    agent.description = description(&card);
    for skill in skills(&card) {
        agent.tags.extend(texts(skill, "tags"));
    }
    agent.tags.sort_unstable();
    agent.tags.dedup();
    let examples: Vec<Value> = skills(&card)
        .flat_map(|skill| texts(skill, "examples"))
        .map(Value::from)
        .collect();
    if !examples.is_empty() {
        agent
            .metadata
            .insert("input_examples".into(), examples.into());
    }
    agent.metadata.insert(ADDRESS.into(), address.into());
    agent.metadata.insert(CARD.into(), card.into());
    agent.validate()?;
    Ok(agent)
}

/// What the agent does, and a line for each of its skills, by which it is found.
fn description(card: &Map<String, Value>) -> String {
    let mut lines = vec![text(card, "description").trim().to_owned()];
    for skill in skills(card) {
        let (name, does) = (text(skill, "name"), text(skill, "description"));
        lines.push(format!("- {name}: {}", cut(does.trim(), 500)));
    }
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

fn skills(card: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let skills = card.get("skills").and_then(Value::as_array);
    let skills = skills.into_iter().flatten().take(MAX_SKILLS);
    skills.filter_map(Value::as_object)
}

/// Where the agent is spoken to: the first of its interfaces, or in older cards its `url`.
fn address(card: &Map<String, Value>) -> Option<&str> {
    let interfaces = card.get("supportedInterfaces").and_then(Value::as_array);
    let first = interfaces.and_then(|interfaces| interfaces.first());
    let of_interface = first.and_then(|first| first.get("url"));
    let address = of_interface.or(card.get("url"))?.as_str()?;
    (!address.trim().is_empty()).then_some(address)
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    object
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn texts(object: &Map<String, Value>, field: &str) -> impl Iterator<Item = String> {
    let listed = object.get(field).and_then(Value::as_array);
    let listed = listed.into_iter().flatten();
    listed.filter_map(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Format, ReadOptions, parse};
    use super::*;

    fn card() -> Value {
        json!({
            "name": "Travel planner",
            "description": "Plans journeys.",
            "version": "1.0",
            "capabilities": {},
            "supportedInterfaces": [{ "url": "https://travel.example/a2a", "protocolBinding": "JSONRPC" }],
            "skills": [{
                "id": "trains", "name": "Trains", "description": "Finds trains.",
                "tags": ["rail", "travel"], "examples": ["Oslo to Bergen tomorrow"],
            }],
        })
    }

    #[test]
    fn a_card_is_an_agent_that_is_found_by_its_skills() {
        let parsed = parse(card().to_string().as_bytes(), &ReadOptions::default()).unwrap();
        let [agent] = parsed.tools.as_slice() else {
            panic!("{parsed:?}")
        };
        assert_eq!(
            (agent.kind, parsed.format),
            (Kind::Agent, Format::AgentCard)
        );
        assert_eq!(agent.id.as_str(), "agent:Travel planner");
        assert_eq!(
            agent.description,
            "Plans journeys.\n- Trains: Finds trains."
        );
        assert_eq!(agent.tags, ["rail", "travel"]);
        assert_eq!(agent.metadata[ADDRESS], "https://travel.example/a2a");
        assert_eq!(agent.metadata[CARD], card());
    }

    #[test]
    fn a_card_without_name_or_address_is_refused() {
        for (field, value, reason) in [
            ("name", json!(7), "`name` is no text"),
            ("supportedInterfaces", json!([]), "has no address"),
        ] {
            let mut card = card();
            card[field] = value;
            let parsed = parse(
                json!([card]).to_string().as_bytes(),
                &ReadOptions::default(),
            );
            let parsed = parsed.unwrap();
            let message = parsed.skipped[0].error.to_string();
            assert!(message.contains(reason), "{message}");
        }
    }
}
