//! Starts a program in a sandbox.
//!
//! Landlock and seccomp restrict a thread and what that thread starts. So a thread of its own
//! restricts itself, starts the program, and ends. Nothing has to run between fork and exec, and the
//! rest of this program stays as it is.

use std::io;
use std::thread;

use landlock::{ABI, LandlockStatus, RulesetCreated};
use tokio::process::{Child, Command};

use crate::sandbox::files::{self, Rules};
use crate::sandbox::{FileProtection, Parts, system_calls};

/// Starts it with as much of the sandbox as the system has.
///
/// # Errors
/// A part that the system has cannot be set up, or the program cannot be started.
pub fn spawn(command: &mut Command, rules: &Rules<'_>, parts: Parts) -> io::Result<Child> {
    let ruleset = match parts.files {
        FileProtection::None => None,
        FileProtection::Partial | FileProtection::Full => Some(rules.ruleset()?),
    };
    close_files_at_start();
    let runtime = tokio::runtime::Handle::current();
    in_thread(|| {
        // Tokio starts programs only within a runtime, which other threads are not in.
        let _entered = runtime.enter();
        if let Some(ruleset) = ruleset {
            restrict(ruleset)?;
        }
        if parts.system_calls {
            system_calls::restrict(rules.has_network)?;
        }
        command.spawn()
    })
}

/// The parts that this system has, by trying them.
pub fn probe() -> Parts {
    let files = in_thread(|| restrict(files::empty_ruleset(false)?));
    let system_calls = in_thread(|| system_calls::restrict(false));
    Parts {
        files: files.unwrap_or(FileProtection::None),
        system_calls: system_calls.is_ok(),
    }
}

/// Restricts this thread, for good.
fn restrict(ruleset: RulesetCreated) -> io::Result<FileProtection> {
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if effective_abi >= ABI::V6 => {
            FileProtection::Full
        }
        LandlockStatus::Available { .. } => FileProtection::Partial,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => FileProtection::None,
    })
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("sandbox".to_owned());
        let running = thread.spawn_scoped(scope, work)?;
        let ended = running.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the sandbox could not be set up")))
    })
}

/// Files that somebody left open for this program are not meant for those it starts.
fn close_files_at_start() {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: it takes no pointers, and changes only whether a new program gets open files. This
    // program passes none on but the standard streams, which are below 3.
    let _ = unsafe { libc::close_range(3, libc::c_uint::MAX, flags) };
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sandbox::{Sandbox, SandboxSettings};

    /// Reads a file outside and makes a socket, with these parts of the sandbox.
    async fn attempt(parts: Parts) -> (bool, bool) {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        let mut sandbox = Sandbox::new(&SandboxSettings::default(), Some(folder.path())).unwrap();
        sandbox.parts = parts;
        let run = async |program: &str, arguments: &[&Path]| {
            let mut command = Command::new(program);
            command.args(arguments);
            let (mut child, _private) = sandbox.start(&mut command).unwrap();
            child.wait().await.unwrap().success()
        };
        let reads = run("cat", &[&secret]).await;
        // Changing a mode is refused by the filter of system calls alone.
        let changes = run("chmod", &[Path::new("600"), &secret]).await;
        (reads, changes)
    }

    #[tokio::test]
    async fn a_kernel_without_a_part_still_gives_the_other() {
        let here = Parts::of_this_system();
        for (has_files, has_calls) in [(true, true), (false, true), (true, false), (false, false)] {
            let files = match has_files {
                true => here.files,
                false => FileProtection::None,
            };
            let parts = Parts {
                files,
                system_calls: has_calls && here.system_calls,
            };
            let expected = (files == FileProtection::None, !parts.system_calls);
            assert_eq!(attempt(parts).await, expected, "{parts:?}");
        }
    }
}
