//! The clock for leases of in-process stores, for the mirror's pauses, and for time limits of
//! calls.
//!
//! A store without a server decides itself when a lease ends, so it must read a clock. The clock is
//! tokio's, which a test can pause and advance. It also measures the time limits of calls to a
//! server. No other module of this crate reads the time or sleeps.

use std::time::Duration;

use fleet_core::Timestamp;
use tokio::time::Instant;

/// Clock that counts from its creation.
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

    /// Waits until `deadline`, or forever if it is `None`.
    pub(crate) async fn wait_until(self, deadline: Option<Timestamp>) {
        match deadline {
            Some(deadline) => {
                let after = Duration::from_millis(deadline.as_millis());
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

/// Returns the output of `work`, or `None` if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
