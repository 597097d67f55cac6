//! Answers of the provider that pass as they come.

use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use reqwest::Response;

use crate::answers::figures::Report;
use crate::dialect::Dialect;
use crate::provider::{self, Provider};
use crate::wire::failure::Failure;
use crate::wire::frames::Framing;
use crate::{AnswerBody, DropInAnswer, is_event_stream};

/// An answer as it comes. A stream that is cut off ends with an error that clients understand.
/// `report` is told how it ended, where it belongs to this answer alone.
pub fn answer(
    provider: &Provider,
    dialect: Dialect,
    response: Response,
    report: Option<Report>,
) -> DropInAnswer {
    let status = response.status().as_u16();
    let headers = provider::response_headers(response.headers());
    let passing = Passing {
        provider: provider.clone(),
        dialect,
        is_refusal: !response.status().is_success(),
        is_events: is_event_stream(&response),
        response: Some(response),
        report,
    };
    let chunks = stream::unfold(passing, |mut passing| async {
        let next = passing.next().await?;
        Some((next, passing))
    });
    DropInAnswer {
        status,
        headers,
        body: AnswerBody::Stream(chunks.boxed()),
    }
}

struct Passing {
    provider: Provider,
    dialect: Dialect,
    is_refusal: bool,
    is_events: bool,
    /// What is still being read.
    response: Option<Response>,
    report: Option<Report>,
}

impl Passing {
    async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        let response = self.response.as_mut()?;
        let begun = Instant::now();
        let chunk = self.provider.chunk(response).await;
        if let Some(report) = &mut self.report {
            report.figures.model += begun.elapsed();
        }
        match chunk {
            Ok(Some(bytes)) => Some(Ok(bytes)),
            Ok(None) => {
                self.end(if self.is_refusal { "refused" } else { "passed" });
                None
            }
            Err(failure) => {
                self.end(failure.code);
                Some(self.told(failure))
            }
        }
    }

    fn end(&mut self, outcome: &'static str) {
        self.response = None;
        if let Some(report) = &mut self.report {
            report.outcome = outcome;
        }
    }

    fn told(&self, failure: Failure) -> Result<Bytes, Failure> {
        // A stream of messages may have broken off within one, and cannot go on after that.
        if !self.is_events || self.dialect.framing() == Framing::Messages {
            return Err(failure);
        }
        // The stream may have broken off within an event, which ends here.
        let mut event = b"\n\n".to_vec();
        event.extend_from_slice(&self.dialect.error_event(&failure));
        Ok(event.into())
    }
}
