//! Accepting and serving connections: their number, their timeouts and their end.

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

use self::open::{Admission, BusyBody, ConnectionPermit, Connections};
use crate::process::limits::Limits;
use crate::process::shutdown::Shutdown;
use toolscout_base::telemetry::Metrics;

/// Most headers of a request; more answer 431.
const MAX_HEADERS: usize = 100;
/// The buffer of a connection. The headers of a request must fit into it.
const BUFFER_BYTES: usize = 64 << 10;
/// Pause after accepting failed, which mostly means that no file descriptors are left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves connections until the shutdown. Open ones may then finish within the grace period.
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
    // Each connection is a task, so that a slow one does not hold up the others.
    let mut tasks = JoinSet::new();
    // An accepted connection that waits for a permit. Further ones wait in the system's backlog.
    let mut waiting: Option<(TcpStream, IpAddr)> = None;
    loop {
        tokio::select! {
            () = server.shutdown.triggered() => break,
            // Ended tasks are joined at once: the set would keep them.
            Some(_) = tasks.join_next() => continue,
            stream = accept(&listener), if waiting.is_none() => waiting = stream,
            () = open.changed(), if waiting.is_some() => {}
        }
        let Some((stream, address)) = waiting.take() else {
            continue;
        };
        // A refused connection is dropped, which closes it.
        match open.admit(address) {
            Admission::Admitted(permit) => drop(tasks.spawn(server.clone().serve(stream, permit))),
            Admission::Full => waiting = Some((stream, address)),
            Admission::Refused => metrics.rejected("address"),
        }
    }
    // New connections are refused from now on, so that clients go to another server.
    drop(listener);
    let finishing = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.grace, finishing).await.is_err() {
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
    async fn serve(self, stream: TcpStream, permit: ConnectionPermit) {
        // Answers are written whole, so waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        let io = TokioIo::new(StallTimeout::new(stream, self.write_stall));
        let router = TowerToHyperService::new(self.router);
        let service = service_fn(|request| answer(&router, &permit, request));
        let mut connection = pin!(self.http.serve_connection(io, service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            // Closed to make room for another connection.
            () = permit.revoked() => return,
            () = first_request_overdue(&permit, self.first_request_timeout) => return,
            () = self.shutdown.triggered() => {
                // Finishes the request in progress and takes no further one.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// Answers a request. Until the end of its answer, the connection is not closed to make room.
async fn answer(
    router: &TowerToHyperService<Router>,
    permit: &ConnectionPermit,
    request: Request<Incoming>,
) -> io::Result<Response> {
    let Some(in_progress) = permit.begin_request() else {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the connection was closed to make room for another one",
        ));
    };
    let answer: Result<Response, Infallible> = router.call(request).await;
    let Ok(response) = answer;
    Ok(response.map(|body| Body::new(BusyBody::new(body, in_progress))))
}

/// Ends after the timeout if no request has arrived, and otherwise never.
async fn first_request_overdue(permit: &ConnectionPermit, timeout: Duration) {
    tokio::time::sleep(timeout).await;
    if permit.has_had_request() {
        std::future::pending().await
    }
}

/// A stream whose writes fail when the reader takes nothing for `limit`.
struct StallTimeout<S> {
    inner: S,
    limit: Duration,
    /// Runs while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> StallTimeout<S> {
    fn new(inner: S, limit: Duration) -> Self {
        StallTimeout {
            inner,
            limit,
            stalled: None,
        }
    }

    /// Fails a write that has been pending for too long.
    fn check_stall<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        // Progress resets the timer.
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
            "the client stopped reading the answer",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.check_stall(context, write)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.inner).poll_flush(context);
        self.check_stall(context, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.inner).poll_shutdown(context);
        self.check_stall(context, shutdown)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.check_stall(context, write)
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
    async fn writing_to_a_client_that_does_not_read_times_out() {
        let (near, _far) = tokio::io::duplex(16);
        let mut stream = StallTimeout::new(near, Duration::from_millis(1));
        let error = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
