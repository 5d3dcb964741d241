//! Accepts connections, opens TLS, and serves requests until shutdown, which also ends endless
//! responses. Stalled writes time out.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection_slots::{ConnectionSlot, IdleQueue, RequestBody, ResponseGuard};
use super::limits::{ConnectionOrigin, ServerLimits};
use super::listen::Listener;
use crate::ServerTls;
use crate::duplex::BoxedStream;
use crate::server::auth::ReadPermit;
use crate::wire::{ErrorBody, ErrorEntity};

/// Time that open connections have to finish after shutdown begins. Connections that are still open
/// then are closed, because a client that does not read its response would delay the shutdown
/// forever.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// Delay before accepting again after an error, such as exhausted file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Minimum buffer size that hyper accepts for request heads.
const MIN_HEAD_SIZE: usize = 8192;

/// Serves requests on a listener until `shutdown` completes. On shutdown, followed journals and
/// event streams end at once, and other requests in progress have three more seconds. The default
/// [`ServerLimits`] apply.
///
/// An error of one connection ends only that connection.
pub async fn serve(listener: Listener, router: Router, shutdown: impl Future<Output = ()>) {
    serve_with_limits(listener, router, ServerLimits::default(), shutdown).await;
}

/// Serves requests like [`serve`], but with the given limits.
pub async fn serve_with_limits(
    listener: Listener,
    router: Router,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let (running, ended) = Shutdown::new();
    let service = ConnectionService::new(router, listener.origin(limits), ended);
    let mut connections = JoinSet::new();
    accept(&listener, &service, &graceful, &mut connections, shutdown).await;
    drop((listener, running));
    tokio::select! {
        () = graceful.shutdown() => {}
        () = sleep(SHUTDOWN_GRACE) => tracing::debug!("closing the remaining connections"),
    }
    connections.shutdown().await;
}

/// Accepts connections until `shutdown` completes.
async fn accept(
    listener: &Listener,
    service: &ConnectionService,
    graceful: &GracefulShutdown,
    connections: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) {
    let limit = ConnectionLimit::new(service.origin.limits.connections.max(1));
    // The future may hold an accepted connection that waits for a free slot, so it is never
    // dropped.
    let (mut next, mut shutdown) = (pin!(limit.next(listener)), pin!(shutdown));
    loop {
        let (accepted, permit) = tokio::select! {
            accepted = &mut next => accepted,
            Some(_ended) = connections.join_next() => continue,
            () = &mut shutdown => return,
        };
        next.set(limit.next(listener));
        let slot = ConnectionSlot::new(&limit.idle);
        let serving = serve_connection(accepted, permit, slot, service.clone(), graceful.watcher());
        connections.spawn(serving);
    }
}

/// Limits the number of open connections.
struct ConnectionLimit {
    room: Arc<Semaphore>,
    idle: Arc<IdleQueue>,
}

impl ConnectionLimit {
    fn new(max: usize) -> Self {
        let room = Semaphore::new(max.min(Semaphore::MAX_PERMITS));
        Self { room: Arc::new(room), idle: Arc::default() }
    }

    /// Returns the next connection, once there is a free slot for it.
    async fn next(&self, listener: &Listener) -> (AcceptedStream, OwnedSemaphorePermit) {
        loop {
            match listener.accept().await {
                Ok(accepted) => return (accepted, self.permit().await),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept a connection: trying again");
                    self.idle.reclaim_longest();
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.room.clone().try_acquire_owned() {
            return permit;
        }
        let reclaim = async {
            self.idle.reclaim_one().await;
            pending().await
        };
        let permit = tokio::select! {
            permit = self.room.clone().acquire_owned() => permit,
            never = reclaim => never,
        };
        permit.expect("the semaphore is never closed")
    }
}

/// Serves the requests of one connection.
async fn serve_connection(
    accepted: AcceptedStream,
    permit: OwnedSemaphorePermit,
    slot: Arc<ConnectionSlot>,
    mut service: ConnectionService,
    watcher: Watcher,
) {
    let limits = service.origin.limits;
    let handshake = tokio::select! {
        handshake = open_handshake(accepted, limits.handshake_time) => handshake,
        () = slot.reclaimed() => return,
        () = service.shutdown.clone().closed() => return,
    };
    let Some(Handshake { stream, verified_by }) = handshake else { return };
    service.origin.verified_by = verified_by;
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write_time, slot.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_size.max(MIN_HEAD_SIZE))
        .serve_connection(stream, SlotService { slot: slot.clone(), service });
    tokio::select! {
        biased;
        ended = watcher.watch(connection) => if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection failed");
        },
        () = slot.reclaimed() => tracing::debug!("closing an idle connection to make room"),
    }
    drop(permit);
}

/// The router with the state shared by all connections.
#[derive(Clone)]
struct ConnectionService {
    router: TowerToHyperService<Router>,
    origin: ConnectionOrigin,
    shutdown: Shutdown,
}

impl ConnectionService {
    fn new(router: Router, origin: ConnectionOrigin, shutdown: Shutdown) -> Self {
        Self { router: TowerToHyperService::new(router), origin, shutdown }
    }
}

