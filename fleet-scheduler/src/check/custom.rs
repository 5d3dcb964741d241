//! Checks the custom rules for a unit that a plan brought to a machine.

use fleet_core::{Machine, MachineId, Refusal, Requirements, Snapshot, Unit};
use fleet_unitfile::UnitName;

use super::rules::{PlannedMachine, was_on};
use crate::policy::{Candidate, Policy};
use crate::policy::{View, ViewSource};
use crate::rules::NOTHING;

/// The cluster after a plan, without one unit.
#[derive(Debug)]
struct OtherUnits<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    unit: &'a UnitName,
}

/// Returns the refusals of a unit by all custom rules. The result is empty if the unit was on the
/// machine before the plan, because custom rules apply only to arriving units.
pub(super) fn refusals(
    policy: &Policy,
    (before, after): (&Snapshot, &Snapshot),
    unit: &Unit,
    machine: &Machine,
) -> Vec<Refusal> {
    if was_on(before, &unit.name, &machine.id) {
        return Vec::new();
    }
    let others = OtherUnits { before, after, unit: &unit.name };
    let view = View::new(&others);
    let candidate = Candidate { name: &unit.name, requirements: &unit.requirements };
    let refusals = policy.rules.iter().filter_map(|rule| {
        let detail = rule.refuse(&view, candidate, machine)?;
        Some(Refusal::Custom { rule: rule.name().into(), detail: detail.into() })
    });
    refusals.collect()
}

impl OtherUnits<'_> {
    fn demands(&self, name: &UnitName) -> &Requirements {
        self.after.unit(name.as_str()).map_or(&*NOTHING, |unit| &unit.requirements)
    }
}

impl ViewSource for OtherUnits<'_> {
    fn units_on(&self, machine: &MachineId) -> Vec<Candidate<'_>> {
        let Some(machine) = self.after.machine(machine.as_str()) else { return Vec::new() };
        let names = PlannedMachine::new(self.before, self.after, machine).all_units();
        let others = names.into_iter().filter(|name| *name != self.unit);
        others.map(|name| Candidate { name, requirements: self.demands(name) }).collect()
    }

    fn machines(&self) -> Box<dyn Iterator<Item = &Machine> + '_> {
        Box::new(self.after.machines().map(AsRef::as_ref))
    }

    fn machine_of(&self, unit: &UnitName) -> Option<&Machine> {
        let placement = self.after.placement(unit.as_str()).filter(|_| unit != self.unit)?;
        let machine = self.after.machine(placement.machine.as_str())?;
        PlannedMachine::new(self.before, self.after, machine).has_placed(unit).then_some(machine)
    }
}
