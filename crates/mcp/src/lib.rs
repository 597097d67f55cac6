//! The Model Context Protocol both ways: connections to servers, and the gateway for clients.

pub mod mcp;
