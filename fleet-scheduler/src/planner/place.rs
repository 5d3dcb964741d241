//! Who comes: finds a machine for every unit that can have one.

use super::queue::Queue;
use crate::index::{Index, Kind, MachineNo, Mark, UnitNo, Wait};
use crate::rules::{Denial, Question, machine_of};

/// How many machines are tried one after the other before all are looked at together.
pub(super) const PATIENCE: usize = 32;

impl Index {
    /// Places what can be placed, and parts what can be parted.
    pub(super) fn place_and_part(&mut self, queue: &mut Queue) {
        self.classes.turn += 1; // No class has been woken in it.
        self.wake_restless();
        loop {
            while let Some(unit) = self.next_in(queue) {
                self.attempt(unit, queue);
            }
            // Not before: a unit that was just placed may have made one of the two leave already.
            let mark = self.mark();
            if !self.part_side_by_side() {
                self.ties_stirred = false; // Whoever that may help has been tried.
                return;
            }
            self.wake_restless();
            self.wake_after(mark);
        }
    }

    /// Wakes those whom it may help that units came to machines since a mark.
    fn wake_after(&mut self, mark: Mark) {
        let came = self.since(mark).iter().filter(|event| event.left.is_none());
        let mut came: Vec<UnitNo> = came.map(|event| event.unit).collect();
        came.sort_unstable();
        came.dedup();
        came.into_iter().for_each(|unit| self.wake_after_coming(unit));
    }

    /// Tries to find a machine for a unit, or for the group that it stands for.
    fn attempt(&mut self, unit: UnitNo, queue: &mut Queue) {
        if self.is_tied(unit) {
            let component = self.component(unit);
            match component.groups.into_iter().find(|group| group.contains(&unit)) {
                Some(group) => self.attempt_group(group, queue),
                None => {
                    self.forget_waiting(unit);
                    self.park_vain(unit);
                    queue.tried.push(unit);
                }
            }
        } else if self.class(unit).replaces.is_empty() && !self.policy.is_moody() {
            self.attempt_one(unit, queue);
        } else {
            self.attempt_group(vec![unit], queue);
        }
    }

    fn attempt_one(&mut self, unit: UnitNo, queue: &mut Queue) {
        let class = self.units.slots[unit].class;
        let Some(machine) = self.find_machine(unit) else {
            self.classes.slots[class].awake = 0;
            self.park(unit);
            queue.tried.push(unit);
            return;
        };
        self.units.slots[unit].wait = Wait::No;
        self.seat(unit, machine);
        self.wake_after_coming(unit);
        let turn = self.classes.turn;
        let class = &mut self.classes.slots[class];
        if class.awake == turn {
            match class.parked.values().next().copied() {
                Some(next) => self.wake(next),
                None => class.awake = 0,
            }
        }
    }

    fn attempt_group(&mut self, group: Vec<UnitNo>, queue: &mut Queue) {
        let (mut trains, mark) = (0, self.mark());
        if self.place_group(&group, &mut trains) {
            group.into_iter().for_each(|unit| self.forget_waiting(unit));
            self.wake_after(mark);
            return;
        }
        for member in &group {
            self.forget_waiting(*member);
        }
        queue.tried.extend(&group);
        let moody = self.policy.is_moody();
        let restless = moody || group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        self.park_group(group, restless, moody || trains > 1 || !self.globals.is_empty());
    }

    /// Puts a group on the first machine that takes it. `trains` is set to how many trains had to
    /// move for it at most on any machine.
    fn place_group(&mut self, group: &[UnitNo], trains: &mut usize) -> bool {
        let Some(first) = group.first().copied() else { return false };
        match self.tied_machine(group) {
            Err(Nowhere) => return false,
            Ok(Some(machine)) => {
                let present = self.machines.slots[machine].is_present();
                return present && self.join_all(group, machine, trains).is_ok();
            }
            Ok(None) => {}
        }
        let replaces = group.iter().any(|unit| !self.class(*unit).replaces.is_empty());
        if replaces || !self.policy.scores.is_empty() {
            // To put all machines in order takes long, and mostly the first one will do.
            let top = self.top_machine(first);
            if top.is_some_and(|machine| self.join_all(group, machine, trains).is_ok()) {
                return true;
            }
            let all = self.all_in_order(first).into_iter();
            return all.into_iter().any(|machine| self.join_all(group, machine, trains).is_ok());
        }
        self.hunt(first, |index, machine| index.join_all(group, machine, &mut 0).is_ok()).is_some()
    }

    /// The only machine that can take a group, if its units say so.
    pub(super) fn tied_machine(&self, group: &[UnitNo]) -> Result<Option<MachineNo>, Nowhere> {
        let mut found = None;
        for unit in group {
            let pin = self.class(*unit).pin.some();
            for machine in pin.into_iter().chain(machine_of::seat_of_peer(self, *unit)) {
                if found.is_some_and(|other| other != machine) {
                    return Err(Nowhere);
                }
                found = Some(machine);
            }
        }
        Ok(found)
    }

    /// Puts a group on a machine, or says who was refused first and why; nothing is done then.
    pub(crate) fn join_all(
        &mut self,
        group: &[UnitNo],
        machine: MachineNo,
        trains: &mut usize,
    ) -> Result<(), (UnitNo, Denial)> {
        let trial = self.begin();
        let mut moved = 0;
        let mut result = Ok(());
        for (index, unit) in group.iter().enumerate() {
            if let Err(denial) = self.join(*unit, machine, &group[..index], &mut moved) {
                self.take_back(&trial);
                result = Err((*unit, denial));
                break;
            }
        }
        *trains = moved.max(*trains);
        result
    }

    /// The first rule by which a machine refuses a unit that replaces nobody.
    pub(crate) fn denial(&self, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
        Question::new(self, unit, machine).denial()
    }

    /// The units that must have just come from those that may move.
    pub(super) fn is_single(&self, unit: UnitNo) -> bool {
        self.units.slots[unit].kind == Kind::Single
    }
}

/// No machine can take a group, for its units are tied to several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nowhere;
