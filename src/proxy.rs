//! A model's API with tool search in front of it, for agents that others wrote: they change their
//! base URL and nothing else.
//!
//! Of a request with many tools the model sees a few and a search tool. A round in which it
//! searches is answered here and hidden from the client; everything else passes as it came.
//!
//! - [`Proxy::answer`]: answers a request.
//! - `dialect`: what differs between the APIs. `exchange` is the loop that all of them share.
//! - `tool_list` and `catalogs`: the tools of a request, and the catalogs they are found in.
//! - `memory`: what clients do not see of their conversations, and providers must see again.

mod agent_model;
mod catalogs;
mod dialect;
mod exchange;
mod extra;
mod failure;
mod figures;
mod json;
mod memory;
mod search_tool;
mod shown;
mod sse;
mod streaming;
mod tool_list;
mod upstream;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use toolscout_index::Options;

pub use self::agent_model::{AgentAnswer, AgentQuestion, add_agent, agent_alone};
pub use self::catalogs::CatalogLimits;
pub use self::dialect::Dialect;
pub use self::extra::{ExtraCatalog, ToolCaller};
pub use self::failure::Failure;
pub use self::memory::ConversationKey;
pub use self::upstream::{ProviderKey, Upstream, UpstreamConfig};

use self::catalogs::RequestCatalogs;
use self::exchange::{Exchange, First};
use self::json::Fields;
use self::memory::Memory;
use self::tool_list::{Deferral, ToolList};
use crate::llm::LlmError;
use crate::telemetry::Metrics;

/// The folder of the requests' catalogs, in the data directory.
pub const CATALOGS_FOLDER: &str = "request-catalogs";
/// Bodies from this size on are read off the async threads.
const LARGE_BODY_BYTES: usize = 512 << 10;
/// The longest answer that is read as a whole.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// The provider.
    pub upstream: UpstreamConfig,
    /// A list of tools with more tokens than this is deferred.
    pub defer_above_tokens: usize,
    /// Tools that are never deferred: names, in which `*` stands for any text.
    pub pins: Vec<String>,
    /// Most rounds that are hidden in one answer.
    pub max_hidden_rounds: u32,
    /// Most tokens of the found tools that a model sees.
    pub tool_budget_tokens: usize,
    /// Answers that are remembered.
    pub remembered_answers: NonZeroUsize,
    /// Bytes of all that is remembered.
    pub remembered_bytes: usize,
    /// Bounds of the requests' catalogs.
    pub catalogs: CatalogLimits,
    /// Whether tools of a registered catalog are called here.
    pub calls_tools: bool,
    /// Whether the key of a client goes to the provider, also where clients need keys of ours.
    pub key_from_client: bool,
}

