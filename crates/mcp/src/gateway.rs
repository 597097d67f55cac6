//! The MCP server: a handful of tools over a catalog of thousands.
//!
//! Every client sees `tool_search`, `describe_tool`, `list_tools`, `call_tool` and `run_plan`, and the
//! pinned tools. In [`Style::Inject`] the tools that a search found are added to the list of that
//! session, the least recently used are removed when the token budget is used up, and the client is
//! notified that the list changed. Clients without sessions have no list of their own, so they call
//! every tool through `call_tool`.
//!
//! Every call goes through the [gate](toolscout_gate::gate), like those of the agent. Approval by a
//! person is requested from the client by elicitation. A gateway with a
//! [profile](toolscout_finder::profiles) shows and calls a part of the catalog.

mod apps;
mod calling_client;
mod calls;
mod capabilities;
mod client_texts;
mod elicitation;
mod instructions;
mod kept_results;
mod notices;
mod offers;
mod other_items;
mod own_tools;
mod plan;
mod resolve;
mod search_answer;
mod servers;
mod waiting_calls;

use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::request::Parts;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CompleteRequestParams, CompleteResult, ContentBlock, CreateTaskResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    InitializeRequestParams, InitializeResult, InputRequiredResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, RequestMetaObject, ResultType, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, Tool as McpTool, UnsubscribeRequestParams,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, Peer, RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ServerHandler, ServiceExt};
use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Tool, ToolId, text};
use uuid::Uuid;

use crate::connection::{CallContext, CallError, Input, Progress, TaskAnswer, TaskQuestion};
use crate::implementation;
use crate::pool::{Pool, ServerAnswer};
use calling_client::{Questions, WaitingClient};
use calls::{CallDirectory, WINDOW};
use capabilities::Feature;
use elicitation::{ElicitationApprover, OpenQuestions, Repeated, Reply, asks_by_result};
use instructions::ToldInstructions;
use kept_results::{KeptResults, Reader};
use notices::{ForwardedLogs, LevelRequest, LogReader, MAX_SUBSCRIPTIONS, Wishes, session_of};
use offers::Links;
use own_tools::{DESCRIBE_TOOL, LIST_TOOLS, RUN_PLAN};
use servers::Overview;
use toolscout_base::config::{ProfileDetail, ResultFormat};
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::items::{self, Audience};
use toolscout_finder::finder::meta_tools::{self, FindConfig};
use toolscout_finder::finder::model_names::{CALL_TOOL, TOOL_SEARCH};
use toolscout_finder::finder::search::{Found, SearchRequest, off_async_threads, why_not_searched};
use toolscout_finder::finder::toolbox::{Injection, Toolbox, ToolboxConfig, o200k};
use toolscout_finder::finder::{SearchHistories, SearchTrails, Style, ToolSearch, recorded, trail};
use toolscout_finder::profiles::{ProfiledSearch, ToolProfile};
use toolscout_finder::unknown_names::unknown_names;
use toolscout_gate::gate::{
    Approvals, Call, CallOutcome, Caller, Definition, Directory, Gate, GateContext,
};
use toolscout_gate::tools::long_results::{self, READ_MORE};
use toolscout_gate::tools::{AbsentServer, Arguments, CallTimes, ErrorCode, Status, Toolset};
use toolscout_gate::usage::Origin;
use waiting_calls::WaitingCalls;

pub use calls::{Ledgers, Principal};
pub use client_texts::ClientTexts;
pub use search_answer::Detail;

/// Progress notifications that wait for a slow client; more are dropped.
const PROGRESS_QUEUE: usize = 16;
/// How long a result waits for a slow client to receive the progress before it.
const PROGRESS_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a result that a client gets at once, some 8,000 tokens.
const DEFAULT_RESULT_BYTES: usize = 32 << 10;
/// Longest message of a client on its standard output, in bytes.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// Most characters of a client's name and of a request id in the audit log.
const NAME_CHARS: usize = 100;
/// Fields of a definition beside those of [`Tool`] that clients get as the server wrote them.
const FIELDS_FOR_CLIENTS: [&str; 3] = ["annotations", "icons", "_meta"];
/// The codes of errors that are for the client and not for its model: a person has to visit a page
/// first (URL elicitation), or the client lacks a capability.
const ERRORS_FOR_CLIENTS: [i32; 2] = [-32042, -32021];
/// The header that names a session.
const SESSION_ID: &str = "mcp-session-id";

