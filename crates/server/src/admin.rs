//! What those who run the server ask of it: keys, figures, the use of tools, and its health.

pub mod gauges;
pub mod keys;
pub mod own_key;
pub mod service;
pub mod stats;
pub mod figure_keeper;
pub mod history;
pub mod usage;
