//! A server as a child process: started in a process group of its own, with its standard error
//! read, and ended as a group.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::server_logs::{LogFile, LogWriter};
use crate::watchdog::Watchdog;
use toolscout_base::sandbox::{PrivateFolder, Sandbox, SandboxSettings};

/// Environment variables that every server inherits. Others may hold secrets that are not meant for
/// it; those it needs are in its configuration.
const INHERITED_VARIABLES: [&str; 26] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "SystemRoot",
    "APPDATA",
];
/// Those of them that a server in a sandbox inherits: the others name what it cannot use.
const INHERITED_IN_SANDBOX: [&str; 6] = ["PATH", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];
/// Bytes stored of the end of a server's standard error.
const STDERR_TAIL_BYTES: usize = 2 << 10;
/// Bytes of standard error that are logged, at level debug. The rest is read and not logged.
const LOGGED_BYTES: usize = 64 << 10;

/// The program to start.
pub struct Program<'a> {
    /// The server's name, for the log.
    pub server: &'a Arc<str>,
    pub command: &'a str,
    pub args: &'a [String],
    /// Its environment variables, besides those that every server inherits.
    pub env: &'a BTreeMap<String, String>,
    /// Its working directory.
    pub cwd: Option<&'a Path>,
    /// What it may use besides that directory; none for no sandbox.
    pub sandbox: Option<&'a SandboxSettings>,
    /// Where its standard error is kept.
    pub log: Option<LogFile>,
}

/// A running server.
pub struct Process {
    child: Child,
    group: Option<u32>,
    watchdog: Arc<Watchdog>,
    stderr_tail: StderrTail,
    /// Reads its standard error to the end.
    draining: Option<JoinHandle<()>>,
    /// Its folder for temporary files, in a sandbox.
    _private: Option<PrivateFolder>,
}

/// The end of a server's standard error.
#[derive(Clone, Default)]
pub struct StderrTail(Arc<Mutex<Vec<u8>>>);

impl Process {
    /// Starts a server, and returns its standard output and input.
    ///
    /// # Errors
    /// When the program or its sandbox cannot be started.
    pub fn start(
        program: &Program<'_>,
        watchdog: &Arc<Watchdog>,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut command = Command::new(program.command);
        command.args(program.args).env_clear().kill_on_drop(true);
        let inherited: &[&str] = match program.sandbox {
            Some(_) => &INHERITED_IN_SANDBOX,
            None => &INHERITED_VARIABLES,
        };
        for name in inherited {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        // After the inherited ones, so that the configuration can replace them.
        command.envs(program.env);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(cwd) = program.cwd {
            command.current_dir(cwd);
        }
        // A group of its own, so that everything the server starts can be killed with it.
        #[cfg(unix)]
        command.process_group(0);
        let (mut child, private) = spawn(&mut command, program)?;
        // Elsewhere there are no groups of processes.
        let group = if cfg!(unix) { child.id() } else { None };
        if let Some(group) = group {
            watchdog.watch(group);
        }
        let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(io::Error::other("a standard stream is missing"));
        };
        let stderr_tail = StderrTail::default();
        let stderr = child.stderr.take();
        let server = Arc::clone(program.server);
        let log = program.log.clone();
        let draining = stderr.map(|stderr| drain(stderr, server, stderr_tail.clone(), log));
        let draining = draining.map(tokio::spawn);
        Ok((
            Process {
                child,
                group,
                watchdog: Arc::clone(watchdog),
                stderr_tail,
                draining,
                _private: private,
            },
            stdout,
            stdin,
        ))
    }

    /// The end of its standard error.
    pub fn stderr_tail(&self) -> StderrTail {
        self.stderr_tail.clone()
    }

