//! Pure: the results of decisions that changed of late, for those who tell others of them.

use std::collections::{BTreeSet, VecDeque};

use fleet_core::{MachineId, Revision};
use fleet_unitfile::UnitName;

use super::room::MOST;

/// What became of a decision and changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Report {
    /// The state that a machine reports of a unit came, went or changed.
    State(UnitName, MachineId),
    /// The reason why a unit has no machine came, went or changed.
    Reason(UnitName),
}

/// The reports of late, the oldest first. Beyond the bound the oldest are forgotten, and who has
/// seen nothing newer has to look at everything.
#[derive(Debug)]
pub(super) struct Reports {
    /// The revision after which all reports are here.
    oldest: Revision,
    newest: Revision,
    kept: VecDeque<(Revision, Report)>,
    most: usize,
}

impl Reports {
    /// The reports since a listing; what changed before it nobody has seen.
    pub(super) fn since_listing(revision: Revision) -> Self {
        Self { oldest: revision, newest: revision, kept: VecDeque::new(), most: MOST }
    }

    /// How many are kept from now on.
    pub(super) fn keep(&mut self, most: usize) {
        self.most = most;
    }

    /// Notes what `revision`, which is newer than all before, has changed.
    pub(super) fn follow(&mut self, revision: Revision, changed: impl Iterator<Item = Report>) {
        self.newest = revision;
        self.kept.extend(changed.map(|report| (revision, report)));
        while self.kept.len() > self.most
            && let Some((forgotten, _)) = self.kept.pop_front()
        {
            self.oldest = forgotten;
        }
    }

    /// What has changed since the revision `seen`; nothing if that is not known.
    pub(super) fn since(&self, seen: Revision) -> Option<BTreeSet<Report>> {
        if seen < self.oldest || seen > self.newest {
            return None;
        }
        let first = self.kept.partition_point(|(revision, _)| *revision <= seen);
        Some(self.kept.range(first..).map(|(_, report)| report.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(units: &[&str]) -> BTreeSet<Report> {
        units.iter().map(|unit| Report::Reason(unit.parse().unwrap())).collect()
    }

    #[test]
    fn the_oldest_are_forgotten_and_that_is_said() {
        let mut reports = Reports { most: 3, ..Reports::since_listing(Revision(4)) };
        reports.follow(Revision(5), of(&["a.service", "b.service"]).into_iter());
        reports.follow(Revision(7), of(&["a.service"]).into_iter());
        for (seen, expected) in [
            (3, None),
            (4, Some(of(&["a.service", "b.service"]))),
            (5, Some(of(&["a.service"]))),
            (6, Some(of(&["a.service"]))),
            (7, Some(of(&[]))),
            (8, None),
        ] {
            assert_eq!(reports.since(Revision(seen)), expected, "{seen}");
        }
        // One of two of a revision is forgotten, so all of that revision counts as forgotten.
        reports.follow(Revision(8), of(&["c.service"]).into_iter());
        assert_eq!(reports.since(Revision(4)), None);
        assert_eq!(reports.since(Revision(5)), Some(of(&["a.service", "c.service"])));
    }
}
