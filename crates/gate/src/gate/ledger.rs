//! The calls of a run, counted against its limits, and the preconditions that held in it.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::gate::class::Class;
use crate::gate::policy::{AppliedRule, Policies};
use crate::tools::Arguments;
use toolscout_base::printable::counted;

/// Counts the calls of one run, or those of a client within a time.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
    is_of_client: bool,
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
    /// Counts the calls of a client within a time.
    pub fn of_client() -> Self {
        Ledger {
            is_of_client: true,
            ..Ledger::default()
        }
    }

    /// Counts one more call, including calls that wait for approval. A call over a limit is not
    /// counted.
    ///
    /// # Errors
    /// A message for the model that names the limit.
    pub fn take(&self, applied: &AppliedRule, policies: &Policies) -> Result<(), String> {
        let (caller, limits) = match self.is_of_client {
            true => ("a client", policies.limits_of_clients()),
            false => ("a run", policies.limits),
        };
        let mut counts = self.counts.lock();
        let class = applied.class;
        if counts.calls >= limits.calls {
            return Err(format!(
                "{caller} may make {}, and has made them; answer with what you have",
                counted(limits.calls, "call")
            ));
        }
        let class_limit = limits.of(class);
        let of_class = counts.by_class.get(&class).copied().unwrap_or_default();
        if of_class >= class_limit {
            return Err(format!(
                "{caller} may make {}, and has made them; do without",
                counted(class_limit, &format!("{class} call"))
            ));
        }
        // The last check, since it counts: a call over any of the limits is counted nowhere.
        if let Some((rule, limit)) = applied.limit {
            let under_rule = counts.by_rule.entry(rule).or_default();
            if *under_rule >= limit {
                let calls = counted(limit, "call");
                let allowed = match self.is_of_client {
                    true => format!("a client {calls}"),
                    false => format!("{calls} a run"),
                };
                return Err(format!(
                    "{} allows {allowed}, and they were made; do without",
                    applied.rule
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
        self.counts.lock().satisfied.get(precondition).cloned()
    }

    /// Records that a precondition holds, and what it sets.
    pub fn mark_satisfied(&self, precondition: String, sets: Arguments) {
        self.counts.lock().satisfied.insert(precondition, sets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::policy::{CallLimits, Decision};

    #[test]
    fn each_limit_applies_on_its_own() {
        let policies = Policies {
            limits: CallLimits {
                calls: 4,
                state_changing: 2,
                destructive: 9,
            },
            ..Policies::default()
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
                ledger.take(&changing, &policies),
                ledger.take(&changing, &policies)
            ),
            (Ok(()), Ok(()))
        );
        assert!(
            ledger
                .take(&changing, &policies)
                .unwrap_err()
                .contains("2 state_changing calls")
        );
        let once = applied(Class::Destructive, Some((0, 1)));
        assert_eq!(ledger.take(&once, &policies), Ok(()));
        assert!(
            ledger
                .take(&once, &policies)
                .unwrap_err()
                .contains("r allows 1 call a run")
        );
        let reading = applied(Class::ReadOnly, None);
        assert_eq!(ledger.take(&reading, &policies), Ok(()));
        assert!(
            ledger
                .take(&reading, &policies)
                .unwrap_err()
                .contains("4 calls")
        );
    }

    #[test]
    fn a_client_has_limits_of_its_own_unless_those_of_runs_were_set() {
        let reading = AppliedRule {
            class: Class::ReadOnly,
            decision: Decision::Allow,
            rule: "r".into(),
            limit: None,
        };
        let made = |policies: &Policies| {
            let ledger = Ledger::of_client();
            let mut made = 0;
            while made < 10_000 && ledger.take(&reading, policies).is_ok() {
                made += 1;
            }
            made
        };
        let mut policies = Policies::default();
        assert_eq!(made(&policies), 5_000);
        policies.limits.calls = 300;
        assert_eq!(made(&policies), 300);
        policies.client_limits = Some(CallLimits::default());
        assert_eq!(made(&policies), 256);
    }
}
