//! Polling waits, shared by all test binaries.

use std::time::Duration;

/// Time limit for everything that has to happen.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until the condition holds.
pub(crate) async fn wait_until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
