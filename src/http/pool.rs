//! Where CPU work leaves the async threads: few at a time, a bounded number waiting, the rest
//! turned away at once.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;

use super::error::{ApiError, ApiResult};

/// A bounded number of threads for searches, with a bounded line before them.
pub struct SearchPool {
    running: Arc<Semaphore>,
    /// One place for each search that runs or waits.
    places: Arc<Semaphore>,
    patience: Duration,
    waiting: Gauge,
}

impl SearchPool {
    /// A pool of `threads`, before which `line` searches may wait for as long as `patience`.
    pub fn new(threads: usize, line: usize, patience: Duration, waiting: Gauge) -> Self {
        SearchPool {
            running: Arc::new(Semaphore::new(threads)),
            places: Arc::new(Semaphore::new(threads + line)),
            patience,
            waiting,
        }
    }

    /// Runs CPU work on a thread of its own.
    ///
    /// # Errors
    /// 503 at once when the line is full, and when no thread came free in time.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| overloaded())?;
        let waiting = Waiting::new(&self.waiting);
        let turn =
            tokio::time::timeout(self.patience, Arc::clone(&self.running).acquire_owned()).await;
        drop(waiting);
        let thread = turn
            .map_err(|_| overloaded())?
            .map_err(ApiError::internal)?;
        let work = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, also when the client has gone.
            let _held = (place, thread);
            work()
        });
        work.await
            .map_err(|error| ApiError::internal(format!("a search ended early: {error}")))
    }
}

/// Counts one waiting search, also one whose client leaves.
struct Waiting<'a>(&'a Gauge);

impl<'a> Waiting<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Waiting(gauge)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn overloaded() -> ApiError {
    ApiError::busy(
        StatusCode::SERVICE_UNAVAILABLE,
        "overloaded",
        "more searches are waiting than can be answered soon",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_full_line_is_turned_away_at_once_and_empties_again() {
        let pool = Arc::new(SearchPool::new(
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
        assert_eq!(pool.waiting.get(), 1);
        assert_eq!(pool.run(|| 3).await.unwrap_err().code, "overloaded");
        open.send(()).unwrap();
        assert_eq!(
            (running.await.unwrap().unwrap(), waiting.await.unwrap()),
            (1, 2)
        );
        assert_eq!(pool.waiting.get(), 0);
    }
}
