//! `/mcp`: the MCP gateway over streamable HTTP, for the tools of the default catalog, and
//! `/mcp/p/NAME` for those of a profile.

mod messages;
mod places;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::Response;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use self::places::{Place, PlaceLimits, Sender, SessionPlaces};
use crate::access::key_watch::KeyWatch;
use crate::access::profiles::{OpenProfile, Profiles};
use crate::access::{Access, ProfileGrant};
use crate::default_catalog::DefaultCatalog;
use crate::process::limits::Limits;
use crate::request::error::{self, ApiError, ApiResult};
use crate::request::extract::Path;
use crate::request::threads::blocking;
use crate::served::tokens::TokenSavings;
use toolscout_finder::finder::ToolSearch;
use toolscout_mcp::gateway::{Session, SessionPlace};
use toolscout_mcp::{Gateway, Principal};
use toolscout_state::keys::Scope;

/// The header that names an MCP session.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The route of the MCP gateway, of all methods.
pub const PATH: &str = "/mcp";
/// The route of its profiles, of all methods.
pub const PROFILE_PATH: &str = "/mcp/p/{profile}";
/// From a request to the start of its answer: longer than the longest tool call.
pub const TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// A session without requests for this long is closed: its client is gone.
const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// The MCP servers behind the routes: one for the default catalog, and one for each profile that was
/// used. Each has sessions of its own, so that a session of one profile is unknown to another.
pub struct McpServices {
    gateway: Gateway,
    places: Arc<SessionPlaces>,
    max_body_bytes: usize,
    stop: CancellationToken,
    whole: Arc<McpService>,
    of_profiles: Mutex<BTreeMap<String, Arc<McpService>>>,
}

/// An MCP server with its sessions.
struct McpService {
    protocol: StreamableHttpService<Session, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
}

tokio::task_local! {
    /// The place of the request that is being handled, which a session that it begins takes over.
    static PLACE: Option<Arc<Place>>;
}

/// Marks an answer whose body must not be replaced: errors of the protocol have their own.
#[derive(Clone, Copy, Debug)]
pub struct HasOwnErrorBody;

/// A request that may use the tools of a profile, or of the default catalog.
pub struct AuthorizedCaller {
    principal: Principal,
    sender: Sender,
    profile: Option<OpenProfile>,
}

#[derive(Deserialize)]
struct ProfileInPath {
    profile: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for AuthorizedCaller
where
    Arc<Access>: FromRef<S>,
    Arc<DefaultCatalog>: FromRef<S>,
    Profiles: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // A key that is bound to profiles may use this route. The profile is chosen below.
        let ProfileGrant(grant) = ProfileGrant::from_request_parts(parts, state).await?;
        let Path(ProfileInPath { profile: named }) = Path::from_request_parts(parts, state).await?;
        let profiles = Profiles::from_ref(state);
        let chosen = match &named {
            Some(named) => profiles.chosen(&grant, Some(named))?,
            None => profiles.chosen_by_header(&grant, &parts.headers)?,
        };
        let profile = match chosen {
            Some(profile) => Some(profile.open(&grant).await?),
            None => {
                grant.reads(Arc::<DefaultCatalog>::from_ref(state).name())?;
                None
            }
        };
        Ok(AuthorizedCaller {
            principal: Principal {
                who: grant.sender(),
                may_change: grant.allows(Scope::Call).is_ok(),
            },
            sender: Sender::from(&grant),
            profile,
        })
    }
}

/// Whether this is one of the routes.
pub fn contains(route: &str) -> bool {
    [PATH, PROFILE_PATH].contains(&route.strip_suffix('/').unwrap_or(route))
}

