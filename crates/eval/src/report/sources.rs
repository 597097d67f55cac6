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
    let mut sources: Vec<(&str, Vec<&QueryReport>)> = Vec::new();
    for query in queries {
        let source = query.source.as_deref().unwrap_or(NOT_SAID);
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, of_source)) => of_source.push(query),
            None => sources.push((source, vec![query])),
        }
    }
    let mut reports = Vec::with_capacity(sources.len());
    for (source, queries) in sources {
        reports.push(SourceReport {
            source: source.to_owned(),
            queries: queries.len(),
            arms: arms.iter().map(|arm| means_of(arm, &queries)).collect(),
        });
    }
    reports
}

fn means_of(arm: &ArmReport, queries: &[&QueryReport]) -> (String, Means) {
    let mut means = Vec::new();
    for metric in arm.means.metrics() {
        let values = queries.iter().map(|query| query.value(&arm.name, metric));
        means.push((metric, mean(&values.collect::<Vec<_>>())));
    }
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
    // Said of mixed sets too: easy queries lift the figures of all.
    let easy = if sources.iter().any(|source| source.source == TEMPLATE) {
        " Queries by templates are easy: they have the words of the definitions."
    } else {
        ""
    };
    Some(format!("Queries: {}.{mixed}{easy}", counts.join(", ")))
}
