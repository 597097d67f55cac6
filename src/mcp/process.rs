//! A server that is a child process: started in a group of its own, its standard error drained, and
//! ended whole.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::mcp::watchdog::Watchdog;

/// Variables of ours that every server gets. Others may hold secrets that are not meant for it:
/// those it needs are named in its configuration.
const PASSED_ON: [&str; 26] = [
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
/// Bytes kept of what a server said last on its standard error.
const LAST_WORDS_BYTES: usize = 2 << 10;
/// Bytes of standard error that are logged, at debug; a server that says more is not listened to
/// any further.
const LOGGED_BYTES: usize = 64 << 10;

/// What to start.
pub struct Program<'a> {
    /// The server's name, for the log.
    pub server: &'a Arc<str>,
    /// The program.
    pub command: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// Its variables beside those that every server gets.
    pub env: &'a BTreeMap<String, String>,
    /// Where it runs.
    pub cwd: Option<&'a Path>,
}

/// A running server.
pub struct Process {
    child: Child,
    group: Option<u32>,
    watchdog: Arc<Watchdog>,
    last_words: LastWords,
    /// Reads its standard error to the end.
    draining: Option<JoinHandle<()>>,
}

/// The end of what a server says on its standard error.
#[derive(Clone, Default)]
pub struct LastWords(Arc<Mutex<Vec<u8>>>);

impl Process {
    /// Starts a server and gives its standard output and input.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(
        program: &Program<'_>,
        watchdog: &Arc<Watchdog>,
    ) -> io::Result<(Self, ChildStdout, ChildStdin)> {
        let mut command = Command::new(program.command);
        command.args(program.args).env_clear().kill_on_drop(true);
        command.envs(
            PASSED_ON
                .iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        );
        command.envs(program.env);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(cwd) = program.cwd {
            command.current_dir(cwd);
        }
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let group = child
            .id()
            .filter(|_| cfg!(unix))
            .inspect(|group| watchdog.watch(*group));
        let missing = || io::Error::other("a standard stream is missing");
        let (stdout, stdin) = (
            child.stdout.take().ok_or_else(missing)?,
            child.stdin.take().ok_or_else(missing)?,
        );
        let last_words = LastWords::default();
        let stderr = child.stderr.take();
        let draining = stderr.map(|stderr| {
            tokio::spawn(drain(
                stderr,
                Arc::clone(program.server),
                last_words.clone(),
            ))
        });
        Ok((
            Process {
                child,
                group,
                watchdog: Arc::clone(watchdog),
                last_words,
                draining,
            },
            stdout,
            stdin,
        ))
    }

    /// What it says on its standard error.
    pub fn last_words(&self) -> LastWords {
        self.last_words.clone()
    }

    /// Waits for it to end by itself now that its input is closed, then asks it to, then makes it.
    /// Whatever it has started and left behind in its group ends too.
    pub async fn end(mut self, farewell: Duration) {
        if timeout(farewell, self.child.wait()).await.is_err() {
            if let Some(group) = self.group {
                self.watchdog.terminate(group);
            }
            let _ = timeout(farewell, self.child.wait()).await;
        }
        self.kill_group();
        let _ = self.child.kill().await;
        if let Some(draining) = self.draining.take() {
            let _ = timeout(farewell, draining).await;
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

impl LastWords {
    /// The last lines as one, `None` when nothing was said.
    pub fn text(&self) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        let last = lines[lines.len().saturating_sub(3)..].join("; ");
        (!last.is_empty()).then(|| crate::printable::excerpt(&last, 400))
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[bytes.len().saturating_sub(LAST_WORDS_BYTES)..]);
        let excess = kept.len().saturating_sub(LAST_WORDS_BYTES);
        kept.drain(..excess);
    }
}

/// Reads standard error to its end, since a server that finds it full stops.
async fn drain(mut stderr: ChildStderr, server: Arc<str>, last_words: LastWords) {
    let mut chunk = vec![0; 8 << 10];
    let mut logged = 0;
    while let Ok(bytes @ 1..) = stderr.read(&mut chunk).await {
        last_words.push(&chunk[..bytes]);
        if logged < LOGGED_BYTES {
            tracing::debug!(%server, stderr = %String::from_utf8_lossy(&chunk[..bytes]).trim_end());
        }
        let before = logged;
        logged = logged.saturating_add(bytes);
        if before < LOGGED_BYTES && logged >= LOGGED_BYTES {
            tracing::warn!(%server, "floods its standard error; the rest of it is not logged");
        }
    }
}
