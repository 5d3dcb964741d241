//! What can be asked of an index without a plan.

use fleet_core::{Machine, Requirements, Resources};
use fleet_unitfile::UnitName;

use super::units::Kind;
use super::{Index, NOTHING, UnitNo};
use crate::change::{Change, Demand};

/// What an embedder's own rules and scores may look at: who is where at the moment of deciding.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    index: &'a Index,
}

impl<'a> View<'a> {
    pub(crate) fn new(index: &'a Index) -> Self {
        Self { index }
    }

    pub(crate) fn index(&self) -> &'a Index {
        self.index
    }
}

impl Index {
    /// The units on a machine with what they demand, by name.
    pub(crate) fn units_on(&self, machine: &str) -> Vec<(&UnitName, &Requirements)> {
        let Some(machine) = self.machines.find(machine) else { return Vec::new() };
        let desk = &self.machines.slots[machine].desk;
        let all = desk.units.iter().chain(&desk.globals);
        let mut all: Vec<(&UnitName, &Requirements)> = all
            .map(|unit| {
                let slot = &self.units.slots[*unit];
                (slot.name(), slot.requirements.as_deref().unwrap_or(&**NOTHING))
            })
            .collect();
        all.sort_by_key(|(name, _)| *name);
        all
    }

    pub(crate) fn used_of(&self, machine: &str) -> Resources {
        let machine = self.machines.find(machine);
        machine.map_or(Resources::ZERO, |m| self.machines.slots[m].desk.used().saturating())
    }

    pub(crate) fn present_machines(&self) -> impl Iterator<Item = &Machine> {
        self.machines.facts().map(|(_, machine)| machine)
    }

    pub(crate) fn machine_of(&self, unit: &str) -> Option<&Machine> {
        let unit = self.units.find(unit)?;
        Some(self.machines.slots[self.units.slots[unit].seat.some()?].machine())
    }

    /// The change that takes another one back.
    pub(super) fn inverse(&self, change: &Change) -> Change {
        match change {
            Change::PutUnit(Demand { name: unit, .. })
            | Change::RemoveUnit(unit)
            | Change::PutUnreadable(unit) => self.put_as_it_is(unit),
            Change::PutMachine(Machine { id, .. }) | Change::RemoveMachine(id) => {
                let slot = self.machines.find(id.as_str()).map(|m| &self.machines.slots[m]);
                match slot.and_then(|slot| slot.facts.as_ref()) {
                    Some(facts) => Change::PutMachine(Machine::clone(facts)),
                    None => Change::RemoveMachine(id.clone()),
                }
            }
            Change::Place { unit, .. } | Change::Unplace(unit) => self.place_as_it_is(unit),
        }
    }

    /// Makes an inactive unit wanted, and not placed. Returns what takes that back.
    pub(crate) fn pretend_wanted(&mut self, unit: UnitNo) -> [Change; 2] {
        let name = self.units.name(unit).clone();
        let back = [self.put_as_it_is(&name), self.place_as_it_is(&name)];
        self.unplaced(unit);
        let wants = self.units.slots[unit].requirements.clone();
        let global = wants.as_ref().is_some_and(|wants| wants.global);
        let kind = if global { Kind::Global } else { Kind::Single };
        self.define(unit, kind, wants, true);
        back
    }

    fn put_as_it_is(&self, unit: &UnitName) -> Change {
        let slot = self.units.find(unit.as_str()).map(|unit| &self.units.slots[unit]);
        match slot.map(|slot| (slot.kind, slot.wanted, &slot.requirements)) {
            Some((Kind::Unreadable, ..)) => Change::PutUnreadable(unit.clone()),
            Some((_, wanted, Some(requirements))) => {
                let (name, requirements) = (unit.clone(), requirements.clone());
                Change::PutUnit(Demand { name, requirements, wanted })
            }
            _ => Change::RemoveUnit(unit.clone()),
        }
    }

    fn place_as_it_is(&self, unit: &UnitName) -> Change {
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
