//! Errors that name no request, over a transport that all requests share.

use std::collections::HashSet;
use std::future::Future;

use rmcp::RoleClient;
use rmcp::model::{ClientNotification, JsonRpcError, JsonRpcMessage, JsonRpcResponse, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// A transport that gives an error without a request to the only request that is open.
///
/// A server that cannot read a message answers it with an error without an id, which the SDK drops:
/// the call would wait until its time is up. With several open requests, nobody can tell whose error
/// it is.
pub struct AssignsErrors<T> {
    inner: T,
    requests: Requests,
}

/// The requests that were sent.
#[derive(Debug, Default)]
struct Requests {
    open: HashSet<RequestId>,
    /// The latest; the SDK counts them.
    latest: i64,
}

impl<T> AssignsErrors<T> {
    /// Around this transport.
    pub fn of(inner: T) -> Self {
        AssignsErrors {
            inner,
            requests: Requests::default(),
        }
    }
}

impl Requests {
    /// Takes note of a message for the server.
    fn sent(&mut self, message: &TxJsonRpcMessage<RoleClient>) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.latest = self.latest.max(number(&request.id).unwrap_or_default());
                self.open.insert(request.id.clone());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.open.remove(id);
                }
            }
            _ => {}
        }
    }

    /// Takes note of a message of the server, whose error may be the only open request's.
    fn received(&mut self, message: RxJsonRpcMessage<RoleClient>) -> RxJsonRpcMessage<RoleClient> {
        match message {
            JsonRpcMessage::Error(error) if self.names_none(error.id.as_ref()) => {
                let id = match self.open.len() {
                    1 => self.open.drain().next(),
                    _ => error.id,
                };
                JsonRpcMessage::Error(JsonRpcError { id, ..error })
            }
            JsonRpcMessage::Error(JsonRpcError {
                id: Some(ref id), ..
            })
            | JsonRpcMessage::Response(JsonRpcResponse { ref id, .. }) => {
                // Some servers write the number of a request as text.
                let answered = id.to_string();
                self.open.retain(|id| id.to_string() != answered);
                message
            }
            other => other,
        }
    }

    /// Whether no request ever had this id: the answer to one that was given up comes late.
    fn names_none(&self, id: Option<&RequestId>) -> bool {
        match id.and_then(number) {
            Some(number) => !(0..=self.latest).contains(&number),
            None => true,
        }
    }
}

fn number(id: &RequestId) -> Option<i64> {
    id.to_string().parse().ok()
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for AssignsErrors<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.requests.sent(&message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        Some(self.requests.received(message))
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
