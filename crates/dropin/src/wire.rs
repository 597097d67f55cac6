//! What is read and written: JSON that keeps its bytes, events of streams, and the errors of an answer.

pub mod failure;
pub mod json;
pub mod sse;
pub mod event_stream;
pub mod frames;
