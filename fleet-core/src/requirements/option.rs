//! The options of the `[X-Fleet]` section and their spellings.

use std::fmt;

use crate::Resource;

/// An option of the `[X-Fleet]` section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FleetOption {
    /// `MachineID=`: the machine that must run the unit.
    MachineId,
    /// `MachineOf=`: units that must be on the same machine.
    MachineOf,
    /// `MachineMetadata=`: what the machine must say of itself.
    MachineMetadata,
    /// `MachineMetadataExpr=`: what must be true of what the machine says of itself.
    MachineMetadataExpr,
    /// `Conflicts=`: units that must not be on the same machine.
    Conflicts,
    /// `Global=`: run on every eligible machine.
    Global,
    /// `Replaces=`: units that must leave the machine.
    Replaces,
    /// `MaxPerMachine=`: how many instances of a template may be on one machine.
    MaxPerMachine,
    /// `ReserveCPU=`: how much processor time the machine must have left.
    ReserveCpu,
    /// `ReserveMemory=`: how much memory the machine must have left.
    ReserveMemory,
    /// `ReserveDisk=`: how much disk the machine must have left.
    ReserveDisk,
    /// `Prefer=`: which machines are better.
    Prefer,
    /// `Spread=`: by which metadata key instances of a template keep apart.
    Spread,
    /// `Reschedule=`: whether the unit gets another machine when its own is lost.
    Reschedule,
    /// `OnPartition=`: what becomes of the unit on a machine that is cut off.
    OnPartition,
}

/// Spellings that the old program deprecated, and what they are called now.
const OLD_SPELLINGS: [(&str, FleetOption); 5] = [
    ("X-ConditionMachineID", FleetOption::MachineId),
    ("X-ConditionMachineBootID", FleetOption::MachineId),
    ("X-ConditionMachineOf", FleetOption::MachineOf),
    ("X-ConditionMachineMetadata", FleetOption::MachineMetadata),
    ("X-Conflicts", FleetOption::Conflicts),
];

/// How alike two names must be, from 0 to 1, for one to be suggested in place of the other.
const ALIKE: f64 = 0.6;

impl FleetOption {
    /// All options, in the order in which the documents explain them.
    pub const ALL: [Self; 15] = [
        Self::MachineId,
        Self::MachineOf,
        Self::MachineMetadata,
        Self::MachineMetadataExpr,
        Self::Conflicts,
        Self::Global,
        Self::Replaces,
        Self::MaxPerMachine,
        Self::ReserveCpu,
        Self::ReserveMemory,
        Self::ReserveDisk,
        Self::Prefer,
        Self::Spread,
        Self::Reschedule,
        Self::OnPartition,
    ];

    /// The option as it is written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MachineId => "MachineID",
            Self::MachineOf => "MachineOf",
            Self::MachineMetadata => "MachineMetadata",
            Self::MachineMetadataExpr => "MachineMetadataExpr",
            Self::Conflicts => "Conflicts",
            Self::Global => "Global",
            Self::Replaces => "Replaces",
            Self::MaxPerMachine => "MaxPerMachine",
            Self::ReserveCpu => "ReserveCPU",
            Self::ReserveMemory => "ReserveMemory",
            Self::ReserveDisk => "ReserveDisk",
            Self::Prefer => "Prefer",
            Self::Spread => "Spread",
            Self::Reschedule => "Reschedule",
            Self::OnPartition => "OnPartition",
        }
    }

    /// The option that is written so now. Spellings are exact, upper and lower case included.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|option| option.as_str() == name)
    }

    /// The option that was written so in old versions of fleet.
    pub(super) fn from_old_spelling(name: &str) -> Option<Self> {
        OLD_SPELLINGS.into_iter().find(|(old, _)| *old == name).map(|(_, option)| option)
    }

    /// The option that was probably meant by a name that is none.
    pub(super) fn nearest(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let bare = name.strip_prefix("x-condition").or_else(|| name.strip_prefix("x-"));
        let bare = bare.unwrap_or(&name);
        let likeness = |option: Self| {
            let known = option.as_str().to_ascii_lowercase();
            strsim::normalized_damerau_levenshtein(bare, &known)
        };
        let scored = Self::ALL.into_iter().map(|option| (likeness(option), option));
        let best = scored.max_by(|one, other| one.0.total_cmp(&other.0));
        best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, option)| option)
    }

    /// Whether its values are unit names or patterns over them, which blanks separate.
    pub(super) const fn takes_units(self) -> bool {
        matches!(self, Self::MachineOf | Self::Conflicts | Self::Replaces)
    }

    /// Whether its values are expressions, in which quotation marks have a meaning of their own.
    pub(super) const fn takes_expressions(self) -> bool {
        matches!(self, Self::MachineMetadataExpr | Self::Prefer)
    }

    /// Whether only instances of a template have a use for it.
    pub(super) const fn counts_instances(self) -> bool {
        matches!(self, Self::MaxPerMachine | Self::Spread)
    }

    /// What it reserves, if it reserves something.
    pub(super) const fn reserves(self) -> Option<Resource> {
        match self {
            Self::ReserveCpu => Some(Resource::Cpu),
            Self::ReserveMemory => Some(Resource::Memory),
            Self::ReserveDisk => Some(Resource::Disk),
            _ => None,
        }
    }
}

impl fmt::Display for FleetOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_none() {
        let cases = [
            ("machineid", Some(FleetOption::MachineId)),
            ("MachineBootID", Some(FleetOption::MachineId)),
            ("MachineMeta", Some(FleetOption::MachineMetadata)),
            ("X-ConditionConflicts", Some(FleetOption::Conflicts)),
            ("X-Global", Some(FleetOption::Global)),
            ("Conflict", Some(FleetOption::Conflicts)),
            ("Replace", Some(FleetOption::Replaces)),
            ("MachinesOf", Some(FleetOption::MachineOf)),
            ("MachineMetadataExpression", Some(FleetOption::MachineMetadataExpr)),
            ("ReserveCpu", Some(FleetOption::ReserveCpu)),
            ("ReserveMem", Some(FleetOption::ReserveMemory)),
            ("MaxPerMachines", Some(FleetOption::MaxPerMachine)),
            ("Preferred", Some(FleetOption::Prefer)),
            ("OnPartitioned", Some(FleetOption::OnPartition)),
            ("Description", None),
            ("After", None),
            ("X-", None),
        ];
        for (name, expected) in cases {
            assert_eq!(FleetOption::nearest(name), expected, "{name}");
        }
    }
}
