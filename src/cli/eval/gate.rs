//! `toolscout eval --baseline`: whether figures dropped since an earlier report.

use anyhow::Result;

use super::super::Outcome;
use super::super::output::print_stderr;
use super::Args;
use crate::eval::baseline::{Baseline, Change, Planned};
use crate::eval::{EvalSet, Plan, Report, report, run_file, table};

impl Args {
    /// Fails if the baseline cannot be compared with what this run is going to measure.
    pub(super) fn check_baseline(
        &self,
        baseline: &Baseline,
        sets: &[EvalSet],
        plan: &Plan,
        embedder: &str,
    ) -> Result<()> {
        let arms = plan.arms.iter().map(|arm| arm.name.clone());
        let arms: Vec<String> = arms
            .chain(plan.runs.iter().map(|path| run_file::run_name(path)))
            .collect();
        let gated = self.gated()?;
        for set in sets {
            // Set by set, since the number of its tools decides the cut-offs.
            let metrics = self.plan_for(plan, set).metrics_of(set);
            let planned = Planned {
                identity: &report::identity(set, plan.seed, embedder.to_owned()),
                arms: &arms,
                metrics: &metrics,
            };
            baseline.check(&planned, &gated)?;
        }
        Ok(())
    }

    /// Compares the figures, and prints the changes on stderr, since stdout may have the report.
    pub(super) fn compare(&self, baseline: &Baseline, reports: &[Report]) -> Result<Outcome> {
        let gated = self.gated()?;
        let mut changes: Vec<Change> = Vec::new();
        for report in reports {
            changes.extend(baseline.compare(report, &gated)?);
        }
        print_stderr(table::changes(&changes, self.max_drop));
        let dropped = changes
            .iter()
            .filter(|change| change.drops_more_than(self.max_drop))
            .count();
        // The exit code is what continuous integration goes by.
        let outcome = if dropped == 0 {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        let count = match dropped {
            0 => "none".to_owned(),
            some => some.to_string(),
        };
        print_stderr(format_args!(
            "{count} of {} figures dropped by more than {} points",
            changes.len(),
            self.max_drop
        ));
        Ok(outcome)
    }
}
