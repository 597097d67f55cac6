//! Evaluation: judged queries, metrics, reports and the simulated agent.

pub mod eval;
