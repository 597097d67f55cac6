//! The MCP server: a handful of tools over a catalog of thousands.
//!
//! Every client sees `tool_search`, `describe_tool`, `list_tools`, `call_tool` and `run_plan`, and the
//! pinned tools. In [`Style::Inject`](toolscout_finder::finder::Style::Inject) the tools that a search found are added to the list of that
//! session, the least recently used are removed when the token budget is used up, and the client is
//! notified that the list changed. Clients without sessions have no list of their own, so they call
//! every tool through `call_tool`.
//!
//! Every call goes through the [gate](toolscout_gate::gate), like those of the agent. Approval by a
//! person is requested from the client by elicitation. A gateway with a
//! [profile](toolscout_finder::profiles) shows and calls a part of the catalog.

mod apps;
mod calling;
mod calling_client;
mod calls;
mod capabilities;
mod client_texts;
mod config;
mod elicitation;
mod handler;
mod instructions;
mod kept_results;
mod notices;
mod offers;
mod other_items;
mod own_tools;
mod plan;
mod progress;
mod requests;
mod resolve;
mod search_answer;
mod searching;
mod servers;
mod skills;
mod tool_list;
mod waiting_calls;

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rmcp::ServiceExt;
use rmcp::model::{CallToolResult, ContentBlock, ServerCapabilities};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::{Tool, ToolId};
use uuid::Uuid;

use crate::pool::Pool;
use elicitation::OpenQuestions;
use instructions::ToldInstructions;
use kept_results::KeptResults;
use notices::Wishes;
use offers::Links;
use servers::Overview;
use toolscout_finder::finder::search::SearchRequest;
use toolscout_finder::finder::toolbox::{Toolbox, o200k};
use toolscout_finder::finder::{SearchHistories, SearchTrails, ToolSearch};
use toolscout_finder::profiles::{ProfiledSearch, ToolProfile};
use toolscout_finder::unknown_names::unknown_names;
use toolscout_gate::gate::{Approvals, Definition, Gate};
use toolscout_gate::tools::{AbsentServer, Toolset};
use waiting_calls::WaitingCalls;

pub use calls::{Ledgers, Principal};
pub use client_texts::ClientTexts;
pub use config::GatewayConfig;
pub use search_answer::Detail;

/// Longest message of a client on its standard output, in bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Most characters of a client's name and of a request id in the audit log.
const NAME_CHARS: usize = 100;
/// The header that names a session.
const SESSION_ID: &str = "mcp-session-id";

/// Creates the handlers of sessions. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<GatewayState>,
}

/// What a gateway is made of.
pub struct GatewayParts {
    /// Finds the tools that clients see.
    pub search: Arc<dyn ToolSearch>,
    /// The connections to the servers of the tools.
    pub pool: Pool,
    /// What decides on every call.
    pub gate: Arc<Gate>,
    /// Tools that preconditions may call, besides those of the pool.
    pub toolset: Option<Arc<dyn Toolset>>,
    /// Where calls of clients that cannot ask their person are decided on.
    pub approvals: Option<Arc<Approvals>>,
    /// Texts that the models of clients may write.
    pub texts: Option<ClientTexts>,
    /// Its settings.
    pub config: GatewayConfig,
}

impl GatewayParts {
    /// Parts without those that a gateway may lack.
    pub fn new(
        search: Arc<dyn ToolSearch>,
        pool: Pool,
        gate: Arc<Gate>,
        config: GatewayConfig,
    ) -> Self {
        GatewayParts {
            search,
            pool,
            gate,
            toolset: None,
            approvals: None,
            texts: None,
            config,
        }
    }
}

struct GatewayState {
    /// What clients see.
    search: Arc<dyn ToolSearch>,
    /// The catalog that this is, or a part of. Preconditions may call all of it.
    catalog: Arc<dyn ToolSearch>,
    /// The catalog with the servers' tools, where this is another one.
    connected: Option<Arc<dyn ToolSearch>>,
    profile: Option<Arc<ToolProfile>>,
    pool: Pool,
    gate: Arc<Gate>,
    /// Tools that preconditions may call, besides those of the pool.
    toolset: Option<Arc<dyn Toolset>>,
    ledgers: Arc<Ledgers>,
    questions: Arc<OpenQuestions>,
    /// Calls on which somebody decides elsewhere, where that is possible.
    waiting: Option<Arc<WaitingCalls>>,
    overview: Overview,
    config: GatewayConfig,
    /// What the searches of clients found, where that teaches a usage memory.
    trails: SearchTrails,
    /// What they found since their last call.
    histories: SearchHistories,
    /// The servers of resources in results.
    links: Links,
    /// Results of which clients have got a part.
    results: Arc<KeptResults>,
    /// Texts that the models of clients may write.
    texts: Option<Arc<ClientTexts>>,
}

