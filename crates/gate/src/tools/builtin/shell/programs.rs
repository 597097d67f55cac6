//! Programs for which an entry of the allow-list has to say more than their name. Pure.

use std::ffi::OsStr;
use std::path::Path;

/// Programs that run their arguments: with open arguments, an entry for one of them allows
/// everything.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "env", "xargs", "nice",
    "nohup", "timeout", "time", "setsid", "stdbuf", "sudo", "doas", "su", "chroot", "ssh", "watch",
    "parallel", "script", "strace", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno",
    "bun", "php", "lua", "tclsh", "awk", "gawk", "mawk", "nawk", "sed", "gsed", "ed", "vi", "vim",
    "emacs", "npx", "uvx", "pipx",
];

/// Programs whose first argument is a command or a group of options without `-`: with open arguments,
/// an entry for one of them would allow all of these.
const WITH_COMMANDS: &[&str] = &[
    "git",
    "hg",
    "svn",
    "gh",
    "docker",
    "podman",
    "kubectl",
    "helm",
    "terraform",
    "aws",
    "gcloud",
    "az",
    "cargo",
    "go",
    "npm",
    "pnpm",
    "yarn",
    "pip",
    "uv",
    "poetry",
    "make",
    "cmake",
    "apt",
    "apt-get",
    "dnf",
    "brew",
    "dpkg",
    "rpm",
    "systemctl",
    "openssl",
    "gpg",
    "ip",
    "mount",
    "tar",
    "gtar",
    "bsdtar",
    "ar",
    "dd",
    "zip",
    "7z",
];

/// True if any further arguments would let the program run or write anything: it runs its arguments or
/// has commands, and no script or command is among the arguments so far.
pub fn is_too_open(path: &Path, arguments: &[String]) -> bool {
    let names = names(path);
    if !has_any(&names, INTERPRETERS) && !has_any(&names, WITH_COMMANDS) {
        return false;
    }
    // `tar -t` lists, whatever follows.
    let is_listing = has_any(&names, &["tar", "gtar", "bsdtar"])
        && matches!(arguments, [first, ..] if ["-t", "-tf"].contains(&first.as_str()));
    // An argument that is no option is a script or a command, which the entry limits the program to.
    !is_listing && arguments.iter().all(|argument| argument.starts_with('-'))
}

fn has_any(names: &[String], list: &[&str]) -> bool {
    names.iter().any(|name| list.contains(&name.as_str()))
}

/// The names of a program without a version: that of its path, and that of the file to which a link
/// leads.
fn names(path: &Path) -> Vec<String> {
    // Both, because `python3` is a link to `python3.12`, and `awk` often one to another program.
    let mut paths = vec![path.to_owned()];
    paths.extend(path.canonicalize());
    let names = paths.iter().filter_map(|path| path.file_name());
    names.map(without_version).collect()
}

fn without_version(file_name: &OsStr) -> String {
    let name = file_name.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".exe").unwrap_or(&name);
    let is_of_version = |letter: char| letter.is_ascii_digit() || ['.', '-'].contains(&letter);
    name.trim_end_matches(is_of_version).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_recognized_with_any_version() {
        for path in [
            "sh",
            "/bin/bash",
            "python3.12",
            "perl5",
            "node-22",
            "SH.EXE",
            "/usr/bin/git",
            "tar",
        ] {
            assert!(is_too_open(Path::new(path), &[]), "{path}");
        }
        assert!(!is_too_open(Path::new("cat"), &[]));
        let fixed = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        assert!(is_too_open(Path::new("git"), &fixed(&["--no-pager"])));
        assert!(is_too_open(Path::new("sh"), &fixed(&["-t"])));
        assert!(!is_too_open(Path::new("git"), &fixed(&["log"])));
        assert!(!is_too_open(Path::new("tar"), &fixed(&["-tf"])));
    }
}
