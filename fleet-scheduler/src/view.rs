//! The view of a cluster that custom rules and scores get.

use std::fmt;

use fleet_core::{Machine, MachineId, Resources};
use fleet_unitfile::UnitName;

use crate::policy::Candidate;

/// The cluster as a custom rule or score sees it when a unit is about to come to a machine.
///
/// A rule sees the machine without the units that the new unit replaces, and without those that
/// must move with them. A score sees all of these units, because it is computed before any of them
/// leaves.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    source: &'a dyn ViewSource,
}

/// A source of placements for a [`View`].
pub(crate) trait ViewSource: fmt::Debug + Sync {
    /// Returns the units on a machine, including global units, in the order of their names.
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>>;

    /// Returns the present machines, in the order of their IDs.
    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_>;

    /// Returns the machine of a single or unreadable unit.
    fn machine_of(&self, unit: &UnitName) -> Option<&Machine>;

    /// Returns the sum of the reservations on a machine.
    fn used(&self, machine: &MachineId) -> Resources {
        let units = self.units_on(machine).into_iter();
        units.fold(Resources::ZERO, |sum, unit| sum.saturating_add(unit.requirements.reserve))
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(source: &'a dyn ViewSource) -> Self {
        Self { source }
    }

    /// Returns the units on a machine, including global units, in the order of their names. An
    /// unreadable unit has no requirements. A machine that is not present has no units.
    pub fn units_on(&self, machine: &MachineId) -> impl Iterator<Item = Candidate<'_>> {
        self.source.units_on(machine).into_iter()
    }

    /// Returns the sum of the reservations on a machine.
    #[must_use]
    pub fn used(&self, machine: &MachineId) -> Resources {
        self.source.used(machine)
    }

    /// Returns the present machines, in the order of their IDs.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.source.machines()
    }

    /// Returns the machine of a placed unit at this point of the plan.
    #[must_use]
    pub fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        self.source.machine_of(unit)
    }
}
