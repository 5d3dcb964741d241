//! Eviction groups: units that can leave their machine only together, and the moves of these groups
//! to other machines for a drain or a rebalancing.

use std::collections::BTreeSet;

use crate::index::{ClassNo, Index, LeaveReason, MachineNo, PeerRef, UnitNo};
use crate::rules::{Denial, machine_of, replaces};

/// The purpose of a voluntary move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoveReason {
    Drain,
    Rebalance,
}

impl MoveReason {
    fn leave_reason(self) -> LeaveReason {
        match self {
            Self::Drain => LeaveReason::Drained,
            Self::Rebalance => LeaveReason::Rebalanced,
        }
    }
}

impl Index {
    /// Returns the single and unreadable units on a machine, sorted by name.
    pub(super) fn units_by_name(&self, machine: MachineNo) -> Vec<UnitNo> {
        let mut units = self.machines.slots[machine].occupancy.units.clone();
        self.units.sort(&mut units);
        units
    }

    /// Returns the eviction group of a unit: all units that must leave the machine together with
    /// this unit.
    ///
    /// If a member of the group names another unit there in `MachineOf=`, that unit is a member
    /// too. So is each unit that would lack a peer if the group left. In the result, each unit
    /// follows the units that it names; units are otherwise sorted by name.
    pub(super) fn eviction_group(&self, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
        self.closure(BTreeSet::from([head]), machine)
    }

    fn closure(&self, mut all: BTreeSet<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        let occupancy = &self.machines.slots[machine].occupancy;
        let mut before = 0;
        while before < all.len() && occupancy.tied > 0 {
            before = all.len();
            let named: Vec<UnitNo> =
                all.iter().flat_map(|unit| self.named_on(*unit, machine)).collect();
            all.extend(named);
            let follows =
                |unit: &&UnitNo| !all.contains(*unit) && self.lacks(**unit, machine, &all);
            let following: Vec<UnitNo> = occupancy.units.iter().filter(follows).copied().collect();
            all.extend(following);
        }
        self.in_group_order(all, machine)
    }

    /// Returns the units on a machine that a unit names, without global units.
    fn named_on(&self, unit: UnitNo, machine: MachineNo) -> impl Iterator<Item = UnitNo> {
        let peers = self.units.slots[unit].peers().iter();
        peers.filter_map(move |peer| match peer {
            PeerRef::Named(other) if self.units.slots[*other].machine == machine => Some(*other),
            _ => None,
        })
    }

    fn in_group_order(&self, all: BTreeSet<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        let mut left: Vec<UnitNo> = all.into_iter().collect();
        self.units.sort(&mut left);
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let is_next = |unit: &UnitNo| !self.named_on(*unit, machine).any(|n| left.contains(&n));
            // In a cycle every order is refused, so the choice does not matter.
            let next = left.iter().position(is_next).unwrap_or(0);
            order.push(left.remove(next));
        }
        order
    }

    /// Takes a group off its machine. Returns all units that left.
    ///
    /// The departure may change which global units fit on the machine, so that further units there
    /// lack a peer. These units join the group and leave as well.
    pub(super) fn detach_group(
        &mut self,
        mut group: Vec<UnitNo>,
        machine: MachineNo,
        reason: MoveReason,
    ) -> Vec<UnitNo> {
        loop {
            let savepoint = self.savepoint();
            for unit in &group {
                self.unassign(*unit, machine, reason.leave_reason());
            }
            self.refit_globals(machine);
            let lacking = machine_of::left_behind(self, machine);
            if lacking.is_empty() {
                return group;
            }
            self.roll_back(&savepoint);
            let more = lacking.into_iter().map(|(unit, _)| unit);
            group = self.closure(group.into_iter().chain(more).collect(), machine);
        }
    }

    /// Calls `takes` for one machine after the other until a call returns `true`. Returns whether
    /// one did. The machines come in the order in which the group's first unit tries them. If the
    /// group requires a certain machine, only that machine is tried. The machine `from`, which the
    /// group has left, is never tried.
    ///
    /// `takes` must assign the group to the machine and return whether that succeeded.
    pub(super) fn find_machine_for(
        &mut self,
        group: &[UnitNo],
        from: MachineNo,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> bool {
        let Some(first) = group.first().copied() else { return false };
        let mut takes = |index: &mut Self, machine| machine != from && takes(index, machine);
        let replacing = group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        match self.required_machine(group) {
            Err(_) => false,
            Ok(Some(machine)) => self.machines.slots[machine].is_present() && takes(self, machine),
            // Replaced units search for machines in the same order during the attempt.
            Ok(None) if replacing || !self.policy.scores.is_empty() => {
                self.ranked_machines(first).into_iter().any(|machine| takes(self, machine))
            }
            Ok(None) => self.search(first, takes).is_some(),
        }
    }

    /// Assigns the whole group to a machine, in any order in which the machine accepts its units.
    /// If there is no such order, assigns none of the units and returns `false`.
    pub(super) fn assign_group(&mut self, group: &[UnitNo], machine: MachineNo) -> bool {
        let savepoint = self.savepoint();
        // An accepted unit may have displaced one that was in the way of another.
        let replacing = group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        let (mut arrived, mut left) = (Vec::with_capacity(group.len()), group.to_vec());
        while !left.is_empty() {
            let before = left.len();
            let mut rest = Vec::new();
            for unit in left {
                match self.try_assign(unit, machine, &arrived, &mut 0) {
                    Ok(()) => arrived.push(unit),
                    Err(Denial::MachineOf(_) | Denial::Custom(_)) => rest.push(unit),
                    Err(_) if replacing => rest.push(unit),
                    Err(_) => {
                        self.roll_back(&savepoint);
                        return false;
                    }
                }
            }
            if rest.len() == before {
                self.roll_back(&savepoint);
                return false;
            }
            left = rest;
        }
        true
    }

    /// Returns whether a unit of the group would replace a unit on the machine.
    pub(super) fn would_replace(&self, group: &[UnitNo], machine: MachineNo) -> bool {
        group.iter().any(|unit| !replaces::replaced(self, *unit, machine).is_empty())
    }

    /// Returns the class of the only unit of a group, if that unit is not tied to others. Returns
    /// `None` for all other groups. Every machine treats all untied units of a class alike, so a
    /// verdict on one of them applies to all.
    pub(super) fn group_class(&self, group: &[UnitNo]) -> Option<ClassNo> {
        let [unit] = group else { return None };
        (!self.is_tied(*unit)).then(|| self.units.slots[*unit].class)
    }
}
