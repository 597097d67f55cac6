//! Profiles: named presets of an agent, in TOML.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolscout_index::Filter;

use crate::agent::{AgentConfig, Protocol};
use crate::finder::{Eviction, Style};
use crate::gate::Policies;
use crate::tools::builtin::BuiltinConfig;
use crate::tools::operation::ServiceConfig;

/// The built-in profiles: name and text.
const BUILT_IN: [(&str, &str); 5] = [
    ("web-search", include_str!("profiles/web-search.toml")),
    ("files", include_str!("profiles/files.toml")),
    (
        "plan-and-execute",
        include_str!("profiles/plan-and-execute.toml"),
    ),
    ("skills", include_str!("profiles/skills.toml")),
    ("slides", include_str!("profiles/slides.toml")),
];

/// A preset. Settings that it leaves out keep their value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// What the profile is for.
    pub description: String,
    /// The role in the system prompt.
    pub role: Option<String>,
    /// How the model calls tools.
    pub mode: Option<Protocol>,
    /// How found tools are made callable.
    pub style: Option<Style>,
    /// Tools that are always visible, by id or name. Tools that the catalog lacks are ignored.
    pub pins: Vec<String>,
    /// A folder of skills to offer, relative to the profile's file.
    pub skills: Option<PathBuf>,
    /// Which tools may be found.
    pub filter: Filter,
    /// Limits of a run.
    pub limits: Limits,
    /// The gate's policies.
    pub gate: Option<Policies>,
    /// The built-in tools that are on.
    pub tools: BuiltinConfig,
    /// Services whose OpenAPI operations can be called.
    pub operations: Vec<ServiceConfig>,
}

/// The limits of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of the model's answers.
    pub max_rounds: Option<u32>,
    /// Maximum number of rounds in a row that only search.
    pub max_searches: Option<u32>,
    /// Rounds after which the context is reduced to question, facts and plan.
    pub refresh_interval: Option<u32>,
    /// Maximum number of tokens of a prompt, the tools included.
    pub context_tokens: Option<usize>,
    /// Token budget of the visible tools.
    pub tool_budget_tokens: Option<usize>,
    /// Which tool is evicted first when the budget is used up.
    pub eviction: Option<Eviction>,
}

/// Why a profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a built-in profile nor a file.
    #[error("no profile {name:?}; built-in profiles are {}; or give the path of a TOML file, or the name of a table [profiles.NAME] of the settings", names().join(", "))]
    Unknown {
        /// The given name.
        name: String,
    },
    /// The file cannot be read.
    #[error("profile {path}: {source}")]
    Io {
        /// The path of the profile, as given.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is not a valid profile.
    #[error("profile {name}: {reason}")]
    Invalid {
        /// Its name or file.
        name: String,
        /// What is wrong, and where.
        reason: String,
    },
}

/// The names of the built-in profiles.
pub fn names() -> Vec<&'static str> {
    BUILT_IN.iter().map(|(name, _)| *name).collect()
}

impl Profile {
    /// Loads a built-in profile by name, or a file by path.
    ///
    /// # Errors
    /// [`ProfileError`] naming the profile and what is wrong with it.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Profile::parse(name, text);
        }
        let path = Path::new(name);
        if !path.is_file() {
            return Err(ProfileError::Unknown {
                name: name.to_owned(),
            });
        }
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| ProfileError::Io {
            path: name.to_owned(),
            source,
        })?;
        let mut profile = Profile::parse(name, &text)?;
        profile.skills = profile
            .skills
            .map(|folder| path.parent().unwrap_or(Path::new("")).join(folder));
        Ok(profile)
    }

    /// Parses a profile; `name` is for messages.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|error| ProfileError::Invalid {
            name: name.to_owned(),
            reason: error.to_string().trim().to_owned(),
        })
    }

    /// Applies the profile to settings.
    pub fn applied_to(self, mut config: AgentConfig) -> AgentConfig {
        let Profile {
            role,
            mode,
            style,
            pins,
            filter,
            limits,
            gate,
            ..
        } = self;
        set(&mut config.policies, gate);
        set(&mut config.run.role, role);
        set(&mut config.run.protocol, mode);
        set(&mut config.run.style, style);
        set(
            &mut config.run.max_rounds,
            // A run without a round has no answer.
            limits.max_rounds.map(|rounds| rounds.max(1)),
        );
        set(&mut config.run.max_searches, limits.max_searches);
        set(&mut config.run.context_tokens, limits.context_tokens);
        set(&mut config.toolbox.budget_tokens, limits.tool_budget_tokens);
        set(&mut config.toolbox.eviction, limits.eviction);
        config.run.refresh_interval = limits.refresh_interval.or(config.run.refresh_interval);
        config.pins.extend(pins);
        if let Some(find) = &mut config.run.find {
            find.filter = filter;
        }
        config
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_loads_and_has_a_description_and_a_role() {
        for name in names() {
            let profile = Profile::load(name).unwrap();
            assert!(
                !profile.description.is_empty() && profile.role.is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_profile_changes_only_the_settings_it_contains() {
        let text = "mode = \"manual\"\npins = [\"a/b\"]\n[filter]\nservers = [\"a\"]\n[limits]\nmax_rounds = 9\neviction = \"lfu\"";
        let before = AgentConfig::default();
        let after = Profile::parse("p", text)
            .unwrap()
            .applied_to(before.clone());
        assert_eq!(
            (
                after.run.protocol,
                after.run.max_rounds,
                after.toolbox.eviction
            ),
            (Protocol::Manual, 9, Eviction::Lfu)
        );
        assert_eq!(after.pins, ["a/b"]);
        assert!(after.run.find.unwrap().filter.servers.contains("a"));
        assert_eq!(
            (after.run.role, after.run.max_searches),
            (before.run.role, before.run.max_searches)
        );
    }

    #[test]
    fn the_folder_of_skills_is_relative_to_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, "skills = \"know-how\"").unwrap();
        let profile = Profile::load(path.to_str().unwrap()).unwrap();
        assert_eq!(profile.skills, Some(folder.path().join("know-how")));
    }

    #[test]
    fn errors_name_the_profile_and_the_line() {
        for (error, expected) in [
            (
                Profile::load("nope").unwrap_err(),
                "no profile \"nope\"; built-in profiles are web-search, files",
            ),
            (
                Profile::parse("p", "rols = 1").unwrap_err(),
                "unknown field `rols`",
            ),
            (
                Profile::parse("p", "[limits]\nmax_rounds = \"x\"").unwrap_err(),
                "line 2",
            ),
        ] {
            let message = error.to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
