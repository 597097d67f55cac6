//! Programs of the shell tool that are to do more than they were allowed for.

use serde_json::json;
use toolscout::tools::Callable;
use toolscout::tools::builtin::shell::{Shell, ShellConfig};

use super::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "The shell tool",
    attacks: &[
        Attack {
            tried: "`git log --output=FILE`, where the README's example allows `git log`",
            happens: "Refused: an entry is the whole call unless it ends in `*`",
            test: "the_example_of_the_readme_writes_no_file",
        },
        Attack {
            tried: "Options that write or run something (`--output`, `-o`, `--exec`, `-exec`, `-c`, `-i` …) where a `*` allows more arguments, after `--` too",
            happens: "Refused: `*` stands for arguments that are no options; those that are allowed are named after it one by one",
            test: "known_writing_options_are_refused_even_with_a_star",
        },
        Attack {
            tried: "A profile that allows `sh *`, `env *`, `python -I *`, `git *` or `tar *`, which is every program or command there is",
            happens: "The profile is refused; the script or the command has to be part of the entry",
            test: "an_interpreter_with_any_arguments_is_no_entry",
        },
        Attack {
            tried: "`git` finds programs in the settings of its user: hooks, `core.fsmonitor`, an alias",
            happens: "Nothing runs: the environment has none of the user's variables, no files of settings but the repository's are read, and hooks are off",
            test: "git_runs_no_programs_of_its_settings",
        },
        Attack {
            tried: "The settings of a repository name programs that show a difference or a file: `diff.external`, `diff.NAME.command`, `diff.NAME.textconv`",
            happens: "Nothing runs: `diff`, `log`, `show`, `grep`, `blame` and the like get the options that switch these off",
            test: "git_runs_no_programs_to_show_contents",
        },
        Attack {
            tried: "The settings of a repository name a filter (`filter.NAME.clean`), which no option of `git` switches off",
            happens: "It runs in the sandbox: it reads and writes nothing outside the folder of the tool",
            test: "a_filter_of_a_repository_stays_in_the_sandbox",
        },
    ],
};

fn shell(allow: &[&str], dir: &std::path::Path) -> Shell {
    let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
    let config = json!({ "allow": allow, "dir": dir });
    Shell::new(&serde_json::from_value::<ShellConfig>(config).unwrap()).unwrap()
}

fn call(shell: &Shell, words: &[&str]) -> Result<serde_json::Value, String> {
    let arguments = json!({ "argv": words }).as_object().unwrap().clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(shell.call(arguments))
        .map_err(|failure| failure.message)
}

/// The entries that the page on the gate shows.
fn documented_entries() -> Vec<String> {
    let page = include_str!("../../docs/gate.md");
    let after = page.split("[tools.shell]").nth(1).expect("the example");
    let line = after
        .lines()
        .find(|line| line.starts_with("allow = "))
        .expect("its entries");
    let list = line
        .trim_start_matches("allow = ")
        .split(']')
        .next()
        .expect("a list");
    serde_json::from_str(&format!("{list}]")).expect("a list of texts")
}

#[test]
fn the_example_of_the_readme_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(args)
            .current_dir(folder.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.output().unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&[
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "first",
    ]);
    let entries = documented_entries();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let tool = shell(&entries, folder.path());
    for words in [
        &["git", "log", "--output=written"][..],
        &["git", "log", "--output", "written"],
        &["git", "log", "-p", "--outpu=written"],
        &["git", "log", "--oneline", "--output=written"],
        &["git", "status", "--output=written"],
    ] {
        let refused = call(&tool, words).expect_err("it is refused");
        assert!(refused.contains("not allowed"), "{words:?}: {refused}");
        assert!(!folder.path().join("written").exists(), "{words:?}");
    }
    assert_eq!(call(&tool, &["git", "log"]).unwrap()["exit_code"], 0);
}

