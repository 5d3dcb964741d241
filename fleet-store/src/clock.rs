//! The clock by which stores in this process measure leases, and by which a mirror paces itself.
//!
//! A store without a server is the one to say when a lease has ended, so it has to read a clock. It
//! is tokio's, which a test can stop and move. The limits of calls to a server are measured by it,
//! too. Nothing else in this crate reads the time or waits for it.

use std::time::Duration;

use fleet_core::Timestamp;
use tokio::time::Instant;

/// A clock that counts from its own making.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(self) -> Timestamp {
        Timestamp::from_millis(0).after(self.origin.elapsed())
    }

    /// Waits until `moment`; for ever if there is none.
    pub(crate) async fn wait_until(self, moment: Option<Timestamp>) {
        match moment {
            Some(moment) => {
                let after = Duration::from_millis(moment.as_millis());
                let Some(instant) = self.origin.checked_add(after) else {
                    return std::future::pending().await;
                };
                tokio::time::sleep_until(instant).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// What `work` results in, if that is known within `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
