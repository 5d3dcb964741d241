//! What is told once in a while, however often it happens: a disk that is full keeps every unit
//! from being written down, at each of its steps.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet_core::Timestamp;

/// How long nothing more of the kind is told.
const INTERVAL: Duration = Duration::from_secs(60);

/// One kind of trouble.
#[derive(Debug, Default)]
pub(crate) struct RateLimitedLog {
    state: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    last: Option<Timestamp>,
    suppressed: u64,
}

impl RateLimitedLog {
    /// It has happened: whether it is to be told, and how often it happened since it last was.
    pub(crate) fn should_log(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.since(last) < INTERVAL) {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_and_again_is_told_once_a_minute_with_how_often() {
        let log = RateLimitedLog::default();
        let state = [0, 1, 59, 60, 61, 100, 119, 120, 300]
            .map(|second| log.should_log(Timestamp::from_millis(second * 1000)));
        let (none, some) = (None, Some);
        assert_eq!(state, [some(0), none, none, some(2), none, none, none, some(3), some(0)]);
    }
}
