//! What a server offers besides tools: prompts, resources, templates of resources, and skills.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, Prompt, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Resource, ResourceTemplate,
};
use rmcp::service::ServiceError;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::input::Answered;
use super::listing::Kind;
use super::skills::ServerSkill;
use super::{CallContext, CallError, Connection};

/// How long lists are used. Servers without sessions send no notifications of changes.
const FRESH: Duration = Duration::from_secs(60);
/// The version of lists of an earlier connection. Versions count from zero.
const NEVER_FRESH: u64 = u64::MAX;

/// What a server offers besides tools.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// Which of the lists are older, since the server did not give a new one.
    pub stale: Stale,
    /// Its prompts.
    pub prompts: Vec<Prompt>,
    /// Its resources.
    pub resources: Vec<Resource>,
    /// The templates of further resources.
    pub templates: Vec<ResourceTemplate>,
    /// Its skills.
    pub skills: Vec<ServerSkill>,
    /// Why skills were left out.
    pub skipped: Vec<String>,
}

/// Lists of a server that could not be read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// That of its prompts.
    pub prompts: bool,
    /// That of its resources.
    pub resources: bool,
    /// That of its templates.
    pub templates: bool,
    /// That of its skills.
    pub skills: bool,
}

/// The offers as they were listed last.
#[derive(Default)]
pub(super) struct CachedOffers(Mutex<Option<Listed>>);

struct Listed {
    at: Instant,
    version: u64,
    offers: Arc<Offers>,
}

impl Connection {
    /// What the server offers. If it does not give a list, the one before is used.
    pub async fn offers(&self) -> Arc<Offers> {
        // Before the lists are read, so that a change meanwhile makes them old.
        let version = self.handler.offers_version.load(Ordering::Relaxed);
        if let Some(offers) = self.offers.fresh(version) {
            return offers;
        }
        let before = self.offers.last();
        let (prompts, resources, templates, skills) = tokio::join!(
            self.entries(Kind::Prompts),
            self.entries(Kind::Resources),
            self.entries(Kind::ResourceTemplates),
            self.skills(&before.skills),
        );
        let stale = Stale {
            prompts: prompts.is_none(),
            resources: resources.is_none(),
            templates: templates.is_none(),
            skills: skills.is_none(),
        };
        let (skills, skipped) = match skills {
            Some((skills, skipped)) => (skills, skipped),
            None => (before.skills.clone(), before.skipped.clone()),
        };
        let offers = Arc::new(Offers {
            stale,
            skipped,
            skills,
            prompts: prompts.unwrap_or_else(|| before.prompts.clone()),
            resources: resources.unwrap_or_else(|| before.resources.clone()),
            templates: templates.unwrap_or_else(|| before.templates.clone()),
        });
        self.offers.keep(Listed {
            at: Instant::now(),
            version,
            offers: Arc::clone(&offers),
        });
        offers
    }

    /// Takes the lists of an earlier connection, in case that the server does not give new ones.
    pub fn remember(&self, offers: Arc<Offers>) {
        self.offers.keep(Listed {
            at: Instant::now(),
            version: NEVER_FRESH,
            offers,
        });
    }

