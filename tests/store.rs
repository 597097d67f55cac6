//! Several nodes over a real PostgreSQL, which `scripts/postgres.sh` installs. Each test has a server of
//! its own, on a free port of loopback, and ends it.

mod store {
    pub mod ports;
    pub mod postgres;
    pub mod node;
    #[path = "../support/enriching.rs"]
    pub mod enriching;

    pub mod audit;
    pub mod conformance;
    pub mod deploy;
    pub mod enrichments;
    pub mod improve;
    pub mod keys;
    pub mod kinds;
    pub mod nodes;
    pub mod outage;
    pub mod page;
    pub mod push_down;
    pub mod pushed_texts;
    pub mod schema;
    pub mod standbys;
    pub mod surroundings;
    pub mod transfer;
    pub mod sessions;
    pub mod shared;
    pub mod usage;
    pub mod vectors;
    pub mod words;
}
