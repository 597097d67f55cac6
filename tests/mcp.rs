//! MCP both ways: doubles that misbehave, and the servers and clients of others.
//!
//! The doubles need Python 3. `scripts/mcp_peers.sh` installs those of others into the folder that
//! `TOOLSCOUT_TEST_MCP_PEERS` names; their tests are ignored unless `.ci/run` asks for them.

mod mcp {
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/shared_store.rs"]
    pub mod shared_store;

    #[path = "../store/ports.rs"]
    mod ports;

    pub mod asked;
    pub mod authorization;
    pub mod changes;
    pub mod edits;
    pub mod followed_sink;
    pub mod gateway;
    pub mod http;
    pub mod instructions;
    pub mod kinds;
    pub mod login;
    pub mod notices;
    pub mod peers;
    pub mod pool;
    pub mod preflight;
    pub mod program;
    pub mod registry;
    #[cfg(target_os = "linux")]
    pub mod sandbox;
    pub mod server_logs;
    pub mod sse;
    pub mod world;
}
