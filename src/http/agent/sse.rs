//! A run as server-sent events, in the format that the client requested.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ag_ui::AgUi;
use crate::agent::{Event, RunStream};
use crate::http::App;
use crate::shutdown::Shutdown;

/// The format of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub enum Dialect {
    /// Events of this API, `AgentEvent`.
    #[default]
    #[serde(rename = "own")]
    Own,
    /// AG-UI events.
    #[serde(rename = "ag-ui")]
    AgUi,
}

/// The event stream of a run. At shutdown the server stops the run with `stop`, so that the stream
/// ends with its last event.
pub fn respond<F: Fn() + Send + 'static>(
    run: RunStream,
    dialect: Dialect,
    run_id: Option<String>,
    app: &App,
    stop: F,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>> + use<F>> {
    let translator = match dialect {
        Dialect::Own => Translator::Own,
        Dialect::AgUi => Translator::AgUi(AgUi::new(run.conversation().as_str(), run_id)),
    };
    let sender = EventSender {
        run,
        translator,
        ready: VecDeque::new(),
        next_id: 1,
        shutdown: app.shutdown.clone(),
        stop,
        stopped: false,
    };
    let events = stream::unfold(sender, |mut sender| async {
        let event = sender.next().await?;
        Some((Ok(event), sender))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(app.limits.heartbeat))
}

enum Translator {
    Own,
    AgUi(AgUi),
}

impl Translator {
    fn translate(&mut self, event: Event) -> Vec<Value> {
        match self {
            // An enum of strings and numbers always serialises.
            Translator::Own => serde_json::to_value(event).into_iter().collect(),
            Translator::AgUi(ag_ui) => ag_ui.translate(event),
        }
    }
}

struct EventSender<S> {
    run: RunStream,
    translator: Translator,
    /// Translated events to send: one event of a run may become several.
    ready: VecDeque<Value>,
    next_id: u64,
    shutdown: Shutdown,
    stop: S,
    stopped: bool,
}

impl<S: Fn()> EventSender<S> {
    async fn next(&mut self) -> Option<SseEvent> {
        while self.ready.is_empty() {
            let event = self.next_run_event().await?;
            self.ready.extend(self.translator.translate(event));
        }
        let event = self.ready.pop_front()?;
        let id = self.next_id.to_string();
        self.next_id += 1;
        Some(SseEvent::default().id(id).data(event.to_string()))
    }

    /// The next event of the run, which is stopped at shutdown.
    async fn next_run_event(&mut self) -> Option<Event> {
        if !self.stopped {
            // Events that are ready go first, so that a stopped run still sends what it has.
            tokio::select! {
                biased;
                next = self.run.next() => return next.map(|(_, event)| event),
                () = self.shutdown.triggered() => {
                    self.stopped = true;
                    (self.stop)();
                }
            }
        }
        self.run.next().await.map(|(_, event)| event)
    }
}
