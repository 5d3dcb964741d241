//! The one module that owns the real clock.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fleet_core::Timestamp;
use tokio::time::Instant;

/// What the loops know of time. A test hands in one that it moves itself.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The present moment; never earlier than one that was returned before.
    fn now(&self) -> Timestamp;

    /// Returns at `at`, or at once when that has passed.
    async fn sleep_until(&self, at: Timestamp);

    /// Returns after `duration`.
    async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now().after(duration)).await;
    }
}

/// Time as tokio's runtime keeps it, counted from when the clock was made.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0).after(self.origin.elapsed())
    }

    async fn sleep_until(&self, at: Timestamp) {
        // A moment too far off to be written down is never reached.
        match self.origin.checked_add(Duration::from_millis(at.as_millis())) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}

/// The present moment as people tell it, counted from the beginning of 1970 in UTC: for what a
/// person reads, since it may be wrong and may be set back.
#[must_use]
pub fn wall_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(0).after(since)
}

/// Returns at `at`; never, if there is no such moment.
pub(crate) async fn wait_until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
