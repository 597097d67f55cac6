//! The agent: a model that sees one tool at first and the rest when it needs them.

pub mod agent;
