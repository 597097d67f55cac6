//! What a run has used up of its limits, and which preconditions have held in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gate::class::Class;
use crate::gate::policy::{CallLimits, Ruling};

/// The calls of one run, counted.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: u32,
    by_class: BTreeMap<Class, u32>,
    by_rule: BTreeMap<usize, u32>,
    held: BTreeSet<String>,
}

impl Ledger {
    /// Counts one more call, whether it is made at once or asked for. Nothing is counted where a
    /// limit is reached.
    ///
    /// # Errors
    /// Words for the model, naming the limit.
    pub fn take(&self, ruling: &Ruling, limits: &CallLimits) -> Result<(), String> {
        let mut counts = self.lock();
        let class = ruling.class;
        if counts.calls >= limits.calls {
            return Err(format!(
                "a run may make {} calls, and has; answer with what you have",
                limits.calls
            ));
        }
        let of_class = counts.by_class.get(&class).copied().unwrap_or_default();
        if of_class >= limits.of(class) {
            return Err(format!(
                "a run may make {} {class} calls, and has; do without",
                limits.of(class)
            ));
        }
        if let Some((rule, most)) = ruling.limit {
            let under_rule = counts.by_rule.entry(rule).or_default();
            if *under_rule >= most {
                return Err(format!(
                    "{} allows {most} calls a run, and they were made; do without",
                    ruling.rule
                ));
            }
            *under_rule += 1;
        }
        counts.calls += 1;
        *counts.by_class.entry(class).or_default() += 1;
        Ok(())
    }

    /// True when a precondition was seen to hold in this run.
    pub fn has_held(&self, precondition: &str) -> bool {
        self.lock().held.contains(precondition)
    }

    /// Remembers that a precondition holds.
    pub fn note_held(&self, precondition: String) {
        self.lock().held.insert(precondition);
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
    fn each_limit_holds_for_itself() {
        let limits = CallLimits {
            calls: 4,
            state_changing: 2,
            destructive: 9,
        };
        let ruling = |class, limit| Ruling {
            class,
            decision: Decision::Allow,
            rule: "r".into(),
            limit,
        };
        let ledger = Ledger::default();
        let changing = ruling(Class::StateChanging, None);
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
        let once = ruling(Class::Destructive, Some((0, 1)));
        assert_eq!(ledger.take(&once, &limits), Ok(()));
        assert!(
            ledger
                .take(&once, &limits)
                .unwrap_err()
                .contains("r allows 1 calls a run")
        );
        assert_eq!(ledger.take(&ruling(Class::ReadOnly, None), &limits), Ok(()));
        assert!(
            ledger
                .take(&ruling(Class::ReadOnly, None), &limits)
                .unwrap_err()
                .contains("4 calls")
        );
    }
}
