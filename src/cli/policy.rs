//! The flags of the call policy, shared by `agent`, `serve` and `mcp`.

use std::path::PathBuf;

use anyhow::Result;

use crate::agent::profile::Profile;
use crate::gate::{Decision, Pattern, Policies, Rule};

/// Rules for tool calls.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Calls")]
pub struct PolicyArgs {
    /// A preset (web-search, files, plan-and-execute, skills, slides) or a TOML file; its `[gate]` holds
    /// the rules for calls
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
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
    /// The profile of --profile; the default without it.
    pub fn profile(&self) -> Result<Profile> {
        Ok(self
            .profile
            .as_deref()
            .map(Profile::load)
            .transpose()?
            .unwrap_or_default())
    }

    /// The file of --profile, unless it is a preset.
    pub fn profile_file(&self) -> Option<PathBuf> {
        let file = PathBuf::from(self.profile.as_deref()?);
        file.is_file().then_some(file)
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