#[test]
fn known_writing_options_are_refused_even_with_a_star() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), "b\na\n").unwrap();
    let tool = shell(
        &[
            "git log * --oneline --since=",
            "git fetch *",
            "git grep *",
            "find *",
            "sort * -r",
            "tar -t *",
            "sed -n 1p *",
        ],
        folder.path(),
    );
    let mut wrong = Vec::new();
    let rows: &[(&[&str], &str)] = &[
        (&["git", "log", "--output=x"], "--output=x"),
        (&["git", "log", "--outp", "x"], "--outp"),
        (&["git", "log", "-ox"], "-ox"),
        (&["git", "log", "-c", "core.pager=touch x"], "-c"),
        (
            &["git", "log", "--oneline", "--", "--output=x"],
            "--output=x",
        ),
        (&["git", "log", "--onelin"], "--onelin"),
        (&["git", "log", "--since"], "--since"),
        (&["git", "log", "--ext-diff"], "--ext-diff"),
        (
            &["git", "fetch", "--upload-pack=touch x", "."],
            "--upload-pack=touch x",
        ),
        (&["git", "grep", "-Otouch", "a"], "-Otouch"),
        (&["find", ".", "-exec", "touch", "x", ";"], "-exec"),
        (&["find", ".", "-execdir", "touch", "x", ";"], "-execdir"),
        (&["find", ".", "-delete"], "-delete"),
        (&["find", ".", "-fprint", "x"], "-fprint"),
        (&["sort", "in", "-o", "x"], "-o"),
        (&["sort", "-nox", "in"], "-nox"),
        (&["sort", "--out=x", "in"], "--out=x"),
        (
            &["sort", "--compress-program=touch", "in"],
            "--compress-program=touch",
        ),
        (
            &["tar", "-t", "--to-command=touch x", "-f", "in"],
            "--to-command=touch x",
        ),
        (
            &["tar", "-t", "--checkpoint-action=exec=touch x"],
            "--checkpoint-action=exec=touch x",
        ),
        (&["tar", "-t", "-xf", "in"], "-xf"),
        (&["sed", "-n", "1p", "-i", "in"], "-i"),
        (&["sed", "-n", "1p", "-e", "w x", "in"], "-e"),
        (&["sed", "-n", "1p", "--in-place=~", "in"], "--in-place=~"),
    ];
    for (words, named) in rows {
        match call(&tool, words) {
            Err(message) if message.contains(&format!("{named:?}")) => {}
            Err(message) => wrong.push(format!(
                "{words:?} is refused without its reason: {message}"
            )),
            Ok(_) => wrong.push(format!("{words:?} is carried out")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} rows:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
    for (words, expected) in [
        (&["sort", "-r", "in"][..], "b\na\n"),
        (&["sed", "-n", "1p", "in"], "b\n"),
        (&["find", "in"], "in\n"),
    ] {
        assert_eq!(call(&tool, words).unwrap()["stdout"], expected, "{words:?}");
    }
}

#[test]
fn an_interpreter_with_any_arguments_is_no_entry() {
    for entry in [
        "sh *",
        "env *",
        "awk *",
        "xargs *",
        "/bin/sh *",
        "sed *",
        "sed -n *",
        "git *",
        "git --no-pager *",
        "tar *",
        "tar * -t",
    ] {
        let config = ShellConfig {
            allow: vec![entry.to_owned()],
            ..serde_json::from_value(json!({ "allow": [] })).unwrap()
        };
        let refused = Shell::new(&config).expect_err(entry).to_string();
        assert!(
            refused.contains(entry) && refused.contains("script"),
            "{refused}"
        );
    }
}

/// A repository with a program in it.
struct Repository {
    folder: tempfile::TempDir,
    program: std::path::PathBuf,
}

impl Repository {
    fn with_program(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        let repository = Repository { folder, program };
        repository.git(&["init", "-q"]);
        repository
    }

    fn git(&self, args: &[&str]) {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b"]);
        command.args(args).current_dir(self.folder.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.output().unwrap().status.success(), "{args:?}");
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.path().join(file), text).unwrap();
    }
}

#[test]
fn git_runs_no_programs_to_show_contents() {
    let repository = Repository::with_program("touch ran; cat \"$1\"");
    let program = repository.program.to_str().unwrap();
    repository.write("a.txt", "one\n");
    repository.write(".gitattributes", "*.txt diff=shown\n");
    repository.git(&["add", "a.txt", ".gitattributes"]);
    repository.git(&["commit", "-q", "-m", "first"]);
    repository.write("a.txt", "two\n");
    repository.git(&["commit", "-q", "-m", "second", "a.txt"]);
    repository.write("a.txt", "three\n");
    let entries = [
        "git diff *",
        "git log * -p --ext-diff",
        "git show *",
        "git grep *",
        "git blame *",
        "git diff-files * -p",
        "git --no-pager diff",
    ];
    let tool = shell(&entries, repository.folder.path());
    for setting in ["diff.external", "diff.shown.command", "diff.shown.textconv"] {
        repository.git(&["config", setting, program]);
        for words in [
            &["git", "diff"][..],
            &["git", "log", "-p"],
            &["git", "show", "HEAD"],
            &["git", "grep", "t"],
            &["git", "blame", "a.txt"],
            &["git", "diff-files", "-p"],
            &["git", "--no-pager", "diff"],
        ] {
            let answer = call(&tool, words).unwrap();
            assert_eq!(answer["exit_code"], 0, "{words:?}: {answer}");
            let ran = repository.folder.path().join("ran").exists();
            assert!(!ran, "{setting}: {words:?}");
        }
        repository.git(&["config", "--unset", setting]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_filter_of_a_repository_stays_in_the_sandbox() {
    use toolscout::sandbox::{FileProtection, Parts};
    if Parts::of_this_system().files == FileProtection::None {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("ran");
    let script = format!("touch inside; touch {}; cat", target.display());
    let repository = Repository::with_program(&script);
    repository.write("a.txt", "one\n");
    repository.git(&["add", "a.txt"]);
    repository.git(&["commit", "-q", "-m", "first"]);
    repository.write(".gitattributes", "*.txt filter=shown\n");
    repository.write("a.txt", "two\n");
    let program = repository.program.to_str().unwrap();
    repository.git(&["config", "filter.shown.clean", program]);
    let tool = shell(&["git diff", "git status"], repository.folder.path());
    for words in [&["git", "diff"][..], &["git", "status"]] {
        call(&tool, words).unwrap();
        assert!(!target.exists(), "{words:?}");
    }
    assert!(repository.folder.path().join("inside").exists());
}

#[test]
fn git_runs_no_programs_of_its_settings() {
    let repository = Repository::with_program("touch ran");
    let (folder, program) = (&repository.folder, &repository.program);
    let hooks = folder.path().join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in ["pre-commit", "post-checkout", "post-index-change"] {
        std::fs::copy(program, hooks.join(hook)).unwrap();
    }
    repository.git(&["config", "core.fsmonitor", program.to_str().unwrap()]);
    let tool = shell(
        &["git status *", "git add *", "git checkout *"],
        folder.path(),
    );
    for words in [
        &["git", "status", "."][..],
        &["git", "add", "program"],
        &["git", "checkout", "program"],
    ] {
        let _ = call(&tool, words);
        assert!(!folder.path().join("ran").exists(), "{words:?}");
    }
}
