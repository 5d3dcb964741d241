//! Sleeping, for the few places of the server that need it.

use std::time::Duration;

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    let never = std::future::pending::<()>();
    let _elapsed = tokio::time::timeout(duration, never).await;
}
