//! Requirements of a unit: its `[X-Fleet]` section, parsed and checked. Among them are soft
//! preferences, and policies for a lost machine.

mod error;
mod errors;
mod health;
mod job;
mod option;
mod parse;
mod validate;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fleet_unitfile::{UnitFile, UnitName};

use crate::health::HealthCheck;
use crate::job::JobDefinition;
use crate::pattern::Peer;
use crate::{Expression, Machine, MachineId, Pattern, Resources};

pub use self::values::MetadataProblem;
pub use error::{RequirementError, RequirementErrorKind};
pub use errors::{RequirementErrors, RequirementWarning, RequirementWarningKind};
pub use option::FleetOption;
pub use validate::InvalidRequirements;

/// The section of a unit file that fleet reads.
const SECTION: &str = "X-Fleet";

/// A unit's requirements for the machine that runs it.
///
/// Specifiers are expanded with the unit's own name. Each instance of a template therefore has its
/// own requirements.
///
/// The fields may also be set directly, from `Requirements::default()` on.
/// [`validate`](Self::validate) then checks what [`parse`](Self::parse) would refuse.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Requirements {
    /// `Global=`: run on every eligible machine.
    pub global: bool,
    /// `MachineID=`: the only acceptable machine.
    pub machine_id: Option<MachineId>,
    /// `MachineOf=`: peers that must be on the same machine, in the order written.
    pub machine_of: Vec<Peer>,
    /// `MachineMetadata=`: the accepted values of each key.
    pub metadata: BTreeMap<String, BTreeSet<String>>,
    /// `MachineMetadataExpr=`: a condition on the machine's metadata.
    pub metadata_expr: Option<Expression>,
    /// `Conflicts=`: units that must not be on the same machine, in the order written.
    pub conflicts: Vec<Pattern>,
    /// `Replaces=`: units that must leave the machine on which this unit is placed, in the order
    /// written.
    pub replaces: Vec<Pattern>,
    /// `MaxPerMachine=`: maximum number of instances of the unit's template on one machine,
    /// including this unit. The number is at least 1.
    pub max_per_machine: Option<u32>,
    /// `ReserveCPU=`, `ReserveMemory=` and `ReserveDisk=`: resources reserved on the machine.
    pub reserve: Resources,
    /// `Prefer=`: preferred machines, in the order written.
    pub prefer: Vec<Preference>,
    /// `Spread=`: metadata keys by which instances are spread, in the order written. Each key
    /// occurs once.
    pub spread: Vec<Spread>,
    /// `Reschedule=`: the policy after the loss of the machine.
    pub reschedule: Reschedule,
    /// `OnPartition=`: the policy on a partitioned machine.
    pub on_partition: OnPartition,
    /// `MoveAfterFailures=`: number of failures on one machine after which the unit moves to
    /// another one. `None` never moves it.
    pub move_after_failures: Option<u32>,
    /// Machines on which the unit has failed that often, with the number of failures there. The
    /// scheduler avoids them. No option sets them: they come from the unit's
    /// [`FailureRecord`](crate::failures::FailureRecord).
    pub failed_on: BTreeMap<MachineId, u32>,
    /// `StartAfter=`: units that must be active, or have finished successfully, before the unit is
    /// started, in the order written.
    pub start_after: Vec<UnitName>,
    /// `HealthCheck=` and the options that adjust it: the health check of the running unit.
    pub health_check: Option<HealthCheck>,
    /// `RunOnce=true` and the options of jobs and schedules. `None` if the unit is neither a job
    /// nor a schedule.
    pub job: Option<JobDefinition>,
}

impl Requirements {
    /// Returns whether a machine passes the filters of the unit: `MachineID=`, `MachineMetadata=`
    /// and `MachineMetadataExpr=`. Cordons, reservations and other units are not considered.
    #[must_use]
    pub fn admits(&self, machine: &Machine) -> bool {
        let is_named = self.machine_id.as_ref().is_none_or(|id| *id == machine.id);
        let mut required = self.metadata.iter();
        is_named
            && required.all(|(key, values)| {
                machine.metadata.get(key).is_some_and(|value| values.contains(value))
            })
            && self
                .metadata_expr
                .as_ref()
                .is_none_or(|expression| expression.eval(&machine.metadata))
    }

