//! Ctrl-C as a question that long work asks between two steps.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::task::Poll;

use anyhow::{Context, Result};

/// Exit code of a program that was ended by Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Remembers that Ctrl-C was pressed. Pressed a second time it ends the program at once, which is
/// safe at any moment: what is committed stays.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen, for as long as the program runs; returns once it does.
    pub fn listen() -> Result<Self> {
        let interrupt = Interrupt(Arc::default());
        let raised = Arc::clone(&interrupt.0);
        let (listening, listens) = mpsc::sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("listen for Ctrl-C")?;
        std::thread::spawn(move || runtime.block_on(wait_twice(&raised, &listening)));
        listens.recv().context("listen for Ctrl-C")?;
        Ok(interrupt)
    }

    /// True once it was pressed.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

async fn wait_twice(raised: &AtomicBool, listening: &SyncSender<()>) {
    let mut first = pin!(tokio::signal::ctrl_c());
    // The handler is installed by the first poll, so only after it is it true that someone listens.
    let already = futures_util::poll!(first.as_mut());
    if listening.send(()).is_err() {
        return;
    }
    let heard = match already {
        Poll::Ready(heard) => heard,
        Poll::Pending => first.await,
    };
    if heard.is_err() {
        return;
    }
    raised.store(true, Ordering::Relaxed);
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(INTERRUPTED);
    }
}
