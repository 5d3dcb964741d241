//! Monotonic counters: revisions, terms, epochs and generations.

use std::fmt;

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
