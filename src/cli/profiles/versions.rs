//! `profiles history`, `profiles diff` and `profiles rollback`.

use std::time::SystemTime;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::diff::{Difference, differences};
use super::{settings, shown};
use crate::cli::agent::user;
use crate::cli::applied_profiles;
use crate::cli::context::Context;
use crate::clock;
use crate::gate::audit::{AuditLog, Entry, FILE_NAME};
use crate::profile_versions::{MAX_VERSIONS, ProfileVersions, VersionsError};

/// Prints the versions of a profile.
pub fn history(context: &Context, name: &str) -> Result<()> {
    let of_file = settings(context, name)?;
    let (data, file) = (&context.settings.data, context.settings.file.as_deref());
    let (mut versions, mut in_use) = (Vec::new(), None);
    if let Some(kept) = ProfileVersions::open_existing(data, file)? {
        versions = kept.history(name, MAX_VERSIONS)?;
        in_use = kept.in_use(name, of_file)?;
    }
    if context.printer.is_json() {
        let listed: Vec<Value> = versions.iter().map(shown::about).collect();
        return context
            .printer
            .json(&json!({ "profile": name, "versions": listed }));
    }
    let mut rows = Vec::new();
    for version in &versions {
        rows.push(vec![
            shown::in_words(version),
            clock::utc(version.at_ms),
            version.digest.clone(),
        ]);
    }
    context.printer.rows(&["version", "time", "digest"], rows)?;
    match in_use {
        Some(version) => {
            context
                .printer
                .note(format_args!("{name}: version {} is in use", version.version))
        }
        None => context.printer.note(format_args!(
            "{name}: the settings file has changed; the next start of `serve`, `mcp` or `agent` makes a version of it"
        )),
    }
}

/// Prints what differs between two versions.
pub fn diff(context: &Context, name: &str, from: u64, to: u64) -> Result<()> {
    settings(context, name)?;
    let (data, file) = (&context.settings.data, context.settings.file.as_deref());
    let Some(versions) = ProfileVersions::open_existing(data, file)? else {
        bail!(
            "profile {name:?} has no versions yet; the first start of `serve`, `mcp` or `agent` makes one"
        );
    };
    let (before, after) = (versions.version(name, from)?, versions.version(name, to)?);
    let found = differences(&before.settings, &after.settings);
    if context.printer.is_json() {
        return context
            .printer
            .json(&json!({ "profile": name, "from": from, "to": to, "differences": found }));
    }
    for Difference { key, before, after } in &found {
        if let Some(before) = before {
            context.printer.text(format_args!("- {key} = {before}"))?;
        }
        if let Some(after) = after {
            context.printer.text(format_args!("+ {key} = {after}"))?;
        }
    }
    if found.is_empty() {
        context
            .printer
            .note(format_args!("versions {from} and {to} say the same"))?;
    }
    Ok(())
}

/// Takes an earlier version into use.
pub fn roll_back(context: &Context, name: &str, number: u64) -> Result<()> {
    let of_file = settings(context, name)?;
    // Before the roll-back, so that the file counts as applied and the roll-back comes after it.
    let versions = applied_profiles::open(context)?;
    let earlier = versions.version(name, number)?;
    if earlier.settings.catalog != of_file.catalog {
        bail!(
            "version {number} of profile {name:?} is of the catalog {}; write what it says into the settings file",
            earlier
                .settings
                .catalog
                .as_deref()
                .unwrap_or("of the settings")
        );
    }
    // One that cannot be read is replaced like any other.
    let (present, newest) = match versions.history(name, 1) {
        Err(VersionsError::Unreadable { number, .. }) => {
            context.warn(format_args!(
                "version {number} of profile {name:?}, which is in use, cannot be read"
            ));
            (None, number)
        }
        present => {
            let present = present?.into_iter().next();
            let number = present.as_ref().map_or(0, |present| present.version);
            (present, number)
        }
    };
    if present.is_some_and(|present| present.settings == earlier.settings) {
        context.printer.note(format_args!(
            "{name}: what is in use says the same as version {number}, so nothing changes"
        ))?;
        return Ok(());
    }
    let audit = AuditLog::open(&context.settings.data.join(FILE_NAME))?;
    // Before servers follow: rules in force that the log lacks could not be explained.
    audit.append(&Entry::ProfileRolledBack {
        time_ms: clock::unix_ms(SystemTime::now()).unsigned_abs(),
        who: user(),
        profile: name.to_owned(),
        version: newest + 1,
        rolled_back_to: number,
        digest: earlier.digest.clone(),
    })?;
    let new = versions.roll_back(name, number)?;
    if context.printer.is_json() {
        return context.printer.json(&json!({
            "profile": name, "version": new.version, "rolled_back_to": number, "digest": new.digest,
        }));
    }
    context.printer.text(format_args!(
        "{name}: version {} is in use, with the rules of version {number}",
        new.version
    ))?;
    if earlier.settings != *of_file {
        context.printer.note(
            "the settings file still says something else; this version stays in use, also after a restart, until the \
             file changes what it says about the profile",
        )?;
    }
    Ok(())
}
