//! The view of a state for custom rules and scores.

use fleet_core::{Machine, MachineId, Resources};
use fleet_unitfile::UnitName;

use super::{NOTHING, State, UnitNo};
use crate::policy::{Candidate, ViewSource};

/// A state as custom rules and scores see it, without the units in `leaving`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateView<'a> {
    pub(crate) state: &'a State,
    pub(crate) leaving: &'a [UnitNo],
}

impl ViewSource for StateView<'_> {
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>> {
        let stays = |unit: &UnitNo| !self.leaving.contains(unit);
        self.state.units_on(machine.as_str(), stays)
    }

    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_> {
        Box::new(self.state.machines.facts().map(|(_, machine)| machine))
    }

    fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        let unit = self.state.units.find(unit.as_str())?;
        let current = self.state.units[unit].machine.some()?;
        (!self.leaving.contains(&unit)).then(|| self.state.machines[current].machine())
    }

    fn used(&self, machine: &MachineId) -> Resources {
        let Some(machine) = self.state.machines.find(machine.as_str()) else {
            return Resources::ZERO;
        };
        let mut sum = self.state.machines[machine].occupancy.used();
        for unit in self.leaving.iter().filter(|unit| self.state.is_on(**unit, machine)) {
            sum.sub(&self.state.class(*unit).requirements.reserve);
        }
        sum.saturating()
    }
}

impl State {
    /// Returns the units on a machine that satisfy a predicate, sorted by name.
    fn units_on(&self, machine: &str, which: impl Fn(&UnitNo) -> bool) -> Vec<Candidate<'_>> {
        let Some(machine) = self.machines.find(machine) else { return Vec::new() };
        let occupancy = &self.machines[machine].occupancy;
        let all = occupancy.units.iter().chain(&occupancy.globals).filter(|unit| which(unit));
        let mut all: Vec<Candidate<'_>> = all
            .map(|unit| {
                let slot = &self.units[*unit];
                let requirements = slot.requirements.as_deref().unwrap_or(&**NOTHING);
                Candidate { name: slot.name(), requirements }
            })
            .collect();
        all.sort_by_key(|unit| unit.name);
        all
    }
}
