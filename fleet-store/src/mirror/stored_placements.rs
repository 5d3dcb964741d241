//! Pure: the stored placements, of which the snapshot shows at most one for each unit.
//!
//! Placement keys begin with the machine, so a store can hold two placements of one unit. Fleet's
//! own writers never create two. If another writer does, the placement with the higher epoch takes
//! precedence. (Agents apply the same rule to placements that they remember.) With equal epochs,
//! the placement on the first machine in order takes precedence. The other placements are
//! *superseded*, and the engine removes them in its next pass.
//!
//! The epoch of an unreadable placement is unknown, so it might take precedence over all other
//! placements of its unit. The snapshot then shows no placement of the unit, with one exception. If
//! the unreadable placement was readable earlier, its last readable version counts. If that version
//! takes precedence, the snapshot shows it, so no machine wrongly concludes that the unit is placed
//! elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fleet_core::snapshot::Fault;
use fleet_core::{Epoch, MachineId, Placement, Revision, Snapshot};
use fleet_unitfile::UnitName;

use crate::registry::RemovePlacement;

/// Stored placements, in addition to those in the snapshot.
#[derive(Debug, Default)]
pub(super) struct StoredPlacements {
    /// Readable placements that the snapshot does not show.
    others: BTreeMap<UnitName, BTreeMap<MachineId, Epoch>>,
    /// Unreadable placements. Each of them is also a fault of its unit, because the unit would
    /// otherwise look as if it had no placement.
    unreadable: BTreeMap<UnitName, BTreeMap<MachineId, Fault>>,
    /// Last write of placements by a leader, if any.
    last_write: Option<Revision>,
}

/// Known placements of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitPlacements {
    /// Machines with a placement of the unit; usually one or none.
    pub(crate) machines: Vec<MachineId>,
    /// Revision of the last write of placements by a leader, if any. `machines` is complete unless
    /// a leader has written placements after this revision.
    pub(crate) last_write: Option<Revision>,
}

/// Effect of a changed placement on its unit.
pub(super) struct PlacementMove {
    /// Machine of the placement that the snapshot shows, before and after the change.
    pub(super) machines: [Option<MachineId>; 2],
    /// Whether the unit had or has an unreadable placement.
    pub(super) had_fault: bool,
}

impl StoredPlacements {
    /// Applies a stored placement. If the placement is unreadable, its last readable version stays.
    /// That version is in `self` or `snapshot`. If a whole listing is loaded, it can also be in the
    /// earlier snapshot `known`.
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
            return PlacementMove { machines: [before, Some(machine)], had_fault: false };
        }
        let before = self.take_fault(unit, &machine);
        let mut all = self.readable(snapshot, unit);
        let had_fault = before || read.is_err();
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
        PlacementMove { machines: self.recount(snapshot, unit, all), had_fault }
    }

    /// Applies the deletion of a placement.
    pub(super) fn remove(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        machine: &MachineId,
    ) -> PlacementMove {
        let had_fault = self.take_fault(unit, machine);
        let mut all = self.readable(snapshot, unit);
        all.remove(machine);
        PlacementMove { machines: self.recount(snapshot, unit, all), had_fault }
    }

    /// Records the last write of placements by a leader.
    pub(super) fn note_last_write(&mut self, last_write: Option<Revision>) {
        self.last_write = last_write;
    }

    /// Returns the fault of an unreadable placement of the unit, if any.
    pub(super) fn fault(&self, unit: &UnitName) -> Option<&Fault> {
        self.unreadable.get(unit)?.values().next()
    }

    /// Returns the placements of a unit.
    pub(super) fn of(&self, snapshot: &Snapshot, unit: &UnitName) -> UnitPlacements {
        let preferred = snapshot.placement(unit.as_str()).map(|placement| &placement.machine);
        let others = self.others.get(unit).into_iter().flat_map(BTreeMap::keys);
        let unreadable = self.unreadable.get(unit).into_iter().flat_map(BTreeMap::keys);
        let mut machines: Vec<_> = preferred.into_iter().chain(others).chain(unreadable).collect();
        machines.sort();
        machines.dedup();
        let machines = machines.into_iter().cloned().collect();
        UnitPlacements { machines, last_write: self.last_write }
    }

    /// Returns the superseded placements. Units with unreadable placements are left out.
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

    /// Returns whether the unit has no placement, or only a readable one on this machine. This is
    /// the normal case, in which the placement needs no memory besides the snapshot.
    fn has_no_other(&self, snapshot: &Snapshot, unit: &UnitName, machine: &MachineId) -> bool {
        let preferred = snapshot.placement(unit.as_str());
        preferred.is_none_or(|preferred| preferred.machine == *machine)
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

    /// Returns the unit's placement in the snapshot, together with those in `self.others`, which
    /// are removed from there. The placement in the snapshot may be the last readable version of a
    /// placement that is now unreadable.
    fn readable(&mut self, snapshot: &Snapshot, unit: &UnitName) -> BTreeMap<MachineId, Epoch> {
        let mut all = self.others.remove(unit).unwrap_or_default();
        let preferred = snapshot.placement(unit.as_str());
        all.extend(preferred.map(|placement| (placement.machine.clone(), placement.epoch)));
        all
    }

    /// Chooses from `all` the placement of the unit that takes precedence, shows it in the
    /// snapshot, and keeps the other readable ones in `self`. If a placement on another machine is
    /// unreadable, shows none, because that one might take precedence. Returns the machine of the
    /// shown placement before and after.
    fn recount(
        &mut self,
        snapshot: &mut Snapshot,
        unit: &UnitName,
        mut all: BTreeMap<MachineId, Epoch>,
    ) -> [Option<MachineId>; 2] {
        let before = snapshot.placement(unit.as_str()).map(|placement| placement.machine.clone());
        let preferred = all.iter().max_by_key(|(machine, epoch)| (**epoch, Reverse(*machine)));
        let preferred = preferred.map(|(machine, epoch)| (machine.clone(), *epoch));
        let unreadable = self.unreadable.get(unit);
        let mut may_be_preferred = unreadable.into_iter().flat_map(BTreeMap::keys);
        let preferred =
            preferred.filter(|(machine, _)| may_be_preferred.all(|other| other == machine));
        match &preferred {
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
        [before, preferred.map(|(machine, _)| machine)]
    }
}
