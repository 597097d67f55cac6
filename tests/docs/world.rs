//! A temporary folder in which the commands of a page run, with settings and a home of their own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::page::{Page, root};

/// The longest time that the commands of one block may take. The slowest takes 20 seconds in a
/// build without optimisation.
const PATIENCE: Duration = Duration::from_secs(300);
/// What the pages call the server's address.
const ADDRESS: &str = "127.0.0.1:7700";
/// Servers whose tools, and the queries for them, are `my-set`.
const SERVERS_OF_THE_SET: [&str; 4] = ["github", "gmail", "translate", "weather"];
/// Most queries of `my-set`.
const QUERIES_OF_THE_SET: usize = 40;
/// Examples of pages that their commands read from a file: page, language, file. The first block
/// of that language is the file.
const SAVED: [(&str, &str, &str); 4] = [
    ("docs/agent.md", "json", "demo.jsonl"),
    ("docs/gate.md", "toml", "policy.toml"),
    ("docs/mcp.md", "toml", "team.toml"),
    ("docs/settings.md", "toml", "config.toml"),
];

/// The folder, and the server that runs in it.
pub struct World {
    dir: TempDir,
    server: Option<Server>,
    /// Variables that a block has exported, for all later ones.
    exported: Vec<(String, String)>,
}

struct Server {
    process: Child,
    address: String,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path();
        let pages = path.join("page");
        copy(&root().join("fixtures/docs"), &pages);
        for folder in ["fixtures/tools", "fixtures/agent", "fixtures/enrich"] {
            copy(&root().join(folder), &pages.join(folder));
        }
        for file in ["queries.jsonl", "fixtures/queries.jsonl"] {
            fs::copy(root().join("fixtures/queries.jsonl"), pages.join(file)).expect("queries");
        }
        make_set(&pages);
        for (page, language, file) in SAVED {
            let block = Page::read(page).blocks_of(language).remove(0);
            fs::write(pages.join(file), block.text).expect("an example");
        }
        for folder in ["bin", "home"] {
            fs::create_dir(path.join(folder)).expect("a folder");
        }
        symlink(env!("CARGO_BIN_EXE_toolscout"), path.join("bin/toolscout")).expect("a link");
        // An answer of 400 or more is a command that failed.
        let curl = "silent\nshow-error\nfail-with-body\nmax-time = 60\nnoproxy = *\n";
        fs::write(path.join("home/.curlrc"), curl).expect("settings of curl");
        fs::write(path.join("home/config.toml"), "").expect("settings");
        // A client with a server, for `mcp import`.
        let cursor = r#"{"mcpServers":{"notes":{"command":"notes-mcp","env":{"NOTES_KEY":"k"}}}}"#;
        fs::create_dir(path.join("home/.cursor")).expect("a folder");
        fs::write(path.join("home/.cursor/mcp.json"), cursor).expect("settings");
        World {
            dir,
            server: None,
            exported: Vec::new(),
        }
    }

    /// Keeps the variable of a command `export NAME=VALUE` for all later commands, as a terminal does.
    pub fn export(&mut self, command: &str) {
        let assignment = command.strip_prefix("export ").and_then(|rest| {
            let word = rest.split_whitespace().next()?;
            word.split_once('=')
        });
        if let Some((name, value)) = assignment {
            self.exported.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Runs commands as a person would paste them, below the page's folder, and fails if one
    /// does.
    pub fn run(&self, below: &Path, commands: &str) -> Output {
        let commands = match &self.server {
            Some(server) => commands.replace(ADDRESS, &server.address),
            None => commands.to_owned(),
        };
        let mut shell = self.shell(&commands);
        shell.current_dir(self.folder().join(below));
        let child = shell
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let group = child.id();
        let (send, ended) = mpsc::channel();
        thread::spawn(move || send.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(PATIENCE) else {
            kill(group);
            panic!("after {PATIENCE:?} this still runs:\n{commands}");
        };
        let output = output.expect("its output");
        assert!(
            output.status.success(),
            "{} of:\n{commands}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    /// Starts a server by its command, in place of the one before.
    pub fn serve(&mut self, command: &str) {
        self.server = None;
        let rest = command
            .strip_prefix("toolscout serve")
            .expect("a server")
            .replace(&format!("--listen {ADDRESS}"), "");
        assert!(!rest.contains("--listen"), "not on {ADDRESS}: {command}");
        let mut shell = self.shell(&format!("exec toolscout serve --listen 127.0.0.1:0 {rest}"));
        let mut process = shell
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let stdout = process.stdout.take().expect("it is piped");
        // Held from here on, so that it is ended whatever happens.
        let address = String::new();
        let server = self.server.insert(Server { process, address });
        let (send, first) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            send.send(read.map(|_| line))
        });
        let line = first
            .recv_timeout(PATIENCE)
            .expect("a first line")
            .expect("text");
        server.address = line
            .trim()
            .strip_prefix("listening on http://")
            .unwrap_or_else(|| panic!("it did not start: {command}"))
            .to_owned();
        let ready = "curl --retry 60 --retry-delay 1 --retry-all-errors";
        self.run(Path::new("."), &format!("{ready} http://{ADDRESS}/readyz"));
    }

    /// True when a server runs.
    pub fn serves(&self) -> bool {
        self.server.is_some()
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("page")
    }

    /// A shell that knows nothing of this machine, as the leader of a group of processes.
    fn shell(&self, commands: &str) -> Command {
        let dir = self.dir.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", commands])
            .env_clear()
            .env("PATH", format!("{}:{path}", dir.join("bin").display()))
            .env("HOME", dir.join("home"))
            .env("TOOLSCOUT_DATA", dir.join("data"))
            .env("TOOLSCOUT_CACHE", dir.join("cache"))
            .env("TOOLSCOUT_CONFIG", dir.join("home/config.toml"))
            .env("TOOLSCOUT_LLM", "script:answer.jsonl")
            // The profile of the gate's page takes the secret of a service from it.
            .env("EXCHANGE_TOKEN", "secret")
            .envs(self.exported.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .process_group(0);
        shell
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(self.process.id());
        let _ = self.process.wait();
    }
}

/// Ends a group of processes.
fn kill(group: u32) {
    let group = i32::try_from(group)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a file")),
        }
    }
}

/// Makes `my-set`: some of the bundled servers, and the queries that they can answer.
fn make_set(pages: &Path) {
    let set = pages.join("my-set");
    fs::create_dir_all(set.join("tools")).expect("a folder");
    for entry in fs::read_dir(root().join("fixtures/tools")).expect("tools") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if stem.is_some_and(|stem| SERVERS_OF_THE_SET.contains(&stem)) {
            let name = path.file_name().expect("a name");
            fs::copy(&path, set.join("tools").join(name)).expect("a file");
        }
    }
    let queries = fs::read_to_string(root().join("fixtures/queries.jsonl")).expect("queries");
    let answered = queries.lines().filter(|line| {
        let query: Value = serde_json::from_str(line).expect("JSON");
        let relevant = query["relevant"].as_array().expect("ids");
        !relevant.is_empty()
            && relevant.iter().all(|id| {
                let server = id.as_str().and_then(|id| id.split('/').next());
                server.is_some_and(|server| SERVERS_OF_THE_SET.contains(&server))
            })
    });
    let answered: Vec<&str> = answered.take(QUERIES_OF_THE_SET).collect();
    fs::write(set.join("queries.jsonl"), answered.join("\n")).expect("queries");
}
