//! Pure: applying changes of placements, and finding the affected machines.

use std::sync::Arc;

use fleet_core::MachineId;
use fleet_unitfile::UnitName;

use super::{View, fault};
use crate::codec::decode_placement;
use crate::mirror::changes::ChangeSet;
use crate::mirror::machine_progress::AffectedMachines;
use crate::mirror::stored_placements::{PlacementMove, UnitPlacements};
use crate::registry::RemovePlacement;

impl View {
    /// Takes the set of machines affected since the last call.
    pub(in crate::mirror) fn take_affected(&mut self) -> AffectedMachines {
        std::mem::take(&mut self.affected)
    }

    /// Returns the placements of a unit.
    pub(in crate::mirror) fn placements_of(&self, unit: &UnitName) -> UnitPlacements {
        self.placements.of(&self.snapshot, unit)
    }

    /// Returns the superseded placements.
    pub(in crate::mirror) fn superseded(&self) -> Vec<RemovePlacement> {
        self.placements.superseded()
    }

    /// Applies a stored placement. If the placement is unreadable, the last known version remains,
    /// because the unit still has a placement.
    pub(super) fn put_placement(
        &mut self,
        (unit, machine): (UnitName, MachineId),
        value: &[u8],
        known: Option<&Self>,
        changes: &mut ChangeSet,
    ) {
        let (unit, machine) = (self.shared_name(unit), self.shared_id(machine));
        let read = decode_placement(value).map_err(|e| fault("the unit's placement", &e));
        let known = known.map(|view| &*view.snapshot);
        let snapshot = Arc::make_mut(&mut self.snapshot);
        let moved = self.placements.put(snapshot, (&unit, machine.clone()), read, known);
        self.note_move(unit, &machine, moved, changes);
    }

    /// Records the effects of a changed placement.
    pub(super) fn note_move(
        &mut self,
        unit: UnitName,
        machine: &MachineId,
        moved: PlacementMove,
        changes: &mut ChangeSet,
    ) {
        if moved.had_fault {
            changes.units.insert(unit.clone());
        }
        if self.snapshot.fault(unit.as_str()).is_some() {
            // Any machine may run the unit, and has to know whether it is placed elsewhere.
            self.affected.add_all();
        }
        changes.placements.insert(unit);
        self.affected.add(machine);
        let [before, after] = &moved.machines;
        if before != after {
            before.iter().chain(after).for_each(|machine| self.affected.add(machine));
        }
    }

    /// Records the machines that a change of a unit affects: the machine of its placement, or all
    /// machines if the unit is global or unreadable. Call this both before and after the change.
    pub(super) fn note_affected(&mut self, unit: &UnitName) {
        let name = unit.as_str();
        if let Some(placement) = self.snapshot.placement(name) {
            self.affected.add(&placement.machine);
        }
        let anywhere = self.snapshot.unit(name).is_some_and(|unit| unit.is_global());
        if anywhere || self.snapshot.fault(name).is_some() {
            self.affected.add_all();
        }
    }
}
