//! A time that several requests share.

use std::time::{Duration, Instant};

/// A moment until which all has to be done.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    /// What one request may take.
    limit: Duration,
}

impl Deadline {
    /// All of it within `time`, and each request within `limit`.
    pub fn within(time: Duration, limit: Duration) -> Self {
        Deadline {
            end: Instant::now() + time,
            limit,
        }
    }

    /// All of it within `time`, which one request may take as well.
    pub fn of(time: Duration) -> Self {
        Deadline::within(time, time)
    }

    /// What the next request may take.
    pub fn left(&self) -> Duration {
        self.limit
            .min(self.end.saturating_duration_since(Instant::now()))
    }
}
