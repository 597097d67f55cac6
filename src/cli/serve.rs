//! `toolscout serve`: the HTTP API.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use toolscout_index::Options;

use super::Outcome;
use super::agent::{AgentArgs, style};
use super::applied_profiles::{self, follow};
use super::context::{Context, Legs};
use super::dropin::DropInArgs;
use super::exit::{UsageError, error_message};
use super::server_lock::ServerLock;
use super::size::bytes;
use super::store::{self, StoreArgs};
use crate::assembly::{self, Settings};
use crate::config;
use crate::config::{EnrichMode, EnrichSettings};
use crate::finder::Style;
use crate::finder::meta_tools::FindConfig;
use crate::http::{self, EmbedderSource, Exposure, Limits};
use crate::keys::Scope;
use crate::mcp::{Detail, GatewayConfig};
use crate::models::{self, Patience};
use crate::profiles::ToolProfile;
use crate::shutdown::Shutdown;
use crate::store::PostgresStore;
use crate::telemetry::traces::Traces;
use crate::telemetry::{self, LogFormat};

/// How long threads may go on when the server has ended.
const LAST_WORK: Duration = Duration::from_secs(2);

/// Serves tool search over HTTP until SIGTERM or SIGINT. Open requests and accepted changes finish
/// first.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout serve\n  toolscout serve --listen 0.0.0.0:7700 --allow-host tools.example --mcp servers.json"
)]
pub struct Args {
    /// Address to listen on; port 0 chooses a free port
    #[arg(
        long,
        value_parser = listen_address,
        default_value = "127.0.0.1:7700",
        env = "TOOLSCOUT_LISTEN",
        value_name = "ADDRESS"
    )]
    listen: SocketAddr,
    /// A host name accepted in requests, besides localhost and IP addresses (repeatable)
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// An origin whose pages may call the API, for example `https://app.example` (repeatable)
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// Listen on addresses beyond loopback without API keys: everyone who reaches the address may
    /// read, change and delete
    #[arg(long)]
    insecure_no_keys: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// What every server can be told, wherever it listens.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Most searches that wait for a thread; further ones are rejected
    #[arg(long, value_name = "N")]
    search_queue: Option<usize>,
    /// Most open connections; a further one closes the connection that is idle longest [default:
    /// derived from the limit of file descriptors]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZero<usize>>,
    /// Most open connections from one address, or one IPv6 /64 network; proxies on other machines
    /// may need more [default: a quarter of --max-connections]
    #[arg(long, value_name = "N")]
    connections_per_address: Option<NonZero<usize>>,
    /// Most catalogs in the data directory; creating one more is refused
    #[arg(long, value_name = "N")]
    max_catalogs: Option<NonZero<usize>>,
    /// Most open catalogs; one more closes the one that is used least recently [default: derived from
    /// the limit of file descriptors]
    #[arg(long, value_name = "N")]
    max_open_catalogs: Option<NonZero<usize>>,
    /// Most memory for open catalogs, as it is estimated, such as 512M or 4G; beyond it those used
    /// least recently are closed [default: a quarter of the memory]
    #[arg(long, value_parser = bytes, value_name = "BYTES")]
    max_open_bytes: Option<u64>,
    /// Most MCP sessions at one time, at least 2; a sixteenth is kept for admin keys for all catalogs
    #[arg(long, default_value = "1024", value_parser = clap::value_parser!(u32).range(2..=1_000_000), value_name = "N")]
    max_mcp_sessions: u32,
    /// Most MCP sessions of one key; one more ends its own that is idle longest [default: an eighth of
    /// --max-mcp-sessions]
    #[arg(long, value_name = "N")]
    mcp_sessions_per_key: Option<NonZero<usize>>,
    #[command(flatten)]
    store: StoreArgs,
    /// With a store, catalogs of more tools than this are not copied to nodes: their tools are looked
    /// for in the store, which needs pgvector [env: TOOLSCOUT_PUSH_DOWN_ABOVE; default: 300000]
    #[arg(long, value_name = "TOOLS")]
    push_down_above: Option<u64>,
    #[command(flatten)]
    agent: AgentArgs,
    /// A further agent, by a preset or the file of a profile: a question chooses it by its name, that of
    /// the file without its ending (repeatable). --profile is for the agent of all other questions
    #[arg(long, value_name = "NAME|FILE")]
    agent_profile: Vec<String>,
    /// The scope that a key needs to ask the agent, which costs what its model costs: search, which every
    /// key has, or llm
    #[arg(
        long,
        value_parser = agent_scope,
        default_value = "search",
        env = "TOOLSCOUT_AGENT_SCOPE",
        value_name = "SCOPE"
    )]
    agent_scope: Scope,
    /// When the model of --llm writes texts of tools: off, ask (when somebody asks for it) or auto (by
    /// itself, within --enrich-tokens-a-day) [env: TOOLSCOUT_ENRICH; default: ask]
    #[arg(long, value_name = "MODE")]
    enrich: Option<EnrichMode>,
    /// Most tokens in a day for texts of tools, sent and received [env: TOOLSCOUT_ENRICH_TOKENS_A_DAY]
    #[arg(long, value_name = "TOKENS")]
    enrich_tokens_a_day: Option<u64>,
    #[command(flatten)]
    dropin: DropInArgs,
    /// How clients of the /mcp route call found tools: dispatch (through call_tool) or inject (they
    /// are added to the client's tool list) [default: dispatch]
    #[arg(help_heading = "MCP servers", long, value_parser = style, value_name = "STYLE")]
    mcp_style: Option<Style>,
    /// How much of each found tool they are shown: signature (one line) or schema [default:
    /// signature]
    #[arg(help_heading = "MCP servers", long, value_parser = Detail::parse, value_name = "DETAIL")]
    mcp_detail: Option<Detail>,
    /// A tool that is always in their tool list, by its id; may be repeated
    #[arg(help_heading = "MCP servers", long, value_name = "TOOL")]
    mcp_pin: Vec<String>,
    /// Format of log lines
    #[arg(
        help_heading = "Logs and traces",
        long,
        value_enum,
        default_value_t,
        env = "TOOLSCOUT_LOG_FORMAT",
        value_name = "FORMAT"
    )]
    log_format: LogFormat,
    /// What is logged: a level, or `target=level` pairs separated by commas
    #[arg(
        help_heading = "Logs and traces",
        long,
        default_value = "info,ort=error,rmcp=warn",
        env = "TOOLSCOUT_LOG",
        value_name = "FILTER"
    )]
    log: String,
    /// OpenTelemetry collector for spans of requests and searches, over OTLP/HTTP, for example
    /// `http://127.0.0.1:4318`
    #[arg(
        help_heading = "Logs and traces",
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "URL"
    )]
    otlp_endpoint: Option<String>,
}

