//! Profiles: named parts of a catalog, for clients that are to see and call no more than that.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use toolscout_index::query::MAX_K;

/// Longest name of a profile, which is a part of an address.
const MAX_NAME_CHARS: usize = 64;

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
    /// Patterns of the ids of tools.
    pub tools: Option<Vec<String>>,
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
    let patterns = [
        ("servers", servers),
        ("tags", tags),
        ("tools", tools),
        ("exclude", exclude),
    ];
    let names_nothing = patterns.iter().all(|(_, list)| list.is_none());
    if names_nothing && catalog.is_none() && classes.is_none() {
        bail!(
            "profiles.{name} names nothing, so it would be the whole catalog; give it catalog, servers, tags, tools, \
             exclude or classes"
        );
    }
    for (key, list) in patterns {
        check_patterns(name, key, list.as_deref())?;
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
