//! A run as server-sent events, in the dialect that the client asked for.

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

/// Whose events are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub enum Dialect {
    /// The project's own.
    #[default]
    #[serde(rename = "own")]
    Own,
    /// AG-UI's.
    #[serde(rename = "ag-ui")]
    AgUi,
}

/// The stream of a run. A server that ends stops the run, so that the stream ends with its terminal
/// event.
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
    let sending = Sending {
        run,
        translator,
        ready: VecDeque::new(),
        next_id: 1,
        shutdown: app.shutdown.clone(),
        stop,
        stopped: false,
    };
    let events = stream::unfold(sending, |mut sending| async {
        let event = sending.next().await?;
        Some((Ok(event), sending))
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
            // A closed enum of strings and numbers always serialises.
            Translator::Own => serde_json::to_value(event).into_iter().collect(),
            Translator::AgUi(ag_ui) => ag_ui.translate(event),
        }
    }
}

struct Sending<S> {
    run: RunStream,
    translator: Translator,
    ready: VecDeque<Value>,
    next_id: u64,
    shutdown: Shutdown,
    stop: S,
    stopped: bool,
}

impl<S: Fn()> Sending<S> {
    async fn next(&mut self) -> Option<SseEvent> {
        while self.ready.is_empty() {
            let event = self.next_of_run().await?;
            self.ready.extend(self.translator.translate(event));
        }
        let event = self.ready.pop_front()?;
        let id = self.next_id.to_string();
        self.next_id += 1;
        Some(SseEvent::default().id(id).data(event.to_string()))
    }

    async fn next_of_run(&mut self) -> Option<Event> {
        if !self.stopped {
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
