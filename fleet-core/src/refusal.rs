//! Hard placement rules, and refusals as data with a text form.

use std::fmt;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::pattern::Peer;
use crate::{MachineId, Pattern, Resource};

/// A hard rule that a machine must pass to run a unit. Each variant describes how a machine fails
/// the rule. Rules are checked in the order of the variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The machine is cordoned and only keeps the units that it has.
    Cordon,
    /// `MachineID=` names another machine.
    MachineId,
    /// `MachineMetadata=` requires metadata that the machine lacks.
    MachineMetadata,
    /// `MachineMetadataExpr=` is false for the machine.
    MachineMetadataExpr,
    /// `MachineOf=` names a unit that is not on the machine.
    MachineOf,
    /// `Conflicts=` of the unit matches a unit on the machine, or `Conflicts=` of a unit on the
    /// machine matches this unit.
    Conflicts,
    /// The machine already has as many instances of the template as `MaxPerMachine=` allows. The
    /// lowest limit counts, be it of the unit or of an instance on the machine.
    MaxPerMachine,
    /// `ReserveCPU=`, `ReserveMemory=` or `ReserveDisk=` exceeds the machine's free resources.
    Reserve,
    /// `Replaces=` of the unit matches a unit that cannot leave this machine, or `Replaces=` of a
    /// unit on the machine matches this unit.
    Replaces,
    /// A custom rule of the program that embeds the scheduler.
    Custom,
}

impl Rule {
    /// All rules, in the order of evaluation.
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

    /// Returns the rule's name. A rule that belongs to a single option has the name of that option.
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

    /// Returns the rule with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }

    /// Returns `true` if the rule depends only on the unit and the machine, not on other units on
    /// the machine.
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

/// The reason why a machine refuses a unit: the first rule that fails, with the values that make it
/// fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The machine is cordoned, and the unit is not placed there.
    Cordon {},
    /// The unit requires another machine.
    MachineId {
        /// The machine that the unit requires.
        wanted: MachineId,
    },
    /// The machine's metadata does not match.
    MachineMetadata {
        /// The key that does not match.
        key: String,
        /// The accepted values, in order.
        wanted: Vec<String>,
        /// The machine's value.
        found: Option<String>,
    },
    /// The expression over the machine's metadata is false.
    MachineMetadataExpr {
        /// The part of the expression that is false.
        failed: Arc<str>,
        /// The machine's values of the keys in the false part, such as `disk=hdd, no cores`.
        found: Arc<str>,
    },
    /// A required unit is not on the machine.
    MachineOf {
        /// The missing unit, or the pattern that no unit on the machine matches.
        peer: Peer,
    },
    /// A conflicting unit is on the machine.
    Conflicts {
        /// The conflicting unit.
        with: UnitName,
        /// The pattern by which the two units conflict.
        pattern: Pattern,
        /// Whether the pattern belongs to the other unit.
        by_other: bool,
    },
    /// The maximum number of instances of the template is reached.
    MaxPerMachine {
        /// The template.
        template: UnitName,
        /// The lowest `MaxPerMachine=` of the unit and the instances on the machine.
        limit: u32,
        /// Number of instances on the machine.
        count: u32,
    },
    /// The machine has too few free resources for the unit's reservation.
    Reserve {
        /// The first resource that is insufficient; it determines the unit of the amounts.
        resource: Resource,
        /// Amount that the unit reserves.
        wanted: u64,
        /// Amount that is not reserved by units on the machine.
        free: u64,
        /// Total amount that the machine offers.
        offered: u64,
    },
    /// The unit replaces a unit that cannot leave this machine, or a unit on the machine replaces
    /// this unit.
    Replaces {
        /// The unit on the machine.
        with: UnitName,
        /// Whether the other unit replaces this one.
        by_other: bool,
    },
    /// A custom rule of the program that embeds the scheduler refused the machine.
    Custom {
        /// Name of the rule.
        rule: Arc<str>,
        /// Description of the rule's findings.
        detail: Arc<str>,
    },
}

impl Refusal {
    /// Returns the rule that refused.
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

    /// Returns the name of the rule that refused. For a custom rule, the result is the custom
    /// rule's own name.
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
            Self::Cordon {} => f.write_str("it is cordoned and accepts no new units"),
            Self::MachineId { wanted } => write!(f, "the unit requires machine {wanted}"),
            Self::MachineMetadata { key, wanted, found } => {
                write!(f, "the unit requires {key}={}, the machine has ", wanted.join(" or "))?;
                match found {
                    Some(value) => write!(f, "{key}={value}"),
                    None => write!(f, "no {key}"),
                }
            }
            Self::MachineMetadataExpr { failed, found } => {
                write!(f, "the unit requires {failed}, the machine has {found}")
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
                write!(f, "it has {count} of {template}, and MaxPerMachine={limit} allows no more")
            }
            Self::Reserve { resource, wanted, free, offered } => {
                write_shortage(f, *resource, *wanted, *free, *offered)
            }
            Self::Replaces { with, by_other: false } => {
                write!(f, "{with} is on it, and no other machine accepts that unit")
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
        _ => write!(
            f,
            "the machine has {} of {} free",
            resource.format(free),
            resource.format(offered)
        ),
    }
}