impl GatewayState {
    /// What the description of `tool_search` says about the servers. Blocks.
    fn overview(&self) -> Arc<str> {
        let filter = &self.config.find.filter;
        let max_tokens = self.config.overview_tokens;
        self.overview.of(self.search.as_ref(), filter, max_tokens)
    }

    /// Why this tool cannot be called right now; `None` when it can.
    fn unavailable(&self, id: &ToolId) -> Option<String> {
        let reason = self.pool.unavailable_tool(id)?;
        // A tool of the toolset needs no server.
        if let Some(toolset) = &self.toolset
            && toolset.find(id).is_some()
        {
            return None;
        }
        Some(reason)
    }

    /// The servers whose tools cannot be called now and may be in the profile.
    fn absent_servers(&self) -> Vec<AbsentServer> {
        let mut servers = self.pool.absent_servers();
        if let Some(profile) = &self.profile {
            servers.retain(|server| profile.may_have_server(&server.server));
        }
        servers
    }

    /// Whether the servers' tools are called under this definition: anyone who may write another
    /// catalog could describe one of them as harmless.
    fn is_connected(&self, id: &ToolId) -> bool {
        let Some(connected) = &self.connected else {
            return true;
        };
        // As the catalogs have them, without what the profile changes.
        match (connected.tool(id), self.catalog.tool(id)) {
            (Some(own), Some(tool)) => Definition::of(&own) == Definition::of(&tool),
            _ => false,
        }
    }

    /// Why a tool with one of these ids is kept out of the catalog; `None` where it is not, or may be
    /// outside of the profile.
    fn blocked(&self, call: &resolve::NamedCall) -> Option<String> {
        call.blocked(&self.pool, |id| match &self.profile {
            Some(profile) => profile.certainly_has(id),
            None => true,
        })
    }

    fn may_have_pins(&self) -> bool {
        !self.pins().is_empty() || self.pool.awaits_pins()
    }

    /// Ids of pinned tools, or names as shown to models.
    fn pins(&self) -> Vec<String> {
        let mut pins = self.config.pins.clone();
        let always_loaded = self.pool.always_loaded();
        pins.extend(always_loaded.iter().map(ToString::to_string));
        match &self.profile {
            Some(profile) => profile.pins(pins),
            None => pins,
        }
    }

    /// The pinned tools that the catalog has now. Blocks.
    fn pinned(&self) -> Vec<Arc<Tool>> {
        let pins = self.pins();
        if pins.is_empty() {
            return Vec::new();
        }
        let request = SearchRequest {
            select: pins,
            filter: self.config.find.filter.clone(),
            ..SearchRequest::default()
        };
        let found = self.search.search(&request);
        found.hits.into_iter().map(|hit| hit.tool).collect()
    }
}

impl Gateway {
    /// A gateway that finds tools with `search`, and calls them through the gate and the pool.
    pub fn new(
        search: Arc<dyn ToolSearch>,
        pool: Pool,
        gate: Arc<Gate>,
        config: GatewayConfig,
    ) -> Self {
        Gateway::of_server(GatewayParts::new(search, pool, gate, config))
    }

    /// A gateway of these parts.
    pub fn of_server(parts: GatewayParts) -> Self {
        let GatewayParts {
            search,
            pool,
            gate,
            toolset,
            approvals,
            texts,
            config,
        } = parts;
        let waiting = approvals.map(WaitingCalls::new).map(Arc::new);
        Gateway {
            shared: Arc::new(GatewayState {
                catalog: Arc::clone(&search),
                search,
                connected: None,
                profile: None,
                pool,
                gate,
                toolset,
                ledgers: Arc::default(),
                questions: Arc::default(),
                waiting,
                overview: Overview::default(),
                config,
                trails: SearchTrails::default(),
                histories: SearchHistories::default(),
                links: Links::default(),
                results: Arc::default(),
                texts: texts.map(Arc::new),
            }),
        }
    }

    /// Returns once the MCP servers are connected, or have had the time that a client gives them.
    pub async fn settled(&self) {
        let shared = &self.shared;
        shared.pool.settled(shared.config.settle).await;
    }

