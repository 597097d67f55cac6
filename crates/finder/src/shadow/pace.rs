//! Keeps a thread within a share of one core.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolscout_gate::usage::shadow::Shadow;

/// So many times as long as it has worked, the thread rests: then it works less than a tenth.
const RESTS: u32 = 10;
/// The longest rest, after a commit of a large catalog for instance. It is as long as the rule says if
/// that took up to 6 seconds.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Lets the thread of a shadow rest after work, in proportion to the CPU time that it took.
pub struct Pace {
    shadow: Shadow,
    /// CPU time of the thread up to which it has rested.
    rested: Mutex<Duration>,
}

impl Pace {
    /// For the thread that calls it.
    pub fn new(shadow: Shadow) -> Self {
        be_nice();
        Pace {
            shadow,
            rested: Mutex::new(thread_cpu()),
        }
    }

    /// Rests for the work since the last rest.
    pub fn rest(&self) {
        let now = thread_cpu();
        let mut rested = self.rested.lock();
        let worked = now.saturating_sub(std::mem::replace(&mut rested, now));
        drop(rested);
        self.shadow.add_cpu(worked);
        self.shadow.pause((worked * RESTS).min(LONGEST_REST));
    }

    /// Does work that may use other threads, and rests as if this one had done what it waited for.
    pub fn elsewhere<T>(&self, work: impl FnOnce() -> T) -> T {
        let (began, cpu) = (Instant::now(), thread_cpu());
        let done = work();
        let waited = began.elapsed().saturating_sub(thread_cpu() - cpu);
        self.shadow.pause((waited * RESTS).min(LONGEST_REST));
        done
    }

    /// Whether the program ends.
    pub fn has_ended(&self) -> bool {
        self.shadow.has_ended()
    }
}

/// The CPU time of this thread.
#[cfg(unix)]
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

/// Without such a clock the time that has passed, which is more.
#[cfg(not(unix))]
fn thread_cpu() -> Duration {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// Lets other threads go first where a thread can have a priority of its own. Beside one that is always
/// busy, this one still gets a tenth of a core (weights 110 and 1,024).
fn be_nice() {
    // Elsewhere the call is about the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 10) {
        tracing::debug!(%error, "the shadow's thread has the usual priority");
    }
}

#[cfg(test)]
mod tests {
    use toolscout_gate::usage::shadow::Identity;

    use super::*;

    #[test]
    fn a_thread_that_rests_takes_less_than_a_tenth_of_a_core() {
        let (shadow, _events) = Shadow::new(Identity::default(), "");
        let pace = Pace::new(shadow.clone());
        let (began, cpu) = (Instant::now(), thread_cpu());
        for _ in 0..20 {
            let until = thread_cpu() + Duration::from_millis(1);
            while thread_cpu() < until {}
            pace.rest();
        }
        let (worked, passed) = (thread_cpu() - cpu, began.elapsed());
        assert!(worked >= Duration::from_millis(20), "{worked:?}");
        assert!(worked * 10 <= passed, "{worked:?} of {passed:?}");
        assert!(shadow.cpu() >= Duration::from_millis(20) && shadow.cpu() <= worked);
    }
}
