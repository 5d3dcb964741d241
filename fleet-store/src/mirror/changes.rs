//! Pure: change sets between snapshots, and a log of recent ones. Also recently changed
//! results of decisions, for publishing them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fleet_core::{MachineId, Revision, Snapshot, Unit};
use fleet_unitfile::UnitName;

/// Scheduling inputs that may differ between two snapshots of one mirror. All inputs not in the set
/// are equal in both snapshots. Reported states and reasons are not inputs but results of
/// decisions, so the set leaves them out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeSet {
    /// Units that were added, removed or changed, or became readable or unreadable.
    pub units: BTreeSet<UnitName>,
    /// Machines that were added, removed or changed.
    pub machines: BTreeSet<MachineId>,
    /// Units with an added, removed or changed placement.
    pub placements: BTreeSet<UnitName>,
    /// Whether the rebalancing request was added, removed or changed.
    pub rebalancing: bool,
}

impl ChangeSet {
    /// Returns whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn extend(&mut self, later: &Step) {
        self.units.extend(later.units.iter().cloned());
        self.machines.extend(later.machines.iter().cloned());
        self.placements.extend(later.placements.iter().cloned());
        self.rebalancing |= later.rebalancing;
    }

    /// Compares two snapshots when the changes between them were not recorded. The comparison stops
    /// early when there are more names than a log can keep, because the log then drops the result.
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Self {
        let rebalancing = old.rebalancing != new.rebalancing;
        let mut found = Self { rebalancing, ..Self::default() };
        let unit = |unit| (unit_name(unit), unit);
        collect_differing(
            old.units().map(unit),
            new.units().map(unit),
            is_same_unit,
            &mut found.units,
        );
        collect_differing(old.faults(), new.faults(), |a, b| a == b, &mut found.units);
        collect_differing(old.placements(), new.placements(), |a, b| a == b, &mut found.placements);
        let (before, now) =
            (old.machines().map(|m| (&m.id, m)), new.machines().map(|m| (&m.id, m)));
        collect_differing(before, now, |a, b| a == b, &mut found.machines);
        found
    }
}

fn unit_name(unit: &Arc<Unit>) -> &UnitName {
    &unit.name
}

/// Returns whether two units of the same name are equal. Their name and file determine their
/// requirements, except for the machines on which the unit has failed.
pub(super) fn is_same_unit(one: &Arc<Unit>, other: &Arc<Unit>) -> bool {
    Arc::ptr_eq(one, other)
        || (one.desired, one.generation) == (other.desired, other.generation)
            && one.file == other.file
            && one.requirements.failed_on == other.requirements.failed_on
}

