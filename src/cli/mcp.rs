//! `toolscout mcp`: this program as an MCP server over standard input and output, and what it takes
//! to use the servers of others.

mod add;
mod confirm;
mod edit;
mod import;
mod install;
mod login;
mod logs;
mod registry;
mod servers;
mod test;

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rmcp::transport::io::stdio_pipes;
use tokio::task::spawn_blocking;

use super::Outcome;
use super::agent::style;
use super::apis;
use super::applied_profiles::{self, follow};
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::mcp_args::{CallLimitArgs, McpArgs};
use super::more_tools::{self, MoreToolArgs};
use super::output::print_stderr;
use super::policy::{PolicyArgs, warn_of_mistakes, warn_of_unknown_names};
use crate::agent::profile::AgentProfile;
use crate::assembly::{ClientSettings, OneClient};
use crate::enrich::wanted::Wanted;
use crate::finder::Style;
use crate::finder::meta_tools::FindConfig;
use crate::gate::Policies;
use crate::mcp::{CatalogSink, ClientTexts, Detail, GatewayConfig, PoolConfig, SingleWriterSink};
use crate::models::Patience;
use crate::profile_versions::ProfileVersions;
use crate::profiles::ToolProfile;
use crate::shutdown::Shutdown;
use crate::tools::CallTimes;
use crate::tools::builtin::BuiltinConfig;
use crate::tools::operation::Operations;

/// How long background work may take after the client has disconnected.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the catalog to one MCP client over standard input and output. The client finds tools with
/// tool_search, and with call_tool calls tools of the MCP servers named here. A tool that does more
/// than read is called after the user of the client approves, or where --allow or a profile allows
/// it.
#[derive(clap::Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toolscout mcp --mcp servers.json --allow \"github/*\"\n  toolscout mcp --mcp servers.json --read-only --only \"notes/*\"\n  toolscout mcp install --client cursor"
)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// How the client calls found tools: dispatch (through call_tool) or inject (they are added to
    /// its tool list, for clients that support list_changed) [default: dispatch]
    #[arg(long, value_parser = style)]
    style: Option<Style>,
    /// How much of each found tool a search shows: signature (one line) or schema; describe_tool
    /// shows the schema of a tool in either case [default: signature]
    #[arg(long, value_parser = Detail::parse)]
    detail: Option<Detail>,
    /// A tool that is always in the client's tool list, by its id; may be repeated
    #[arg(long, value_name = "TOOL")]
    pin: Vec<String>,
    /// Most tokens of tools in one search result [default: 4000]
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<usize>,
    /// The user on whose behalf tools are called; arguments that the profile binds may name no
    /// other user
    #[arg(long, value_name = "USER")]
    identity: Option<String>,
    /// Show and call only tools that read
    #[arg(help_heading = "Calls", long)]
    read_only: bool,
    /// Show and call only tools with these ids, and of a profile only those; `*` matches any text
    /// (repeatable)
    #[arg(help_heading = "Calls", long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Let the client's own model write what people say when they need a tool, for so many tools in a
    /// session, once the person behind it agrees. For clients with sampling, up to protocol 2025-11-25
    #[arg(long, value_name = "TOOLS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    client_texts: Option<u16>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    more_tools: MoreToolArgs,
    #[command(flatten)]
    call_limits: CallLimitArgs,
    #[command(flatten)]
    mcp: McpArgs,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Add this program to the settings of an MCP client
    Install(install::Args),
    /// Add a server to a file of servers: by its command, its URL, or a description of the MCP registry
    Add(add::Args),
    /// Find servers in a registry that you name, and add them
    Registry(registry::Args),
    /// Take the servers from the settings of other MCP clients
    Import(import::Args),
    /// Put the settings of a client back as they were before `install` or `import --replace`
    Restore(import::RestoreArgs),
    /// Show the entry of a server, without secrets
    Get(edit::GetArgs),
    /// Remove servers from a file of servers
    Remove(edit::RemoveArgs),
    /// Use servers again that were switched off
    Enable(edit::EnableArgs),
    /// Keep the entries of servers, and do not use them
    Disable(edit::DisableArgs),
    /// Show whether servers answer, and which of them need a login
    #[command(visible_alias = "list")]
    Servers(servers::Args),
    /// Connect to a server, and show what it says about itself and what it offers
    Test(test::Args),
    /// Show what a server process wrote to its standard error
    Logs(logs::Args),
    /// Log in at a server in the browser
    Login(login::Args),
    /// End the login at a server
    Logout(login::LogoutArgs),
}

