//! The drop-in endpoint: the API of a model provider, with tool search in it.

pub mod proxy;
