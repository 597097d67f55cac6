//! A model's API with tool search in front of it, for agents that others wrote: they change their
//! base URL and nothing else.
//!
//! If a request has many tools, the model sees a few of them and a search tool. The endpoint answers
//! a round in which the model searches, and hides it from the client. Everything else passes
//! unchanged.
//!
//! - [`DropIn::answer`]: answers a request.
//! - `wire`: what is read and written. `dialect`: what differs between the APIs.
//! - `provider`: who answers, and what is sent there.
//! - `tools`: the tools of a request, and the catalogs they are found in.
//! - `conversations`: what clients do not see of their conversations, and providers must see again.
//! - `answers`: what comes back. `answers/exchange` is the loop that all dialects share.

mod extra;
mod said_once;
mod wire;
mod dialect;
mod provider;
mod tools;
mod conversations;
mod agent_model;
mod answers;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_index::Options;

pub use self::agent_model::{
    AGENT_MODEL, AgentAnswer, AgentQuestion, add_agents, agent_alone, agents_alone, model_of,
    requested_model,
};
pub use self::answers::figures::header_names;
pub use self::conversations::conversation::HEADER as CONVERSATION_HEADER;
pub use self::conversations::kept_conversations::ConversationKey;
pub use self::dialect::Dialect;
pub use self::extra::{CalledTool, ExtraCatalog, ToolCaller};
pub use self::provider::answer_bounds::AnswerLimits;
pub use self::provider::counting::counted_here;
pub use self::provider::passed_request::{PassedRequest, ProviderKey, check_path};
pub use self::provider::upstream::{
    API_KEY, Target, Upstream, X_API_KEY, X_GOOG_API_KEY, is_signature,
};
pub use self::provider::{OtherProvider, Provider, ProviderConfig};
pub use self::tools::catalogs::CatalogLimits;
pub use self::wire::failure::Failure;

use self::answers::exchange::{Exchange, First};
use self::answers::figures::{Figures, Report};
use self::answers::{passing, streaming};
use self::conversations::found::held_key;
use self::conversations::kept_conversations::KeptConversations;
use self::provider::answer_bounds::AnswerMemory;
use self::said_once::SaidOnce;
use self::tools::catalogs::RequestCatalogs;
use self::tools::not_deferred::{NotDeferred, Reason};
use self::tools::tool_list::{Deferral, ToolList};
use self::tools::{client_results, client_search};
use self::wire::json;
use self::wire::json::Fields;
use toolscout_base::telemetry::Metrics;
use toolscout_finder::finder::meta_tools::MoreTools;
use toolscout_gate::llm::LlmError;

/// The folder of the requests' catalogs, in the data directory.
pub const CATALOGS_FOLDER: &str = "request-catalogs";
/// Bodies from this size on are read off the async threads.
const LARGE_BODY_BYTES: usize = 512 << 10;
/// The longest list of models and the longest count of tokens.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The settings of the endpoint.
#[derive(Clone, Debug)]
pub struct DropInConfig {
    /// The provider.
    pub provider: ProviderConfig,
    /// A list of tools with more tokens than this is deferred.
    pub defer_above_tokens: usize,
    /// Most tokens of a client's own tools, as Bash and Read of a coding agent, that stay in view.
    pub own_tools_tokens: usize,
    /// Tools that are never deferred: names, in which `*` stands for any text.
    pub pins: Vec<String>,
    /// Most tools of a request that are searched; one with more is refused.
    pub max_request_tools: usize,
    /// Bounds of an answer whose tools are deferred.
    pub answers: AnswerLimits,
    /// Most rounds that are hidden in one answer.
    pub max_hidden_rounds: u32,
    /// Most tokens of the found tools that a model sees.
    pub tool_budget_tokens: usize,
    /// The tools after the hits that a search names.
    pub more: MoreTools,
    /// Answers, and items of answers, that are remembered.
    pub remembered_entries: NonZeroUsize,
    /// Bytes of all that is remembered.
    pub remembered_bytes: usize,
    /// Bounds of the requests' catalogs.
    pub catalogs: CatalogLimits,
    /// Whether tools of a registered catalog are called here.
    pub calls_tools: bool,
    /// Whether the model sees what a client's own search has found as any other tools, because the
    /// provider knows no references to tools.
    pub translates_references: bool,
    /// Whether the key of a client goes to the provider, also where clients need keys of ours.
    pub key_from_client: bool,
}

impl DropInConfig {
    /// The defaults for a provider.
    pub fn new(provider: ProviderConfig) -> Self {
        DropInConfig {
            provider,
            defer_above_tokens: 8_000,
            own_tools_tokens: 16_000,
            pins: Vec::new(),
            max_request_tools: 20_000,
            answers: AnswerLimits::default(),
            max_hidden_rounds: 10,
            tool_budget_tokens: 8_000,
            more: MoreTools::default(),
            remembered_entries: NonZeroUsize::new(20_000).unwrap_or(NonZeroUsize::MIN),
            remembered_bytes: 64 << 20,
            catalogs: CatalogLimits::default(),
            calls_tools: false,
            translates_references: false,
            key_from_client: false,
        }
    }
}

