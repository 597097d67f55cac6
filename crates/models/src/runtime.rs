//! The ONNX Runtime: finds a library that is new enough, or downloads one.
//!
//! fastembed panics when the library is missing or too old. The type of the file, and the version
//! in its name, are therefore checked here before it is loaded.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toolscout_index::Error;

use super::pins::{self, Package};
use super::{Depth, OnTransfer, Part, pypi};
use toolscout_base::config::Settings;

/// Oldest version with the API that fastembed needs.
const OLDEST: (u32, u32) = (1, 24);

/// Directories where package managers put libraries.
const SYSTEM_DIRS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/opt/homebrew/lib",
    "/opt/onnxruntime/lib",
];

/// Finds the library: that of `ORT_DYLIB_PATH` if usable, else in the cache, else in the
/// directories of the system.
pub fn locate(settings: &Settings, depth: Depth) -> Part {
    let mut broken = None;
    for part in candidates(settings, depth) {
        match part {
            Part::Ready { .. } => return part,
            // The first of several, which is that of `ORT_DYLIB_PATH` if it is set.
            Part::Broken { .. } => broken = broken.or(Some(part)),
            Part::Missing { .. } => {}
        }
    }
    // A broken library says more than a list of folders without one.
    match broken {
        Some(part) => part,
        None => Part::Missing {
            looked_in: search_paths(settings),
        },
    }
}

/// Checks one library without loading it: it exists, is a library, is new enough, and a pinned file
/// is unchanged.
pub fn check(path: &Path, depth: Depth) -> Part {
    let broken = |reason: String| Part::Broken {
        path: path.to_owned(),
        reason,
    };
    // `libonnxruntime.so` is usually a link; the version is in the name of its target.
    let Ok(real) = path.canonicalize() else {
        return broken("does not exist".into());
    };
    match starts_like_a_library(&real) {
        Ok(true) => {}
        Ok(false) => return broken("is not a shared library".into()),
        Err(error) => return broken(format!("cannot be read: {error}")),
    }
    let version = version_in_name(&real);
    if let Some((major, minor)) = version.as_deref().and_then(major_minor)
        && (major, minor) < OLDEST
    {
        return broken(format!(
            "is too old: {major}.{minor}, it must be {}.{} or newer",
            OLDEST.0, OLDEST.1
        ));
    }
    if let Some(pin) = pinned_file(&real)
        && let Err(reason) = pin.check(&real, depth)
    {
        return broken(reason);
    }
    Part::Ready {
        path: path.to_owned(),
        version: version.unwrap_or_else(|| "of unknown version".into()),
    }
}

/// Downloads the pinned library into the cache. Returns its name and version.
pub fn fetch(settings: &Settings, on_transfer: OnTransfer<'_>) -> Result<String> {
    let package = pins::runtime().with_context(|| {
        format!(
            "no ONNX Runtime is pinned for {} on {}; install version {}.{} or newer and name its library in ORT_DYLIB_PATH",
            std::env::consts::OS,
            std::env::consts::ARCH,
            OLDEST.0,
            OLDEST.1,
        )
    })?;
    pypi::fetch(package, &folder(settings, package), on_transfer)?;
    Ok(format!("{} {}", package.name, package.version))
}

/// Loads the library once for the process. Without it fastembed panics.
///
/// # Errors
/// [`Error::Embedder`] when the file is no ONNX Runtime, or too old.
pub fn load(library: &Path) -> toolscout_index::Result<()> {
    // Only loads the library; the first session creates the environment.
    match ort::init_from(library) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Embedder {
            model: library.display().to_string(),
            reason: format!("{error}; use {}.{} or newer", OLDEST.0, OLDEST.1),
        }),
    }
}

fn candidates(settings: &Settings, depth: Depth) -> impl Iterator<Item = Part> {
    let named = settings.places.ort_dylib.clone();
    let cached = cached(settings).filter(|path| path.exists());
    let system = library_dirs(settings)
        .into_iter()
        .flat_map(|dir| libraries_in(&dir));
    named
        .into_iter()
        .chain(cached)
        .chain(system)
        .map(move |path| check(&path, depth))
}

