//! Pure: no I/O, no clock. Exponential backoff for retries.

use std::collections::BTreeMap;
use std::time::Duration;

use fleet_core::Timestamp;

/// Initial and longest wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackoffLimits {
    /// Wait after the first failure; each further failure doubles it.
    pub(crate) first: Duration,
    /// Longest wait.
    pub(crate) max: Duration,
}

impl BackoffLimits {
    /// Returns the wait after `failures` consecutive failures.
    pub(crate) fn wait(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        self.first.saturating_mul(1 << doublings).min(self.max)
    }
}

/// Keys whose last attempt failed, with the number of consecutive failures and the time of the next
/// retry. A success removes the key.
#[derive(Debug)]
pub(crate) struct Backoff<K> {
    limits: BackoffLimits,
    failed: BTreeMap<K, Failure>,
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    count: u32,
    retry_at: Timestamp,
}

impl<K: Ord + Clone> Backoff<K> {
    pub(crate) fn new(limits: BackoffLimits) -> Self {
        Self { limits, failed: BTreeMap::new() }
    }

    /// Records that `key` failed at `now`.
    pub(crate) fn on_failure(&mut self, key: K, now: Timestamp) {
        let failure = self.failed.entry(key).or_insert(Failure { count: 0, retry_at: now });
        failure.count = failure.count.saturating_add(1);
        failure.retry_at = now.after(self.limits.wait(failure.count));
    }

    /// Returns the number of consecutive failures of `key`.
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.failed.get(key).map_or(0, |failure| failure.count)
    }

    /// Records that `key` succeeded, or no longer matters.
    pub(crate) fn on_success(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Drops all keys for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.failed.retain(|key, _| keep(key));
    }

    /// Whether `key` may be tried at `now`.
    pub(crate) fn is_due(&self, key: &K, now: Timestamp) -> bool {
        self.failed.get(key).is_none_or(|failure| failure.retry_at <= now)
    }

    /// Returns the earliest time after `now` at which a key becomes due.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.failed.values().map(|failure| failure.retry_at).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: BackoffLimits =
        BackoffLimits { first: Duration::from_secs(1), max: Duration::from_secs(60) };

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn waits_double_up_to_the_maximum() {
        let waits = [1, 2, 3, 6, 7, 100].map(|failures| PACE.wait(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 60, 60]);
    }

    #[test]
    fn failure_delays_only_its_key() {
        let mut backoff = Backoff::new(PACE);
        backoff.on_failure("a", at(10));
        backoff.on_failure("a", at(11));
        assert!(!backoff.is_due(&"a", at(12)));
        assert!(backoff.is_due(&"b", at(12)));
        assert_eq!((backoff.failures(&"a"), backoff.failures(&"b")), (2, 0));
        assert_eq!(backoff.next_due(at(12)), Some(at(13)));
        assert!(backoff.is_due(&"a", at(13)));
        assert_eq!(backoff.next_due(at(13)), None);
        backoff.on_success(&"a");
        backoff.on_failure("a", at(20));
        assert_eq!(backoff.next_due(at(20)), Some(at(21)));
    }
}
