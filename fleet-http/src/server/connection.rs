//! Accepting connections and answering on them, until the end.

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

use super::closing::Closing;
use super::handshake::{self, Arrival, Opened};
use super::idle::{Arriving, Held, Idle, Seat};
use super::limits::{Door, Limits};
use super::listener::Listener;
use super::patient::Patient;
use super::pause::pause;

/// How long connections may take to finish after the end was asked for. Then they are cut off:
/// an answer that nobody reads would not finish for long.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait when the system has no more files for connections.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// The least room that hyper accepts for the head of a request.
const LEAST_HEAD: usize = 8192;

/// Answers on a listener until `shutdown` is ready. Streams of events end then, and requests that
/// have begun have three seconds more to finish. No client takes more than the default [`Limits`].
///
/// Returning is not a failure: whatever happens to one connection ends that one alone.
pub async fn serve(listener: Listener, router: Router, shutdown: impl Future<Output = ()>) {
    serve_within(listener, router, Limits::default(), shutdown).await;
}

/// [`serve`] with other limits.
pub async fn serve_within(
    listener: Listener,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let (open, closing) = Closing::new();
    let front = Front::new(router, listener.door(limits), closing);
    let mut connections = JoinSet::new();
    accept(&listener, &front, &graceful, &mut connections, shutdown).await;
    drop((listener, open));
    tokio::select! {
        () = graceful.shutdown() => {}
        () = pause(GRACE) => tracing::debug!("connections are cut off"),
    }
    connections.shutdown().await;
}

/// Accepts connections until `shutdown` is ready.
async fn accept(
    listener: &Listener,
    front: &Front,
    graceful: &GracefulShutdown,
    connections: &mut JoinSet<()>,
    shutdown: impl Future<Output = ()>,
) {
    let hall = Hall::new(front.door.limits.connections.max(1));
    // It may have accepted one that there is no room for yet, so it is never begun anew in between.
    let (mut next, mut shutdown) = (pin!(hall.next(listener)), pin!(shutdown));
    loop {
        let (arrival, permit) = tokio::select! {
            accepted = &mut next => accepted,
            Some(_ended) = connections.join_next() => continue,
            () = &mut shutdown => return,
        };
        next.set(hall.next(listener));
        let seat = Seat::new(&hall.idle);
        connections.spawn(answer(arrival, permit, seat, front.clone(), graceful.watcher()));
    }
}

/// The room that there is for connections.
struct Hall {
    room: Arc<Semaphore>,
    idle: Arc<Idle>,
}

impl Hall {
    fn new(most: usize) -> Self {
        let room = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        Self { room: Arc::new(room), idle: Arc::default() }
    }

    /// The next connection, once there is room for it.
    async fn next(&self, listener: &Listener) -> (Arrival, OwnedSemaphorePermit) {
        loop {
            match listener.accept().await {
                Ok(arrival) => return (arrival, self.permit().await),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept a connection");
                    self.idle.end_longest();
                    pause(EXHAUSTED).await;
                }
            }
        }
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        if let Ok(permit) = self.room.clone().try_acquire_owned() {
            return permit;
        }
        let made_room = async {
            self.idle.end_one().await;
            std::future::pending().await
        };
        let permit = tokio::select! {
            permit = self.room.clone().acquire_owned() => permit,
            never = made_room => never,
        };
        permit.expect("the semaphore is never closed")
    }
}

/// Answers the requests of one connection.
async fn answer(
    arrival: Arrival,
    permit: OwnedSemaphorePermit,
    seat: Arc<Seat>,
    mut front: Front,
    watcher: Watcher,
) {
    let limits = front.door.limits;
    let opened = tokio::select! {
        opened = handshake::open(arrival, limits.handshake_time) => opened,
        () = seat.ended() => return,
        () = front.closing.clone().closed() => return,
    };
    let Some(Opened { stream, shown_to }) = opened else { return };
    front.door.shown_to = shown_to;
    let stream = TokioIo::new(Patient::new(stream, limits.write_time, seat.clone()));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(limits.head_size.max(LEAST_HEAD))
        .serve_connection(stream, Seated { seat: seat.clone(), front });
    tokio::select! {
        biased;
        ended = watcher.watch(connection) => if let Err(error) = ended {
            tracing::debug!(error = %error, "a connection broke");
        },
        () = seat.ended() => tracing::debug!("a connection that waited makes room for another"),
    }
    drop(permit);
}

/// The router as connections use it.
#[derive(Clone)]
struct Front {
    router: TowerToHyperService<Router>,
    door: Door,
    closing: Closing,
}

impl Front {
    fn new(router: Router, door: Door, closing: Closing) -> Self {
        Self { router: TowerToHyperService::new(router), door, closing }
    }
}

/// The router for the requests of one connection.
struct Seated {
    seat: Arc<Seat>,
    front: Front,
}

/// A request came on a connection that had to make room at that moment; it is not carried out.
#[derive(Debug, thiserror::Error)]
#[error("the connection had to make room for another")]
struct TooLate;

impl Service<Request<Incoming>> for Seated {
    type Response = Response;
    type Error = TooLate;
    type Future = Pin<Box<dyn Future<Output = Result<Response, TooLate>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let Some(busy) = self.seat.begin() else {
            return Box::pin(async { Err(TooLate) });
        };
        request.extensions_mut().insert(self.front.door.clone());
        request.extensions_mut().insert(self.front.closing.clone());
        let request = request.map(|body| Arriving::new(body, self.seat.clone()));
        let answer = self.front.router.call(request);
        Box::pin(async move {
            let Ok(answer) = answer.await;
            Ok(answer.map(|body| Body::new(Held::new(body, busy))))
        })
    }
}
