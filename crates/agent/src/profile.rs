//! Profiles: named presets of an agent, in TOML.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toolscout_index::Filter;

use crate::config::{AgentConfig, Protocol};
use crate::recommend::RECOMMEND_WITHIN;
use toolscout_base::config::{AgentSettings, Limits, ModelParameters};
use toolscout_base::regular_file;
use toolscout_finder::finder::Style;
use toolscout_gate::gate::Policies;
use toolscout_gate::plan::OnInvalidStep;
use toolscout_gate::tools::CallTimes;
use toolscout_gate::tools::builtin::BuiltinConfig;
use toolscout_gate::tools::operation::ServiceConfig;

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
pub struct AgentProfile {
    /// What the profile is for.
    pub description: String,
    /// The role in the system prompt.
    pub role: Option<String>,
    /// The environment in the system prompt; the date without one.
    pub environment: Option<String>,
    /// How the model calls tools.
    pub mode: Option<Protocol>,
    /// How found tools are made callable.
    pub style: Option<Style>,
    /// What happens to a plan with invalid steps.
    pub on_invalid_step: Option<OnInvalidStep>,
    /// Tools that are always visible, by id or name. Tools that the catalog lacks are ignored.
    pub pins: Vec<String>,
    /// Tools whose calls are announced as searches, by id or name.
    pub announce: Vec<String>,
    /// A folder of skills to offer, relative to the profile's file.
    pub skills: Option<PathBuf>,
    /// Which tools may be found.
    pub filter: Filter,
    /// Whether the model is asked once more, for questions that may follow.
    pub recommend: Option<bool>,
    /// Limits of a run.
    pub limits: Limits,
    /// Parameters of the model.
    pub model: ModelParameters,
    /// The gate's policies.
    pub gate: Option<Policies>,
    /// Programs that have to be installed.
    pub needs: Vec<Need>,
    /// The built-in tools that are on.
    pub tools: BuiltinConfig,
    /// Services whose OpenAPI operations can be called.
    pub operations: Vec<ServiceConfig>,
}

/// A program that a profile needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The program's name, as a shell finds it.
    pub program: String,
    /// How to install it, in words.
    #[serde(default)]
    pub install: String,
}

/// Why a profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentProfileError {
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

impl AgentProfile {
    /// Loads a built-in profile by name, or a file by path.
    ///
    /// # Errors
    /// [`AgentProfileError`] naming the profile and what is wrong with it.
    pub fn load(name: &str) -> Result<Self, AgentProfileError> {
        for (built_in, text) in BUILT_IN {
            if built_in == name {
                return AgentProfile::parse(name, text);
            }
        }
        let path = Path::new(name);
        if !path.is_file() {
            return Err(AgentProfileError::Unknown {
                name: name.to_owned(),
            });
        }
        let text = regular_file::read_to_string(path);
        let text = text.map_err(|source| AgentProfileError::Io {
            path: name.to_owned(),
            source,
        })?;
        let mut profile = AgentProfile::parse(name, &text)?;
        if let Some(folder) = &mut profile.skills {
            *folder = path.parent().unwrap_or(Path::new("")).join(&*folder);
        }
        Ok(profile)
    }

    /// Parses a profile; `name` is for messages.
    ///
    /// # Errors
    /// [`AgentProfileError::Invalid`].
    pub fn parse(name: &str, text: &str) -> Result<Self, AgentProfileError> {
        let invalid = |reason: String| AgentProfileError::Invalid {
            name: name.to_owned(),
            reason,
        };
        let profile: AgentProfile =
            toml::from_str(text).map_err(|error| invalid(error.to_string().trim().to_owned()))?;
        let checked = profile.settings().check();
        checked.map_err(|error| invalid(error.to_string()))?;
        Ok(profile)
    }

    /// Leaves out what calls programs that it needs and that are in none of these folders. Returns these,
    /// each with how to install it.
    pub fn leave_out_missing(&mut self, folders: &[PathBuf]) -> Vec<String> {
        let mut missing = Vec::new();
        for Need { program, install } in &self.needs {
            if is_installed(program, folders) {
                continue;
            }
            missing.push(match install.as_str() {
                "" => format!("{program} is not installed"),
                install => format!("{program} is not installed: {install}"),
            });
            // The shell is not set up with a program that is not there.
            if let Some(shell) = &mut self.tools.shell {
                let calls_it =
                    |call: &String| call.split_whitespace().next() == Some(program.as_str());
                shell.allow.retain(|call| !calls_it(call));
            }
        }
        // A shell that may run no program is switched off.
        if !missing.is_empty()
            && let Some(shell) = &self.tools.shell
            && shell.allow.is_empty()
        {
            self.tools.shell = None;
        }
        missing
    }

    /// Its settings that the program's settings have too.
    pub fn settings(&self) -> AgentSettings {
        AgentSettings {
            recommend: self.recommend,
            limits: self.limits,
            model: self.model.clone(),
        }
    }

