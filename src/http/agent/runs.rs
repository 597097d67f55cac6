//! How many runs there are at one time, of one key and of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;

use crate::http::error::{ApiError, ApiResult};

/// The runs under way, those that nobody listens to included. Cheap to clone.
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

    /// A place for one more run, given back when it is dropped. Without a key only the bound of all
    /// counts: the server is one person's.
    ///
    /// # Errors
    /// 429 when the key, or the server, has as many as there may be.
    pub fn admit(&self, key: Option<&str>) -> ApiResult<Place> {
        let mut running = self.lock();
        if running.all >= self.max {
            let message = format!(
                "{} questions are being answered, the most at one time; try again later",
                running.all
            );
            return Err(too_many(message));
        }
        if let Some(key) = key {
            let own = running.by_key.entry(key.to_owned()).or_default();
            if *own >= self.max_per_key {
                let message = format!(
                    "{own} questions of this key are being answered, the most at one time; wait for one, or stop it"
                );
                return Err(too_many(message));
            }
            *own += 1;
        }
        running.all += 1;
        Ok(Place {
            runs: self.clone(),
            key: key.map(str::to_owned),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run's place among those of the server.
pub struct Place {
    runs: Runs,
    key: Option<String>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.runs.lock();
        running.all -= 1;
        let Some(key) = &self.key else { return };
        let left = running
            .by_key
            .get(key)
            .copied()
            .unwrap_or_default()
            .saturating_sub(1);
        if left == 0 {
            running.by_key.remove(key);
        } else {
            running.by_key.insert(key.clone(), left);
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
    fn places_are_given_back() {
        let runs = Runs::new(3, 2);
        let places = [
            runs.admit(Some("a")),
            runs.admit(Some("a")),
            runs.admit(None),
        ];
        assert_eq!(places.iter().filter(|place| place.is_ok()).count(), 3);
        assert_eq!(
            runs.admit(None).err().map(|error| error.code),
            Some("too_many_runs")
        );
        drop(places);
        assert!(runs.lock().all == 0 && runs.lock().by_key.is_empty());
        let _one = [runs.admit(Some("a")), runs.admit(Some("a"))];
        assert!(
            runs.admit(Some("a"))
                .err()
                .is_some_and(|error| error.message.contains("2 questions of this key"))
        );
        assert!(runs.admit(Some("b")).is_ok());
    }
}
