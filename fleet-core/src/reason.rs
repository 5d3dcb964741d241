//! Why a machine refuses a unit, and why a unit has no machine: data first, words second.

use std::collections::BTreeMap;
use std::fmt;

use fleet_unitfile::UnitName;

use crate::cycle::spell_out;
use crate::{MachineId, Pattern};

/// A hard rule that a machine must pass to run a unit, in the order in which rules are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `MachineID=` names another machine.
    MachineId,
    /// `MachineMetadata=` asks for metadata that the machine lacks.
    MachineMetadata,
    /// `MachineOf=` names a unit that is not on the machine.
    MachineOf,
    /// `Conflicts=`, of the unit or of one that is on the machine, keeps the two apart.
    Conflicts,
    /// `Replaces=` asks a unit on the machine to move, or the unit to stay away, and it cannot.
    Replaces,
}

impl Rule {
    /// The option that states the rule, as it is written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MachineId => "MachineID",
            Self::MachineMetadata => "MachineMetadata",
            Self::MachineOf => "MachineOf",
            Self::Conflicts => "Conflicts",
            Self::Replaces => "Replaces",
        }
    }

    /// The rule of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        use Rule::{Conflicts, MachineId, MachineMetadata, MachineOf, Replaces};
        let all = [MachineId, MachineMetadata, MachineOf, Conflicts, Replaces];
        all.into_iter().find(|rule| rule.as_str() == name)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why one machine refuses one unit: the first rule that failed, with what it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The unit must be on another machine.
    MachineId {
        /// The machine that the unit asks for.
        wanted: MachineId,
    },
    /// The machine's metadata does not match.
    MachineMetadata {
        /// The key that does not match.
        key: String,
        /// The values that would do, in order.
        wanted: Vec<String>,
        /// The value that the machine has.
        found: Option<String>,
    },
    /// A unit that must be there is not.
    MachineOf {
        /// The missing unit.
        peer: UnitName,
    },
    /// A unit that is there must not be beside this one.
    Conflicts {
        /// The unit that is there.
        with: UnitName,
        /// The pattern that keeps the two apart.
        pattern: Pattern,
        /// Whether the pattern is the other unit's.
        theirs: bool,
    },
    /// A unit that is there would have to move and cannot, or has replaced this one.
    Replaces {
        /// The unit that is there.
        with: UnitName,
        /// Whether the other unit replaces this one.
        theirs: bool,
    },
}

impl Refusal {
    /// The rule that refused.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        match self {
            Self::MachineId { .. } => Rule::MachineId,
            Self::MachineMetadata { .. } => Rule::MachineMetadata,
            Self::MachineOf { .. } => Rule::MachineOf,
            Self::Conflicts { .. } => Rule::Conflicts,
            Self::Replaces { .. } => Rule::Replaces,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MachineId { wanted } => write!(f, "the unit wants machine {wanted}"),
            Self::MachineMetadata { key, wanted, found } => {
                write!(f, "the unit wants {key}={}, the machine has ", wanted.join(" or "))?;
                match found {
                    Some(value) => write!(f, "{key}={value}"),
                    None => write!(f, "no {key}"),
                }
            }
            Self::MachineOf { peer } => write!(f, "{peer} is not on it"),
            Self::Conflicts { with, pattern, theirs: false } => {
                write!(f, "{with} is on it, and matches Conflicts={pattern}")
            }
            Self::Conflicts { with, pattern, theirs: true } => {
                write!(f, "{with} is on it, and has Conflicts={pattern}")
            }
            Self::Replaces { with, theirs: false } => {
                write!(f, "{with} is on it, and no other machine takes that unit")
            }
            Self::Replaces { with, theirs: true } => {
                write!(f, "{with} is on it, and replaces the unit")
            }
        }
    }
}

/// How many machines one rule refused, with one of them as an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// How many machines this rule was the first to refuse.
    pub machines: u32,
    /// One of these machines.
    pub example: MachineId,
    /// What the rule saw there; it also says which rule.
    pub refusal: Refusal,
}

