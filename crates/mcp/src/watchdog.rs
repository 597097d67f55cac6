//! Kills the processes of servers, even when this program itself is killed.
//!
//! Servers are often started through package runners, so each is a tree of processes. Each server
//! has a process group of its own, and a small shell in another group knows all of them. The shell
//! reads a pipe that only this program writes to. When the program dies, for whatever reason, the
//! pipe ends and the shell kills the remaining groups.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use parking_lot::Mutex;

/// The script of the shell, which executes one command per line.
const SCRIPT: &str = r#"
groups=
while read -r command group; do
  others=
  for known in $groups; do [ "$known" = "$group" ] || others="$others $known"; done
  case $command in
    watch) groups="$others $group" ;;
    terminate) kill -s TERM -- "-$group" 2>/dev/null ;;
    kill) kill -s KILL -- "-$group" 2>/dev/null; groups=$others ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"#;

/// The process groups that must not outlive this program. Dropping it kills the remaining ones.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// Started with the first group.
    shell: Mutex<Option<Shell>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    commands: Option<ChildStdin>,
}

impl Watchdog {
    /// Registers a group to be killed when this program ends.
    pub fn watch(&self, group: u32) {
        let mut shell = self.shell.lock();
        if shell.is_none() {
            *shell = match Shell::start() {
                Ok(shell) => Some(shell),
                Err(error) => {
                    tracing::warn!(%error, "no shell to watch the MCP servers; they may outlive a kill of this program");
                    None
                }
            };
        }
        send(&mut shell, "watch", group);
    }

    /// Sends SIGTERM to a group.
    pub fn terminate(&self, group: u32) {
        send(&mut self.shell.lock(), "terminate", group);
    }

    /// Sends SIGKILL to a group and unregisters it.
    pub fn kill(&self, group: u32) {
        send(&mut self.shell.lock(), "kill", group);
    }
}

impl Shell {
    fn start() -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        #[cfg(unix)]
        // A Ctrl-C, or a kill of this program's group, does not reach the shell.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let commands = child.stdin.take();
        Ok(Shell { child, commands })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The end of its input makes the shell kill the remaining groups and exit.
        self.commands = None;
        let _ = self.child.wait();
    }
}

/// Sends a command to the shell. Without a shell nothing is sent; the process handle then kills the
/// server itself.
fn send(shell: &mut Option<Shell>, command: &str, group: u32) {
    if let Some(shell) = shell
        && let Some(commands) = &mut shell.commands
    {
        // It fails if somebody has killed the shell, which is as if there were none.
        let _ = writeln!(commands, "{command} {group}");
    }
}
