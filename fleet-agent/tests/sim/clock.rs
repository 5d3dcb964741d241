//! The clock of a simulated machine, which may be fast or slow.

use std::time::Duration;

use async_trait::async_trait;
use fleet_agent::Clock;
use fleet_core::Timestamp;
use tokio::time::Instant;

/// The date at the start of the simulation.
const EPOCH: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The clock of one boot, shared by all its daemons.
pub(crate) struct SimClock {
    /// Milliseconds that it counts per second.
    rate: u32,
    origin: String,
}

impl SimClock {
    pub(crate) fn new(rate: u32, origin: String) -> Self {
        Self { rate, origin }
    }
}

/// Returns the approximate start of the simulation, the same for all clocks of a thread.
fn beginning() -> Instant {
    std::thread_local! {
        static BEGINNING: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    }
    BEGINNING.with(|beginning| {
        // A later runtime of this thread begins later, which makes no difference.
        let at = beginning.get().unwrap_or_else(Instant::now);
        beginning.set(Some(at));
        at
    })
}

async fn wait(time: Duration) {
    tokio::time::sleep(time).await;
}

#[async_trait]
impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let elapsed = Instant::now().saturating_duration_since(beginning());
        let millis = elapsed.as_millis() * u128::from(self.rate) / 1000;
        Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    async fn sleep_until(&self, at: Timestamp) {
        while self.now() < at {
            let left = at.since(self.now()).as_millis() * 1000 / u128::from(self.rate);
            let left = u64::try_from(left).unwrap_or(u64::MAX).max(1);
            wait(Duration::from_millis(left)).await;
        }
    }

    fn wall(&self) -> Timestamp {
        EPOCH.after(Duration::from_millis(self.now().as_millis()))
    }

    fn origin(&self) -> Option<String> {
        Some(self.origin.clone())
    }
}
