//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    #[path = "../mcp/followed_sink.rs"]
    pub mod followed_sink;
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/program.rs"]
    pub mod program;
    #[allow(dead_code, reason = "the tests of the command line use all of it")]
    #[path = "../cli/run.rs"]
    pub mod run;
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/server.rs"]
    pub mod server;
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/shared_store.rs"]
    pub mod shared_store;
    #[cfg(unix)]
    pub mod tty;
    #[allow(dead_code, reason = "the tests of MCP use all of it")]
    #[path = "../mcp/world.rs"]
    pub mod world;

    pub mod bounds;
    #[cfg(unix)]
    pub mod builtins;
    pub mod data;
    pub mod enrichment;
    #[cfg(unix)]
    pub mod files;
    pub mod gate;
    pub mod gateway;
    pub mod http;
    pub mod memory;
    #[cfg(target_os = "linux")]
    pub mod sandbox;
    pub mod shell;
    pub mod table;
    #[cfg(unix)]
    pub mod terminal;
}
