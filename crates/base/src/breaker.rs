//! Keeps searches from waiting for a server that fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How a request failed, as far as it says something about the next one.
pub trait Failing {
    /// In words.
    fn reason(&self) -> &str;
    /// How long the server asks to wait.
    fn retry_after(&self) -> Option<Duration>;
    /// True where the server works and refuses this request for its content.
    fn is_about_request(&self) -> bool;
}

/// Open after a failure: for a while no request is sent. Then one is, and its outcome decides.
#[derive(Default)]
pub struct Breaker(Mutex<Failures>);

#[derive(Default)]
struct Failures {
    /// Failures since the last success.
    failures: u32,
    /// Nothing is sent before.
    closed_until: Option<Instant>,
    /// True while a request tests whether the server works again.
    is_tested: bool,
    /// What the last failure was.
    reason: String,
}

impl Breaker {
    /// The server has answered.
    pub fn reset(&self) {
        *self.lock() = Failures::default();
    }

    fn fail(&self, reason: &str, retry_after: Option<Duration>) {
        let mut state = self.lock();
        // Bounded, since a thousand times the first pause is far above the longest one.
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(state.failures.min(10));
        let asked = retry_after.unwrap_or_default();
        state.failures = state.failures.saturating_add(1);
        state.closed_until = Some(Instant::now() + doubled.max(asked).min(MAX_PAUSE));
        state.is_tested = false;
        reason.clone_into(&mut state.reason);
    }

    /// A request was not sent after all.
    fn give_back(&self) {
        self.lock().is_tested = false;
    }

    /// Whether a request may be sent; if not, why.
    fn admit(&self) -> Result<(), String> {
        let mut state = self.lock();
        let Some(until) = state.closed_until else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        // One request tests the server; the others do not wait for what may fail again.
        if left.is_zero() && !state.is_tested {
            state.is_tested = true;
            return Ok(());
        }
        let when = if left.is_zero() {
            "is being tried again".to_owned()
        } else {
            format!("is tried again in {:.0} s", left.as_secs_f64().ceil())
        };
        Err(format!("{}; it {when}", state.reason))
    }

    fn lock(&self) -> MutexGuard<'_, Failures> {
        // Held for a few assignments only, and never while a request is on its way.
        self.0.lock()
    }
}

/// The permission to send one request. Dropped without an outcome, it counts as a failure: the
/// request panicked or its task was dropped.
pub struct Permit<S: AsRef<Breaker>> {
    shared: Arc<S>,
    is_open: bool,
}

impl<S: AsRef<Breaker>> Permit<S> {
    /// Asks the breaker of this state.
    ///
    /// # Errors
    /// Why nothing is sent.
    pub fn of(shared: Arc<S>) -> Result<Self, String> {
        (*shared).as_ref().admit()?;
        Ok(Permit {
            shared,
            is_open: true,
        })
    }

    /// The state.
    pub fn shared(&self) -> &Arc<S> {
        &self.shared
    }

    /// The request was not sent, which says nothing about the server.
    pub fn give_back(mut self) {
        self.is_open = false;
        (*self.shared).as_ref().give_back();
    }

    /// Tells the breaker how the request ended.
    pub fn close<F: Failing>(mut self, failure: Option<&F>) {
        self.is_open = false;
        let breaker = (*self.shared).as_ref();
        match failure {
            // A request that the server refuses for its content says nothing about the next.
            Some(failure) if !failure.is_about_request() => {
                breaker.fail(failure.reason(), failure.retry_after());
            }
            _ => breaker.reset(),
        }
    }
}

impl<S: AsRef<Breaker>> Drop for Permit<S> {
    fn drop(&mut self) {
        if self.is_open {
            (*self.shared)
                .as_ref()
                .fail("the request was dropped", None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AsRef<Breaker> for Breaker {
        fn as_ref(&self) -> &Breaker {
            self
        }
    }

    /// A failure that is not about the request.
    struct Failure(&'static str);

    impl Failing for Failure {
        fn reason(&self) -> &str {
            self.0
        }

        fn retry_after(&self) -> Option<Duration> {
            None
        }

        fn is_about_request(&self) -> bool {
            false
        }
    }

    const WORKED: Option<&Failure> = None;

    #[test]
    fn nothing_is_sent_for_a_while_after_a_failure_and_then_once() {
        let breaker = Arc::new(Breaker::default());
        Permit::of(breaker.clone()).unwrap().close(WORKED);
        let failure = Failure("it is down");
        Permit::of(breaker.clone()).unwrap().close(Some(&failure));
        let refused = Permit::of(breaker.clone()).err().unwrap();
        assert!(
            refused.contains("it is down; it is tried again in 1 s"),
            "{refused}"
        );
        breaker.lock().closed_until = Some(Instant::now());
        let test = Permit::of(breaker.clone()).unwrap();
        let refused = Permit::of(breaker.clone()).err().unwrap();
        assert!(refused.contains("is being tried"), "{refused}");
        test.give_back();
        let test = Permit::of(breaker.clone()).unwrap();
        drop(test);
        let refused = Permit::of(breaker.clone()).err().unwrap();
        assert!(refused.contains("in 2 s"), "twice as long: {refused}");
        breaker.reset();
        assert!(Permit::of(breaker).is_ok());
    }
}
