//! The clock by which requests and calls of the store are measured: nothing depends on it.

use std::time::{Duration, Instant};

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