    /// Ends the server, whose input is closed: waits for it to exit, then sends SIGTERM, then
    /// SIGKILL. Each step waits for `exit_timeout`. The rest of its process group is killed too.
    pub async fn end(mut self, exit_timeout: Duration) {
        // MCP's shutdown for stdio: the closed input is the request to exit.
        if timeout(exit_timeout, self.child.wait()).await.is_err() {
            if let Some(group) = self.group {
                self.watchdog.terminate(group);
            }
            let _ = timeout(exit_timeout, self.child.wait()).await;
        }
        self.kill_group();
        let _ = self.child.kill().await;
        // So that the last lines are in the tail. Bounded, because a process that left the group
        // may keep the pipe open.
        if let Some(draining) = self.draining.take() {
            let _ = timeout(exit_timeout, draining).await;
        }
    }

    fn kill_group(&mut self) {
        if let Some(group) = self.group.take() {
            self.watchdog.kill(group);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
    }
}

impl StderrTail {
    /// Three lines in one: the first two that speak of an error, and the last; without such lines the
    /// last three. `None` if there are none.
    pub fn text(&self) -> Option<String> {
        let tail = self.0.lock();
        let text = String::from_utf8_lossy(&tail);
        let is_news = |line: &&str| !line.is_empty() && !line.starts_with("npm notice");
        let lines: Vec<&str> = text.lines().map(str::trim).filter(is_news).collect();
        let is_error = |line: &&&str| line.to_lowercase().contains("error");
        let errors: Vec<&str> = lines.iter().filter(is_error).take(2).copied().collect();
        let wanted = if errors.is_empty() { 3 } else { 1 };
        let last = lines[lines.len().saturating_sub(wanted)..].iter();
        let others = last.filter(|line| !errors.contains(line));
        let shown: Vec<&str> = errors.iter().chain(others).copied().collect();
        let shown = shown.join("; ");
        (!shown.is_empty()).then(|| toolscout_base::printable::excerpt(&shown, 400))
    }

    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        tail.extend_from_slice(&bytes[bytes.len().saturating_sub(STDERR_TAIL_BYTES)..]);
        let excess = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..excess);
    }
}

/// Starts it, in its sandbox if it has one.
fn spawn(
    command: &mut Command,
    program: &Program<'_>,
) -> io::Result<(Child, Option<PrivateFolder>)> {
    let Some(settings) = program.sandbox else {
        return Ok((command.spawn()?, None));
    };
    let sandbox = Sandbox::new(settings, program.cwd).map_err(io::Error::other)?;
    let (child, private) = sandbox.start(command)?;
    Ok((child, Some(private)))
}

/// Reads standard error to its end: a server whose pipe is full would block.
async fn drain(
    mut stderr: ChildStderr,
    server: Arc<str>,
    stderr_tail: StderrTail,
    log: Option<LogFile>,
) {
    let mut writer = match log {
        Some(log) => spawn_blocking(|| LogWriter::begin(log)).await.ok(),
        None => None,
    };
    let mut chunk = vec![0; 8 << 10];
    let mut logged = 0;
    while let Ok(bytes @ 1..) = stderr.read(&mut chunk).await {
        stderr_tail.push(&chunk[..bytes]);
        writer = written(writer, chunk[..bytes].to_vec()).await;
        if logged < LOGGED_BYTES {
            tracing::debug!(%server, stderr = %String::from_utf8_lossy(&chunk[..bytes]).trim_end());
        }
        let before = logged;
        logged = logged.saturating_add(bytes);
        if before < LOGGED_BYTES && logged >= LOGGED_BYTES {
            tracing::warn!(%server, "the server writes a lot to its standard error; the rest of it is not logged");
        }
    }
    if let Some(writer) = writer {
        let _ = spawn_blocking(|| writer.end()).await;
    }
}

/// Writes a part into the log, off the async threads.
async fn written(writer: Option<LogWriter>, part: Vec<u8>) -> Option<LogWriter> {
    let mut writer = writer?;
    let writing = spawn_blocking(move || {
        writer.write(&part);
        writer
    });
    writing.await.ok()
}
