//! Ctrl-C as a question that long work asks between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

/// Exit code of a program that was ended by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Remembers that Ctrl-C was pressed. Pressed a second time it ends the program at once, which is safe at any moment:
/// what is committed stays.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen, for as long as the program runs.
    pub fn listen() -> Result<Self> {
        let interrupt = Interrupt(Arc::default());
        let heard = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().context("listen for Ctrl-C")?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                if tokio::signal::ctrl_c().await.is_err() {
                    return;
                }
                heard.0.store(true, Ordering::Relaxed);
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(INTERRUPTED);
                }
            });
        });
        Ok(interrupt)
    }

    /// True once it was pressed.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
