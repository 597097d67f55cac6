//! Figures of the queries of each source: people, calls, templates and models are not mixed without a
//! word.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ArmReport, Means};
use crate::judged_line::TEMPLATE;
use crate::metrics::mean;
use crate::ordered;
use crate::per_query::QueryReport;

/// The name of queries whose source nobody has written down.
const NOT_SAID: &str = "not said";

/// The figures of the queries of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationSource)]
pub struct SourceReport {
    /// Where these queries came from.
    pub source: String,
    /// Their number.
    pub queries: usize,
    /// The means of each arm.
    #[serde(serialize_with = "write", deserialize_with = "ordered::read")]
    #[schema(value_type = BTreeMap<String, BTreeMap<String, f64>>)]
    pub arms: Vec<(String, Means)>,
}

fn write<S: serde::Serializer>(arms: &[(String, Means)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arms.iter().map(|(name, means)| (name, means)))
}

/// The figures by source, in the order of the first queries; none if no query has a source.
pub fn by_source(queries: &[QueryReport], arms: &[ArmReport]) -> Vec<SourceReport> {
    if queries.iter().all(|query| query.source.is_none()) {
        return Vec::new();
    }
    let source_of = |query: &QueryReport| query.source.clone().unwrap_or_else(|| NOT_SAID.into());
    let mut sources: Vec<(String, Vec<&QueryReport>)> = Vec::new();
    for query in queries {
        let source = source_of(query);
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, of_source)) => of_source.push(query),
            None => sources.push((source, vec![query])),
        }
    }
    let report = |(source, queries): (String, Vec<&QueryReport>)| SourceReport {
        source,
        queries: queries.len(),
        arms: arms.iter().map(|arm| means_of(arm, &queries)).collect(),
    };
    sources.into_iter().map(report).collect()
}

fn means_of(arm: &ArmReport, queries: &[&QueryReport]) -> (String, Means) {
    let of_metric = |metric| {
        let values = queries.iter().map(|query| query.value(&arm.name, metric));
        (metric, mean(&values.collect::<Vec<_>>()))
    };
    let means = arm.means.metrics().into_iter().map(of_metric).collect();
    (arm.name.clone(), Means(means))
}

/// What the sources mean for the figures.
pub(super) fn say(sources: &[SourceReport]) -> Option<String> {
    if sources.is_empty() {
        return None;
    }
    let counts: Vec<String> = sources
        .iter()
        .map(|source| format!("{} of {}", source.queries, source.source))
        .collect();
    let mixed = if sources.len() > 1 {
        " The figures of all queries mix them; those by source stand alone."
    } else {
        ""
    };
    let easy = if sources.iter().any(|source| source.source == TEMPLATE) {
        " Queries by templates are easy: they have the words of the definitions."
    } else {
        ""
    };
    Some(format!("Queries: {}.{mixed}{easy}", counts.join(", ")))
}
