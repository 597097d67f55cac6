//! The bounds of everything a client can make the server hold, or wait for.

use std::time::Duration;

use toolscout_base::telemetry::process;

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. When all are taken, a new one closes the connection that has been without
    /// a request for longest; while every connection has a request, new ones wait in the system's
    /// backlog.
    pub max_connections: usize,
    /// Connections from one address, or from one IPv6 /64 network. Enough for a proxy, and too few
    /// to lock everybody else out.
    pub connections_per_address: usize,
    /// Connections from an address of this machine, where proxies run.
    pub connections_per_loopback_address: usize,
    /// File descriptors that the process may open; `/readyz` fails when they are nearly used up.
    pub descriptors: Option<u64>,
    /// Agent runs at one time, including those whose client has left. Each holds a connection to
    /// the model.
    pub max_runs: usize,
    /// Agent runs of one key at one time: enough for a person with a few windows, and an eighth of
    /// the server.
    pub max_runs_per_key: usize,
    /// MCP sessions at one time, and requests without a session.
    pub max_mcp_sessions: usize,
    /// MCP sessions of one key; one more ends its own that is idle longest.
    pub mcp_sessions_per_key: usize,
    /// Of all MCP sessions, those that only admin keys for all catalogs may have.
    pub mcp_sessions_for_operators: usize,
    /// Threads for searches and other CPU work. Twice the cores, since some wait for a shared
    /// embedding.
    pub search_threads: usize,
    /// Searches that wait for a thread; more are refused with 503.
    pub search_queue: usize,
    /// Changes that wait for the writer of one catalog; more are refused with 429.
    pub write_queue: usize,
    /// Query vectors cached for all catalogs together, about 2 KB each.
    pub cached_queries: usize,
    /// Catalogs in the data directory.
    pub max_catalogs: usize,
    /// Open catalogs. Opening one more closes the least recently used.
    pub max_open_catalogs: usize,
    /// Bytes of open catalogs, as they are estimated. More closes the least recently used, but none that
    /// is in use.
    pub max_open_bytes: u64,
    /// Bytes of a request body, where no other limit applies.
    pub body_bytes: usize,
    /// Bytes of a request body that holds tools.
    pub bulk_body_bytes: usize,
    /// Bytes of all bodies of requests to a model's provider that are held at one time. More wait, and
    /// are then refused with 503.
    pub model_body_bytes: u64,
    /// Bodies of tools that are read at one time.
    pub bulk_bodies: usize,
    /// From a request to the start of its answer.
    pub request_timeout: Duration,
    /// Longest wait of a search for a thread, and of a request to a model for the memory of its body.
    pub search_patience: Duration,
    /// From a connection to the end of its first request's headers.
    pub first_request_timeout: Duration,
    /// From an answer to the end of the next request's headers.
    pub header_timeout: Duration,
    /// Longest pause within a request body.
    pub body_stall: Duration,
    /// Longest pause of a client that reads its answer.
    pub write_stall: Duration,
    /// Interval of keep-alive comments on an event stream without events. Proxies close connections
    /// that are silent for 30 to 60 seconds.
    pub heartbeat: Duration,
    /// From the shutdown signal until open connections and tasks are cut off.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Limits {
            max_connections: 1024,
            connections_per_address: 256,
            connections_per_loopback_address: 1024,
            descriptors: None,
            max_runs: 64,
            max_runs_per_key: 8,
            max_mcp_sessions: 1024,
            mcp_sessions_per_key: 1024 / MCP_SESSIONS_SHARE,
            mcp_sessions_for_operators: 1024 / MCP_SESSIONS_RESERVE,
            search_threads: 2 * cores,
            search_queue: 128 * cores,
            write_queue: 64,
            cached_queries: 32_768,
            max_catalogs: 100_000,
            max_open_catalogs: MOST_OPEN_CATALOGS,
            max_open_bytes: memory_for_catalogs(process::memory_limit_bytes()),
            body_bytes: 1 << 20,
            bulk_body_bytes: 64 << 20,
            model_body_bytes: memory_for_model_bodies(process::memory_limit_bytes()),
            bulk_bodies: 8,
            request_timeout: Duration::from_secs(60),
            search_patience: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            body_stall: Duration::from_secs(15),
            write_stall: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(25),
        }
    }
}

