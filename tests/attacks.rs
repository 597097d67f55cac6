//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    #[allow(dead_code)]
    #[path = "../http/server.rs"]
    pub mod server;
    pub mod table;

    pub mod memory;
}
