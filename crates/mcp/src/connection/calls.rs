//! Calls of tools, with their progress and their limits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientRequest, MetaObject, ProgressNotificationParam, RequestId,
    RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use tokio::time::{Instant, sleep, timeout};

use super::errors::{CallError, was_not_taken};
use super::questions::CallAtWork;
use super::{CallContext, Connection, Progress, QUOTED_CHARS};
use toolscout_base::printable::excerpt;
use toolscout_gate::tools::Arguments;

impl Connection {
    /// Calls a tool by its name on the server.
    ///
    /// The server is told to stop when the future is dropped, at a time limit, and when the caller
    /// cancels.
    ///
    /// # Errors
    /// [`CallError`]. A failure reported by the tool is a result.
    pub async fn call(
        self: &Arc<Self>,
        name: &str,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        params.input_responses = context.input.responses.clone();
        params.request_state = context.input.state.clone();
        if self.goes_in_turns(context) {
            return self.call_in_turns(params, context).await;
        }
        let at_work = self.handler.calls.begin(context.client.clone());
        self.call_with_input(params, &at_work, context).await
    }

    /// Makes a call once.
    pub(super) async fn call_once(
        &self,
        params: CallToolRequestParams,
        at_work: &CallAtWork,
        context: &CallContext,
    ) -> Result<ServerResult, CallError> {
        let mut meta = RequestMetaObject(MetaObject(context.meta.clone()));
        // In a session, the server has been told once.
        if !self.has_session()
            && let Some(level) = context.log_level
        {
            meta.set_log_level(level);
        }
        if !self.has_session() {
            // What the client of this call can do, not what some client can.
            let capabilities = context.capabilities.clone().unwrap_or_default();
            meta.set_client_capabilities(self.capabilities_to_tell(capabilities));
        }
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let times = self.limits.call;
        let options = PeerRequestOptions::with_timeout(times.total).with_meta(meta);
        let sent = self.peer.send_cancellable_request(request, options).await;
        let handle = sent.map_err(|error| self.call_error(&error))?;
        at_work.is_sent_as(handle.id.clone());
        // After the request is sent, since the SDK makes the progress token.
        let mut progress = self
            .handler
            .progress
            .subscribe(handle.progress_token.clone())
            .await;
        // Every early return below, and dropping this future, tells the server to stop.
        let mut abandoned = CancelOnDrop {
            peer: self.peer.clone(),
            request: Some(handle.id.clone()),
        };
        let mut answer = std::pin::pin!(handle.await_response());
        // A call that reports progress may take longer than a silent one, but not for ever. Whether
        // a server reports any is known only after its first report.
        let mut limit = times.unreported;
        let mut silence = std::pin::pin!(sleep(limit));
        let answered = loop {
            tokio::select! {
                biased;
                answered = &mut answer => break answered,
                () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
                Some(update) = progress.next() => {
                    send_progress(context, update);
                    limit = times.idle;
                    silence.as_mut().reset(Instant::now() + limit);
                }
                // A person or a model that is asked may take longer than the server.
                () = &mut silence => match self.handler.calls.is_asking() {
                    true => silence.as_mut().reset(Instant::now() + limit),
                    false => return Err(CallError::Timeout { limit }),
                },
            }
        };
        // Answered, so there is nothing to cancel.
        abandoned.request = None;
        // The SDK hands each notification to a task of its own, which the answer may overtake.
        tokio::task::yield_now().await;
        while let Some(Some(update)) = progress.next().now_or_never() {
            send_progress(context, update);
        }
        answered.map_err(|error| self.call_error(&error))
    }

    pub(super) fn call_error(&self, error: &ServiceError) -> CallError {
        match error {
            ServiceError::McpError(ErrorData {
                code,
                message,
                data,
                ..
            }) => CallError::Refused {
                code: code.0,
                message: excerpt(message, QUOTED_CHARS),
                data: data.clone(),
            },
            ServiceError::Timeout { timeout } => CallError::Timeout { limit: *timeout },
            ServiceError::Cancelled { .. } => CallError::Cancelled,
            // The call was not executed.
            ServiceError::TransportSend(failed) if was_not_taken(failed.error.as_ref()) => {
                let server = self.server.to_string();
                match self.login_wanted(error) {
                    Some(reason) => CallError::NeedsLogin { server, reason },
                    None => CallError::Unavailable {
                        server,
                        reason: self.message(error),
                    },
                }
            }
            error => CallError::Lost {
                server: self.server.to_string(),
                reason: self.message(error),
            },
        }
    }
}

fn send_progress(context: &CallContext, update: ProgressNotificationParam) {
    if let Some(listener) = &context.progress {
        let ProgressNotificationParam {
            progress: done,
            total,
            message,
            ..
        } = update;
        // Progress is only informative: a full queue must not slow down the call.
        let _ = listener.try_send(Progress {
            done,
            total,
            message,
        });
    }
}

