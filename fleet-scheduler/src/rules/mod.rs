//! The hard rules: what a machine must pass to run a unit, one file for each, in a fixed order.
//!
//! Each rule exists in two forms. On the [`Board`] it answers with a [`Denial`], which is small and
//! is made for every machine that is tried; a denial becomes a [`Refusal`], with names and words in
//! it, only where somebody will read it. Between two units or a unit and a machine it is a plain
//! function, for code that looks at one machine alone or must not trust the board.

pub(crate) mod conflicts;
pub(crate) mod machine_id;
pub(crate) mod machine_of;
pub(crate) mod metadata;
pub(crate) mod replaces;

use std::sync::LazyLock;

use fleet_core::{Refusal, Requirements, Rule};
use fleet_unitfile::UnitName;

use crate::board::Board;
use crate::roster::{MachineNo, PatternNo, Roster, UnitNo};

pub(crate) use metadata::passes as has_metadata;

/// A unit as far as the rules between two units look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party<'a> {
    pub(crate) name: &'a UnitName,
    pub(crate) requirements: &'a Requirements,
}

/// The requirements of a unit whose own cannot be read.
pub(crate) static NOTHING: LazyLock<Requirements> = LazyLock::new(Requirements::default);

/// The first rule by which a machine denies a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The unit must be on another machine.
    MachineId,
    /// The machine lacks metadata.
    Metadata,
    /// A peer is not there: the one at this place in the unit's `MachineOf=`.
    MachineOf { at: usize },
    /// A unit that is there must not be beside this one.
    Conflicts { with: UnitNo, pattern: PatternNo, theirs: bool },
    /// A unit that is there would have to move and cannot, or has replaced this one.
    Replaces { with: UnitNo, theirs: bool },
}

impl Denial {
    /// The rule that failed.
    pub(crate) fn rule(self) -> Rule {
        match self {
            Self::MachineId => Rule::MachineId,
            Self::Metadata => Rule::MachineMetadata,
            Self::MachineOf { .. } => Rule::MachineOf,
            Self::Conflicts { .. } => Rule::Conflicts,
            Self::Replaces { .. } => Rule::Replaces,
        }
    }

    /// The same with names, for people.
    pub(crate) fn refusal(self, roster: &Roster<'_>, unit: UnitNo, machine: MachineNo) -> Refusal {
        let requirements = roster.unit(unit).requirements;
        let name = |unit| roster.unit(unit).name.clone();
        let misses = "a denial is told of the unit and the machine that it was made for";
        match self {
            Self::MachineId => {
                machine_id::refusal(requirements, roster.machine(machine)).expect(misses)
            }
            Self::Metadata => {
                metadata::refusal(requirements, roster.machine(machine)).expect(misses)
            }
            Self::MachineOf { at } => {
                Refusal::MachineOf { peer: requirements.machine_of[at].clone() }
            }
            Self::Conflicts { with, pattern, theirs } => {
                let pattern = roster.pattern(pattern).clone();
                Refusal::Conflicts { with: name(with), pattern, theirs }
            }
            Self::Replaces { with, theirs } => Refusal::Replaces { with: name(with), theirs },
        }
    }
}

/// The first rule by which a machine denies a unit that would come to it, all others staying where
/// they are. Whom the unit would replace there is not asked; see [`replaces::replaced`].
pub(crate) fn denial(board: &Board<'_>, unit: UnitNo, machine: MachineNo) -> Option<Denial> {
    lasting_denial(board.roster(), unit, machine)
        .or_else(|| machine_of::denial(board, unit, machine))
        .or_else(|| conflicts::denial(board, unit, machine))
        .or_else(|| replaces::denial(board, unit, machine))
}

/// The first rule by which a machine denies a unit whoever else is there.
pub(crate) fn lasting_denial(
    roster: &Roster<'_>,
    unit: UnitNo,
    machine: MachineNo,
) -> Option<Denial> {
    machine_id::denial(roster, unit, machine).or_else(|| metadata::denial(roster, unit, machine))
}
