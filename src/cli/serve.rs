//! `toolscout serve`: the HTTP API.

use std::net::SocketAddr;

use anyhow::Result;

use super::Outcome;
use super::agent::AgentArgs;
use super::context::Context;
use crate::http::{self, Exposure, Limits, Settings};
use crate::shutdown::Shutdown;
use crate::telemetry::{self, LogFormat};

/// Serves tool search over HTTP until SIGTERM or SIGINT, which let open requests and accepted changes finish.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7700", env = "TOOLSCOUT_LISTEN", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// A name this server goes by, beside localhost and IP addresses (repeatable)
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// An origin whose pages may call the API, as `https://app.example` (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Listen beyond this machine without API keys: whoever reaches the address may read, change and delete
    #[arg(long)]
    insecure_no_keys: bool,
    /// Searches that wait for a thread before more are turned away
    #[arg(long, value_name = "N")]
    search_line: Option<usize>,
    #[command(flatten)]
    agent: AgentArgs,
    /// How log lines are written
    #[arg(long, value_enum, default_value_t, env = "TOOLSCOUT_LOG_FORMAT", value_name = "FORMAT")]
    log_format: LogFormat,
    /// What is logged: a level, or `target=level` with commas between
    #[arg(long, default_value = "info,ort=error", env = "TOOLSCOUT_LOG", value_name = "FILTER")]
    log: String,
}

impl Args {
    /// Prints the address once it listens, and serves.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        telemetry::start_logs(self.log_format, &self.log)?;
        let address = self.listen;
        let settings = self.settings(context)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(serve(address, settings, context))?;
        Ok(Outcome::Done)
    }

    fn settings(self, context: &Context) -> Result<Settings> {
        let mut limits = Limits::default();
        limits.search_line = self.search_line.unwrap_or(limits.search_line);
        Ok(Settings {
            agent: Some(self.agent.source(context)?),
            data: context.settings.data.clone(),
            default_catalog: context.settings.catalog.clone(),
            embedders: context.embedders().to_vec(),
            allowed_hosts: self.allow_host,
            allowed_origins: self.allow_origin,
            exposure: if self.insecure_no_keys { Exposure::AnyoneWithoutKeys } else { Exposure::Loopback },
            limits,
        })
    }
}

async fn serve(address: SocketAddr, settings: Settings, context: &Context) -> Result<()> {
    let shutdown = Shutdown::on_signals()?;
    let listener = http::bind(address, &settings).await?;
    context.printer.line(format_args!("listening on http://{}", listener.local_addr()?))?;
    http::serve(listener, settings, shutdown).await
}
