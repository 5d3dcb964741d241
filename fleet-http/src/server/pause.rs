//! Waiting for time to pass, for the few places of the server that have nothing better to wait for.

use std::time::Duration;

/// Waits for `duration`.
pub(super) async fn pause(duration: Duration) {
    let never = std::future::pending::<()>();
    let _elapsed = tokio::time::timeout(duration, never).await;
}
