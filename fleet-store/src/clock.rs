//! The only module of this crate that reads the time or sleeps.
//!
//! In-process stores use its clock to end leases, the mirror to pause between attempts, and the
//! etcd client to limit its calls. The clock is tokio's, so tests can pause and advance it. The
//! date of a write only informs people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Returns the machine's date in milliseconds since 1970 (UTC). `None` if it is before 1970.
pub(crate) fn wall_millis() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis().try_into().ok()
}

/// Waits for `duration`.
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Returns the output of `work`, or `None` if it takes longer than `limit`.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, work).await.ok()
}
