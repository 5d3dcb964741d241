//! Who stays: takes off the units whose machine no longer passes every rule, and no others.
//!
//! Only machines where something has changed are looked at, each alone.

use std::sync::Arc;

use fleet_core::{Epoch, Refusal};

use crate::index::{Desk, Index, Kind, MachineNo, UnitNo, Why};
use crate::rules::{Denial, Question, machine_of};

/// Who stays on a machine, and who does not.
#[derive(Debug, Default)]
struct Outcome {
    refused: Vec<(UnitNo, Refusal)>,
    globals: Vec<UnitNo>,
}

impl Index {
    /// Settles all machines that need it. Returns those where anybody went or came.
    pub(crate) fn settle(&mut self) -> Vec<MachineNo> {
        let mut unsettled = Vec::new();
        for machine in std::mem::take(&mut self.dirty) {
            let slot = &mut self.machines.slots[machine];
            slot.dirty = false;
            if !slot.is_present() {
                continue;
            }
            let before = self.log.len();
            self.settle_one(machine);
            if self.log.len() > before {
                unsettled.push(machine);
            }
        }
        unsettled
    }

    fn settle_one(&mut self, machine: MachineNo) {
        if self.all_pass(machine) {
            return self.refit(machine);
        }
        let outcome = self.who_stays(machine);
        for (unit, refusal) in outcome.refused {
            self.unseat(unit, machine, Why::Refused(Arc::new(refusal)));
            self.freshen(unit);
            self.wake_around(unit);
        }
        self.set_globals(machine, &outcome.globals);
    }

    /// Whether it is easily seen that everybody on a machine may stay.
    fn all_pass(&self, machine: MachineNo) -> bool {
        let slot = &self.machines.slots[machine];
        let desk = &slot.desk;
        let passes =
            |unit: &UnitNo| Question::new(self, *unit, machine).denial_of_placed().is_none();
        desk.tied == 0
            && desk.has_no_patterns()
            && desk.used().first_over(&slot.machine().offers).is_none()
            && desk.units.iter().all(passes)
    }

    fn who_stays(&self, machine: MachineNo) -> Outcome {
        let mut refused = Vec::new();
        let mut candidates = Vec::new();
        for unit in self.by_seniority(machine) {
            let question = Question::new(self, unit, machine);
            match question.denial_of_placed() {
                Some(denial) => refused.push((unit, question.refusal(denial))),
                None => candidates.push(unit),
            }
        }
        loop {
            let mut desk = Desk::default();
            let rejected = self.seat_each(&mut desk, machine, &candidates);
            let globals = self.fit_in(&mut desk, machine);
            let lost = self.lost(&desk, machine);
            if lost.is_empty() {
                refused.extend(rejected);
                return Outcome { refused, globals };
            }
            candidates.retain(|unit| lost.iter().all(|(other, _)| other != unit));
            refused.extend(lost);
        }
    }

    /// The units placed on a machine: unreadable ones, then by epoch, then by name.
    fn by_seniority(&self, machine: MachineNo) -> Vec<UnitNo> {
        let mut units = self.machines.slots[machine].desk.units.clone();
        units.sort_by(|a, b| {
            let key = |unit: &UnitNo| -> (bool, Epoch) {
                let slot = &self.units.slots[*unit];
                (slot.kind != Kind::Unreadable, slot.epoch)
            };
            let by_name = || self.units.name(*a).cmp(self.units.name(*b));
            key(a).cmp(&key(b)).then_with(by_name)
        });
        units
    }

    /// Puts each on an empty desk that goes with those before it. Returns the others.
    fn seat_each(
        &self,
        desk: &mut Desk,
        machine: MachineNo,
        candidates: &[UnitNo],
    ) -> Vec<(UnitNo, Refusal)> {
        let mut rejected = Vec::new();
        for unit in candidates {
            let slot = &self.units.slots[*unit];
            let question = Question { desk, ..Question::new(self, *unit, machine) };
            let denial = question.denial_for_others().filter(|_| slot.kind != Kind::Unreadable);
            if let Some(denial) = denial {
                rejected.push((*unit, question.refusal(denial)));
                continue;
            }
            desk.count_in(self.class(*unit), !slot.peers().is_empty());
            desk.units.push(*unit);
        }
        rejected
    }

    /// Those on a desk who lack a unit there that they must be beside.
    fn lost(&self, desk: &Desk, machine: MachineNo) -> Vec<(UnitNo, Refusal)> {
        if desk.tied == 0 {
            return Vec::new();
        }
        let mut there: Vec<UnitNo> = desk.units.iter().chain(&desk.globals).copied().collect();
        there.sort_unstable();
        let is_on = |unit: UnitNo| there.binary_search(&unit).is_ok();
        let lacks = |unit: &UnitNo| {
            let at = machine_of::missing(self, *unit, |peer| {
                machine_of::is_at(self, *unit, peer, desk, is_on)
            })?;
            let question = Question { desk, ..Question::new(self, *unit, machine) };
            Some((*unit, question.refusal(Denial::MachineOf(at))))
        };
        desk.units.iter().filter_map(lacks).collect()
    }
}
