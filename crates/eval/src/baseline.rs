//! Compares metrics with an earlier report, so that a drop can fail a build.

use std::path::Path;

use super::error::{EvalError, Result};
use super::metrics::{Measure, Metric};
use super::report::{Report, read_reports, set_names};

/// The default of the metrics that must not drop.
pub const GATED: [Metric; 6] = [
    Metric::new(Measure::Ndcg, 5),
    Metric::new(Measure::Ndcg, 10),
    Metric::new(Measure::Recall, 5),
    Metric::new(Measure::Recall, 10),
    Metric::new(Measure::Mrr, 10),
    Metric::new(Measure::Complete, 5),
];

/// Floating-point noise that does not count as a drop, in points.
const NOISE: f64 = 1e-7;

/// Earlier reports to compare with.
#[derive(Clone, Debug)]
pub struct Baseline {
    path: std::path::PathBuf,
    reports: Vec<Report>,
}

/// What a run is going to measure of a set.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// A report without results: set, embedder and state.
    pub identity: &'a Report,
    /// The names of the arms.
    pub arms: &'a [String],
    /// The metrics.
    pub metrics: &'a [Metric],
}

/// A metric in the baseline and in this run, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The set.
    pub set: String,
    /// The arm.
    pub arm: String,
    /// The metric.
    pub metric: Metric,
    /// The value in the baseline.
    pub before: f64,
    /// The value in this run.
    pub after: f64,
}

impl Change {
    /// The change in points of 100.
    pub fn points(&self) -> f64 {
        (self.after - self.before) * 100.0
    }

    /// True when the metric dropped by more than this many points.
    pub fn drops_more_than(&self, max_drop: f64) -> bool {
        -self.points() > max_drop + NOISE
    }
}

