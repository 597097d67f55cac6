//! What a set has and a measurement leaves out, in numbers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use toolscout_base::printable::counted;

/// What was left out of a set, or read in a way that one would want to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EvaluationLeftOut)]
#[serde(default)]
pub struct LeftOut {
    /// Queries about which nothing is judged.
    pub unjudged_queries: usize,
    /// Queries of the judgements that the set does not have.
    pub unknown_queries: usize,
    /// Queries whose `relevant` and qrels differ; `relevant` counts.
    pub contradicting_queries: usize,
    /// Judgements about tools that the set does not have.
    pub unknown_tools: usize,
    /// Queries that lost all their relevant tools in this way.
    pub queries_without_known_tool: usize,
    /// Queries judged with grades of 0 only. They are not left out: no tool serves them.
    pub judged_irrelevant: usize,
}

impl LeftOut {
    /// A line for each kind that occurs.
    pub fn lines(&self) -> Vec<String> {
        let query = |count| counted(count, "query");
        let kinds = [
            (
                self.unjudged_queries,
                format!(
                    "{} left out: nothing is judged about them",
                    query(self.unjudged_queries)
                ),
            ),
            (
                self.unknown_queries,
                format!(
                    "judgements of {} left out: the set has no such queries",
                    query(self.unknown_queries)
                ),
            ),
            (
                self.contradicting_queries,
                format!(
                    "{} with other judgements in the qrels than in `relevant`; `relevant` counts",
                    query(self.contradicting_queries)
                ),
            ),
            (
                self.unknown_tools,
                format!(
                    "{} left out: the set has no such tools",
                    counted(self.unknown_tools, "judgement")
                ),
            ),
            (
                self.queries_without_known_tool,
                format!(
                    "{} left out: the set has none of their relevant tools",
                    query(self.queries_without_known_tool)
                ),
            ),
            (
                self.judged_irrelevant,
                format!(
                    "{} judged with 0 only: no tool serves them",
                    query(self.judged_irrelevant)
                ),
            ),
        ];
        let mut lines = Vec::new();
        for (count, line) in kinds {
            if count > 0 {
                lines.push(line);
            }
        }
        lines
    }
}
