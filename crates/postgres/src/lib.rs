//! The shared store: catalogs and everything that nodes share, in PostgreSQL.

pub mod store;
