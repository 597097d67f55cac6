//! The agent.

pub mod event;
pub mod find;
pub mod memory;
pub mod names;
pub mod prompt;
pub mod reply;
pub mod run;
pub mod search;
pub mod think;
pub mod toolbox;
