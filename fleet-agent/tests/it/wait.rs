//! Waits for what nothing tells of; all binaries of tests share it.

use std::time::Duration;

/// How long a test waits for what must happen at all.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until something is so that nothing tells of.
pub(crate) async fn wait_until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
