//! What may help a unit that replaces others and that no machine takes: to ask all machines again
//! in each plan would cost what the cluster has.
//!
//! Somebody who comes is at most in its way. So it is helped only where a machine may take more
//! than it did, by that machine taking the unit, or one that has to leave for it. Where several
//! have to leave at once, or several come together, or anything is tied, it is tried in any case.

use crate::index::{Index, MachineNo, UnitNo, WaitingGroup};
use crate::rules::{PlacementQuery, replaces};

/// How many units that may have to leave are looked at; with more it is cheaper to try.
const MAX_REPLACED: usize = 256;

impl Index {
    /// Wakes the groups that something else than a machine may help that takes more than it did.
    pub(super) fn wake_sensitive_groups(&mut self) {
        let all = self.ties_changed || !self.globals.is_empty();
        let is_woken = |first: &&UnitNo| all || !only_lifts_help(&self.groups[*first]);
        let woken: Vec<UnitNo> = self.sensitive_groups.iter().filter(is_woken).copied().collect();
        woken.into_iter().for_each(|first| self.wake(first));
    }

    /// Whether these machines, which may take more than they did, might help a group of which one
    /// replaces others.
    pub(super) fn may_help(&self, group: &WaitingGroup, lifted: &[MachineNo]) -> bool {
        let [unit] = group.members[..] else { return true };
        !only_lifts_help(group)
            || self.policy.is_custom()
            || lifted.iter().any(|machine| self.may_replace(unit, *machine))
            || self.may_go_to_any(unit, lifted)
    }

    /// Whether a machine might take a unit if those leave whom it replaces there.
    fn may_replace(&self, unit: UnitNo, machine: MachineNo) -> bool {
        let leaving = self.leaving(&replaces::replaced(self, unit, machine), machine);
        let query =
            PlacementQuery { leaving: &leaving, ..PlacementQuery::new(self, unit, machine) };
        query.denial_within_group().is_none()
    }

    /// Whether a unit that another one replaces might go to one of these machines, and that one
    /// come to its place.
    fn may_go_to_any(&self, unit: UnitNo, lifted: &[MachineNo]) -> bool {
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
            lifted.iter().filter(to).any(takes) && self.may_replace(unit, current)
        };
        assigned.by_ref().take(MAX_REPLACED).any(goes) || assigned.next().is_some()
    }
}

/// Whether nobody who comes can help a group that replaces others, what is tied left aside.
fn only_lifts_help(group: &WaitingGroup) -> bool {
    !group.helped_by_any_arrival && group.members.len() == 1
}
