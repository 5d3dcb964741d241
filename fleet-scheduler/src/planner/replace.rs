//! Replacing: who comes to a machine makes those leave whom it replaces, if they have somewhere to
//! go.

use std::collections::BTreeSet;

use crate::index::{Index, MachineNo, PeerRef, UnitNo, Why};
use crate::rules::{Denial, Question, machine_of, replaces};

impl Index {
    /// Seats a unit on a machine and moves away what it replaces there. `beside` are units that
    /// have just come and must not be moved again. On error nothing is done. Each train that moves
    /// is added to `trains`.
    pub(super) fn join(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        beside: &[UnitNo],
        trains: &mut usize,
    ) -> Result<(), Denial> {
        let replaced = replaces::replaced(self, unit, machine);
        let leaving = self.leaving(&replaced, machine);
        let question = Question { leaving: &leaving, ..Question::new(self, unit, machine) };
        if let Some(denial) = question.denial() {
            return Err(denial);
        }
        let Some(first) = replaced.first().copied() else {
            self.seat(unit, machine);
            return Ok(());
        };
        let trial = self.begin();
        let result = self.make_room(unit, machine, &replaced, beside, trains).and_then(|()| {
            self.seat(unit, machine);
            self.refit(machine);
            let well = machine_of::left_behind(self, machine).is_empty();
            if well { Ok(()) } else { Err(Denial::CannotMove(first)) }
        });
        if result.is_err() {
            self.take_back(&trial);
        }
        result
    }

    /// The units on a machine that leave it if these do, each once.
    pub(super) fn leaving(&self, replaced: &[UnitNo], machine: MachineNo) -> Vec<UnitNo> {
        let trains = replaced.iter().flat_map(|head| self.train(*head, machine));
        let mut leaving: Vec<UnitNo> = trains.collect();
        leaving.sort_unstable();
        leaving.dedup();
        leaving
    }

    fn make_room(
        &mut self,
        unit: UnitNo,
        machine: MachineNo,
        replaced: &[UnitNo],
        beside: &[UnitNo],
        trains: &mut usize,
    ) -> Result<(), Denial> {
        for other in replaced {
            if self.units.slots[*other].seat != machine {
                continue; // It went along with one before it.
            }
            *trains += 1;
            if !self.move_away(*other, machine, unit, beside) {
                return Err(Denial::CannotMove(*other));
            }
        }
        Ok(())
    }

    /// Moves a unit with its train to another machine where every rule holds and nobody is replaced
    /// in turn. On failure nothing is done.
    fn move_away(&mut self, head: UnitNo, from: MachineNo, by: UnitNo, beside: &[UnitNo]) -> bool {
        let train = self.train(head, from);
        if train.iter().any(|unit| !self.is_single(*unit) || beside.contains(unit)) {
            return false;
        }
        let trial = self.begin();
        for member in &train {
            let why = if *member == head { Why::ReplacedBy(by) } else { Why::Follows(head) };
            self.unseat(*member, from, why);
        }
        let found = match self.tied_machine(&train) {
            Err(_) => false,
            Ok(Some(machine)) => {
                let present = self.machines.slots[machine].is_present();
                present && machine != from && self.seat_train(&train, machine)
            }
            Ok(None) if self.policy.scores.is_empty() => {
                let takes = |index: &mut Self, machine: MachineNo| {
                    machine != from && index.seat_train(&train, machine)
                };
                self.hunt(head, takes).is_some()
            }
            Ok(None) => {
                let mut all = self.all_in_order(head).into_iter();
                all.any(|machine| machine != from && self.seat_train(&train, machine))
            }
        };
        if !found {
            self.take_back(&trial);
        }
        found
    }

    /// Seats all of a train on a machine that takes them and where they replace nobody, in
    /// whichever order it takes them; or none.
    fn seat_train(&mut self, train: &[UnitNo], machine: MachineNo) -> bool {
        let trial = self.begin();
        let mut left = train.to_vec();
        while !left.is_empty() {
            let before = left.len();
            let mut rest = Vec::new();
            for unit in left {
                let replaces = !replaces::replaced(self, unit, machine).is_empty();
                match self.denial(unit, machine) {
                    None if !replaces => self.seat(unit, machine),
                    Some(Denial::MachineOf(_) | Denial::Custom(_)) if !replaces => rest.push(unit),
                    _ => {
                        self.take_back(&trial);
                        return false;
                    }
                }
            }
            if rest.len() == before {
                self.take_back(&trial);
                return false;
            }
            left = rest;
        }
        true
    }

