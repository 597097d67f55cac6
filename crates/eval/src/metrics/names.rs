//! The names of metrics: our own, and those of ir_measures.

use std::fmt;
use std::str::FromStr;

use super::{Measure, Metric};
use crate::error::{EvalError, Result};

/// The persistence of `rbp` without one, in thousandths.
const PERSISTENCE: u16 = 800;
const VALID: &str = "write a metric of docs/evaluation.md, such as ndcg@10, recall@5, AP, \
    nDCG(dcg='exp-log2')@10, P(rel=2)@5 or RBP(p=0.8)";

/// Whether a measure has a cut-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cutoff {
    Always,
    Optional,
    Never,
}

/// The metrics of a text, between commas outside of parentheses.
///
/// # Errors
/// [`EvalError::Option`] for an unknown name.
pub fn list(text: &str) -> Result<Vec<Metric>> {
    let mut depth = 0_usize;
    let mut metrics: Vec<Metric> = Vec::new();
    // A comma within parentheses separates parameters.
    let is_end = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    for name in text.split(is_end) {
        let metric = name.parse()?;
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    Ok(metrics)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parameters = Vec::new();
        let name = match self.measure {
            Measure::Ndcg => "ndcg",
            Measure::NdcgExp => {
                parameters.push("dcg='exp-log2'".to_owned());
                "ndcg"
            }
            Measure::Recall => "recall",
            Measure::Precision => "precision",
            Measure::Mrr => "mrr",
            Measure::Success => "success",
            Measure::Complete => "complete",
            Measure::Ap => "ap",
            Measure::Rprec => "rprec",
            Measure::Rbp(thousandths) => {
                parameters.push(format!("p={}", f64::from(thousandths) / 1000.0));
                "rbp"
            }
            Measure::Err => "err",
            Measure::Bpref => "bpref",
            Measure::Judged => "judged",
            Measure::Unjudged => "unjudged",
            Measure::Tau => "tau",
            Measure::Prefix => "prefix",
        };
        if let Some(grade) = self.relevant_from {
            parameters.push(format!("rel={grade}"));
        }
        if self.judged_only {
            parameters.push("judged_only=True".to_owned());
        }
        let mut text = name.to_owned();
        if !parameters.is_empty() {
            text = format!("{text}({})", parameters.join(","));
        }
        if let Some(depth) = self.depth {
            text = format!("{text}@{depth}");
        }
        f.pad(&text)
    }
}

impl FromStr for Metric {
    type Err = EvalError;

    fn from_str(text: &str) -> Result<Self> {
        match read(text.trim()) {
            Some(metric) => Ok(metric),
            None => Err(EvalError::option("metric", text, VALID)),
        }
    }
}

fn read(text: &str) -> Option<Metric> {
    let (head, depth) = match text.rsplit_once('@') {
        Some((head, depth)) => (
            head,
            Some(depth.parse::<usize>().ok().filter(|depth| *depth >= 1)?),
        ),
        None => (text, None),
    };
    let (name, parameters) = match head.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')')?),
        None => (head, ""),
    };
    let mut metric = Metric {
        depth,
        ..Metric::whole(measure(name)?)
    };
    for parameter in parameters.split(',').filter(|text| !text.trim().is_empty()) {
        let (key, value) = parameter.split_once('=')?;
        set(
            &mut metric,
            key.trim(),
            value.trim().trim_matches(['\'', '"']),
        )?;
    }
    // A missing cut-off, or one that means nothing, is refused and not guessed.
    let fits = match metric.measure.cutoff() {
        Cutoff::Always => depth.is_some(),
        Cutoff::Optional => true,
        Cutoff::Never => depth.is_none(),
    };
    fits.then_some(metric)
}

fn measure(name: &str) -> Option<Measure> {
    Some(match name.to_ascii_lowercase().as_str() {
        "ndcg" => Measure::Ndcg,
        "recall" | "r" => Measure::Recall,
        "precision" | "p" => Measure::Precision,
        "mrr" | "rr" => Measure::Mrr,
        "success" => Measure::Success,
        "complete" => Measure::Complete,
        "ap" | "map" => Measure::Ap,
        "rprec" => Measure::Rprec,
        "rbp" => Measure::Rbp(PERSISTENCE),
        "err" => Measure::Err,
        "bpref" => Measure::Bpref,
        "judged" => Measure::Judged,
        "unjudged" => Measure::Unjudged,
        "tau" => Measure::Tau,
        "prefix" => Measure::Prefix,
        _ => return None,
    })
}

fn set(metric: &mut Metric, key: &str, value: &str) -> Option<()> {
    match (metric.measure, key) {
        (Measure::Ndcg, "dcg") => {
            metric.measure = match value {
                "log2" => Measure::Ndcg,
                "exp-log2" => Measure::NdcgExp,
                _ => return None,
            };
        }
        (Measure::Rbp(_), "p") => {
            let persistence: f64 = value.parse().ok()?;
            let thousandths = (persistence * 1000.0).round();
            let is_valid = persistence > 0.0 && persistence < 1.0;
            // A rounded persistence would be another metric.
            let is_exact = (persistence * 1000.0 - thousandths).abs() < 1e-9;
            metric.measure = Measure::Rbp((is_valid && is_exact).then_some(thousandths as u16)?);
        }
        // Gains count grades, whatever is relevant; and what is judged does not depend on it.
        (
            Measure::Ndcg
            | Measure::NdcgExp
            | Measure::Err
            | Measure::Judged
            | Measure::Unjudged
            | Measure::Tau
            | Measure::Prefix,
            "rel",
        ) => return None,
        (_, "rel") => {
            metric.relevant_from = Some(value.parse::<u16>().ok().filter(|rel| *rel >= 1)?)
        }
        (Measure::Judged | Measure::Unjudged, "judged_only") => return None,
        (_, "judged_only") => {
            metric.judged_only = match value {
                "True" | "true" => true,
                "False" | "false" => false,
                _ => return None,
            };
        }
        _ => return None,
    }
    Some(())
}
