//! The clock of a simulated machine, which may be fast or slow.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
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
    /// Milliseconds by which its wall clock is ahead.
    ahead: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn new(rate: u32, origin: String, ahead: Arc<AtomicI64>) -> Self {
        Self { rate, origin, ahead }
    }
}

std::thread_local! {
    static BEGINNING: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts the simulation of this thread: its date is [`EPOCH`] now.
pub(crate) fn begin() {
    BEGINNING.set(Some(Instant::now()));
}

/// Returns the start of the simulation, the same for all clocks of a thread.
fn beginning() -> Instant {
    let at = BEGINNING.get().unwrap_or_else(Instant::now);
    BEGINNING.set(Some(at)); // daemons without a cluster begin with their first clock
    at
}

/// Returns the date, by a wall clock that was never set.
pub(crate) fn date() -> Timestamp {
    SimClock::new(1000, String::new(), Arc::default()).wall()
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
        let ahead = self.ahead.load(Ordering::Relaxed);
        let date = EPOCH.as_millis().saturating_add(self.now().as_millis());
        Timestamp::from_millis(date.saturating_add_signed(ahead))
    }

    fn origin(&self) -> Option<String> {
        Some(self.origin.clone())
    }
}
