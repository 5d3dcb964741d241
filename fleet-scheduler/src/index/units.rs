//! The units of an index: everything that has a name.

use std::sync::Arc;

use fleet_core::{Epoch, Requirements};
use fleet_unitfile::UnitName;

use super::names::Names;
use super::slots::{ClassNo, MachineNo, PatternNo, Slots, UnitNo};

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum UnitKind {
    /// Nothing that is known; it is placed, or others name it.
    #[default]
    Unknown,
    /// A unit that nobody wants, or a template.
    Inactive,
    /// A wanted unit that runs on one machine, which the plan chooses.
    Single,
    /// A wanted unit that runs wherever it fits; never placed.
    Global,
    /// A unit whose record cannot be read. Placed, it stays where it is and demands nothing.
    Unreadable,
}

/// Where a unit waits for a machine, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum WaitState {
    /// It does not wait.
    #[default]
    No,
    /// It was not tried since something about it changed.
    Untried,
    /// It is to be tried in the plan that is being made.
    Queued,
    /// Every machine refuses its class.
    Parked,
    /// Every machine refuses its group.
    Tied,
    /// It waits in unsatisfiable, for what its `MachineOf=` names.
    Unsatisfiable,
    /// Its machine is not present and it does not want another: it does not wait.
    Stranded,
}

/// Whom `MachineOf=` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerRef {
    /// The unit of that name.
    Named(UnitNo),
    /// Any other unit that matches.
    Matching(PatternNo),
}

/// What affinity a unit to others.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    /// Whom its `MachineOf=` means, in the order written; empty unless it is a single unit.
    pub(crate) peers: Vec<PeerRef>,
    /// The units whose `MachineOf=` names it, once for each time.
    pub(crate) followers: Vec<UnitNo>,
    /// The group that it was last set aside with.
    pub(crate) group: UnitNo,
}

/// One name.
#[derive(Debug, Default)]
pub(crate) struct UnitSlot {
    name: Option<UnitName>,
    /// What it demands, if it is known.
    pub(crate) requirements: Option<Arc<Requirements>>,
    pub(crate) affinity: Option<Box<Affinity>>,
    /// When its placement was made, if it has one.
    pub(crate) epoch: Epoch,
    /// Where it was placed, whether or not it should be.
    pub(crate) placed: MachineNo,
    /// Where it is now; of single and unreadable units alone.
    pub(crate) machine: MachineNo,
    /// Its place among the units of the machine where it is.
    pub(crate) at: u32,
    /// Its class, if it takes part or could.
    pub(crate) class: ClassNo,
    pub(crate) kind: UnitKind,
    pub(crate) wait: WaitState,
    /// Whether a person wants it, as far as it is known.
    pub(crate) wanted: bool,
}

/// All names.
#[derive(Debug, Default)]
pub(crate) struct Units {
    pub(crate) slots: Slots<UnitNo, UnitSlot>,
    names: Names,
    /// Whether a lower number is an earlier name, as it is after a loading.
    in_order: bool,
}

impl UnitSlot {
    /// Something of that name of which nothing is known.
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

    /// Whether it needs a machine and has none.
    pub(crate) fn is_waiting(&self) -> bool {
        self.kind == UnitKind::Single
            && self.machine == MachineNo::NONE
            && self.wait != WaitState::Stranded
    }
}

impl Units {
    pub(crate) fn find(&self, name: &str) -> Option<UnitNo> {
        self.names.find(name, &self.slots)
    }

    /// The number of that name, which is given one if it has none.
    pub(crate) fn intern(&mut self, name: &UnitName) -> UnitNo {
        if let Some(unit) = self.find(name.as_str()) {
            return unit;
        }
        self.in_order = false;
        let unit = self.slots.insert(UnitSlot::new(name.clone()));
        self.names.insert(unit, &self.slots);
        unit
    }

    /// Takes many names at once, which must be in order and all new.
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

    /// Forgets the name if nothing is known of it and nothing refers to it.
    pub(crate) fn forget_if_idle(&mut self, unit: UnitNo) {
        let slot = &self.slots[unit];
        let named = slot.affinity.as_ref().is_some_and(|affinity| !affinity.followers.is_empty());
        if slot.kind == UnitKind::Unknown && slot.placed == MachineNo::NONE && !named {
            self.names.remove(unit, &self.slots);
            self.slots.remove(unit);
        }
    }

    /// The names that begin so, in order.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&UnitName, UnitNo)> {
        let names = self.names.from(prefix, &self.slots).map(|unit| (self.name(unit), unit));
        names.take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    pub(crate) fn name(&self, unit: UnitNo) -> &UnitName {
        self.slots[unit].name()
    }

    /// The affinity of a unit, which gets some if it has none.
    pub(crate) fn affinity_mut(&mut self, unit: UnitNo) -> &mut Affinity {
        self.slots[unit].affinity.get_or_insert_default()
    }
}
