//! Profiles: named parts of a catalog, for clients that are to see and call no more than that.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, anyhow, bail};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toolscout_index::ToolId;
use toolscout_index::query::MAX_K;

use crate::tool_edit::ToolEdit;

/// Longest name of a profile, which is a part of an address.
const MAX_NAME_CHARS: usize = 64;
/// Most tools that one profile edits.
const MAX_EDITS: usize = 1_000;

/// The table `[profiles.NAME]`. A list that is absent leaves nothing out; `*` in a pattern stands for
/// any text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProfileSettings {
    /// The catalog; that of the settings by default.
    pub catalog: Option<String>,
    /// Patterns of the servers.
    pub servers: Option<Vec<String>>,
    /// Patterns of tags, of which a tool needs one.
    pub tags: Option<Vec<String>>,
    /// Patterns of the ids of tools, and what is changed of single tools.
    pub tools: Option<ProfileTools>,
    /// Patterns of the ids of tools that are left out, whatever else says.
    pub exclude: Option<Vec<String>>,
    /// The classes of tools.
    pub classes: Option<Vec<ProfileClass>>,
    /// Tools that are always in the list of a client, by id.
    pub pins: Vec<String>,
    /// How much of each found tool is shown.
    pub detail: Option<ProfileDetail>,
    /// Most hits of a search that names no limit.
    pub limit: Option<usize>,
}

/// The tools of a profile: a list of patterns, or a table of them with what is changed of each tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileTools {
    /// Patterns of ids.
    pub patterns: Vec<String>,
    /// What is changed of these tools, by id. Each id is one of the patterns too.
    pub edits: BTreeMap<String, ToolEdit>,
}

impl Serialize for ProfileTools {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.edits.is_empty() {
            return self.patterns.serialize(serializer);
        }
        let unchanged = ToolEdit::default();
        let edit_of = |pattern| self.edits.get(pattern).unwrap_or(&unchanged);
        let patterns = self.patterns.iter();
        serializer.collect_map(patterns.map(|pattern| (pattern, edit_of(pattern))))
    }
}

impl<'de> Deserialize<'de> for ProfileTools {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrTable)
    }
}

struct ListOrTable;

impl<'de> Visitor<'de> for ListOrTable {
    type Value = ProfileTools;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of patterns of tools, or a table with them as keys")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ProfileTools, A::Error> {
        let mut tools = ProfileTools::default();
        while let Some(pattern) = list.next_element()? {
            tools.patterns.push(pattern);
        }
        Ok(tools)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<ProfileTools, A::Error> {
        let mut tools = ProfileTools::default();
        while let Some((pattern, edit)) = table.next_entry::<String, ToolEdit>()? {
            if !edit.is_empty() {
                tools.edits.insert(pattern.clone(), edit);
            }
            tools.patterns.push(pattern);
        }
        Ok(tools)
    }
}

/// A class of tools, as the gate names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileClass {
    /// Tools that change nothing.
    ReadOnly,
    /// Tools that change something.
    StateChanging,
    /// Tools that may destroy something.
    Destructive,
}

/// How much of each found tool is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileDetail {
    /// One line.
    Signature,
    /// Its description and schema.
    Schema,
}

/// Checks a profile of the settings.
///
/// # Errors
/// A message with the key and its value.
pub(super) fn validate(name: &str, profile: &ProfileSettings) -> Result<()> {
    // The name is a part of an address, as in `/mcp/p/NAME`.
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(legal) {
        bail!(
            "profiles.{name}: use another name, of 1 to {MAX_NAME_CHARS} letters, digits, `-` or `_`"
        );
    }
    let ProfileSettings {
        catalog,
        servers,
        tags,
        tools,
        exclude,
        classes,
        ..
    } = profile;
    let tool_patterns = tools.as_ref().map(|tools| &tools.patterns);
    let patterns = [
        ("servers", servers.as_ref()),
        ("tags", tags.as_ref()),
        ("tools", tool_patterns),
        ("exclude", exclude.as_ref()),
    ];
    let names_nothing = patterns.iter().all(|(_, list)| list.is_none());
    if names_nothing && catalog.is_none() && classes.is_none() {
        bail!(
            "profiles.{name} names nothing, so it would be the whole catalog; give it catalog, servers, tags, tools, \
             exclude or classes"
        );
    }
    for (key, list) in patterns {
        check_patterns(name, key, list.map(Vec::as_slice))?;
    }
    if let Some(tools) = tools {
        check_edits(name, tools)?;
    }
    if let Some([]) = classes.as_deref() {
        bail!(
            "profiles.{name}.classes is empty; name read_only, state_changing or destructive, or leave it out for all"
        );
    }
    match profile.limit {
        Some(limit) if !(1..=MAX_K).contains(&limit) => {
            bail!("profiles.{name}.limit is {limit}, it must be from 1 to {MAX_K}")
        }
        _ => Ok(()),
    }
}

fn check_edits(name: &str, tools: &ProfileTools) -> Result<()> {
    if tools.edits.len() > MAX_EDITS {
        bail!(
            "profiles.{name}.tools changes {} tools, {MAX_EDITS} are allowed; write the others into the file of servers",
            tools.edits.len()
        );
    }
    for (tool, edit) in &tools.edits {
        let place = format!("profiles.{name}.tools.{tool:?}");
        if tool.contains('*') {
            bail!("{place} changes all tools that fit a pattern; name each tool by its id");
        }
        if let Err(error) = ToolId::parse(tool) {
            bail!("{place}: {error}");
        }
        // Policies, the audit log and the record of use go by ids, which have to mean one tool.
        if edit.name.is_some() {
            bail!(
                "{place}.name: a profile cannot rename a tool; rename it in the file of servers, or write `title`"
            );
        }
        edit.check(&place).map_err(|problem| anyhow!(problem))?;
    }
    Ok(())
}

fn check_patterns(name: &str, key: &str, patterns: Option<&[String]>) -> Result<()> {
    match patterns {
        // It would leave everything out, which nobody means by a list that is empty.
        Some([]) => {
            bail!("profiles.{name}.{key} is empty; leave it out, or name something in it")
        }
        Some(patterns) if patterns.iter().any(|pattern| pattern.trim().is_empty()) => {
            bail!("profiles.{name}.{key} has an empty pattern; remove it")
        }
        _ => Ok(()),
    }
}