    /// The entries of a list that can be read; `None` if the list cannot.
    pub(super) async fn entries<T: DeserializeOwned>(&self, kind: Kind) -> Option<Vec<T>> {
        let listed = match self.list(kind).await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(
                    server = %self.server, ?kind, %error,
                    "a list cannot be read; the one before stays"
                );
                return None;
            }
        };
        let mut entries = Vec::with_capacity(listed.entries.len());
        for entry in listed.entries {
            match serde_json::from_value(entry) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    tracing::warn!(server = %self.server, ?kind, %error, "an entry cannot be read");
                }
            }
        }
        Some(entries)
    }

    /// A prompt of the server.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn prompt(
        self: &Arc<Self>,
        params: GetPromptRequestParams,
        context: &CallContext,
    ) -> Result<GetPromptResponse, CallError> {
        let answered = match self.goes_in_turns(context) {
            true => {
                let about = json!(["prompts/get", params.name, params.arguments]);
                let ask = |connection: Arc<Connection>, params, context: CallContext| async move {
                    let answered = connection.prompt_with_input(params, &context).await;
                    complete(answered)
                };
                self.in_turns(params, about, context, ask).await?
            }
            false => self.prompt_with_input(params, context).await?,
        };
        Ok(match answered {
            Answered::Complete(prompt) => GetPromptResponse::Complete(prompt),
            Answered::Asked(asked) => GetPromptResponse::InputRequired(asked),
        })
    }

    async fn prompt_with_input(
        &self,
        params: GetPromptRequestParams,
        context: &CallContext,
    ) -> Result<Answered<GetPromptResult>, CallError> {
        let _at_work = self.handler.calls.begin(context.client.clone());
        let ask = |params| async move {
            match self.in_time(self.peer.get_prompt_once(params)).await? {
                GetPromptResponse::Complete(prompt) => Ok(Answered::Complete(prompt)),
                GetPromptResponse::InputRequired(asked) => Ok(Answered::Asked(asked)),
                _ => Err(unknown_answer()),
            }
        };
        self.with_input(params, context, ask).await
    }

    /// The content of a resource.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn resource(
        self: &Arc<Self>,
        params: ReadResourceRequestParams,
        context: &CallContext,
    ) -> Result<ReadResourceResponse, CallError> {
        let answered = match self.goes_in_turns(context) {
            true => {
                let about = json!(["resources/read", params.uri]);
                let ask = |connection: Arc<Connection>, params, context: CallContext| async move {
                    let answered = connection.resource_with_input(params, &context).await;
                    complete(answered)
                };
                self.in_turns(params, about, context, ask).await?
            }
            false => self.resource_with_input(params, context).await?,
        };
        Ok(match answered {
            Answered::Complete(result) => ReadResourceResponse::Complete(result),
            Answered::Asked(asked) => ReadResourceResponse::InputRequired(asked),
        })
    }

    async fn resource_with_input(
        &self,
        params: ReadResourceRequestParams,
        context: &CallContext,
    ) -> Result<Answered<ReadResourceResult>, CallError> {
        let _at_work = self.handler.calls.begin(context.client.clone());
        let ask = |params| async move {
            match self.in_time(self.peer.read_resource_once(params)).await? {
                ReadResourceResponse::Complete(result) => Ok(Answered::Complete(result)),
                ReadResourceResponse::InputRequired(asked) => Ok(Answered::Asked(asked)),
                _ => Err(unknown_answer()),
            }
        };
        self.with_input(params, context, ask).await
    }

    /// Completes an argument of a prompt or a template.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn completion(
        &self,
        params: CompleteRequestParams,
    ) -> Result<CompleteResult, CallError> {
        // What the server logs meanwhile may contain what this client asked for, and is for nobody.
        let _at_work = self.handler.calls.begin(None);
        self.in_time(self.peer.complete(params)).await
    }

    /// Whether the server completes arguments.
    pub fn completes(&self) -> bool {
        match self.peer.peer_info() {
            Some(info) => info.capabilities.completions.is_some(),
            None => false,
        }
    }

    pub(super) async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<T, CallError> {
        let limit = self.limits.call.idle;
        match timeout(limit, request).await {
            Ok(answered) => answered.map_err(|error| self.call_error(&error)),
            Err(_) => Err(CallError::Timeout { limit }),
        }
    }
}

/// The result of a request whose client is asked while it runs, so that it is never a question.
fn complete<T>(answered: Result<Answered<T>, CallError>) -> Result<T, CallError> {
    match answered? {
        Answered::Complete(result) => Ok(result),
        Answered::Asked(_) => Err(unknown_answer()),
    }
}

fn unknown_answer() -> CallError {
    CallError::Refused {
        code: -32603,
        message: "the server answered in an unknown form".into(),
        data: None,
    }
}

impl CachedOffers {
    fn fresh(&self, version: u64) -> Option<Arc<Offers>> {
        let listed = self.0.lock();
        let listed = listed.as_ref()?;
        let is_fresh = listed.version == version && listed.at.elapsed() < FRESH;
        is_fresh.then(|| Arc::clone(&listed.offers))
    }

    /// The last lists, however old.
    fn last(&self) -> Arc<Offers> {
        match &*self.0.lock() {
            Some(listed) => Arc::clone(&listed.offers),
            None => Arc::default(),
        }
    }

    fn keep(&self, listed: Listed) {
        *self.0.lock() = Some(listed);
    }
}
