//! Runs a test of the same binary in another process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Set in the child: the folder it works in.
const FOLDER: &str = "TOOLSCOUT_TEST_FOLDER";

/// The folder a parent gave to this process; `None` in the parent itself.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// This binary, about to run one test in a folder.
pub fn command(test: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(FOLDER, folder);
    command
}

/// Runs one test in a folder where a shell `script` has mounted something first (`$1` is the
/// folder), in a mount namespace that ends with it. False, with the reason printed, where
/// namespaces are not allowed.
pub fn run_mounted(test: &str, folder: &Path, script: &str) -> bool {
    let allowed = Command::new("unshare")
        .args(["-rm", "true"])
        .stderr(Stdio::null())
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("skipped: this system does not let a test make its own mounts (`unshare -rm`)");
        return false;
    }
    let script =
        format!("set -e; {script}; exec \"$2\" \"$3\" --exact --nocapture --include-ignored");
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script, "sh"]).arg(folder);
    command
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(FOLDER, folder);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
    true
}
