//! Pure: recent changes, for watches that start in the past.

use std::collections::VecDeque;

use fleet_core::Revision;

use crate::{Changes, StoreError};

/// Whole revisions, oldest first. Beyond the limit the oldest are dropped.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// Revision after which all changes are kept.
    oldest: Revision,
    revisions: VecDeque<Changes>,
    /// Total number of changes in all kept revisions.
    changes: usize,
    max_changes: usize,
}

impl History {
    /// Creates a history that begins at `revision` and keeps at most `max_changes` changes.
    pub(super) fn new(revision: Revision, max_changes: usize) -> Self {
        Self { oldest: revision, revisions: VecDeque::new(), changes: 0, max_changes }
    }

    pub(super) fn push(&mut self, changes: Changes) {
        self.changes += changes.changes.len();
        self.revisions.push_back(changes);
        while self.changes > self.max_changes && self.revisions.len() > 1 {
            self.forget_oldest();
        }
    }

    /// Returns the revisions after `after`, which must not be in the future.
    pub(super) fn after(
        &self,
        after: Revision,
    ) -> Result<impl Iterator<Item = &Changes>, StoreError> {
        if after < self.oldest {
            return Err(StoreError::Compacted { oldest: self.oldest });
        }
        let first = self.revisions.partition_point(|changes| changes.revision <= after);
        Ok(self.revisions.range(first..))
    }

    fn forget_oldest(&mut self) {
        if let Some(forgotten) = self.revisions.pop_front() {
            self.changes -= forgotten.changes.len();
            self.oldest = forgotten.revision;
        }
    }
}
