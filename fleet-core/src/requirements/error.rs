//! Errors in an `[X-Fleet]` section.

use std::fmt;

use fleet_unitfile::specifier::SpecifierError;
use fleet_unitfile::{Location, NameError, Span, UnitName};

use super::{FleetOption, MetadataProblem};
use crate::expression::{ExpressionError, ExpressionProblem};
use crate::health::HealthCheckError;
use crate::job::SettingErrorKind;
use crate::pattern::{PatternError, Peer};
use crate::requirements::values;
use crate::resources::AmountError;
use crate::{MachineId, Pattern};

/// One error in an `[X-Fleet]` section.
///
/// `Display` writes location, [message](Self::message) and [help](Self::help) on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequirementError {
    /// The affected bytes of the unit file's source.
    pub span: Span,
    /// Line and column in the unit file.
    pub location: Location,
    kind: RequirementErrorKind,
}

/// The kind of an error, with its data.
///
/// If the error involves another option too, the field `line` is the line of that option, counted
/// from one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementErrorKind {
    /// The option does not exist.
    UnknownOption {
        /// The option name as written.
        name: String,
        /// The option that was probably intended.
        suggestion: Option<FleetOption>,
    },
    /// A specifier in a value cannot be expanded.
    Specifier {
        /// The option.
        option: FleetOption,
        /// The value before expansion.
        value: String,
        /// The error of the specifier.
        cause: SpecifierError,
    },
    /// A `MachineID=` is the short form of an ID.
    ShortMachineId {
        /// The value as written.
        value: String,
    },
    /// A `MachineID=` is not a machine ID.
    MachineId {
        /// The value as written.
        value: String,
    },
    /// `MachineID=` names two machines.
    SeveralMachineIds {
        /// The machine named first.
        first: MachineId,
        /// The line of the first machine.
        line: usize,
        /// The machine named second.
        second: MachineId,
    },
    /// A `MachineMetadata=` is not a condition of the form `key=value`.
    Metadata {
        /// The value as written.
        value: String,
        /// The problem with the condition.
        problem: MetadataProblem,
    },
    /// A `MachineOf=` or `StartAfter=` is not a unit name.
    UnitName {
        /// The option.
        option: FleetOption,
        /// The value as written.
        value: String,
        /// The error of the name.
        cause: NameError,
    },
    /// A `MachineOf=` or `StartAfter=` names a template, which never runs.
    PeerIsTemplate {
        /// The option.
        option: FleetOption,
        /// The template.
        peer: UnitName,
    },
    /// A `MachineOf=` or `StartAfter=` names the unit itself.
    PeerIsSelf {
        /// The option.
        option: FleetOption,
        /// The unit.
        peer: UnitName,
    },
    /// A value of `MachineOf=`, `Conflicts=` or `Replaces=` is not a valid pattern.
    Pattern {
        /// The option.
        option: FleetOption,
        /// The error of the pattern.
        cause: PatternError,
    },
    /// An expression over metadata is invalid.
    Expression {
        /// The option.
        option: FleetOption,
        /// The error of the expression.
        cause: ExpressionError,
    },
    /// A reservation is not an amount.
    Amount {
        /// The option.
        option: FleetOption,
        /// The error of the amount.
        cause: AmountError,
    },
    /// A `MaxPerMachine=` is not a whole number of at least 1.
    MaxPerMachine {
        /// The value as written.
        value: String,
    },
    /// A `MoveAfterFailures=` is not a whole number from 0 to 100.
    MoveAfterFailures {
        /// The value as written.
        value: String,
    },
    /// The weight of a `Prefer=` or `Spread=` is not in the allowed range.
    Weight {
        /// The option.
        option: FleetOption,
        /// The weight as written.
        value: String,
    },
    /// A `Prefer=` or `Spread=` has no colon after its weight.
    MissingColon {
        /// The option.
        option: FleetOption,
        /// The weight.
        weight: String,
        /// The text after the weight.
        rest: String,
    },
    /// A `Spread=` is not a metadata key.
    SpreadKey {
        /// The value as written.
        value: String,
    },
    /// The value is not one of those that the option accepts.
    Choice {
        /// `Reschedule` or `OnPartition`.
        option: FleetOption,
        /// The value as written.
        value: String,
    },
    /// A `Global=` is not a boolean.
    NotABoolean {
        /// The value as written.
        value: String,
    },
    /// `HealthCheck=` or an option that adjusts it is invalid.
    HealthCheck {
        /// The option.
        option: FleetOption,
        /// The value as written.
        value: String,
        /// The error of the value.
        cause: HealthCheckError,
    },
    /// `HealthCheck=` names two checks.
    SeveralHealthChecks {
        /// The line of the first check.
        line: usize,
    },
    /// An option of a job or its schedule is invalid.
    Job {
        /// The error of the job.
        cause: SettingErrorKind,
    },
    /// An option keeps a job from running to completion once, or makes systemd forget a failure.
    JobService {
        /// `Restart`, `RemainAfterExit` or `CollectMode`.
        option: &'static str,
        /// The value as written.
        value: String,
        /// The line of `RunOnce=true`.
        line: usize,
    },
    /// Two options are mutually exclusive.
    MutuallyExclusive {
        /// The option that comes first in the file. The error is reported at this option.
        one: FleetOption,
        /// The other option.
        other: FleetOption,
        /// The line of the other option.
        line: usize,
    },
    /// An option has too many values.
    TooMany {
        /// The option.
        option: FleetOption,
        /// The maximum number of values.
        limit: usize,
    },
    /// `MachineOf=` requires a unit that the unit itself excludes.
    PeerExcluded {
        /// The unit or the pattern in `MachineOf=`.
        peer: Peer,
        /// `Conflicts` or `Replaces`.
        option: FleetOption,
        /// The pattern that excludes the peer.
        pattern: Pattern,
        /// The line of the pattern.
        line: usize,
    },
}

