//! A run as server-sent events, in the format that the client requested.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ag_ui::AgUi;
use super::started::StartedRun;
use toolscout_agent::Event;

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

/// What a stream is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Events of this API.
    Own,
    /// These events as clients of `/agent/chat/stream` parse them: the lists of `reference` and
    /// `recommend` are texts of JSON.
    Compatible,
    /// AG-UI events.
    AgUi,
}

impl From<Dialect> for Format {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Own => Format::Own,
            Dialect::AgUi => Format::AgUi,
        }
    }
}

/// The event stream of a run, with comments at this interval while there are no events.
pub fn respond(
    run: StartedRun,
    format: Format,
    run_id: Option<String>,
    heartbeat: Duration,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    let translator = match format {
        Format::Own => Translator::Own,
        Format::Compatible => Translator::Compatible,
        Format::AgUi => Translator::AgUi(AgUi::new(run.conversation().as_str(), run_id)),
    };
    let sender = EventSender {
        run,
        translator,
        ready: VecDeque::new(),
        next_id: 1,
    };
    let events = stream::unfold(sender, |mut sender| async {
        let event = sender.next().await?;
        Some((Ok(event), sender))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(heartbeat))
}

enum Translator {
    Own,
    Compatible,
    AgUi(AgUi),
}

impl Translator {
    fn translate(&mut self, event: Event) -> Vec<Value> {
        match self {
            // An enum of strings and numbers always serialises.
            Translator::Own => serde_json::to_value(event).into_iter().collect(),
            Translator::Compatible => serde_json::to_value(event)
                .into_iter()
                .map(with_list_as_text)
                .collect(),
            Translator::AgUi(ag_ui) => ag_ui.translate(event),
        }
    }
}

/// An event whose `content` is a text of JSON where it is a list. Its `count` stays beside it.
fn with_list_as_text(mut event: Value) -> Value {
    if let Some(content) = event.get_mut("content")
        && content.is_array()
    {
        *content = Value::String(content.to_string());
    }
    event
}

struct EventSender {
    run: StartedRun,
    translator: Translator,
    /// Translated events to send: one event of a run may become several.
    ready: VecDeque<Value>,
    next_id: u64,
}

impl EventSender {
    async fn next(&mut self) -> Option<SseEvent> {
        // Some events of a run have no counterpart in the client's format.
        while self.ready.is_empty() {
            let event = self.run.next().await?;
            self.ready.extend(self.translator.translate(event));
        }
        let event = self.ready.pop_front()?;
        let id = self.next_id.to_string();
        self.next_id += 1;
        Some(SseEvent::default().id(id).data(event.to_string()))
    }
}
