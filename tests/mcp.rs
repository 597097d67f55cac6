//! MCP both ways: doubles that misbehave, and the servers and clients of others.
//!
//! The doubles need Python 3. Those of others are installed by `scripts/mcp_peers.sh`, which
//! `.ci/run` runs, and are used where `TOOLSCOUT_TEST_MCP_PEERS` names the folder they are in.

mod mcp {
    pub mod changes;
    pub mod gateway;
    pub mod peers;
    pub mod pool;
    pub mod program;
    pub mod world;
}
