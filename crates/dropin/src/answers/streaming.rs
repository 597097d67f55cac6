//! The rounds of a streamed answer, as one stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt as _};
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::answers::exchange::{Exchange, Next};
use crate::dialect::StreamedAnswer;
use crate::wire::failure::Failure;
use crate::wire::frames::{Frames, Framing};
use crate::{AnswerBody, DropInAnswer, is_event_stream, provider};
use toolscout_base::long_work;

/// How long a connection whose answer has ended may take to say so.
const DRAIN: Duration = Duration::from_secs(1);
/// The longest refusal of a later round whose reason is told.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// Answers with the rounds of a stream. Waits for the first thing that the client sees: what fails
/// before has a status of its own.
///
/// # Errors
/// As described.
pub async fn answer(exchange: Box<Exchange>, response: Response) -> Result<DropInAnswer, Failure> {
    let status = response.status().as_u16();
    let mut headers = provider::response_headers(response.headers());
    let framing = exchange.request.dialect.framing();
    let mut rounds = Rounds {
        framing,
        answer: exchange.protocol().streamed(exchange.view()),
        exchange,
        response: Some(response),
        frames: Frames::of(framing),
        out: VecDeque::new(),
        is_round_over: false,
        refusal: None,
    };
    if let Some(content_type) = rounds.answer.content_type() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    match rounds.next().await {
        Some(Ok(first)) => {
            let first = stream::iter([Ok(first)]);
            let rest = stream::unfold(rounds, |mut rounds| async {
                let next = rounds.next_or_error_event().await?;
                Some((Ok(next), rounds))
            });
            Ok(DropInAnswer {
                status,
                headers,
                body: AnswerBody::Stream(first.chain(rest).boxed()),
            })
        }
        // The client has nothing yet, so it gets a status.
        Some(Err(failure)) => match rounds.refusal.take() {
            Some(response) => Ok(rounds.exchange.refused(response)),
            None => Err(failure),
        },
        None => Err(Failure::cut_off("it was empty")),
    }
}

struct Rounds {
    exchange: Box<Exchange>,
    answer: Box<dyn StreamedAnswer>,
    /// The provider's answer that is being read; `None` once the last one has ended.
    response: Option<Response>,
    framing: Framing,
    frames: Frames,
    out: VecDeque<Bytes>,
    /// Whether all of the round was read.
    is_round_over: bool,
    /// The provider's refusal of a later round.
    refusal: Option<Response>,
}

