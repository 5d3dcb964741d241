//! Timestamps, passed in by the caller instead of read from a clock.

use std::time::Duration;

/// A timestamp, in milliseconds since an origin that the owner of the clock chose.
///
/// Timestamps are comparable only if they come from the same clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Makes the timestamp `millis` milliseconds after the clock's origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since the clock's origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the timestamp `duration` later, saturating at the numeric bound.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let late = Timestamp::from_millis(u64::MAX - 1);
        assert_eq!(late.after(Duration::from_secs(1)).as_millis(), u64::MAX);
        assert_eq!(Timestamp::from_millis(3).since(late), Duration::ZERO);
        assert_eq!(Timestamp::from_millis(30).since(Timestamp::from_millis(10)).as_millis(), 20);
    }
}
