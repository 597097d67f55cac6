//! What is judged of one query, without the tools themselves.

use serde::{Deserialize, Serialize};

/// The judgements of a query. Judged tools are named by their positions in `grades`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgements {
    /// The grade of each judged tool; 0 or less is judged as not relevant.
    pub grades: Vec<f64>,
    /// The least grade of a relevant tool.
    pub relevant_from: f64,
    /// Groups of alternatives: one tool of each is needed. Without any, every relevant tool is a
    /// group of its own.
    pub groups: Vec<Vec<usize>>,
    /// The tools in the order in which they are to be called; empty if their order is not judged.
    pub order: Vec<usize>,
}

/// A ranking as its judgements see it: for each hit the position of the judged tool that it is, or
/// stands for; `None` for a hit that is not judged.
pub type JudgedHits = Vec<Option<usize>>;

impl Judgements {
    /// So many relevant tools of equal worth, and nothing else.
    pub fn binary(relevant: usize) -> Self {
        Judgements {
            grades: vec![1.0; relevant],
            ..Judgements::default()
        }
    }

    /// Whether a grade counts as relevant, from this grade on instead of the usual one.
    pub fn is_relevant(&self, grade: f64, from: Option<u16>) -> bool {
        let from = from.map_or(self.relevant_from, f64::from);
        grade > 0.0 && grade >= from
    }

    /// The number of relevant tools.
    pub fn relevant(&self, from: Option<u16>) -> usize {
        let grades = self.grades.iter();
        grades
            .filter(|grade| self.is_relevant(**grade, from))
            .count()
    }

    /// The needs of the query, as the relevant tools that meet each.
    pub fn needs(&self, from: Option<u16>) -> Vec<Vec<usize>> {
        let relevant = |position: &usize| self.is_relevant(self.grades[*position], from);
        if self.groups.is_empty() {
            let tools = (0..self.grades.len()).filter(relevant);
            return tools.map(|tool| vec![tool]).collect();
        }
        let mut needs = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let need: Vec<usize> = group.iter().copied().filter(relevant).collect();
            // A group without a relevant tool is no need: nothing could meet it.
            if !need.is_empty() {
                needs.push(need);
            }
        }
        needs
    }
}

/// What the relevant tools of a query are worth, in their order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Worth {
    /// Their grades; empty where all are 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grades: Vec<f64>,
    /// Groups of alternatives, by position; empty where every tool is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Vec<usize>>,
}

impl Worth {
    /// Whether every relevant tool is worth the same, and is needed.
    pub fn is_equal(&self) -> bool {
        self.grades.is_empty() && self.groups.is_empty()
    }

    /// The judgements of a query with so many relevant tools.
    pub fn judgements(&self, relevant: usize) -> Judgements {
        Judgements {
            grades: if self.grades.is_empty() {
                vec![1.0; relevant]
            } else {
                self.grades.clone()
            },
            groups: self.groups.clone(),
            ..Judgements::default()
        }
    }
}
