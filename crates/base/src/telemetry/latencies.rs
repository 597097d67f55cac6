//! Latencies counted in buckets, and the percentiles that can be told from them.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use serde::{Deserialize, Serialize};

/// Upper bounds of the buckets in seconds: from a cached lexical search to a slow request.
pub const BOUNDS_S: [f64; 15] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    10.0,
];

/// A histogram of latencies. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Arc<Mutex<Buckets>>);

/// The counts of a histogram at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Buckets {
    /// Latencies up to each bound and above the bound before it; in the last bucket those above
    /// every bound.
    pub counts: [u64; BOUNDS_S.len() + 1],
    /// The sum of all latencies in seconds.
    pub sum_s: f64,
}

impl Latencies {
    /// Counts one latency.
    pub fn observe(&self, seconds: f64) {
        // A latency that equals a bound counts below it, as Prometheus has it.
        let bucket = BOUNDS_S.partition_point(|bound| *bound < seconds);
        let mut buckets = self.0.lock();
        buckets.counts[bucket] += 1;
        buckets.sum_s += seconds;
    }

    /// The counts so far.
    pub fn read(&self) -> Buckets {
        *self.0.lock()
    }
}

impl TypedMetric for Latencies {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Latencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let buckets = self.read();
        // The encoder writes this bound as infinity.
        let bounds = BOUNDS_S.into_iter().chain([f64::MAX]);
        let counts: Vec<(f64, u64)> = bounds.zip(buckets.counts).collect();
        encoder.encode_histogram::<NoLabelSet>(buckets.sum_s, buckets.len(), &counts, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl Buckets {
    /// Number of latencies.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their mean in seconds; `None` without any.
    pub fn mean_s(&self) -> Option<f64> {
        match self.len() {
            0 => None,
            count => Some(self.sum_s / count as f64),
        }
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Buckets) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_s += other.sum_s;
    }

    /// What was counted since an earlier moment of the same histogram.
    pub fn since(&self, earlier: &Buckets) -> Buckets {
        let mut since = *self;
        for (count, before) in since.counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        since.sum_s -= earlier.sum_s;
        since
    }

    /// The latency in seconds that a share of all does not exceed; `None` without any.
    ///
    /// An estimate: latencies count as evenly spread within their bucket, so the true percentile
    /// lies between the same two bounds. Above the last bound there is nothing to estimate with, and
    /// that bound is the answer.
    pub fn percentile_s(&self, share: f64) -> Option<f64> {
        let total = self.len();
        if total == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * total as f64;
        let mut below = 0;
        for (index, count) in self.counts.into_iter().enumerate() {
            let reached = below + count;
            // Without the first condition a share of 0 would divide by an empty bucket.
            if count > 0 && reached as f64 >= wanted {
                let part = (wanted - below as f64) / count as f64;
                return Some(within(index, part));
            }
            below = reached;
        }
        BOUNDS_S.last().copied()
    }
}

/// The latency at a part of a bucket, from 0 to 1.
fn within(bucket: usize, part: f64) -> f64 {
    let last = BOUNDS_S.len() - 1;
    let Some(upper) = BOUNDS_S.get(bucket) else {
        return BOUNDS_S[last];
    };
    let lower = bucket.checked_sub(1).map_or(0.0, |below| BOUNDS_S[below]);
    lower + (upper - lower) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: &[f64]) -> Buckets {
        let latencies = Latencies::default();
        seconds.iter().for_each(|one| latencies.observe(*one));
        latencies.read()
    }

    #[test]
    fn a_percentile_lies_in_the_bucket_of_the_true_one() {
        let mut seconds: Vec<f64> = (1..=1000).map(|n| f64::from(n) / 10_000.0).collect();
        let buckets = of(&seconds);
        seconds.sort_by(f64::total_cmp);
        for share in [0.01, 0.5, 0.9, 0.95, 0.99, 1.0] {
            let truth = seconds[((share * 1000.0) as usize).saturating_sub(1)];
            let estimate = buckets.percentile_s(share).unwrap();
            let bucket = |value: f64| BOUNDS_S.partition_point(|bound| *bound < value);
            assert_eq!(
                bucket(estimate),
                bucket(truth),
                "{share}: {estimate} {truth}"
            );
        }
    }

    #[test]
    fn percentiles_at_the_ends_are_bounds() {
        assert_eq!(of(&[]).percentile_s(0.5), None);
        assert_eq!(of(&[0.0004]).percentile_s(1.0), Some(0.0005));
        assert_eq!(of(&[60.0, 90.0]).percentile_s(0.5), Some(10.0));
        assert_eq!(of(&[0.0, 0.0]).percentile_s(0.0), Some(0.0));
    }

    #[test]
    fn histograms_add_up() {
        let mut all = of(&[0.001, 0.2]);
        all.add(&of(&[0.3]));
        assert_eq!(all, of(&[0.001, 0.2, 0.3]));
        assert_eq!((all.len(), all.is_empty()), (3, false));
        assert!((all.mean_s().unwrap() - 0.167).abs() < 1e-9);
        assert_eq!(of(&[]).mean_s(), None);
        let since = of(&[0.001, 0.2]).since(&of(&[0.001]));
        assert_eq!((since.len(), since.counts), (1, of(&[0.2]).counts));
    }
}