impl ProxyConfig {
    /// The defaults for a provider.
    pub fn new(upstream: UpstreamConfig) -> Self {
        ProxyConfig {
            upstream,
            defer_above_tokens: 8_000,
            pins: Vec::new(),
            max_hidden_rounds: 8,
            tool_budget_tokens: 8_000,
            remembered_answers: NonZeroUsize::new(10_000).unwrap_or(NonZeroUsize::MIN),
            remembered_bytes: 64 << 20,
            catalogs: CatalogLimits::default(),
            calls_tools: false,
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
pub struct ProxyRequest {
    /// The API it speaks.
    pub dialect: Dialect,
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
    /// Which of its tools are deferred.
    pub defer: DeferChoice,
    /// A catalog that is searched besides them.
    pub extra: Option<ExtraCatalog>,
}

/// The answer to a request.
pub struct ProxyAnswer {
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
pub struct Proxy(Arc<ProxyState>);

struct ProxyState {
    upstream: Upstream,
    catalogs: RequestCatalogs,
    memory: Memory,
    metrics: Arc<Metrics>,
    config: ProxyConfig,
}

impl Proxy {
    /// A proxy that keeps its catalogs in this folder, searched with these embedders, which should
    /// take no time.
    ///
    /// # Errors
    /// For a base URL that cannot be used.
    pub fn new(
        config: ProxyConfig,
        folder: PathBuf,
        options: Options,
        metrics: Arc<Metrics>,
    ) -> Result<Self, LlmError> {
        Ok(Proxy(Arc::new(ProxyState {
            upstream: Upstream::new(config.upstream.clone())?,
            catalogs: RequestCatalogs::new(folder, options, config.catalogs),
            memory: Memory::new(config.remembered_answers, config.remembered_bytes),
            metrics,
            config,
        })))
    }

    /// Its settings.
    pub fn config(&self) -> &ProxyConfig {
        &self.0.config
    }

    /// Answers a request. Dropping the future, or the answer's stream, drops the request to the
    /// provider.
    ///
    /// # Errors
    /// Where the provider gives no answer.
    pub async fn answer(&self, request: ProxyRequest) -> Result<ProxyAnswer, Failure> {
        let request = Arc::new(request);
        let planned = if request.body.len() < LARGE_BODY_BYTES {
            self.plan(&request)
        } else {
            let (proxy, request) = (self.clone(), Arc::clone(&request));
            let planning = tokio::task::spawn_blocking(move || proxy.plan(&request));
            let planned = planning.await;
            planned.map_err(|error| Failure::new(500, "internal", error.to_string()))?
        };
        match planned {
            Planned::AsItIs { streams } => self.pass_through(&request, streams).await,
            Planned::Searching(exchange) => searching(exchange).await,
            Planned::Refused(failure) => Err(failure),
        }
    }

    /// The provider's list of models, as it answers.
    ///
    /// # Errors
    /// Where it gives no answer.
    pub async fn models(
        &self,
        dialect: Dialect,
        headers: &HeaderMap,
        key: &ProviderKey,
    ) -> Result<ProxyAnswer, Failure> {
        let mut response = self.0.upstream.models(dialect, headers, key).await?;
        let body = self.0.upstream.whole(&mut response, MAX_ANSWER_BYTES);
        Ok(ProxyAnswer {
            body: AnswerBody::Whole(body.await?),
            status: response.status().as_u16(),
            headers: upstream::response_headers(response.headers()),
        })
    }

    /// What is done with a request.
    fn plan(&self, request: &Arc<ProxyRequest>) -> Planned {
        let Some(fields) = Fields::read(&request.body) else {
            // The provider says what is wrong with it.
            return Planned::AsItIs { streams: false };
        };
        let streams = fields.flag("stream") == Some(true);
        let Some(list) = self.deferred_list(request, &fields) else {
            return Planned::AsItIs { streams };
        };
        if let Some(failure) = request.dialect.protocol().refusal(&fields) {
            return Planned::Refused(failure);
        }
        match Exchange::new(self.clone(), Arc::clone(request), fields, list, streams) {
            Some(exchange) => Planned::Searching(Box::new(exchange)),
            None => Planned::AsItIs { streams },
        }
    }

    /// The tools of a request, if some of them are deferred.
    fn deferred_list(&self, request: &ProxyRequest, fields: &Fields) -> Option<Arc<ToolList>> {
        let tools = fields.get("tools")?;
        let above_tokens = match request.defer {
            DeferChoice::Off => return None,
            DeferChoice::Above(tokens) => tokens,
            // Of a catalog that is to be searched the model learns by the search tool alone.
            DeferChoice::OfServer if request.extra.is_some() => 0,
            DeferChoice::OfServer => self.0.config.defer_above_tokens,
        };
        if !request.dialect.protocol().can_hide_rounds(fields) {
            return None;
        }
        let deferral = Deferral {
            above_tokens,
            pins: self.0.config.pins.clone(),
        };
        let catalogs = &self.0.catalogs;
        catalogs.list(&request.owner, request.dialect, &deferral, tools)
    }

    /// Sends a request as it came, and its answer as it comes.
    async fn pass_through(
        &self,
        request: &ProxyRequest,
        streams: bool,
    ) -> Result<ProxyAnswer, Failure> {
        let upstream = &self.0.upstream;
        let sent = upstream.send(request, request.body.clone(), streams);
        Ok(self.passed_on(request.dialect, sent.await?))
    }

    /// An answer of the provider as it comes. A stream that is cut off ends with an error that
    /// clients understand.
    fn passed_on(&self, dialect: Dialect, response: Response) -> ProxyAnswer {
        let (status, headers) = (
            response.status().as_u16(),
            upstream::response_headers(response.headers()),
        );
        let is_events = is_event_stream(&response);
        let upstream = self.0.upstream.clone();
        let chunks = stream::unfold(Some(response), move |response| {
            let upstream = upstream.clone();
            async move {
                let mut response = response?;
                match upstream.chunk(&mut response).await {
                    Ok(None) => None,
                    Ok(Some(bytes)) => Some((Ok(bytes), Some(response))),
                    Err(failure) if is_events => {
                        let mut event = b"\n\n".to_vec();
                        event.extend_from_slice(&dialect.error_event(&failure));
                        Some((Ok(event.into()), None))
                    }
                    Err(failure) => Some((Err(failure), None)),
                }
            }
        });
        ProxyAnswer {
            status,
            headers,
            body: AnswerBody::Stream(chunks.boxed()),
        }
    }
}

/// Answers a request whose model searches.
async fn searching(mut exchange: Box<Exchange>) -> Result<ProxyAnswer, Failure> {
    match exchange.begin().await? {
        First::Streamed(response) => streaming::answer(exchange, response).await,
        First::Whole(response) => exchange.answer_whole(response).await,
        First::Refused(response) => Ok(exchange.refused(response)),
    }
}

/// What is done with a request.
enum Planned {
    /// It passes as it came.
    AsItIs { streams: bool },
    /// The model searches among its tools.
    Searching(Box<Exchange>),
    /// It is refused.
    Refused(Failure),
}

/// Whether an answer is a stream of server-sent events.
fn is_event_stream(response: &Response) -> bool {
    let content_type = response.headers().get(CONTENT_TYPE);
    content_type
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("text/event-stream"))
}