/// The router with the slot of one connection.
struct SlotService {
    slot: Arc<ConnectionSlot>,
    service: ConnectionService,
}

/// Error for a request that arrived just as the server closed its connection to make room for
/// another. The server does not carry out such a request.
#[derive(Debug, thiserror::Error)]
#[error("the server has closed the connection to accept another one")]
struct SlotReclaimed;

impl Service<Request<Incoming>> for SlotService {
    type Response = Response;
    type Error = SlotReclaimed;
    type Future = Pin<Box<dyn Future<Output = Result<Response, SlotReclaimed>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let Some(body) = RequestBody::new(body, self.slot.clone()) else {
            return Box::pin(async { Err(SlotReclaimed) });
        };
        let guard = ResponseGuard(self.slot.clone());
        parts.extensions.insert(self.service.origin.clone());
        parts.extensions.insert(self.service.shutdown.clone());
        let response = self.service.router.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let Ok(mut response) = response.await;
            let permit = response.extensions_mut().remove::<Option<Arc<ReadPermit>>>().flatten();
            Ok(response.map(|body| {
                Body::new(body.map_err(move |error| {
                    // The body keeps both until it is sent.
                    let _kept = (&guard, &permit);
                    error
                }))
            }))
        })
    }
}

/// An accepted connection.
pub(crate) enum AcceptedStream {
    /// A connection without TLS.
    Plain(BoxedStream),
    /// A connection that begins with a TLS handshake.
    Tls(TcpStream, ServerTls),
}

/// A connection that is ready for requests.
pub(crate) struct Handshake {
    pub(crate) stream: BoxedStream,
    /// TLS configuration that verified the client's certificate, if it presented one. `None` makes
    /// the authentication policy refuse requests that need a certificate.
    pub(crate) verified_by: Option<ServerTls>,
}

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Number of bytes read from a plaintext request before the error response.
const PLAINTEXT_READ_SIZE: usize = 8192;

/// Completes the handshake. Returns `None` if it fails or takes longer than `limit`.
pub(crate) async fn open_handshake(accepted: AcceptedStream, limit: Duration) -> Option<Handshake> {
    let (stream, tls) = match accepted {
        AcceptedStream::Plain(stream) => return Some(Handshake { stream, verified_by: None }),
        AcceptedStream::Tls(stream, tls) => (stream, tls),
    };
    match timeout(limit, shake_hands(stream, tls)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake timed out");
            None
        }
    }
}

async fn shake_hands(stream: TcpStream, tls: ServerTls) -> io::Result<Option<Handshake>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] != TLS_HANDSHAKE {
        return refuse_plaintext(stream).await.map(|()| None);
    }
    let stream = TlsAcceptor::from(tls.config()).accept(stream).await?;
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    Ok(Some(Handshake { stream: Box::new(stream), verified_by: has_certificate.then_some(tls) }))
}

/// Responds to plaintext HTTP on a TLS port with an error.
async fn refuse_plaintext(mut stream: TcpStream) -> io::Result<()> {
    // Closing the socket with unread input would reset the connection before the client reads the
    // response.
    let _request = stream.read(&mut [0; PLAINTEXT_READ_SIZE]).await?;
    let message = "this port requires TLS: use https:// instead of http://".to_owned();
    let error = ErrorEntity { code: 400, message, ..ErrorEntity::default() };
    let body = serde_json::to_string(&ErrorBody { error, unit: None })?;
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

type Pause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection on which writes fail if the client reads nothing for longer than `limit`.
pub(crate) struct WriteTimeout {
    stream: BoxedStream,
    limit: Duration,
    /// Slot to notify of flushes.
    slot: Arc<ConnectionSlot>,
    /// Runs while the output is stalled.
    stalled: Option<Pause>,
}

impl WriteTimeout {
    /// Wraps a connection with a limit on the time without progress.
    pub(crate) fn new(stream: BoxedStream, limit: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self { stream, limit, slot, stalled: None }
    }

    fn judge<T>(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if attempt.is_ready() {
            self.stalled = None;
            return attempt;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_flush(cx);
        if attempt.is_ready() {
            self.slot.on_flush();
        }
        self.judge(cx, attempt)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Signals the shutdown of the server to responses. Each request has a copy.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(watch::Receiver<()>);

impl Shutdown {
    /// Creates a signal, which fires when the returned sender is dropped.
    pub(crate) fn new() -> (watch::Sender<()>, Self) {
        let (running, ended) = watch::channel(());
        (running, Self(ended))
    }

    /// Waits until the server shuts down.
    pub(crate) async fn closed(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Waits until the server that handles the request shuts down. Waits forever if the router runs
/// without a server.
pub(crate) async fn closed(shutdown: Option<Extension<Shutdown>>) {
    match shutdown {
        Some(Extension(shutdown)) => shutdown.closed().await,
        None => pending().await,
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    let never = pending::<()>();
    let _elapsed = timeout(duration, never).await;
}
