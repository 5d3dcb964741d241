//! Pure: the placements as they are stored, of which the snapshot shows one for each unit.
//!
//! Placements are kept by machine, so a store can hold two of one unit. Nothing of fleet's own
//! writes such; if somebody did, the one with the higher epoch counts, as it does for an agent that
//! remembers the other one, and of two with the same epoch the one whose machine comes first. What
//! does not count is a *stray*, and goes with the next pass of an engine. If one of two cannot be
//! understood, nobody can say which counts: then none does, and no machine is told that it is not
//! its own.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fleet_core::{Epoch, Fault, MachineId, Placement, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::RemovePlacement;

/// What is stored of placements beside those that count.
#[derive(Debug, Default)]
pub(super) struct StoredPlacements {
    /// All but the one that counts.
    others: BTreeMap<UnitName, BTreeMap<MachineId, Epoch>>,
    /// Placements that cannot be understood: a fault of their unit, so that nobody takes it for
    /// one that has none.
    unreadable: BTreeMap<UnitName, BTreeMap<MachineId, Fault>>,
    /// When a leader last wrote placements, if one ever did.
    last_write: Option<Revision>,
}

/// Where the placements of one unit are stored, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitPlacements {
    /// The machines under which there is one: nearly always one, or none.
    pub(crate) machines: Vec<MachineId>,
    /// When a leader last wrote placements: as long as none does again, no other machine is added.
    pub(crate) last_write: Option<Revision>,
}

/// What a change of one placement has done to its unit.
pub(super) struct PlacementMove {
    /// Where the unit counted as placed before, and where it does now.
    pub(super) machines: [Option<MachineId>; 2],
    /// Whether the unit had such a fault before, or has one now.
    pub(super) faulty: bool,
}

impl StoredPlacements {
    /// Takes a stored placement over. Of one that cannot be understood, it stays what was known:
    /// by the snapshot, or else by `known`.
    pub(super) fn put(
        &mut self,
        snapshot: &mut Snapshot,
        (unit, machine): (&UnitName, MachineId),
        read: Result<Epoch, Fault>,
        known: Option<&Snapshot>,
    ) -> PlacementMove {
        if let Ok(epoch) = read
            && self.has_no_other(snapshot, unit, &machine)
        {
            let before = snapshot.placement(unit.as_str()).map(|_| machine.clone());
            snapshot.place(unit.clone(), machine.clone(), epoch);
            return PlacementMove { machines: [before, Some(machine)], faulty: false };
        }
        let before = self.take_fault(unit, &machine);
        let mut all = self.readable(snapshot, unit);
        let faulty = before || read.is_err();
        match read {
            Ok(epoch) => drop(all.insert(machine, epoch)),
            Err(fault) => {
                let stays = known.and_then(|known| known.placement(unit.as_str()));
                if let Some(stays) = stays.filter(|stays| stays.machine == machine) {
                    all.entry(machine.clone()).or_insert(stays.epoch);
                }
                self.unreadable.entry(unit.clone()).or_default().insert(machine, fault);
            }
        }
        PlacementMove { machines: self.recount(snapshot, unit, all), faulty }
    }

    /// Takes over that a stored placement is gone.
    pub(super) fn remove(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        machine: &MachineId,
    ) -> PlacementMove {
        let faulty = self.take_fault(unit, machine);
        let mut all = self.readable(snapshot, unit);
        all.remove(machine);
        PlacementMove { machines: self.recount(snapshot, unit, all), faulty }
    }

    /// Notes when a leader last wrote placements.
    pub(super) fn note_last_write(&mut self, last_write: Option<Revision>) {
        self.last_write = last_write;
    }

    /// What is wrong with a placement of the unit, if one cannot be understood.
    pub(super) fn fault(&self, unit: &UnitName) -> Option<&Fault> {
        self.unreadable.get(unit)?.values().next()
    }

    /// Where the placements of a unit are stored.
    pub(super) fn of(&self, snapshot: &Snapshot, unit: &UnitName) -> UnitPlacements {
        let counting = snapshot.placement(unit.as_str()).map(|placement| &placement.machine);
        let others = self.others.get(unit).into_iter().flat_map(BTreeMap::keys);
        let unreadable = self.unreadable.get(unit).into_iter().flat_map(BTreeMap::keys);
        let mut machines: Vec<_> = counting.into_iter().chain(others).chain(unreadable).collect();
        machines.sort();
        machines.dedup();
        let machines = machines.into_iter().cloned().collect();
        UnitPlacements { machines, last_write: self.last_write }
    }

    /// The placements that do not count, of units of which one does.
    pub(super) fn superseded(&self) -> Vec<RemovePlacement> {
        let is_known = |unit: &UnitName| !self.unreadable.contains_key(unit);
        let of = |(unit, superseded): (&UnitName, &BTreeMap<MachineId, Epoch>)| {
            let unplace = |(machine, epoch): (&MachineId, &Epoch)| RemovePlacement {
                unit: unit.clone(),
                previous: Placement { machine: machine.clone(), epoch: *epoch },
            };
            superseded.iter().map(unplace).collect::<Vec<_>>()
        };
        self.others.iter().filter(|(unit, _)| is_known(unit)).flat_map(of).collect()
    }

    /// Whether the unit has no placement but, perhaps, one on this machine that is understood: what
    /// is so of nearly all costs nothing beside the snapshot.
    fn has_no_other(&self, snapshot: &Snapshot, unit: &UnitName, machine: &MachineId) -> bool {
        let counting = snapshot.placement(unit.as_str());
        counting.is_none_or(|counting| counting.machine == *machine)
            && !self.others.contains_key(unit)
            && !self.unreadable.contains_key(unit)
    }

    fn take_fault(&mut self, unit: &UnitName, machine: &MachineId) -> bool {
        let Some(faults) = self.unreadable.get_mut(unit) else { return false };
        faults.remove(machine);
        if faults.is_empty() {
            self.unreadable.remove(unit);
        }
        true
    }

    /// All placements of a unit that were ever understood.
    fn readable(&mut self, snapshot: &Snapshot, unit: &UnitName) -> BTreeMap<MachineId, Epoch> {
        let mut all = self.others.remove(unit).unwrap_or_default();
        let counting = snapshot.placement(unit.as_str());
        all.extend(counting.map(|placement| (placement.machine.clone(), placement.epoch)));
        all
    }

    /// Lets the snapshot show which of all placements counts, and keeps the others in mind. Of one
    /// that cannot be understood now, it stays that it counts, and nothing else.
    fn recount(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        mut all: BTreeMap<MachineId, Epoch>,
    ) -> [Option<MachineId>; 2] {
        let before = snapshot.placement(unit.as_str()).map(|placement| placement.machine.clone());
        let counts = all.iter().max_by_key(|(machine, epoch)| (**epoch, Reverse(*machine)));
        let counts = counts.map(|(machine, epoch)| (machine.clone(), *epoch));
        let unreadable = self.unreadable.get(unit);
        let mut may_count = unreadable.into_iter().flat_map(BTreeMap::keys);
        let counts = counts.filter(|(machine, _)| may_count.all(|other| other == machine));
        match &counts {
            Some((machine, epoch)) => {
                all.remove(machine);
                snapshot.place(unit.clone(), machine.clone(), *epoch);
            }
            None => snapshot.unplace(unit.as_str()),
        }
        all.retain(|machine, _| unreadable.is_none_or(|faults| !faults.contains_key(machine)));
        if !all.is_empty() {
            self.others.insert(unit.clone(), all);
        }
        [before, counts.map(|(machine, _)| machine)]
    }
}
