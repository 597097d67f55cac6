//! The Model Context Protocol both ways.
//!
//! As a client: [`config`] reads the list of servers, and the [`Pool`] keeps a [`connection`] to
//! each of them, syncs their tools to a [`CatalogSink`] and calls them. As a server: the
//! [`Gateway`] offers any MCP client a handful of tools over a catalog of thousands, and
//! [`install`] adds it to the settings of such clients.
//!
//! Servers fail independently: whatever one does, the others keep working, and what it can make the
//! program hold is bounded by the [`Limits`].

pub mod masking;
pub mod tool_edits;
pub mod config;
pub mod inspect;
pub mod changes;
pub mod install;
pub mod import;
#[doc(hidden)]
pub mod lines;
pub mod login;
mod authorized;
pub mod outcome;
pub mod server_json;
pub mod registry;
pub mod review;
pub mod sink;
mod sse;
mod watchdog;
pub mod server_logs;
mod process;
pub mod connection;
mod items;
pub mod sync;
pub mod preflight;
pub mod pool;
pub mod gateway;

use std::time::Duration;

use rmcp::model::Implementation;

pub use changes::OnChange;
pub use config::ServerConfig;
pub use connection::{CallContext, CallError, Progress};
pub use gateway::{ClientTexts, Detail, Gateway, GatewayConfig, GatewayParts, Principal};
pub use pool::{Pool, PoolConfig};
pub use sink::{CatalogSink, SingleWriterSink};

use toolscout_gate::tools::CallTimes;

/// The bounds of what one server can make the program hold, or wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of a server to the end of the handshake. Package runners download the server
    /// first.
    pub connect: Duration,
    /// All pages of a list of tools.
    pub list: Duration,
    /// A call, whose time progress notifications extend.
    pub call: CallTimes,
    /// A call's wait for a server that has just gone down and may reconnect at once.
    pub call_patience: Duration,
    /// Concurrent calls to one server; more are queued.
    pub calls_at_once: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Tools of one server.
    pub tools: usize,
    /// Pages of one list of tools.
    pub pages: usize,
    /// Bytes of all pages of one list together.
    pub list_bytes: usize,
    /// Bytes of the title or the description of a tool. Clients truncate them at 2 to 10 KiB, and
    /// models read all of it.
    pub description_bytes: usize,
    /// Bytes of a tool with its schemas.
    pub tool_bytes: usize,
    /// Approved definitions stored for one server, including those of tools that it no longer
    /// offers.
    pub definitions: usize,
    /// The first pause before a new attempt to connect; doubled from attempt to attempt.
    pub first_pause: Duration,
    /// The longest pause before a new attempt to connect.
    pub longest_pause: Duration,
    /// How often the tools of a server are listed without a notification of a change.
    pub refresh: Duration,
    /// How long a server that is a process is kept without a call; zero for ever.
    pub idle_stop: Duration,
    /// How long a server may take to exit after its input was closed, and again after SIGTERM.
    pub exit_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Duration::from_secs(60),
            list: Duration::from_secs(120),
            call: CallTimes::default(),
            call_patience: Duration::from_secs(5),
            calls_at_once: 64,
            message_bytes: 16 << 20,
            tools: 100_000,
            pages: 5_000,
            list_bytes: 256 << 20,
            description_bytes: 16 << 10,
            tool_bytes: 256 << 10,
            // Twice the tools that it may offer at once; about 100 bytes each.
            definitions: 200_000,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            refresh: Duration::from_secs(300),
            idle_stop: Duration::from_secs(600),
            exit_timeout: Duration::from_secs(2),
        }
    }
}

/// How this program identifies itself to its peers.
fn implementation() -> Implementation {
    Implementation::new("toolscout", env!("CARGO_PKG_VERSION")).with_title("toolscout")
}
