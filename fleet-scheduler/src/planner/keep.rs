//! Kept placements: takes units off their machines if they no longer pass every rule there.
//!
//! Only machines that have changed are rechecked, and each of them independently of the others.

use std::sync::Arc;

use fleet_core::{Epoch, Refusal};

use super::departures::Departures;
use crate::index::{Cluster, LeaveReason, Lookup, MachineNo, Occupancy, UnitKind, UnitNo};
use crate::rules::{Denial, PlacementQuery, machine_of};

/// The units that a machine loses, and its global units.
#[derive(Debug, Default)]
struct RecheckOutcome {
    refused: Vec<(UnitNo, Refusal)>,
    globals: Vec<UnitNo>,
}

impl Cluster {
    /// Rechecks all machines that have changed. Returns the machines that a unit left or came to.
    pub(crate) fn recheck_machines(&mut self) -> Vec<MachineNo> {
        let mut changed_machines = Vec::new();
        for machine in std::mem::take(&mut self.dirty) {
            let slot = &mut self.machines.slots[machine];
            slot.dirty = false;
            if !slot.is_present() {
                continue;
            }
            let before = self.log.len();
            self.recheck_machine(machine);
            if self.log.len() > before {
                changed_machines.push(machine);
            }
        }
        changed_machines
    }

    fn recheck_machine(&mut self, machine: MachineNo) {
        if self.all_pass(machine) {
            return self.refit_globals(machine);
        }
        let outcome = self.kept_units(machine);
        for (unit, refusal) in outcome.refused {
            self.unassign(unit, machine, LeaveReason::Refused(Arc::new(refusal)));
            self.enqueue(unit);
            self.requeue_tied(unit);
        }
        self.set_globals(machine, &outcome.globals);
    }

    /// Returns whether a cheap check shows that every unit on the machine may stay. `false` means
    /// that a full check is necessary.
    fn all_pass(&self, machine: MachineNo) -> bool {
        let slot = &self.machines.slots[machine];
        let occupancy = &slot.occupancy;
        let passes =
            |unit: &UnitNo| PlacementQuery::new(self, *unit, machine).denial_of_placed().is_none();
        occupancy.tied == 0
            && occupancy.has_no_patterns()
            && occupancy.used().first_over(&slot.machine().offers).is_none()
            && occupancy.units.iter().all(passes)
    }

    fn kept_units(&self, machine: MachineNo) -> RecheckOutcome {
        let mut refused = Vec::new();
        let mut candidates = Vec::new();
        for unit in self.by_seniority(machine) {
            let query = PlacementQuery::new(self, unit, machine);
            match query.denial_of_placed() {
                Some(denial) => refused.push((unit, query.refusal(denial))),
                None => candidates.push(unit),
            }
        }
        loop {
            let mut occupancy = Occupancy::default();
            let rejected = self.keep_each(&mut occupancy, machine, &candidates);
            let globals = self.fit_in(&mut occupancy, machine);
            let lost = self.lost(&occupancy, machine);
            if lost.is_empty() {
                refused.extend(rejected);
                return RecheckOutcome { refused, globals };
            }
            if rejected.is_empty() && self.globals.is_empty() {
                // The others accept each other. The next rounds only lose more units like these.
                refused.extend(self.lost_with(lost, &occupancy, machine));
                return RecheckOutcome { refused, globals };
            }
            let is_lost: Lookup<UnitNo, ()> = lost.iter().map(|(unit, _)| (*unit, ())).collect();
            candidates.retain(|unit| !is_lost.contains(unit));
            refused.extend(lost);
        }
    }

    /// Returns the units placed on a machine: unreadable units first, then by epoch, then by name.
    fn by_seniority(&self, machine: MachineNo) -> Vec<UnitNo> {
        let mut units = self.machines.slots[machine].occupancy.units.clone();
        units.sort_by(|a, b| {
            let key = |unit: &UnitNo| -> (bool, Epoch) {
                let slot = &self.units.slots[*unit];
                (slot.kind != UnitKind::Unreadable, slot.epoch)
            };
            let by_name = || self.units.name(*a).cmp(self.units.name(*b));
            key(a).cmp(&key(b)).then_with(by_name)
        });
        units
    }

    /// Adds each candidate to an empty occupancy if it is compatible with the candidates added
    /// before it. Returns the other candidates, each with its refusal.
    fn keep_each(
        &self,
        occupancy: &mut Occupancy,
        machine: MachineNo,
        candidates: &[UnitNo],
    ) -> Vec<(UnitNo, Refusal)> {
        let mut rejected = Vec::new();
        for unit in candidates {
            let slot = &self.units.slots[*unit];
            let query = PlacementQuery { occupancy, ..PlacementQuery::new(self, *unit, machine) };
            let denial = query.denial_by_others().filter(|_| slot.kind != UnitKind::Unreadable);
            if let Some(denial) = denial {
                rejected.push((*unit, query.refusal(denial)));
                continue;
            }
            occupancy.add(self.class(*unit), !slot.peers().is_empty());
            occupancy.units.push(*unit);
        }
        rejected
    }

    /// Returns the units of an occupancy that lack a peer of their `MachineOf=` on that machine,
    /// each with its refusal.
    fn lost(&self, occupancy: &Occupancy, machine: MachineNo) -> Vec<(UnitNo, Refusal)> {
        if occupancy.tied == 0 {
            return Vec::new();
        }
        let mut there: Vec<UnitNo> =
            occupancy.units.iter().chain(&occupancy.globals).copied().collect();
        there.sort_unstable();
        let is_on = |unit: UnitNo| there.binary_search(&unit).is_ok();
        let lacks = |unit: &UnitNo| {
            let at = machine_of::missing(self, *unit, |peer| {
                machine_of::is_at(self, *unit, peer, occupancy, is_on)
            })?;
            let query = PlacementQuery { occupancy, ..PlacementQuery::new(self, *unit, machine) };
            Some((*unit, query.refusal(Denial::MachineOf(at))))
        };
        occupancy.units.iter().filter_map(lacks).collect()
    }

    /// Returns the units of an occupancy that are lost, and those that lack a peer without them,
    /// each with its refusal.
    fn lost_with(
        &self,
        mut lost: Vec<(UnitNo, Refusal)>,
        occupancy: &Occupancy,
        machine: MachineNo,
    ) -> Vec<(UnitNo, Refusal)> {
        let mut departures = Departures::among(self, machine, occupancy);
        let mut more: Vec<UnitNo> = lost.iter().map(|(unit, _)| *unit).collect();
        while !more.is_empty() {
            more = departures.leave_all(&more);
            lost.extend(more.iter().filter_map(|unit| {
                let missing = Denial::MachineOf(departures.first_missing(*unit)?);
                Some((*unit, PlacementQuery::new(self, *unit, machine).refusal(missing)))
            }));
        }
        lost
    }
}
