//! Pure: the results of decisions that changed of late, for those who tell others of them.

use std::collections::{BTreeSet, VecDeque};

use fleet_core::{MachineId, Revision};
use fleet_unitfile::UnitName;

use super::limits::MAX_NAMES;

/// What became of a decision and changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultChange {
    /// The state that a machine results of a unit came, went or changed.
    State(UnitName, MachineId),
    /// The reason why a unit has no machine came, went or changed.
    Reason(UnitName),
}

/// The results of late, the oldest first. Beyond the bound the oldest are forgotten, and who has
/// seen nothing newer has to look at everything.
#[derive(Debug)]
pub(super) struct ResultLog {
    /// The revision after which all results are here.
    oldest: Revision,
    newest: Revision,
    changes: VecDeque<(Revision, ResultChange)>,
    capacity: usize,
}

impl ResultLog {
    /// The results since a listing; what changed before it nobody has seen.
    pub(super) fn since_listing(revision: Revision) -> Self {
        Self { oldest: revision, newest: revision, changes: VecDeque::new(), capacity: MAX_NAMES }
    }

    /// How many are changes from now on.
    pub(super) fn keep(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Notes what `revision`, which is newer than all before, has changed.
    pub(super) fn follow(
        &mut self,
        revision: Revision,
        changed: impl Iterator<Item = ResultChange>,
    ) {
        self.newest = revision;
        self.changes.extend(changed.map(|report| (revision, report)));
        while self.changes.len() > self.capacity
            && let Some((forgotten, _)) = self.changes.pop_front()
        {
            self.oldest = forgotten;
        }
    }

    /// What has changed since the revision `seen`; nothing if that is not known.
    pub(super) fn since(&self, seen: Revision) -> Option<BTreeSet<ResultChange>> {
        if seen < self.oldest || seen > self.newest {
            return None;
        }
        let first = self.changes.partition_point(|(revision, _)| *revision <= seen);
        Some(self.changes.range(first..).map(|(_, report)| report.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(units: &[&str]) -> BTreeSet<ResultChange> {
        units.iter().map(|unit| ResultChange::Reason(unit.parse().unwrap())).collect()
    }

    #[test]
    fn the_oldest_are_forgotten_and_that_is_said() {
        let mut results = ResultLog { capacity: 3, ..ResultLog::since_listing(Revision(4)) };
        results.follow(Revision(5), of(&["a.service", "b.service"]).into_iter());
        results.follow(Revision(7), of(&["a.service"]).into_iter());
        for (seen, expected) in [
            (3, None),
            (4, Some(of(&["a.service", "b.service"]))),
            (5, Some(of(&["a.service"]))),
            (6, Some(of(&["a.service"]))),
            (7, Some(of(&[]))),
            (8, None),
        ] {
            assert_eq!(results.since(Revision(seen)), expected, "{seen}");
        }
        // One of two of a revision is forgotten, so all of that revision counts as forgotten.
        results.follow(Revision(8), of(&["c.service"]).into_iter());
        assert_eq!(results.since(Revision(4)), None);
        assert_eq!(results.since(Revision(5)), Some(of(&["a.service", "c.service"])));
    }
}
