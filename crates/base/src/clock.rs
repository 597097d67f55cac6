//! Times as numbers, as databases and signed tokens store them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 for a time before.
pub fn unix_ms(time: SystemTime) -> i64 {
    i64::try_from(since_1970(time).as_millis()).unwrap_or(i64::MAX)
}

/// Seconds since 1970; 0 for a time before.
pub fn unix_s(time: SystemTime) -> u64 {
    since_1970(time).as_secs()
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}
