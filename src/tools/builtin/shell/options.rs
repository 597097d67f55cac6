//! Options by which well-known programs write a file or start another program. They are refused
//! even if an entry of the allow-list allows any arguments. Pure.

use std::path::Path;

/// The refused options of some programs.
struct Known {
    /// File names of the programs.
    programs: &'static [&'static str],
    /// Letters of short options: refused alone, with a value attached, and in a group (`-xo`).
    letters: &'static str,
    /// Long options without `--`: refused also with a value attached, and abbreviated.
    long: &'static [&'static str],
    /// Arguments that are refused if they match exactly.
    words: &'static [&'static str],
}

const NOTHING: Known = Known {
    programs: &[],
    letters: "",
    long: &[],
    words: &[],
};

const KNOWN: &[Known] = &[
    Known {
        programs: &["git"],
        letters: "cCoOx",
        long: &[
            "output",
            "output-directory",
            "exec",
            "exec-path",
            "config-env",
            "git-dir",
            "work-tree",
            "upload-pack",
            "receive-pack",
            "open-files-in-pager",
            "ext-diff",
            "textconv",
            "extcmd",
            "tool",
            "template",
            "separate-git-dir",
        ],
        ..NOTHING
    },
    Known {
        programs: &["find", "gfind", "bfs"],
        words: &[
            "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf",
            "-fls",
        ],
        ..NOTHING
    },
    Known {
        programs: &["fd", "fdfind"],
        letters: "xX",
        long: &["exec", "exec-batch"],
        ..NOTHING
    },
    Known {
        programs: &["sort", "gsort"],
        letters: "oT",
        long: &["output", "compress-program", "temporary-directory"],
        ..NOTHING
    },
    Known {
        programs: &["curl"],
        letters: "oOKTDcJw",
        long: &[
            "output",
            "output-dir",
            "remote-name",
            "remote-name-all",
            "remote-header-name",
            "config",
            "upload-file",
            "dump-header",
            "cookie-jar",
            "trace",
            "trace-ascii",
            "stderr",
            "libcurl",
            "hsts",
            "alt-svc",
            "etag-save",
            "write-out",
            "create-dirs",
            "engine",
        ],
        ..NOTHING
    },
    Known {
        programs: &["tar", "gtar", "bsdtar"],
        letters: "xcruAIFgM",
        long: &[
            "extract",
            "get",
            "create",
            "append",
            "update",
            "catenate",
            "concatenate",
            "delete",
            "to-command",
            "use-compress-program",
            "checkpoint-action",
            "info-script",
            "new-volume-script",
            "rsh-command",
            "rmt-command",
            "remove-files",
            "listed-incremental",
            "index-file",
            "volno-file",
        ],
        ..NOTHING
    },
    Known {
        programs: &["sed", "gsed"],
        letters: "ief",
        long: &["in-place", "expression", "file"],
        ..NOTHING
    },
    Known {
        programs: &["awk", "gawk", "mawk", "nawk"],
        letters: "fileEopdDW",
        long: &[
            "file",
            "include",
            "load",
            "source",
            "exec",
            "pretty-print",
            "profile",
            "debug",
            "dump-variables",
        ],
        ..NOTHING
    },
    Known {
        programs: &["rg", "ag"],
        long: &["pre", "hostname-bin", "pager"],
        ..NOTHING
    },
    Known {
        programs: &["less", "man"],
        letters: "oOPHC",
        long: &["log-file", "pager", "html"],
        ..NOTHING
    },
    Known {
        programs: &["jq", "yq"],
        letters: "iL",
        long: &["inplace", "library-path"],
        ..NOTHING
    },
    Known {
        programs: &["date"],
        letters: "s",
        long: &["set"],
        ..NOTHING
    },
    Known {
        programs: &["tree", "iconv", "shuf"],
        letters: "o",
        long: &["output"],
        ..NOTHING
    },
];

