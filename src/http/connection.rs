//! Connections: how many and whose, how slow, and how they end.

mod open;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use self::open::{Admission, Connections, Held, Place};
use super::Limits;
use crate::shutdown::Shutdown;
use crate::telemetry::Metrics;

/// Most headers of a request; more answer 431.
const MAX_HEADERS: usize = 100;
/// Buffer of a connection, which all its headers have to fit into.
const BUFFER_BYTES: usize = 64 << 10;
/// Rest after the system refused a connection, most often for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Answers connections until the shutdown, then lets those that are open finish for as long as
/// `grace`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
) {
    let open = Arc::new(Connections::new(limits, Arc::clone(&metrics)));
    let server = Server {
        router,
        http: http(limits),
        write_stall: limits.write_stall,
        first_request_timeout: limits.first_request_timeout,
        shutdown,
    };
    let mut tasks = JoinSet::new();
    // The connection that came last, until there is a place for it; those after it wait in the
    // system's backlog.
    let mut waiting: Option<(TcpStream, IpAddr)> = None;
    loop {
        tokio::select! {
            () = server.shutdown.triggered() => break,
            Some(_) = tasks.join_next() => continue,
            stream = accept(&listener), if waiting.is_none() => waiting = stream,
            () = open.changed(), if waiting.is_some() => {}
        }
        let Some((stream, address)) = waiting.take() else {
            continue;
        };
        match open.admit(address) {
            Admission::Admitted(place) => drop(tasks.spawn(server.clone().answer(stream, place))),
            Admission::Full => waiting = Some((stream, address)),
            Admission::Refused => metrics.rejected("address"),
        }
    }
    drop(listener);
    if tokio::time::timeout(limits.grace, async {
        while tasks.join_next().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::warn!(
            connections = tasks.len(),
            "connections were still open at the end of the grace period"
        );
    }
    tasks.shutdown().await;
}

async fn accept(listener: &TcpListener) -> Option<(TcpStream, IpAddr)> {
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address.ip())),
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(BUFFER_BYTES);
    http
}

#[derive(Clone)]
struct Server {
    router: Router,
    http: http1::Builder,
    write_stall: Duration,
    first_request_timeout: Duration,
    shutdown: Shutdown,
}

impl Server {
    async fn answer(self, stream: TcpStream, place: Place) {
        // Answers are small and whole; waiting to fill packets only delays them.
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(Stalling::new(stream, self.write_stall));
        let router = TowerToHyperService::new(self.router);
        let service = service_fn(|request| handle(&router, &place, request));
        let mut connection = pin!(self.http.serve_connection(io, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // Another connection has its place.
            () = place.taken() => return,
            () = overdue(&place, self.first_request_timeout) => return,
            () = self.shutdown.triggered() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Answers a request; until the end of its answer the connection keeps its place.
async fn handle(
    router: &TowerToHyperService<Router>,
    place: &Place,
    request: Request<Incoming>,
) -> io::Result<Response> {
    let Some(in_progress) = place.begin_request() else {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "another connection has the place of this one",
        ));
    };
    let answer: Result<Response, Infallible> = router.call(request).await;
    let Ok(response) = answer;
    Ok(response.map(|body| Body::new(Held::new(body, in_progress))))
}

/// Ends when it is too late for a first request.
async fn overdue(place: &Place, timeout: Duration) {
    tokio::time::sleep(timeout).await;
    if place.has_asked() {
        std::future::pending().await
    }
}

/// A stream that fails when its reader takes nothing for `limit`.
struct Stalling<S> {
    inner: S,
    limit: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalling<S> {
    fn new(inner: S, limit: Duration) -> Self {
        Stalling {
            inner,
            limit,
            stalled: None,
        }
    }

    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.stalled = None;
            return write;
        }
        let limit = self.limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client does not read its answer",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalling<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalling<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(context, write)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(context, shutdown)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.watch(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (near, _far) = tokio::io::duplex(16);
        let mut stalling = Stalling::new(near, Duration::from_millis(1));
        let error = stalling.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