/// Adds to `found` the keys that only one of the two ordered sequences has, or that have different
/// values in both.
fn collect_differing<'a, K: Ord + Clone + 'a, V: 'a>(
    one: impl Iterator<Item = (&'a K, &'a V)>,
    other: impl Iterator<Item = (&'a K, &'a V)>,
    same: impl Fn(&V, &V) -> bool,
    found: &mut BTreeSet<K>,
) {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let (mut one, mut other) = (one.peekable(), other.peekable());
    loop {
        let order = match (one.peek(), other.peek()) {
            (None, None) => return,
            (Some(_), None) => Less,
            (None, Some(_)) => Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let left = if order == Greater { None } else { one.next() };
        let right = if order == Less { None } else { other.next() };
        match (left, right) {
            (Some((_, a)), Some((_, b))) if order == Equal && same(a, b) => {}
            (Some((key, _)), _) | (None, Some((key, _))) => {
                found.insert(key.clone());
                if found.len() > MAX_NAMES {
                    return;
                }
            }
            (None, None) => {}
        }
    }
}

/// Recent change sets, oldest first. When the log exceeds its capacity, the oldest sets are
/// dropped. A reader that needs a dropped set has to examine the whole snapshot.
#[derive(Debug, Clone)]
pub(super) struct DeltaLog {
    /// Revision after which all changes are kept.
    oldest: Revision,
    /// Last recorded revision.
    newest: Revision,
    steps: VecDeque<Step>,
    names: usize,
    capacity: usize,
}

/// Changes from one visible state to the next, which may be several revisions later. A log has many
/// steps, most of them with a single name, so names are in slices, which need less memory than
/// sets.
#[derive(Debug, Clone)]
struct Step {
    from: Revision,
    to: Revision,
    units: Box<[UnitName]>,
    machines: Box<[MachineId]>,
    placements: Box<[UnitName]>,
    rebalancing: bool,
}

impl Step {
    fn new(from: Revision, to: Revision, changes: ChangeSet) -> Self {
        let ChangeSet { units, machines, placements, rebalancing } = changes;
        Self {
            from,
            to,
            units: units.into_iter().collect(),
            machines: machines.into_iter().collect(),
            placements: placements.into_iter().collect(),
            rebalancing,
        }
    }

    /// Returns the number of names. An empty step counts as one name, because it needs memory as
    /// well.
    fn names(&self) -> usize {
        let names = self.units.len() + self.machines.len() + self.placements.len();
        (names + usize::from(self.rebalancing)).max(1)
    }
}

impl DeltaLog {
    /// Creates a log that starts at revision zero.
    pub(super) fn new() -> Self {
        Self::keeping(MAX_NAMES)
    }

    /// Sets the total number of names to keep.
    pub(super) fn keep(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    fn keeping(capacity: usize) -> Self {
        let (oldest, newest) = (Revision::ZERO, Revision::ZERO);
        Self { oldest, newest, steps: VecDeque::new(), names: 0, capacity }
    }

    /// Records the changes of `revision`, which follows all earlier ones.
    pub(super) fn follow(&mut self, revision: Revision, changes: ChangeSet) {
        let from = Revision(revision.0.saturating_sub(1)).max(self.newest);
        self.newest = revision;
        if !changes.is_empty() {
            self.push(Step::new(from, revision, changes));
        }
    }

    /// Records the changes from the last recorded revision to `revision` in one step, because the
    /// revisions in between were not observed.
    ///
    /// If the log has already reached `revision`, but `changes` is not empty, that revision has
    /// been seen with two different states. The log is then cleared, so changes since `revision`
    /// and all earlier revisions are unknown.
    pub(super) fn jump(&mut self, revision: Revision, changes: ChangeSet) {
        let from = self.newest;
        if revision > from {
            self.newest = revision;
            self.push(Step::new(from, revision, changes));
        } else if !changes.is_empty() {
            *self = Self { oldest: from.next(), newest: from, ..Self::keeping(self.capacity) };
        }
    }

    fn push(&mut self, step: Step) {
        self.names += step.names();
        self.steps.push_back(step);
        while self.names > self.capacity
            && let Some(forgotten) = self.steps.pop_front()
        {
            self.names -= forgotten.names();
            self.oldest = forgotten.to;
        }
    }

    /// Returns the changes since revision `seen`, or `None` if they are unknown.
    pub(super) fn since(&self, seen: Revision) -> Option<ChangeSet> {
        let first = self.steps.partition_point(|step| step.to <= seen);
        let was_skipped = self.steps.get(first).is_some_and(|step| step.from < seen);
        if seen < self.oldest || seen > self.newest || was_skipped {
            return None;
        }
        let mut all = ChangeSet::default();
        self.steps.range(first..).for_each(|step| all.extend(step));
        Some(all)
    }
}

/// Maximum number of names that a log of changes records: the names of changed units, machines and
/// placements. It is enough for an engine pass that moves all units of a tenth of a large cluster's
/// machines. That many names need a few megabytes.
pub(super) const MAX_NAMES: usize = 1 << 16;

/// Minimum number of names that a log of changes records. So even in a small cluster, readers may
/// lag behind for a while.
const MIN_NAMES: usize = 1 << 12;

/// Returns the number of names that a log of changes records. `runs` is the number of units in the
/// cluster, where a global unit counts once per machine. The result is about twice `runs`: a reader
/// that has missed more changes can examine the whole snapshot at less cost.
pub(super) fn names_for(runs: usize) -> usize {
    runs.saturating_mul(2).clamp(MIN_NAMES, MAX_NAMES)
}

/// Change of a decision's result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultChange {
    /// The state that a machine reports for a unit was added, removed or changed.
    State(UnitName, MachineId),
    /// The reason why a unit has no machine was added, removed or changed.
    Reason(UnitName),
    /// The job or the schedule of a unit was added, removed or changed.
    Progress(UnitName),
}

/// Recent changes of states, reasons, jobs and schedules, oldest first. When the log exceeds its
/// capacity, the oldest changes are dropped. A reader that needs a dropped change has to examine
/// the whole snapshot.
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

    fn of(units: &[&str]) -> ChangeSet {
        let units = units.iter().map(|unit| unit.parse().unwrap()).collect();
        ChangeSet { units, ..ChangeSet::default() }
    }

    #[test]
    fn delta_log_drops_the_oldest_changes() {
        let mut log = DeltaLog::keeping(3);
        log.follow(Revision(1), of(&["a.service", "b.service"]));
        log.follow(Revision(3), of(&[]));
        log.follow(Revision(5), of(&["a.service"]));
        assert_eq!(log.since(Revision(0)), Some(of(&["a.service", "b.service"])));
        for seen in [1, 2, 3, 4] {
            assert_eq!(log.since(Revision(seen)), Some(of(&["a.service"])), "{seen}");
        }
        assert_eq!(log.since(Revision(5)), Some(of(&[])));
        assert_eq!(log.since(Revision(6)), None, "a future revision");
        log.follow(Revision(7), of(&["c.service", "a.service"]));
        assert_eq!(log.since(Revision(0)), None);
        assert_eq!(log.since(Revision(1)), Some(of(&["a.service", "c.service"])));
        log.follow(Revision(8), of(&["a.service", "b.service", "c.service", "d.service"]));
        assert_eq!(log.since(Revision(7)), None, "more names than the capacity");
        assert_eq!(log.since(Revision(8)), Some(of(&[])));
        log.keep(1);
        log.follow(Revision(9), of(&["a.service"]));
        log.follow(Revision(10), of(&["b.service"]));
        assert_eq!(log.since(Revision(8)), None, "the capacity was reduced");
        assert_eq!(log.since(Revision(9)), Some(of(&["b.service"])));
    }

    #[test]
    fn skipped_revisions_are_unknown() {
        let mut log = DeltaLog::new();
        log.jump(Revision(4), of(&["a.service"]));
        log.jump(Revision(6), of(&[]));
        log.follow(Revision(9), of(&["b.service"]));
        let expected =
            [Some(2), None, None, None, Some(1), None, Some(1), Some(1), Some(1), Some(0), None];
        for (seen, expected) in (0..).zip(expected) {
            let units = log.since(Revision(seen)).map(|changes| changes.units.len());
            assert_eq!(units, expected, "{seen}");
        }
    }

    #[test]
    fn ambiguous_revision_invalidates_earlier_deltas() {
        let mut log = DeltaLog::new();
        log.jump(Revision(2), of(&["a.service"]));
        log.jump(Revision(2), of(&["b.service"]));
        assert_eq!(log.since(Revision(0)), None);
        assert_eq!(log.since(Revision(2)), None);
        log.follow(Revision(3), of(&["c.service"]));
        assert_eq!(log.since(Revision(2)), None);
        assert_eq!(log.since(Revision(3)), Some(of(&[])));
    }

    #[test]
    fn name_limit_grows_with_the_cluster() {
        let room = [0, 2_048, 2_049, 10_000, 100_000, usize::MAX].map(names_for);
        assert_eq!(room, [4_096, 4_096, 4_098, 20_000, 65_536, 65_536]);
    }

    fn results_of(units: &[&str]) -> BTreeSet<ResultChange> {
        units.iter().map(|unit| ResultChange::Reason(unit.parse().unwrap())).collect()
    }

    #[test]
    fn result_log_drops_the_oldest_changes() {
        let mut results = ResultLog { capacity: 3, ..ResultLog::since_listing(Revision(4)) };
        results.follow(Revision(5), results_of(&["a.service", "b.service"]).into_iter());
        results.follow(Revision(7), results_of(&["a.service"]).into_iter());
        for (seen, expected) in [
            (3, None),
            (4, Some(results_of(&["a.service", "b.service"]))),
            (5, Some(results_of(&["a.service"]))),
            (6, Some(results_of(&["a.service"]))),
            (7, Some(results_of(&[]))),
            (8, None),
        ] {
            assert_eq!(results.since(Revision(seen)), expected, "{seen}");
        }
        // One change of revision 5 is dropped, so the whole revision counts as dropped.
        results.follow(Revision(8), results_of(&["c.service"]).into_iter());
        assert_eq!(results.since(Revision(4)), None);
        assert_eq!(results.since(Revision(5)), Some(results_of(&["a.service", "c.service"])));
    }
}
