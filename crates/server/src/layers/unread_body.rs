//! The rest of a body whose request was refused. A connection that is closed while its client still
//! sends may lose the answer on its way: the client then sees a broken connection, and not why.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// How much of a body is read for nothing, and for how long. Most clients that are refused have sent
/// a body somewhat larger than allowed, or one of ordinary size without a good key.
const MAX_BYTES: usize = 32 << 20;
const MAX_TIME: Duration = Duration::from_secs(2);
/// A client that pauses for longer waits for the answer, or is gone.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// What a handler has left of a body.
pub struct UnreadBody(Option<Arc<Mutex<Body>>>);

impl UnreadBody {
    /// The request, whose body goes on after the handler has dropped it.
    pub fn of(request: Request) -> (Request, Self) {
        // A client that waits for `100 Continue` sends nothing before the body is read.
        let waits = request.headers().contains_key(header::EXPECT);
        if waits || request.body().is_end_stream() {
            return (request, UnreadBody(None));
        }
        let (parts, body) = request.into_parts();
        let body = Arc::new(Mutex::new(body));
        let lent = Body::new(LentBody(Arc::clone(&body)));
        (Request::from_parts(parts, lent), UnreadBody(Some(body)))
    }

    /// Reads on to the end, within bounds, and drops what comes.
    pub async fn discard(self) {
        if let Some(body) = self.0 {
            let _ = timeout(MAX_TIME, discard(body)).await;
        }
    }
}

async fn discard(body: Arc<Mutex<Body>>) {
    let mut left = MAX_BYTES;
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body.lock()).poll_frame(context));
        // The body ended, broke off, or pauses for too long.
        let Ok(Some(Ok(frame))) = timeout(MAX_PAUSE, frame).await else {
            return;
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

/// A body that belongs to somebody else.
struct LentBody(Arc<Mutex<Body>>);

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}
