//! The answers of a provider: passed on as they come, or read round by round.

pub mod figures;
pub mod passing;
pub mod exchange;
pub mod streaming;
