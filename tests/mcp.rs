//! MCP both ways: doubles that misbehave, and the servers and clients of others.
//!
//! The doubles need Python 3. `scripts/mcp_peers.sh` installs those of others into the folder that
//! `TOOLSCOUT_TEST_MCP_PEERS` names; their tests are ignored unless `.ci/run` asks for them.

mod mcp {
    pub mod changes;
    pub mod gateway;
    pub mod peers;
    pub mod pool;
    pub mod program;
    pub mod world;
}
