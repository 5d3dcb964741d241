//! Opening what broke off once more.

use std::time::Duration;

use tokio::time::timeout;

use super::ClientError;

/// How long a stream that broke off waits before it is opened again; twice as long after each try
/// that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long it waits at most between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long it waits altogether before the error is given out.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tries to open something again: ever fewer, and for no longer than a minute.
#[derive(Debug)]
pub(crate) struct Again {
    pause: Duration,
    waited: Duration,
}

impl Again {
    pub(crate) fn new() -> Self {
        Self { pause: FIRST_PAUSE, waited: Duration::ZERO }
    }

    /// Waits until it is time for a try.
    pub(crate) async fn pause(&mut self) {
        let never = std::future::pending::<()>();
        let _elapsed = timeout(self.pause, never).await;
        self.waited += self.pause;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
    }

    /// Somebody answered, so the minute begins anew.
    pub(super) fn on_answer(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Whether there is another try after one that failed.
    pub(super) fn goes_on(&self, error: &ClientError) -> bool {
        error.is_passing() && self.waited < PATIENCE
    }
}
