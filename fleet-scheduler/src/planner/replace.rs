//! Replacement: a unit that comes to a machine displaces the units that it replaces there, if other
//! machines accept these units.

use super::departures::Departures;
use crate::index::{Cluster, LeaveReason, MachineNo, UnitNo};
use crate::rules::{Denial, PlacementQuery, machine_of, replaces};

impl Cluster {
    /// Assigns a unit to a machine, after moving the units that it replaces there to other
    /// machines. On error, assigns and moves no unit.
    ///
    /// `arrived` lists units that have just been assigned to the machine and must not move again.
    /// `displaced` is increased by the number of displaced groups that the function tried to move.
    pub(super) fn try_assign(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        arrived: &[UnitNo],
        displaced: &mut usize,
    ) -> Result<(), Denial> {
        let replaced = replaces::replaced(self, unit, machine);
        let leaving = self.leaving(&replaced, machine);
        let query =
            PlacementQuery { leaving: &leaving, ..PlacementQuery::new(self, unit, machine) };
        if let Some(denial) = query.denial() {
            return Err(denial);
        }
        let Some(first) = replaced.first().copied() else {
            self.assign(unit, machine);
            return Ok(());
        };
        let savepoint = self.savepoint();
        let result = self.make_room(unit, machine, &replaced, arrived, displaced).and_then(|()| {
            self.assign(unit, machine);
            self.refit_globals(machine);
            let well = machine_of::left_behind(self, machine).is_empty();
            if well { Ok(()) } else { Err(Denial::CannotMove(first)) }
        });
        if result.is_err() {
            self.roll_back(&savepoint);
        }
        result
    }

    /// Returns the units that must leave a machine, without duplicates: the replaced units, and all
    /// units that have to move with them.
    pub(super) fn leaving(&self, replaced: &[UnitNo], machine: MachineNo) -> Vec<UnitNo> {
        let displaced = replaced.iter().flat_map(|head| self.displaced_group(*head, machine));
        let mut leaving: Vec<UnitNo> = displaced.collect();
        leaving.sort_unstable();
        leaving.dedup();
        leaving
    }

    fn make_room(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        replaced: &[UnitNo],
        arrived: &[UnitNo],
        displaced: &mut usize,
    ) -> Result<(), Denial> {
        for other in replaced {
            if self.units.slots[*other].machine != machine {
                continue; // It moved with the group of an earlier unit.
            }
            *displaced += 1;
            if !self.move_away(*other, machine, unit, arrived) {
                return Err(Denial::CannotMove(*other));
            }
        }
        Ok(())
    }

    /// Moves a unit with its displaced group to another machine because the unit `by` replaces it.
    /// Returns whether some machine accepts the whole group; if none does, changes nothing.
    ///
    /// All units of the group must pass every rule on the new machine, and must not replace another
    /// unit there. Units in `arrived` cannot move.
    fn move_away(&mut self, head: UnitNo, from: MachineNo, by: UnitNo, arrived: &[UnitNo]) -> bool {
        let group = self.displaced_group(head, from);
        if group.iter().any(|unit| !self.is_single(*unit) || arrived.contains(unit)) {
            return false;
        }
        let savepoint = self.savepoint();
        for member in &group {
            let reason = if *member == head {
                LeaveReason::ReplacedBy(by)
            } else {
                LeaveReason::Follows(head)
            };
            self.unassign(*member, from, reason);
        }
        let found = match self.required_machine(&group) {
            Err(_) => false,
            Ok(Some(machine)) => {
                let present = self.machines.slots[machine].is_present();
                present && machine != from && self.assign_displaced(&group, machine)
            }
            Ok(None) if self.policy.scores.is_empty() => {
                let takes = |index: &mut Self, machine: MachineNo| {
                    machine != from && index.assign_displaced(&group, machine)
                };
                self.search(head, takes).is_some()
            }
            Ok(None) => {
                let mut all = self.ranked_machines(head).into_iter();
                all.any(|machine| machine != from && self.assign_displaced(&group, machine))
            }
        };
        if !found {
            self.roll_back(&savepoint);
        }
        found
    }