    /// What its rules for calls, its pins and those of an agent beside it name and its catalog does not
    /// have. Blocks.
    pub fn unknown_names(&self, pins_of_agent: &[String]) -> Vec<String> {
        let shared = &self.shared;
        let mut pins = [&shared.config.pins, pins_of_agent].concat();
        pins.sort();
        pins.dedup();
        unknown_names(&*shared.search, shared.gate.policies(), &pins)
    }

    /// A gateway whose clients see and call the tools of a profile alone: of this gateway's catalog,
    /// or of another one. Limits of calls are counted together with this one's.
    ///
    /// Of another catalog those tools can be called that have the same definition in this one, which
    /// has the servers' tools.
    pub fn with_profile(
        &self,
        profile: Arc<ToolProfile>,
        other_catalog: Option<Arc<dyn ToolSearch>>,
    ) -> Self {
        let shared = &*self.shared;
        let own = Arc::clone(&shared.catalog);
        let (catalog, connected) = match other_catalog {
            Some(other) => (other, Some(own)),
            None => (own, None),
        };
        let gate = Arc::clone(&shared.gate);
        let search = ProfiledSearch::new(Arc::clone(&catalog), Arc::clone(&profile), gate);
        Gateway {
            shared: Arc::new(GatewayState {
                search: Arc::new(search),
                catalog,
                connected,
                config: shared.config.clone(),
                profile: Some(profile),
                pool: shared.pool.clone(),
                gate: Arc::clone(&shared.gate),
                toolset: shared.toolset.clone(),
                ledgers: Arc::clone(&shared.ledgers),
                questions: Arc::clone(&shared.questions),
                waiting: shared.waiting.clone(),
                overview: Overview::default(),
                trails: SearchTrails::default(),
                histories: SearchHistories::default(),
                links: Links::default(),
                results: Arc::clone(&shared.results),
                texts: shared.texts.clone(),
            }),
        }
    }

    /// The handler of one session, which holds this place to its end.
    pub fn session(&self, place: Option<SessionPlace>) -> Session {
        let toolbox = Toolbox::new(self.shared.config.toolbox, o200k);
        let (list_version, _) = watch::channel(0);
        let id = Uuid::new_v4().to_string();
        let ended = CancellationToken::new();
        Session {
            shared: Arc::clone(&self.shared),
            id,
            toolbox: Mutex::new(toolbox),
            pins_not_given: Mutex::default(),
            list_version,
            declared: OnceLock::new(),
            wishes: Arc::default(),
            is_told: AtomicBool::default(),
            told: ToldInstructions::default(),
            _end: ended.clone().drop_guard(),
            ended,
            _place: place,
        }
    }

    /// Serves one client until it closes its end or the token is cancelled.
    ///
    /// # Errors
    /// When the client does not speak the protocol.
    pub async fn serve<R, W>(
        &self,
        read: R,
        write: W,
        stop: CancellationToken,
    ) -> anyhow::Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        use rmcp::service::ServerInitializeError;
        use rmcp::transport::async_rw::AsyncRwTransport;
        let transport =
            AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_MESSAGE_BYTES);
        match self.session(None).serve_with_ct(transport, stop).await {
            Ok(running) => {
                running.waiting().await?;
                Ok(())
            }
            // The client disconnected before the handshake, or the program ends.
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
                Ok(())
            }
            Err(ServerInitializeError::ExpectedInitializeRequest(_)) => anyhow::bail!(
                "the client did not begin with the request `initialize`; let it send that first"
            ),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a session holds from its beginning to its end, and is dropped with it.
pub type SessionPlace = Arc<dyn Any + Send + Sync>;

/// One client's view of the catalog.
pub struct Session {
    shared: Arc<GatewayState>,
    /// For the audit log, if the client has no session id of its own.
    id: String,
    /// The injected tools.
    toolbox: Mutex<Toolbox>,
    /// Pinned tools among them that the client was not given yet, because it has not listed its tools since.
    pins_not_given: Mutex<Vec<ToolId>>,
    /// Incremented whenever the list of tools changes.
    list_version: watch::Sender<u64>,
    /// What the client was told at the handshake, where there was one.
    declared: OnceLock<ServerCapabilities>,
    wishes: Arc<Wishes>,
    /// Whether the client is told what happens.
    is_told: AtomicBool,
    /// The servers whose instructions it has.
    told: ToldInstructions,
    /// Is cancelled with the end of the session.
    ended: CancellationToken,
    _end: DropGuard,
    _place: Option<SessionPlace>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.results.forget_session(&self.id);
        self.shared.pool.forget_log_level(&self.id);
    }
}

fn failed(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}
