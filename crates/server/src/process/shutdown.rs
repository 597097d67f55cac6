//! The shutdown of the program: one signal for everything that runs long.

use tokio_util::sync::CancellationToken;

/// The shutdown signal. All clones share it, and triggering it is final.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// A signal that only [`Shutdown::trigger`] sets.
    pub fn new() -> Self {
        Shutdown::default()
    }

    /// Triggered by SIGTERM or SIGINT. A second signal ends the process at once, for users who do
    /// not want to wait.
    ///
    /// # Errors
    /// When the system refuses the signal handlers.
    #[expect(
        clippy::disallowed_methods,
        reason = "a second signal ends the program at once"
    )]
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Shutdown::new();
        let mut signals = Signals::listen()?;
        let trigger = shutdown.clone();
        // Lives as long as the process: the second signal may come at any time.
        tokio::spawn(async move {
            signals.next().await;
            tracing::info!("shutting down; a second signal ends the program at once");
            trigger.trigger();
            // Waiting for a model would delay the end.
            toolscout_models::stop_waiting();
            signals.next().await;
            std::process::exit(EXIT_INTERRUPTED);
        });
        Ok(shutdown)
    }

    /// Starts the shutdown.
    pub fn trigger(&self) {
        self.token.cancel();
    }

    /// Whether the shutdown has started.
    pub fn is_triggered(&self) -> bool {
        self.token.is_cancelled()
    }

    /// The signal as a token.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Waits until the shutdown starts.
    pub async fn triggered(&self) {
        self.token.cancelled().await;
    }
}

/// The exit code that shells report for a program ended by SIGINT.
pub const EXIT_INTERRUPTED: i32 = 130;

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_is_triggered() {
        let shutdown = Shutdown::new();
        let listener = shutdown.clone();
        let waiting = tokio::spawn(async move { listener.triggered().await });
        assert!(!shutdown.is_triggered());
        shutdown.trigger();
        waiting.await.unwrap();
        assert!(shutdown.is_triggered());
    }
}
