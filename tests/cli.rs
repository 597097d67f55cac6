//! The program as a process: its output, its streams and its exit codes.
//!
//! Only the tests in `model` need a model. None needs a network beyond loopback.

mod cli {
    pub use toolscout::models::endpoint::double;

    pub mod add;
    pub mod agent;
    pub mod demo;
    pub mod doctor;
    pub mod documents;
    pub mod embed;
    pub mod endpoint;
    pub mod enrich;
    pub mod enrich_at_once;
    #[path = "../support/enriching.rs"]
    pub mod enriching;
    pub mod eval;
    pub mod eval_judgements;
    pub mod eval_report;
    pub mod hub;
    pub mod import;
    pub mod improve;
    pub mod install;
    pub mod kinds;
    pub mod language_model;
    pub mod manage;
    pub mod manual;
    pub mod memory;
    pub mod model;
    pub mod profiles;
    pub mod run;
    pub mod search;
    pub mod settings;
    pub mod switch;
    #[cfg(unix)]
    pub mod terminal;
    pub mod tiers;
    #[cfg(unix)]
    #[path = "../attacks/tty.rs"]
    pub mod tty;
    pub mod tune;
    pub mod url;
    pub mod usage;
    pub mod words;
}