/// Which tools of one request are deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeferChoice {
    /// As the server is set.
    #[default]
    OfServer,
    /// None: the request passes as it came.
    Off,
    /// A list with more tokens than this.
    Above(usize),
}

/// A request of a client.
#[derive(Debug)]
pub struct DropInRequest {
    /// The API it speaks.
    pub dialect: Dialect,
    /// Where it goes.
    pub target: Target,
    /// Who sent it: nothing is shared between owners.
    pub owner: String,
    /// The request's id in the log.
    pub id: String,
    /// The key for the provider.
    pub key: ProviderKey,
    /// Its headers, of which only some go on to the provider.
    pub headers: HeaderMap,
    /// The query of its address, which goes on to the provider.
    pub query: Option<String>,
    /// Its body.
    pub body: Bytes,
    /// The memory that was reserved for the body. It is given back with the request.
    pub reserved: Option<OwnedSemaphorePermit>,
    /// Which of its tools are deferred.
    pub defer: DeferChoice,
    /// A catalog that is searched besides them.
    pub extra: Option<ExtraCatalog>,
}

impl DropInRequest {
    /// Whether a stream is one list of chunks: some APIs have events only if they are asked for.
    fn wants_list(&self) -> bool {
        let query = self.query.as_deref().unwrap_or_default();
        self.dialect == Dialect::Gemini && !query.split('&').any(|field| field == "alt=sse")
    }
}

/// The answer to a request.
pub struct DropInAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The provider's headers, as far as they are for the client, and figures of ours.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Parts as they come. Dropping it drops the request to the provider.
    Stream(BoxStream<'static, Result<Bytes, Failure>>),
}

/// Answers requests with a provider's model. Cheap to clone.
///
/// - Guarantee: a request in which nothing is deferred is sent byte for byte, and so is its answer.
///   What one owner sent is never used for another.
/// - Cost: a list of tools is read and indexed once. Answers are remembered within a bound.
/// - Failure: an error of the provider is its own answer; where there is none, a [`Failure`].
#[derive(Clone)]
pub struct DropIn(Arc<DropInState>);

struct DropInState {
    provider: Provider,
    catalogs: RequestCatalogs,
    /// What clients do not see of their conversations.
    conversations: KeptConversations,
    /// The memory for the answers that are being read.
    answers: AnswerMemory,
    /// What the log was told already.
    said: SaidOnce,
    metrics: Arc<Metrics>,
    cpu_pool: CpuPool,
    /// What goes on after its request, for a bounded time.
    background: TaskTracker,
    config: DropInConfig,
}

impl DropIn {
    /// An endpoint that keeps its catalogs in this folder, searched with these embedders, which should
    /// take no time, on the threads of `cpu_pool`.
    ///
    /// # Errors
    /// For a base URL that cannot be used.
    pub fn new(
        config: DropInConfig,
        folder: PathBuf,
        options: Options,
        metrics: Arc<Metrics>,
        cpu_pool: CpuPool,
    ) -> Result<Self, LlmError> {
        Ok(DropIn(Arc::new(DropInState {
            provider: Provider::new(config.provider.clone())?,
            catalogs: RequestCatalogs::new(folder, options, config.catalogs),
            answers: AnswerMemory::new(config.answers),
            conversations: KeptConversations::new(
                config.remembered_entries,
                config.remembered_bytes,
            ),
            said: SaidOnce::default(),
            metrics,
            cpu_pool,
            background: TaskTracker::new(),
            config,
        })))
    }

    /// Waits for what still goes on after the last request, some seconds at most.
    pub async fn close(&self) {
        self.0.background.close();
        self.0.background.wait().await;
        self.0.catalogs.close().await;
    }

    /// Whether there is a provider at this service.
    pub fn has(&self, upstream: Upstream) -> bool {
        self.0.provider.has(upstream)
    }

    /// Its settings.
    pub fn config(&self) -> &DropInConfig {
        &self.0.config
    }

    /// The providers that requests with a key of ours would go to without any key.
    pub fn keyless_providers(&self) -> Vec<String> {
        match self.0.config.key_from_client {
            true => Vec::new(),
            false => self.0.provider.keyless_addresses(),
        }
    }

