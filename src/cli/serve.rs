//! `toolscout serve`: the HTTP API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use toolscout_index::Embedder;

use crate::http::{self, Exposure, Limits};
use crate::shutdown::Shutdown;
use crate::telemetry::{self, LogFormat};

/// Serve the HTTP API.
#[derive(Debug, Args)]
pub struct Serve {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7700", env = "TOOLSCOUT_LISTEN")]
    listen: SocketAddr,
    /// A name this server goes by, beside localhost and IP addresses (repeatable)
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// An origin whose pages may call the API, as `https://app.example` (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Listen beyond this machine without API keys: everyone who reaches the address may read, change and delete
    #[arg(long)]
    insecure_no_keys: bool,
    /// Searches that wait for a thread before more are turned away
    #[arg(long, value_name = "N")]
    search_queue: Option<usize>,
    /// How log lines are written
    #[arg(long, value_enum, default_value_t, env = "TOOLSCOUT_LOG_FORMAT")]
    log_format: LogFormat,
    /// What is logged: a level, or `target=level` with commas between
    #[arg(long, default_value = "info", env = "TOOLSCOUT_LOG")]
    log: String,
}

/// Serves until SIGTERM or SIGINT. Prints the address once it listens.
///
/// # Errors
/// An address that cannot be had or needs keys, a data directory that cannot be used.
pub fn run(
    args: Serve,
    data: PathBuf,
    default_catalog: String,
    embedders: Vec<Arc<dyn Embedder>>,
) -> anyhow::Result<()> {
    telemetry::start_logs(args.log_format, &args.log)?;
    let mut limits = Limits::default();
    limits.search_line = args.search_queue.unwrap_or(limits.search_line);
    let settings = http::Settings {
        data,
        default_catalog,
        embedders,
        allowed_hosts: args.allow_host,
        allowed_origins: args.allow_origin,
        exposure: if args.insecure_no_keys { Exposure::AnyoneWithoutKeys } else { Exposure::Loopback },
        limits,
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(args.listen, settings))
}

#[allow(clippy::print_stdout, reason = "the address is the verb's data")]
async fn serve(address: SocketAddr, settings: http::Settings) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let listener = http::bind(address, &settings).await?;
    println!("listening on http://{}", listener.local_addr()?);
    http::serve(listener, settings, shutdown).await
}
