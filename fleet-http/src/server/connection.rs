//! Accepting connections and answering on them, until the end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::listener::Listener;
use super::pause::pause;
use crate::duplex::BoxedDuplex;

/// How many connections are open at once. At the bound no more are accepted until one ends.
const MOST_CONNECTIONS: usize = 1024;

/// How long a client may take over the head of a request, the time between two requests included.
const HEAD: Duration = Duration::from_secs(60);

/// How large the head of a request may be, in bytes; hyper answers what is larger with 431.
const MOST_HEAD: usize = 64 << 10;

/// How long connections may take to finish after the end was asked for. Then they are cut off:
/// an answer that follows a journal would never finish.
const GRACE: Duration = Duration::from_secs(3);

/// How long to wait when the system has no more files for connections.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// Answers on a listener until `shutdown` is ready, and lets requests that have begun finish for
/// three seconds more.
///
/// Returning is not a failure: whatever happens to one connection ends that one alone.
pub async fn serve(listener: Listener, router: Router, shutdown: impl Future<Output = ()>) {
    let mut shutdown = pin!(shutdown);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let (stream, permit) = tokio::select! {
            next = next(&listener, &room) => next,
            Some(_ended) = connections.join_next() => continue,
            () = &mut shutdown => break,
        };
        connections.spawn(answer(stream, permit, router.clone(), graceful.watcher()));
    }
    drop(listener);
    tokio::select! {
        () = graceful.shutdown() => {}
        () = pause(GRACE) => tracing::debug!("connections are cut off"),
    }
    connections.shutdown().await;
}

/// The next connection, once there is room for one.
async fn next(listener: &Listener, room: &Arc<Semaphore>) -> (BoxedDuplex, OwnedSemaphorePermit) {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok(stream) => return (stream, permit),
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection");
                pause(EXHAUSTED).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn answer(
    stream: BoxedDuplex,
    permit: OwnedSemaphorePermit,
    router: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(error = %error, "a connection broke");
    }
    drop(permit);
}