    /// Returns the penalty of a machine on which the unit has failed. It is larger than the sum of
    /// all weights of `Prefer=` and `Spread=`, and grows with the number of failures.
    #[must_use]
    pub fn failure_penalty(failed_on: &BTreeMap<MachineId, u32>, machine: &MachineId) -> i64 {
        let failures = failed_on.get(machine).copied().unwrap_or_default();
        (1 << 40) * i64::from(failures.min(1000))
    }

    /// Returns `true` if the unit is a job: it runs to completion once, and has no schedule.
    #[must_use]
    pub fn is_job(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.schedule.is_none())
    }

    /// Returns `true` if the unit is a schedule. It never runs itself, only its runs do.
    #[must_use]
    pub fn is_schedule(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.schedule.is_some())
    }
}

/// Setters, each for one option.
impl Requirements {
    /// Sets `Global=`.
    #[must_use]
    pub fn with_global(self, global: bool) -> Self {
        Self { global, ..self }
    }

    /// Sets `MachineID=`.
    #[must_use]
    pub fn with_machine_id(self, machine_id: impl Into<Option<MachineId>>) -> Self {
        Self { machine_id: machine_id.into(), ..self }
    }

    /// Sets `MachineOf=`.
    #[must_use]
    pub fn with_machine_of(self, machine_of: Vec<Peer>) -> Self {
        Self { machine_of, ..self }
    }

    /// Sets `MachineMetadata=`.
    #[must_use]
    pub fn with_metadata(self, metadata: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { metadata, ..self }
    }

    /// Sets `MachineMetadataExpr=`.
    #[must_use]
    pub fn with_metadata_expr(self, metadata_expr: impl Into<Option<Expression>>) -> Self {
        Self { metadata_expr: metadata_expr.into(), ..self }
    }

    /// Sets `Conflicts=`.
    #[must_use]
    pub fn with_conflicts(self, conflicts: Vec<Pattern>) -> Self {
        Self { conflicts, ..self }
    }

    /// Sets `Replaces=`.
    #[must_use]
    pub fn with_replaces(self, replaces: Vec<Pattern>) -> Self {
        Self { replaces, ..self }
    }

    /// Sets `MaxPerMachine=`.
    #[must_use]
    pub fn with_max_per_machine(self, max_per_machine: impl Into<Option<u32>>) -> Self {
        Self { max_per_machine: max_per_machine.into(), ..self }
    }

    /// Sets `ReserveCPU=`, `ReserveMemory=` and `ReserveDisk=`.
    #[must_use]
    pub fn with_reserve(self, reserve: Resources) -> Self {
        Self { reserve, ..self }
    }

    /// Sets `Prefer=`.
    #[must_use]
    pub fn with_prefer(self, prefer: Vec<Preference>) -> Self {
        Self { prefer, ..self }
    }

    /// Sets `Spread=`.
    #[must_use]
    pub fn with_spread(self, spread: Vec<Spread>) -> Self {
        Self { spread, ..self }
    }

    /// Sets `Reschedule=`.
    #[must_use]
    pub fn with_reschedule(self, reschedule: Reschedule) -> Self {
        Self { reschedule, ..self }
    }

    /// Sets `OnPartition=`.
    #[must_use]
    pub fn with_on_partition(self, on_partition: OnPartition) -> Self {
        Self { on_partition, ..self }
    }

    /// Sets `MoveAfterFailures=`.
    #[must_use]
    pub fn with_move_after_failures(self, limit: impl Into<Option<u32>>) -> Self {
        Self { move_after_failures: limit.into(), ..self }
    }

    /// Sets the machines on which the unit has failed.
    #[must_use]
    pub fn with_failed_on(self, failed_on: BTreeMap<MachineId, u32>) -> Self {
        Self { failed_on, ..self }
    }

    /// Sets `StartAfter=`.
    #[must_use]
    pub fn with_start_after(self, start_after: Vec<UnitName>) -> Self {
        Self { start_after, ..self }
    }

    /// Sets `HealthCheck=`, with the options that adjust it.
    #[must_use]
    pub fn with_health_check(self, health_check: impl Into<Option<HealthCheck>>) -> Self {
        Self { health_check: health_check.into(), ..self }
    }

    /// Sets `RunOnce=true`, with the options of jobs and schedules.
    #[must_use]
    pub fn with_job(self, job: impl Into<Option<JobDefinition>>) -> Self {
        Self { job: job.into(), ..self }
    }
}

/// The handling of text that fleet v1 silently ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Refuses such text, so that a typo cannot silently remove a requirement.
    #[default]
    Refuse,
    /// Ignores such text with a warning. This applies to unknown options, invalid
    /// `MachineMetadata=` conditions, and invalid patterns.
    Warn,
}