/// Counts refusals by rule, in the order of the rules; the example is the first one of each.
pub fn tally(refusals: impl IntoIterator<Item = (MachineId, Refusal)>) -> Vec<Tally> {
    let mut by_rule: BTreeMap<Rule, Tally> = BTreeMap::new();
    for (example, refusal) in refusals {
        by_rule.entry(refusal.rule()).and_modify(|tally| tally.machines += 1).or_insert(Tally {
            machines: 1,
            example,
            refusal,
        });
    }
    by_rule.into_values().collect()
}

/// Why a wanted unit has no machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No machine is present.
    NoMachines,
    /// Every machine refuses it.
    NoMachineFits {
        /// How many machines are present.
        machines: u32,
        /// The refusals, counted by the first rule that refused, in the order of the rules.
        tallies: Vec<Tally>,
    },
    /// No machine takes it together with the units that must be beside it.
    NoMachineFitsGroup {
        /// The units that must be placed together, in order.
        group: Vec<UnitName>,
        /// How many machines are present.
        machines: u32,
        /// The refusals, of whichever unit of the group each machine refused first.
        tallies: Vec<Tally>,
    },
    /// A unit that it must be beside is not known to the cluster.
    PeerUnknown {
        /// That unit.
        peer: UnitName,
    },
    /// A unit that it must be beside is inactive, so it is on no machine.
    PeerInactive {
        /// That unit.
        peer: UnitName,
    },
    /// The units that it must be beside are on different machines.
    PeersApart {
        /// One of these units and where it is.
        one: (UnitName, MachineId),
        /// Another and where it is.
        other: (UnitName, MachineId),
    },
    /// `MachineOf=` leads in a circle.
    Cycle {
        /// The units of the circle; the last one leads to the first.
        units: Vec<UnitName>,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMachines => f.write_str("no machine is present"),
            Self::NoMachineFits { machines, tallies } => {
                write_none_of(f, *machines)?;
                write_tallies(f, tallies)
            }
            Self::NoMachineFitsGroup { group, machines, tallies } => {
                write_none_of(f, *machines)?;
                write!(f, " {} together", names(group, ", "))?;
                write_tallies(f, tallies)
            }
            Self::PeerUnknown { peer } => {
                write!(f, "MachineOf={peer} names an unknown unit: submit it, or correct the name")
            }
            Self::PeerInactive { peer } => {
                write!(f, "MachineOf={peer} names a unit that is inactive: load or start it")
            }
            Self::PeersApart { one, other } => {
                f.write_str("MachineOf names units that are on different machines: ")?;
                write!(f, "{} is on {}, {} on {}", one.0, one.1.short(), other.0, other.1.short())
            }
            Self::Cycle { units } => write!(f, "MachineOf leads in a circle: {}", spell_out(units)),
        }
    }
}

fn write_none_of(f: &mut fmt::Formatter<'_>, machines: u32) -> fmt::Result {
    match machines {
        1 => f.write_str("the only machine does not fit"),
        _ => write!(f, "none of {machines} machines fits"),
    }
}

fn names(units: &[UnitName], separator: &str) -> String {
    units.iter().map(UnitName::as_str).collect::<Vec<_>>().join(separator)
}

/// Says how many machines each rule refused, and what it saw on one of them.
fn write_tallies(f: &mut fmt::Formatter<'_>, tallies: &[Tally]) -> fmt::Result {
    for (i, Tally { machines, example, refusal }) in tallies.iter().enumerate() {
        let separator = if i == 0 { ": " } else { "; " };
        let such_as = if *machines == 1 { "" } else { "such as " };
        write!(f, "{separator}{} refuses {machines} ", refusal.rule())?;
        write!(f, "({such_as}{}: {refusal})", example.short())?;
    }
    Ok(())
}
