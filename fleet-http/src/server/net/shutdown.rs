//! Shutdown signal for endless responses, and sleeping for the few places of the server that need
//! it.

use std::future::pending;
use std::time::Duration;

use axum::extract::Extension;
use tokio::sync::watch;

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
    let _elapsed = tokio::time::timeout(duration, never).await;
}
