//! Embedding models: which there are, how their files arrive, and endpoints that embed.

pub mod models;
