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

/// The day of a time in milliseconds since 1970 (UTC), counted from 1970.
pub fn day_of(at_ms: i64) -> i64 {
    at_ms.div_euclid(24 * 3600 * 1000)
}

/// A day as [`day_of`] counts it, as a date: `2026-11-28`.
pub fn date(day: i64) -> String {
    let seconds = day.saturating_mul(24 * 3600);
    let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    time.format("%F").to_string()
}

/// The time now, in seconds: `2026-11-28T09:30:00Z`.
pub fn utc_now() -> String {
    chrono::Utc::now().format("%FT%TZ").to_string()
}

/// A time in milliseconds since 1970, in seconds: `2026-11-28T09:30:00Z`.
pub fn utc(at_ms: u64) -> String {
    let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let time = chrono::DateTime::from_timestamp_millis(at_ms).unwrap_or_default();
    time.format("%FT%TZ").to_string()
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_a_date() {
        assert_eq!(date(day_of(0)), "1970-01-01");
        assert_eq!(date(day_of(1_795_910_399_999)), "2026-11-28");
        assert_eq!(date(day_of(1_795_910_400_000)), "2026-11-29");
        assert_eq!(date(day_of(-1)), "1969-12-31");
        assert_eq!(date(i64::MAX), "1970-01-01");
        assert_eq!(utc(1_795_910_400_000), "2026-11-29T00:00:00Z");
        assert_eq!(utc(u64::MAX), "1970-01-01T00:00:00Z");
    }
}
