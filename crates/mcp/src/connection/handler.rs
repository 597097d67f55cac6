//! What a server sends unasked: notifications, and questions to the client.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::handler::client::progress::ProgressDispatcher;
use rmcp::model::{
    ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ProgressNotificationParam, ProtocolVersion, RequestId, ResourceUpdatedNotificationParam,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};
use tokio::sync::{Notify, watch};

use super::notices::{LogText, Notices};
use super::questions;
use super::questions::{CallsAtWork, ELICITATION, ModelAnswer, ModelQuestion};
use super::roots::{ListedRoots, Roots};
use crate::implementation;

/// Receives the notifications of a server.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) progress: ProgressDispatcher,
    pub(super) list_changed: Arc<Notify>,
    /// Incremented when the server says that its prompts or resources have changed.
    pub(super) offers_version: Arc<AtomicU64>,
    /// The same over all servers.
    pub(super) offers_changed: watch::Sender<u64>,
    pub(super) notices: Notices,
    pub(super) roots: Arc<Roots>,
    pub(super) server: Arc<str>,
    pub(super) calls: Arc<CallsAtWork>,
}

impl Handler {
    pub(super) fn offers_have_changed(&self) {
        self.offers_version.fetch_add(1, Ordering::Relaxed);
        self.offers_changed.send_modify(|version| *version += 1);
        // They are synced to the catalog with the tools.
        self.list_changed.notify_one();
    }
}

impl ClientHandler for Handler {
    async fn on_progress(
        &self,
        update: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.handle_notification(update).await;
    }

    async fn on_logging_message(&self, message: LogText, _: NotificationContext<RoleClient>) {
        match self.calls.audience() {
            Some(audience) => self.notices.log(&self.server, audience, message),
            None => {
                let server = &self.server;
                tracing::debug!(%server, "a log message is for no client: calls of several keys are open");
            }
        }
    }

    async fn on_resource_updated(
        &self,
        updated: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.notices.updated(&self.server, &updated.uri);
    }

    fn on_tool_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.list_changed.notify_one();
        std::future::ready(())
    }

    fn on_prompt_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.offers_have_changed();
        std::future::ready(())
    }

    fn on_resource_list_changed(
        &self,
        _: NotificationContext<RoleClient>,
    ) -> impl Future<Output = ()> + Send + '_ {
        self.offers_have_changed();
        std::future::ready(())
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let call = call_of(&context);
        self.calls.elicit(&self.server, question, call).await
    }

    async fn create_message(
        &self,
        question: ModelQuestion,
        context: RequestContext<RoleClient>,
    ) -> Result<ModelAnswer, ErrorData> {
        let call = call_of(&context);
        self.calls
            .create_message(&self.server, question, call)
            .await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        match request.params {
            Some(question) if request.method == ELICITATION => {
                let answer = self
                    .calls
                    .elicit_unread(&self.server, question, call_of(&context))
                    .await;
                answer.map(CustomResult::new)
            }
            _ => {
                let code = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
                Err(ErrorData::new(code, request.method, None))
            }
        }
    }

    async fn list_roots(
        &self,
        context: RequestContext<RoleClient>,
    ) -> Result<ListedRoots, ErrorData> {
        if self.roots.are_passed()
            && let Some(roots) = self.calls.roots(call_of(&context)).await
        {
            return roots;
        }
        self.roots.list().await
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            questions::capabilities(self.roots.are_passed()),
            implementation(),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// The call that a question belongs to, if its transport tells: over streamable HTTP, the question comes
/// on the stream of the call.
fn call_of(context: &RequestContext<RoleClient>) -> Option<&RequestId> {
    match context.extensions.get::<InboundStreamOrigin>()? {
        InboundStreamOrigin::OutboundRequest(id) => Some(id),
        InboundStreamOrigin::Unassociated => None,
    }
}
