//! Every figure of a report, by the queries and the hits that it is about.

use super::{Interval, Intervals, Means, Metric, Report, marked};

/// Figures about the same queries and hits.
pub struct Figures<'a> {
    /// What they are about; empty for all queries and hits.
    pub about: String,
    arms: Vec<ArmFigures<'a>>,
}

/// The figures of an arm, with the intervals if there are any.
struct ArmFigures<'a> {
    name: &'a str,
    means: &'a Means,
    intervals: Option<&'a Intervals>,
}

impl Report {
    /// Every figure.
    pub fn figures<'a>(&'a self) -> Vec<Figures<'a>> {
        let (mut whole, mut tolerant, mut condensed) = (Vec::new(), Vec::new(), Vec::new());
        for arm in &self.arms {
            whole.push(ArmFigures {
                intervals: Some(&arm.ci95),
                ..ArmFigures::of(&arm.name, &arm.means)
            });
            if let Some(means) = &arm.duplicate_tolerant {
                tolerant.push(ArmFigures::of(&arm.name, means));
            }
            if let Some(means) = &arm.condensed {
                condensed.push(ArmFigures::of(&arm.name, means));
            }
        }
        let mut all = vec![
            Figures::about("", whole),
            Figures::about("near-identical tools count", tolerant),
            Figures::about("judged hits alone", condensed),
        ];
        for source in &self.sources {
            let arms = source.arms.iter();
            let arms = arms.map(|(name, means)| ArmFigures::of(name, means));
            let name = marked(&source.source, source.queries);
            all.push(Figures::about(format!("source {name}"), arms.collect()));
        }
        // Most sets are measured without some of these.
        all.retain(|figures| !figures.arms.is_empty());
        all
    }
}

impl<'a> Figures<'a> {
    fn about(about: impl Into<String>, arms: Vec<ArmFigures<'a>>) -> Self {
        Figures {
            about: about.into(),
            arms,
        }
    }

    /// The metrics of all arms.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for arm in &self.arms {
            for metric in arm.means.metrics() {
                if !metrics.contains(&metric) {
                    metrics.push(metric);
                }
            }
        }
        metrics
    }

    /// A figure, with its interval if it has one; `None` if the arm lacks it.
    pub fn value(&self, arm: &str, metric: Metric) -> Option<(f64, Option<Interval>)> {
        let arm = self.arms.iter().find(|other| other.name == arm)?;
        let interval = arm.intervals.and_then(|all| all.value(metric));
        Some((arm.means.value(metric)?, interval))
    }
}

impl<'a> ArmFigures<'a> {
    fn of(name: &'a str, means: &'a Means) -> Self {
        ArmFigures {
            name,
            means,
            intervals: None,
        }
    }
}
