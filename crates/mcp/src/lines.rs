//! Reading the output of a server line by line, and replacing messages that are too long.
//!
//! The SDK drops a line beyond its limit, and a call whose answer it is would wait until its
//! timeout. So this reader looks for the id at both ends of such a line, and replaces it by an
//! error with the same id.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes stored of both ends of a line. The id is near one of them.
const EDGE_BYTES: usize = 256;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A reader that passes on lines up to a limit.
pub struct Lines<R> {
    inner: R,
    server: Arc<str>,
    max_bytes: usize,
    line: LineBuffer,
    /// Bytes to pass on.
    ready: VecDeque<u8>,
    chunk: Box<[u8]>,
    noise_logged: bool,
}

/// The ends of the line that is being read.
#[derive(Default)]
struct LineBuffer {
    bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `max_bytes`.
    pub fn new(inner: R, server: Arc<str>, max_bytes: usize) -> Self {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        Lines {
            inner,
            server,
            max_bytes,
            line: LineBuffer::default(),
            ready: VecDeque::new(),
            chunk,
            noise_logged: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (content, ends) = match part.split_last() {
                Some((b'\n', content)) => (content, true),
                _ => (part, false),
            };
            // One byte beyond the limit is passed on, so that the SDK drops the line as too long.
            let free_bytes = (self.max_bytes + 1)
                .saturating_sub(self.line.bytes)
                .min(content.len());
            self.ready.extend(&content[..free_bytes]);
            self.line.push(content);
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        self.ready.push_back(b'\n');
        let line = std::mem::take(&mut self.line);
        // The error follows the line, of which the SDK drops what was passed on.
        if line.bytes > self.max_bytes {
            tracing::warn!(server = %self.server, bytes = line.bytes, max = self.max_bytes, "a message is too long; it was replaced by an error");
            self.ready.extend(line.replacement(self.max_bytes));
        } else if line.is_noise() && !std::mem::replace(&mut self.noise_logged, true) {
            let excerpt = String::from_utf8_lossy(&line.head);
            tracing::warn!(server = %self.server, %excerpt, "the server writes lines to its standard output that are not messages; they are ignored");
        }
    }
}

impl LineBuffer {
    fn push(&mut self, content: &[u8]) {
        self.bytes += content.len();
        // The head is filled once; the tail always has the last bytes.
        let wanted = EDGE_BYTES
            .saturating_sub(self.head.len())
            .min(content.len());
        self.head.extend_from_slice(&content[..wanted]);
        let last = &content[content.len().saturating_sub(EDGE_BYTES)..];
        self.tail.extend(last);
        let excess = self.tail.len().saturating_sub(EDGE_BYTES);
        self.tail.drain(..excess);
    }

    /// Whether the line is text other than a JSON object or array.
    fn is_noise(&self) -> bool {
        let first = self.head.iter().find(|byte| !byte.is_ascii_whitespace());
        !matches!(first, None | Some(b'{' | b'['))
    }

    /// The error that replaces this line; empty if its id cannot be found.
    fn replacement(mut self, max_bytes: usize) -> Vec<u8> {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        let tail = String::from_utf8_lossy(self.tail.make_contiguous()).into_owned();
        let Some(id) = id_at_start(&head).or_else(|| id_at_end(&tail)) else {
            return Vec::new();
        };
        let message = format!(
            "the answer has {} bytes, {max_bytes} are allowed; ask for less at once",
            self.bytes
        );
        let replacement =
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": message } });
        format!("{replacement}\n").into_bytes()
    }
}

/// The id before the first nested value.
fn id_at_start(head: &str) -> Option<Value> {
    let top = head.trim_start().strip_prefix('{')?;
    id_in(&top[..top.find(['{', '[']).unwrap_or(top.len())])
}

/// The id after the last nested value.
fn id_at_end(tail: &str) -> Option<Value> {
    let top = tail.trim_end().strip_suffix('}')?;
    id_in(&top[top.rfind(['}', ']']).map_or(0, |at| at + 1)..])
}

fn id_in(fields: &str) -> Option<Value> {
    let after = fields
        .split_once("\"id\"")?
        .1
        .trim_start()
        .strip_prefix(':')?;
    let value = after.split(',').next()?.trim();
    match serde_json::from_str(value).ok()? {
        id @ (Value::Number(_) | Value::String(_)) => Some(id),
        // A null id, and any other value, belongs to no request.
        _ => None,
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.ready.is_empty() {
            let mut read = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut read))?;
            let bytes = read.filled().len();
            if bytes == 0 {
                return Poll::Ready(Ok(()));
            }
            // Moved out for the call, since `take` borrows the whole reader.
            let chunk = std::mem::take(&mut this.chunk);
            this.take(&chunk[..bytes]);
            this.chunk = chunk;
        }
        // Only the first half of the ring buffer; the reader asks again for the second.
        let (front, _) = this.ready.as_slices();
        let passed = front.len().min(out.remaining());
        out.put_slice(&front[..passed]);
        this.ready.drain(..passed);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn passed(input: &str, max_bytes: usize) -> String {
        let mut lines = Lines::new(input.as_bytes(), "s".into(), max_bytes);
        let mut output = String::new();
        lines.read_to_string(&mut output).await.unwrap();
        output
    }

    #[tokio::test]
    async fn short_lines_pass_as_they_are() {
        let input = "{\"a\":1}\nnoise\n\n{\"b\":\"é\"}\nunfinished";
        assert_eq!(passed(input, 12).await, input);
    }

    #[tokio::test]
    async fn a_long_answer_becomes_an_error_of_its_id() {
        let filler = "x".repeat(1 << 20);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"id":1,"text":"{filler}"}}}}"#),
                json!(7),
            ),
            (
                format!(r#"{{"result":{{"id":1,"text":"{filler}"}},"jsonrpc":"2.0","id":"a-8"}}"#),
                json!("a-8"),
            ),
        ] {
            let output = passed(&format!("{line}\n{{\"next\":1}}\n"), 1000).await;
            let lines: Vec<&str> = output.lines().collect();
            assert_eq!(
                (lines.len(), lines[0].len(), lines[2]),
                (3, 1001, "{\"next\":1}")
            );
            let replacement: Value = serde_json::from_str(lines[1]).unwrap();
            assert_eq!(replacement["id"], id);
            assert!(
                replacement["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("1000 are allowed"),
                "{replacement}"
            );
        }
    }

    #[tokio::test]
    async fn an_id_inside_of_the_result_is_not_taken_for_the_answers() {
        let filler = "x".repeat(5000);
        let notification = format!(r#"{{"jsonrpc":"2.0","params":{{"a":"{filler}","id":3}}}}"#);
        assert_eq!(
            passed(&format!("{notification}\n"), 1000)
                .await
                .lines()
                .count(),
            1
        );
    }
}
