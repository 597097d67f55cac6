//! The program from outside: what it prints, where it prints it, and how it exits.
//!
//! No test but those in `model` needs a model, and none a network beyond loopback.

mod cli {
    pub mod add;
    pub mod agent;
    pub mod doctor;
    pub mod embed;
    pub mod eval;
    pub mod manage;
    pub mod memory;
    pub mod model;
    pub mod run;
    pub mod search;
    pub mod settings;
    pub mod tiers;
    pub mod tune;
    pub mod url;
}
