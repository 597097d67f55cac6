//! The flags that say which calls are made, the same for `agent`, `serve` and `mcp`.

use anyhow::Result;

use crate::agent::profile::Profile;
use crate::gate::{Decision, Pattern, Policies, Rule};

/// Which calls are made.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Calls")]
pub struct PolicyArgs {
    /// A preset: web-search, files, plan-and-execute, skills, or a TOML file; its `[gate]` says
    /// which calls are made
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Call tools of these ids without asking; `*` stands for any text (repeatable)
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// Ask before tools of these ids, or that look like it, are called (repeatable)
    #[arg(long, value_name = "PATTERN")]
    ask: Vec<String>,
    /// Never call tools of these ids, or that look like it; wins over --ask, and that over --allow
    /// (repeatable)
    #[arg(long, value_name = "PATTERN")]
    deny: Vec<String>,
    /// Call nothing, and say what would be called
    #[arg(long)]
    dry_run: bool,
}

impl PolicyArgs {
    /// The profile; an empty one where none is named.
    pub fn profile(&self) -> Result<Profile> {
        Ok(self
            .profile
            .as_deref()
            .map(Profile::load)
            .transpose()?
            .unwrap_or_default())
    }

    /// Adds the rules of the flags, the strictest first: they come before those of the profile.
    pub fn apply_to(&self, policies: &mut Policies) {
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
        policies.dry_run |= self.dry_run;
    }
}
