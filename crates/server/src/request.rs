//! How requests are read, and how they are answered if they fail.

pub mod wire;
pub mod error;
pub mod extract;
pub mod paging;
pub mod id;
pub mod threads;
