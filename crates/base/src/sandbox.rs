//! A sandbox for the programs that this program starts: what they may read, write, reach over the
//! network and ask of the system.
//!
//! Linux alone has one here: Landlock for files, signals and ports, and seccomp for system calls. On
//! other systems, and where the kernel lacks a part, a warning says what is missing, and the program
//! runs without that part.

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod system_calls;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tempfile::TempDir;
use tokio::process::{Child, Command};

#[cfg(target_os = "linux")]
use crate::program_file::find_program;

/// What a program in a sandbox may use besides the system's programs and its own folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSettings {
    /// Further files and folders.
    pub files: SandboxFiles,
    /// Whether it may use IPv4 and IPv6.
    pub network: bool,
}

/// Files and folders, with all that is below them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxFiles {
    /// What it may read and run.
    pub read: Vec<PathBuf>,
    /// What it may read, run and change.
    pub write: Vec<PathBuf>,
}

/// Why a program cannot be put into a sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// Its folder holds too much.
    #[error(
        "a sandbox with the folder {folder} keeps nothing out, since {holds} is in it; run this in a folder of its own, name one (`dir` of the shell tool, `cwd` of an MCP server), or switch the sandbox off (`sandbox = false`)",
        folder = folder.display()
    )]
    TooWide {
        /// The folder.
        folder: PathBuf,
        /// What is in it.
        holds: &'static str,
    },
    /// A path of the settings that is not there.
    #[error("`files` of the sandbox names {path}, which cannot be opened: {source}; create it, or leave it out", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Reads `sandbox`: `true`, `false`, or a table of settings.
///
/// # Errors
/// Another value, or an unknown key.
pub fn from_switch<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SandboxSettings>, D::Error> {
    deserializer.deserialize_any(Switch)
}

struct Switch;

impl<'de> Visitor<'de> for Switch {
    type Value = Option<SandboxSettings>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or a table with `files` and `network`")
    }

    fn visit_bool<E>(self, is_on: bool) -> Result<Self::Value, E> {
        Ok(is_on.then(SandboxSettings::default))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        SandboxSettings::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

/// The sandbox of one tool or server.
#[derive(Clone, Debug)]
pub struct Sandbox {
    settings: SandboxSettings,
    /// The folder that it may read and write; none means its private one alone.
    folder: Option<PathBuf>,
    parts: Parts,
}

/// A folder of one run, for temporary files. Deleted on drop.
#[derive(Debug)]
pub struct PrivateFolder(#[expect(dead_code, reason = "it is held for its drop")] TempDir);

/// The parts of a sandbox that this system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Which files it protects, and what else Landlock does.
    pub files: FileProtection,
    /// Whether system calls are restricted, and with them the network.
    pub system_calls: bool,
}

/// What Landlock of the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileProtection {
    /// Nothing: there is none.
    None,
    /// It is older than Linux 6.12.
    Partial,
    /// Everything that is asked of it.
    Full,
}

impl Parts {
    /// Those of this system. It warns once where one is missing.
    pub fn of_this_system() -> Self {
        static PARTS: LazyLock<Parts> = LazyLock::new(|| {
            let parts = probe();
            if let Some(missing) = parts.missing() {
                tracing::warn!("{missing}");
            }
            parts
        });
        *PARTS
    }

    /// What is missing, and what that means.
    pub fn missing(self) -> Option<String> {
        let files = match self.files {
            FileProtection::None => Some(
                "this system has no Landlock, so programs in the sandbox can use all files of their user (Linux has it from 5.13, where it is switched on with `lsm=landlock`)",
            ),
            FileProtection::Partial => Some(
                "Landlock of this kernel is older than Linux 6.12, so programs in the sandbox can send signals to other processes of their user",
            ),
            FileProtection::Full => None,
        };
        let calls = (!self.system_calls).then_some(
            "this system has no seccomp filters, so programs in the sandbox can use the network and all system calls",
        );
        let missing: Vec<&str> = files.into_iter().chain(calls).collect();
        if missing.is_empty() {
            return None;
        }
        Some(format!("the sandbox is incomplete: {}", missing.join("; ")))
    }
}

