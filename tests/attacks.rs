//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    // The tests of the command line use the rest of it.
    #[allow(dead_code)]
    #[path = "../cli/run.rs"]
    pub mod run;
    pub mod table;
    #[cfg(unix)]
    pub mod tty;

    pub mod data;
    #[cfg(unix)]
    pub mod files;
    pub mod shell;
    #[cfg(unix)]
    pub mod terminal;
}
