//! `toolscout mcp`: this program as an MCP server, and how clients come to know it.

mod install;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rmcp::transport::io::stdio_pipes;

use super::Outcome;
use super::agent::style;
use super::context::{Context, Legs};
use super::policy::PolicyArgs;
use super::upstream::McpArgs;
use crate::finder::Style;
use crate::finder::snapshot::Newest;
use crate::gate::{AuditLog, Gate, audit};
use crate::mcp::{CatalogSink, Gateway, GatewayConfig, Pool, SingleWriterSink};
use crate::shutdown::Shutdown;

/// How long what still works in the background may take after the client has gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves the catalog to one MCP client over standard input and output: it finds tools with
/// tool_search and calls those of the MCP servers named here with call_tool. Tools that do more
/// than read are called when the person at the client says yes, or where --allow or a profile says
/// so.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// How found tools come into the client's hands: dispatch (through call_tool) or inject (they
    /// join its list, for clients that heed list_changed) [default: dispatch]
    #[arg(long, value_parser = style)]
    style: Option<Style>,
    /// Most tokens of tools in one answer to a search [default: 4000]
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<usize>,
    /// The user on whose behalf tools are called; arguments that the profile binds may name nobody
    /// else
    #[arg(long, value_name = "USER")]
    identity: Option<String>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    mcp: McpArgs,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    /// Write this program into the settings of an MCP client
    Install(install::Args),
}

impl Args {
    /// Serves until the client closes our standard input.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.verb {
            Some(Verb::Install(args)) => args.run(context),
            None => {
                let config = gateway_config(self.style, self.max_tokens);
                serve(
                    context,
                    GatewayConfig {
                        identity: self.identity,
                        ..config
                    },
                    &self.policy,
                    &self.mcp,
                )
            }
        }
    }
}

/// The settings of a gateway where flags say something.
pub fn gateway_config(style: Option<Style>, max_tokens: Option<usize>) -> GatewayConfig {
    let default = GatewayConfig::default();
    GatewayConfig {
        style: style.unwrap_or(default.style),
        answer_tokens: max_tokens.unwrap_or(default.answer_tokens),
        ..default
    }
}

fn serve(
    context: &Context,
    config: GatewayConfig,
    policy: &PolicyArgs,
    mcp: &McpArgs,
) -> Result<Outcome> {
    let pool = Pool::new(mcp.config()?);
    let mut policies = policy.profile()?.gate.unwrap_or_default();
    policy.apply_to(&mut policies);
    let sink = SingleWriterSink::new(context.open_or_create(Legs::All)?);
    let search = {
        let sink = sink.clone();
        Arc::new(Newest(move || sink.searcher()))
    };
    // After the catalog, which may have made the data directory.
    let audit = AuditLog::open(&context.settings.data.join(audit::FILE_NAME))?;
    let gate = Gate::new(policies).with_audit(Arc::new(audit));
    let gateway = Gateway::new(search, pool.clone(), Arc::new(gate), config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let served = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        pool.start(Arc::new(sink));
        let (stdin, stdout) = stdio_pipes();
        let served = gateway.serve(stdin, stdout, shutdown.token()).await;
        pool.close().await;
        served
    });
    // A read of standard input cannot be cancelled, and embedding goes on at the next start.
    runtime.shutdown_timeout(FAREWELL);
    served.map(|()| Outcome::Done)
}
