//! Warnings about an `[X-Fleet]` section.

use std::fmt;

use fleet_unitfile::{Location, Span};

use super::{FleetOption, RequirementErrorKind};
use crate::Pattern;

/// One warning about an `[X-Fleet]` section.
///
/// `Display` writes location, [message](Self::message) and [help](Self::help) on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementWarning {
    /// The affected bytes of the unit file's source.
    pub span: Span,
    /// Line and column in the unit file.
    pub location: Location,
    kind: RequirementWarningKind,
}

/// The kind of a warning, with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementWarningKind {
    /// An option is written with its deprecated name of older fleet versions. The option takes
    /// effect.
    DeprecatedName {
        /// The name as written.
        name: String,
        /// The current option.
        option: FleetOption,
    },
    /// The name of a section resembles `[X-Fleet]`. The section is ignored.
    SectionName {
        /// The name as written.
        name: String,
    },
    /// A pattern has no wildcards and is not a full unit name, so it matches no unit.
    MatchesNothing {
        /// The option.
        option: FleetOption,
        /// The pattern.
        pattern: Pattern,
    },
    /// The option applies only to instances of a template, and the unit is not an instance.
    NoEffect {
        /// The option.
        option: FleetOption,
    },
    /// An error that was ignored because of [`Strictness::Warn`](crate::Strictness).
    Ignored(RequirementErrorKind),
}

impl RequirementWarning {
    pub(super) fn new(span: Span, location: Location, kind: RequirementWarningKind) -> Self {
        Self { span, location, kind }
    }

    /// Returns the kind of the warning.
    #[must_use]
    pub fn kind(&self) -> &RequirementWarningKind {
        &self.kind
    }

    /// Returns the description of the warning.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// Returns how to correct the file.
    #[must_use]
    pub fn help(&self) -> String {
        match &self.kind {
            RequirementWarningKind::DeprecatedName { option, .. } => format!("write {option}"),
            RequirementWarningKind::SectionName { .. } => "did you mean [X-Fleet]?".into(),
            RequirementWarningKind::MatchesNothing { pattern, .. } => {
                format!("write the whole name, as in {pattern}.service, or {pattern}*")
            }
            RequirementWarningKind::NoEffect { .. } => {
                "name the unit as an instance, as in web@1.service, or remove the option".into()
            }
            RequirementWarningKind::Ignored(kind) => kind.help(),
        }
    }
}

impl fmt::Display for RequirementWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.kind, self.help())
    }
}

impl fmt::Display for RequirementWarningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeprecatedName { name, option } => {
                write!(f, "{name} is the old name of {option}")
            }
            Self::SectionName { name } => write!(f, "section [{name}] is not read by fleet"),
            Self::MatchesNothing { option, pattern } => {
                write!(f, "{option}={pattern} matches no unit: patterns match whole names")
            }
            Self::NoEffect { option } => {
                write!(f, "{option} has no effect: it applies to instances of a template")
            }
            Self::Ignored(kind) => write!(f, "ignored: {kind}"),
        }
    }
}
