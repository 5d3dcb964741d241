//! What is odd about an `[X-Fleet]` section without being wrong.

use std::fmt;

use fleet_unitfile::{Location, Span};

use super::{FleetOption, RequirementErrorKind};
use crate::Pattern;

/// One thing that is odd about an `[X-Fleet]` section.
///
/// It prints as place, [message](Self::message) and [help](Self::help), in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementWarning {
    /// Where in the unit file's source, in bytes.
    pub span: Span,
    /// Where in the unit file, for people.
    pub location: Location,
    kind: RequirementWarningKind,
}

/// What is odd, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequirementWarningKind {
    /// An option has a spelling that old versions of fleet used. It is obeyed.
    OldSpelling {
        /// What is written.
        name: String,
        /// The option that it means.
        option: FleetOption,
    },
    /// A section's name looks like `[X-Fleet]` and is not. Nothing in it is read.
    SectionName {
        /// What is written.
        name: String,
    },
    /// A pattern without wildcards is no unit's whole name, so it never matches.
    MatchesNothing {
        /// The option.
        option: FleetOption,
        /// The pattern.
        pattern: Pattern,
    },
    /// The option is about the instances of a template, and the unit is none.
    NoEffect {
        /// The option.
        option: FleetOption,
    },
    /// Something is wrong and was ignored, as [`Strictness::Warn`](crate::Strictness) asks for.
    Ignored(RequirementErrorKind),
}

impl RequirementWarning {
    pub(super) fn new(span: Span, location: Location, kind: RequirementWarningKind) -> Self {
        Self { span, location, kind }
    }

    /// What is odd, as data.
    #[must_use]
    pub fn kind(&self) -> &RequirementWarningKind {
        &self.kind
    }

    /// What is odd, in words.
    #[must_use]
    pub fn message(&self) -> String {
        self.kind.to_string()
    }

    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match &self.kind {
            RequirementWarningKind::OldSpelling { option, .. } => format!("write {option}"),
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
            Self::OldSpelling { name, option } => write!(f, "{name} is the old name of {option}"),
            Self::SectionName { name } => write!(f, "section [{name}] is not read by fleet"),
            Self::MatchesNothing { option, pattern } => {
                write!(f, "{option}={pattern} matches no unit, for a pattern covers whole names")
            }
            Self::NoEffect { option } => {
                write!(f, "{option} has no effect, for it counts instances of a template")
            }
            Self::Ignored(kind) => write!(f, "ignored: {kind}"),
        }
    }
}
