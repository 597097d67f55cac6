//! The calls of a run, counted against its limits, and the preconditions that held in it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gate::class::Class;
use crate::gate::policy::{AppliedRule, CallLimits};
use crate::tools::Arguments;
use toolscout_base::printable::counted;

/// Counts the calls of one run.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u32,
    by_class: BTreeMap<Class, u32>,
    by_rule: BTreeMap<usize, u32>,
    /// With the arguments that they set.
    satisfied: BTreeMap<String, Arguments>,
}

impl Ledger {
    /// Counts one more call, including calls that wait for approval. A call over a limit is not
    /// counted.
    ///
    /// # Errors
    /// A message for the model that names the limit.
    pub fn take(&self, applied: &AppliedRule, limits: &CallLimits) -> Result<(), String> {
        let mut counts = self.lock();
        let class = applied.class;
        if counts.calls >= limits.calls {
            return Err(format!(
                "a run may make {}, and has made them; answer with what you have",
                counted(limits.calls, "call")
            ));
        }
        let class_limit = limits.of(class);
        let of_class = counts.by_class.get(&class).copied().unwrap_or_default();
        if of_class >= class_limit {
            return Err(format!(
                "a run may make {}, and has made them; do without",
                counted(class_limit, &format!("{class} call"))
            ));
        }
        if let Some((rule, limit)) = applied.limit {
            let under_rule = counts.by_rule.entry(rule).or_default();
            if *under_rule >= limit {
                return Err(format!(
                    "{} allows {} a run, and they were made; do without",
                    applied.rule,
                    counted(limit, "call")
                ));
            }
            *under_rule += 1;
        }
        counts.calls += 1;
        *counts.by_class.entry(class).or_default() += 1;
        Ok(())
    }

    /// The arguments that a precondition sets which has held before in this run.
    pub fn satisfied(&self, precondition: &str) -> Option<Arguments> {
        self.lock().satisfied.get(precondition).cloned()
    }

    /// Records that a precondition holds, and what it sets.
    pub fn mark_satisfied(&self, precondition: String, sets: Arguments) {
        self.lock().satisfied.insert(precondition, sets);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::policy::Decision;

    #[test]
    fn each_limit_applies_on_its_own() {
        let limits = CallLimits {
            calls: 4,
            state_changing: 2,
            destructive: 9,
        };
        let applied = |class, limit| AppliedRule {
            class,
            decision: Decision::Allow,
            rule: "r".into(),
            limit,
        };
        let ledger = Ledger::default();
        let changing = applied(Class::StateChanging, None);
        assert_eq!(
            (
                ledger.take(&changing, &limits),
                ledger.take(&changing, &limits)
            ),
            (Ok(()), Ok(()))
        );
        assert!(
            ledger
                .take(&changing, &limits)
                .unwrap_err()
                .contains("2 state_changing calls")
        );
        let once = applied(Class::Destructive, Some((0, 1)));
        assert_eq!(ledger.take(&once, &limits), Ok(()));
        assert!(
            ledger
                .take(&once, &limits)
                .unwrap_err()
                .contains("r allows 1 call a run")
        );
        let reading = applied(Class::ReadOnly, None);
        assert_eq!(ledger.take(&reading, &limits), Ok(()));
        assert!(
            ledger
                .take(&reading, &limits)
                .unwrap_err()
                .contains("4 calls")
        );
    }
}
