//! Ctrl-C as a flag that long operations check between two steps.

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::task::Poll;

use anyhow::{Context, Result};

use super::output::print_stderr;
use crate::models;
use crate::shutdown::EXIT_INTERRUPTED;

/// Set once Ctrl-C is pressed. A second Ctrl-C exits at once, which is safe at any time: committed
/// data stays.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for the rest of the process's life. Returns once the handler is installed.
    pub fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        let raised = Arc::clone(&interrupt.0);
        let (installed, is_installed) = mpsc::sync_channel(1);
        // A runtime on a thread of its own: the verb blocks its thread, and may have no runtime.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("listen for Ctrl-C")?;
        std::thread::spawn(move || runtime.block_on(wait_twice(&raised, &installed)));
        is_installed.recv().context("listen for Ctrl-C")?;
        Ok(interrupt)
    }

    /// True once Ctrl-C was pressed.
    pub fn is_raised(&self) -> bool {
        // The flag alone is read; no other memory depends on it.
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag as Ctrl-C does.
    #[cfg(test)]
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[expect(clippy::disallowed_methods, reason = "somebody has asked twice")]
async fn wait_twice(raised: &AtomicBool, installed: &SyncSender<()>) {
    let mut first = pin!(tokio::signal::ctrl_c());
    // The first poll installs the handler; only then may the caller rely on it.
    let polled = futures_util::poll!(first.as_mut());
    if installed.send(()).is_err() {
        return;
    }
    let pressed = match polled {
        Poll::Ready(pressed) => pressed,
        Poll::Pending => first.await,
    };
    if pressed.is_err() {
        return;
    }
    raised.store(true, Ordering::Relaxed);
    // A terminal shows `^C` at the end of the line.
    let line_end = if io::stderr().is_terminal() { "\n" } else { "" };
    print_stderr(format_args!(
        "{line_end}stopping once what has begun is stored or undone; Ctrl-C again ends at once"
    ));
    // An endpoint that is asked again and again would hold up the end.
    models::stop_waiting();
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(EXIT_INTERRUPTED);
    }
}
