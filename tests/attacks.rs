//! Attacks, each with what comes of it. `docs/ATTACKS.md` is written from the rows here.

mod attacks {
    pub mod table;
}