impl Args {
    /// Serves until the client closes standard input.
    pub fn run(self, mut context: Context) -> Result<Outcome> {
        match self.verb {
            Some(Verb::Install(args)) => args.run(&context),
            Some(Verb::Add(args)) => args.run(&context),
            Some(Verb::Registry(args)) => args.run(&context),
            Some(Verb::Import(args)) => args.run(&context),
            Some(Verb::Restore(args)) => args.run(&context),
            Some(Verb::Get(args)) => args.run(&context),
            Some(Verb::Remove(args)) => args.run(&context),
            Some(Verb::Enable(args)) => args.run(&context),
            Some(Verb::Disable(args)) => args.run(&context),
            Some(Verb::Servers(args)) => args.run(&context),
            Some(Verb::Test(args)) => args.run(&context),
            Some(Verb::Logs(args)) => args.run(&context),
            Some(Verb::Login(args)) => args.run(&context),
            Some(Verb::Logout(args)) => args.run(&context),
            None => {
                let profile = self.policy.tool_profile(&context.settings)?;
                if let Some(catalog) = profile.as_ref().and_then(ToolProfile::catalog) {
                    context.use_catalog(&catalog);
                }
                let versions = applied_profiles::applied(&context, profile.as_slice());
                let of_settings = profile.clone();
                let profile = narrowed(profile, self.read_only, &self.only);
                let preset = self.policy.preset(&context.settings)?;
                let settings = self.call_limits.settings().or(self.more_tools.settings());
                let settings = settings.or(preset.settings());
                let limits = settings.or(context.settings.agent.clone()).limits;
                let call_times = CallTimes::of(&limits);
                warn_of_builtins(&preset);
                let operations = apis::operations(&preset)?;
                let mut policies = preset.gate.unwrap_or_default();
                self.policy.apply_to(&mut policies);
                let mut servers = self.mcp.config(&context.settings.data)?;
                servers.limits.call = call_times;
                // The only client is the user's own.
                servers.passes_roots = true;
                let default = GatewayConfig::default();
                let config = GatewayConfig {
                    find: FindConfig {
                        more: more_tools::of_limits(&limits),
                        ..default.find
                    },
                    call_timeout: call_times.idle,
                    style: self.style.unwrap_or(default.style),
                    detail: self.detail.unwrap_or(default.detail),
                    result_format: limits.result_format.unwrap_or_default(),
                    result_bytes: limits.max_result_bytes.unwrap_or(default.result_bytes),
                    answer_tokens: self.max_tokens.unwrap_or(default.answer_tokens),
                    pins: self.pin,
                    identity: self.identity,
                    ..default
                };
                let texts = self.client_texts.map(usize::from);
                serve(
                    &context,
                    (config, texts),
                    (profile, versions.zip(of_settings)),
                    policies,
                    (servers, operations),
                )
            }
        }
    }
}

/// The profile without what the flags leave out; of all tools where there is none.
fn narrowed(
    profile: Option<ToolProfile>,
    only_reads: bool,
    only: &[String],
) -> Option<ToolProfile> {
    if !only_reads && only.is_empty() {
        return profile;
    }
    let mut profile = profile.unwrap_or_else(ToolProfile::of_everything);
    if only_reads {
        profile = profile.reading();
    }
    if !only.is_empty() {
        profile = profile.within(only);
    }
    Some(profile)
}

/// Warns of built-in tools, which a client does not get from here. The folder of files is for operations
/// that send files, too.
fn warn_of_builtins(preset: &AgentProfile) {
    // The files of a profile serve operations too, which are called here.
    let others = BuiltinConfig {
        files: None,
        ..preset.tools.clone()
    };
    if others != BuiltinConfig::default() {
        print_stderr(
            "the profile switches on built-in tools, which only `toolscout agent` and its routes of `serve` have",
        );
    }
}

/// What the client's own model is asked for.
fn client_texts(context: &Context, most: usize, sink: &SingleWriterSink) -> Result<ClientTexts> {
    let languages = &context.settings.enrich.languages;
    Ok(ClientTexts {
        most,
        wanted: Wanted::new(None, languages).map_err(UsageError::from)?,
        catalog: sink.clone(),
    })
}

fn serve(
    context: &Context,
    (gateway, texts): (GatewayConfig, Option<usize>),
    (profile, followed): (Option<ToolProfile>, Option<(ProfileVersions, ToolProfile)>),
    policies: Policies,
    (servers, operations): (PoolConfig, Operations),
) -> Result<Outcome> {
    context.check_catalog()?;
    context.set_patience(Patience::of_server());
    let catalog = context.open_or_create(Legs::All)?;
    let usage = context.recorder(&catalog)?;
    let catalog = SingleWriterSink::new(catalog);
    let texts = texts.map(|most| client_texts(context, most, &catalog));
    let settings = ClientSettings {
        texts: texts.transpose()?,
        catalog,
        usage,
        servers,
        operations,
        policies,
        gateway,
        profile,
    };
    let server = OneClient::new(&context.settings.data, settings)?;
    // One client's calls wait for their servers: with more threads each call would take longer, as it
    // would wake one after another. Searches have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("start the runtime")?;
    if io::stdin().is_terminal() {
        print_stderr(
            "speaks MCP on stdin and stdout; `toolscout mcp install --client NAME` sets up a client",
        );
    }
    let served = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        server.connect();
        // It ends with the runtime, and only prints.
        tokio::spawn(warn_once_connected(server.clone()));
        if let Some((versions, profile)) = followed {
            tokio::spawn(follow(
                versions,
                vec![profile],
                shutdown.token().cancelled_owned(),
            ));
        }
        let (stdin, stdout) = stdio_pipes();
        server.serve(stdin, stdout, &shutdown).await
    });
    // A read of standard input cannot be cancelled. Embedding continues at the next start.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    server.usage.end();
    served.map(|()| Outcome::Success)
}

/// Prints what the profile, rules and pins name and the catalog does not have, once it has the tools of the
/// MCP servers.
async fn warn_once_connected(server: OneClient) {
    server.whole.settled().await;
    // It reads every tool, which would hold up the client's first requests.
    let looking = spawn_blocking(move || {
        warn_of_unknown_names(&server.whole.unknown_names(&[]));
        if let Some(profile) = &server.profile {
            warn_of_mistakes(profile, &server.catalog.searcher(), server.gate.policies());
        }
    });
    let _ = looking.await;
}
