//! The units: every known name.

use std::sync::Arc;

use fleet_core::{Epoch, Requirements};
use fleet_unitfile::UnitName;

use super::names::Names;
use super::slots::{ClassNo, MachineNo, PatternNo, Slots, UnitNo, index_slots};

/// The kind of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum UnitKind {
    /// Unknown; it is placed, or other units name it.
    #[default]
    Unknown,
    /// A unit that is not wanted, or a template.
    Inactive,
    /// A wanted unit that runs on one machine, chosen by the plan.
    Single,
    /// A wanted unit that runs on every machine where it fits. It never has a placement.
    Global,
    /// A unit with an unreadable record. It has no requirements. If it is placed, it stays on its
    /// machine.
    Unreadable,
}

/// The waiting state of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WaitState {
    /// It does not wait.
    #[default]
    No,
    /// It was not tried since its last relevant change.
    Untried,
    /// It is to be tried in the current plan.
    Queued,
    /// Every machine refuses its class.
    Parked,
    /// Every machine refuses its group.
    Tied,
    /// Its `MachineOf=` cannot be satisfied.
    Unsatisfiable,
    /// The machine of its placement is not present, and the unit has `Reschedule=never`. It does
    /// not wait for another machine.
    Stranded,
}

/// A peer named in `MachineOf=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerRef {
    /// The unit of that name.
    Named(UnitNo),
    /// Any other unit that the pattern matches.
    Matching(PatternNo),
}

/// The ties of a unit to others.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    /// The peers of the unit's `MachineOf=`, in the order written. Only a single unit has peers.
    pub(crate) peers: Vec<PeerRef>,
    /// The units that name it in `MachineOf=`, once per mention.
    pub(crate) followers: Vec<UnitNo>,
    /// The group with which it was last parked or queued.
    pub(crate) group: UnitNo,
}

/// The entry of one name.
#[derive(Debug, Default)]
pub(crate) struct UnitSlot {
    name: Option<UnitName>,
    /// Its requirements, if they are known.
    pub(crate) requirements: Option<Arc<Requirements>>,
    pub(crate) affinity: Option<Box<Affinity>>,
    /// The epoch of its placement, if it has one.
    pub(crate) epoch: Epoch,
    /// The machine of its recorded placement, valid or not.
    pub(crate) placed: MachineNo,
    /// The machine that it is on now, for single and unreadable units.
    pub(crate) machine: MachineNo,
    /// Its position in the unit list of that machine.
    pub(crate) at: u32,
    /// Its class, if it takes part or could.
    pub(crate) class: ClassNo,
    pub(crate) kind: UnitKind,
    pub(crate) wait: WaitState,
    /// Whether the unit's desired state is loaded or launched, as far as known.
    pub(crate) wanted: bool,
}

/// All names.
#[derive(Debug, Default)]
pub(crate) struct Units {
    slots: Slots<UnitNo, UnitSlot>,
    names: Names,
    /// Whether lower numbers have earlier names, as after a load.
    in_order: bool,
}

impl UnitSlot {
    /// Creates the entry of an otherwise unknown name.
    pub(crate) fn new(name: UnitName) -> Self {
        Self { name: Some(name), ..Self::default() }
    }

    pub(crate) fn name(&self) -> &UnitName {
        self.name.as_ref().expect("a slot in use has a name")
    }

    pub(crate) fn peers(&self) -> &[PeerRef] {
        self.affinity.as_ref().map_or(&[], |affinity| &affinity.peers)
    }

    pub(crate) fn followers(&self) -> &[UnitNo] {
        self.affinity.as_ref().map_or(&[], |affinity| &affinity.followers)
    }

    /// Returns whether it needs a machine and has none.
    pub(crate) fn is_waiting(&self) -> bool {
        self.kind == UnitKind::Single
            && self.machine == MachineNo::NONE
            && self.wait != WaitState::Stranded
    }
}

index_slots!(Units, UnitNo, UnitSlot);

impl Units {
    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<UnitNo> {
        self.names.find(name, &self.slots)
    }

    /// Returns the number of a name, assigning one if needed.
    pub(crate) fn intern(&mut self, name: &UnitName) -> UnitNo {
        if let Some(unit) = self.find(name.as_str()) {
            return unit;
        }
        self.in_order = false;
        let unit = self.slots.insert(UnitSlot::new(name.clone()));
        self.names.insert(unit, &self.slots);
        unit
    }

    /// Adds many names at once, which must be sorted and new.
    pub(crate) fn fill(&mut self, names: impl ExactSizeIterator<Item = UnitName>) {
        let slots = &mut self.slots;
        slots.reserve(names.len());
        for name in names {
            slots.insert(UnitSlot::new(name));
        }
        self.names = Names::of(slots);
        self.in_order = true;
    }

    /// Sorts units by their names.
    pub(crate) fn sort(&self, units: &mut [UnitNo]) {
        if self.in_order {
            units.sort_unstable();
        } else {
            units.sort_by(|a, b| self.name(*a).cmp(self.name(*b)));
        }
    }

    /// Removes a name that is unknown and that nothing refers to.
    pub(crate) fn forget_if_idle(&mut self, unit: UnitNo) {
        let slot = &self.slots[unit];
        let named = slot.affinity.as_ref().is_some_and(|affinity| !affinity.followers.is_empty());
        if slot.kind == UnitKind::Unknown && slot.placed == MachineNo::NONE && !named {
            self.names.remove(unit, &self.slots);
            self.slots.remove(unit);
        }
    }

    /// Returns the names with this prefix, in order.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&UnitName, UnitNo)> {
        let names = self.names.from(prefix, &self.slots).map(|unit| (self.name(unit), unit));
        names.take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    pub(crate) fn name(&self, unit: UnitNo) -> &UnitName {
        self.slots[unit].name()
    }

    /// Returns the ties of a unit, creating them if needed.
    pub(crate) fn affinity_mut(&mut self, unit: UnitNo) -> &mut Affinity {
        self.slots[unit].affinity.get_or_insert_default()
    }
}
