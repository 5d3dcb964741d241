//! Second implementation of every hard rule, for units that are already on a machine, and the check
//! of custom rules for units that a plan brought there.

use std::collections::BTreeSet;

use fleet_core::pattern::Peer;
use fleet_core::{
    Machine, MachineId, Pattern, Refusal, Requirements, Resource, Resources, Snapshot, Unit,
};
use fleet_unitfile::UnitName;

use super::placeable;
use crate::policy::{Candidate, Policy, View, ViewSource};
use crate::state::NOTHING;

/// One machine after a plan.
pub(super) struct PlannedMachine<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    machine: &'a Machine,
    /// The units placed there, including unreadable ones.
    placed: BTreeSet<&'a UnitName>,
    /// The placed units and the global units that fit.
    present: BTreeSet<&'a UnitName>,
}

impl<'a> PlannedMachine<'a> {
    pub(super) fn new(before: &'a Snapshot, after: &'a Snapshot, machine: &'a Machine) -> Self {
        let counts = |name: &UnitName| {
            placeable(after, name).is_some() || after.fault(name.as_str()).is_some()
        };
        let here = after.placements().filter(|(_, at)| at.machine == machine.id);
        let placed: BTreeSet<_> = here.map(|(name, _)| name).filter(|name| counts(name)).collect();
        let present = placed.clone();
        let mut planned = Self { before, after, machine, placed, present };
        planned.fit_globals_in();
        planned
    }

    /// Adds the global units that fit, in the order of their names.
    fn fit_globals_in(&mut self) {
        for unit in self.after.units().filter(|unit| unit.is_wanted() && unit.is_global()) {
            let refused = self.metadata(unit).is_some() || self.expression(unit).is_some();
            if !refused && self.conflict_with(unit, self.present.iter().copied()).is_none() {
                self.present.insert(&unit.name);
            }
        }
    }

