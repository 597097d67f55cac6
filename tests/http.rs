//! The HTTP API over a real socket on loopback. One module for each resource, as in `crates/server/src`.
//!
//! No test needs a model: dense search is seen through the deterministic embedder.

mod http {
    pub mod program;
    pub mod server;
    pub mod shared_store;

    pub mod access;
    pub mod audit;
    pub mod bounds;
    pub mod catalogs;
    pub mod console;
    pub mod durability;
    pub mod errors;
    pub mod evaluations;
    pub mod external;
    pub mod feedback;
    pub mod judgings;
    pub mod keys;
    pub mod kinds;
    pub mod many;
    pub mod mcp;
    pub mod memory;
    pub mod model;
    pub mod model_bounds;
    pub mod model_clients;
    pub mod model_converse;
    pub mod model_gemini;
    pub mod model_passing;
    pub mod model_service;
    pub mod model_streams;
    pub mod profile_edits;
    pub mod profiles;
    pub mod search;
    pub mod service;
    pub mod shadow;
    pub mod stats;
    pub mod stream;
    pub mod tasks;
    pub mod texts;
    pub mod tools;
    pub mod traces;
    pub mod upstream;
    pub mod usage;
    pub mod words;
}
