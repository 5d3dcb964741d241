//! Rate limit for log messages about recurring errors, such as a full disk, which would otherwise
//! be logged for every unit at every step.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_core::graph::FailureCause;
use rustix::io::Errno;

/// Minimum interval between two messages of a kind.
const INTERVAL: Duration = Duration::from_secs(60);

/// Rate limit for one kind of message.
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
    /// Returns `Some` if the event should be logged, with the number of events suppressed since the
    /// last logged one. Returns `None` if the event should be suppressed.
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

/// Returns the cause of failure of a start that could not be recorded because of this error. Only a
/// file system that cannot store anything says nothing about the unit, so the start is retried.
pub(crate) fn unrecorded_cause(error: &io::Error) -> FailureCause {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::IO) => FailureCause::Unrecorded,
        _ => FailureCause::Resources,
    }
}

/// Whether starts of units can be recorded. Logs the first failure and the next success.
#[derive(Debug, Default)]
pub(crate) struct RecordingHealth {
    failures: RateLimitedLog,
    is_failing: AtomicBool,
}

impl RecordingHealth {
    /// Handles a failed write.
    pub(crate) fn on_failure(&self, error: &io::Error, now: Timestamp) {
        if !self.is_failing.load(Ordering::Relaxed) && self.failures.should_log(now).is_some() {
            self.is_failing.store(true, Ordering::Relaxed);
            tracing::error!(
                %error,
                "cannot record starts of units: no unit starts until it is possible; free space \
                 in the directories for records and logs"
            );
        }
    }

    /// Handles a successful write.
    pub(crate) fn on_success(&self) {
        if self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed)
        {
            tracing::info!("can record starts of units again: units start again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unusable_file_system_leaves_starts_unrecorded() {
        let cause = |errno: Errno| unrecorded_cause(&errno.into());
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO] {
            assert_eq!(cause(errno), FailureCause::Unrecorded, "{errno}");
        }
        for errno in [Errno::ISDIR, Errno::NOTDIR, Errno::ACCESS, Errno::MFILE, Errno::LOOP] {
            assert_eq!(cause(errno), FailureCause::Resources, "{errno}");
        }
        let other = io::Error::new(io::ErrorKind::InvalidData, "a later version wrote it");
        assert_eq!(unrecorded_cause(&other), FailureCause::Resources);
    }

    #[test]
    fn recurring_event_is_logged_once_a_minute_with_its_count() {
        let log = RateLimitedLog::default();
        let state = [0, 1, 59, 60, 61, 100, 119, 120, 300]
            .map(|second| log.should_log(Timestamp::from_millis(second * 1000)));
        let (none, some) = (None, Some);
        assert_eq!(state, [some(0), none, none, some(2), none, none, none, some(3), some(0)]);
    }
}