/// Tells the server to stop working on a request, when nobody waits for the answer any more.
pub(super) struct CancelOnDrop {
    pub(super) peer: Peer<RoleClient>,
    pub(super) request: Option<RequestId>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        // Dropped while the runtime shuts down; the connection is closed then anyway.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let params = CancelledNotificationParam::new(
            Some(request),
            Some("nobody waits for it any more".into()),
        );
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let cancelled = CancelledNotification::new(params);
            let _ = timeout(
                Duration::from_secs(5),
                peer.send_notification(cancelled.into()),
            )
            .await;
        });
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::async_rw::AsyncRwTransport;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex, split};

    use super::super::Connector;
    use super::super::errors::Lifecycle;
    use super::super::opening::Opening;
    use super::*;
    use crate::Limits;
    use toolscout_gate::tools::{CallTimeSettings, CallTimes, Seconds};

    /// A server that answers a call after these seconds, each pause followed by a progress notification
    /// if it reports any.
    #[derive(Clone)]
    struct Pauses {
        seconds: Vec<u64>,
        reports: bool,
    }

    async fn serve(stream: DuplexStream, pauses: Pauses) {
        let (reader, mut writer) = split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let result = match message["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "slow", "version": "1" },
                }),
                Some("tools/call") => {
                    for seconds in &pauses.seconds {
                        sleep(Duration::from_secs(*seconds)).await;
                        if pauses.reports {
                            let token = &message["params"]["_meta"]["progressToken"];
                            let params = json!({ "progressToken": token, "progress": 1.0 });
                            let step = json!({
                                "jsonrpc": "2.0", "method": "notifications/progress", "params": params,
                            });
                            write(&mut writer, step).await;
                        }
                    }
                    json!({ "content": [{ "type": "text", "text": "done" }] })
                }
                _ => continue,
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            write(&mut writer, answer).await;
        }
    }

    async fn write(to: &mut (impl AsyncWriteExt + Unpin), message: Value) {
        // The client may have given up.
        let _ = to.write_all(format!("{message}\n").as_bytes()).await;
    }

    /// Calls a tool of such a server. The error, and the seconds that the call took.
    async fn call(pauses: Pauses, settings: CallTimeSettings) -> (Option<CallError>, u64) {
        let (client, server) = duplex(1 << 16);
        tokio::spawn(serve(server, pauses));
        let opening = Opening {
            server: "slow".into(),
            limits: Limits {
                call: settings.applied_to(CallTimes::default()),
                ..Limits::default()
            },
            lifecycle: Lifecycle::Initialize,
            process: None,
            has_key: false,
            shared: Connector::default(),
        };
        let (reader, writer) = split(client);
        let transport = AsyncRwTransport::new_client(reader, writer);
        let connection = Arc::new(opening.handshake(transport).await.unwrap());
        let started = Instant::now();
        let called = connection
            .call("work", Arguments::new(), &CallContext::default())
            .await;
        (called.err(), started.elapsed().as_secs())
    }

    fn late(seconds: u64) -> Option<CallError> {
        let limit = Duration::from_secs(seconds);
        Some(CallError::Timeout { limit })
    }

    fn seconds(seconds: u64) -> Option<Seconds> {
        Some(Seconds::try_from(seconds).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn progress_extends_a_call_and_a_silent_one_may_take_five_minutes() {
        for (pauses, reports, expected, took) in [
            (vec![299], false, None, 299),
            (vec![301], false, late(300), 300),
            (vec![59; 10], true, None, 590),
            (vec![10, 61], true, late(60), 70),
            (vec![59; 11], true, late(600), 600),
        ] {
            let pauses = Pauses {
                seconds: pauses,
                reports,
            };
            let called = call(pauses.clone(), CallTimeSettings::default()).await;
            assert_eq!(called, (expected, took), "{:?}", pauses.seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limits_of_a_call_can_be_set() {
        let short = CallTimeSettings {
            timeout: seconds(20),
            total: seconds(100),
        };
        for (pauses, reports, expected, took) in [
            (vec![21], false, late(20), 20),
            (vec![19; 5], true, None, 95),
            (vec![19; 6], true, late(100), 100),
        ] {
            let pauses = Pauses {
                seconds: pauses,
                reports,
            };
            assert_eq!(call(pauses, short).await, (expected, took));
        }
        let long = CallTimeSettings {
            timeout: seconds(3_600),
            total: None,
        };
        let pauses = Pauses {
            seconds: vec![3_000],
            reports: false,
        };
        assert_eq!(call(pauses, long).await, (None, 3_000));
    }
}
