//! Calls of one server, and the state of its connection.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rmcp::model::CallToolResult;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;
use toolscout_index::ToolId;

use super::subscriptions::Subscriptions;
use super::upstream_tool::finished;
use super::{ConnectionState, Progress, Server, ServerState};
use crate::Limits;
use crate::changes::OnChange;
use crate::config::{ServerConfig, Transport};
use crate::connection::{CallContext, CallError, Connection, Offers};
use toolscout_gate::tools::Arguments;

impl Server {
    pub(super) fn new(config: ServerConfig, on_change: OnChange, limits: Limits) -> Self {
        let limits = config.limits(limits);
        let calls = Semaphore::new(limits.calls_at_once);
        let (state, _) = watch::channel(ServerState::New);
        Server {
            config,
            limits,
            on_change,
            state,
            blocked: Mutex::default(),
            always_loaded: Mutex::default(),
            recheck: Notify::new(),
            calls,
            wanted: Notify::new(),
            instructions: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
            kept_offers: Mutex::default(),
            capabilities: Mutex::default(),
            subscriptions: Subscriptions::default(),
            for_apps: Mutex::default(),
            progress: Mutex::new(Progress {
                since: SystemTime::now(),
                synced_at: None,
            }),
            writing: Arc::default(),
        }
    }

    pub(super) fn connection_state(&self) -> ConnectionState {
        match &*self.state.borrow() {
            ServerState::Ready(_) => ConnectionState::Connected,
            ServerState::New | ServerState::Waking => ConnectionState::Connecting,
            ServerState::Idle => ConnectionState::Idle,
            ServerState::Down {
                needs_login: true, ..
            } => ConnectionState::NeedsLogin,
            ServerState::Down { .. } => ConnectionState::Reconnecting,
        }
    }

    pub(super) fn unavailable(&self) -> Option<String> {
        match &*self.state.borrow() {
            ServerState::Ready(_) | ServerState::Idle | ServerState::Waking => None,
            ServerState::New => Some("it is still being connected".into()),
            ServerState::Down { reason, .. } => Some(reason.clone()),
        }
    }

    pub(super) async fn call(
        &self,
        id: &ToolId,
        arguments: Arguments,
        context: &CallContext,
    ) -> Result<CallToolResult, CallError> {
        let connection = tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return Err(CallError::Cancelled),
            connection = self.connection() => connection?,
        };
        if let Some(reason) = self.blocked(id) {
            return Err(CallError::Blocked {
                tool: id.to_string(),
                reason,
            });
        }
        let edited = self.config.edits.call(id.name(), arguments);
        let call = edited.map_err(|reason| CallError::NotCalled {
            tool: id.to_string(),
            reason,
        })?;
        let total = self.limits.call.total;
        // The semaphore is never closed, so this fails only by the timeout.
        let Ok(_permit) = timeout(total, self.calls.acquire()).await else {
            return Err(CallError::Timeout { limit: total });
        };
        let arguments = call.arguments.clone();
        let called = connection.call(call.name, arguments, context).await;
        self.used();
        // Listing the tools again finds out whether the connection is still usable.
        if matches!(
            called,
            Err(CallError::Lost { .. }
                | CallError::NeedsLogin { .. }
                | CallError::Unavailable { .. })
        ) {
            self.recheck.notify_one();
        }
        match called {
            Ok(result) => finished(call.view(), &self.config.masking, result).await,
            Err(error) => Err(error.masked(&self.config.masking)),
        }
    }

    /// Why a tool of the catalog must not be called; `None` if it may be.
    pub(super) fn blocked(&self, id: &ToolId) -> Option<String> {
        let offered = self.config.edits.id_at_server(id);
        self.blocked.lock().get(&offered).cloned()
    }

    /// The connection. Waits for one that is being made, or that was lost a moment ago.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, CallError> {
        self.used();
        let mut state = self.state.subscribe();
        // A server that is down for long fails at once: the wait is for a restart that takes a
        // moment.
        let is_started = matches!(&*state.borrow(), ServerState::Idle | ServerState::Waking);
        if is_started {
            self.wanted.notify_one();
        }
        let patience = match &*state.borrow() {
            ServerState::Ready(connection) if connection.is_alive() => {
                return Ok(Arc::clone(connection));
            }
            ServerState::New | ServerState::Idle | ServerState::Waking => self.limits.connect,
            ServerState::Ready(_) => self.limits.call_patience,
            // A person takes longer than a call can wait.
            ServerState::Down {
                needs_login: true, ..
            } => Duration::ZERO,
            ServerState::Down { since, .. } => {
                self.limits.call_patience.saturating_sub(since.elapsed())
            }
        };
        let is_ready = |state: &ServerState| matches!(state, ServerState::Ready(connection) if connection.is_alive());
        // What cannot be started is told at once.
        let is_decided = |state: &ServerState| {
            is_ready(state) || (is_started && matches!(state, ServerState::Down { .. }))
        };
        if let Ok(Ok(state)) = timeout(patience, state.wait_for(is_decided)).await
            && let ServerState::Ready(connection) = &*state
        {
            return Ok(Arc::clone(connection));
        }
        let server = self.config.name.clone();
        let needs_login = self.connection_state() == ConnectionState::NeedsLogin;
        let reason = self
            .unavailable()
            .unwrap_or_else(|| "it was lost again".into());
        Err(match needs_login {
            true => CallError::NeedsLogin { server, reason },
            false => CallError::Unavailable { server, reason },
        })
    }

    /// The connection, if there is one now.
    pub(super) fn ready_connection(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            ServerState::Ready(connection) => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    pub(super) fn kept_offers(&self) -> Arc<Offers> {
        let kept = self.kept_offers.lock();
        Arc::clone(&kept)
    }

    pub(super) fn used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// How long it has not been called; zero while it is, or while a client waits for changes.
    pub(super) fn unused_for(&self) -> Duration {
        if !self.subscriptions.is_empty() {
            return Duration::ZERO;
        }
        if self.calls.available_permits() < self.limits.calls_at_once {
            return Duration::ZERO;
        }
        let unused = self.last_used.lock().elapsed();
        // A call that waits for the answer to a question has no permit, so that the answer gets one.
        let connection = self.ready_connection();
        match connection.and_then(|connection| connection.unused_for()) {
            Some(without_calls) => unused.min(without_calls),
            None => unused,
        }
    }

    /// Whether it is stopped if nobody calls it.
    pub(super) fn may_be_idle(&self) -> bool {
        matches!(self.config.transport, Transport::Stdio { .. }) && !self.limits.idle_stop.is_zero()
    }
}
