//! The options of the `[X-Fleet]` section and their names.

use std::fmt;

use fleet_unitfile::spelling::suggest;

use crate::Resource;

/// An option of the `[X-Fleet]` section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FleetOption {
    /// `MachineID=`: the machine that must run the unit.
    MachineId,
    /// `MachineOf=`: units that must be on the same machine.
    MachineOf,
    /// `MachineMetadata=`: metadata that the machine must have.
    MachineMetadata,
    /// `MachineMetadataExpr=`: a condition on the machine's metadata.
    MachineMetadataExpr,
    /// `Conflicts=`: units that must not be on the same machine.
    Conflicts,
    /// `Global=`: run on every eligible machine.
    Global,
    /// `Replaces=`: units that must leave the machine.
    Replaces,
    /// `MaxPerMachine=`: maximum number of instances of a template on one machine.
    MaxPerMachine,
    /// `ReserveCPU=`: processor time to reserve on the machine.
    ReserveCpu,
    /// `ReserveMemory=`: memory to reserve on the machine.
    ReserveMemory,
    /// `ReserveDisk=`: disk to reserve on the machine.
    ReserveDisk,
    /// `Prefer=`: preferred machines.
    Prefer,
    /// `Spread=`: the metadata key by which instances of a template are spread.
    Spread,
    /// `Reschedule=`: the policy after the loss of the unit's machine.
    Reschedule,
    /// `OnPartition=`: the policy on a partitioned machine.
    OnPartition,
    /// `MoveAfterFailures=`: number of failures on one machine after which the unit moves.
    MoveAfterFailures,
    /// `StartAfter=`: units that must be active before the unit is started.
    StartAfter,
    /// `HealthCheck=`: the health check of the running unit.
    HealthCheck,
    /// `HealthInterval=`: time between two health checks.
    HealthInterval,
    /// `HealthTimeout=`: time after which a health check fails.
    HealthTimeout,
    /// `HealthThreshold=`: number of consecutive failures that make the unit unhealthy.
    HealthThreshold,
    /// `RunOnce=`: whether the unit is a job.
    RunOnce,
    /// `Retries=`: number of further attempts after failed ones.
    Retries,
    /// `Deadline=`: maximum time from the creation of the job to its end.
    Deadline,
    /// `KeepFor=`: time after the end at which the unit is removed.
    KeepFor,
    /// `CountLost=`: whether an interrupted attempt uses up a retry.
    CountLost,
    /// `Schedule=`: the calendar event at which a run of the job is made.
    Schedule,
    /// `ConcurrencyPolicy=`: the policy for an elapse while an earlier run is unfinished.
    ConcurrencyPolicy,
    /// `CatchUp=`: the policy for missed elapses.
    CatchUp,
}

/// Names that fleet v1 deprecated, with the current options.
const DEPRECATED_NAMES: [(&str, FleetOption); 5] = [
    ("X-ConditionMachineID", FleetOption::MachineId),
    ("X-ConditionMachineBootID", FleetOption::MachineId),
    ("X-ConditionMachineOf", FleetOption::MachineOf),
    ("X-ConditionMachineMetadata", FleetOption::MachineMetadata),
    ("X-Conflicts", FleetOption::Conflicts),
];

impl FleetOption {
    /// All options, in the order of the documentation.
    pub const ALL: [Self; 29] = [
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
        Self::MoveAfterFailures,
        Self::StartAfter,
        Self::HealthCheck,
        Self::HealthInterval,
        Self::HealthTimeout,
        Self::HealthThreshold,
        Self::RunOnce,
        Self::Retries,
        Self::Deadline,
        Self::KeepFor,
        Self::CountLost,
        Self::Schedule,
        Self::ConcurrencyPolicy,
        Self::CatchUp,
    ];

    /// Returns the option's name in a unit file.
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
            Self::MoveAfterFailures => "MoveAfterFailures",
            Self::StartAfter => "StartAfter",
            Self::HealthCheck => "HealthCheck",
            Self::HealthInterval => "HealthInterval",
            Self::HealthTimeout => "HealthTimeout",
            Self::HealthThreshold => "HealthThreshold",
            Self::RunOnce => "RunOnce",
            Self::Retries => "Retries",
            Self::Deadline => "Deadline",
            Self::KeepFor => "KeepFor",
            Self::CountLost => "CountLost",
            Self::Schedule => "Schedule",
            Self::ConcurrencyPolicy => "ConcurrencyPolicy",
            Self::CatchUp => "CatchUp",
        }
    }

    /// Returns the option with this name. Names are case-sensitive.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|option| option.as_str() == name)
    }

    /// Returns the option with this name in old versions of fleet.
    pub(super) fn from_deprecated_name(name: &str) -> Option<Self> {
        DEPRECATED_NAMES.into_iter().find(|(old, _)| *old == name).map(|(_, option)| option)
    }

    /// Returns the option with the name most similar to an unknown one.
    pub(super) fn nearest(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let bare = name.strip_prefix("x-condition").or_else(|| name.strip_prefix("x-"));
        let bare = bare.unwrap_or(&name);
        suggest(bare, Self::ALL.map(Self::as_str)).and_then(Self::from_name)
    }

    /// Returns `true` if the values are unit names or patterns, separated by blanks.
    pub(super) const fn takes_units(self) -> bool {
        matches!(self, Self::MachineOf | Self::Conflicts | Self::Replaces | Self::StartAfter)
    }

    /// Returns `true` if the option's values are expressions, commands, calendar events or time
    /// spans. Quotation marks belong to the value there, so they do not separate values.
    pub(super) const fn takes_whole_lines(self) -> bool {
        matches!(
            self,
            Self::MachineMetadataExpr
                | Self::Prefer
                | Self::HealthCheck
                | Self::Deadline
                | Self::KeepFor
                | Self::Schedule
        )
    }

    /// Returns `true` if the option belongs to a job or its schedule.
    pub(super) const fn defines_job(self) -> bool {
        matches!(
            self,
            Self::RunOnce
                | Self::Retries
                | Self::Deadline
                | Self::KeepFor
                | Self::CountLost
                | Self::Schedule
                | Self::ConcurrencyPolicy
                | Self::CatchUp
        )
    }

    /// Returns `true` if the option applies to a unit with `HealthCheck=` only.
    pub(super) const fn adjusts_health_check(self) -> bool {
        matches!(self, Self::HealthInterval | Self::HealthTimeout | Self::HealthThreshold)
    }

    /// Returns `true` if the option applies to instances of a template only.
    pub(super) const fn counts_instances(self) -> bool {
        matches!(self, Self::MaxPerMachine | Self::Spread)
    }

    /// Returns the resource that the option reserves.
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
            ("HealthChecks", Some(FleetOption::HealthCheck)),
            ("HealthIntervalSec", Some(FleetOption::HealthInterval)),
            ("Runonce", Some(FleetOption::RunOnce)),
            ("Retrys", Some(FleetOption::Retries)),
            ("Schedules", Some(FleetOption::Schedule)),
            ("ConcurrentPolicy", Some(FleetOption::ConcurrencyPolicy)),
            ("OnCalendar", None),
            ("Description", None),
            ("After", None),
            ("X-", None),
        ];
        for (name, expected) in cases {
            assert_eq!(FleetOption::nearest(name), expected, "{name}");
        }
    }
}
