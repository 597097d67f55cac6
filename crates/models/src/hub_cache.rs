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
    match &settings.places.hf_home {
        Some(home) => home.clone(),
        None => settings.cache.clone(),
    }
}

/// The hub caches to search: ours first, then those of other programs and other settings.
pub fn homes(settings: &Settings) -> Vec<PathBuf> {
    let mut homes = vec![home(settings)];
    // The hub's own programs write one folder deeper than fastembed.
    if let Some(home) = &settings.places.hf_home {
        homes.push(home.join("hub"));
    }
    homes.push(settings.cache.clone());
    homes.dedup();
    homes
}

/// Makes a name in `refs`, as `main`, stand for a revision.
pub fn name_revision(refs: &Path, name: &str, revision: &str) -> Result<()> {
    let file = refs.join(name);
    write_at_once(refs, &file, revision).with_context(|| format!("write {}", file.display()))
}

fn write_at_once(refs: &Path, file: &Path, revision: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(file.parent().unwrap_or(refs))?;
    // Another program that reads the name meanwhile finds the old revision or the new one.
    let partial = refs.join(format!("main.{}.partial", std::process::id()));
    std::fs::write(&partial, revision)?;
    std::fs::rename(partial, file)
}

/// Whether this is a commit, which stands for exact files, and not a branch or a tag.
pub fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this is what a folder of `snapshots` may be called.
pub fn is_revision(text: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_legal)
}
