//! Prompts, resources and skills of servers as items of a catalog, so that the search for tools finds them too.
//!
//! Their ids are `SERVER/prompt:NAME`, `SERVER/resource:URI` and `SERVER/skill:NAME`; a template of resources has its URI with
//! the variables. If a server has a tool of such a name, the tool has the id, and the item is skipped.

use std::collections::BTreeSet;
use std::sync::Arc;

use rmcp::model::{Prompt, Resource, ResourceTemplate};
use serde::Serialize;
use serde_json::{Map, Value, json};
use toolscout_index::formats::{BODY, FILES, ReadOptions, SkillFolder, parse_skill};
use toolscout_index::{Kind, Tool, ToolId};

use crate::Limits;
use crate::connection::{Offers, ServerSkill, SkillFiles, Stale};
use toolscout_base::printable::{excerpt, is_hidden};

/// The scheme of resources that are user interfaces of tools: clients show them, and nobody looks for them.
const APP_SCHEME: &str = "ui:";
/// The key of a resource's metadata that holds its URI.
pub const URI: &str = "uri";
/// The key of a template's metadata that holds its URI with variables.
pub const URI_TEMPLATE: &str = "uriTemplate";
/// The key of an item's metadata that says that its server's list could not be read again.
pub const STALE: &str = "toolscout_stale";
/// Characters of a name in a message.
const NAME_CHARS: usize = 80;

/// The prompts and resources of a server, and why others of them were skipped. `taken` are the ids of its
/// tools.
pub fn of_offers(
    server: &str,
    offers: &Offers,
    taken: &BTreeSet<&ToolId>,
    limits: &Limits,
) -> (Vec<Tool>, Vec<String>) {
    let mut read = Read {
        server,
        limits,
        taken: taken.iter().map(|&id| id.clone()).collect(),
        items: Vec::new(),
        skipped: Vec::new(),
    };
    for prompt in &offers.prompts {
        read.add(Kind::Prompt, &prompt.name, prompt, |item| {
            describe_prompt(item, prompt);
        });
    }
    for skill in &offers.skills {
        read.add_skill(skill);
    }
    let of_skills = SkillFiles::of(&offers.skills);
    for resource in &offers.resources {
        // The files of skills are found by their skills.
        if of_skills.contains(&resource.uri) || resource.uri.starts_with(APP_SCHEME) {
            continue;
        }
        read.add(Kind::Resource, &resource.uri, resource, |item| {
            describe_resource(item, resource);
        });
    }
    for template in &offers.templates {
        if template.uri_template.starts_with(APP_SCHEME) {
            continue;
        }
        read.add(Kind::Resource, &template.uri_template, template, |item| {
            describe_template(item, template);
        });
    }
    for item in &mut read.items {
        if is_stale(item, offers.stale) {
            item.metadata.insert(STALE.into(), true.into());
        }
    }
    (read.items, read.skipped)
}

/// Adds the items of the catalog whose lists could not be read, and that no earlier list has either.
pub fn keep_unlisted<'a>(
    items: &mut Vec<Tool>,
    stale: Stale,
    catalog: impl Iterator<Item = &'a Arc<Tool>>,
) {
    if stale == Stale::default() {
        return;
    }
    let listed: BTreeSet<ToolId> = items.iter().map(|item| item.id.clone()).collect();
    for item in catalog {
        if is_stale(item, stale) && !listed.contains(&item.id) {
            let mut item = Tool::clone(item);
            item.metadata.insert(STALE.into(), true.into());
            items.push(item);
        }
    }
}

/// Whether an item is one of these lists.
fn is_stale(item: &Tool, stale: Stale) -> bool {
    match item.kind {
        Kind::Prompt => stale.prompts,
        Kind::Resource if item.metadata.contains_key(URI_TEMPLATE) => stale.templates,
        Kind::Resource => stale.resources,
        Kind::Skill => stale.skills,
        _ => false,
    }
}

struct Read<'a> {
    server: &'a str,
    limits: &'a Limits,
    taken: BTreeSet<ToolId>,
    items: Vec<Tool>,
    skipped: Vec<String>,
}

