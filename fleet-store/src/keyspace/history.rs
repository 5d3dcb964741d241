//! Pure: the changes of late, for watches that start in the past.

use std::collections::VecDeque;

use fleet_core::Revision;

use crate::{Changes, StoreError};

/// Whole revisions, the oldest first. Beyond the bound the oldest are forgotten.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// The revision after which all changes are here.
    oldest: Revision,
    revisions: VecDeque<Changes>,
    /// How many changes the revisions have together.
    changes: usize,
    max_changes: usize,
}

impl History {
    /// A history that begins at `revision` and keeps at max_changes `max_changes` changes.
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

    /// The revisions after `after`, which is not in the future.
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
