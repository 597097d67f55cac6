//! What the process has: its end, its descriptors, and the bounds of what clients can make it hold.

pub mod shutdown;
pub mod descriptors;
pub mod limits;
