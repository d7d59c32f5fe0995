//! Accepting connections, and how long each may take its time.
//!
//! Here: the bound on connections, the time limits on silence and on headers, and the end of connections at
//! a shutdown. Not here: what is answered (`http`), the limit on a body's time (`body`).
//!
//! hyper has one timer for a request's headers and for the silence between requests. They need two: a
//! half-sent header should end soon, an idle connection of a proxy should not be closed before the proxy
//! would close it (the proxy might be sending a callback at that very moment). So the timer stands here.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::{Request, Response, body::Body, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{gateway::Limits, http::metrics};

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// Every connection came to its own end.
    ToTheEnd,
    /// Some were cut off.
    CutOff,
}

/// What hyper needs at the least, and more than enough: bodies are read in pieces of at most this.
const BUFFER_BYTES: usize = 64 * 1024;

/// Accepts until `stop`, then waits for the connections until `kill`. When all `connections` are taken,
/// further ones wait in the kernel's backlog, which is bounded, and cost nothing here.
pub(crate) async fn accept<F, Fut, B>(
    listener: TcpListener,
    name: &'static str,
    answer: F,
    limits: Limits,
    connections: usize,
    stop: CancellationToken,
    kill: CancellationToken,
) -> Served
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(connections.max(1)));
    let graceful = GracefulShutdown::new();
    let open = ::metrics::gauge!(metrics::CONNECTIONS, "listener" => name);
    loop {
        let next = async {
            // The semaphore is never closed; if it were, nothing more would be accepted.
            let place = Arc::clone(&places).acquire_owned().await.ok()?;
            Some((place, listener.accept().await))
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            Some(next) = next => next,
            else => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                rest_after(name, &error).await;
                continue;
            }
        };
        // A last byte must not wait for the peer's acknowledgement of the ones before. If the option cannot
        // be set the connection is already gone, and reading will say so.
        let _ = stream.set_nodelay(true);
        let pace = Pace { limits, places: Arc::clone(&places), all: connections.max(1), phase: Arc::default() };
        let serving = serve(stream, answer.clone(), pace, graceful.watcher(), kill.clone());
        let open = open.clone();
        tokio::spawn(async move {
            open.increment(1.0);
            serving.await;
            open.decrement(1.0);
            drop(place);
        });
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => Served::ToTheEnd,
        () = kill.cancelled() => Served::CutOff,
    }
}

/// A connection that was reset before it was accepted costs nothing; out of file handles, others will be
/// closed in a moment.
async fn rest_after(name: &'static str, error: &io::Error) {
    let gone = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionRefused];
    if !gone.contains(&error.kind()) {
        tracing::warn!(listener = name, %error, "a connection could not be accepted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Serves one connection until it ends, takes too long, or is cut off.
async fn serve<F, Fut, B>(
    stream: TcpStream,
    answer: F,
    pace: Pace,
    graceful: hyper_util::server::graceful::Watcher,
    kill: CancellationToken,
) where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let phase = Arc::clone(&pace.phase);
    let service = service_fn(move |request| {
        let phase = Arc::clone(&phase);
        phase.set(Phase::Serving);
        let answered = answer(request);
        async move {
            let response = answered.await;
            phase.set(Phase::Idle(Instant::now()));
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(BUFFER_BYTES).max_header_size(pace.limits.header_bytes);
    // hyper's own 100 need no memory of their own per request.
    if pace.limits.header_count != 100 {
        builder.max_headers(pace.limits.header_count);
    }
    let io = TokioIo::new(Watched { stream, phase: Arc::clone(&pace.phase) });
    let mut connection = pin!(graceful.watch(builder.serve_connection(io, service)));
    let mut alarm = pin!(tokio::time::sleep(pace.limits.header_read_timeout));
    let paced = poll_fn(|cx| {
        // However it ended: what was booked is booked, and what was not answered is sent again.
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let Some(due) = pace.due() else { return Poll::Pending };
            let now = Instant::now();
            if due <= now {
                return Poll::Ready(());
            }
            // At most one header's time ahead, so that an idle connection notices when it gets crowded. A
            // later deadline is not set at once but when the alarm rings: most requests need no timer at all.
            let ring = due.min(now + pace.limits.header_read_timeout);
            if alarm.is_elapsed() || alarm.deadline() > ring {
                alarm.as_mut().reset(ring);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    });
    tokio::select! {
        biased;
        () = kill.cancelled() => {}
        () = paced => {}
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Accepted, and silent so far.
    Silent(Instant),
    /// Between requests.
    Idle(Instant),
    /// Part of a request's headers is here.
    Head(Instant),
    /// A request is being answered; its own deadline counts.
    Serving,
}

struct SharedPhase(Mutex<Phase>);

impl Default for SharedPhase {
    fn default() -> Self {
        Self(Mutex::new(Phase::Silent(Instant::now())))
    }
}

impl SharedPhase {
    fn get(&self) -> Phase {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    fn bytes_arrived(&self) {
        let mut phase = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Silent(_) | Phase::Idle(_)) {
            *phase = Phase::Head(Instant::now());
        }
    }
}

/// By when a connection must have got on.
struct Pace {
    limits: Limits,
    places: Arc<Semaphore>,
    all: usize,
    phase: Arc<SharedPhase>,
}

impl Pace {
    fn due(&self) -> Option<Instant> {
        let (since, allowed) = match self.phase.get() {
            Phase::Silent(since) | Phase::Head(since) => (since, self.limits.header_read_timeout),
            Phase::Idle(since) if self.is_crowded() => (since, self.limits.header_read_timeout),
            Phase::Idle(since) => (since, self.limits.keep_alive_idle),
            Phase::Serving => return None,
        };
        Some(since + allowed)
    }

    fn is_crowded(&self) -> bool {
        self.places.available_permits() * 4 < self.all
    }
}

/// The stream, with an eye on when bytes arrive.
struct Watched {
    stream: TcpStream,
    phase: Arc<SharedPhase>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.phase.bytes_arrived();
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
