//! Counters that order events: revisions, terms, epochs and generations.

use std::fmt;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The value before any event.
            pub const ZERO: Self = Self(0);

            /// The next value.
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
    /// The number of a state of the store: each committed transaction makes the next one.
    Revision
}
counter! {
    /// The number of a leader's reign. Each election raises it; a write under an older term is
    /// refused.
    Term
}
counter! {
    /// When a placement was made: the revision that its plan was drawn from.
    ///
    /// A later placement of the same unit always has a higher epoch, so an agent can tell an old
    /// order from a new one. A global unit is not placed and has epoch zero.
    Epoch
}
counter! {
    /// How often a restart of a unit was requested. An agent restarts a unit whose generation is
    /// higher than the one that it last started.
    Generation
}
