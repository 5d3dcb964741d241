//! The state of a cluster: its machines, its units, which unit is on which machine, and the tables
//! that make the questions of the rules cheap.
//!
//! Units, machines, patterns and classes have numbers; see [`slots`]. This layer decides nothing.

mod affinity_groups;
mod classes;
mod filters;
mod machines;
mod occupancy;
mod patterns;
mod slots;
mod units;

use fleet_core::{Machine, MachineId, Resources};
use fleet_unitfile::UnitName;

use crate::policy::{Candidate, Policy, ViewSource};
pub(crate) use affinity_groups::PeerState;
pub(crate) use classes::{ClassKey, Classes, EquivalenceClass, NOTHING};
pub(crate) use filters::{Filters, first_missing};

pub(crate) use machines::Machines;
pub(crate) use occupancy::{NO_LIMIT, Occupancy, limit};
pub(crate) use patterns::Patterns;
pub(crate) use slots::{
    ClassNo, FilterNo, Lookup, MachineNo, OrderNo, PatternNo, Slots, UnitNo, index_slots,
};
pub(crate) use units::{PeerRef, UnitKind, Units, WaitState};

/// The state of a cluster, as far as it is known or assumed.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) policy: Policy,
    pub(crate) units: Units,
    pub(crate) machines: Machines,
    pub(crate) patterns: Patterns,
    pub(crate) classes: Classes,
    pub(crate) filters: Filters,
}

impl State {
    /// Creates the state of an empty cluster.
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            units: Units::default(),
            machines: Machines::default(),
            patterns: Patterns::default(),
            classes: Classes::new(Filters::ALL),
            filters: Filters::new(),
        }
    }

    /// Returns the class of a unit that takes part.
    pub(crate) fn class(&self, unit: UnitNo) -> &EquivalenceClass {
        &self.classes[self.units[unit].class]
    }

    /// Returns the class of the only unit of a group, if that unit is not tied to others. Returns
    /// `None` for all other groups. Every machine treats all untied units of a class alike, so a
    /// verdict on one of them applies to all.
    pub(crate) fn group_class(&self, group: &[UnitNo]) -> Option<ClassNo> {
        let [unit] = group else { return None };
        (!self.is_tied(*unit)).then(|| self.units[*unit].class)
    }

    /// Returns whether the unit is a single unit, which may be moved.
    pub(crate) fn is_single(&self, unit: UnitNo) -> bool {
        self.units[unit].kind == UnitKind::Single
    }

    /// Returns whether a unit, global or not, is on a machine.
    pub(crate) fn is_on(&self, unit: UnitNo, machine: MachineNo) -> bool {
        let slot = &self.units[unit];
        match slot.kind {
            UnitKind::Global => self.machines[machine].occupancy.globals.contains(&unit),
            _ => slot.machine == machine,
        }
    }

    /// Returns whether a machine is present, not cordoned, and passes a filter.
    pub(crate) fn takes(&self, filter: FilterNo, machine: MachineNo) -> bool {
        self.filters.takes(filter, machine, &self.machines)
    }

    /// Returns the smallest `MaxPerMachine=` limit of those units that are instances of a template.
    pub(crate) fn smallest_limit(&self, units: &[UnitNo], template: PatternNo) -> u32 {
        let classes = units.iter().map(|unit| self.class(*unit));
        let limits = classes.filter(|class| class.template == template);
        limits.map(|class| limit(&class.requirements)).min().unwrap_or(NO_LIMIT)
    }

    /// Returns the names that a pattern matches, in order.
    pub(crate) fn matching(&self, pattern: PatternNo) -> impl Iterator<Item = UnitNo> {
        let slot = &self.patterns[pattern];
        let alike = self.units.with_prefix(slot.literal());
        alike.filter(|(name, _)| slot.matches(name)).map(|(_, unit)| unit)
    }

    /// Returns the units that a pattern of some `MachineOf=` matches. Inactive and unknown units
    /// have no class and are left out.
    pub(crate) fn members(&self, pattern: PatternNo) -> impl Iterator<Item = UnitNo> {
        let members = self.patterns[pattern].members.iter();
        members.flat_map(|members| members.values().copied())
    }

    /// Returns all patterns that match a name, in the order of their numbers.
    pub(crate) fn covering(&self, name: &UnitName) -> Vec<PatternNo> {
        if self.patterns.is_empty() { Vec::new() } else { self.patterns.covering(name) }
    }
}

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
