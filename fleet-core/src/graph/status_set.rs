//! Sets of exit statuses and signals.

use std::collections::BTreeSet;

use super::{Exit, Signal};

/// A set of ways in which a process may exit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusSet {
    /// Exit statuses.
    pub codes: BTreeSet<u8>,
    /// Signals that killed the process.
    pub signals: BTreeSet<Signal>,
}

impl StatusSet {
    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.signals.is_empty()
    }

    /// Returns whether the set contains this exit.
    #[must_use]
    pub fn contains(&self, exit: Exit) -> bool {
        match exit {
            Exit::Status(status) => self.codes.contains(&status),
            Exit::Signal(number) => {
                Signal::from_number(number).is_some_and(|signal| self.signals.contains(&signal))
            }
            Exit::Unknown => false,
        }
    }
}
