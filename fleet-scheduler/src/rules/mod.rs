//! The hard rules: what a machine must pass to take a unit, one file for each, in a fixed order.
//!
//! Each file answers two questions. `denial` says whether the machine refuses, in a few numbers,
//! for it is asked of every machine that is tried. `refusal` says it with names and words, and is
//! only asked where somebody will read it.

pub(crate) mod conflicts;
mod cordon;
mod custom;
pub(crate) mod machine_id;
pub(crate) mod machine_of;
mod max_per_machine;
mod met;
pub(crate) mod metadata;
pub(crate) mod metadata_expr;
pub(crate) mod replaces;
mod reserve;
mod teller;

use std::sync::LazyLock;

use fleet_core::{Machine, Refusal, Requirements, Rule};
use fleet_unitfile::UnitName;

use crate::index::{Class, Desk, Index, MachineNo, UnitNo};
pub(crate) use teller::Teller;

/// A unit as far as the rules between two units look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party<'a> {
    pub(crate) name: &'a UnitName,
    pub(crate) requirements: &'a Requirements,
}

/// The requirements of a unit whose own cannot be read.
pub(crate) static NOTHING: LazyLock<Requirements> = LazyLock::new(Requirements::default);

/// May this unit be on this machine, if those are on its desk?
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) index: &'a Index,
    pub(crate) unit: UnitNo,
    pub(crate) class: &'a Class,
    pub(crate) machine: MachineNo,
    pub(crate) desk: &'a Desk,
    /// Those of the desk who leave if the unit comes.
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

impl<'a> Question<'a> {
    /// The question as things stand.
    pub(crate) fn new(index: &'a Index, unit: UnitNo, machine: MachineNo) -> Self {
        let desk = &index.machines.slots[machine].desk;
        Self { index, unit, class: index.class(unit), machine, desk, leaving: &[] }
    }

    pub(crate) fn name(&self) -> &'a UnitName {
        self.index.units.name(self.unit)
    }

    pub(crate) fn facts(&self) -> &'a Machine {
        self.index.machines.slots[self.machine].machine()
    }

    /// The first unit by name of those on the desk, but the unit itself, of which this is true.
    pub(crate) fn first_other(&self, is_it: impl Fn(UnitNo) -> bool) -> Option<UnitNo> {
        let all = self.desk.units.iter().chain(&self.desk.globals).copied();
        let others = all.filter(|other| *other != self.unit && is_it(*other));
        others.min_by(|a, b| self.index.units.name(*a).cmp(self.index.units.name(*b)))
    }

    /// The first rule that refuses a unit that would come.
    pub(crate) fn denial(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| machine_of::denial(self))
            .or_else(|| self.denial_for_others())
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
    pub(crate) fn denial_for_others(&self) -> Option<Denial> {
        conflicts::denial(self)
            .or_else(|| max_per_machine::denial(self))
            .or_else(|| reserve::denial(self))
    }

    /// Like [`denial`](Self::denial), for a unit that comes with all whom it must be beside.
    pub(crate) fn denial_in_company(&self) -> Option<Denial> {
        self.lasting_denial()
            .or_else(|| self.denial_for_others())
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
            Denial::MachineId => machine_id::told(self),
            Denial::Metadata => metadata::told(self),
            Denial::Expression => metadata_expr::told(self),
            Denial::MachineOf(at) => machine_of::told(self, at),
            Denial::Conflicts => conflicts::told(self),
            Denial::MaxPerMachine => max_per_machine::told(self),
            Denial::Reserve => reserve::told(self),
            Denial::Replaced => replaces::told(self),
            Denial::CannotMove(with) => {
                let with = self.index.units.name(with).clone();
                Refusal::Replaces { with, by_other: false }
            }
            Denial::Custom(at) => custom::told(self, at),
        }
    }
}
