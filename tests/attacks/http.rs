//! The HTTP API: pages of other sites, keys that are not the owner's, and clients that want
//! everything.

pub mod agent;
pub mod browser;
pub mod overload;
pub mod owners;
pub mod pages;
