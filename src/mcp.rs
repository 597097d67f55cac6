//! The Model Context Protocol both ways.
//!
//! As a client: [`config`] says which servers there are, the [`Pool`] keeps a [`connection`] to
//! each of them, puts their tools on a [`CatalogSink`] and calls them. As a server: the [`Gateway`] shows
//! any MCP client a handful of tools over a catalog of thousands, and [`install`] writes it into
//! the settings of such clients.
//!
//! One server is one failure: whatever it does, the others are served meanwhile, and nothing it
//! sends is kept beyond the [`Limits`].

pub mod approved;
pub mod changes;
pub mod config;
pub mod connection;
pub mod gateway;
pub mod install;
#[doc(hidden)]
pub mod lines;
pub mod outcome;
pub mod pool;
mod process;
pub mod sink;
pub mod sync;
mod watchdog;

use std::time::Duration;

use rmcp::model::Implementation;

pub use changes::OnChange;
pub use config::ServerConfig;
pub use connection::{CallContext, CallError, Progress};
pub use gateway::{Gateway, GatewayConfig, Principal};
pub use pool::{Pool, PoolConfig};
pub use sink::{CatalogSink, SingleWriterSink};

/// The bounds of what one server can make us hold, or wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of a server to the end of the handshake. Package runners fetch the server
    /// first.
    pub connect: Duration,
    /// All pages of a list of tools.
    pub list: Duration,
    /// A call without a sign of progress.
    pub call_idle: Duration,
    /// A call as a whole.
    pub call_total: Duration,
    /// A call's wait for a server that has just gone down and may be back at once.
    pub call_patience: Duration,
    /// Calls that one server works on at the same time; more wait in line.
    pub calls_at_once: usize,
    /// One message.
    pub message_bytes: usize,
    /// Tools of one server.
    pub tools: usize,
    /// Pages of one list of tools.
    pub pages: usize,
    /// All pages of one list together.
    pub list_bytes: usize,
    /// The title or the description of a tool. Clients cut them at 2 to 10 KiB, and models read all
    /// of it.
    pub description_bytes: usize,
    /// A tool as a whole, with its schemas.
    pub tool_bytes: usize,
    /// Definitions that are remembered of one server, those of tools that it does not offer any
    /// more included.
    pub definitions: usize,
    /// The first pause before a new attempt to connect; doubled from attempt to attempt.
    pub first_pause: Duration,
    /// The longest pause before a new attempt to connect.
    pub longest_pause: Duration,
    /// How often the tools of a server are looked at without being told of a change.
    pub refresh: Duration,
    /// How long a server may take to end after its input was closed, and again after it was asked
    /// to terminate.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(60),
            list: Duration::from_secs(120),
            call_idle: Duration::from_secs(60),
            call_total: Duration::from_secs(600),
            call_patience: Duration::from_secs(5),
            calls_at_once: 64,
            message_bytes: 16 << 20,
            tools: 100_000,
            pages: 5_000,
            list_bytes: 256 << 20,
            description_bytes: 16 << 10,
            tool_bytes: 256 << 10,
            // Twice the tools that it may offer at once; some 100 bytes each.
            definitions: 200_000,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            refresh: Duration::from_secs(300),
            farewell: Duration::from_secs(2),
        }
    }
}

/// How this program names itself to its peers.
fn implementation() -> Implementation {
    Implementation::new("toolscout", env!("CARGO_PKG_VERSION")).with_title("toolscout")
}