impl Baseline {
    /// Reads a file of reports.
    ///
    /// # Errors
    /// [`EvalError::Io`], [`EvalError::Baseline`] for a file that is not a report.
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Baseline {
            path: path.to_owned(),
            reports: read_reports(path)?,
        })
    }

    /// Fails if the baseline cannot be compared with what a run is going to measure.
    ///
    /// # Errors
    /// [`EvalError::Baseline`] for another set, other queries, another embedder, or arms and metrics
    /// that the run lacks. None of these is a drop, and none may be ignored.
    pub fn check(&self, planned: &Planned<'_>, gated: &[Metric]) -> Result<()> {
        let earlier = self.of_set(planned.identity)?;
        let mut compared = 0;
        for arm in &earlier.arms {
            if !planned.arms.contains(&arm.name) {
                return Err(self.differs(format!(
                    "it has the arm {} of {}, which this run lacks; add it to --arms, or the file of that run to --run",
                    arm.name, planned.identity.set
                )));
            }
            for metric in gated {
                // The default metrics have cut-offs that small sets do not reach.
                if arm.means.value(*metric).is_none() {
                    continue;
                }
                if !planned.metrics.contains(metric) {
                    return Err(self.differs(format!(
                        "it has {metric}, which this run does not measure; run with the same --k or --metrics"
                    )));
                }
                compared += 1;
            }
        }
        if compared == 0 {
            let names = |metrics: &[Metric]| {
                let names: Vec<String> = metrics.iter().map(Metric::to_string).collect();
                names.join(", ")
            };
            return Err(self.differs(format!(
                "it has none of the gated metrics ({}); name others with --gate, or run with the --k of the baseline",
                names(gated)
            )));
        }
        Ok(())
    }

    /// Every gated metric in the baseline and in this run.
    ///
    /// # Errors
    /// As [`Baseline::check`].
    pub fn compare(&self, report: &Report, gated: &[Metric]) -> Result<Vec<Change>> {
        let arms: Vec<String> = report.arms.iter().map(|arm| arm.name.clone()).collect();
        let metrics = match report.arms.first() {
            Some(arm) => arm.means.metrics(),
            None => Vec::new(),
        };
        let planned = Planned {
            identity: report,
            arms: &arms,
            metrics: &metrics,
        };
        // Checked once more: if an arm failed, the run has fewer arms than planned.
        self.check(&planned, gated)?;
        let earlier = self.of_set(report)?;
        let mut changes = Vec::new();
        for arm in &report.arms {
            // A baseline need not have every arm of the run.
            let Some(before) = earlier.arm(&arm.name) else {
                continue;
            };
            for &metric in gated {
                let values = (before.means.value(metric), arm.means.value(metric));
                if let (Some(before), Some(after)) = values {
                    changes.push(Change {
                        set: report.marked_set(),
                        arm: arm.name.clone(),
                        metric,
                        before,
                        after,
                    });
                }
            }
        }
        Ok(changes)
    }

    fn of_set(&self, report: &Report) -> Result<&Report> {
        let Some(earlier) = self
            .reports
            .iter()
            .find(|earlier| earlier.set == report.set)
        else {
            let has = set_names(&self.reports);
            return Err(self.differs(format!(
                "it is of the set {has} and this run of {}",
                report.set
            )));
        };
        if earlier.embedder != report.embedder {
            return Err(self.differs(format!(
                "it was measured with the embedder {:?} and this run with {:?}; write a new baseline with --json",
                earlier.embedder, report.embedder
            )));
        }
        // The report of another program has no fingerprint; only its counts are compared.
        let other_content =
            !earlier.fingerprint.is_empty() && earlier.fingerprint != report.fingerprint;
        if other_content || (earlier.tools, earlier.queries) != (report.tools, report.queries) {
            return Err(self.differs(format!(
                "it is of another state of the set {} ({} tools and {} queries then, {} and {} now, or other texts or judgements); use the same --queries and --seed, or write a new baseline with --json",
                report.set, earlier.tools, earlier.queries, report.tools, report.queries
            )));
        }
        Ok(earlier)
    }

    fn differs(&self, reason: String) -> EvalError {
        EvalError::Baseline {
            path: self.path.clone(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::report;
    use crate::report::to_json;

    fn baseline(reports: &[Report]) -> Baseline {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("baseline.json");
        std::fs::write(&path, to_json(reports, None).unwrap()).unwrap();
        Baseline::read(&path).unwrap()
    }

    #[test]
    fn only_lower_metrics_are_drops() {
        let baseline = baseline(&[report("metatool", "hybrid", 0.700)]);
        let change = |now| {
            baseline
                .compare(&report("metatool", "hybrid", now), &GATED)
                .unwrap()
                .remove(0)
        };
        assert!(!change(0.700).drops_more_than(0.0));
        assert!(!change(0.695).drops_more_than(0.5));
        assert!(change(0.6949).drops_more_than(0.5));
        assert!(!change(0.9).drops_more_than(0.0));
        assert!((change(0.69).points() + 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_set_is_found_among_several() {
        let baseline = baseline(&[report("a", "hybrid", 0.1), report("b", "hybrid", 0.2)]);
        assert_eq!(
            baseline
                .compare(&report("b", "hybrid", 0.2), &GATED)
                .unwrap()[0]
                .before,
            0.2
        );
    }

    #[test]
    fn an_incomparable_baseline_is_a_named_error() {
        let baseline = baseline(&[report("metatool", "hybrid", 0.7)]);
        let message = |report: &Report| baseline.compare(report, &GATED).unwrap_err().to_string();
        assert!(
            message(&report("bfcl", "hybrid", 0.7))
                .contains("of the set metatool and this run of bfcl")
        );
        assert!(message(&report("metatool", "lexical", 0.7)).contains("the arm hybrid"));
        let mut other = report("metatool", "hybrid", 0.7);
        other.embedder = "minilm".into();
        assert!(message(&other).contains("embedder \"none\" and this run with \"minilm\""));
        let mut other = report("metatool", "hybrid", 0.7);
        other.fingerprint = "0".into();
        assert!(message(&other).contains("another state of the set"));
        let gate = [Metric::new(Measure::Recall, 7)];
        assert!(
            baseline
                .compare(&report("metatool", "hybrid", 0.7), &gate)
                .unwrap_err()
                .to_string()
                .contains("--gate")
        );
    }

    #[test]
    fn a_file_that_is_not_a_report_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.json");
        for text in ["{}", "[1]", "no json"] {
            std::fs::write(&path, text).unwrap();
            let message = Baseline::read(&path).unwrap_err().to_string();
            assert!(
                message.contains("other.json") && message.contains("not a report"),
                "{message}"
            );
        }
    }
}
