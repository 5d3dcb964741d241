//! The machines: every known machine ID.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::{Machine, MachineId};

use super::occupancy::Occupancy;
use super::slots::{MachineNo, Slots, UnitNo, index_slots};

/// The entry of one machine ID.
#[derive(Debug, Default)]
pub(crate) struct MachineSlot {
    id: Option<MachineId>,
    /// The machine, if it is present.
    pub(crate) facts: Option<Arc<Machine>>,
    /// A number that orders machines by their IDs.
    pub(crate) label: u32,
    /// The units on the machine. Empty unless it is present.
    pub(crate) occupancy: Occupancy,
    /// The units that are placed on the machine while it is not present.
    pub(crate) stranded: BTreeSet<UnitNo>,
    /// Number of placements and `MachineID=` options that name it.
    pub(crate) named: u32,
    /// Whether the next plan must recheck it.
    pub(crate) dirty: bool,
}

/// All machine IDs.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    slots: Slots<MachineNo, MachineSlot>,
    ids: BTreeMap<MachineId, MachineNo>,
    present: usize,
}

impl MachineSlot {
    pub(crate) fn id(&self) -> &MachineId {
        self.id.as_ref().expect("a slot in use has an ID")
    }

    /// Returns the machine, which must be present.
    pub(crate) fn machine(&self) -> &Machine {
        self.facts.as_ref().expect("only machines that are present are tried")
    }

    pub(crate) fn is_present(&self) -> bool {
        self.facts.is_some()
    }
}

index_slots!(Machines, MachineNo, MachineSlot);

impl Machines {
    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, id: &str) -> Option<MachineNo> {
        self.ids.get(id).copied()
    }

    /// Returns the number of an ID, assigning one if needed. Also returns whether all machines got
    /// new labels (numbers that order machines by their IDs).
    pub(crate) fn intern(&mut self, id: &MachineId) -> (MachineNo, bool) {
        if let Some(machine) = self.ids.get(id) {
            return (*machine, false);
        }
        let slot = MachineSlot { id: Some(id.clone()), ..MachineSlot::default() };
        let machine = self.slots.insert(slot);
        self.ids.insert(id.clone(), machine);
        match self.label_between(id) {
            Some(label) => {
                self.slots[machine].label = label;
                (machine, false)
            }
            None => {
                self.label_all();
                (machine, true)
            }
        }
    }

    /// Adds many IDs at once, which must be sorted and new.
    pub(crate) fn fill<'a>(&mut self, ids: impl Iterator<Item = &'a MachineId>) {
        let slots = &mut self.slots;
        let slot = |id: &MachineId| MachineSlot { id: Some(id.clone()), ..MachineSlot::default() };
        self.ids = ids.map(|id| (id.clone(), slots.insert(slot(id)))).collect();
        self.label_all();
    }

    /// Returns a label for a new ID, between the labels of the previous and the next ID. Returns
    /// `None` if no number between them is free.
    fn label_between(&self, id: &MachineId) -> Option<u32> {
        use std::ops::Bound::{Excluded, Unbounded};
        let label = |machine: &MachineNo| self.slots[*machine].label;
        let before = self.ids.range::<MachineId, _>((Unbounded, Excluded(id))).next_back();
        let after = self.ids.range::<MachineId, _>((Excluded(id), Unbounded)).next();
        let low = before.map_or(0, |(_, machine)| label(machine));
        let high = after.map_or(low.saturating_add(1 << 16), |(_, machine)| label(machine));
        (high - low >= 2).then(|| low + (high - low) / 2)
    }

    /// Assigns new labels to all machines, with gaps between them.
    fn label_all(&mut self) {
        let count = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        let step = (u32::MAX / count.saturating_add(2)).min(1 << 16);
        for (place, machine) in (1..).zip(self.ids.values()) {
            self.slots[*machine].label = step * place;
        }
    }

    /// Removes the ID if the machine is not present and nothing names it.
    pub(crate) fn forget_if_idle(&mut self, machine: MachineNo) {
        let slot = &self.slots[machine];
        if !slot.is_present() && slot.named == 0 {
            let slot = self.slots.remove(machine);
            self.ids.remove(slot.id());
        }
    }

    /// Sets or removes the machine of an ID.
    pub(crate) fn set(&mut self, machine: MachineNo, facts: Option<Arc<Machine>>) {
        let slot = &mut self.slots[machine];
        self.present -= usize::from(slot.is_present());
        self.present += usize::from(facts.is_some());
        slot.facts = facts;
    }

    /// Returns the number of present machines.
    pub(crate) fn count(&self) -> usize {
        self.present
    }

    /// Returns all numbers in the order of the IDs.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = MachineNo> {
        self.ids.values().copied()
    }

    /// Returns the present machines, in the order of their IDs.
    pub(crate) fn present(&self) -> impl Iterator<Item = MachineNo> {
        self.in_order().filter(|machine| self.slots[*machine].is_present())
    }

    /// Returns the present machines with their facts, in the order of their IDs.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (MachineNo, &Machine)> {
        self.present().map(|machine| (machine, self.slots[machine].machine()))
    }

    pub(crate) fn id(&self, machine: MachineNo) -> &MachineId {
        self.slots[machine].id()
    }
}
