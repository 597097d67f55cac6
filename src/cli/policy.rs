//! The flags of the call policy, shared by `agent`, `serve` and `mcp`.

use std::path::PathBuf;

use anyhow::Result;
use toolscout_index::Searcher;

use super::exit::UsageError;
use super::output::print_stderr;
use crate::agent::profile::{self, AgentProfile, AgentProfileError};
use crate::config::Settings;
use crate::gate::{Decision, Pattern, Policies, Rule};
use crate::profiles::ToolProfile;

/// Rules for tool calls.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Calls")]
pub struct PolicyArgs {
    /// A preset (web-search, files, plan-and-execute, skills, slides) or a TOML file, whose `[gate]` holds
    /// the rules for calls; or the name of a table `[profiles.NAME]` of the settings, which limits the
    /// tools that can be seen and called. One of either kind may be given
    #[arg(long, value_name = "NAME|FILE")]
    profile: Vec<String>,
    /// Call tools with these ids without asking; `*` matches any text (repeatable)
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// Ask before calling tools with these ids, or with ids that look the same (repeatable)
    #[arg(long, value_name = "PATTERN")]
    ask: Vec<String>,
    /// Never call tools with these ids, or with ids that look the same; overrides --ask, which
    /// overrides --allow (repeatable)
    #[arg(long, value_name = "PATTERN")]
    deny: Vec<String>,
    /// Call nothing, and report what would be called
    #[arg(long)]
    dry_run: bool,
}

impl PolicyArgs {
    /// The preset or file of --profile; the default without one.
    ///
    /// # Errors
    /// [`UsageError`] for two of them, and those of [`AgentProfile::load`].
    pub fn preset(&self, settings: &Settings) -> Result<AgentProfile> {
        // A name of the settings is one of theirs, and everything else a preset or file.
        let named = |name: &&String| !settings.profiles.contains_key(*name);
        let mut presets = self.profile.iter().filter(named);
        let (first, second) = (presets.next(), presets.next());
        if let (Some(first), Some(second)) = (first, second) {
            return Err(two_profiles(first, second, "a preset or file"));
        }
        let Some(name) = first else {
            return Ok(AgentProfile::default());
        };
        match AgentProfile::load(name) {
            Err(error @ AgentProfileError::Unknown { .. }) if !settings.profiles.is_empty() => {
                let names: Vec<&str> = settings.profiles.keys().map(String::as_str).collect();
                Err(UsageError(format!("{error}, which has {}", names.join(", "))).into())
            }
            loaded => Ok(loaded?),
        }
    }

    /// The file of --profile, if it names one.
    pub fn profile_file(&self) -> Option<PathBuf> {
        let mut files = self.profile.iter().map(PathBuf::from);
        files.find(|file| file.is_file())
    }

    /// The profile of the settings that --profile names, if it names one.
    ///
    /// # Errors
    /// [`UsageError`] for two of them, and for one with the name of a preset.
    pub fn tool_profile(&self, settings: &Settings) -> Result<Option<ToolProfile>> {
        let named = |name: &&String| settings.profiles.contains_key(*name);
        let mut profiles = self.profile.iter().filter(named);
        let (first, second) = (profiles.next(), profiles.next());
        if let (Some(first), Some(second)) = (first, second) {
            return Err(two_profiles(first, second, "a profile of the settings"));
        }
        let Some(name) = first else { return Ok(None) };
        if profile::names().contains(&name.as_str()) {
            let message = format!(
                "--profile {name} is a preset and a profile of the settings; rename [profiles.{name}] there"
            );
            return Err(UsageError(message).into());
        }
        match settings.profiles.get(name) {
            Some(settings) => Ok(Some(ToolProfile::new(name, settings))),
            None => Ok(None),
        }
    }

    /// Puts the rules of the flags before those of the profile, the strictest first.
    pub fn apply_to(&self, policies: &mut Policies) {
        // The first rule that matches decides, so this order makes the strictest flag win.
        let flags = [
            (&self.deny, Decision::Deny, "deny"),
            (&self.ask, Decision::Ask, "ask"),
            (&self.allow, Decision::Allow, "allow"),
        ];
        let mut rules = Vec::new();
        for (patterns, decision, flag) in flags {
            for pattern in patterns {
                let rule = Rule::of_tools(Pattern::new(pattern.as_str()), decision);
                rules.push(Rule {
                    name: Some(format!("--{flag} {pattern}")),
                    ..rule
                });
            }
        }
        policies.rules.splice(..0, rules);
        // A flag cannot switch off the dry run of a profile.
        policies.dry_run |= self.dry_run;
    }
}

fn two_profiles(first: &str, second: &str, kind: &str) -> anyhow::Error {
    UsageError(format!(
        "--profile {first} and --profile {second} are both {kind}; give one of them"
    ))
    .into()
}

/// Prints what a profile names and these tools do not have.
pub fn warn_of_mistakes(profile: &ToolProfile, searcher: &Searcher, policies: &Policies) {
    let tools: Vec<_> = searcher.tools().collect();
    for problem in profile.mistakes(&tools, policies) {
        print_stderr(format_args!("warning: {problem}"));
    }
}

/// Prints what rules for calls and pins name and a catalog does not have.
pub fn warn_of_unknown_names(lines: &[String]) {
    for line in lines {
        print_stderr(format_args!("warning: {line}"));
    }
}
