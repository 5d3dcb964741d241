//! The hard rules that a machine must pass to accept a unit, in a fixed order.
//!
//! A rule has two functions. Its `denial` is called for every machine that is tried, so it returns
//! a compact result. Its `refusal` adds names and texts, and is called only for results that are
//! reported. Rules about other units on the machine have their own files, named after their
//! options.

pub(crate) mod conflicts;
mod explain_refusals;
pub(crate) mod machine;
pub(crate) mod machine_of;
pub(crate) mod replaces;

use fleet_core::refusal::Rule;
use fleet_core::{Machine, Refusal};
use fleet_unitfile::UnitName;

use crate::policy::{Candidate, View};
use crate::state::{EquivalenceClass, MachineNo, Occupancy, State, StateView, UnitNo};
pub(crate) use explain_refusals::RefusalExplainer;

/// A placement to check: a unit, a machine and the occupancy to assume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacementQuery<'a> {
    pub(crate) state: &'a State,
    pub(crate) unit: UnitNo,
    pub(crate) class: &'a EquivalenceClass,
    pub(crate) machine: MachineNo,
    pub(crate) occupancy: &'a Occupancy,
    /// Units of the occupancy that leave if the unit comes.
    pub(crate) leaving: &'a [UnitNo],
}

/// Returns the first rule by which a machine refuses a unit. The unit must not replace other units,
/// because the function does not assume that any unit leaves.
pub(crate) fn denial(state: &State, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    PlacementQuery::new(state, unit, machine).denial()
}

/// The first rule by which a machine refuses a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    Cordon,
    MachineId,
    Metadata,
    Expression,
    /// The peer at this index of the unit's `MachineOf=` is missing.
    MachineOf(usize),
    Conflicts,
    MaxPerMachine,
    Reserve,
    /// A unit on the machine replaces the unit.
    Replaced,
    /// This unit would have to leave the machine and cannot.
    CannotMove(UnitNo),
    /// The custom rule at this index of the policy.
    Custom(usize),
}

/// The rank of a rule in the order of the checks. The number is the position of a custom rule in
/// the policy, and 0 for a built-in rule.
pub(crate) type Rank = (Rule, usize);

impl Denial {
    /// Returns the rule that failed.
    pub(crate) fn rule(self) -> Rule {
        match self {
            Self::Cordon => Rule::Cordon,
            Self::MachineId => Rule::MachineId,
            Self::Metadata => Rule::MachineMetadata,
            Self::Expression => Rule::MachineMetadataExpr,
            Self::MachineOf(_) => Rule::MachineOf,
            Self::Conflicts => Rule::Conflicts,
            Self::MaxPerMachine => Rule::MaxPerMachine,
            Self::Reserve => Rule::Reserve,
            Self::Replaced | Self::CannotMove(_) => Rule::Replaces,
            Self::Custom(_) => Rule::Custom,
        }
    }

    /// Returns the rank of the rule in the order of the checks.
    pub(crate) fn rank(self) -> Rank {
        match self {
            Self::Custom(at) => (Rule::Custom, at),
            _ => (self.rule(), 0),
        }
    }
}

impl<'a> PlacementQuery<'a> {
    /// Creates a query about the current occupancy.
    pub(crate) fn new(state: &'a State, unit: UnitNo, machine: MachineNo) -> Self {
        let occupancy = &state.machines[machine].occupancy;
        Self { state, unit, class: state.class(unit), machine, occupancy, leaving: &[] }
    }

    pub(crate) fn name(&self) -> &'a UnitName {
        self.state.units.name(self.unit)
    }

    pub(crate) fn facts(&self) -> &'a Machine {
        self.state.machines[self.machine].machine()
    }

    /// Returns the first unit by name that is on the machine and satisfies a predicate. The queried
    /// unit itself is left out.
    pub(crate) fn first_other(&self, is_it: impl Fn(UnitNo) -> bool) -> Option<UnitNo> {
        let all = self.occupancy.units.iter().chain(&self.occupancy.globals).copied();
        let others = all.filter(|other| *other != self.unit && is_it(*other));
        others.min_by(|a, b| self.state.units.name(*a).cmp(self.state.units.name(*b)))
    }

    /// Returns the first rule that refuses a unit that would come.
    pub(crate) fn denial(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| machine_of::denial(self))
            .or_else(|| self.denial_by_others())
            .or_else(|| replaces::denial(self))
            .or_else(|| custom_denial(self))
    }

    /// Returns the first rule that refuses a unit. Checks only the rules that depend on nothing but
    /// the unit and the machine, so that other units do not affect the result.
    fn lasting_denial(&self) -> Option<Denial> {
        machine::cordon_denial(self).or_else(|| self.denial_of_placed())
    }

    /// Like `lasting_denial`, but for a unit that is already placed on the machine: omits `Cordon`,
    /// which does not affect such a unit.
    pub(crate) fn denial_of_placed(&self) -> Option<Denial> {
        machine::machine_id_denial(self).or_else(|| machine::metadata_denial(self))
    }

    /// Returns the first rule that refuses a unit because of other units.
    pub(crate) fn denial_by_others(&self) -> Option<Denial> {
        conflicts::denial(self)
            .or_else(|| machine::max_per_machine_denial(self))
            .or_else(|| machine::reserve_denial(self))
    }

    /// Like [`denial`](Self::denial), but without `MachineOf=`, because the unit comes together
    /// with its peers.
    pub(crate) fn denial_within_group(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| self.denial_by_others())
            .or_else(|| replaces::denial(self))
            .or_else(|| custom_denial(self))
    }

    /// Like [`denial`](Self::denial), for a global unit.
    pub(crate) fn denial_of_global(&self) -> Option<Denial> {
        machine::metadata_denial(self).or_else(|| conflicts::denial(self))
    }

    /// Returns the denial with names and texts.
    pub(crate) fn refusal(&self, denial: Denial) -> Refusal {
        match denial {
            Denial::Cordon => machine::cordon_refusal(),
            Denial::MachineId => machine::machine_id_refusal_for(self),
            Denial::Metadata => machine::metadata_refusal_for(self),
            Denial::Expression => machine::expression_refusal_for(self),
            Denial::MachineOf(at) => machine_of::refusal_for(self, at),
            Denial::Conflicts => conflicts::refusal_for(self),
            Denial::MaxPerMachine => machine::max_per_machine_refusal_for(self),
            Denial::Reserve => machine::reserve_refusal_for(self),
            Denial::Replaced => replaces::refusal_for(self),
            Denial::CannotMove(with) => {
                let with = self.state.units.name(with).clone();
                Refusal::Replaces { with, by_other: false }
            }
            Denial::Custom(at) => custom_refusal(self, at),
        }
    }
}

/// Checks the custom rules, in the order of the policy.
fn custom_denial(query: &PlacementQuery<'_>) -> Option<Denial> {
    let rules = &query.state.policy.rules;
    (0..rules.len()).find(|at| ask_custom(query, *at).is_some()).map(Denial::Custom)
}

fn custom_refusal(query: &PlacementQuery<'_>, at: usize) -> Refusal {
    let rule = query.state.policy.rules[at].name().into();
    let detail = ask_custom(query, at).unwrap_or_default().into();
    Refusal::Custom { rule, detail }
}

fn ask_custom(query: &PlacementQuery<'_>, at: usize) -> Option<String> {
    let state = query.state;
    let requirements = &query.class.requirements;
    let unit = Candidate { name: query.name(), requirements };
    let source = StateView { state, leaving: query.leaving };
    state.policy.rules[at].refuse(&View::new(&source), unit, query.facts())
}
