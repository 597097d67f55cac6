//! Ends what servers have started, also when we are killed and can end nothing ourselves.
//!
//! Servers are often started through package runners, so there is a tree of processes and not one.
//! Each server is a process group of its own, and a small shell in yet another group knows all
//! groups. It listens on a pipe that only we write to: when we die, however it happens, the pipe
//! ends and it kills the groups that are left.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What the shell does with one line of ours.
const SCRIPT: &str = r#"
groups=
while read -r order group; do
  kept=
  for known in $groups; do [ "$known" = "$group" ] || kept="$kept $known"; done
  case $order in
    watch) groups="$kept $group" ;;
    terminate) kill -s TERM -- "-$group" 2>/dev/null ;;
    kill) kill -s KILL -- "-$group" 2>/dev/null; groups=$kept ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"#;

/// Knows the process groups that must not outlive us. Dropping it kills those that are left.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// Started with the first group.
    shell: Mutex<Option<Shell>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Watchdog {
    /// Kills this group when we end.
    pub fn watch(&self, group: u32) {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        if shell.is_none() {
            *shell = Shell::start().inspect_err(|error| {
                tracing::warn!(%error, "no shell to watch over MCP servers; they may outlive a kill of this program");
            }).ok();
        }
        order(&mut shell, "watch", group);
    }

    /// Asks this group to end.
    pub fn terminate(&self, group: u32) {
        order(
            &mut self.shell.lock().unwrap_or_else(PoisonError::into_inner),
            "terminate",
            group,
        );
    }

    /// Kills what is left of this group and forgets it.
    pub fn kill(&self, group: u32) {
        order(
            &mut self.shell.lock().unwrap_or_else(PoisonError::into_inner),
            "kill",
            group,
        );
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
        // Beyond the reach of a Ctrl-C or a kill that is meant for our own group.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        Ok(Shell { child, orders })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// A shell that is gone cannot be told anything; the process itself is ended by its handle then.
fn order(shell: &mut Option<Shell>, order: &str, group: u32) {
    if let Some(orders) = shell.as_mut().and_then(|shell| shell.orders.as_mut()) {
        let _ = writeln!(orders, "{order} {group}");
    }
}
