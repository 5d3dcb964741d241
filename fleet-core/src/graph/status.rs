//! Sets of the ways in which a process may end.

use std::collections::BTreeSet;

use super::Signal;

/// Exit statuses and signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusSet {
    /// Statuses with which a process may have exited by itself.
    pub codes: BTreeSet<u8>,
    /// Signals that may have ended it.
    pub signals: BTreeSet<Signal>,
}

impl StatusSet {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.signals.is_empty()
    }
}