fn search_paths(settings: &Settings) -> Vec<PathBuf> {
    cached(settings)
        .into_iter()
        .chain(library_dirs(settings))
        .collect()
}

fn library_dirs(settings: &Settings) -> Vec<PathBuf> {
    settings
        .places
        .library_path
        .iter()
        .cloned()
        .chain(SYSTEM_DIRS.map(PathBuf::from))
        .collect()
}

fn cached(settings: &Settings) -> Option<PathBuf> {
    let package = pins::runtime()?;
    Some(folder(settings, package).join(package.files.first()?.name))
}

fn folder(settings: &Settings, package: &Package) -> PathBuf {
    settings
        .cache
        .join(format!("{}-{}", package.name, package.version))
}

/// The libraries of a directory, newest version first.
fn libraries_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if version_in_name(&path).is_some() {
            found.push(path);
        }
    }
    found.sort_by_key(|path| {
        std::cmp::Reverse(version_in_name(path).as_deref().and_then(major_minor))
    });
    found
}

/// `1.31.1` of `libonnxruntime.so.1.31.1` and `libonnxruntime.1.31.1.dylib`.
fn version_in_name(path: &Path) -> Option<String> {
    let name = path
        .file_name()?
        .to_str()?
        .strip_prefix("libonnxruntime.")?;
    let version = name
        .strip_prefix("so.")
        .or_else(|| name.strip_suffix(".dylib"))?;
    version
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| version.to_owned())
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn pinned_file(path: &Path) -> Option<&'static pins::PinnedFile> {
    let package = pins::runtime()?;
    let folder = path.parent()?.file_name()?.to_str()?;
    // A library of that name elsewhere is not the one that was pinned.
    if folder != format!("{}-{}", package.name, package.version) {
        return None;
    }
    package.files.iter().find(|pin| path.ends_with(pin.name))
}

/// ELF, Mach-O (one architecture or several) or PE, by the first bytes.
fn starts_like_a_library(path: &Path) -> std::io::Result<bool> {
    let mut start = [0; 4];
    match File::open(path)?.read_exact(&mut start) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    Ok(matches!(
        start,
        [0x7f, b'E', b'L', b'F']
            | [0xcf, 0xfa, 0xed, 0xfe]
            | [0xca, 0xfe, 0xba, 0xbe]
            | [b'M', b'Z', ..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, bytes: &[u8]) -> Part {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        check(&path, Depth::Sizes)
    }

    fn reason(part: Part) -> String {
        match part {
            Part::Broken { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_version_is_read_from_the_name_of_the_file() {
        for (name, expected) in [
            ("libonnxruntime.so.1.31.1", Some("1.31.1")),
            ("libonnxruntime.1.31.1.dylib", Some("1.31.1")),
            ("libonnxruntime.so", None),
            ("libonnxruntime_providers_shared.so.1", None),
        ] {
            assert_eq!(
                version_in_name(Path::new(name)).as_deref(),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn unusable_libraries_are_rejected_before_loading() {
        assert_eq!(
            reason(library("libonnxruntime.so.1.31.1", b"hello world")),
            "is not a shared library"
        );
        assert_eq!(
            reason(library("libonnxruntime.so.1.31.1", b"")),
            "is not a shared library"
        );
        assert!(
            reason(library("libonnxruntime.so.1.20.0", b"\x7fELF...."))
                .contains("1.20, it must be 1.24")
        );
        assert_eq!(
            reason(check(Path::new("/nowhere/libonnxruntime.so"), Depth::Sizes)),
            "does not exist"
        );
    }

    #[test]
    fn a_library_of_unknown_version_is_left_to_the_loader() {
        assert!(
            library("libonnxruntime.so", b"\x7fELF....")
                .ready()
                .is_some()
        );
    }
}