/// How a gateway shows the catalog.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// How found tools are offered to the client.
    pub style: Style,
    /// The limits of a search.
    pub find: FindConfig,
    /// How much of each found tool is shown if a search does not say.
    pub detail: Detail,
    /// Most tokens of the tools in one answer to a search; tools that do not fit are shortened.
    pub answer_tokens: usize,
    /// Bytes of the texts of a result that a client gets at once; it reads on with [`READ_MORE`].
    pub result_bytes: usize,
    /// How results in JSON are written.
    pub result_format: ResultFormat,
    /// Most tokens of what the description of `tool_search` says about the servers.
    pub overview_tokens: usize,
    /// Tools that are always in the list: ids, or names as shown to models.
    pub pins: Vec<String>,
    /// How many tools a session holds in [`Style::Inject`].
    pub toolbox: ToolboxConfig,
    /// How long a search waits for servers that have not been connected yet.
    pub settle: Duration,
    /// Most time of a call whose tool has no limit of its own. Those of MCP servers are in
    /// [`Limits`](crate::Limits).
    pub call_timeout: Duration,
    /// The user that the policies allow in identity arguments.
    pub identity: Option<String>,
    /// How long a call waits for a person elsewhere before its client is told to make it again.
    /// Clients give up after a minute.
    pub approval_patience: Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        GatewayConfig {
            style: Style::Dispatch,
            find: FindConfig::default(),
            detail: Detail::default(),
            answer_tokens: 4_000,
            result_bytes: DEFAULT_RESULT_BYTES,
            result_format: ResultFormat::default(),
            overview_tokens: 400,
            pins: Vec::new(),
            toolbox: ToolboxConfig::default(),
            settle: Duration::from_secs(10),
            call_timeout: CallTimes::default().idle,
            identity: None,
            approval_patience: Duration::from_secs(30),
        }
    }
}

impl GatewayConfig {
    fn with_profile(mut self, profile: &ToolProfile) -> Self {
        self.pins.extend(profile.pins().iter().cloned());
        self.detail = match profile.detail() {
            Some(ProfileDetail::Signature) => Detail::Signature,
            Some(ProfileDetail::Schema) => Detail::Schema,
            None => self.detail,
        };
        self
    }
}

