//! A bounded pool for CPU work off the async threads.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::telemetry::GaugeGuard;

/// Threads for CPU work. A bounded number runs at a time, a bounded number waits, and the rest is
/// refused at once. Clones share the threads.
#[derive(Clone)]
pub struct CpuPool {
    /// One permit for each running piece of work.
    threads: Arc<Semaphore>,
    /// One permit for each piece of work that runs or is queued.
    admitted: Arc<Semaphore>,
    patience: Duration,
    queue_depth: Gauge,
    size: usize,
}

impl CpuPool {
    /// A pool of `threads` with a queue of `queue` pieces of work, each of which waits at most
    /// `patience`.
    pub fn new(threads: usize, queue: usize, patience: Duration, queue_depth: Gauge) -> Self {
        CpuPool {
            threads: Arc::new(Semaphore::new(threads)),
            admitted: Arc::new(Semaphore::new(threads + queue)),
            patience,
            queue_depth,
            size: threads,
        }
    }

    /// Number of threads that are working.
    pub fn busy(&self) -> usize {
        self.size.saturating_sub(self.threads.available_permits())
    }

    /// Whether a thread is free, so that nothing waits.
    pub fn has_free_thread(&self) -> bool {
        self.threads.available_permits() > 0
    }

    /// Runs CPU work on a thread of the pool.
    ///
    /// # Errors
    /// [`PoolError::Full`] at once if the queue is full, and after the wait if no thread became free.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let Ok(admission) = Arc::clone(&self.admitted).try_acquire_owned() else {
            return Err(PoolError::Full);
        };
        let queued = GaugeGuard::new(&self.queue_depth);
        let thread = timeout(self.patience, Arc::clone(&self.threads).acquire_owned()).await;
        drop(queued);
        // The wait was too long; the semaphore itself is never closed.
        let Ok(Ok(thread)) = thread else {
            return Err(PoolError::Full);
        };
        let work = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, even if the client disconnects: the thread stays busy.
            let _permits = (admission, thread);
            work()
        });
        work.await
            .map_err(|error| PoolError::Panicked(error.to_string()))
    }
}

/// Why a pool did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Too much work is waiting already.
    #[error("too many requests are waiting; try again later")]
    Full,
    /// The work panicked.
    #[error("work on the pool panicked: {0}")]
    Panicked(String),
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_at_once_and_empties_again() {
        let pool = Arc::new(CpuPool::new(
            1,
            1,
            Duration::from_secs(60),
            Gauge::default(),
        ));
        let (started, has_started) = channel();
        let (open, gate) = channel::<()>();
        let running = tokio::spawn({
            let pool = Arc::clone(&pool);
            async move {
                pool.run(move || {
                    started.send(()).unwrap();
                    gate.recv().unwrap();
                    1
                })
                .await
            }
        });
        tokio::task::spawn_blocking(move || has_started.recv().unwrap())
            .await
            .unwrap();
        let mut waiting = Box::pin(pool.run(|| 2));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert_eq!(pool.queue_depth.get(), 1);
        assert_eq!(pool.run(|| 3).await.unwrap_err(), PoolError::Full);
        open.send(()).unwrap();
        assert_eq!(
            (running.await.unwrap().unwrap(), waiting.await.unwrap()),
            (1, 2)
        );
        assert_eq!(pool.queue_depth.get(), 0);
    }
}
