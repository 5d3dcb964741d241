//! What can be wrong with an `[X-Fleet]` section.

use std::fmt;

use fleet_unitfile::{Location, NameError, Span, SpecifierError, UnitName};

use super::{FleetOption, MetadataProblem, metadata};
use crate::{
    AmountError, ExpressionError, ExpressionProblem, MachineId, Pattern, PatternError, Peer,
};

/// One thing that is wrong with an `[X-Fleet]` section.
///
/// It prints as place, [message](Self::message) and [help](Self::help), in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementError {
    /// Where in the unit file's source, in bytes.
    pub span: Span,
    /// Where in the unit file, for people.
    pub location: Location,
    kind: RequirementErrorKind,
}

/// What is wrong, as data.
///
/// Where a second option is part of it, `line` is the line of that one, counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementErrorKind {
    /// There is no option of that name.
    UnknownOption {
        /// What is written.
        name: String,
        /// The option that was probably meant.
        suggestion: Option<FleetOption>,
    },
    /// A `%` in a value is followed by nothing that it could stand for.
    Specifier {
        /// The option.
        option: FleetOption,
        /// The value, before anything was expanded.
        value: String,
        /// What is wrong with it.
        cause: SpecifierError,
    },
    /// A `MachineID=` is the shortened form of an ID.
    ShortMachineId {
        /// What is written.
        value: String,
    },
    /// A `MachineID=` is no ID.
    MachineId {
        /// What is written.
        value: String,
    },
    /// `MachineID=` names two machines.
    SeveralMachineIds {
        /// The one that was named first.
        first: MachineId,
        /// Its line.
        line: usize,
        /// The other.
        second: MachineId,
    },
    /// A `MachineMetadata=` is no condition of the form `key=value`.
    Metadata {
        /// What is written.
        value: String,
        /// What is wrong with it.
        problem: MetadataProblem,
    },
    /// A `MachineOf=` is no unit's name.
    UnitName {
        /// What is written.
        value: String,
        /// What is wrong with it.
        cause: NameError,
    },
    /// A `MachineOf=` names a template, which is never on any machine.
    PeerIsTemplate {
        /// The template.
        peer: UnitName,
    },
    /// A `MachineOf=` names the unit itself.
    PeerIsSelf {
        /// The unit.
        peer: UnitName,
    },
    /// A `Conflicts=` or `Replaces=` is no pattern.
    Pattern {
        /// The option.
        option: FleetOption,
        /// What is wrong with it.
        cause: PatternError,
    },
    /// An expression over metadata cannot be read.
    Expression {
        /// The option.
        option: FleetOption,
        /// What is wrong with it.
        cause: ExpressionError,
    },
    /// What is to be reserved is no amount.
    Amount {
        /// The option.
        option: FleetOption,
        /// What is wrong with it.
        cause: AmountError,
    },
    /// A `MaxPerMachine=` is no whole number from 1 on.
    MaxPerMachine {
        /// What is written.
        value: String,
    },
    /// What stands before the colon of a `Prefer=` or `Spread=` is no weight that it may have.
    Weight {
        /// The option.
        option: FleetOption,
        /// What is written there.
        value: String,
    },
    /// Between the weight of a `Prefer=` or `Spread=` and what it weighs is no colon.
    NoColon {
        /// The option.
        option: FleetOption,
        /// The weight.
        weight: String,
        /// What follows it.
        rest: String,
    },
    /// A `Spread=` is no metadata key.
    SpreadKey {
        /// What is written.
        value: String,
    },
    /// A value is not one of those that the option has.
    Choice {
        /// `Reschedule` or `OnPartition`.
        option: FleetOption,
        /// What is written.
        value: String,
    },
    /// A `Global=` is neither yes nor no.
    NotABoolean {
        /// What is written.
        value: String,
    },
    /// Two options cannot be used together.
    MutuallyExclusive {
        /// The one that comes first in the file, where the error is.
        one: FleetOption,
        /// The other.
        other: FleetOption,
        /// The other's line.
        line: usize,
    },
    /// An option is given more values than it may have.
    TooMany {
        /// The option.
        option: FleetOption,
        /// How many it may have.
        limit: usize,
    },
    /// The unit must be beside a unit that it keeps away itself.
    PeerKeptAway {
        /// The unit or the pattern that `MachineOf=` names.
        peer: Peer,
        /// `Conflicts` or `Replaces`.
        option: FleetOption,
        /// The pattern that covers the peer.
        pattern: Pattern,
        /// The pattern's line.
        line: usize,
    },
}

