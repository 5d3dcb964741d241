//! Measures the duration of requests, store calls and stream interruptions, and reads the wall
//! clock.

use std::time::{Duration, Instant, SystemTime};

use fleet_core::Timestamp;

/// Returns the wall clock's time since 1970.
pub(crate) fn wall_time() -> Timestamp {
    let passed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::default().after(passed)
}

/// Measures elapsed time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