/// Parsed requirements with their warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParsedRequirements {
    /// The requirements.
    pub requirements: Requirements,
    /// The warnings, in source order.
    pub warnings: Vec<RequirementWarning>,
}

impl Requirements {
    /// Parses the requirements of the unit called `name`.
    ///
    /// A line of an option holds one or several values:
    ///
    /// - `MachineMetadataExpr=`, `Prefer=`, `HealthCheck=`, `Deadline=`, `KeepFor=` and
    ///   `Schedule=`: always one value, the whole line.
    /// - Unit names and patterns: split at blanks, because they contain none.
    /// - Other options: if the line starts and ends with `"`, split at blanks outside quotes,
    ///   without escapes. Otherwise the line is one value.
    ///
    /// If an option occurs several times, lists grow and expressions are joined by `and`. A later
    /// single value (such as `Global=`) overrides the earlier one, but two different `MachineID=`
    /// or `HealthCheck=`, and two `Schedule=`, are an error. As in systemd, an empty assignment
    /// (`Conflicts=`) resets the option, including values under its deprecated name.
    ///
    /// A template is never placed, and values with `%i`, `%n` or `%N` are known only for its
    /// instances. For a template such values are therefore skipped here; they are parsed and
    /// checked for each instance.
    ///
    /// ```
    /// use fleet_core::{Requirements, Strictness};
    /// use fleet_unitfile::UnitFile;
    ///
    /// let file = UnitFile::parse("[X-Fleet]\nMachineOf=%p.socket\nConflicts=foo@*.service\n")?;
    /// let name = "foo.service".parse()?;
    /// let parsed = Requirements::parse(&name, &file, Strictness::Refuse)?;
    /// assert_eq!(parsed.requirements.machine_of, ["foo.socket"]);
    /// assert!(parsed.warnings.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns all errors in the section, in source order: unknown options, invalid values, and
    /// mutually exclusive options. For a job or schedule, these include options of `[Service]`.
    pub fn parse(
        name: &UnitName,
        file: &UnitFile,
        strictness: Strictness,
    ) -> Result<ParsedRequirements, RequirementErrors> {
        let mut reader = parse::SectionReader::new(name, file, strictness);
        reader.read();
        reader.finish()
    }
}

/// One `Prefer=` option: a condition with a weight. Machines that meet the condition are preferred
/// or, if the weight is negative, avoided.
///
/// `Display` writes the preference as in a unit file: `10: disk = ssd`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Preference {
    /// Weight from -1000 to 1000, except 0. The default is 1.
    pub weight: i32,
    /// The condition on the machine's metadata.
    pub expression: Expression,
}

/// One `Spread=` option: a metadata key with a weight. Instances of the unit's template are spread
/// over machines with different values of the key (for example, over zones).
///
/// `Display` writes the option as in a unit file: `5: zone`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// Penalty for choosing a machine, per instance that already runs on a machine with the same
    /// value of the key. From 1 to 1000; the default is 1.
    pub weight: i32,
    /// The metadata key.
    pub key: String,
}

/// `Reschedule=`: the policy after the loss of a unit's machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reschedule {
    /// The unit is placed on another machine.
    #[default]
    Always,
    /// The unit waits for its machine to return.
    Never,
}

/// `OnPartition=`: the policy of an agent that has lost contact with the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnPartition {
    /// The unit keeps running, so it may run on two machines at once.
    #[default]
    Keep,
    /// The agent stops the unit before the engine may place it on another machine, so the unit
    /// never runs twice.
    Stop,
}

impl Preference {
    /// The allowed weights of a preference; 0 is excluded.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = -1000..=1000;
}

impl Spread {
    /// The allowed weights of a spread.
    pub const WEIGHTS: std::ops::RangeInclusive<i32> = 1..=1000;
}

impl Reschedule {
    /// Returns the value as written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Always, Self::Never].into_iter().find(|value| value.as_str() == name)
    }
}

impl OnPartition {
    /// Returns the value as written in a unit file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Stop => "stop",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Keep, Self::Stop].into_iter().find(|value| value.as_str() == name)
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.weight, self.expression)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.weight, self.key)
    }
}

impl fmt::Display for Reschedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for OnPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns whether a text can be the key of a `Spread=`.
fn is_spread_key(key: &str) -> bool {
    !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || c.is_control() || c == '=')
}
