//! Queries of an index that need no plan, and the view for custom rules and scores.

use fleet_core::{Machine, MachineId, Resources};
use fleet_unitfile::UnitName;

use super::units::UnitKind;
use super::{Cluster, NOTHING, UnitNo};
use crate::demand::{Change, Demand};
use crate::policy::Candidate;
use crate::policy::ViewSource;

/// An index as custom rules and scores see it, without the units in `leaving`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClusterView<'a> {
    pub(crate) index: &'a Cluster,
    pub(crate) leaving: &'a [UnitNo],
}

impl ViewSource for ClusterView<'_> {
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>> {
        let stays = |unit: &UnitNo| !self.leaving.contains(unit);
        self.index.units_on(machine.as_str(), stays)
    }

    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_> {
        Box::new(self.index.machines.facts().map(|(_, machine)| machine))
    }

    fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        let unit = self.index.units.find(unit.as_str())?;
        let current = self.index.units.slots[unit].machine.some()?;
        (!self.leaving.contains(&unit)).then(|| self.index.machines.slots[current].machine())
    }

    fn used(&self, machine: &MachineId) -> Resources {
        let Some(machine) = self.index.machines.find(machine.as_str()) else {
            return Resources::ZERO;
        };
        let mut sum = self.index.machines.slots[machine].occupancy.used();
        for unit in self.leaving.iter().filter(|unit| self.index.is_on(**unit, machine)) {
            sum.sub(&self.index.class(*unit).requirements.reserve);
        }
        sum.saturating()
    }
}

impl Cluster {
    /// Returns the units on a machine that satisfy a predicate, sorted by name.
    fn units_on(&self, machine: &str, which: impl Fn(&UnitNo) -> bool) -> Vec<Candidate<'_>> {
        let Some(machine) = self.machines.find(machine) else { return Vec::new() };
        let occupancy = &self.machines.slots[machine].occupancy;
        let all = occupancy.units.iter().chain(&occupancy.globals).filter(|unit| which(unit));
        let mut all: Vec<Candidate<'_>> = all
            .map(|unit| {
                let slot = &self.units.slots[*unit];
                let requirements = slot.requirements.as_deref().unwrap_or(&**NOTHING);
                Candidate { name: slot.name(), requirements }
            })
            .collect();
        all.sort_by_key(|unit| unit.name);
        all
    }

    /// Returns the change that undoes another one.
    pub(super) fn inverse(&self, change: &Change) -> Change {
        match change {
            Change::Add(Demand { name: unit, .. })
            | Change::Remove(unit)
            | Change::MarkUnreadable(unit) => self.current_unit(unit),
            Change::AddMachine(Machine { id, .. }) | Change::RemoveMachine(id) => {
                let slot = self.machines.find(id.as_str()).map(|m| &self.machines.slots[m]);
                match slot.and_then(|slot| slot.facts.as_ref()) {
                    Some(facts) => Change::AddMachine(Machine::clone(facts)),
                    None => Change::RemoveMachine(id.clone()),
                }
            }
            Change::Place { unit, .. } | Change::Unplace(unit) => self.current_placement(unit),
        }
    }

    /// Makes an inactive unit wanted and unplaced. Returns the changes that undo it.
    pub(crate) fn assume_wanted(&mut self, unit: UnitNo) -> [Change; 2] {
        let name = self.units.name(unit).clone();
        let back = [self.current_unit(&name), self.current_placement(&name)];
        self.erase_placement(unit);
        let wants = self.units.slots[unit].requirements.clone();
        let global = wants.as_ref().is_some_and(|wants| wants.global);
        let kind = if global { UnitKind::Global } else { UnitKind::Single };
        self.upsert(unit, kind, wants, true);
        back
    }

    fn current_unit(&self, unit: &UnitName) -> Change {
        let slot = self.units.find(unit.as_str()).map(|unit| &self.units.slots[unit]);
        match slot.map(|slot| (slot.kind, slot.wanted, &slot.requirements)) {
            Some((UnitKind::Unreadable, ..)) => Change::MarkUnreadable(unit.clone()),
            Some((_, wanted, Some(requirements))) => {
                let (name, requirements) = (unit.clone(), requirements.clone());
                Change::Add(Demand { name, requirements, wanted })
            }
            _ => Change::Remove(unit.clone()),
        }
    }

    fn current_placement(&self, unit: &UnitName) -> Change {
        let slot = self.units.find(unit.as_str()).map(|unit| &self.units.slots[unit]);
        match slot.and_then(|slot| Some((slot.placed.some()?, slot.epoch))) {
            Some((machine, epoch)) => {
                let machine = self.machines.id(machine).clone();
                Change::Place { unit: unit.clone(), machine, epoch }
            }
            None => Change::Unplace(unit.clone()),
        }
    }
}
