//! `/mcp`: the MCP gateway over streamable HTTP, for the tools of the default catalog.

mod owners;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use toolscout_index::{Changes, Searcher, Tool};

use self::owners::SessionOwners;
use super::App;
use super::access::Grant;
use super::error::not_ready;
use super::error::{ApiError, ApiResult};
use super::registry::OpenCatalog;
use crate::catalog_writer::Change;
use crate::finder::ToolSearch;
use crate::gate::Gate;
use crate::keys::Scope;
use crate::mcp::approved::ApprovedPlace;
use crate::mcp::gateway::Session;
use crate::mcp::{CatalogSink, Gateway, GatewayConfig, Pool, Principal};
use crate::tools::Toolset;

/// The route of the MCP gateway, of all methods.
pub const PATH: &str = "/mcp";
/// From a request to the start of its answer: longer than the longest tool call.
pub const TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// A session without requests for this long is closed: its client is gone.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// The MCP server behind the route.
pub struct McpService {
    protocol: StreamableHttpService<Session, LocalSessionManager>,
    owners: SessionOwners,
}

/// Marks an answer whose body must not be replaced: errors of the protocol have their own.
#[derive(Clone, Copy, Debug)]
pub struct HasOwnErrorBody;

/// A request that may use the tools of the default catalog.
pub struct AuthorizedCaller(Principal);

impl FromRequestParts<App> for AuthorizedCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let grant = Grant::from_request_parts(parts, app).await?;
        grant.reads(&app.default_catalog)?;
        Ok(AuthorizedCaller(Principal {
            who: grant.sender(),
            may_change: grant.allows(Scope::Call).is_ok(),
        }))
    }
}

/// Answers a request of the MCP protocol.
pub async fn serve(
    AuthorizedCaller(principal): AuthorizedCaller,
    State(app): State<App>,
    mut request: Request,
) -> ApiResult<Response> {
    let service = app.mcp.get().ok_or_else(not_ready)?;
    let ends_session = request.method() == Method::DELETE;
    // The sender of a request owns the session that it starts.
    let owner = principal.who.clone();
    request.extensions_mut().insert(principal);
    service.owners.hide_foreign(&owner, request.headers_mut());
    let mut response = service.protocol.handle(request).await.map(Body::new);
    service.owners.record(&owner, response.headers()).await;
    if ends_session && response.status() == StatusCode::ACCEPTED {
        // The SDK answers 202, but the session has ended, and clients expect 200 or 204.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    response.extensions_mut().insert(HasOwnErrorBody);
    Ok(response)
}

/// The service over the tools that `search` finds. Its calls go through this gate.
pub fn service(
    search: Arc<dyn ToolSearch>,
    pool: Pool,
    gate: Arc<Gate>,
    toolset: Option<Arc<dyn Toolset>>,
    config: GatewayConfig,
    max_body_bytes: usize,
    stop: CancellationToken,
) -> McpService {
    let max_sessions = config.max_sessions;
    let gateway = Gateway::with_toolset(search, pool, gate, toolset, config);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_IDLE);
    // The guard checks hosts and origins, as for every route.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(max_body_bytes)
        .with_cancellation_token(stop);
    let sessions = Arc::new(sessions);
    let owners = SessionOwners::new(Arc::clone(&sessions), max_sessions);
    McpService {
        protocol: StreamableHttpService::new(move || gateway.session(), sessions, config),
        owners,
    }
}

#[async_trait]
impl CatalogSink for OpenCatalog {
    fn searcher(&self) -> Arc<Searcher> {
        OpenCatalog::searcher(self)
    }

    fn folder(&self) -> PathBuf {
        OpenCatalog::folder(self).to_owned()
    }

    fn approved(&self) -> ApprovedPlace {
        OpenCatalog::approved(self)
    }

    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String> {
        let change = Change::Sync {
            server: server.to_owned(),
            tools,
        };
        match self.writer.write(change).await {
            Ok(written) => Ok(written.changes),
            Err(error) => Err(error.to_string()),
        }
    }
}
