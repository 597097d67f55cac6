//! Figures by metric, as objects whose keys are the names of the metrics.

use serde::de::DeserializeOwned;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::bootstrap::Interval;
use crate::judge::Scores;
use crate::metrics::Metric;
use crate::ordered;

/// Metrics with their means, written as an object in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Means(pub Vec<(Metric, f64)>);

impl Means {
    /// The means of an evaluated run.
    pub fn of(scores: &Scores) -> Self {
        let metrics = scores.metrics.iter().copied();
        Means(
            metrics
                .map(|metric| (metric, scores.mean(metric)))
                .collect(),
        )
    }

    /// The mean of a metric; `None` when it was not measured.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let mut all = self.0.iter();
        Some(all.find(|(other, _)| *other == metric)?.1)
    }

    /// The metrics, in their order.
    pub fn metrics(&self) -> Vec<Metric> {
        self.0.iter().map(|(metric, _)| *metric).collect()
    }
}

impl Serialize for Means {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Means {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer).map(Means)
    }
}

/// Metrics with their intervals, written as an object in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intervals(pub Vec<(Metric, Interval)>);

impl Intervals {
    /// The interval of a metric; `None` without one.
    pub fn value(&self, metric: Metric) -> Option<Interval> {
        let mut all = self.0.iter();
        Some(all.find(|(other, _)| *other == metric)?.1)
    }
}

impl Serialize for Intervals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(&self.0, serializer)
    }
}

impl<'de> Deserialize<'de> for Intervals {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer).map(Intervals)
    }
}

fn write<S: Serializer, V: Serialize>(
    entries: &[(Metric, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (metric, value) in entries {
        map.serialize_entry(&metric.to_string(), value)?;
    }
    map.end()
}

/// The entries whose keys are metrics. A report of another program has others beside them.
fn read<'de, D: Deserializer<'de>, V: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<(Metric, V)>, D::Error> {
    let entries: Vec<(String, Value)> = ordered::read(deserializer)?;
    let mut read = Vec::new();
    for (name, value) in entries {
        if let (Ok(metric), Ok(value)) = (name.parse(), V::deserialize(value)) {
            read.push((metric, value));
        }
    }
    Ok(read)
}
