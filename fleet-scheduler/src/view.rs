//! What an embedder's own rules and scores may look at: who is where at the moment of deciding.

use std::fmt;

use fleet_core::{Machine, MachineId, Resources};
use fleet_unitfile::UnitName;

use crate::policy::Candidate;

/// A cluster as your own rules and scores see it, at the moment at which a unit would come.
///
/// Units that the coming one replaces, and those that leave along with them, are not there any
/// more for a rule; scores are asked before anybody leaves.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    source: &'a dyn ViewSource,
}

/// Whoever can say who is where.
pub(crate) trait ViewSource: fmt::Debug + Sync {
    /// The units on a machine, by name, global ones too.
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>>;

    /// The machines that are present, by ID.
    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_>;

    /// The machine where a single or an unreadable unit is.
    fn machine_of(&self, unit: &UnitName) -> Option<&Machine>;

    /// What all units on a machine reserve together.
    fn used(&self, machine: &MachineId) -> Resources {
        let units = self.units_on(machine).into_iter();
        units.fold(Resources::ZERO, |sum, unit| sum.saturating_add(unit.requirements.reserve))
    }
}

impl<'a> View<'a> {
    pub(crate) fn new(source: &'a dyn ViewSource) -> Self {
        Self { source }
    }

    /// The units on a machine with what they demand, by name, global ones too; one whose record
    /// cannot be read demands nothing. Nobody is on a machine that is not present.
    pub fn units_on(&self, machine: &MachineId) -> impl Iterator<Item = Candidate<'_>> {
        self.source.units_on(machine).into_iter()
    }

    /// What all units on a machine reserve together.
    #[must_use]
    pub fn used(&self, machine: &MachineId) -> Resources {
        self.source.used(machine)
    }

    /// The machines that are present, in the order of their IDs.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.source.machines()
    }

    /// The machine where a unit is that is placed, as things stand.
    #[must_use]
    pub fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        self.source.machine_of(unit)
    }
}
