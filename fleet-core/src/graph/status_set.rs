//! Sets of the ways in which a process may end.

use std::collections::BTreeSet;

use super::{Exit, Signal};

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

    /// Whether this end is in it.
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
