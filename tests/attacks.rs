//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    #[allow(dead_code, reason = "the HTTP tests use all of it")]
    #[path = "../http/server.rs"]
    pub mod server;
    #[allow(dead_code, reason = "the MCP tests use all of it")]
    #[path = "../mcp/world.rs"]
    pub mod world;

    pub mod gateway;
    pub mod table;
}
