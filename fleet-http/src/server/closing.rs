//! The end of a server, for answers that would go on for ever.

use std::future::pending;

use axum::extract::Extension;
use tokio::sync::watch;

/// Tells answers that their server ends. A copy comes with every request.
#[derive(Debug, Clone)]
pub(super) struct Closing(watch::Receiver<()>);

impl Closing {
    /// The end comes when what is returned first is dropped.
    pub(super) fn new() -> (watch::Sender<()>, Self) {
        let (open, closing) = watch::channel(());
        (open, Self(closing))
    }

    /// Waits until the server ends.
    pub(super) async fn closed(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Waits until the server of a request ends. A router that is used in another way never does.
pub(super) async fn closed(closing: Option<Extension<Closing>>) {
    match closing {
        Some(Extension(closing)) => closing.closed().await,
        None => pending().await,
    }
}