impl Read<'_> {
    fn add(
        &mut self,
        kind: Kind,
        name: &str,
        entry: &impl Serialize,
        describe: impl FnOnce(&mut Tool),
    ) {
        let item = self.item(kind, name, entry, describe);
        match item {
            Ok(item) => {
                self.taken.insert(item.id.clone());
                self.items.push(item);
            }
            Err(reason) => {
                let name = excerpt(name, NAME_CHARS);
                self.skipped
                    .push(format!("{kind} \"{}\": {reason}", name.escape_default()));
            }
        }
    }

    fn add_skill(&mut self, skill: &ServerSkill) {
        match self.skill(skill) {
            Ok(item) => {
                self.taken.insert(item.id.clone());
                self.items.push(item);
            }
            Err(reason) => {
                let name = excerpt(&skill.entry.uri, NAME_CHARS);
                let name = name.escape_default();
                self.skipped.push(format!("skill \"{name}\": {reason}"));
            }
        }
    }

    /// The item of a skill. Of its front matter nothing else is taken, which could claim to be ours.
    fn skill(&self, skill: &ServerSkill) -> Result<Tool, String> {
        let folder = SkillFolder {
            path: None,
            files: Some(skill.other_files()),
        };
        let options = ReadOptions {
            server: Some(self.server.to_owned()),
            source_name: skill.entry.uri.clone(),
            ..ReadOptions::default()
        };
        let parsed = parse_skill(skill.text.as_bytes(), &folder, &options);
        let parsed = parsed.map_err(|error| error.to_string())?;
        let mut item = parsed.tools.into_iter().next().ok_or("it has no text")?;
        item.metadata
            .retain(|key, _| [BODY, FILES].contains(&key.as_str()));
        let uri = skill.entry.uri.as_str();
        item.metadata.insert(URI.into(), uri.into());
        if skill.is_stale {
            item.metadata.insert(STALE.into(), true.into());
        }
        self.checked(item, skill.text.len())
    }

    fn item(
        &self,
        kind: Kind,
        name: &str,
        entry: &impl Serialize,
        describe: impl FnOnce(&mut Tool),
    ) -> Result<Tool, String> {
        let bytes = serde_json::to_string(entry).map_or(0, |entry| entry.len());
        let item = Tool::new(self.server, &kind.item_name(name));
        let mut item = item.map_err(|error| error.to_string())?.of_kind(kind);
        describe(&mut item);
        self.checked(item, bytes)
    }

    /// The item, if it is within the limits and its id is free. `bytes` is the length of all of it.
    fn checked(&self, mut item: Tool, bytes: usize) -> Result<Tool, String> {
        if let Some(hidden) = item.id.name().chars().find(|c| is_hidden(*c)) {
            let code = u32::from(hidden);
            return Err(format!("its name has the invisible character U+{code:04X}"));
        }
        if bytes > self.limits.tool_bytes {
            let most = self.limits.tool_bytes;
            return Err(format!("it has {bytes} bytes, {most} are allowed"));
        }
        if self.taken.contains(&item.id) {
            return Err(format!("its id {} is taken", item.id));
        }
        let bytes = item.description.len();
        if bytes > self.limits.description_bytes {
            let most = self.limits.description_bytes;
            return Err(format!(
                "its description has {bytes} bytes, {most} are allowed"
            ));
        }
        item.annotations.read_only_hint = Some(true);
        item.validate().map_err(|error| error.to_string())?;
        Ok(item)
    }
}

fn describe_prompt(item: &mut Tool, prompt: &Prompt) {
    item.title.clone_from(&prompt.title);
    item.description = prompt.description.clone().unwrap_or_default();
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for argument in prompt.arguments.iter().flatten() {
        let mut schema = json!({ "type": "string" });
        if let Some(description) = &argument.description {
            schema["description"] = description.as_str().into();
        }
        properties.insert(argument.name.clone(), schema);
        if argument.required == Some(true) {
            required.push(Value::from(argument.name.as_str()));
        }
    }
    item.input_schema = schema_of(properties, required);
}

fn describe_resource(item: &mut Tool, resource: &Resource) {
    item.title = Some(resource.title.clone().unwrap_or(resource.name.clone()));
    item.description = resource.description.clone().unwrap_or_default();
    item.metadata
        .insert(URI.into(), resource.uri.as_str().into());
    note_type(item, resource.mime_type.as_deref());
}

fn describe_template(item: &mut Tool, template: &ResourceTemplate) {
    item.title = Some(template.title.clone().unwrap_or(template.name.clone()));
    item.description = template.description.clone().unwrap_or_default();
    let uri = template.uri_template.as_str();
    item.metadata.insert(URI_TEMPLATE.into(), uri.into());
    note_type(item, template.mime_type.as_deref());
    let mut properties = Map::new();
    for name in variables(uri) {
        properties.insert(name.to_owned(), json!({ "type": "string" }));
    }
    item.input_schema = schema_of(properties, Vec::new());
}

