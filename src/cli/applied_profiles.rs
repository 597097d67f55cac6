//! The profiles of the settings as programs use them: in their newest versions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::spawn_blocking;
use toolscout_index::database::create_private_dir;

use super::context::Context;
use crate::config::ProfileSettings;
use crate::profile_versions::{ProfileVersion, ProfileVersions};
use crate::profiles::ToolProfile;

/// How often a server looks for new versions.
const EVERY: Duration = Duration::from_millis(500);

/// The version of a profile in use; `None` if the file says what no program has applied yet.
pub fn in_use(
    context: &Context,
    name: &str,
    settings: &ProfileSettings,
) -> Result<Option<ProfileVersion>> {
    let (data, file) = (&context.settings.data, context.settings.file.as_deref());
    match ProfileVersions::open_existing(data, file)? {
        Some(versions) => Ok(versions.in_use(name, settings)?),
        None => Ok(None),
    }
}

/// The versions of the profiles of the settings file, which are applied now.
pub fn open(context: &Context) -> Result<ProfileVersions> {
    let settings = &context.settings;
    create_private_dir(&settings.data)?;
    let versions = ProfileVersions::open(&settings.data, settings.file.as_deref())?;
    versions.apply(&settings.profiles)?;
    Ok(versions)
}

/// Applies the settings file, and takes the versions in use of these profiles. Returns what tells of later
/// versions. A damaged database of versions keeps no program from its profiles.
pub fn applied(context: &Context, profiles: &[ToolProfile]) -> Option<ProfileVersions> {
    if profiles.is_empty() {
        return None;
    }
    match open(context) {
        Ok(versions) => {
            take(&versions, profiles);
            Some(versions)
        }
        Err(error) => {
            context.warn(format_args!(
                "the versions of profiles cannot be used, so all are as the settings have them: {error:#}"
            ));
            None
        }
    }
}

/// Takes the newest version of each profile into use.
fn take(versions: &ProfileVersions, profiles: &[ToolProfile]) {
    for profile in profiles {
        let name = profile.name();
        let newest = match versions.history(name, 1) {
            Ok(history) => history.into_iter().next(),
            Err(error) => {
                tracing::warn!(%error, "the profile {name:?} stays as it is");
                continue;
            }
        };
        let Some(newest) = newest else { continue };
        let present = profile.settings();
        if newest.settings == present {
            continue;
        }
        if newest.settings.catalog != present.catalog {
            tracing::warn!(
                "version {} of the profile {name:?} is of another catalog; start again to use it",
                newest.version
            );
            continue;
        }
        profile.replace(&newest.settings);
        tracing::info!("the profile {name:?} is in version {}", newest.version);
    }
}

/// Takes new versions of these profiles into use, until this ends.
pub async fn follow(
    versions: ProfileVersions,
    profiles: Vec<ToolProfile>,
    stop: impl Future<Output = ()>,
) {
    let (versions, profiles) = (Arc::new(versions), Arc::new(profiles));
    let mut seen = None;
    let mut stop = pin!(stop);
    loop {
        let (asked, known) = (Arc::clone(&versions), Arc::clone(&profiles));
        let looking = spawn_blocking(move || {
            let present = asked.data_version().ok();
            if present != seen {
                take(&asked, &known);
            }
            present
        });
        // After a failure it looks again.
        seen = looking.await.unwrap_or_default();
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
