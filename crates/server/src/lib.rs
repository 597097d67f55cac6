//! The HTTP API: its routes and the layers around them.

#![allow(
    unused_qualifications,
    reason = "in what utoipa's macro generates for query parameters"
)]

pub mod samples;
pub mod hints;
mod process;
mod request;
mod served;
mod access;
mod default_catalog;
mod tasks;
mod catalogs;
mod search;
mod agent;
mod mcp;
mod dropin;
mod evaluations;
mod admin;
mod console;
mod openapi;
mod layers;
mod state;
mod router;
mod server;

pub use access::Exposure;
pub use access::profiles::Profiles;
pub use catalogs::enrich::Enriching;
pub use mcp::McpServices;
pub use process::descriptors::raise_descriptor_limit;
pub use process::limits::Limits;
pub use process::shutdown;
pub use served::embedders::{EmbedderSource, EmbeddersOf};
pub use served::tokens::TokenSavings;
pub use served::{
    COPIES, DefaultSearch, Elsewhere, OpenElsewhere, ServedCatalogs, ShadowedCatalog,
};
pub use server::{bind, serve};
pub use state::Parts;