impl Rounds {
    /// What the client gets next; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            if !self.out.is_empty() {
                return Some(Ok(joined(&mut self.out)));
            }
            self.response.as_ref()?;
            // What came is sent before the end of its round, which may take another round.
            let went = match self.is_round_over {
                true => self.end_round().await,
                false => self.read().await,
            };
            if let Err(failure) = went {
                self.response = None;
                // What came before the failure goes first.
                return Some(Err(self.exchange.failed(failure)));
            }
        }
    }

    /// As [`Rounds::next`]; a failure is the last event.
    async fn next_or_error_event(&mut self) -> Option<Bytes> {
        let failure = match self.next().await? {
            Ok(bytes) => return Some(bytes),
            Err(failure) => failure,
        };
        let mut last = joined(&mut self.out).to_vec();
        let failure = match self.refusal.take() {
            Some(response) => self.reported(response).await,
            None => failure,
        };
        let dialect = self.exchange.request.dialect;
        // The provider's own event first, then one that fits in with those before it.
        let event = match &failure.event {
            Some(event) => Some(event.clone()),
            None => self.answer.error_event(&failure),
        };
        last.extend_from_slice(&event.unwrap_or_else(|| dialect.error_event(&failure)));
        Some(last.into())
    }

    /// Reads what comes next.
    async fn read(&mut self) -> Result<(), Failure> {
        let Some(response) = &mut self.response else {
            return Ok(());
        };
        let begun = Instant::now();
        let provider = &self.exchange.endpoint.0.provider;
        let chunk = provider.chunk(response).await;
        self.exchange.report.figures.model += begun.elapsed();
        match chunk? {
            Some(bytes) => {
                self.exchange.held.add(&bytes)?;
                self.frames.push(&bytes);
                self.take_frames().await?;
                self.is_round_over = self.answer.is_ended();
            }
            None => {
                if let Some(bytes) = self.frames.finish() {
                    // Part of an event: the provider did not end it.
                    let (answer, out, framing) = (&mut self.answer, &mut self.out, self.framing);
                    let taking =
                        long_work::read(bytes.len(), || answer.take(framing.read(bytes)?, out));
                    taking.await.map_err(|failure| match failure.event {
                        Some(_) => failure,
                        None => Failure::cut_off("the connection closed within an event"),
                    })?;
                }
                self.is_round_over = true;
            }
        }
        Ok(())
    }

    async fn take_frames(&mut self) -> Result<(), Failure> {
        loop {
            let Some(bytes) = self.frames.next()? else {
                return Ok(());
            };
            long_work::read(bytes.len(), || self.take_frame(bytes)).await?;
        }
    }

    fn take_frame(&mut self, bytes: Bytes) -> Result<(), Failure> {
        let sent = self.out.len();
        let frame = self.framing.read(bytes.clone())?;
        self.answer.take(frame, &mut self.out)?;
        // What was passed on takes less memory from here on.
        if self.out.len() > sent {
            self.exchange.held.pass_on(&bytes);
        }
        let (parts, calls) = (self.answer.parts(), self.answer.calls());
        self.exchange.held.allow(parts, calls)
    }

    async fn end_round(&mut self) -> Result<(), Failure> {
        self.is_round_over = false;
        if let Some(response) = self.response.take() {
            drain(response, &self.exchange.endpoint.0.background);
        }
        let bytes = self.exchange.held.bytes();
        let round = long_work::read(bytes, || self.answer.end_round()).await?;
        let round = self.exchange.counted_calls(round)?;
        let client_id = self.answer.id_for_client();
        match self.exchange.after(round, client_id).await {
            Next::Done => {
                let (answer, out) = (&mut self.answer, &mut self.out);
                long_work::read(bytes, || answer.close(out)).await;
                self.exchange.report.figures.count(self.answer.usage());
                self.exchange.answered();
                Ok(())
            }
            Next::Again => {
                self.frames = Frames::of(self.framing);
                self.answer.begin_round();
                let response = self.exchange.send().await?;
                // Passed on as it is, or told in an event if the client has part of the answer.
                if !response.status().is_success() {
                    let status = response.status().as_u16();
                    self.refusal = Some(response);
                    return Err(Failure::new(status, "upstream_refused", ""));
                }
                if !is_event_stream(&response) {
                    return Err(Failure::malformed("it is no stream of events", ""));
                }
                self.response = Some(response);
                Ok(())
            }
        }
    }

    /// A refusal of a later round, for a client that already has part of the answer.
    async fn reported(&mut self, mut response: Response) -> Failure {
        let status = response.status().as_u16();
        let provider = &self.exchange.endpoint.0.provider;
        let body = provider.whole(&mut response, MAX_REFUSAL_BYTES).await;
        // A refusal that cannot be read is told by its status.
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let message = body.pointer("/error/message").or(body.get("message"));
        let message = message.and_then(Value::as_str);
        let message = message.unwrap_or("it gave no reason");
        Failure::new(
            status,
            "upstream_refused",
            format!("the model's provider answered {status}: {message}"),
        )
    }
}

/// Reads what is left of an answer that has ended, so that its connection can be used again.
fn drain(mut response: Response, background: &TaskTracker) {
    background.spawn(tokio::time::timeout(DRAIN, async move {
        while let Ok(Some(_)) = response.chunk().await {}
    }));
}

fn joined(parts: &mut VecDeque<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts.drain(..) {
        whole.extend_from_slice(&part);
    }
    whole.freeze()
}