impl Args {
    /// Serves, and prints the address once the server listens.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let exposure = if self.insecure_no_keys {
            Exposure::AnyoneWithoutKeys
        } else {
            Exposure::Loopback
        };
        let admission = Admission {
            hosts: self.allow_host,
            origins: self.allow_origin,
            exposure,
        };
        self.server.run(self.listen, admission, context, |_| {})
    }
}

/// Who may ask a server.
pub struct Admission {
    /// Host names besides localhost and IP addresses.
    pub hosts: Vec<String>,
    /// Origins of other pages.
    pub origins: Vec<String>,
    /// Whether clients beyond this machine need keys.
    pub exposure: Exposure,
}

impl ServerArgs {
    /// Serves until SIGTERM or SIGINT. Prints the address once the server listens, and then calls
    /// `listening` with it.
    pub fn run(
        self,
        address: SocketAddr,
        admission: Admission,
        context: &Context,
        listening: impl FnOnce(SocketAddr),
    ) -> Result<Outcome> {
        // Declared before the runtime and so dropped after it: it sends the last requests' spans.
        let traces = self.otlp_endpoint.as_deref().map(Traces::to).transpose()?;
        telemetry::start(self.log_format, &self.log, traces.as_ref())?;
        let mut store = self.store.settings(context)?;
        store.push_down_above = self.push_down_above.or(store.push_down_above);
        if store.store.is_none() {
            // With a store, its catalogs count.
            context.check_catalog()?;
        }
        context.set_patience(Patience::of_server());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let store = store::open(&store, runtime.handle())?;
        let settings = self.settings(admission, context, store)?;
        // Last, so that a wrong flag is told first.
        let mut lock = ServerLock::take(&context.settings.data)?;
        let served = runtime.block_on(serve(address, settings, context, |address| {
            lock.listens_at(address)?;
            listening(address);
            Ok(())
        }));
        // Changes are written by now. Whatever else still computes does not keep the process.
        runtime.shutdown_timeout(LAST_WORK);
        served?;
        Ok(Outcome::Success)
    }

    fn settings(
        self,
        admission: Admission,
        context: &Context,
        store: Option<Arc<PostgresStore>>,
    ) -> Result<Settings> {
        let mut limits = Limits::within(http::raise_descriptor_limit());
        if let Some(connections) = self.max_connections {
            limits.max_connections = connections.get();
            // Behind a proxy on this machine all clients have the loopback address.
            limits.connections_per_loopback_address = connections.get();
        }
        limits.connections_per_address = self
            .connections_per_address
            .map_or(limits.connections_per_address, NonZero::get);
        limits.search_queue = self.search_queue.unwrap_or(limits.search_queue);
        limits.max_catalogs = self.max_catalogs.map_or(limits.max_catalogs, NonZero::get);
        if let Some(most) = self.max_open_catalogs {
            // The default one is always open, and another has to be.
            limits.max_open_catalogs = most.get().max(2);
        }
        limits.max_open_bytes = self.max_open_bytes.unwrap_or(limits.max_open_bytes);
        limits = limits.with_mcp_sessions(
            self.max_mcp_sessions as usize,
            self.mcp_sessions_per_key.map(NonZero::get),
        );
        self.agent.refuse_tool_profile(&context.settings)?;
        let enrich = self.enrich_settings(context)?;
        let mcp_pool = self.agent.pool(context)?;
        let limits_of_agent = self.agent.limits(context)?;
        let default = GatewayConfig::default();
        let gateway = GatewayConfig {
            find: FindConfig {
                more: self.agent.more_tools(context)?,
                ..default.find
            },
            call_timeout: self.agent.call_times(context)?.idle,
            result_bytes: limits_of_agent
                .max_result_bytes
                .unwrap_or(default.result_bytes),
            result_format: limits_of_agent.result_format.unwrap_or_default(),
            style: self.mcp_style.unwrap_or(default.style),
            detail: self.mcp_detail.unwrap_or(default.detail),
            pins: self.mcp_pin,
            ..default
        };
        Ok(Settings {
            agents: Some(self.agent.plans(context, &self.agent_profile)?),
            agent_scope: self.agent_scope,
            mcp_pool,
            gateway,
            profiles: tool_profiles(&context.settings),
            dropin: self.dropin.config(context, &self.agent, &limits)?,
            data: context.settings.data.clone(),
            store,
            external: context.settings.catalogs.clone(),
            default_catalog: context.settings.catalog.clone(),
            enricher: self.agent.llm().enricher()?,
            usage: context.settings.usage,
            shadow: context.shadow()?,
            enrich,
            catalog_options: general_options(context),
            embedder_source: embedder_source(&context.settings),
            allowed_hosts: admission.hosts,
            allowed_origins: admission.origins,
            exposure: admission.exposure,
            limits,
        })
    }
}