    /// Returns the readable units placed there.
    pub(super) fn units(&self) -> impl Iterator<Item = &'a Unit> {
        self.placed.iter().filter_map(|name| placeable(self.after, name))
    }

    /// Returns all units on the machine, sorted by name.
    pub(super) fn all_units(self) -> BTreeSet<&'a UnitName> {
        self.present
    }

    /// Returns whether a single or unreadable unit is there.
    pub(super) fn has_placed(&self, unit: &UnitName) -> bool {
        self.placed.contains(unit)
    }

    /// Returns every refusal of a unit that is on the machine.
    pub(super) fn refusals(&self, unit: &Unit) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        refusals.extend(self.cordon(unit));
        refusals.extend(self.machine_id(unit));
        refusals.extend(self.metadata(unit));
        refusals.extend(self.expression(unit));
        refusals.extend(self.machine_of(unit));
        refusals.extend(self.conflicts(unit));
        refusals.extend(self.limit(unit));
        refusals.extend(self.reserve(unit));
        refusals.extend(self.replaced(unit));
        refusals
    }

    fn cordon(&self, unit: &Unit) -> Option<Refusal> {
        let stayed = was_on(self.before, &unit.name, &self.machine.id);
        (self.machine.cordoned && !stayed).then_some(Refusal::Cordon {})
    }

    fn machine_id(&self, unit: &Unit) -> Option<Refusal> {
        let wanted = unit.requirements.machine_id.clone()?;
        (wanted != self.machine.id).then_some(Refusal::MachineId { wanted })
    }

    fn metadata(&self, unit: &Unit) -> Option<Refusal> {
        unit.requirements.metadata.iter().find_map(|(key, wanted)| {
            let found = self.machine.metadata.get(key);
            let fits = found.is_some_and(|found| wanted.contains(found));
            (!fits).then(|| Refusal::MachineMetadata {
                key: key.clone(),
                wanted: wanted.iter().cloned().collect(),
                found: found.cloned(),
            })
        })
    }

    fn expression(&self, unit: &Unit) -> Option<Refusal> {
        let wanted = unit.requirements.metadata_expr.as_ref()?;
        let failed = wanted.first_false(&self.machine.metadata)?;
        let (failed, found) = (failed.part.into(), failed.found.into());
        Some(Refusal::MachineMetadataExpr { failed, found })
    }

    fn machine_of(&self, unit: &Unit) -> Option<Refusal> {
        let is_there = |peer: &Peer| match peer {
            Peer::Named(name) => self.present.contains(name),
            Peer::Matching(_) => {
                self.present.iter().any(|other| **other != unit.name && peer.matches(other))
            }
        };
        let missing = unit.requirements.machine_of.iter().find(|peer| !is_there(peer))?;
        Some(Refusal::MachineOf { peer: missing.clone() })
    }

    /// Global units yield to placed ones, so only placed units are checked.
    fn conflicts(&self, unit: &Unit) -> Option<Refusal> {
        self.conflict_with(unit, self.others(unit))
    }

    fn conflict_with<'b>(
        &self,
        unit: &Unit,
        mut others: impl Iterator<Item = &'b UnitName>,
    ) -> Option<Refusal> {
        let covering = |patterns: &[Pattern], name: &UnitName| {
            patterns.iter().find(|pattern| pattern.matches(name)).cloned()
        };
        others.find_map(|other| {
            let ours = covering(&unit.requirements.conflicts, other);
            let theirs = || covering(&self.demands(other)?.conflicts, &unit.name);
            let (pattern, theirs) =
                ours.map(|it| (it, false)).or_else(|| Some((theirs()?, true)))?;
            Some(Refusal::Conflicts { with: other.clone(), pattern, by_other: theirs })
        })
    }

    fn limit(&self, unit: &Unit) -> Option<Refusal> {
        let template = unit.name.template()?;
        let limit = unit.requirements.max_per_machine?;
        let others = self.others(unit).filter(|other| other.template().as_ref() == Some(&template));
        let there = u32::try_from(others.count()).unwrap_or(u32::MAX);
        (there >= limit).then_some(Refusal::MaxPerMachine { template, limit, count: there })
    }

    fn reserve(&self, unit: &Unit) -> Option<Refusal> {
        let reserved = self.others(unit).filter_map(|other| self.demands(other));
        let taken = reserved.fold(Resources::ZERO, |sum, wants| sum.saturating_add(wants.reserve));
        let (wanted, offers) = (unit.requirements.reserve, self.machine.offers);
        let resource = taken.saturating_add(wanted).first_over(offers)?;
        let at = |amounts: Resources, resource: Resource| amounts[resource];
        Some(Refusal::Reserve {
            resource,
            wanted: at(wanted, resource),
            free: at(offers.saturating_sub(taken), resource),
            offered: at(offers, resource),
        })
    }

    /// Returns a refusal if the unit shares the machine with a unit that it replaces. If both were
    /// placed there before the plan, they may stay together, because perhaps no other machine
    /// accepts the replaced unit.
    fn replaced(&self, unit: &Unit) -> Option<Refusal> {
        let was_here = |name| was_on(self.before, name, &self.machine.id);
        let names = |wants: &Requirements, name| wants.replaces.iter().any(|p| p.matches(name));
        let with = self.others(unit).find(|other| {
            let theirs = self.demands(other).is_some_and(|wants| names(wants, &unit.name));
            let both = was_here(&unit.name) && was_here(other);
            names(&unit.requirements, other) && !theirs && !both
        })?;
        Some(Refusal::Replaces { with: with.clone(), by_other: false })
    }

    fn others(&self, unit: &Unit) -> impl Iterator<Item = &'a UnitName> {
        self.placed.iter().copied().filter(move |other| **other != unit.name)
    }

    /// Returns the requirements of a readable unit.
    fn demands(&self, name: &UnitName) -> Option<&'a Requirements> {
        self.after.unit(name.as_str()).map(|unit| &*unit.requirements)
    }
}

pub(super) fn was_on(before: &Snapshot, unit: &UnitName, machine: &MachineId) -> bool {
    before.placement(unit.as_str()).is_some_and(|placement| placement.machine == *machine)
}

/// The cluster after a plan, without one unit.
#[derive(Debug)]
struct OtherUnits<'a> {
    before: &'a Snapshot,
    after: &'a Snapshot,
    unit: &'a UnitName,
}

/// Returns the refusals of a unit by all custom rules. The result is empty if the unit was on the
/// machine before the plan, because custom rules apply only to arriving units.
pub(super) fn custom_refusals(
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
