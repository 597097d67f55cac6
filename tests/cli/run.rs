//! Runs the program in a temporary directory.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A temporary directory with a data directory, a cache and files.
pub struct World {
    pub dir: TempDir,
}

/// The result of a run.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program with hashed words for an embedding model.
pub fn run_with_hashing(world: &World, args: &[&str]) -> Ended {
    let mut command = world.command();
    command
        .env("TOOLSCOUT_EMBEDDER", "hashing")
        .args(args)
        .stdin(Stdio::null());
    Ended::of(command.output())
}

impl World {
    /// An empty directory.
    pub fn new() -> Self {
        World {
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// A directory whose default catalog has these tools.
    pub fn with_tools(tools: &[Value]) -> Self {
        let world = World::new();
        let file = world.file("tools.json", json!(tools).to_string());
        world.ok(&["add", file.to_str().expect("UTF-8")]);
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// The program without the settings of this machine, and without a model.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path());
        command
            .env("TOOLSCOUT_DATA", self.path("data"))
            .env("TOOLSCOUT_CACHE", self.path("cache"));
        command
            .env("TOOLSCOUT_EMBEDDER", "none")
            .current_dir(self.dir.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::of(self.command().args(args).stdin(Stdio::null()).output())
    }

    /// Runs with this on stdin.
    pub fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ended {
        let mut command = self.command();
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // A program that has failed early does not read its stdin.
        let _ = child.stdin.take().expect("a pipe").write_all(stdin);
        Ended::of(child.wait_with_output())
    }

    /// Runs a command that must succeed, and returns its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    }

    /// Runs a command that must succeed with `--json`, and returns the JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let stdout = self.ok(&[args, &["--json"]].concat());
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// Runs a command that must fail with this code and print these texts on stderr. The error is
    /// the last message there; its further lines are indented.
    pub fn fails(&self, code: i32, args: &[&str], expected: &[&str]) {
        self.run(args).failed(code, expected);
    }

    /// The ids in the default catalog.
    pub fn ids(&self) -> Vec<String> {
        let listed = self.json(&["list"]);
        let ids = listed.as_array().expect("an array").iter();
        ids.map(|tool| tool["id"].as_str().expect("an id").to_owned())
            .collect()
    }
}

impl Ended {
    pub fn of(output: std::io::Result<Output>) -> Self {
        let output = output.expect("the program runs");
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// What it printed, read as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    pub fn failed(&self, code: i32, expected: &[&str]) {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for part in expected {
            says(&self.stderr, part);
        }
        if code == 1 {
            let last = self.stderr.lines().rfind(|line| !line.starts_with("  "));
            assert!(
                last.is_some_and(|line| line.starts_with("error: ")),
                "{}",
                self.stderr
            );
        }
    }
}

/// The program as a server, ended when dropped.
pub struct Serving {
    child: Child,
    pub address: String,
}

impl Serving {
    /// Starts a command that serves, and reads its address from its first line.
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line}"))
            .to_owned();
        Serving { child, address }
    }

    /// A client, once the server is ready.
    pub fn client(&self) -> reqwest::blocking::Client {
        let client = toolscout::tls::blocking_client()
            .no_proxy()
            .build()
            .expect("a client");
        let ready = || client.get(format!("{}/readyz", self.address)).send();
        // The address is printed before the catalogs are open, and no line says when they are.
        while !ready().expect("an answer").status().is_success() {
            std::thread::yield_now();
        }
        client
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tool as MCP writes it.
pub fn tool(server: &str, name: &str, description: &str) -> Value {
    json!({
        "server": server,
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
    })
}

/// Four tools of two servers.
pub fn four_tools() -> Vec<Value> {
    vec![
        tool(
            "github",
            "create_issue",
            "Opens a new issue in a repository.",
        ),
        tool("github", "list_commits", "Lists the commits of a branch."),
        tool(
            "mail",
            "sendMessage",
            "Sends an e-mail to one or more people.",
        ),
        tool(
            "mail",
            "search_inbox",
            "Finds e-mails by sender, subject or text.",
        ),
    ]
}

/// Checks that a text has this part.
#[track_caller]
pub fn says(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
