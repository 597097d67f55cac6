//! Every figure of a report, by the queries and the hits that it is about.

use super::{ArmReport, Interval, Intervals, Means, Metric, Report, marked};

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
        let whole = self.arms.iter().map(|arm| ArmFigures {
            intervals: Some(&arm.ci95),
            ..ArmFigures::of(&arm.name, &arm.means)
        });
        let tolerant = |arm: &'a ArmReport| Some((&*arm.name, arm.duplicate_tolerant.as_ref()?));
        let condensed = |arm: &'a ArmReport| Some((&*arm.name, arm.condensed.as_ref()?));
        let mut all = vec![
            Figures::about("", whole),
            Figures::means(
                "near-identical tools count",
                self.arms.iter().filter_map(tolerant),
            ),
            Figures::means("judged hits alone", self.arms.iter().filter_map(condensed)),
        ];
        for source in &self.sources {
            let arms = source.arms.iter().map(|(name, means)| (&**name, means));
            let source = marked(&source.source, source.queries);
            all.push(Figures::means(format!("source {source}"), arms));
        }
        all.retain(|figures| !figures.arms.is_empty());
        all
    }
}

impl<'a> Figures<'a> {
    fn about(about: impl Into<String>, arms: impl Iterator<Item = ArmFigures<'a>>) -> Self {
        Figures {
            about: about.into(),
            arms: arms.collect(),
        }
    }

    /// Those of arms without intervals.
    fn means(about: impl Into<String>, arms: impl Iterator<Item = (&'a str, &'a Means)>) -> Self {
        Figures::about(about, arms.map(|(name, means)| ArmFigures::of(name, means)))
    }

    /// The metrics of all arms.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        for metric in self.arms.iter().flat_map(|arm| arm.means.metrics()) {
            if !metrics.contains(&metric) {
                metrics.push(metric);
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
