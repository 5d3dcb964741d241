//! Retry hints for waiting replacers: units that replace others and that no machine accepts. Trying
//! all machines for these units in every plan would be too slow.
//!
//! Another unit that arrives on a machine never helps a waiting replacer. A retry can therefore
//! succeed only if some machine may now accept a unit that it refused before. This unit is the
//! replacer itself, or a unit that must leave for it. There are two exceptions:
//!
//! - A group is always retried if several units have to leave or to arrive together.
//! - Every group is retried if a tied unit has changed or if the cluster has global units.

use crate::index::{Cluster, MachineNo, UnitNo, WaitingGroup};
use crate::rules::{PlacementQuery, replaces};

/// Maximum number of replaced units to check. If a unit replaces more units than this, trying to
/// place the unit is cheaper than the check.
const MAX_REPLACED: usize = 256;

impl Cluster {
    /// Queues again the groups that may find a machine although each machine still refuses every
    /// unit that it refused before.
    pub(super) fn requeue_sensitive_groups(&mut self) {
        let all = self.ties_changed || !self.globals.is_empty();
        let is_affected = |first: &&UnitNo| all || !only_loosening_helps(&self.groups[*first]);
        let requeued: Vec<UnitNo> =
            self.sensitive_groups.iter().filter(is_affected).copied().collect();
        requeued.into_iter().for_each(|first| self.requeue(first));
    }

    /// Returns whether a group with a replacer may find a machine because the machines in
    /// `loosened` may accept units that they refused before.
    pub(super) fn may_help(&self, group: &WaitingGroup, loosened: &[MachineNo]) -> bool {
        let [unit] = group.members[..] else { return true };
        !only_loosening_helps(group)
            || self.policy.is_custom()
            || loosened.iter().any(|machine| self.may_replace(unit, *machine))
            || self.may_go_to_any(unit, loosened)
    }

    /// Returns whether a machine may accept a unit after the units that it replaces there have
    /// left.
    fn may_replace(&self, unit: UnitNo, machine: MachineNo) -> bool {
        let leaving = self.leaving(&replaces::replaced(self, unit, machine), machine);
        let query =
            PlacementQuery { leaving: &leaving, ..PlacementQuery::new(self, unit, machine) };
        query.denial_within_group().is_none()
    }

    /// Returns whether a machine in `loosened` may accept a unit that `unit` replaces. If so, the
    /// replaced unit could move there, and `unit` could take its place.
    fn may_go_to_any(&self, unit: UnitNo, loosened: &[MachineNo]) -> bool {
        let patterns = self.class(unit).replaces.iter();
        let others = patterns.flat_map(|pattern| self.matching(*pattern));
        let mut assigned = others.filter_map(|other| {
            let current = self.units.slots[other].machine.some()?;
            replaces::replaces_by_number(self, unit, other).then_some((other, current))
        });
        let goes = |(other, current): (UnitNo, MachineNo)| {
            let to = |machine: &&MachineNo| **machine != current;
            let takes = |to: &MachineNo| {
                PlacementQuery::new(self, other, *to).denial_within_group().is_none()
            };
            loosened.iter().filter(to).any(takes) && self.may_replace(unit, current)
        };
        assigned.by_ref().take(MAX_REPLACED).any(goes) || assigned.next().is_some()
    }
}

/// Returns whether a group can find a machine only after some machine accepts a unit that it
/// refused before. Ties to other units are ignored.
fn only_loosening_helps(group: &WaitingGroup) -> bool {
    !group.helped_by_any_arrival && group.members.len() == 1
}
