//! The program from outside: what it prints, where it prints it, and how it exits.
//!
//! No test needs a model or a network beyond loopback; where embedding is the subject, its absence is.

mod cli {
    pub mod add;
    pub mod doctor;
    pub mod embed;
    pub mod eval;
    pub mod manage;
    pub mod run;
    pub mod search;
    pub mod settings;
    pub mod url;
}
