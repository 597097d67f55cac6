//! What a server offers besides tools: prompts, resources and templates of resources.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse, Prompt,
    ReadResourceRequestParams, ReadResourceResponse, Resource, ResourceTemplate,
};
use rmcp::service::ServiceError;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::listing::Kind;
use super::{CallError, Connection};

/// How long lists are used. Servers without sessions send no notifications of changes.
const FRESH: Duration = Duration::from_secs(60);

/// What a server offers besides tools.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// Its prompts.
    pub prompts: Vec<Prompt>,
    /// Its resources.
    pub resources: Vec<Resource>,
    /// The templates of further resources.
    pub templates: Vec<ResourceTemplate>,
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
    /// What the server offers, without what it could not list.
    pub async fn offers(&self) -> Arc<Offers> {
        // Before the lists are read, so that a change meanwhile makes them old.
        let version = self.handler.offers_version.load(Ordering::Relaxed);
        if let Some(offers) = self.offers.fresh(version) {
            return offers;
        }
        let (prompts, resources, templates) = tokio::join!(
            self.entries(Kind::Prompts),
            self.entries(Kind::Resources),
            self.entries(Kind::ResourceTemplates),
        );
        let offers = Arc::new(Offers {
            prompts,
            resources,
            templates,
        });
        self.offers.keep(Listed {
            at: Instant::now(),
            version,
            offers: Arc::clone(&offers),
        });
        offers
    }

    /// The entries of a list that can be read.
    async fn entries<T: DeserializeOwned>(&self, kind: Kind) -> Vec<T> {
        let listed = match self.list(kind).await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(server = %self.server, ?kind, %error, "a list cannot be passed on");
                return Vec::new();
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
        entries
    }

    /// A prompt of the server.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn prompt(
        &self,
        params: GetPromptRequestParams,
    ) -> Result<GetPromptResponse, CallError> {
        // What the server logs meanwhile may contain what this client asked for, and is for nobody.
        let _at_work = self.handler.calls.begin(None);
        let mut given = self.in_time(self.peer.get_prompt_once(params)).await?;
        if let GetPromptResponse::InputRequired(asked) = &mut given {
            self.check_questions(asked)?;
        }
        Ok(given)
    }

    /// The content of a resource.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn resource(
        &self,
        params: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, CallError> {
        // What the server logs meanwhile may contain what this client asked for, and is for nobody.
        let _at_work = self.handler.calls.begin(None);
        let mut given = self.in_time(self.peer.read_resource_once(params)).await?;
        if let ReadResourceResponse::InputRequired(asked) = &mut given {
            self.check_questions(asked)?;
        }
        Ok(given)
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

impl CachedOffers {
    fn fresh(&self, version: u64) -> Option<Arc<Offers>> {
        let listed = self.0.lock();
        let listed = listed.as_ref()?;
        let is_fresh = listed.version == version && listed.at.elapsed() < FRESH;
        is_fresh.then(|| Arc::clone(&listed.offers))
    }

    fn keep(&self, listed: Listed) {
        *self.0.lock() = Some(listed);
    }
}
