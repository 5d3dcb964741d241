//! The hard rules: what a machine must pass to take a unit, one file for each, in a fixed order.
//!
//! Each file answers two queries. `denial` says whether the machine refuses, in a few numbers,
//! for it is asked of every machine that is tried. `refusal` says it with names and words, and is
//! only asked where somebody will read it.

mod blocking_units;
pub(crate) mod conflicts;
mod cordon;
mod custom;
mod explain_refusals;
pub(crate) mod machine_id;
pub(crate) mod machine_of;
mod max_per_machine;
pub(crate) mod metadata;
pub(crate) mod metadata_expr;
pub(crate) mod replaces;
mod reserve;

use std::sync::LazyLock;

use fleet_core::{Machine, Refusal, Requirements, Rule};
use fleet_unitfile::UnitName;

use crate::index::{EquivalenceClass, Index, MachineNo, Occupancy, UnitNo};
pub(crate) use explain_refusals::RefusalExplainer;

/// A unit as far as the rules between two units look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleSubject<'a> {
    pub(crate) name: &'a UnitName,
    pub(crate) requirements: &'a Requirements,
}

/// The requirements of a unit whose own cannot be read.
pub(crate) static NOTHING: LazyLock<Requirements> = LazyLock::new(Requirements::default);

/// May this unit be on this machine, if those are on its occupancy?
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlacementQuery<'a> {
    pub(crate) index: &'a Index,
    pub(crate) unit: UnitNo,
    pub(crate) class: &'a EquivalenceClass,
    pub(crate) machine: MachineNo,
    pub(crate) occupancy: &'a Occupancy,
    /// Those of the occupancy who leave if the unit comes.
    pub(crate) leaving: &'a [UnitNo],
}

/// The first rule by which a machine refuses a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    Cordon,
    MachineId,
    Metadata,
    Expression,
    /// The peer at this place in the unit's `MachineOf=` is not there.
    MachineOf(usize),
    Conflicts,
    MaxPerMachine,
    Reserve,
    /// Somebody there replaces the unit.
    Replaced,
    /// This unit would have to leave, and cannot.
    CannotMove(UnitNo),
    /// The embedder's rule at this place of the policy.
    Custom(usize),
}

/// The place of a rule in the order in which rules are asked, those of an embedder told apart.
pub(crate) type Rank = (Rule, usize);

impl Denial {
    /// The rule that failed.
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

    /// The place of the rule in the order in which rules are asked.
    pub(crate) fn rank(self) -> Rank {
        match self {
            Self::Custom(at) => (Rule::Custom, at),
            _ => (self.rule(), 0),
        }
    }
}

impl<'a> PlacementQuery<'a> {
    /// The query as things stand.
    pub(crate) fn new(index: &'a Index, unit: UnitNo, machine: MachineNo) -> Self {
        let occupancy = &index.machines.slots[machine].occupancy;
        Self { index, unit, class: index.class(unit), machine, occupancy, leaving: &[] }
    }

    pub(crate) fn name(&self) -> &'a UnitName {
        self.index.units.name(self.unit)
    }

    pub(crate) fn facts(&self) -> &'a Machine {
        self.index.machines.slots[self.machine].machine()
    }

    /// The first unit by name of those on the occupancy, but the unit itself, of which this is true.
    pub(crate) fn first_other(&self, is_it: impl Fn(UnitNo) -> bool) -> Option<UnitNo> {
        let all = self.occupancy.units.iter().chain(&self.occupancy.globals).copied();
        let others = all.filter(|other| *other != self.unit && is_it(*other));
        others.min_by(|a, b| self.index.units.name(*a).cmp(self.index.units.name(*b)))
    }

    /// The first rule that refuses a unit that would come.
    pub(crate) fn denial(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| machine_of::denial(self))
            .or_else(|| self.denial_by_others())
            .or_else(|| replaces::denial(self))
            .or_else(|| custom::denial(self))
    }

    /// The first rule that refuses a unit whoever else is there.
    fn lasting_denial(&self) -> Option<Denial> {
        cordon::denial(self).or_else(|| self.denial_of_placed())
    }

    /// The first rule that refuses a unit that is placed there, whoever else is.
    pub(crate) fn denial_of_placed(&self) -> Option<Denial> {
        machine_id::denial(self).or_else(|| metadata::denial(self))
    }

    /// The first rule that refuses a unit for the sake of others.
    pub(crate) fn denial_by_others(&self) -> Option<Denial> {
        conflicts::denial(self)
            .or_else(|| max_per_machine::denial(self))
            .or_else(|| reserve::denial(self))
    }

    /// Like [`denial`](Self::denial), for a unit that comes with all whom it must be beside.
    pub(crate) fn denial_within_group(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| self.denial_by_others())
            .or_else(|| replaces::denial(self))
            .or_else(|| custom::denial(self))
    }

    /// Like [`denial`](Self::denial), for a global unit that is fitted in.
    pub(crate) fn denial_of_global(&self) -> Option<Denial> {
        metadata::denial(self).or_else(|| conflicts::denial(self))
    }

    /// The same answer for people.
    pub(crate) fn refusal(&self, denial: Denial) -> Refusal {
        match denial {
            Denial::Cordon => cordon::refusal(),
            Denial::MachineId => machine_id::refusal_for(self),
            Denial::Metadata => metadata::refusal_for(self),
            Denial::Expression => metadata_expr::refusal_for(self),
            Denial::MachineOf(at) => machine_of::refusal_for(self, at),
            Denial::Conflicts => conflicts::refusal_for(self),
            Denial::MaxPerMachine => max_per_machine::refusal_for(self),
            Denial::Reserve => reserve::refusal_for(self),
            Denial::Replaced => replaces::refusal_for(self),
            Denial::CannotMove(with) => {
                let with = self.index.units.name(with).clone();
                Refusal::Replaces { with, by_other: false }
            }
            Denial::Custom(at) => custom::refusal_for(self, at),
        }
    }
}