/// Descriptors reserved for everything but connections and open catalogs: databases of keys, feedback,
/// conversations and audit with their logs, MCP servers, connections to models, and the catalogs
/// that are being opened or written, a dozen at a time with eight descriptors each.
const OTHER_DESCRIPTORS: u64 = 160;
/// Descriptors of an open catalog: a usage memory keeps its database open.
const DESCRIPTORS_PER_CATALOG: u64 = 3;
/// Most open catalogs, however many descriptors there are: each is asked for news once a second.
const MOST_OPEN_CATALOGS: usize = 16_384;
/// The share of all MCP sessions that one key may have.
const MCP_SESSIONS_SHARE: usize = 8;
/// The share of all MCP sessions that is kept for operators.
const MCP_SESSIONS_RESERVE: usize = 16;
/// The share of memory for open catalogs.
const MEMORY_SHARE: u64 = 4;
/// The share of memory for bodies of requests to a model's provider.
const MODEL_BODIES_SHARE: u64 = 8;
/// What is divided where the system does not tell its memory.
const UNKNOWN_MEMORY: u64 = 4 << 30;
/// Most connections, however many descriptors are available: their buffers take at most 256 MiB.
const MOST_CONNECTIONS: u64 = 4096;

/// Bytes for open catalogs of this much memory.
fn memory_for_catalogs(memory: Option<u64>) -> u64 {
    memory.unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE
}

/// Bytes for bodies of requests to a model's provider, of this much memory.
fn memory_for_model_bodies(memory: Option<u64>) -> u64 {
    memory.unwrap_or(UNKNOWN_MEMORY) / MODEL_BODIES_SHARE
}

impl Limits {
    /// These limits with as many MCP sessions at one time, and as many of one key; a share of all
    /// where it is not given.
    pub fn with_mcp_sessions(mut self, all: usize, per_key: Option<usize>) -> Self {
        self.max_mcp_sessions = all;
        self.mcp_sessions_per_key = per_key.unwrap_or((all / MCP_SESSIONS_SHARE).max(1));
        self.mcp_sessions_for_operators = (all / MCP_SESSIONS_RESERVE)
            .max(1)
            .min(all.saturating_sub(1));
        self
    }

    /// The default limits of a process that may open this many descriptors, `None` for no limit.
    /// After a reserve, half of the descriptors are for connections and half for catalogs.
    pub fn within(descriptors: Option<u64>) -> Self {
        // A connection takes one descriptor, and an open catalog several.
        let half = match descriptors {
            Some(descriptors) => descriptors.saturating_sub(OTHER_DESCRIPTORS) / 2,
            None => u64::MAX,
        };
        let limits = Limits::default();
        let connections = half.clamp(16, MOST_CONNECTIONS) as usize;
        let catalogs =
            (half / DESCRIPTORS_PER_CATALOG).clamp(2, MOST_OPEN_CATALOGS as u64) as usize;
        Limits {
            max_connections: connections,
            // A quarter, so that one address cannot lock out all others.
            connections_per_address: connections / 4,
            connections_per_loopback_address: connections,
            max_open_catalogs: catalogs,
            descriptors,
            ..limits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_catalogs_fit_into_the_descriptors() {
        for descriptors in [256, 1024, 20_000, 1 << 20] {
            let limits = Limits::within(Some(descriptors));
            let catalogs = limits.max_open_catalogs as u64 * DESCRIPTORS_PER_CATALOG;
            assert!(
                limits.max_connections as u64 + catalogs + OTHER_DESCRIPTORS <= descriptors,
                "{limits:?}"
            );
        }
        let [few, many] = [Some(1024), None].map(Limits::within);
        assert_eq!(
            (
                few.max_connections,
                few.connections_per_address,
                few.max_open_catalogs
            ),
            (432, 108, 144)
        );
        assert_eq!(
            (many.max_connections, many.max_open_catalogs),
            (4096, MOST_OPEN_CATALOGS)
        );
        assert_eq!(memory_for_catalogs(Some(8 << 30)), 2 << 30);
        assert_eq!(memory_for_model_bodies(Some(8 << 30)), 1 << 30);
    }
}