    /// Applies the profile to settings. The parameters of the model are for whoever makes it.
    pub fn applied_to(self, mut config: AgentConfig) -> AgentConfig {
        config.set(&self.settings());
        let AgentProfile {
            role,
            environment,
            mode,
            style,
            on_invalid_step,
            pins,
            announce,
            filter,
            gate,
            ..
        } = self;
        set(&mut config.policies, gate);
        set(&mut config.run.role, role);
        set(&mut config.run.environment, environment);
        set(&mut config.run.protocol, mode);
        set(&mut config.run.style, style);
        set(&mut config.run.on_invalid_step, on_invalid_step);
        config.pins.extend(pins);
        config.run.announced.extend(announce);
        if let Some(find) = &mut config.run.find {
            find.filter = filter;
        }
        config
    }
}

impl AgentConfig {
    /// Sets what these settings have. The parameters of the model are for whoever makes it.
    pub fn set(&mut self, settings: &AgentSettings) {
        let limits = settings.limits;
        let run = &mut self.run;
        set(&mut run.max_rounds, limits.max_rounds);
        set(&mut run.max_searches, limits.max_searches);
        set(&mut run.max_calls, limits.max_calls);
        set(&mut run.max_result_bytes, limits.max_result_bytes);
        set(&mut run.result_format, limits.result_format);
        // Ollama cuts a longer prompt without a word, and the answer needs room too.
        let num_ctx = settings.model.num_ctx.map(|tokens| tokens as usize / 4 * 3);
        set(&mut run.context_tokens, limits.context_tokens.or(num_ctx));
        if let Some(interval) = limits.refresh_interval {
            run.refresh_interval = (interval > 0).then_some(interval);
        }
        if let Some(find) = &mut run.find {
            set(&mut find.max_limit, limits.max_hits);
            set(&mut find.more.lines, limits.more_tools);
            set(&mut find.more.chars, limits.more_chars);
        }
        set(&mut self.toolbox.budget_tokens, limits.tool_budget_tokens);
        set(&mut self.toolbox.eviction, limits.eviction);
        set(&mut self.toolbox.idle_turns, limits.idle_turns);
        set(&mut self.search_from_tools, limits.search_from_tools);
        set(&mut self.parallel_calls, limits.parallel_calls);
        self.call_timeout = CallTimes::of(&limits).idle;
        let time_to_live = limits.time_to_live_s.map(Duration::from_secs);
        set(&mut self.time_to_live, time_to_live);
        if let Some(is_on) = settings.recommend {
            self.recommend_within = is_on.then_some(RECOMMEND_WITHIN);
        }
    }
}

