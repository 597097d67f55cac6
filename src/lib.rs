//! toolscout.

pub mod agent;
pub mod llm;
pub mod session;
pub mod tools;