    /// Answers a request. Dropping the future, or the answer's stream, drops the request to the
    /// provider.
    ///
    /// # Errors
    /// Where the provider gives no answer.
    pub async fn answer(&self, request: DropInRequest) -> Result<DropInAnswer, Failure> {
        let request = Arc::new(request);
        match self.planned(&request).await? {
            Planned::AsItIs { streams, why } => {
                let body = request.body.clone();
                self.pass_through(&request, body, streams, why).await
            }
            Planned::Translated { body, streams, why } => {
                self.pass_through(&request, body, streams, why).await
            }
            Planned::Searching(exchange) => searching(exchange).await,
            Planned::Refused { failure, tools } => {
                self.report(&request, Figures::begin(tools)).outcome = failure.code;
                Err(failure)
            }
        }
    }

    /// Whether this is said for the first time, so that the log is told once of what every request
    /// of a client has.
    pub fn is_said_first(&self, text: &str) -> bool {
        self.0.said.is_first(text)
    }

    /// Passes a request on as it came, and its answer as it comes.
    ///
    /// # Errors
    /// For a path that leads elsewhere, and where the provider gives no answer.
    pub async fn pass_on(&self, mut request: PassedRequest) -> Result<DropInAnswer, Failure> {
        check_path(&request.path)?;
        self.name_as_provider_does(&mut request);
        let provider = &self.0.provider;
        let response = provider.pass_on(&request, provider.long_wait()).await?;
        let file_type =
            match request.path.ends_with("/content") || request.path.ends_with("/results") {
                true => provider::content_type_of_a_file(response.headers()),
                false => None,
            };
        let mut answer = passing::answer(provider, request.dialect, response, None);
        if let Some(file_type) = file_type {
            answer.headers.insert(CONTENT_TYPE, file_type);
        }
        Ok(answer)
    }

    /// A stored answer may have another id for the client than for the provider.
    fn name_as_provider_does(&self, request: &mut PassedRequest) {
        // Azure's paths have more before it.
        let Some((base, rest)) = request.path.split_once("/responses/") else {
            return;
        };
        let (id, below) = match rest.split_once('/') {
            Some((id, below)) => (id, format!("/{below}")),
            None => (rest, String::new()),
        };
        let known = self.0.conversations.get(&held_key(&request.owner, id));
        let response_id = known.and_then(|known| known.response_id.clone());
        if let Some(response_id) = response_id {
            request.path = format!("{base}/responses/{response_id}{below}");
        }
    }

    /// The provider's list of models, as it answers.
    ///
    /// # Errors
    /// Where it gives no answer.
    pub async fn models(&self, request: PassedRequest) -> Result<DropInAnswer, Failure> {
        let provider = &self.0.provider;
        let mut response = provider.pass_on(&request, provider.short_wait()).await?;
        let body = provider.whole(&mut response, MAX_ANSWER_BYTES);
        Ok(DropInAnswer {
            body: AnswerBody::Whole(body.await?),
            status: response.status().as_u16(),
            headers: provider::response_headers(response.headers()),
        })
    }

    /// What is done with a request. A long one is read off the async threads.
    async fn planned(&self, request: &Arc<DropInRequest>) -> Result<Planned, Failure> {
        // The way to another thread takes longer than reading a short body.
        if request.body.len() < LARGE_BODY_BYTES {
            return Ok(self.plan(request));
        }
        let (endpoint, request) = (self.clone(), Arc::clone(request));
        let planned = self.0.cpu_pool.run(move || endpoint.plan(&request)).await;
        planned.map_err(Failure::from)
    }

    /// What is done with a request.
    fn plan(&self, request: &Arc<DropInRequest>) -> Planned {
        let Some(fields) = Fields::read(&request.body) else {
            return Planned::AsItIs {
                streams: request.target.streams == Some(true),
                why: Reason::UnreadableBody.with_tools(0),
            };
        };
        let streams = match request.target.streams {
            Some(streams) => streams,
            None => fields.flag("stream") == Some(true),
        };
        let list = match self.deferred_list(request, &fields) {
            Ok(list) => list,
            Err(why) if why.reason == Reason::TooManyTools => {
                return self.too_many_tools(why.tools);
            }
            Err(why) => return self.plan_to_pass(request, &fields, streams, why),
        };
        let tools = list.len();
        if let Some(failure) = request.dialect.protocol().refusal(&fields) {
            return Planned::Refused { failure, tools };
        }
        match Exchange::new(self.clone(), Arc::clone(request), fields, list, streams) {
            Some(exchange) => Planned::Searching(Box::new(exchange)),
            None => Planned::AsItIs {
                streams,
                why: Reason::UnreadableConversation.with_tools(tools),
            },
        }
    }

    /// What is done with a request in which nothing is deferred here.
    fn plan_to_pass(
        &self,
        request: &DropInRequest,
        fields: &Fields,
        streams: bool,
        why: NotDeferred,
    ) -> Planned {
        let is_translated =
            self.0.config.translates_references && why.reason == Reason::ClientSearches;
        if is_translated && let Some(body) = client_results::translated(request.dialect, fields) {
            return Planned::Translated { body, streams, why };
        }
        Planned::AsItIs { streams, why }
    }