/// Creates the handlers of sessions. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<GatewayState>,
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
    fn is_connected(&self, tool: &Tool) -> bool {
        let Some(connected) = &self.connected else {
            return true;
        };
        match connected.tool(&tool.id) {
            Some(own) => Definition::of(&own) == Definition::of(tool),
            None => false,
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
        let has_pins = !self.config.pins.is_empty() || !self.pool.always_loaded().is_empty();
        has_pins || self.pool.awaits_pins()
    }

    /// The pinned tools that the catalog has now. Blocks.
    fn pinned(&self) -> Vec<Arc<Tool>> {
        let mut pins = self.config.pins.clone();
        let always_loaded = self.pool.always_loaded();
        pins.extend(always_loaded.iter().map(ToString::to_string));
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
        Gateway::of_server(search, pool, gate, None, None, config)
    }

    /// A gateway whose preconditions may also call tools of this set. Of clients that cannot ask their
    /// person, calls are decided on among these requests.
    pub fn of_server(
        search: Arc<dyn ToolSearch>,
        pool: Pool,
        gate: Arc<Gate>,
        toolset: Option<Arc<dyn Toolset>>,
        approvals: Option<Arc<Approvals>>,
        config: GatewayConfig,
    ) -> Self {
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
                texts: None,
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

    /// Lets the models of clients write texts of tools. Before its first session.
    pub fn with_texts(mut self, texts: ClientTexts) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.texts = Some(Arc::new(texts));
        }
        self
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
                config: shared.config.clone().with_profile(&profile),
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

impl Session {
    async fn search(
        &self,
        given: &Arguments,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let config = &self.shared.config;
        let request = match meta_tools::parse(given, &config.find) {
            Ok(request) => request,
            Err(message) => return failed(&message),
        };
        let detail = match config.detail.or_given(given) {
            Ok(detail) => detail,
            Err(message) => return failed(&message),
        };
        // Right after the start, the tools of servers that are still connecting would be missing.
        self.shared.pool.settled(config.settle).await;
        let absent = self.shared.absent_servers();
        let (usage, origin) = (self.shared.gate.usage().clone(), self.origin(context));
        let found = off_async_threads(&self.shared.search, move |search| {
            let mut found = search.search(&request);
            found.note_absent(&request.filter, absent);
            let sent = Some(detail.format());
            recorded::searched(&usage, origin, &request, &found, sent);
            (found, search.learns(), request.queries)
        });
        let (mut found, learns, queries) = match found.await {
            Ok(searched) => searched,
            Err(error) => return failed(why_not_searched(&error)),
        };
        let (who, conversation) = self.conversation(context);
        let conversation = (who.as_str(), conversation.as_str());
        if learns {
            self.shared.trails.found(conversation, &queries, &found);
        }
        // Without sessions, the clients of a key are one conversation: each has seen its own answers only.
        if has_session(context) {
            self.shared
                .histories
                .note(conversation, &queries, &mut found);
        }
        // An earlier search of the conversation has described these tools.
        let is_short = found.repeats > 0 && !given.contains_key("detail");
        let injection = match self.style(context) {
            Style::Inject => self.inject(&found, context).await,
            Style::Dispatch => None,
        };
        let mut answer = search_answer::describe(
            &found,
            injection.as_ref(),
            if is_short { Detail::Names } else { detail },
            config.answer_tokens,
            config.find.more,
            &|id| self.shared.unavailable(id),
        );
        // Without sessions they would be in every answer.
        if has_session(context) {
            let found = found.hits.iter().map(|hit| &hit.tool.id).collect();
            self.tell_instructions(found, &mut answer);
        }
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }

    /// Adds what servers say about the use of their tools, when the session first gets one of them.
    fn tell_instructions(&self, tools: Vec<&ToolId>, answer: &mut Value) {
        let instructions = self.told.of(&tools, &self.shared.pool);
        if !instructions.is_empty() {
            answer["instructions"] = instructions.into();
        }
    }

    /// The whole definitions of tools.
    async fn describe(&self, given: &Arguments) -> CallToolResult {
        let detail = match own_tools::Description::of(given) {
            Ok(detail) => detail,
            Err(message) => return failed(&message),
        };
        let names = match own_tools::names(given) {
            Ok(names) => names,
            Err(message) => return failed(&message),
        };
        let (mut tools, mut others, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            if let Some(item) = self.shared.other_item(&name).await {
                others.push(items::whole(&item, Audience::Client));
                continue;
            }
            match self.resolve(&resolve::NamedCall::of(&name)).await {
                Ok(tool) => tools.push(tool),
                // It is in no catalog; the notes at the ends of long results name it.
                Err(_) if name == READ_MORE => tools.push(Arc::new(long_results::read_more_tool())),
                Err(problem) => problems.push(problem),
            }
        }
        // One wrong name among several is no failure.
        if tools.is_empty() && others.is_empty() {
            return failed(&problems.join("\n"));
        }
        let max_tokens = self.shared.config.answer_tokens;
        let unavailable = |id: &ToolId| self.shared.unavailable(id);
        let described = match detail {
            own_tools::Description::Brief => {
                search_answer::signatures(&tools, max_tokens, &unavailable)
            }
            own_tools::Description::Full => {
                search_answer::whole_definitions(&tools, max_tokens, &unavailable)
            }
        };
        let mut answer = Value::Object(described);
        if !others.is_empty() {
            answer["others"] = others.into();
        }
        let ids = tools.iter().map(|tool| &tool.id).collect();
        self.tell_instructions(ids, &mut answer);
        if !problems.is_empty() {
            answer["problems"] = problems.into();
        }
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }

    /// The servers, or the tools of one.
    async fn list(&self, given: &Arguments) -> CallToolResult {
        let (server, after) = (text_of(given, "server"), text_of(given, "after"));
        let wanted = server.clone();
        self.shared.pool.settled(self.shared.config.settle).await;
        let shared = Arc::clone(&self.shared);
        let listed = spawn_blocking(move || {
            let (tools, config) = (shared.search.tools(), &shared.config);
            let (server, after) = (server.as_deref(), after.as_deref());
            servers::list(
                &tools,
                &config.find.filter,
                server,
                after,
                config.answer_tokens,
            )
        });
        match listed.await {
            Ok(Ok(answer)) => CallToolResult::success(vec![ContentBlock::text(answer.to_string())]),
            Ok(Err(message)) => {
                // The catalog has no tools of a server that was never connected.
                let absent = self.shared.absent_servers();
                let known = absent
                    .iter()
                    .find(|absent| Some(&absent.server) == wanted.as_ref());
                match known {
                    Some(absent) => failed(&format!("its tools are not known: {absent}")),
                    None => failed(&message),
                }
            }
            Err(error) => {
                tracing::error!(%error, "listing tools panicked");
                failed("the tools cannot be listed")
            }
        }
    }

    /// Adds the found tools to the session's list.
    async fn inject(
        &self,
        found: &Found,
        context: &RequestContext<RoleServer>,
    ) -> Option<Injection> {
        let tools = meta_tools::merged(std::slice::from_ref(found));
        // The lock is released before the client is told.
        let (injection, loaded) = {
            let mut toolbox = self.toolbox.lock();
            toolbox.begin_turn();
            let injection = toolbox.inject(&tools);
            let loaded = toolbox.tokens_by_tool(&injection.added);
            (injection, loaded)
        };
        let origin = self.origin(context);
        self.shared.gate.usage().loaded(&origin, loaded);
        if !injection.added.is_empty() || !injection.evicted.is_empty() {
            self.list_version.send_modify(|version| *version += 1);
            let _ = context.peer.notify_tool_list_changed().await;
        }
        Some(injection)
    }

    async fn call_by_name(
        &self,
        given: &Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = match resolve::NamedCall::read(given) {
            Ok(call) => call,
            Err(message) => return Ok(failed(&message).into()),
        };
        // A tool of a server may have this name too.
        if call.is_of(READ_MORE) && self.reads_on(&call, context).await {
            return Ok(self.read_more(call.arguments, context).await.into());
        }
        match self.resolve(&call).await {
            Ok(tool) => {
                let id = tool.id.clone();
                let response = self.call(tool, call.arguments, reply, context).await?;
                Ok(self.shortened(&id, response, context).await)
            }
            Err(message) => Ok(failed(&message).into()),
        }
    }

    /// Whether a call of [`READ_MORE`] is for this gateway, and not for a tool of a server.
    async fn reads_on(
        &self,
        call: &resolve::NamedCall,
        context: &RequestContext<RoleServer>,
    ) -> bool {
        self.shared.results.has_any(&self.reader(context))
            || self.look_up(call.clone()).await.is_err()
    }

    /// A part of a result that was too long to be given whole.
    async fn read_more(
        &self,
        given: Arguments,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let (shared, reader) = (Arc::clone(&self.shared), self.reader(context));
        let read = spawn_blocking(move || {
            let bytes = shared.config.result_bytes;
            shared.results.read(&reader, &given, bytes)
        });
        match read.await {
            Ok(Ok(page)) => CallToolResult::success(vec![ContentBlock::text(page)]),
            Ok(Err(message)) => failed(&message),
            Err(error) => {
                tracing::error!(%error, "reading on in a result panicked");
                failed("the result cannot be read")
            }
        }
    }

    /// The response with the beginning of its result, if that is long.
    async fn shortened(
        &self,
        tool: &ToolId,
        response: CallToolResponse,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let bytes = self.shared.config.result_bytes;
        let mut result = match response {
            CallToolResponse::Complete(result) => result,
            other => return other,
        };
        let is_compacted = self.shared.config.result_format == ResultFormat::Compact;
        if !kept_results::is_long(&result, bytes) {
            if is_compacted {
                kept_results::compact(&mut result, bytes);
            }
            return result.into();
        }
        let (shared, reader) = (Arc::clone(&self.shared), self.reader(context));
        let tool = tool.clone();
        // Off the async threads, because a long result takes a while.
        let shortened = spawn_blocking(move || {
            if is_compacted {
                kept_results::compact(&mut result, bytes);
            }
            shared
                .results
                .shorten(&reader, tool.as_str(), &mut result, bytes);
            result
        });
        match shortened.await {
            Ok(result) => result.into(),
            Err(error) => {
                tracing::error!(%error, "shortening a result panicked");
                failed("the tool was called, and its result cannot be shown").into()
            }
        }
    }

    fn reader(&self, context: &RequestContext<RoleServer>) -> Reader {
        match has_session(context) {
            true => Reader::Session(self.id.clone()),
            false => Reader::Key(self.caller(context).who),
        }
    }

    /// The requested tool. If there is none, it may belong to a server that is still connecting, so
    /// this waits for the servers and looks again.
    async fn resolve(&self, call: &resolve::NamedCall) -> Result<Arc<Tool>, String> {
        let found = self.look_up(call.clone()).await;
        if found.is_ok() {
            return found;
        }
        self.shared.pool.settled(self.shared.config.settle).await;
        match self.look_up(call.clone()).await {
            Ok(tool) => Ok(tool),
            // A tool that is blocked is not in the catalog, and has no name like it either.
            Err(message) => Err(self.shared.blocked(call).unwrap_or(message)),
        }
    }

    async fn look_up(&self, call: resolve::NamedCall) -> Result<Arc<Tool>, String> {
        // Without the way to another thread and back, which takes longer than this.
        if let Some(tool) = call.by_key(self.shared.search.as_ref()) {
            return Ok(tool);
        }
        let search = Arc::clone(&self.shared.search);
        let looking = spawn_blocking(move || call.by_name(search.as_ref()));
        match looking.await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "looking up a tool panicked");
                Err("the tool cannot be looked up".into())
            }
        }
    }

    /// Calls an injected tool.
    async fn call_injected(
        &self,
        tool: Arc<Tool>,
        given: Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let id = tool.id.clone();
        // The client checks the result by the schema that the list gave it.
        let is_checked = tool.output_schema.is_some();
        // A tool with an open call is not evicted from the list.
        self.toolbox.lock().open_call(&id);
        let response = self.call(tool, given, reply, context).await;
        self.toolbox.lock().close_call(&id);
        match response {
            Ok(response) if !is_checked => Ok(self.shortened(&id, response, context).await),
            response => response,
        }
    }

    /// Makes a call of a client through the gate. Every call of a client comes through here.
    async fn call(
        &self,
        tool: Arc<Tool>,
        given: Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let shared = &*self.shared;
        let (called, caller) = (Arc::clone(&tool), self.caller(context));
        let id = called.id.clone();
        let (steps, forwarding) = start_forwarding_progress(context).unzip();
        let (mut calling, questions) = self.call_context(context, &caller, steps);
        let (reply, input) = reply.split(&shared.questions, &caller.who);
        let has_input = input.state.is_some() || input.responses.is_some();
        calling.input = Input {
            is_repeated: asks_by_result(context),
            ..input
        };
        let reader = LogReader {
            key: caller.who.clone(),
            session: session_of(&caller.who, &caller.conversation),
        };
        let logs = self.start_forwarding_logs(context, reader);
        let directory = CallDirectory {
            shared,
            id: id.clone(),
            called: shared.pool.callable(&id, calling),
        };
        let elicitation = self.approver(context, &caller, reply);
        let call = Call {
            id: excerpt(&context.id.to_string(), NAME_CHARS),
            tool,
            arguments: given,
            is_plan_step: false,
        };
        let passing = self.pass(&caller, &directory, &elicitation, call);
        let mut outcome = questions.while_running(passing).await;
        self.teach(context, &id, &outcome).await;
        // It holds the sender of the progress, which ends the forwarding task.
        drop(directory);
        finish(forwarding).await;
        finish(logs.map(ForwardedLogs::finish)).await;
        let answer = outcome.take_own::<ServerAnswer>();
        if let Some(Err(CallError::NeedsInput { result })) = &answer
            && let Ok(mut asked) = InputRequiredResult::deserialize(result)
        {
            elicitation.keep_approval(&mut asked);
            return Ok(asked.into());
        }
        if let Some(Err(CallError::AnswersLater { result })) = &answer
            && let Ok(mut task) = CreateTaskResult::deserialize(result)
        {
            task.task.task_id = offers::task_id(id.server(), &task.task.task_id);
            return Ok(task.into());
        }
        if let Some(question) = elicitation.question() {
            return Ok(question.into());
        }
        let result = match answer {
            Some(Ok(result)) => {
                shared.links.note(id.server(), &result);
                result
            }
            // Also what is wrong with an answer to a question, which the model has not given.
            Some(Err(ref error @ CallError::Refused { code, .. }))
                if has_input || ERRORS_FOR_CLIENTS.contains(&code) =>
            {
                return Err(offers::failure(error));
            }
            // As a result, so that the model reads it.
            Some(Err(error)) => failed(&error.to_string()),
            None => self.describe_refusal(outcome, &called),
        };
        Ok(with_tool_id(result, &id).into())
    }

    /// How a server reaches the client of this request during a call.
    fn call_context(
        &self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> (CallContext, Questions) {
        let session = session_of(&caller.who, &caller.conversation);
        let within = self.shared.gate.policies().approval_timeout_s.duration();
        let (client, questions) = WaitingClient::of(context, (caller.who.clone(), session), within);
        let calling = CallContext {
            progress,
            cancelled: context.ct.clone(),
            client: Some(Arc::new(client)),
            meta: forwarded_meta(&context.meta),
            log_level: self.log_level(context),
            capabilities: context.client_capabilities(),
            input: Input::default(),
        };
        (calling, questions)
    }

    /// What asks the client of this request about a call.
    fn approver<'a>(
        &'a self,
        context: &'a RequestContext<RoleServer>,
        caller: &'a Caller,
        reply: Option<Reply>,
    ) -> ElicitationApprover<'a> {
        ElicitationApprover::new(context, caller, &self.shared, reply)
    }

    /// Passes a call through the gate.
    async fn pass(
        &self,
        caller: &Caller,
        directory: &dyn Directory,
        approver: &ElicitationApprover<'_>,
        call: Call,
    ) -> CallOutcome {
        let context = GateContext {
            caller,
            ledger: &self.shared.ledgers.of(&caller.who),
            directory,
            approver,
            call_timeout: self.shared.config.call_timeout,
        };
        self.shared.gate.pass(context, call).await
    }

    /// Tells the catalog of a call that succeeded, if a search of the conversation had found its tool.
    async fn teach(
        &self,
        context: &RequestContext<RoleServer>,
        tool: &ToolId,
        outcome: &CallOutcome,
    ) {
        let (who, conversation) = self.conversation(context);
        let conversation = (who.as_str(), conversation.as_str());
        // Also after a failure: what was found before a call is described in full once more.
        self.shared.histories.called(conversation);
        if !outcome.has_succeeded() {
            return;
        }
        let Some(used_tool) = self.shared.trails.called(conversation, tool) else {
            return;
        };
        trail::teach(Arc::clone(&self.shared.search), vec![used_tool]).await;
    }

    /// Who asks, and in which conversation. Requests without a session are one conversation of their
    /// sender.
    fn conversation(&self, context: &RequestContext<RoleServer>) -> (String, String) {
        let Caller {
            who, conversation, ..
        } = self.caller(context);
        match has_session(context) {
            true => (who, conversation),
            false => (who, String::new()),
        }
    }

    /// The result of a call that did not reach its server. One with wrong arguments shows which
    /// there are.
    fn describe_refusal(&self, outcome: CallOutcome, tool: &Arc<Tool>) -> CallToolResult {
        let has_wrong_arguments = outcome.result.error_code == Some(ErrorCode::InvalidArguments);
        let mut result = describe_refusal(outcome);
        if has_wrong_arguments {
            let max_tokens = self.shared.config.answer_tokens;
            let unavailable = |id: &ToolId| self.shared.unavailable(id);
            let definition =
                search_answer::definitions(std::slice::from_ref(tool), max_tokens, &unavailable);
            let text = Value::Object(definition).to_string();
            result.content.push(ContentBlock::text(text));
        }
        result
    }

    /// The caller that a request acts for.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let Principal { who, may_change } = principal(context);
        let client = context
            .client_info()
            .map(|info| excerpt(&format!("{} {}", info.name, info.version), NAME_CHARS));
        let profile = self.shared.profile.as_deref();
        Caller {
            who,
            identity: self.shared.config.identity.clone(),
            conversation: session_id(context).unwrap_or(&self.id).to_owned(),
            client,
            only_reads: !may_change,
            classes: profile.and_then(ToolProfile::classes).cloned(),
            place: profile.map(ToolProfile::place).unwrap_or_default(),
        }
    }

    /// Who searches, for the record of use. Requests without a session are no conversation.
    fn origin(&self, context: &RequestContext<RoleServer>) -> Origin {
        let mut origin = self.caller(context).origin();
        if !has_session(context) {
            origin.session = None;
        }
        origin
    }

    fn style(&self, context: &RequestContext<RoleServer>) -> Style {
        if has_session(context) {
            self.shared.config.style
        } else {
            Style::Dispatch
        }
    }

    /// The injected or pinned tool with this name, if there is one.
    async fn visible(&self, name: &str, context: &RequestContext<RoleServer>) -> Option<Arc<Tool>> {
        let visible = self.toolbox.lock().find(name).cloned();
        if visible.is_some() || !self.shared.may_have_pins() {
            return visible;
        }
        // A session of one request has not listed its tools.
        self.tools(&self.origin(context)).await;
        self.toolbox.lock().find(name).cloned()
    }

    /// The list of the session.
    async fn tools(&self, origin: &Origin) -> Vec<McpTool> {
        let shared = Arc::clone(&self.shared);
        // Many clients ask for the list once, so pinned tools must be in it.
        if shared.pool.awaits_pins() {
            shared.pool.settled(shared.config.settle).await;
        }
        let looked = spawn_blocking(move || (shared.overview(), shared.pinned())).await;
        let (overview, pinned) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "looking at the servers panicked");
                (Arc::from(""), Vec::new())
            }
        };
        let mut tools = own_tools::definitions(&overview);
        let mut toolbox = self.toolbox.lock();
        // Only what the session did not have yet counts as loaded.
        let mut new = Vec::new();
        for tool in &pinned {
            if !toolbox.holds(&tool.id) {
                new.push(tool.id.clone());
            }
        }
        for tool in pinned {
            toolbox.pin(tool);
        }
        let loaded = toolbox.tokens_by_tool(&new);
        self.shared.gate.usage().loaded(origin, loaded);
        for spec in toolbox.specs() {
            if let Some(tool) = toolbox.find(&spec.name) {
                tools.extend(mcp_tool(tool, &spec.name));
            }
        }
        tools
    }
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(self.shared.capabilities())
            .with_server_info(implementation())
            .with_instructions(instructions(
                self.shared.search.count(),
                self.shared.config.style,
            ))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let result = self.negotiate_initialize(&request)?;
        let _ = self.declared.set(result.capabilities.clone());
        Ok(result)
    }

    async fn set_level(
        &self,
        request: LevelRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Logging, "logging/setLevel")?;
        self.read_logs_from(&request).await;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Subscriptions, "resources/subscribe")?;
        self.add_subscription(request.uri, &context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Subscriptions, "resources/unsubscribe")?;
        self.remove_subscription(&request.uri);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let origin = self.origin(&context);
        let mut tools = self.tools(&origin).await;
        tools.extend(self.listed_for_apps(&context, &tools));
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reply = Repeated::of(&mut request);
        let given = request.arguments.unwrap_or_default();
        match request.name.as_ref() {
            TOOL_SEARCH => Ok(self.search(&given, &context).await.into()),
            DESCRIBE_TOOL => Ok(self.describe(&given).await.into()),
            LIST_TOOLS => Ok(self.list(&given).await.into()),
            RUN_PLAN => Ok(self.run_plan(&given, &context).await.into()),
            CALL_TOOL => self.call_by_name(&given, reply, &context).await,
            name => match self.visible(name, &context).await {
                Some(tool) => self.call_injected(tool, given, reply, &context).await,
                None if name == READ_MORE => Ok(self.read_more(given, &context).await.into()),
                None => match self.called_by_app(name, &context).await {
                    Some(tool) => self.call(tool, given, reply, &context).await,
                    None => Err(unknown_tool(name)),
                },
            },
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.check(Feature::Prompts, "prompts/list")?;
        Ok(ListPromptsResult::with_all_items(self.prompts().await))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.check(Feature::Prompts, "prompts/get")?;
        self.prompt(request, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.check(Feature::Resources, "resources/list")?;
        Ok(ListResourcesResult::with_all_items(self.resources().await))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.check(Feature::Resources, "resources/templates/list")?;
        let templates = self.resource_templates().await;
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.check(Feature::Resources, "resources/read")?;
        self.resource(request, &context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.check(Feature::Completions, "completion/complete")?;
        self.completion(request).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.task(TaskQuestion::State(request), &context).await? {
            TaskAnswer::State(state) => Ok(*state),
            TaskAnswer::Done => Err(ErrorData::internal_error("no state of a task", None)),
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asked = TaskQuestion::Answers(request);
        self.task(asked, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asked = TaskQuestion::End(request);
        self.task(asked, &context).await.map(drop)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let shared = Arc::clone(&self.shared);
        self.start_telling(context.peer.clone(), &context.extensions);
        let has_roots = match context.peer.peer_info() {
            Some(info) => info.capabilities.roots.is_some(),
            None => false,
        };
        if has_roots {
            shared
                .pool
                .set_client_with_roots(context.peer.clone())
                .await;
        }
        if let Some(texts) = shared.texts.clone() {
            let ended = self.ended.clone();
            tokio::spawn(async move { texts.write(context.peer, &shared, &ended).await });
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.shared.pool.roots_changed().await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut everything = SubscriptionFilter::builder()
            .tools_list_changed()
            .prompts_list_changed()
            .resources_list_changed()
            .build();
        let mut resources = requested.resource_subscriptions.clone();
        if let Some(resources) = &mut resources {
            resources.truncate(MAX_SUBSCRIPTIONS);
        }
        everything.resource_subscriptions = resources;
        Some(requested.intersection(&everything))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut list_version = self.list_version.subscribe();
        let mut offers_version = self.shared.pool.offers_changed();
        let sink = context.sink();
        let mut telling = std::pin::pin!(self.tell_subscriber(&context));
        loop {
            let is_told = tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = &mut telling => return Ok(()),
                changed = list_version.changed() => {
                    changed.is_ok() && sink.notify_tool_list_changed().await.is_ok()
                }
                changed = offers_version.changed() => {
                    // A client that asked for one kind alone gets no other.
                    let _ = sink.notify_prompt_list_changed().await;
                    let _ = sink.notify_resource_list_changed().await;
                    changed.is_ok()
                }
            };
            if !is_told {
                return Ok(());
            }
        }
    }
}

/// Tells the client of a session when prompts or resources of servers may have changed.
async fn tell_of_offers(peer: Peer<RoleServer>, mut changed: watch::Receiver<u64>) {
    while changed.changed().await.is_ok() {
        let told = [
            peer.notify_prompt_list_changed().await,
            peer.notify_resource_list_changed().await,
        ];
        if told.iter().any(Result::is_err) {
            return;
        }
    }
}

/// What a client tells the server of a call: all but what is between the client and this program.
fn forwarded_meta(meta: &RequestMetaObject) -> Arguments {
    let mut forwarded = Arguments::new();
    for (key, value) in &meta.0.0 {
        let is_ours = key == "progressToken" || key.starts_with("io.modelcontextprotocol/");
        if !is_ours {
            forwarded.insert(key.clone(), value.clone());
        }
    }
    forwarded
}

fn text_of(given: &Arguments, name: &str) -> Option<String> {
    Some(given.get(name)?.as_str()?.to_owned())
}

/// Who sends a request: over HTTP as the key was checked, and on standard input the user.
fn principal(context: &RequestContext<RoleServer>) -> Principal {
    let Some(parts) = context.extensions.get::<Parts>() else {
        return Principal::local();
    };
    match parts.extensions.get::<Principal>() {
        Some(principal) => principal.clone(),
        None => Principal::unknown(),
    }
}

/// The id of the session that a request belongs to, where the transport gave it one.
fn session_id(context: &RequestContext<RoleServer>) -> Option<&str> {
    // Without sessions the client chooses the content of this header freely.
    if !has_session(context) {
        return None;
    }
    let parts = context.extensions.get::<Parts>()?;
    parts.headers.get(SESSION_ID)?.to_str().ok()
}

/// Since protocol 2026-07-28 there are no sessions over HTTP: each request has a new handler.
fn has_session(context: &RequestContext<RoleServer>) -> bool {
    let is_http = context.extensions.get::<Parts>().is_some();
    match context.protocol_version() {
        _ if !is_http => true,
        Some(version) => version < ProtocolVersion::V_2026_07_28,
        None => false,
    }
}

/// Starts to forward the progress of a call to the client, with the client's own token. The task
/// ends when the sender is dropped. `None` for a client that did not ask for progress.
fn start_forwarding_progress(
    context: &RequestContext<RoleServer>,
) -> Option<(mpsc::Sender<Progress>, JoinHandle<()>)> {
    let (peer, token) = (context.peer.clone(), context.meta.get_progress_token()?);
    let (sender, mut steps) = mpsc::channel::<Progress>(PROGRESS_QUEUE);
    let task = tokio::spawn(async move {
        while let Some(Progress {
            done,
            total,
            message,
        }) = steps.recv().await
        {
            let mut step = ProgressNotificationParam::new(token.clone(), done);
            (step.total, step.message) = (total, message);
            if peer.notify_progress(step).await.is_err() {
                return;
            }
        }
    });
    Some((sender, task))
}

/// Waits until what belongs to a call was sent, which is before its result.
async fn finish(forwarding: Option<JoinHandle<()>>) {
    if let Some(forwarding) = forwarding {
        let _ = timeout(PROGRESS_PATIENCE, forwarding).await;
    }
}

fn mcp_tool(tool: &Tool, name: &str) -> Option<McpTool> {
    // What the server says to clients. Fields of other formats and ours are not for them, and
    // `execution` promises tasks, which do not pass.
    let mut metadata = Map::new();
    for (field, value) in &tool.metadata {
        if FIELDS_FOR_CLIENTS.contains(&field.as_str()) {
            metadata.insert(field.clone(), value.clone());
        }
    }
    let title = match &tool.title {
        Some(title) => title.clone(),
        // Some clients leave out tools without a title.
        None => readable(tool.id.name()),
    };
    let plain = Tool {
        metadata,
        tags: Vec::new(),
        title: Some(title),
        ..tool.clone()
    };
    let mut value = formats::emit_tool(&plain, name, Emit::Mcp);
    for (key, of_id) in meta_of(&tool.id) {
        value["_meta"][key] = of_id;
    }
    serde_json::from_value(value).ok()
}

/// A name as people read it: `find_person` is "Find person".
fn readable(name: &str) -> String {
    let spaced = text::spaced(name);
    let mut letters = spaced.trim().chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => name.to_owned(),
    }
}

/// Adds to a result the id of its tool, since several servers may have a tool of that name. It is
/// also marked as complete, as the newest protocol requires; the SDK removes the mark for older
/// ones.
fn with_tool_id(mut result: CallToolResult, id: &ToolId) -> CallToolResult {
    result.result_type = Some(ResultType::COMPLETE);
    let meta = result.meta.get_or_insert_with(MetaObject::new);
    meta.0.extend(meta_of(id));
    result
}

/// The result of a call that did not reach its server.
fn describe_refusal(outcome: CallOutcome) -> CallToolResult {
    let result = outcome.result;
    if result.status == Status::Ok {
        // The result of a dry run is the call that would have been made.
        return CallToolResult::success(vec![ContentBlock::text(result.data.to_string())]);
    }
    let message = result.error_message.unwrap_or_default();
    match result.error_code {
        Some(ErrorCode::Limit) => {
            let minutes = WINDOW.as_secs() / 60;
            failed(&format!(
                "{message}; the limit counts the calls of {minutes} minutes, and [gate.client_limits] in a profile sets it"
            ))
        }
        _ => failed(&message),
    }
}

fn meta_of(id: &ToolId) -> Arguments {
    let id = json!({ "server": id.server(), "name": id.name() });
    Arguments::from_iter([("toolscout".to_owned(), id)])
}

fn failed(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

fn unknown_tool(name: &str) -> ErrorData {
    let name = excerpt(name, NAME_CHARS);
    ErrorData::invalid_params(
        format!(
            "no tool is called {name:?} here; find tools with {TOOL_SEARCH} and call them with {CALL_TOOL}"
        ),
        None,
    )
}

/// The instructions for a client, with the number of tools that can be found.
fn instructions(tools: usize, style: Style) -> String {
    let available = match tools {
        // A client connects before the servers of an empty catalog are connected.
        0 => "The tools of several servers are".to_owned(),
        1 => "1 tool is".to_owned(),
        tools => format!("{tools} tools of several servers are"),
    };
    let calling = match style {
        Style::Inject => {
            "the tools it finds are added to your list, and can be called through `call_tool` too"
        }
        Style::Dispatch => "call the tools it finds with `call_tool`",
    };
    format!(
        "{available} available through this one. Describe what you need to `tool_search`; {calling}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_for_clients_has_all_that_its_server_says_to_them() {
        let mut tool = Tool::new("docs", "open").unwrap();
        tool.annotations.read_only_hint = Some(true);
        let said = json!({
            "annotations": { "title": "Opens a page" },
            "icons": [{ "src": "https://docs.example/icon.png", "mimeType": "image/png" }],
            "_meta": { "ui": { "resourceUri": "ui://docs/page" } },
            "execution": { "taskSupport": "required" },
            "toolscout_flags": ["odd"],
        });
        tool.metadata = said.as_object().cloned().unwrap();
        let shown = serde_json::to_value(mcp_tool(&tool, "docs__open").unwrap()).unwrap();
        let annotations = json!({ "readOnlyHint": true, "title": "Opens a page" });
        assert_eq!(shown["annotations"], annotations);
        assert_eq!(shown["icons"], said["icons"]);
        assert_eq!(shown["_meta"]["ui"], said["_meta"]["ui"]);
        assert_eq!(shown["_meta"]["toolscout"]["server"], "docs");
        assert!(shown.get("execution").is_none() && shown.get("toolscout_flags").is_none());
    }

    #[test]
    fn instructions_never_claim_that_there_are_no_tools() {
        let text = |tools| instructions(tools, Style::Dispatch);
        assert!(text(0).starts_with("The tools of several servers are available"));
        assert!(text(1).starts_with("1 tool is available"));
        assert!(text(7).starts_with("7 tools of several servers are available"));
    }
}
