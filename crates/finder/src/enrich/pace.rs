//! How many requests run at once, and when the next one may start.

use std::time::{Duration, Instant};

/// The wait after the first refusal where the provider names none; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Longest wait where the provider names none.
const MAX_OWN_WAIT: Duration = Duration::from_secs(60);
/// Longest wait that a provider can ask for.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Waits in a row, without an answer between them, that end a run.
const MAX_WAITS_IN_A_ROW: u32 = 8;

/// The pace of a run. A provider's refusal makes all requests wait, and fewer run at once after it.
#[derive(Debug)]
pub struct Pace {
    most: usize,
    resume: Instant,
    waits_in_a_row: u32,
}

impl Pace {
    /// Starts with this many requests at once.
    pub fn new(most: usize, now: Instant) -> Self {
        Pace {
            most: most.max(1),
            resume: now,
            waits_in_a_row: 0,
        }
    }

    /// Whether another request may run beside these, now or later.
    pub fn has_room(&self, running: usize) -> bool {
        running < self.most
    }

    /// Whether another request may start beside those that run.
    pub fn allows(&self, running: usize, now: Instant) -> bool {
        self.has_room(running) && now >= self.resume
    }

    /// When requests may start again.
    pub fn resume(&self) -> Instant {
        self.resume
    }

    /// Takes note of an answer.
    pub fn answered(&mut self) {
        self.waits_in_a_row = 0;
    }

    /// Takes note of a refusal because of the provider's limits. False once there were too many in a row.
    pub fn refused(&mut self, retry_after: Option<Duration>, now: Instant) -> bool {
        let own = FIRST_WAIT * 2u32.pow(self.waits_in_a_row.min(6));
        let wait = retry_after.unwrap_or(own.min(MAX_OWN_WAIT)).min(MAX_WAIT);
        // Requests that ran together are refused together, which is one refusal.
        if now >= self.resume {
            self.most = (self.most / 2).max(1);
            self.waits_in_a_row += 1;
        }
        self.resume = self.resume.max(now + wait);
        self.waits_in_a_row <= MAX_WAITS_IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_refusal_makes_all_wait_as_long_as_the_provider_says() {
        for (retry_after, wait) in [
            (Some(7 * SECOND), 7 * SECOND),
            (Some(Duration::ZERO), Duration::ZERO),
            (Some(86_400 * SECOND), MAX_WAIT),
            (None, FIRST_WAIT),
        ] {
            let now = Instant::now();
            let mut pace = Pace::new(4, now);
            assert!(pace.refused(retry_after, now));
            assert_eq!(pace.resume(), now + wait, "{retry_after:?}");
            assert!(!pace.allows(0, now) || wait.is_zero());
            assert!(pace.allows(0, now + wait));
        }
    }

    #[test]
    fn the_number_falls_once_for_requests_that_are_refused_together() {
        let now = Instant::now();
        let mut pace = Pace::new(8, now);
        for _ in 0..8 {
            pace.refused(Some(SECOND), now);
        }
        let later = now + SECOND;
        assert!(pace.allows(3, later) && !pace.allows(4, later));
        for times in 1..4 {
            let now = now + times * SECOND;
            pace.refused(Some(SECOND), now);
        }
        assert!(pace.allows(0, now + 9 * SECOND) && !pace.allows(1, now + 9 * SECOND));
    }

    #[test]
    fn a_run_ends_after_many_waits_without_an_answer() {
        let mut now = Instant::now();
        let mut pace = Pace::new(4, now);
        let mut waits = Vec::new();
        while pace.refused(None, now) {
            waits.push((pace.resume() - now).as_secs());
            now = pace.resume();
            assert!(waits.len() < 100);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        let mut pace = Pace::new(4, now);
        for _ in 0..100 {
            assert!(pace.refused(Some(Duration::ZERO), now));
            pace.answered();
        }
    }
}
