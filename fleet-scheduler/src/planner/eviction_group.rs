//! Eviction groups: units that can leave their machine only together, and the moves of these groups
//! to other machines for a drain or a rebalancing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::departures::Departures;
use crate::index::{ClassNo, Cluster, LeaveReason, Lookup, MachineNo, PeerRef, UnitNo};
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

impl Cluster {
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
        self.closure(vec![head], machine)
    }

    fn closure(&self, mut next: Vec<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        if self.machines.slots[machine].occupancy.tied == 0 {
            return self.in_group_order(next, machine);
        }
        let mut departures = Departures::new(self, machine);
        let mut all = Vec::new();
        while let Some(unit) = next.pop() {
            if departures.is_gone(unit) {
                continue;
            }
            all.push(unit);
            next.extend(departures.leave(unit));
            next.extend(self.named_on(unit, machine));
        }
        self.in_group_order(all, machine)
    }

    /// Returns the units on a machine that `MachineOf=` ties to a unit by name, directly or through
    /// others there, and the unit itself. They are all in the eviction group of each of them.
    pub(super) fn tied_by_name(&self, unit: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
        let mut all = vec![unit];
        let mut visited: Lookup<UnitNo, ()> = all.iter().map(|unit| (*unit, ())).collect();
        let mut next = 0;
        while let Some(at) = all.get(next).copied() {
            next += 1;
            let followers = self.units.slots[at].followers().iter().copied();
            let there = followers.filter(|other| self.units.slots[*other].machine == machine);
            for other in there.chain(self.named_on(at, machine)) {
                if visited.insert(other, ()) {
                    all.push(other);
                }
            }
        }
        all
    }

    /// Returns the units on a machine that a unit names, without global units.
    fn named_on(&self, unit: UnitNo, machine: MachineNo) -> impl Iterator<Item = UnitNo> {
        let peers = self.units.slots[unit].peers().iter();
        peers.filter_map(move |peer| match peer {
            PeerRef::Named(other) if self.units.slots[*other].machine == machine => Some(*other),
            _ => None,
        })
    }

    fn in_group_order(&self, mut all: Vec<UnitNo>, machine: MachineNo) -> Vec<UnitNo> {
        self.units.sort(&mut all);
        let place: Lookup<UnitNo, usize> = all.iter().copied().zip(0..).collect();
        let mut missing = vec![0; all.len()];
        let mut naming = vec![Vec::new(); all.len()];
        for (at, unit) in all.iter().enumerate() {
            for named in self.named_on(*unit, machine).filter_map(|named| place.get(&named)) {
                missing[at] += 1;
                naming[*named].push(at);
            }
        }
        // The first unit of the rest, which also begins a cycle.
        let mut first = 0;
        let mut is_ordered = vec![false; all.len()];
        let is_ready = |at: &usize| missing[*at] == 0;
        let mut ready: BinaryHeap<_> = (0..all.len()).filter(is_ready).map(Reverse).collect();
        let mut order = Vec::with_capacity(all.len());
        while order.len() < all.len() {
            while is_ordered[first] {
                first += 1;
            }
            let next = ready.pop().map_or(first, |Reverse(next)| next);
            is_ordered[next] = true;
            order.push(all[next]);
            for other in &naming[next] {
                missing[*other] -= 1;
                if missing[*other] == 0 && !is_ordered[*other] {
                    ready.push(Reverse(*other));
                }
            }
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
