//! The limit of concurrent agent runs, per key and for the server.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use parking_lot::Mutex;

use crate::request::error::{ApiError, ApiResult};

/// The running agent runs, including those whose client has disconnected. Cheap to clone.
#[derive(Clone)]
pub struct Runs {
    running: Arc<Mutex<Running>>,
    max: usize,
    max_per_key: usize,
}

#[derive(Default)]
struct Running {
    all: usize,
    by_key: HashMap<String, usize>,
}

impl Runs {
    /// At most `max` runs, and `max_per_key` of one key.
    pub fn new(max: usize, max_per_key: usize) -> Self {
        Runs {
            running: Arc::default(),
            max,
            max_per_key,
        }
    }

    /// Number of runs.
    pub fn count(&self) -> usize {
        self.running.lock().all
    }

    /// A permit for one more run, returned when it is dropped. Without a key only the limit of the
    /// server applies: it has a single user.
    ///
    /// # Errors
    /// 429 when the key, or the server, has as many runs as it may.
    pub fn admit(&self, key: Option<&str>) -> ApiResult<RunPermit> {
        let mut running = self.running.lock();
        if running.all >= self.max {
            let message = format!(
                "{} questions are being answered, the most that this server answers at one time; try again later",
                running.all
            );
            return Err(too_many(message));
        }
        if let Some(key) = key {
            let own = running.by_key.entry(key.to_owned()).or_default();
            if *own >= self.max_per_key {
                let message = format!(
                    "{own} questions of this key are being answered, the most at one time; wait for one, or stop one"
                );
                return Err(too_many(message));
            }
            *own += 1;
        }
        running.all += 1;
        Ok(RunPermit {
            runs: self.clone(),
            key: key.map(str::to_owned),
        })
    }
}

/// The permit of a run.
pub struct RunPermit {
    runs: Runs,
    key: Option<String>,
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let mut running = self.runs.running.lock();
        running.all -= 1;
        let Some(key) = &self.key else { return };
        // Keys without runs are removed, so that the map stays as small as the number of runs.
        if let Some(own) = running.by_key.get_mut(key) {
            *own -= 1;
            if *own == 0 {
                running.by_key.remove(key);
            }
        }
    }
}

fn too_many(message: String) -> ApiError {
    ApiError::busy(StatusCode::TOO_MANY_REQUESTS, "too_many_runs", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_permits_admit_others() {
        let runs = Runs::new(3, 2);
        let permits = [
            runs.admit(Some("a")),
            runs.admit(Some("a")),
            runs.admit(None),
        ];
        assert_eq!(permits.iter().filter(|permit| permit.is_ok()).count(), 3);
        assert_eq!(
            runs.admit(None).err().map(|error| error.code),
            Some("too_many_runs")
        );
        drop(permits);
        assert!(runs.running.lock().all == 0 && runs.running.lock().by_key.is_empty());
        let _permits = [runs.admit(Some("a")), runs.admit(Some("a"))];
        assert!(
            runs.admit(Some("a"))
                .err()
                .is_some_and(|error| error.message.contains("2 questions of this key"))
        );
        assert!(runs.admit(Some("b")).is_ok());
    }
}