    /// A unit on a machine, with all there who would lack a unit that they must be beside if these
    /// were gone. The unit is the first; the others follow by name, each round after the one that
    /// it lacks.
    fn train(&self, head: UnitNo, machine: MachineNo) -> Vec<UnitNo> {
        let desk = &self.machines.slots[machine].desk;
        let mut train = vec![head];
        if desk.tied == 0 {
            return train;
        }
        let mut gone: BTreeSet<UnitNo> = BTreeSet::from([head]);
        loop {
            let is_more =
                |unit: &&UnitNo| !gone.contains(*unit) && self.lacks(**unit, machine, &gone);
            let mut more: Vec<UnitNo> = desk.units.iter().filter(is_more).copied().collect();
            if more.is_empty() {
                return train;
            }
            self.units.sort(&mut more);
            gone.extend(&more);
            train.extend(more);
        }
    }

    /// Whether a unit on a machine would lack one that it must be beside if those were gone.
    pub(super) fn lacks(&self, unit: UnitNo, machine: MachineNo, gone: &BTreeSet<UnitNo>) -> bool {
        let desk = &self.machines.slots[machine].desk;
        let is_there = |peer: PeerRef| match peer {
            PeerRef::Named(other) => self.is_on(other, machine) && !gone.contains(&other),
            PeerRef::Matching(pattern) => {
                let mut others = desk.units.iter().chain(&desk.globals);
                others.any(|other| {
                    let is_other = *other != unit && !gone.contains(other);
                    is_other && self.class(*other).matched.binary_search(&pattern).is_ok()
                })
            }
        };
        machine_of::missing(self, unit, is_there).is_some()
    }

    /// Moves away the placed units that are beside one that replaces them, where they can go
    /// somewhere; whether any did.
    ///
    /// Who is to leave itself makes nobody leave before, for it may be gone by the time. Nobody who
    /// moves comes to be beside one who replaces it, so no other machine becomes uneasy meanwhile.
    pub(super) fn part_side_by_side(&mut self) -> bool {
        let replacers = self.uneasy_replacers();
        let mut moved = false;
        for only_who_stays in [true, false] {
            for unit in &replacers {
                let Some(machine) = self.units.slots[*unit].seat.some() else { continue };
                let replaced = replaces::replaced(self, *unit, machine);
                if replaced.is_empty()
                    || only_who_stays && replaces::is_to_leave(self, *unit, machine)
                {
                    continue;
                }
                for other in replaced {
                    moved |= self.part(other, machine, *unit);
                }
            }
        }
        moved
    }

    /// The units that may replace somebody beside them, by name.
    fn uneasy_replacers(&self) -> Vec<UnitNo> {
        let there = |machine: &MachineNo| &self.machines.slots[*machine].desk.units;
        let replaces = |unit: &&UnitNo| !self.class(**unit).replaces.is_empty();
        let replacers = self.uneasy.iter().flat_map(there).filter(replaces);
        let mut replacers: Vec<UnitNo> = replacers.copied().collect();
        self.units.sort(&mut replacers);
        replacers
    }

    /// Moves a unit away for the sake of a placed one, if it can go and nobody lacks it.
    fn part(&mut self, other: UnitNo, machine: MachineNo, by: UnitNo) -> bool {
        if self.units.slots[other].seat != machine || self.is_still_stuck(other, machine) {
            return false;
        }
        let trial = self.begin();
        if !self.move_away(other, machine, by, &[]) {
            if !self.is_tied(other) && !self.policy.is_moody() {
                self.stuck.insert(other, self.lanes.lifts.end());
            }
            return false;
        }
        self.refit(machine);
        if machine_of::left_behind(self, machine).is_empty() {
            return true;
        }
        self.take_back(&trial);
        false
    }

    /// Whether it is known that no other machine takes a unit that is to leave this one. If nothing
    /// ties it to others, only a machine where something was lifted since may have become one.
    fn is_still_stuck(&mut self, unit: UnitNo, from: MachineNo) -> bool {
        let Some(seen) = self.stuck.get(&unit).filter(|_| !self.is_tied(unit)) else {
            return false;
        };
        let Some(lifted) = self.lanes.lifts.since(*seen) else { return false };
        let takes = |machine: &MachineNo| {
            *machine != from
                && self.machines.slots[*machine].is_present()
                && self.denial(unit, *machine).is_none()
        };
        if lifted.iter().any(takes) {
            return false;
        }
        self.stuck.insert(unit, self.lanes.lifts.end());
        true
    }
}