/// Answers a request of the MCP protocol.
pub async fn serve(
    AuthorizedCaller {
        principal,
        sender,
        profile,
    }: AuthorizedCaller,
    State(services): State<Arc<McpServices>>,
    State(default_catalog): State<Arc<DefaultCatalog>>,
    State(token_savings): State<TokenSavings>,
    State(key_watch): State<KeyWatch>,
    request: Request,
) -> ApiResult<Response> {
    if !default_catalog.is_open() {
        return Err(error::not_ready());
    }
    let service = services.of(default_catalog.name(), &token_savings, profile);
    let (mut request, asked) = match messages::read(request, services.max_body_bytes).await {
        Ok(read) => read,
        Err(refused) => return Ok(with_own_error_body(refused)),
    };
    let ends_session = request.method() == Method::DELETE;
    let places = &services.places;
    let in_use = places.enter(&principal.who, request.headers_mut());
    // A message without a session either begins one or is from a client that uses none.
    let begins = request.method() == Method::POST && !request.headers().contains_key(SESSION_ID);
    let place = if begins {
        match places.take(&sender).await {
            Ok(place) => Some(Arc::new(place)),
            Err(reason) => {
                return Ok(with_own_error_body(messages::too_many_sessions(
                    asked, reason,
                )));
            }
        }
    } else {
        None
    };
    // The gateway takes the caller from the extensions of the request.
    request.extensions_mut().insert(principal);
    let handled = PLACE.scope(place.clone(), service.protocol.handle(request));
    let response = handled.await.map(Body::new);
    let mut response = messages::answer(response, asked).await;
    // The answer has the id of a new session.
    if let Some(place) = place
        && let Some(session) = places.record(&place, &service.sessions, response.headers())
    {
        let sessions = Arc::clone(&service.sessions);
        let close = async move { drop(sessions.close_session(&session).await) };
        key_watch.at_end(sender.key(), place.over(), close);
    }
    // An open stream keeps its session in use, so that it is not ended as an idle one.
    let is_stream = response.body().size_hint().exact().is_none();
    if let Some(in_use) = in_use
        && is_stream
    {
        response = response.map(|body| holding(body, in_use));
    }
    if ends_session && response.status() == StatusCode::ACCEPTED {
        // The SDK answers 202, but the session has ended, and clients expect 200 or 204.
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    Ok(with_own_error_body(response))
}

/// A body that holds this until it has been sent, or its client has left.
fn holding(body: Body, held: impl Send + 'static) -> Body {
    let frames = body.into_data_stream();
    Body::from_stream(frames.inspect(move |_| _ = &held))
}

fn with_own_error_body(mut response: Response) -> Response {
    response.extensions_mut().insert(HasOwnErrorBody);
    response
}

impl McpServices {
    /// The services of this gateway, whose catalog is the default one.
    pub fn new(gateway: Gateway, limits: &Limits, stop: CancellationToken) -> Self {
        // The SDK has a limit of its own, which is set to the same value.
        let max_body_bytes = limits.body_bytes;
        let places = SessionPlaces::new(PlaceLimits {
            all: limits.max_mcp_sessions,
            per_key: limits.mcp_sessions_per_key,
            for_operators: limits.mcp_sessions_for_operators,
        });
        let whole = McpService::new(gateway.clone(), max_body_bytes, stop.clone());
        McpServices {
            gateway,
            places,
            max_body_bytes,
            stop,
            whole: Arc::new(whole),
            of_profiles: Mutex::default(),
        }
    }

    /// Returns once the MCP servers are connected, or have had their time.
    pub async fn settled(&self) {
        self.gateway.settled().await;
    }

    /// Warns about what rules for calls and pins name and the default catalog does not have.
    pub async fn warn_of_unknown_names(&self, pins_of_agent: Vec<String>) {
        let gateway = self.gateway.clone();
        let looking = blocking(move || gateway.unknown_names(&pins_of_agent));
        for line in looking.await.unwrap_or_default() {
            tracing::warn!("{line}");
        }
    }

    /// The service of a profile, or that of the default catalog.
    fn of(
        &self,
        default_catalog: &str,
        token_savings: &TokenSavings,
        profile: Option<OpenProfile>,
    ) -> Arc<McpService> {
        let Some(OpenProfile {
            profile, snapshots, ..
        }) = profile
        else {
            return Arc::clone(&self.whole);
        };
        let mut of_profiles = self.of_profiles.lock();
        if let Some(made) = of_profiles.get(profile.name()) {
            return Arc::clone(made);
        }
        let name = profile.name().to_owned();
        let mut other: Option<Arc<dyn ToolSearch>> = None;
        if snapshots.catalog().name != default_catalog {
            other = Some(Arc::new(token_savings.counting(snapshots)));
        }
        let gateway = self.gateway.with_profile(profile, other);
        let service = McpService::new(gateway, self.max_body_bytes, self.stop.clone());
        let made = Arc::new(service);
        of_profiles.insert(name, Arc::clone(&made));
        made
    }
}

impl McpService {
    fn new(gateway: Gateway, max_body_bytes: usize, stop: CancellationToken) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        // The guard checks hosts and origins, as for every route.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(max_body_bytes)
            .with_cancellation_token(stop);
        let sessions = Arc::new(sessions);
        let begin = move || {
            // The SDK does not say for which request it makes a session, so the task carries the place.
            let place = PLACE.try_with(Clone::clone).ok().flatten();
            Ok(gateway.session(place.map(|place| place as SessionPlace)))
        };
        McpService {
            protocol: StreamableHttpService::new(begin, Arc::clone(&sessions), config),
            sessions,
        }
    }
}
