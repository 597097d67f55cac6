//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    pub mod bounds;
    #[allow(dead_code, reason = "other tests use the rest")]
    #[path = "../http/server.rs"]
    pub mod server;
    pub mod table;
}
