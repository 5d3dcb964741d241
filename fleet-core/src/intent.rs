//! What people mean to do with a machine.

/// What people said is to become of a machine.
///
/// Unlike all that a machine says of itself it stays when the machine goes, until somebody takes it
/// back. A machine of which nothing was said takes units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// It is to take no units but those that are placed there already.
    Cordoned,
    /// It is to be emptied, and to take none.
    Drained {
        /// How many instances of a template must be up at any time, if units move for this.
        min_available: u32,
    },
}

impl Intent {
    /// How many instances of a template must be up while the machine is emptied, if it is to be.
    #[must_use]
    pub fn min_available(self) -> Option<u32> {
        match self {
            Self::Cordoned => None,
            Self::Drained { min_available } => Some(min_available),
        }
    }
}
