//! The hard rules, and why a machine refuses a unit: data first, words second.

use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::{MachineId, Pattern, Peer, Resource};

/// A hard rule that a machine must pass to run a unit, in the order in which rules are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The machine is cordoned, and takes only what is there already.
    Cordon,
    /// `MachineID=` names another machine.
    MachineId,
    /// `MachineMetadata=` asks for metadata that the machine lacks.
    MachineMetadata,
    /// `MachineMetadataExpr=` is false of the machine.
    MachineMetadataExpr,
    /// `MachineOf=` names a unit that is not on the machine.
    MachineOf,
    /// `Conflicts=`, of the unit or of one that is on the machine, keeps the two apart.
    Conflicts,
    /// `MaxPerMachine=`, of the unit or of one that is on the machine, allows no more instances.
    MaxPerMachine,
    /// `ReserveCPU=`, `ReserveMemory=` or `ReserveDisk=` asks for more than the machine has left.
    Reserve,
    /// `Replaces=` asks a unit on the machine to move, or the unit to stay away, and it cannot.
    Replaces,
    /// A rule of the program that embeds the scheduler.
    Custom,
}

impl Rule {
    /// All rules, in the order in which they are tried.
    pub const ALL: [Self; 10] = [
        Self::Cordon,
        Self::MachineId,
        Self::MachineMetadata,
        Self::MachineMetadataExpr,
        Self::MachineOf,
        Self::Conflicts,
        Self::MaxPerMachine,
        Self::Reserve,
        Self::Replaces,
        Self::Custom,
    ];

    /// Its name: that of the option that states it, where it is one option.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cordon => "Cordon",
            Self::MachineId => "MachineID",
            Self::MachineMetadata => "MachineMetadata",
            Self::MachineMetadataExpr => "MachineMetadataExpr",
            Self::MachineOf => "MachineOf",
            Self::Conflicts => "Conflicts",
            Self::MaxPerMachine => "MaxPerMachine",
            Self::Reserve => "Reserve",
            Self::Replaces => "Replaces",
            Self::Custom => "Custom",
        }
    }

    /// The rule of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }

    /// Whether it looks at the unit and the machine alone, so that it refuses whoever else is
    /// there.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        matches!(
            self,
            Self::Cordon | Self::MachineId | Self::MachineMetadata | Self::MachineMetadataExpr
        )
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
    /// The machine is cordoned, and the unit is not placed there.
    Cordon {},
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
    /// The expression over the machine's metadata is false.
    MachineMetadataExpr {
        /// The part of the expression that is false.
        failed: Arc<str>,
        /// What the machine has of the keys in that part, as `disk=hdd, no cores`.
        found: Arc<str>,
    },
    /// A unit that must be there is not.
    MachineOf {
        /// The missing unit, or the pattern that no unit there matches.
        peer: Peer,
    },
    /// A unit that is there must not be beside this one.
    Conflicts {
        /// The unit that is there.
        with: UnitName,
        /// The pattern that keeps the two apart.
        pattern: Pattern,
        /// Whether the pattern is the other unit's.
        by_other: bool,
    },
    /// There are as many instances of the unit's template as may be.
    MaxPerMachine {
        /// The template.
        template: UnitName,
        /// The smallest number that the unit, or one that is there, allows.
        limit: u32,
        /// How many instances are there.
        count: u32,
    },
    /// The machine has not enough left of what the unit reserves.
    Reserve {
        /// The first resource that is short. It says what the amounts are counted in.
        resource: Resource,
        /// How much the unit reserves.
        wanted: u64,
        /// How much is not reserved by units that are there.
        free: u64,
        /// How much the machine offers in all.
        offered: u64,
    },
    /// A unit that is there would have to move and cannot, or has replaced this one.
    Replaces {
        /// The unit that is there.
        with: UnitName,
        /// Whether the other unit replaces this one.
        by_other: bool,
    },
    /// A rule of the program that embeds the scheduler.
    Custom {
        /// The name of the rule.
        rule: Arc<str>,
        /// What it saw.
        detail: Arc<str>,
    },
}

impl Refusal {
    /// The rule that refused.
    #[must_use]
    pub const fn rule(&self) -> Rule {
        match self {
            Self::Cordon {} => Rule::Cordon,
            Self::MachineId { .. } => Rule::MachineId,
            Self::MachineMetadata { .. } => Rule::MachineMetadata,
            Self::MachineMetadataExpr { .. } => Rule::MachineMetadataExpr,
            Self::MachineOf { .. } => Rule::MachineOf,
            Self::Conflicts { .. } => Rule::Conflicts,
            Self::MaxPerMachine { .. } => Rule::MaxPerMachine,
            Self::Reserve { .. } => Rule::Reserve,
            Self::Replaces { .. } => Rule::Replaces,
            Self::Custom { .. } => Rule::Custom,
        }
    }

    /// The name of the rule that refused; of an embedding program's rule its own.
    #[must_use]
    pub fn rule_name(&self) -> &str {
        match self {
            Self::Custom { rule, .. } => rule,
            _ => self.rule().as_str(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordon {} => f.write_str("it is cordoned, and takes no unit that is not there"),
            Self::MachineId { wanted } => write!(f, "the unit wants machine {wanted}"),
            Self::MachineMetadata { key, wanted, found } => {
                write!(f, "the unit wants {key}={}, the machine has ", wanted.join(" or "))?;
                match found {
                    Some(value) => write!(f, "{key}={value}"),
                    None => write!(f, "no {key}"),
                }
            }
            Self::MachineMetadataExpr { failed, found } => {
                write!(f, "the unit wants {failed}, the machine has {found}")
            }
            Self::MachineOf { peer: Peer::Named(peer) } => write!(f, "{peer} is not on it"),
            Self::MachineOf { peer: Peer::Matching(pattern) } => {
                write!(f, "no other unit that matches {pattern} is on it")
            }
            Self::Conflicts { with, pattern, by_other: false } => {
                write!(f, "{with} is on it, and matches Conflicts={pattern}")
            }
            Self::Conflicts { with, pattern, by_other: true } => {
                write!(f, "{with} is on it, and has Conflicts={pattern}")
            }
            Self::MaxPerMachine { template, limit, count } => {
                write!(f, "{count} of {template} on it, MaxPerMachine={limit} allows no more")
            }
            Self::Reserve { resource, wanted, free, offered } => {
                write_shortage(f, *resource, *wanted, *free, *offered)
            }
            Self::Replaces { with, by_other: false } => {
                write!(f, "{with} is on it, and no other machine takes that unit")
            }
            Self::Replaces { with, by_other: true } => {
                write!(f, "{with} is on it, and replaces the unit")
            }
            Self::Custom { detail, .. } => f.write_str(detail),
        }
    }
}

fn write_shortage(
    f: &mut fmt::Formatter<'_>,
    resource: Resource,
    wanted: u64,
    free: u64,
    offered: u64,
) -> fmt::Result {
    write!(f, "the unit reserves {resource} {}, ", resource.format(wanted))?;
    match offered {
        0 => write!(f, "the machine offers no {resource}"),
        _ => write!(f, "of {} offered {} is free", resource.format(offered), resource.format(free)),
    }
}