/// Whether a program is in one of these folders.
fn is_installed(program: &str, folders: &[PathBuf]) -> bool {
    let file = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    folders.iter().any(|folder| folder.join(&file).is_file())
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use toolscout_base::config::Eviction;
    use toolscout_finder::finder::ToolboxConfig;
    use toolscout_finder::finder::meta_tools::FindConfig;

    /// A value other than the default for each setting of an agent.
    const EVERYTHING: &str = include_str!("profile/everything.toml");

    #[test]
    fn every_setting_of_an_agent_is_one_of_a_profile() {
        let before = AgentConfig::default();
        let profile = AgentProfile::parse("everything", EVERYTHING).unwrap();
        // A new setting does not compile until it is compared here, and fails until a profile sets it.
        let AgentConfig {
            name: _, // follows from --agent-profile
            run,
            toolbox,
            policies,
            pins,
            search_from_tools,
            parallel_calls,
            call_timeout,
            time_to_live,
            recommend_within,
            count_tokens: _,    // a function
            model_is_chosen: _, // follows from --llm and --model
        } = profile.applied_to(before.clone());
        assert_ne!(policies, before.policies);
        assert_ne!(pins, before.pins);
        assert_ne!(search_from_tools, before.search_from_tools);
        assert_ne!(parallel_calls, before.parallel_calls);
        assert_ne!(call_timeout, before.call_timeout);
        assert_ne!(time_to_live, before.time_to_live);
        assert_ne!(recommend_within, before.recommend_within);
        let ToolboxConfig {
            budget_tokens,
            eviction,
            idle_turns,
        } = toolbox;
        assert_ne!(budget_tokens, before.toolbox.budget_tokens);
        assert_ne!(eviction, before.toolbox.eviction);
        assert_ne!(idle_turns, before.toolbox.idle_turns);
        let before = before.run;
        let RunConfig {
            protocol,
            style,
            role,
            environment,
            max_rounds,
            max_searches,
            max_calls,
            max_result_bytes,
            result_format,
            refresh_interval,
            context_tokens,
            on_invalid_step,
            find,
            announced,
            shows_all: _, // follows from search_from_tools
            fence: _,     // a secret of each conversation
        } = run;
        assert_ne!(protocol, before.protocol);
        assert_ne!(style, before.style);
        assert_ne!(role, before.role);
        assert_ne!(environment, before.environment);
        assert_ne!(max_rounds, before.max_rounds);
        assert_ne!(max_searches, before.max_searches);
        assert_ne!(max_calls, before.max_calls);
        assert_ne!(max_result_bytes, before.max_result_bytes);
        assert_ne!(result_format, before.result_format);
        assert_ne!(announced, before.announced);
        assert_ne!(refresh_interval, before.refresh_interval);
        assert_ne!(context_tokens, before.context_tokens);
        assert_ne!(on_invalid_step, before.on_invalid_step);
        let (find, before) = (find.unwrap(), before.find.unwrap());
        let FindConfig {
            max_limit,
            more,
            filter,
        } = find;
        assert_ne!(max_limit, before.max_limit);
        assert_ne!(more.lines, before.more.lines);
        assert_ne!(more.chars, before.more.chars);
        assert_ne!(filter, before.filter);
    }

    #[test]
    fn presets_recommend_questions_and_other_agents_do_not() {
        assert_eq!(AgentConfig::default().recommend_within, None);
        for name in names() {
            let config = AgentProfile::load(name)
                .unwrap()
                .applied_to(AgentConfig::default());
            assert!(config.recommend_within.is_some(), "{name}");
        }
    }

    #[test]
    fn slides_say_that_they_need_pandoc_and_how_to_install_it() {
        let mut slides = AgentProfile::load("slides").unwrap();
        let before = slides.clone();
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned()];
        let missing = slides.leave_out_missing(&folders);
        assert_eq!(slides.tools.shell, None);
        assert_eq!(missing.len(), 1);
        assert!(
            missing[0].starts_with("pandoc is not installed: ")
                && missing[0].contains("pandoc.org"),
            "{missing:?}"
        );
        let pandoc = format!("pandoc{}", std::env::consts::EXE_SUFFIX);
        std::fs::write(folder.path().join(pandoc), "").unwrap();
        let mut slides = before.clone();
        assert!(slides.leave_out_missing(&folders).is_empty());
        assert_eq!(slides, before);
    }

    #[test]
    fn settings_out_of_range_are_named_with_their_range() {
        for (text, expected) in [
            (
                "[limits]\ntime_to_live_s = 0",
                "limits.time_to_live_s is 0, it must be from 1 to 86400",
            ),
            ("[limits]\nmax_rounds = 101", "limits.max_rounds is 101"),
            ("[model]\ntemperature = 3.5", "model.temperature is 3.5"),
            ("[model]\nstop = ['']", "model.stop has an empty text"),
            (
                "[model]\nreasoning_effort = 'much'",
                "unknown variant `much`, expected one of `none`, `minimal`",
            ),
        ] {
            let error = AgentProfile::parse("p", text).unwrap_err().to_string();
            assert!(
                error.contains("profile p: ") && error.contains(expected),
                "{error}"
            );
        }
    }

    #[test]
    fn every_built_in_profile_loads_and_has_a_description_and_a_role() {
        for name in names() {
            let profile = AgentProfile::load(name).unwrap();
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
        let after = AgentProfile::parse("p", text)
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
    fn a_profile_limits_the_time_of_calls_and_says_what_becomes_of_invalid_steps() {
        let text = "on_invalid_step = \"skip\"\n[limits]\ncall_timeout_s = 90\ncall_timeout_total_s = 3600";
        let profile = AgentProfile::parse("p", text).unwrap();
        let times = CallTimes::of(&profile.limits);
        assert_eq!(
            (times.unreported.as_secs(), times.total.as_secs()),
            (90, 3600)
        );
        let config = profile.applied_to(AgentConfig::default());
        assert_eq!(config.call_timeout.as_secs(), 90);
        assert_eq!(config.run.on_invalid_step, OnInvalidStep::Skip);
    }

    #[test]
    fn the_folder_of_skills_is_relative_to_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.toml");
        std::fs::write(&path, "skills = \"know-how\"").unwrap();
        let profile = AgentProfile::load(path.to_str().unwrap()).unwrap();
        assert_eq!(profile.skills, Some(folder.path().join("know-how")));
    }

    #[test]
    fn errors_name_the_profile_and_the_line() {
        for (error, expected) in [
            (
                AgentProfile::load("nope").unwrap_err(),
                "no profile \"nope\"; built-in profiles are web-search, files",
            ),
            (
                AgentProfile::parse("p", "rols = 1").unwrap_err(),
                "unknown field `rols`",
            ),
            (
                AgentProfile::parse("p", "[limits]\nmax_rounds = \"x\"").unwrap_err(),
                "line 2",
            ),
            (
                AgentProfile::parse("p", "[limits]\ncall_timeout_s = 0").unwrap_err(),
                "limits.call_timeout_s is 0, it must be from 1 to 86400",
            ),
            (
                AgentProfile::parse("p", "on_invalid_step = \"ask\"").unwrap_err(),
                "expected `refuse` or `skip`",
            ),
        ] {
            let message = error.to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
