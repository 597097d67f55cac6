//! The HTTP API and the console.

pub mod shutdown;
pub mod samples;
pub mod hints;
pub mod http;
