//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/program.rs"]
    pub mod program;
    #[allow(dead_code, reason = "the tests of the HTTP API use all of it")]
    #[path = "../http/server.rs"]
    pub mod server;

    pub mod bounds;
    pub mod http;
    pub mod table;
}
