//! Monotonic counters (revisions, terms, epochs and generations), and timestamps, which the caller
//! passes in.

use std::fmt;
use std::time::Duration;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The value before any event.
            pub const ZERO: Self = Self(0);

            /// Returns the next value.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// Revision of the store. Each committed transaction increments it.
    Revision
}
counter! {
    /// Term of a leader. Each election increments the term. Writes that carry an older term are
    /// refused.
    Term
}
counter! {
    /// Epoch of a placement. It grows with the revision of the cluster state from which the
    /// placement was planned.
    ///
    /// A later placement of the same unit always has a higher epoch, so an agent can recognize an
    /// outdated placement. A global unit has no placement, and its epoch is zero.
    Epoch
}
counter! {
    /// Number of restarts that were requested for a unit. An agent restarts the unit if this number
    /// is higher than it was at the agent's last start of the unit.
    Generation
}

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