/// Programs that run their arguments: with open arguments, an entry for one of them allows
/// everything.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox", "env", "xargs", "nice",
    "nohup", "timeout", "time", "setsid", "stdbuf", "sudo", "doas", "su", "chroot", "ssh", "watch",
    "parallel", "script", "strace", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno",
    "bun", "php", "lua", "tclsh", "awk", "gawk", "mawk", "nawk", "sed", "gsed", "ed", "vi", "vim",
    "emacs", "npx", "uvx", "pipx",
];

/// The first argument by which this program writes a file or starts a program.
pub fn find_writing<'a>(path: &Path, arguments: &'a [String]) -> Option<&'a str> {
    let names = names(path);
    let known: Vec<&Known> = KNOWN.iter().filter(|known| known.is_of(&names)).collect();
    arguments
        .iter()
        .map(String::as_str)
        .find(|argument| known.iter().any(|known| known.refuses(argument)))
}

/// True for a program that runs its arguments.
pub fn is_interpreter(path: &Path) -> bool {
    names(path)
        .iter()
        .any(|name| INTERPRETERS.contains(&name.as_str()))
}

/// The names of a program without a version: that of its path, and that of the file to which a link
/// leads.
fn names(path: &Path) -> Vec<String> {
    // Both, because `python3` is a link to `python3.12`, and `awk` often one to another program.
    let mut paths = vec![path.to_owned()];
    paths.extend(path.canonicalize());
    let name = |path: &std::path::PathBuf| {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".exe").unwrap_or(&name);
        Some(
            name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
                .to_owned(),
        )
    };
    paths.iter().filter_map(name).collect()
}

impl Known {
    fn is_of(&self, names: &[String]) -> bool {
        names
            .iter()
            .any(|name| self.programs.contains(&name.as_str()))
    }

    fn refuses(&self, argument: &str) -> bool {
        if self.words.contains(&argument) {
            return true;
        }
        if let Some(long) = argument.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or_default();
            // Programs accept any unambiguous abbreviation of a long option.
            return !name.is_empty() && self.long.iter().any(|option| option.starts_with(name));
        }
        match argument.strip_prefix('-') {
            // Every letter of a group counts, also those of an attached value: which letters take a
            // value differs between programs, and refusing too much is safe.
            Some(group) => group.chars().any(|letter| self.letters.contains(letter)),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(program: &str, argument: &str) -> bool {
        find_writing(Path::new(program), &[argument.to_owned()]).is_some()
    }

    #[test]
    fn options_are_refused_in_every_spelling() {
        for (program, argument) in [
            ("git", "--output"),
            ("/usr/bin/git", "--outp=x"),
            ("curl", "-sSLo"),
            ("curl", "-ofile"),
            ("curl", "--remote-n"),
            ("jq", "--inp"),
            ("gawk", "-f"),
            ("find", "-okdir"),
            ("tar", "-xzf"),
            ("sort", "-ro"),
            ("sed", "-ni"),
        ] {
            assert!(refused(program, argument), "{program} {argument}");
        }
        for (program, argument) in [
            ("git", "--oneline"),
            ("git", "-p"),
            ("git", "HEAD~3"),
            ("git", "-"),
            ("git", "--"),
            ("curl", "-s"),
            ("curl", "--fail"),
            ("find", "-name"),
            ("find", "-o"),
            ("sort", "-rn"),
            ("tar", "-tf"),
            ("unheard-of", "-o"),
        ] {
            assert!(!refused(program, argument), "{program} {argument}");
        }
    }

    #[test]
    fn interpreters_are_recognized_with_any_version() {
        for path in [
            "sh",
            "/bin/bash",
            "python3.12",
            "perl5",
            "node-22",
            "SH.EXE",
        ] {
            assert!(is_interpreter(Path::new(path)), "{path}");
        }
        assert!(!is_interpreter(Path::new("/usr/bin/git")) && !is_interpreter(Path::new("cat")));
    }
}
