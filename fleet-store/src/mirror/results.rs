//! Pure: recently changed results of decisions, for publishing them.

use std::collections::{BTreeSet, VecDeque};

use fleet_core::{MachineId, Revision};
use fleet_unitfile::UnitName;

use super::changes::MAX_NAMES;

/// Change of a decision's result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultChange {
    /// The state that a machine reports for a unit was added, removed or changed.
    State(UnitName, MachineId),
    /// The reason why a unit has no machine was added, removed or changed.
    Reason(UnitName),
}

/// Recent changes of reported states and reasons, oldest first. When the log exceeds its capacity,
/// the oldest changes are dropped. A reader that needs a dropped change has to examine the whole
/// snapshot.
#[derive(Debug)]
pub(super) struct ResultLog {
    /// Revision after which all changes are kept.
    oldest: Revision,
    newest: Revision,
    changes: VecDeque<(Revision, ResultChange)>,
    capacity: usize,
}

impl ResultLog {
    /// Creates a log that starts at a listing. Earlier changes are unknown.
    pub(super) fn since_listing(revision: Revision) -> Self {
        Self { oldest: revision, newest: revision, changes: VecDeque::new(), capacity: MAX_NAMES }
    }

    /// Sets the number of changes to keep.
    pub(super) fn keep(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    /// Records the changes of `revision`, which follows all earlier ones.
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

    /// Returns the changes since revision `seen`, or `None` if they are unknown.
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
    fn result_log_drops_the_oldest_changes() {
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
        // One change of revision 5 is dropped, so the whole revision counts as dropped.
        results.follow(Revision(8), of(&["c.service"]).into_iter());
        assert_eq!(results.since(Revision(4)), None);
        assert_eq!(results.since(Revision(5)), Some(of(&["a.service", "c.service"])));
    }
}
