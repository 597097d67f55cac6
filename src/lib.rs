//! Everything around the engine: where settings and models come from, the agent, and the command
//! line.
//!
//! Retrieval itself is in [`toolscout_index`]; start there to use tool search as a library. This
//! crate is what the `toolscout` program is made of. The modules are listed in the order in which
//! they may use one another: a module knows those above it and none below.

pub mod config;
pub mod models;

pub mod clock;
pub mod shutdown;

pub mod printable;

pub mod hints;

pub mod budget;
pub mod embed_cache;
pub mod feedback;
pub mod keys;
pub mod telemetry;
pub mod catalog_writer;

pub mod llm;
pub mod session;
pub mod tools;
pub mod gate;

pub mod finder;

pub mod agent;

pub mod mcp;

pub mod http;

pub mod eval;

pub mod cli;

/// Makes the README's example a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
