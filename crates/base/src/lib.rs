//! What every part of the program uses: settings, clocks, TLS, secrets, texts that are safe to print, telemetry.

pub mod allocator;
pub mod printable;
pub mod known_secrets;
pub mod media_type;
pub mod program_file;
pub mod regular_file;
pub mod sandbox;
pub mod tls;
pub mod known_models;
pub mod tool_edit;
pub mod config;
pub mod clock;
pub mod long_work;
pub mod principal;
pub mod budget;
pub mod breaker;
pub mod embed_cache;
pub mod telemetry;
pub mod cpu_pool;
