//! `toolscout profiles`: the profiles of the settings, what they change of tools, and their versions.

mod diff;
mod shown;
mod versions;

use std::sync::Arc;

use anyhow::Result;
use clap::Subcommand;
use toolscout_index::Catalog;
use toolscout_index::suggest::did_you_mean;

use super::Outcome;
use super::applied_profiles;
use super::context::Context;
use super::exit::UsageError;
use crate::config::ProfileSettings;
use crate::gate::{Gate, Policies};
use crate::profiles::{ProfiledSearch, ToolProfile};

/// Lists and shows the profiles of the settings, and their versions: the tools that they hold, and what
/// they change of them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  toolscout profiles list\n  toolscout profiles show support")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the profiles with their tools and tokens, and the version in use
    #[command(
        after_help = "Examples:\n  toolscout profiles list\n  toolscout profiles list --json"
    )]
    List,
    /// Show the tools of a profile, and where each part of a changed tool comes from
    #[command(
        after_help = "Examples:\n  toolscout profiles show support\n  toolscout --config team.toml profiles show support --json"
    )]
    Show {
        /// The profile
        name: String,
    },
    /// List the versions of a profile that are kept, the newest first
    #[command(
        after_help = "Examples:\n  toolscout profiles history support\n  toolscout profiles history support --json"
    )]
    History {
        /// The profile
        name: String,
    },
    /// Show what differs between two versions of a profile
    #[command(
        after_help = "Examples:\n  toolscout profiles diff support 1 2\n  toolscout profiles diff support 3 4 --json"
    )]
    Diff {
        /// The profile
        name: String,
        /// A version, as `history` lists it
        from: u64,
        /// The other version
        to: u64,
    },
    /// Take an earlier version of a profile into use, as a new version
    ///
    /// A running server follows within a second. The version stays in use until the settings file changes
    /// what it says about the profile.
    #[command(
        after_help = "Examples:\n  toolscout profiles rollback support 1\n  toolscout --config team.toml profiles rollback support 3"
    )]
    Rollback {
        /// The profile
        name: String,
        /// The version, as `history` lists it
        version: u64,
    },
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, mut context: Context) -> Result<Outcome> {
        match self.action {
            Action::List => shown::list(&context)?,
            Action::Show { name } => {
                let profile = named(&context, &name)?;
                if let Some(catalog) = profile.catalog() {
                    context.use_catalog(&catalog);
                }
                shown::show(&context, &profile)?;
            }
            Action::History { name } => versions::history(&context, &name)?,
            Action::Diff { name, from, to } => versions::diff(&context, &name, from, to)?,
            Action::Rollback { name, version } => versions::roll_back(&context, &name, version)?,
        }
        Ok(Outcome::Success)
    }
}

/// The settings of a profile, as the file has them.
fn settings<'a>(context: &'a Context, name: &str) -> Result<&'a ProfileSettings> {
    let profiles = &context.settings.profiles;
    if let Some(settings) = profiles.get(name) {
        return Ok(settings);
    }
    let hint = match did_you_mean(name, profiles.keys().map(String::as_str)) {
        Some(similar) => similar,
        None if profiles.is_empty() => "the settings have no table [profiles.NAME]".to_owned(),
        None => "`toolscout profiles list` lists them".to_owned(),
    };
    Err(UsageError(format!("no profile {name:?}; {hint}")).into())
}

/// A profile as a program with these settings would use it.
pub fn named(context: &Context, name: &str) -> Result<ToolProfile> {
    let settings = settings(context, name)?;
    let in_use = applied_profiles::in_use(context, name, settings)?;
    let settings = in_use
        .as_ref()
        .map_or(settings, |version| &version.settings);
    Ok(ToolProfile::new(name, settings))
}

/// The tools of a catalog, as a profile searches them.
pub fn search_of(catalog: &Catalog, profile: &ToolProfile) -> ProfiledSearch {
    // Classes by the tools' own hints: the rules of a server are not known here.
    let gate = Gate::new(Policies::default());
    let (catalog, profile) = (Arc::new(catalog.clone()), Arc::new(profile.clone()));
    ProfiledSearch::new(catalog, profile, Arc::new(gate))
}
