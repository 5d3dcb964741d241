//! Accepts connections and serves requests until shutdown.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::connection_slots::{ConnectionSlot, IdleQueue, RequestBody, SlotBody};
use super::handshake::{self, AcceptedStream, Handshake};
use super::limits::{ConnectionOrigin, ServerLimits};
use super::listener::Listener;
use super::shutdown::Shutdown;
use super::sleep::sleep;
use super::write_timeout::WriteTimeout;
use crate::server::auth::read_share::ReadPermit;

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
            std::future::pending().await
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
        handshake = handshake::open(accepted, limits.handshake_time) => handshake,
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

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let Some(busy) = self.slot.begin_request() else {
            return Box::pin(async { Err(SlotReclaimed) });
        };
        request.extensions_mut().insert(self.service.origin.clone());
        request.extensions_mut().insert(self.service.shutdown.clone());
        let request = request.map(|body| RequestBody::new(body, self.slot.clone()));
        let response = self.service.router.call(request);
        Box::pin(async move {
            let Ok(mut response) = response.await;
            let permit = response.extensions_mut().remove::<Option<Arc<ReadPermit>>>().flatten();
            Ok(response.map(|body| Body::new(SlotBody::new(body, busy, permit))))
        })
    }
}