    /// Assigns a whole displaced group to a machine, in any order in which the machine accepts its
    /// units. Assigns none of them and returns `false` if there is no such order, or if one of them
    /// would replace a unit there.
    fn assign_displaced(&mut self, group: &[UnitNo], machine: MachineNo) -> bool {
        let savepoint = self.savepoint();
        let mut left = group.to_vec();
        while !left.is_empty() {
            let before = left.len();
            let mut rest = Vec::new();
            for unit in left {
                let replaces = !replaces::replaced(self, unit, machine).is_empty();
                match self.denial(unit, machine) {
                    None if !replaces => self.assign(unit, machine),
                    Some(Denial::MachineOf(_) | Denial::Custom(_)) if !replaces => rest.push(unit),
                    _ => {
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

    /// Returns the displaced group of a unit: the unit itself, and all units on its machine that
    /// would lack a peer if the group left.
    ///
    /// The unit comes first. It is followed by the units that lack it, sorted by name, then by the
    /// units that lack one of these, and so on.
    fn displaced_group(&self, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
        let mut group = vec![head];
        if self.machines.slots[machine].occupancy.tied == 0 {
            return group;
        }
        let mut departures = Departures::new(self, machine);
        let mut more = departures.leave_all(&group);
        while !more.is_empty() {
            group.extend(&more);
            more = departures.leave_all(&more);
        }
        group
    }

    /// Separates units that share a machine with a unit that replaces them: moves the replaced unit
    /// away, if another machine accepts it. Returns whether any unit moved.
    ///
    /// A replacer may itself share the machine with a unit that replaces it. Such a replacer is
    /// handled last, because it may have moved away by then. No unit is moved to a machine with a
    /// unit that replaces it or that it replaces. So a move never makes a separation on another
    /// machine necessary.
    pub(super) fn separate_replaced(&mut self) -> bool {
        let replacers = self.side_by_side_replacers();
        let mut moved = false;
        for only_staying in [true, false] {
            for unit in &replacers {
                let Some(machine) = self.units.slots[*unit].machine.some() else { continue };
                let replaced = replaces::replaced(self, *unit, machine);
                if replaced.is_empty()
                    || only_staying && replaces::is_to_leave(self, *unit, machine)
                {
                    continue;
                }
                for other in replaced {
                    moved |= self.separate(other, machine, *unit);
                }
            }
        }
        moved
    }

    /// Returns the units that may replace another unit on their own machine, sorted by name.
    fn side_by_side_replacers(&self) -> Vec<UnitNo> {
        let there = |machine: &MachineNo| &self.machines.slots[*machine].occupancy.units;
        let replaces = |unit: &&UnitNo| !self.class(**unit).replaces.is_empty();
        let replacers = self.replacement_machines.iter().flat_map(there).filter(replaces);
        let mut replacers: Vec<UnitNo> = replacers.copied().collect();
        self.units.sort(&mut replacers);
        replacers
    }

    /// Moves a unit away from its replacer `by`, if another machine accepts the unit and no other
    /// unit then lacks a peer. Returns whether the unit moved.
    fn separate(&mut self, other: UnitNo, machine: MachineNo, by: UnitNo) -> bool {
        if self.units.slots[other].machine != machine || self.is_still_immovable(other, machine) {
            return false;
        }
        let savepoint = self.savepoint();
        if !self.move_away(other, machine, by, &[]) {
            if !self.is_tied(other) && !self.policy.retries_on_any_change() {
                self.immovable.insert(other, self.orders.loosened_machines.end());
            }
            return false;
        }
        self.refit_globals(machine);
        if machine_of::left_behind(self, machine).is_empty() {
            return true;
        }
        self.roll_back(&savepoint);
        false
    }

    /// Returns whether an earlier attempt to move a unit away from its replacer failed, and a new
    /// attempt would fail too.
    ///
    /// The function checks only the machines that may accept more units than at the earlier
    /// attempt, because all others would refuse the unit again. The result is always `false` for a
    /// unit that is tied to others, because the attempt then also depends on these.
    fn is_still_immovable(&mut self, unit: UnitNo, from: MachineNo) -> bool {
        let Some(position) = self.immovable.get(&unit).filter(|_| !self.is_tied(unit)) else {
            return false;
        };
        let Some(loosened) = self.orders.loosened_machines.since(*position) else { return false };
        let takes = |machine: &MachineNo| {
            *machine != from
                && self.machines.slots[*machine].is_present()
                && self.denial(unit, *machine).is_none()
        };
        if loosened.iter().any(takes) {
            return false;
        }
        self.immovable.insert(unit, self.orders.loosened_machines.end());
        true
    }
}
