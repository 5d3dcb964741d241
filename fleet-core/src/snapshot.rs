//! The cluster as it was at one revision of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::{Epoch, UnitState};
use crate::{Machine, MachineId, Metadata, Placement, Reason, Revision, TargetState, Unit};

/// All that the cluster knows, at one revision.
///
/// Iteration is always in the order of names and machine IDs. Values are shared: copying a snapshot
/// copies references, not unit files.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The revision that this is the state of.
    pub revision: Revision,
    units: BTreeMap<UnitName, Arc<Unit>>,
    machines: BTreeMap<MachineId, Arc<Machine>>,
    placements: BTreeMap<UnitName, Placement>,
    states: BTreeMap<UnitName, BTreeMap<MachineId, Arc<UnitState>>>,
    reasons: BTreeMap<UnitName, Arc<Reason>>,
    faults: BTreeMap<UnitName, Arc<Fault>>,
    dynamic_metadata: BTreeMap<MachineId, Metadata>,
}

/// A stored unit that cannot be understood; it harms nobody but itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong with the stored record.
    pub message: String,
}

impl Snapshot {
    /// The units, in order of their names.
    pub fn units(&self) -> impl ExactSizeIterator<Item = &Arc<Unit>> {
        self.units.values()
    }

    /// The unit of that name.
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<&Arc<Unit>> {
        self.units.get(name)
    }

    /// The machines that are present, in order of their IDs.
    pub fn machines(&self) -> impl ExactSizeIterator<Item = &Arc<Machine>> {
        self.machines.values()
    }

    /// The machine of that ID, if it is present.
    #[must_use]
    pub fn machine(&self, id: &str) -> Option<&Arc<Machine>> {
        self.machines.get(id)
    }

    /// The placements, in order of the units' names.
    pub fn placements(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Placement)> {
        self.placements.iter()
    }

    /// Where the unit of that name was placed.
    #[must_use]
    pub fn placement(&self, unit: &str) -> Option<&Placement> {
        self.placements.get(unit)
    }

    /// The published states of all units, in order of names, then of machine IDs.
    pub fn states(&self) -> impl Iterator<Item = &Arc<UnitState>> {
        self.states.values().flat_map(BTreeMap::values)
    }

    /// The published states of one unit, in order of machine IDs.
    pub fn states_of(&self, unit: &str) -> impl Iterator<Item = &Arc<UnitState>> {
        self.states.get(unit).into_iter().flat_map(BTreeMap::values)
    }

    /// The published state of one unit on one machine.
    #[must_use]
    pub fn state(&self, unit: &str, machine: &str) -> Option<&Arc<UnitState>> {
        self.states.get(unit)?.get(machine)
    }

    /// Why the unit of that name has no machine, as the engine last said.
    #[must_use]
    pub fn reason(&self, unit: &str) -> Option<&Arc<Reason>> {
        self.reasons.get(unit)
    }

    /// The published reasons, in order of the units' names.
    pub fn reasons(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<Reason>)> {
        self.reasons.iter()
    }

    /// The stored units that cannot be understood, in order of their names.
    pub fn faults(&self) -> impl ExactSizeIterator<Item = (&UnitName, &Arc<Fault>)> {
        self.faults.iter()
    }

    /// What is wrong with the stored unit of that name, if anything is.
    #[must_use]
    pub fn fault(&self, unit: &str) -> Option<&Arc<Fault>> {
        self.faults.get(unit)
    }

    /// Metadata that was set at run time, for machines present or not; an empty value hides the
    /// key of the machine's configuration.
    #[must_use]
    pub fn dynamic_metadata(&self, machine: &str) -> Option<&Metadata> {
        self.dynamic_metadata.get(machine)
    }

    /// The current state of a unit: what has been done of what is desired.
    ///
    /// A unit without placement, or of which its machine has reported nothing, is inactive;
    /// otherwise it is what its agent last asked of the service manager. A global unit has one
    /// current state for each machine, so it is the least of these.
    #[must_use]
    pub fn current(&self, unit: &Unit) -> TargetState {
        if unit.is_global() {
            let asked = self.states_of(unit.name.as_str()).map(|state| state.asked);
            return asked.min().unwrap_or(TargetState::Inactive);
        }
        let machine = self.placement(unit.name.as_str()).map(|placement| &placement.machine);
        machine
            .and_then(|machine| self.state(unit.name.as_str(), machine.as_str()))
            .map_or(TargetState::Inactive, |state| state.asked)
    }

    /// Adds or replaces a unit.
    pub fn put_unit(&mut self, unit: Unit) {
        self.faults.remove(&unit.name);
        self.units.insert(unit.name.clone(), Arc::new(unit));
    }

    /// Records that the stored unit of that name cannot be understood.
    pub fn put_fault(&mut self, unit: UnitName, fault: Fault) {
        self.units.remove(&unit);
        self.faults.insert(unit, Arc::new(fault));
    }

    /// Forgets a unit, understood or not. Its placement and states have lives of their own.
    pub fn remove_unit(&mut self, unit: &str) {
        self.units.remove(unit);
        self.faults.remove(unit);
    }

    /// Adds or replaces a machine.
    pub fn put_machine(&mut self, machine: Machine) {
        self.machines.insert(machine.id.clone(), Arc::new(machine));
    }

    /// Forgets a machine.
    pub fn remove_machine(&mut self, machine: &str) {
        self.machines.remove(machine);
    }

    /// Places a unit.
    pub fn place(&mut self, unit: UnitName, machine: MachineId, epoch: Epoch) {
        self.placements.insert(unit, Placement { machine, epoch });
    }

    /// Takes a unit's placement away.
    pub fn unplace(&mut self, unit: &str) {
        self.placements.remove(unit);
    }

    /// Adds or replaces the state of a unit on a machine.
    pub fn put_state(&mut self, state: UnitState) {
        let of_unit = self.states.entry(state.unit.clone()).or_default();
        of_unit.insert(state.machine.clone(), Arc::new(state));
    }

    /// Forgets the state of a unit on a machine.
    pub fn remove_state(&mut self, unit: &str, machine: &str) {
        let Some(of_unit) = self.states.get_mut(unit) else {
            return;
        };
        of_unit.remove(machine);
        if of_unit.is_empty() {
            self.states.remove(unit);
        }
    }

    /// Records why a unit has no machine.
    pub fn put_reason(&mut self, unit: UnitName, reason: Reason) {
        self.reasons.insert(unit, Arc::new(reason));
    }

    /// Forgets why a unit had no machine.
    pub fn remove_reason(&mut self, unit: &str) {
        self.reasons.remove(unit);
    }

    /// Sets one pair of a machine's run-time metadata.
    pub fn put_dynamic_metadata(&mut self, machine: MachineId, key: String, value: String) {
        self.dynamic_metadata.entry(machine).or_default().insert(key, value);
    }

    /// Forgets one pair of a machine's run-time metadata.
    pub fn remove_dynamic_metadata(&mut self, machine: &str, key: &str) {
        let Some(pairs) = self.dynamic_metadata.get_mut(machine) else {
            return;
        };
        pairs.remove(key);
        if pairs.is_empty() {
            self.dynamic_metadata.remove(machine);
        }
    }
}
