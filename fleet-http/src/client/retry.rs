//! Backoff for reopening interrupted streams.

use std::time::Duration;

use tokio::time::timeout;

use super::ClientError;

/// Delay before the first attempt to reopen a stream. The delay doubles after each failed attempt.
const INITIAL_DELAY: Duration = Duration::from_millis(100);

/// Maximum delay between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Total waiting time after which the error is returned.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Exponential backoff between attempts, for up to a minute in total.
#[derive(Debug)]
pub(crate) struct Retry {
    delay: Duration,
    waited: Duration,
}

impl Retry {
    pub(crate) fn new() -> Self {
        Self { delay: INITIAL_DELAY, waited: Duration::ZERO }
    }

    /// Waits until the next attempt.
    pub(crate) async fn wait(&mut self) {
        let never = std::future::pending::<()>();
        let _elapsed = timeout(self.delay, never).await;
        self.waited += self.delay;
        self.delay = MAX_DELAY.min(self.delay * 2);
    }

    /// Resets the total waiting time after a response from the server.
    pub(super) fn on_response(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Whether to try again after this error.
    pub(super) fn should_retry(&self, error: &ClientError) -> bool {
        error.is_transient() && self.waited < MAX_WAIT
    }
}
