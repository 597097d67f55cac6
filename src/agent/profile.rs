//! Profiles: named presets of an agent, in TOML.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toolscout_index::Filter;

use crate::agent::{AgentConfig, Protocol};
use crate::finder::{Eviction, Style};
use crate::gate::Policies;
use crate::tools::builtin::BuiltinConfig;
use crate::tools::operation::ServiceConfig;

/// The ready profiles: name and text.
const READY: [(&str, &str); 4] = [
    ("web-search", include_str!("profiles/web-search.toml")),
    ("files", include_str!("profiles/files.toml")),
    (
        "plan-and-execute",
        include_str!("profiles/plan-and-execute.toml"),
    ),
    ("skills", include_str!("profiles/skills.toml")),
];

/// A preset. What it does not say stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// What it is for.
    pub description: String,
    /// What the agent is told of itself.
    pub role: Option<String>,
    /// How the model calls tools.
    pub mode: Option<Protocol>,
    /// How found tools come into its hands.
    pub style: Option<Style>,
    /// Tools that are always visible, by id or name; those that the catalog lacks are left out.
    pub pins: Vec<String>,
    /// The folder of skills that are offered, relative to the profile's file.
    pub skills: Option<PathBuf>,
    /// Which tools may be found.
    pub filter: Filter,
    /// Bounds.
    pub limits: Limits,
    /// What the gate goes by.
    pub gate: Option<Policies>,
    /// Built-in tools that are switched on.
    pub tools: BuiltinConfig,
    /// Services whose operations can be called.
    pub operations: Vec<ServiceConfig>,
}

/// The bounds of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Answers of the model.
    pub max_rounds: Option<u32>,
    /// Rounds of searching in a row.
    pub max_searches: Option<u32>,
    /// Rounds after which the context is cleared down to question, facts and plan.
    pub refresh_interval: Option<u32>,
    /// Messages the model sees.
    pub window: Option<usize>,
    /// Tokens of all visible tools.
    pub tool_budget_tokens: Option<usize>,
    /// Which tool goes first when the budget is used up.
    pub eviction: Option<Eviction>,
}

/// Why a profile cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither a ready one nor a file.
    #[error("no profile {name:?}; ready ones are {}, or give the path of a TOML file", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("profile {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no profile.
    #[error("profile {name}: {reason}")]
    Invalid {
        /// Its name or file.
        name: String,
        /// Where it is wrong, and how.
        reason: String,
    },
}

/// The names of the ready profiles.
pub fn names() -> Vec<&'static str> {
    READY.iter().map(|(name, _)| *name).collect()
}

impl Profile {
    /// A ready profile by name, or one from a file by path.
    ///
    /// # Errors
    /// [`ProfileError`] naming the profile and what is wrong with it.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some((_, text)) = READY.iter().find(|(ready, _)| *ready == name) {
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

    /// Reads a profile; `name` is for messages.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|error| ProfileError::Invalid {
            name: name.to_owned(),
            reason: error.to_string().trim().to_owned(),
        })
    }

    /// Settings with what the profile says.
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
            limits.max_rounds.map(|rounds| rounds.max(1)),
        );
        set(&mut config.run.max_searches, limits.max_searches);
        set(&mut config.run.window, limits.window);
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
    fn every_ready_profile_can_be_had_and_says_something() {
        for name in names() {
            let profile = Profile::load(name).unwrap();
            assert!(
                !profile.description.is_empty() && profile.role.is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_profile_changes_what_it_names_and_nothing_else() {
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
    fn a_folder_of_skills_stands_beside_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, "skills = \"know-how\"").unwrap();
        let profile = Profile::load(path.to_str().unwrap()).unwrap();
        assert_eq!(profile.skills, Some(folder.path().join("know-how")));
    }

    #[test]
    fn what_is_no_profile_is_named() {
        for (error, expected) in [
            (
                Profile::load("nope").unwrap_err(),
                "no profile \"nope\"; ready ones are web-search, files",
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
