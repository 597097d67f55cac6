//! Puts the MCP server of one client together, which searches one catalog and calls the tools of other
//! MCP servers and of APIs.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncWrite};

use super::audit_log;
use crate::finder::ToolSearch;
use crate::gate::{Gate, Policies};
use crate::mcp::{
    ClientTexts, Gateway, GatewayConfig, GatewayParts, Pool, PoolConfig, SingleWriterSink,
};
use crate::profiles::ToolProfile;
use crate::shutdown::Shutdown;
use crate::tools::operation::Operations;
use crate::usage::Recorder;

/// What the server of one client is to be.
pub struct ClientSettings {
    /// The catalog, which the tools of the MCP servers are added to.
    pub catalog: SingleWriterSink,
    /// What records its use.
    pub usage: Recorder,
    /// The MCP servers.
    pub servers: PoolConfig,
    /// The operations of APIs that may be called.
    pub operations: Operations,
    /// The gate's policies.
    pub policies: Policies,
    /// How the client sees the catalog.
    pub gateway: GatewayConfig,
    /// The part of the catalog that the client sees; without one it sees all.
    pub profile: Option<ToolProfile>,
    /// Texts of tools that the client's model may write.
    pub texts: Option<ClientTexts>,
}

/// The parts of the server of one client.
#[derive(Clone)]
pub struct OneClient {
    /// The catalog.
    pub catalog: SingleWriterSink,
    /// The connections to the MCP servers.
    pub pool: Pool,
    /// What decides on every call.
    pub gate: Arc<Gate>,
    /// The gateway to the whole catalog.
    pub whole: Gateway,
    /// The part of the catalog that the client sees.
    pub profile: Option<Arc<ToolProfile>>,
    /// The gateway to this part.
    pub gateway: Gateway,
    /// What records the use of the catalog.
    pub usage: Recorder,
}

impl OneClient {
    /// Builds the parts. The audit log is in the directory `data`.
    ///
    /// # Errors
    /// If the audit log cannot be opened.
    pub fn new(data: &Path, settings: ClientSettings) -> Result<Self> {
        let pool = Pool::new(settings.servers);
        let gate = Gate::new(settings.policies)
            .with_audit(audit_log(data)?)
            .with_usage(settings.usage.clone());
        let gate = Arc::new(gate);
        let search: Arc<dyn ToolSearch> = Arc::new(settings.catalog.clone());
        let found = Arc::clone(&search);
        let operations = settings.operations;
        let operations = operations.found_by(Arc::new(move |id| found.tool(id)));
        let whole = Gateway::of_server(GatewayParts {
            toolset: Some(Arc::new(operations)),
            texts: settings.texts,
            ..GatewayParts::new(search, pool.clone(), Arc::clone(&gate), settings.gateway)
        });
        let profile = settings.profile.map(Arc::new);
        let gateway = match &profile {
            Some(profile) => whole.with_profile(Arc::clone(profile), None),
            None => whole.clone(),
        };
        Ok(OneClient {
            catalog: settings.catalog,
            pool,
            gate,
            whole,
            profile,
            gateway,
            usage: settings.usage,
        })
    }

    /// Begins to connect to the MCP servers. Needs an async runtime.
    pub fn connect(&self) {
        self.pool.start(Arc::new(self.catalog.clone()));
    }

    /// Serves the client until it closes its end or the program ends, and closes the connections.
    ///
    /// # Errors
    /// If the client does not speak the protocol.
    pub async fn serve<R, W>(&self, read: R, write: W, shutdown: &Shutdown) -> Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let served = self.gateway.serve(read, write, shutdown.token()).await;
        self.pool.close().await;
        served
    }
}