    /// The tools of a request, of which some are deferred; else why none is.
    fn deferred_list(
        &self,
        request: &DropInRequest,
        fields: &Fields,
    ) -> Result<Arc<ToolList>, NotDeferred> {
        let tools = request.dialect.protocol().tools(fields);
        let tools = tools.ok_or(Reason::NoTools.with_tools(0))?;
        let unread = |reason: Reason| reason.with_tools(json::count(&tools).unwrap_or_default());
        let above_tokens = match request.defer {
            DeferChoice::Off => return Err(unread(Reason::SwitchedOff)),
            DeferChoice::Above(tokens) => tokens,
            // Of a catalog that is to be searched the model learns by the search tool alone.
            DeferChoice::OfServer if request.extra.is_some() => 0,
            DeferChoice::OfServer => self.0.config.defer_above_tokens,
        };
        if !request.dialect.protocol().can_hide_rounds(fields) {
            return Err(unread(Reason::NoHiddenRounds));
        }
        let config = &self.0.config;
        // What a result refers to must stay among the tools.
        let conversation = fields.get(request.dialect.protocol().conversation_field());
        if conversation.is_some_and(client_search::has_results) {
            return Err(unread(Reason::ClientSearches));
        }
        // Who asks for it in a header gets a second search.
        let beside_other_search =
            matches!(request.defer, DeferChoice::Above(_)) || request.extra.is_some();
        let deferral = Deferral {
            above_tokens,
            own_tokens: config.own_tools_tokens,
            beside_other_search,
            pins: config.pins.clone(),
            max_tools: config.max_request_tools,
        };
        let catalogs = &self.0.catalogs;
        let list = catalogs.list(&request.owner, request.dialect, &deferral, &tools)?;
        self.warn_of_idle_pins(&list);
        Ok(list)
    }

    fn warn_of_idle_pins(&self, list: &ToolList) {
        for pin in &list.idle_pins {
            // Every request of a client has the same tools.
            if self.is_said_first(&format!("pin {pin}")) {
                let tools = list.len();
                tracing::warn!(
                    pin,
                    tools,
                    "a pin fits no tool of a request, in which tools have no server; pin them by their names, \
                     as mail_send or mail_*"
                );
            }
        }
    }

    fn too_many_tools(&self, tools: usize) -> Planned {
        let most = self.0.config.max_request_tools;
        let message = format!(
            "the request has {tools} tools, and {most} are searched at most; send fewer, register them as a catalog \
             and name it in X-Toolscout-Catalog, or pass them on with X-Toolscout-Defer: off (the limit is \
             --max-request-tools of the server)"
        );
        Planned::Refused {
            failure: Failure::new(400, "too_many_tools", message),
            tools,
        }
    }

    /// Sends a request with this body, and its answer as it comes.
    async fn pass_through(
        &self,
        request: &DropInRequest,
        body: Bytes,
        streams: bool,
        why: NotDeferred,
    ) -> Result<DropInAnswer, Failure> {
        let mut report = self.report(request, Figures::begin_passing(why));
        let provider = &self.0.provider;
        let query = request.query.as_deref();
        let sent = provider.send(request, query, body, streams);
        let sent = sent.await;
        report.figures.model = report.figures.elapsed();
        match sent {
            Ok(response) => Ok(passing::answer(
                provider,
                request.dialect,
                response,
                Some(report),
            )),
            Err(failure) => {
                report.outcome = failure.code;
                Err(failure)
            }
        }
    }

    fn report(&self, request: &DropInRequest, figures: Figures) -> Report {
        Report::begin(request, &self.0.metrics, figures)
    }
}

/// Answers a request whose model searches.
async fn searching(mut exchange: Box<Exchange>) -> Result<DropInAnswer, Failure> {
    match exchange.begin().await? {
        First::Streamed(response) => streaming::answer(exchange, response).await,
        First::Whole(response) => exchange.answer_whole(response).await,
        First::Refused(response) => Ok(exchange.refused(response)),
    }
}

/// What is done with a request.
enum Planned {
    /// It passes as it came.
    AsItIs { streams: bool, why: NotDeferred },
    /// It passes with the tools that the client's own search has found.
    Translated {
        body: Bytes,
        streams: bool,
        why: NotDeferred,
    },
    /// The model searches among its tools.
    Searching(Box<Exchange>),
    /// It is refused.
    Refused {
        failure: Failure,
        /// Number of its tools.
        tools: usize,
    },
}

/// Whether an answer is a stream of events, in one of the forms of APIs.
fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    let text = content_type.and_then(|value| value.to_str().ok());
    let text = text.unwrap_or_default();
    // A charset may follow.
    text.starts_with("text/event-stream") || text.starts_with(provider::AWS_EVENTS)
}
