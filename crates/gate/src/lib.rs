//! Chat models, tools that can be called, their use, the gate that judges every call, and plans of calls.

pub mod llm;
pub mod tools;
pub mod usage;
pub mod gate;
pub mod plan;