impl RequirementError {
    pub(super) fn new(span: Span, location: Location, kind: RequirementErrorKind) -> Self {
        Self { span, location, kind }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &RequirementErrorKind {
        &self.kind
    }

    /// Returns the description of the error.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// Returns how to correct the error.
    #[must_use]
    pub fn help(&self) -> String {
        self.kind.help()
    }
}

impl std::error::Error for RequirementError {}

impl fmt::Display for RequirementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.kind, self.kind.help())
    }
}

impl fmt::Display for RequirementErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOption { name, .. } => write!(f, "[X-Fleet] has no option {name:?}"),
            Self::Specifier { option, value, .. } => {
                write!(f, "{option}={value} cannot be expanded")
            }
            Self::ShortMachineId { value } => {
                write!(f, "MachineID={value} is only the beginning of a machine ID")
            }
            Self::MachineId { value } => write!(f, "MachineID={value} is not a machine ID"),
            Self::SeveralMachineIds { first, line, second } => {
                write!(f, "MachineID={second} and MachineID={first} (line {line}) ")?;
                f.write_str("cannot both be the machine")
            }
            Self::Metadata { value, problem } => {
                write!(f, "MachineMetadata={value} is not one condition: {problem}")
            }
            Self::UnitName { option, value, .. } => {
                write!(f, "{option}={value} is not a unit's name")
            }
            Self::PeerIsTemplate { option, peer } => {
                write!(f, "{option}={peer} names a template, which never runs itself")
            }
            Self::PeerIsSelf { option, peer } => {
                write!(f, "{option}={peer} names the unit itself")
            }
            Self::Pattern { option, cause } => write!(f, "{option}: {cause}"),
            Self::Expression { option, cause } => write!(f, "{option}: {cause}"),
            Self::Amount { option, cause } => write!(f, "{option}: {cause}"),
            Self::MaxPerMachine { value } => {
                write!(f, "MaxPerMachine={value} is not a whole number of at least 1")
            }
            Self::MoveAfterFailures { value } => {
                write!(f, "MoveAfterFailures={value} is not a whole number from 0 to 100")
            }
            Self::Weight { option, value } => write!(f, "{option}: {value} is not a weight"),
            Self::MissingColon { option, weight, .. } => {
                write!(f, "{option}: no colon after the weight {weight}")
            }
            Self::SpreadKey { value } => write!(f, "Spread={value} is not a metadata key"),
            Self::Choice { option, value } => {
                write!(f, "{option}={value} is not a valid value")
            }
            Self::NotABoolean { value } => write!(f, "Global={value} is neither yes nor no"),
            Self::HealthCheck { option, value, cause } => write!(f, "{option}={value}: {cause}"),
            Self::SeveralHealthChecks { line } => {
                write!(f, "HealthCheck is already set to another check (line {line})")
            }
            Self::Job { cause } => cause.fmt(f),
            Self::JobService { option, value, line } => {
                write!(f, "{option}={value} cannot be used together with RunOnce (line {line})")
            }
            Self::MutuallyExclusive { one, other, line } => {
                write!(f, "{one} cannot be used together with {other} (line {line})")
            }
            Self::TooMany { option, limit } => {
                write!(f, "{option} is given more than {limit} values")
            }
            Self::PeerExcluded { peer, option, pattern, line } => {
                write!(
                    f,
                    "MachineOf={peer} cannot be satisfied: {option}={pattern} (line {line}) "
                )?;
                f.write_str("excludes that unit")
            }
        }
    }
}

