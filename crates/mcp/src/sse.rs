//! The transport of protocol version 2024-11-05 over HTTP: one stream of server-sent events brings
//! all messages of the server, and names the URL to which messages for it are posted.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, Sink, sink};
use tokio_util::io::StreamReader;

use crate::Limits;
use crate::authorized::{AuthorizedClient, HttpError};
use crate::lines::Lines;
use toolscout_base::printable::excerpt;

/// Longest wait for the answer to a message. The result of a call comes over the stream.
const POST_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of the URL for messages.
const MAX_ENDPOINT_BYTES: usize = 8 << 10;

type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// A connection over the old transport.
///
/// - Guarantee: messages are posted to the origin of the server only; one that is too long becomes
///   an error of the call that it answers.
/// - Failure: when the stream ends, so does the connection.
pub struct SseTransport {
    client: AuthorizedClient,
    /// Where messages for the server are posted.
    endpoint: Url,
    headers: HeaderMap,
    /// The messages of the server, a line each.
    messages: AsyncRwTransport<RoleClient, Lines<Reader>, Sink>,
}

impl SseTransport {
    /// Opens the stream, and waits for the URL that messages are posted to.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn open(
        client: AuthorizedClient,
        url: &Url,
        headers: HeaderMap,
        server: Arc<str>,
        limits: &Limits,
    ) -> Result<Self, HttpError> {
        let response = client
            .send(|| {
                let request = client.requests().get(url.clone());
                request
                    .headers(headers.clone())
                    .header(ACCEPT, "text/event-stream")
            })
            .await?;
        if !is_event_stream(&response) {
            let status = response.status();
            return Err(unexpected(format!(
                "HTTP {status}: not a stream of server-sent events"
            )));
        }
        // That of the stream itself, after a redirect.
        let url = response.url().clone();
        let mut events = EventLines::default();
        let mut chunks = response.bytes_stream().boxed();
        let mut start = Vec::new();
        let end_of_first = loop {
            let end = start.iter().position(|byte| *byte == b'\n');
            if end.unwrap_or(start.len()) > MAX_ENDPOINT_BYTES {
                return Err(unexpected("its stream names no URL for messages".into()));
            }
            if let Some(end) = end {
                break end;
            }
            let chunk = chunks.next().await;
            let chunk = chunk.ok_or(HttpError::UnexpectedEndOfStream)??;
            start.extend(events.take(&chunk));
        };
        let rest = Bytes::from(start.split_off(end_of_first + 1));
        let endpoint = endpoint(&url, &String::from_utf8_lossy(&start))?;
        let lines = Lines::new(reader(rest, chunks, events), server, limits.message_bytes);
        let messages =
            AsyncRwTransport::new_client(lines, sink()).with_max_line_length(limits.message_bytes);
        Ok(SseTransport {
            client,
            endpoint,
            headers,
            messages,
        })
    }
}

/// The lines of a stream, the first of which have come already.
fn reader(
    first: Bytes,
    chunks: impl Stream<Item = reqwest::Result<Bytes>> + Send + Unpin + 'static,
    mut events: EventLines,
) -> Reader {
    let rest = chunks.map(move |chunk| match chunk {
        Ok(chunk) => Ok(Bytes::from(events.take(&chunk))),
        Err(error) => Err(io::Error::other(error)),
    });
    let all = stream::once(std::future::ready(Ok(first))).chain(rest);
    Box::new(StreamReader::new(all))
}

/// The URL for messages, which is of the origin of the stream: with it go the headers and the token
/// that are for this server alone.
fn endpoint(url: &Url, named: &str) -> Result<Url, HttpError> {
    let named = named.trim();
    if let Ok(endpoint) = url.join(named)
        && endpoint.origin() == url.origin()
    {
        return Ok(endpoint);
    }
    let (named, origin) = (excerpt(named, 200), url.origin().ascii_serialization());
    Err(unexpected(format!(
        "it wants messages to be posted to {named:?}, which is no URL of {origin}"
    )))
}

fn is_event_stream(response: &Response) -> bool {
    match response.headers().get(CONTENT_TYPE) {
        Some(kind) if response.status().is_success() => {
            kind.as_bytes().starts_with(b"text/event-stream")
        }
        _ => false,
    }
}

fn unexpected(reason: String) -> HttpError {
    HttpError::UnexpectedServerResponse(reason.into())
}