impl ServerArgs {
    fn enrich_settings(&self, context: &Context) -> Result<EnrichSettings> {
        let flags = EnrichSettings {
            mode: self.enrich,
            tokens_a_day: self.enrich_tokens_a_day,
            languages: Vec::new(),
        };
        let settings = flags.or(context.settings.enrich.clone());
        match settings.check() {
            Ok(()) => Ok(settings),
            Err(problem) => Err(UsageError(problem.to_string()).into()),
        }
    }
}

fn tool_profiles(settings: &config::Settings) -> Vec<ToolProfile> {
    let mut profiles = Vec::new();
    for (name, settings) in &settings.profiles {
        profiles.push(ToolProfile::new(name, settings));
    }
    profiles
}

/// How catalogs that name no embedders are opened.
fn general_options(context: &Context) -> Options {
    // Those of the context are loaded already if it uses them.
    if context.general_embedder == context.settings.embedder {
        return context.options(Legs::All);
    }
    let kind = &context.general_embedder;
    models::embedders_of(kind, &context.settings, Patience::of_server()).options()
}

/// Loads the embedders that catalogs name; a flag wins over all of them.
fn embedder_source(settings: &config::Settings) -> Option<EmbedderSource> {
    if settings.is_embedder_forced {
        return None;
    }
    let settings = settings.clone();
    Some(Box::new(move |name| {
        let kind = name.parse().unwrap_or_default();
        let embedders = models::embedders_of(&kind, &settings, Patience::of_server());
        let options = embedders.options();
        if let Some(problem) = &options.missing_embedder {
            tracing::warn!(embedder = name, problem, "searching without it");
        }
        options
    }))
}

/// Parses the scope of keys that may ask the agent.
fn agent_scope(text: &str) -> Result<Scope, String> {
    for scope in [Scope::Search, Scope::Llm] {
        if scope.name() == text {
            return Ok(scope);
        }
    }
    Err("use search, which every key has, or llm".to_owned())
}

/// Parses an address and port. Of names only `localhost` is accepted, so that no name server decides
/// who can reach the API.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let parsed = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    };
    parsed.map_err(|_| "write an IP address and a port, as 127.0.0.1:7700 or [::1]:7700".to_owned())
}

async fn serve(
    address: SocketAddr,
    settings: Settings,
    context: &Context,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    // Before the address is printed: whoever reads it may send a signal at once.
    let shutdown = Shutdown::on_signals()?;
    let listener = assembly::bind(address, &settings)
        .await
        .map_err(with_other_port)?;
    let address = listener.local_addr()?;
    context
        .printer
        .text(format_args!("listening on http://{address}"))?;
    listening(address)?;
    let profiles = settings.profiles.clone();
    if let Some(versions) = applied_profiles::applied(context, &profiles) {
        tokio::spawn(follow(
            versions,
            profiles,
            shutdown.token().cancelled_owned(),
        ));
    }
    assembly::serve(listener, settings, shutdown).await
}

/// The error of a port in use with the next step; any other error as it is.
fn with_other_port(error: anyhow::Error) -> anyhow::Error {
    if let Some(cause) = error.downcast_ref::<io::Error>()
        && cause.kind() == io::ErrorKind::AddrInUse
    {
        let message = error_message(&error);
        return anyhow!("{message}; choose another with --listen 127.0.0.1:0");
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_numeric_or_localhost() {
        for (text, expected) in [
            ("localhost:7715", "127.0.0.1:7715"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:0", "[::1]:0"),
        ] {
            assert_eq!(listen_address(text).unwrap().to_string(), expected);
        }
        for text in ["7714", "localhost", "localhost:x", "example.com:80"] {
            assert!(listen_address(text).unwrap_err().contains("127.0.0.1:7700"));
        }
    }
}