impl RequirementErrorKind {
    /// Returns how to correct the error.
    pub(super) fn help(&self) -> String {
        match self {
            Self::UnknownOption { suggestion: Some(option), .. } => {
                format!("write {option}, spelled exactly so")
            }
            Self::UnknownOption { suggestion: None, .. } => {
                let all: Vec<_> = FleetOption::ALL.iter().map(|option| option.as_str()).collect();
                format!("the options are {}", all.join(", "))
            }
            Self::Specifier { cause, .. } => specifier_help(cause),
            Self::ShortMachineId { .. } => {
                "write the entire ID, as \"fleetctl list-machines --full\" prints it".into()
            }
            Self::MachineId { .. } => "write the content of the machine's /etc/machine-id".into(),
            Self::SeveralMachineIds { .. } => "keep one of them".into(),
            Self::Metadata { value, problem } => metadata_help(value, *problem),
            Self::UnitName { cause, .. } => cause.to_string(),
            Self::PeerIsTemplate { option, .. } => {
                format!("name one of its instances, as in {option}=web@1.service")
            }
            Self::PeerIsSelf { option: FleetOption::StartAfter, .. } => {
                "remove it: a unit cannot wait for itself".into()
            }
            Self::PeerIsSelf { .. } => "remove it: a unit is always on its own machine".into(),
            Self::Pattern { .. } => {
                "write unit names, with * for any text, ? for one character, [a-z] for a class"
                    .into()
            }
            Self::Expression { cause, .. } => expression_help(cause),
            Self::Amount { cause, .. } => cause.help(),
            Self::MaxPerMachine { .. } => "write a number such as 1, or remove the option".into(),
            Self::MoveAfterFailures { .. } => {
                "write a number such as 3, or 0 to keep the unit on its machine".into()
            }
            Self::Weight { option: FleetOption::Spread, .. } => {
                "write a number from 1 to 1000, as in Spread=5: zone".into()
            }
            Self::Weight { .. } => {
                "write a number from -1000 to 1000 but 0, as in Prefer=10: disk = ssd, or quote \
                 the key"
                    .into()
            }
            Self::MissingColon { option, weight, rest } => {
                format!("write {option}={weight}: {rest}")
            }
            Self::SpreadKey { .. } => "write one key for each Spread, as in Spread=zone".into(),
            Self::Choice { option: FleetOption::Reschedule, .. } => "write always or never".into(),
            Self::Choice { .. } => "write keep or stop".into(),
            Self::NotABoolean { .. } => "write true or false".into(),
            Self::HealthCheck { cause, .. } => cause.help().into(),
            Self::SeveralHealthChecks { .. } => {
                "keep one of them, or clear the first one by HealthCheck=".into()
            }
            Self::Job { cause } => cause.help(),
            Self::JobService { option, .. } => job_service_help(option),
            Self::MutuallyExclusive { one, other, .. } => together_help(*one, *other),
            Self::TooMany { .. } => "use patterns, or leave some out".into(),
            Self::PeerExcluded { option, .. } => {
                format!("take the unit out of MachineOf, or narrow the pattern of {option}")
            }
        }
    }
}

fn job_service_help(option: &str) -> String {
    let reason = match option {
        "Restart" => "with RunOnce, Retries of [X-Fleet] sets the number of further attempts",
        "CollectMode" => "systemd would forget that the job has failed",
        _ => "a job ends when its processes have ended",
    };
    format!("remove {option}: {reason}")
}

fn specifier_help(cause: &SpecifierError) -> String {
    match std::error::Error::source(cause) {
        Some(source) => format!("{cause}: {source}"),
        None => cause.to_string(),
    }
}

fn expression_help(cause: &ExpressionError) -> String {
    match cause.problem() {
        ExpressionProblem::Specifier(cause) => specifier_help(cause),
        _ => cause.help(),
    }
}

fn metadata_help(value: &str, problem: MetadataProblem) -> String {
    match values::suggestion(value, problem) {
        Some(suggestion) => format!("write MachineMetadata={suggestion}"),
        None => "write MachineMetadata=key=value, one \"=\" in each condition".into(),
    }
}

fn together_help(one: FleetOption, other: FleetOption) -> String {
    if [one, other].contains(&FleetOption::RunOnce) {
        let other = if one == FleetOption::RunOnce { other } else { one };
        return match other {
            FleetOption::Global => "remove one of them: a job runs on one machine".into(),
            FleetOption::MoveAfterFailures => {
                "remove MoveAfterFailures: Retries sets the number of further attempts".into()
            }
            _ => format!("remove {other}: the exit status of a job decides about its success"),
        };
    }
    if [one, other].contains(&FleetOption::Global) {
        return "remove one of them: with Global, only MachineMetadata, MachineMetadataExpr, \
                Conflicts, OnPartition, StartAfter and health checks apply"
            .into();
    }
    "remove one of them".into()
}