impl Transport<RoleClient> for SseTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        let headers = self.headers.clone();
        async move {
            let response = client
                .send(|| {
                    let request = client.requests().post(endpoint.clone());
                    let request = request.headers(headers.clone()).timeout(POST_LIMIT);
                    request.json(&message)
                })
                .await?;
            // The body says nothing that a client needs, and is not read.
            match response.status() {
                status if status.is_success() => Ok(()),
                status => Err(unexpected(format!("HTTP {status} to a message"))),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.receive().await
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        // Dropping the stream ends the connection.
        self.messages.close().await.map_err(HttpError::Io)
    }
}

/// Turns a stream of events into lines, one for the data of each event. Keeps nothing of a line but
/// what kind it is, so that an event of any length costs no memory here.
#[derive(Default)]
struct EventLines {
    line: LinePart,
    /// Whether the event has had data.
    has_data: bool,
    after_cr: bool,
}

/// Where in a line of the stream the next byte is.
#[derive(Clone, Copy)]
enum LinePart {
    /// In the name of the field, of which so many bytes are those of `data:`.
    Name(usize),
    /// Behind `data:`, where one space may follow.
    BeforeData,
    Data,
    Other,
}

impl Default for LinePart {
    fn default() -> Self {
        LinePart::Name(0)
    }
}

impl EventLines {
    const NAME: &[u8] = b"data:";

    /// The bytes of the lines that these bytes of the stream belong to.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut lines = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            // A `\r\n` may be split between two reads.
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(&mut lines);
                }
                byte => self.take_byte(byte, &mut lines),
            }
        }
        lines
    }

    fn take_byte(&mut self, byte: u8, lines: &mut Vec<u8>) {
        match self.line {
            LinePart::Name(at) if Self::NAME[at] != byte => self.line = LinePart::Other,
            LinePart::Name(at) if at + 1 == Self::NAME.len() => {
                // Line breaks in data are spaces between the parts of its JSON.
                lines.extend(self.has_data.then_some(b' '));
                (self.line, self.has_data) = (LinePart::BeforeData, true);
            }
            LinePart::Name(at) => self.line = LinePart::Name(at + 1),
            LinePart::BeforeData if byte == b' ' => self.line = LinePart::Data,
            LinePart::BeforeData | LinePart::Data => {
                self.line = LinePart::Data;
                lines.push(byte);
            }
            LinePart::Other => {}
        }
    }

    fn end_line(&mut self, lines: &mut Vec<u8>) {
        let is_empty = matches!(std::mem::take(&mut self.line), LinePart::Name(0));
        if is_empty && std::mem::take(&mut self.has_data) {
            lines.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_events_become_lines_wherever_bytes_are_split() {
        let stream = ": hello\r\nevent: endpoint\r\ndata: /m?s=1\r\n\r\n\n\
            id: 7\ndata:{\"a\":\ndata: 1}\nretry: 3\n\ndat: no\ndata\n\n: ping\n\n\
            event: message\rdata:  {}\r\rdata: unfinished";
        for size in 1..=stream.len() {
            let mut events = EventLines::default();
            let lines: Vec<u8> = stream
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| events.take(chunk))
                .collect();
            assert_eq!(
                String::from_utf8(lines).unwrap(),
                "/m?s=1\n{\"a\": 1}\n {}\nunfinished",
                "in parts of {size}"
            );
        }
    }

    #[test]
    fn messages_are_posted_to_the_origin_of_the_stream_only() {
        let url: Url = "https://a.example:8443/x/sse".parse().unwrap();
        for (named, expected) in [
            ("/messages?s=1", "https://a.example:8443/messages?s=1"),
            ("m", "https://a.example:8443/x/m"),
            ("https://a.example:8443/m", "https://a.example:8443/m"),
        ] {
            assert_eq!(endpoint(&url, named).unwrap().as_str(), expected);
        }
        for named in [
            "https://a.example/m",
            "http://a.example:8443/m",
            "//b.example:8443/m",
            "https://a.example:8443@b.example/m",
            "file:///m",
            "data:,x",
        ] {
            let refused = endpoint(&url, named).unwrap_err().to_string();
            assert!(
                refused.contains("no URL of https://a.example:8443"),
                "{refused}"
            );
        }
    }
}
