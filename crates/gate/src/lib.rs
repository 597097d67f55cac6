//! Chat models, tools that can be called, the gate that judges every call, and plans of calls.

pub mod llm;
pub mod tools;
pub mod gate;
pub mod plan;