impl Sandbox {
    /// A sandbox for programs that run in this folder, or each in a new one.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn new(settings: &SandboxSettings, folder: Option<&Path>) -> Result<Self, SandboxError> {
        if let Some(folder) = folder {
            check_width(folder)?;
        }
        let mut settings = settings.clone();
        let files = &mut settings.files;
        for path in files.read.iter_mut().chain(&mut files.write) {
            *path = with_home(path);
            // Here, and not only when the first program is started.
            if let Err(source) = path.metadata() {
                return Err(SandboxError::Path {
                    path: path.clone(),
                    source,
                });
            }
        }
        Ok(Sandbox {
            settings,
            folder: folder.map(Path::to_owned),
            parts: Parts::of_this_system(),
        })
    }

    /// Starts a program, with a private folder for temporary files. That is also its home where
    /// `command` sets none, and where it runs if the sandbox has no folder.
    ///
    /// # Errors
    /// The sandbox or the program cannot be started.
    pub fn start(&self, command: &mut Command) -> io::Result<(Child, PrivateFolder)> {
        let private = tempfile::Builder::new().prefix("toolscout-").tempdir()?;
        command.env("TMPDIR", private.path());
        // A variable without a value is one that is only removed.
        let mut variables = command.as_std().get_envs();
        if !variables.any(|(variable, value)| variable == "HOME" && value.is_some()) {
            command.env("HOME", private.path());
        }
        command.current_dir(self.folder.as_deref().unwrap_or(private.path()));
        let child = self.spawn(command, private.path())?;
        Ok((child, PrivateFolder(private)))
    }

    #[cfg(target_os = "linux")]
    fn spawn(&self, command: &mut Command, private: &Path) -> io::Result<Child> {
        let program = command.as_std().get_program().to_string_lossy();
        let program = find_program(&program);
        let rules = files::Rules {
            settings: &self.settings.files,
            folder: self.folder.as_deref(),
            private,
            program: program.as_deref(),
            has_network: self.settings.network,
        };
        linux::spawn(command, &rules, self.parts)
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "Linux uses it")]
    fn spawn(&self, command: &mut Command, _private: &Path) -> io::Result<Child> {
        command.spawn()
    }
}

#[cfg(target_os = "linux")]
fn probe() -> Parts {
    linux::probe()
}

#[cfg(not(target_os = "linux"))]
fn probe() -> Parts {
    Parts {
        files: FileProtection::None,
        system_calls: false,
    }
}

/// Refuses a folder that holds what a sandbox is to keep out.
fn check_width(folder: &Path) -> Result<(), SandboxError> {
    // A folder that is not there is an error of the start, which names it.
    let Ok(real) = folder.canonicalize() else {
        return Ok(());
    };
    // Compared as the system sees them, since either may be reached through links.
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let holds = match home {
        _ if real.parent().is_none() => "the whole disk",
        Some(home) if home.starts_with(&real) => "your home folder",
        _ => return Ok(()),
    };
    Err(SandboxError::TooWide {
        folder: folder.to_owned(),
        holds,
    })
}

/// A path of the settings; `~` is the home folder.
fn with_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Entry {
        #[serde(deserialize_with = "from_switch")]
        sandbox: Option<SandboxSettings>,
    }

    #[test]
    fn a_sandbox_is_a_switch_or_a_table() {
        let read = |text: &str| toml::from_str::<Entry>(text).map(|entry| entry.sandbox);
        assert_eq!(read("sandbox = false").unwrap(), None);
        assert_eq!(
            read("sandbox = true").unwrap(),
            Some(SandboxSettings::default())
        );
        let table = read("sandbox = { network = true, files = { read = [\"/opt\"] } }");
        let table = table.unwrap().unwrap();
        assert!(table.network);
        assert_eq!(table.files.read, [Path::new("/opt")]);
        for wrong in [
            "sandbox = 1",
            "sandbox = \"yes\"",
            "sandbox = { netwrok = true }",
            "sandbox = { files = { reads = [] } }",
            "sandbox = { files = [\"/opt\"] }",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_folder_that_holds_everything_is_refused() {
        let home = std::env::home_dir().unwrap();
        for folder in [
            Path::new("/"),
            &home,
            &home.join("."),
            home.parent().unwrap(),
        ] {
            let refused = Sandbox::new(&SandboxSettings::default(), Some(folder));
            let refused = refused.expect_err("it is refused").to_string();
            assert!(refused.contains("keeps nothing out"), "{refused}");
        }
        let folder = tempfile::tempdir().unwrap();
        Sandbox::new(&SandboxSettings::default(), Some(folder.path())).unwrap();
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        for (read, write) in [("/nowhere/a", ""), ("", "/nowhere/b"), ("~/no/such/c", "")] {
            let paths = |text: &str| match text {
                "" => Vec::new(),
                text => vec![PathBuf::from(text)],
            };
            let files = SandboxFiles {
                read: paths(read),
                write: paths(write),
            };
            let settings = SandboxSettings {
                files,
                network: false,
            };
            let error = Sandbox::new(&settings, None).unwrap_err().to_string();
            let name = Path::new(read).join(write);
            let name = name.file_name().unwrap().to_string_lossy();
            assert!(error.contains(&*name), "{error}");
        }
    }

    #[test]
    fn what_a_system_lacks_is_said() {
        let missing = |files, system_calls| {
            Parts {
                files,
                system_calls,
            }
            .missing()
        };
        assert_eq!(missing(FileProtection::Full, true), None);
        for (files, system_calls, expected) in [
            (FileProtection::None, true, "no Landlock"),
            (FileProtection::Partial, true, "signals"),
            (FileProtection::Full, false, "no seccomp"),
            (FileProtection::None, false, "no Landlock"),
        ] {
            let said = missing(files, system_calls).unwrap();
            assert!(said.contains(expected), "{said}");
        }
    }
}
