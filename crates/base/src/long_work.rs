//! Work that takes long, beside async work: reading a text of megabytes, or checking a large value.
//! As many as there are processors do such work at a time, so that the others' requests are answered
//! meanwhile.

use std::sync::LazyLock;
use std::thread;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::block_in_place;

/// Reading a text of so many bytes takes long.
pub const LONG_TEXT_BYTES: usize = 64 << 10;

static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, usize::from)));

/// Does work that takes long. On a thread of async work, another thread takes over the others' work.
pub fn run<T>(work: impl FnOnce() -> T) -> T {
    match runtime_of_threads() {
        // The turn is waited for within, so that this thread's other work has gone on by then.
        Some(runtime) => block_in_place(|| {
            let _turn = runtime.block_on(turn());
            work()
        }),
        None => work(),
    }
}

/// Reads a text of so many bytes. Waits for a turn without a thread if that takes long.
pub async fn read<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    // A runtime of one thread has no other one that could take over, and `block_in_place` panics there.
    if bytes < LONG_TEXT_BYTES || runtime_of_threads().is_none() {
        return work();
    }
    let _turn = turn().await;
    block_in_place(work)
}

/// The runtime, if it has several threads.
fn runtime_of_threads() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    (runtime.runtime_flavor() == RuntimeFlavor::MultiThread).then_some(runtime)
}

/// A turn; `None` never comes, since the turns are never closed.
async fn turn() -> Option<SemaphorePermit<'static>> {
    TURNS.acquire().await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// For what comes at once, unless it never comes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_work_while_a_long_text_is_read() {
        for way in ["read", "run"] {
            let (ask, asked) = oneshot::channel::<()>();
            let (answer, answered) = channel::<()>();
            // The only thread for async work has to do this while the text is read.
            let other = tokio::spawn(async move {
                asked.await.unwrap();
                answer.send(()).unwrap();
            });
            let work = move || {
                ask.send(()).unwrap();
                answered.recv_timeout(PATIENCE).unwrap();
            };
            let long = tokio::spawn(async move {
                match way {
                    "read" => read(LONG_TEXT_BYTES, work).await,
                    _ => run(work),
                }
            });
            long.await.unwrap();
            other.await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_than_there_are_processors_work_at_a_time() {
        static WORKING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let work = || {
            MOST.fetch_max(WORKING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            WORKING.fetch_sub(1, Ordering::SeqCst);
        };
        let all: Vec<_> = (0..200)
            .map(|number| {
                tokio::spawn(async move {
                    match number % 2 {
                        0 => read(LONG_TEXT_BYTES, work).await,
                        _ => run(work),
                    }
                })
            })
            .collect();
        for one in all {
            one.await.unwrap();
        }
        let processors = thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=processors).contains(&MOST.load(Ordering::SeqCst)));
    }

    #[test]
    fn it_works_without_a_runtime_and_on_one_thread() {
        assert_eq!(run(|| 1), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(runtime.unwrap().block_on(read(LONG_TEXT_BYTES, || 2)), 2);
    }
}
