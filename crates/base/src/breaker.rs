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

    fn fail(&self, is_test: bool, reason: &str, retry_after: Option<Duration>) {
        let mut state = self.lock();
        let asked = retry_after.unwrap_or_default();
        if let Some(until) = state.closed_until
            && !is_test
        {
            // Sent before another request failed: the same outage, which is counted once.
            state.closed_until = Some(until.max(Instant::now() + asked.min(MAX_PAUSE)));
            return;
        }
        // Bounded, since a thousand times the first pause is far above the longest one.
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(state.failures.min(10));
        state.failures = state.failures.saturating_add(1);
        state.closed_until = Some(Instant::now() + doubled.max(asked).min(MAX_PAUSE));
        state.is_tested = false;
        reason.clone_into(&mut state.reason);
    }

    /// A request says nothing about the server.
    fn give_back(&self, is_test: bool) {
        if is_test {
            self.lock().is_tested = false;
        }
    }

    /// Whether a request may be sent, and whether it tests the server; if not, why.
    fn admit(&self) -> Result<bool, String> {
        let mut state = self.lock();
        let Some(until) = state.closed_until else {
            return Ok(false);
        };
        let left = until.saturating_duration_since(Instant::now());
        // One request tests the server; the others do not wait for what may fail again.
        if left.is_zero() && !state.is_tested {
            state.is_tested = true;
            return Ok(true);
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
/// request panicked or its task was dropped. [`Permit::that_may_be_dropped`] changes that.
pub struct Permit<S: AsRef<Breaker>> {
    shared: Arc<S>,
    is_open: bool,
    is_test: bool,
    may_be_dropped: bool,
}

impl<S: AsRef<Breaker>> Permit<S> {
    /// Asks the breaker of this state.
    ///
    /// # Errors
    /// Why nothing is sent.
    pub fn of(shared: Arc<S>) -> Result<Self, String> {
        let is_test = (*shared).as_ref().admit()?;
        Ok(Permit {
            shared,
            is_open: true,
            is_test,
            may_be_dropped: false,
        })
    }

    /// Dropped without an outcome, it is given back: whoever asked went away, which says nothing
    /// about the server.
    pub fn that_may_be_dropped(mut self) -> Self {
        self.may_be_dropped = true;
        self
    }

    /// The state.
    pub fn shared(&self) -> &Arc<S> {
        &self.shared
    }

    /// The request was not sent, or ended in a way that says nothing about the server.
    pub fn give_back(mut self) {
        self.is_open = false;
        (*self.shared).as_ref().give_back(self.is_test);
    }

    /// Tells the breaker how the request ended.
    pub fn close<F: Failing>(mut self, failure: Option<&F>) {
        self.is_open = false;
        let breaker = (*self.shared).as_ref();
        match failure {
            // A request that the server refuses for its content says nothing about the next.
            Some(failure) if !failure.is_about_request() => {
                breaker.fail(self.is_test, failure.reason(), failure.retry_after());
            }
            _ => breaker.reset(),
        }
    }
}

impl<S: AsRef<Breaker>> Drop for Permit<S> {
    fn drop(&mut self) {
        if !self.is_open {
            return;
        }
        let breaker = (*self.shared).as_ref();
        match self.may_be_dropped {
            true => breaker.give_back(self.is_test),
            false => breaker.fail(self.is_test, "the request was dropped", None),
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

    #[test]
    fn requests_that_fail_together_are_one_outage() {
        let breaker = Arc::new(Breaker::default());
        let sent: Vec<_> = (0..20)
            .map(|_| Permit::of(breaker.clone()).unwrap())
            .collect();
        for permit in sent {
            permit.close(Some(&Failure("it is down")));
        }
        let refused = Permit::of(breaker).err().unwrap();
        assert!(refused.contains("in 1 s"), "{refused}");
    }

    #[test]
    fn a_permit_that_may_be_dropped_is_given_back() {
        let breaker = Arc::new(Breaker::default());
        drop(Permit::of(breaker.clone()).unwrap().that_may_be_dropped());
        assert!(Permit::of(breaker).is_ok());
    }
}
