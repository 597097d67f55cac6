//! A metric for each of a set of labels, which can also be read back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// A metric `M` for each of the labels `L`. Clones share their metrics, and so do clones of `M`.
#[derive(Debug)]
pub struct Series<L, M>(Arc<RwLock<BTreeMap<L, M>>>);

impl<L: Ord, M: Clone + Default> Series<L, M> {
    /// The metric of these labels, made when it is first asked for.
    pub fn of(&self, labels: L) -> M {
        let known = self.0.read();
        if let Some(metric) = known.get(&labels) {
            return metric.clone();
        }
        drop(known);
        // Another thread may have made it meanwhile, so it is looked for once more.
        let mut metrics = self.0.write();
        metrics.entry(labels).or_default().clone()
    }
}

impl<L: Clone, M: Clone> Series<L, M> {
    /// All labels with their metrics, in the order of the labels.
    pub fn all(&self) -> Vec<(L, M)> {
        let mut all = Vec::new();
        for (labels, metric) in self.0.read().iter() {
            all.push((labels.clone(), metric.clone()));
        }
        all
    }
}

impl<L, M> Clone for Series<L, M> {
    fn clone(&self) -> Self {
        Series(Arc::clone(&self.0))
    }
}

impl<L, M> Default for Series<L, M> {
    fn default() -> Self {
        Series(Arc::default())
    }
}

impl<L, M: TypedMetric> TypedMetric for Series<L, M> {
    const TYPE: MetricType = M::TYPE;
}

impl<L, M> EncodeMetric for Series<L, M>
where
    L: EncodeLabelSet,
    M: EncodeMetric + TypedMetric,
{
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let metrics = self.0.read();
        for (labels, metric) in metrics.iter() {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        let metrics = self.0.read();
        metrics.is_empty()
    }
}