fn note_type(item: &mut Tool, mime_type: Option<&str>) {
    if let Some(mime_type) = mime_type {
        item.metadata.insert("mimeType".into(), mime_type.into());
    }
}

/// The names of the variables of a URI template.
fn variables(template: &str) -> impl Iterator<Item = &str> {
    let expressions = template.split('{').skip(1);
    let expressions = expressions.filter_map(|rest| rest.split_once('}'));
    expressions.flat_map(|(expression, _)| {
        // The first character may say how the values are joined, the last that there are several.
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        names.split(',').filter_map(|name| {
            let name = name.split([':', '*']).next()?;
            (!name.is_empty()).then_some(name)
        })
    })
}

fn schema_of(properties: Map<String, Value>, required: Vec<Value>) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    if !required.is_empty() {
        schema.insert("required".into(), required.into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers() -> Offers {
        let offers = json!({
            "prompts": [
                { "name": "review", "description": "Reviews code.",
                  "arguments": [{ "name": "file", "description": "Its path.", "required": true }, { "name": "tone" }] },
                { "name": "bad\u{200b}", "description": "Hidden." },
            ],
            "resources": [
                { "uri": "file:///notes.md", "name": "notes", "mimeType": "text/markdown" },
                { "uri": "ui://board", "name": "board" },
            ],
            "templates": [{ "uriTemplate": "log://{day}/{host}{?lines,level*}", "name": "log", "title": "Logs" }],
        });
        let list = |name: &str| offers[name].clone();
        Offers {
            prompts: serde_json::from_value(list("prompts")).unwrap(),
            resources: serde_json::from_value(list("resources")).unwrap(),
            templates: serde_json::from_value(list("templates")).unwrap(),
            ..Offers::default()
        }
    }

    #[test]
    fn prompts_resources_and_templates_are_items_of_their_kinds() {
        let (items, skipped) = of_offers("s", &offers(), &BTreeSet::new(), &Limits::default());
        let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        let log = "s/resource:log://{day}/{host}{?lines,level*}";
        assert_eq!(ids, ["s/prompt:review", "s/resource:file:///notes.md", log]);
        assert_eq!(items[0].kind, Kind::Prompt);
        assert_eq!(items[0].input_schema["required"], json!(["file"]));
        assert_eq!(
            items[0].input_schema["properties"]["file"]["description"],
            "Its path."
        );
        assert_eq!(items[1].title.as_deref(), Some("notes"));
        assert_eq!(items[1].metadata[URI], "file:///notes.md");
        assert_eq!(items[2].title.as_deref(), Some("Logs"));
        let names = items[2].input_schema["properties"].as_object().unwrap();
        let names: Vec<&String> = names.keys().collect();
        assert_eq!(names, ["day", "host", "lines", "level"]);
        let [skipped] = skipped.as_slice() else {
            panic!("{skipped:?}")
        };
        assert!(skipped.contains("U+200B"), "{skipped}");
    }

    #[test]
    fn items_of_lists_that_cannot_be_read_stay_and_are_marked() {
        let (items, _) = of_offers("s", &offers(), &BTreeSet::new(), &Limits::default());
        let catalog: Vec<Arc<Tool>> = items.into_iter().map(Arc::new).collect();
        let stale = Stale {
            prompts: true,
            templates: true,
            ..Stale::default()
        };
        // After a restart, with an older list of templates alone.
        let listed = Offers {
            stale,
            templates: offers().templates,
            ..Offers::default()
        };
        let (mut items, _) = of_offers("s", &listed, &BTreeSet::new(), &Limits::default());
        keep_unlisted(&mut items, stale, catalog.iter());
        let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        let log = "s/resource:log://{day}/{host}{?lines,level*}";
        assert_eq!(ids, [log, "s/prompt:review"]);
        assert!(items.iter().all(|item| item.metadata[STALE] == true));
    }

    #[test]
    fn a_tool_keeps_its_id() {
        let tool = ToolId::new("s", "prompt:review").unwrap();
        let taken = BTreeSet::from([&tool]);
        let (items, skipped) = of_offers("s", &offers(), &taken, &Limits::default());
        assert!(items.iter().all(|item| item.id != tool));
        assert!(
            skipped[0].contains("s/prompt:review is taken"),
            "{skipped:?}"
        );
    }
}
