//! Pure: how changes of placements are taken over, and whom a change concerns.

use std::sync::Arc;

use fleet_core::MachineId;
use fleet_unitfile::UnitName;

use super::{View, fault};
use crate::RemovePlacement;
use crate::codec::decode_placement;
use crate::mirror::changes::ChangeSet;
use crate::mirror::machine_progress::AffectedMachines;
use crate::mirror::stored_placements::{PlacementMove, UnitPlacements};

impl View {
    /// Whom it concerns what this view took over since this was last asked.
    pub(in crate::mirror) fn take_affected(&mut self) -> AffectedMachines {
        std::mem::take(&mut self.affected)
    }

    /// Where the placements of a unit are stored.
    pub(in crate::mirror) fn placements_of(&self, unit: &UnitName) -> UnitPlacements {
        self.placements.of(&self.snapshot, unit)
    }

    /// The placements that do not count.
    pub(in crate::mirror) fn superseded(&self) -> Vec<RemovePlacement> {
        self.placements.superseded()
    }

    /// A placement that cannot be understood is one all the same; what was known of it stays.
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

    /// Notes what a change of a unit's placement on a machine is a reason to look at.
    pub(super) fn note_move(
        &mut self,
        unit: UnitName,
        machine: &MachineId,
        moved: PlacementMove,
        changes: &mut ChangeSet,
    ) {
        if moved.faulty {
            changes.units.insert(unit.clone());
        }
        if self.snapshot.fault(unit.as_str()).is_some() {
            self.affected.add_all(); // who has it goes by whether it is placed elsewhere
        }
        changes.placements.insert(unit);
        self.affected.add(machine);
        let [before, after] = &moved.machines;
        if before != after {
            before.iter().chain(after).for_each(|machine| self.affected.add(machine));
        }
    }

    /// Notes whom a change of a unit concerns, as it is seen now: asked before and after. Whoever
    /// is placed with it; all, if it runs anywhere or nobody can say where it belongs.
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