impl RequirementError {
    pub(super) fn new(span: Span, location: Location, kind: RequirementErrorKind) -> Self {
        Self { span, location, kind }
    }

    /// What is wrong, as data.
    #[must_use]
    pub fn kind(&self) -> &RequirementErrorKind {
        &self.kind
    }

    /// What is wrong, in words.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// What to write instead.
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
            Self::UnitName { value, .. } => write!(f, "MachineOf={value} is not a unit's name"),
            Self::PeerIsTemplate { peer } => {
                write!(f, "MachineOf={peer} names a template, which never runs itself")
            }
            Self::PeerIsSelf { peer } => write!(f, "MachineOf={peer} names the unit itself"),
            Self::Pattern { option, cause } => write!(f, "{option}: {cause}"),
            Self::Expression { option, cause } => write!(f, "{option}: {cause}"),
            Self::Amount { option, cause } => write!(f, "{option}: {cause}"),
            Self::MaxPerMachine { value } => {
                write!(f, "MaxPerMachine={value} is no whole number from 1 on")
            }
            Self::Weight { option, value } => write!(f, "{option}: {value} is no weight"),
            Self::NoColon { option, weight, .. } => {
                write!(f, "{option}: no colon after the weight {weight}")
            }
            Self::SpreadKey { value } => write!(f, "Spread={value} is no metadata key"),
            Self::Choice { option, value } => {
                write!(f, "{option}={value} is no choice that there is")
            }
            Self::NotABoolean { value } => write!(f, "Global={value} is neither yes nor no"),
            Self::MutuallyExclusive { one, other, line } => {
                write!(f, "{one} cannot be used together with {other} (line {line})")
            }
            Self::TooMany { option, limit } => {
                write!(f, "{option} is given more than {limit} values")
            }
            Self::PeerKeptAway { peer, option, pattern, line } => {
                write!(f, "MachineOf={peer} cannot be met: {option}={pattern} (line {line}) ")?;
                f.write_str("keeps that unit away")
            }
        }
    }
}

impl RequirementErrorKind {
    /// What to write instead.
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
            Self::PeerIsTemplate { .. } => {
                "name one of its instances, as in MachineOf=web@1.service".into()
            }
            Self::PeerIsSelf { .. } => "remove it: a unit is always on its own machine".into(),
            Self::Pattern { .. } => {
                "write unit names, with * for any text, ? for one character, [a-z] for a class"
                    .into()
            }
            Self::Expression { cause, .. } => expression_help(cause),
            Self::Amount { cause, .. } => cause.help(),
            Self::MaxPerMachine { .. } => "write a number such as 1, or remove the option".into(),
            Self::Weight { option: FleetOption::Spread, .. } => {
                "write a number from 1 to 1000, as in Spread=5: zone".into()
            }
            Self::Weight { .. } => {
                "write a number from -1000 to 1000 but 0, as in Prefer=10: disk = ssd, or quote \
                 the key"
                    .into()
            }
            Self::NoColon { option, weight, rest } => format!("write {option}={weight}: {rest}"),
            Self::SpreadKey { .. } => "write one key for each Spread, as in Spread=zone".into(),
            Self::Choice { option: FleetOption::Reschedule, .. } => "write always or never".into(),
            Self::Choice { .. } => "write keep or stop".into(),
            Self::NotABoolean { .. } => "write true or false".into(),
            Self::MutuallyExclusive { one, other, .. } => together_help(*one, *other),
            Self::TooMany { .. } => "use patterns, or leave some out".into(),
            Self::PeerKeptAway { option, .. } => {
                format!("take the unit out of MachineOf, or narrow the pattern of {option}")
            }
        }
    }
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
    match metadata::suggestion(value, problem) {
        Some(suggestion) => format!("write MachineMetadata={suggestion}"),
        None => "write MachineMetadata=key=value, one \"=\" in each condition".into(),
    }
}

fn together_help(one: FleetOption, other: FleetOption) -> String {
    if [one, other].contains(&FleetOption::Global) {
        return "remove one of them: beside Global only MachineMetadata, MachineMetadataExpr, \
                Conflicts and OnPartition have a meaning"
            .into();
    }
    "remove one of them".into()
}
