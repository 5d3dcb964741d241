//! Operator intents for machines: cordon and drain.

/// An operator's intent for a machine.
///
/// An intent stays in the cluster until an operator withdraws it, even while the machine is absent.
/// (The data that a machine publishes disappears with the machine.) A machine without an intent
/// accepts units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Keeps the units that are placed on the machine, and accepts no others.
    Cordoned,
    /// Moves its units to other machines, and accepts none.
    Drained {
        /// Minimum number of running instances of a template while its instances are moved.
        min_available: u32,
    },
}

impl Intent {
    /// Returns the minimum number of instances of a template that must keep running during a drain.
    /// Returns `None` if the intent is not a drain.
    #[must_use]
    pub fn min_available(self) -> Option<u32> {
        match self {
            Self::Cordoned => None,
            Self::Drained { min_available } => Some(min_available),
        }
    }
}
