//! toolscout.

pub mod agent;
pub mod llm;
pub mod tools;
