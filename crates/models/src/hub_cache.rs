//! Caches in the layout of the hub: `models--OWNER--NAME/refs/main` names a revision, and
//! `snapshots/REVISION` holds its files. Other programs use the same layout, so they can share a cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use toolscout_base::config::Settings;

/// A model on the hub.
#[derive(Clone, Copy, Debug)]
pub struct OnHub<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Its organisation and name.
    pub id: &'a str,
    /// The revision that is asked for, if any.
    pub revision: Option<&'a str>,
}

impl OnHub<'_> {
    /// The folder of all revisions within a hub cache.
    pub fn repository(&self) -> String {
        format!("models--{}", self.id.replace('/', "--"))
    }
}

/// The hub cache that downloads are written to: `HF_HOME` if set, as in fastembed, else ours.
pub fn home(settings: &Settings) -> PathBuf {
    settings
        .places
        .hf_home
        .clone()
        .unwrap_or_else(|| settings.cache.clone())
}

/// The hub caches to search: ours first, then those of other programs and other settings.
pub fn homes(settings: &Settings) -> Vec<PathBuf> {
    let hub = settings
        .places
        .hf_home
        .as_ref()
        .map(|home| home.join("hub"));
    let mut homes = vec![home(settings)];
    homes.extend(hub);
    homes.push(settings.cache.clone());
    homes.dedup();
    homes
}

/// Makes a name in `refs`, as `main`, stand for a revision.
pub fn name_revision(refs: &Path, name: &str, revision: &str) -> Result<()> {
    let file = refs.join(name);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(file.parent().unwrap_or(refs))?;
        let partial = refs.join(format!("main.{}.partial", std::process::id()));
        std::fs::write(&partial, revision)?;
        std::fs::rename(partial, &file)
    };
    write().with_context(|| format!("write {}", file.display()))
}

/// Whether this is what a folder of `snapshots` may be called.
pub fn is_revision(text: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_legal)
}
