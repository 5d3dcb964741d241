//! Observed placements and machines.

use std::sync::Arc;

use fleet_core::{Epoch, Machine, MachineId, Reschedule};

use super::units::{UnitKind, WaitState};
use super::{Cluster, MachineNo, UnitNo};

impl Cluster {
    /// Records the placement of a unit.
    pub(super) fn record_placement(&mut self, unit: UnitNo, id: &MachineId, epoch: Epoch) {
        let machine = self.intern_machine(id);
        let slot = &mut self.units.slots[unit];
        let (same, current) = (slot.placed == machine, slot.machine);
        if same && slot.epoch == epoch {
            return;
        }
        self.touched = true;
        slot.epoch = epoch;
        if same {
            current.some().into_iter().for_each(|current| self.mark_dirty(current));
            return;
        }
        self.machines.slots[machine].named += 1;
        self.requeue_tied(unit);
        self.withdraw(unit);
        self.forget_waiting(unit);
        self.forget_placement(unit);
        self.units.slots[unit].placed = machine;
        self.apply_placement(unit);
        self.requeue_tied(unit);
    }

    /// Removes the placement of a unit.
    pub(super) fn erase_placement(&mut self, unit: UnitNo) {
        if self.units.slots[unit].placed == MachineNo::NONE {
            return;
        }
        self.touched = true;
        self.requeue_tied(unit);
        self.withdraw(unit);
        self.forget_waiting(unit);
        self.forget_placement(unit);
        self.apply_placement(unit);
        self.requeue_tied(unit);
        self.units.forget_if_idle(unit);
    }

    fn forget_placement(&mut self, unit: UnitNo) {
        let machine = std::mem::take(&mut self.units.slots[unit].placed);
        if let Some(machine) = machine.some() {
            self.machines.slots[machine].named -= 1;
            self.machines.forget_if_idle(machine);
        }
    }

    /// Assigns a unit to the machine of its placement, or makes it wait.
    pub(super) fn apply_placement(&mut self, unit: UnitNo) {
        let slot = &self.units.slots[unit];
        let machine = slot.placed.some();
        match (slot.kind, machine) {
            (UnitKind::Single | UnitKind::Unreadable, Some(machine)) => {
                if self.machines.slots[machine].is_present() {
                    self.attach(unit, machine);
                    self.mark_dirty(machine);
                } else {
                    self.machines.slots[machine].stranded.insert(unit);
                    self.strand(unit);
                }
            }
            (UnitKind::Single, None) => self.enqueue(unit),
            (UnitKind::Unreadable, None) | (_, None) => {}
            (_, Some(_)) => {
                let name = self.units.name(unit).clone();
                self.unwanted.insert(name, unit);
            }
        }
    }

    /// Makes a unit without a present machine wait, unless it has `Reschedule=never`.
    fn strand(&mut self, unit: UnitNo) {
        let slot = &mut self.units.slots[unit];
        if slot.kind != UnitKind::Single {
            return;
        }
        let wants = slot.requirements.as_ref();
        let reschedule = wants.map_or(Reschedule::Always, |wants| wants.reschedule);
        if reschedule == Reschedule::Never {
            slot.wait = WaitState::Stranded;
            self.stranded.insert(unit);
            self.retry_queue.push(unit);
        } else {
            self.enqueue(unit);
        }
    }

    /// Undoes [`apply_placement`](Self::apply_placement).
    pub(super) fn withdraw(&mut self, unit: UnitNo) {
        let slot = &self.units.slots[unit];
        let (current, placed) = (slot.machine.some(), slot.placed.some());
        if let Some(current) = current {
            self.detach(unit, current);
            self.mark_dirty(current);
        } else if let Some(placed) = placed {
            self.machines.slots[placed].stranded.remove(&unit);
        }
        let name = self.units.name(unit);
        self.unwanted.remove(name);
    }

    /// Schedules a machine for a recheck in the next plan.
    pub(crate) fn mark_dirty(&mut self, machine: MachineNo) {
        self.touched = true;
        let slot = &mut self.machines.slots[machine];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(machine);
        }
    }

    /// Returns the number of a machine ID.
    pub(super) fn intern_machine(&mut self, id: &MachineId) -> MachineNo {
        let (machine, relabelled) = self.machines.intern(id);
        if relabelled {
            self.orders.ranks.discard_all();
            self.orders.loosened_machines.discard_all();
            self.refusal_cache.clear();
        }
        machine
    }

    /// Adds or replaces a machine.
    pub(super) fn update_machine(&mut self, facts: Arc<Machine>) {
        let machine = self.intern_machine(&facts.id);
        // Custom rules and scores may look at every property of a machine.
        let is_custom = self.policy.is_custom();
        let same = |old: &Arc<Machine>| {
            old.metadata == facts.metadata
                && old.offers == facts.offers
                && old.cordoned == facts.cordoned
                && (!is_custom || **old == *facts)
        };
        let old = self.machines.slots[machine].facts.as_ref();
        let is_same = old.is_some_and(same);
        if !is_same {
            let old = old.map(|old| &old.metadata);
            self.filters.change(machine, old, Some(&facts.metadata));
        }
        self.machines.set(machine, Some(facts));
        if is_same {
            return;
        }
        self.orders.facts_version += 1;
        self.note_loosened(machine);
        self.mark_dirty(machine);
        for unit in std::mem::take(&mut self.machines.slots[machine].stranded) {
            self.forget_waiting(unit);
            self.attach(unit, machine);
            self.requeue_tied(unit);
        }
    }

    /// Removes a machine.
    pub(super) fn drop_machine(&mut self, id: &str) {
        let Some(machine) = self.machines.find(id) else { return };
        if !self.machines.slots[machine].is_present() {
            return;
        }
        self.touched = true;
        let occupancy = &self.machines.slots[machine].occupancy;
        let (units, globals) = (occupancy.units.clone(), occupancy.globals.clone());
        for unit in globals {
            self.detach(unit, machine);
        }
        for unit in &units {
            self.requeue_tied(*unit);
            self.detach(*unit, machine);
            self.machines.slots[machine].stranded.insert(*unit);
            self.strand(*unit);
        }
        let old = self.machines.slots[machine].machine();
        self.filters.change(machine, Some(&old.metadata), None);
        self.machines.set(machine, None);
        self.orders.facts_version += 1;
        self.note_loosened(machine);
        self.machines.forget_if_idle(machine);
    }
}
