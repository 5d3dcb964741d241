//! The collected errors of an `[X-Fleet]` section.

use std::fmt;

use fleet_unitfile::{Location, Span, UnitFile};

use super::{FleetOption, RequirementError, RequirementErrorKind, Strictness};
use crate::Pattern;

/// All errors in an `[X-Fleet]` section, in source order. The list is never empty.
///
/// At most a hundred errors are kept: the first ones that were found.
///
/// `Display` writes one error per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementErrors(Vec<RequirementError>);

impl RequirementErrors {
    /// Sorts the errors by position; `None` if there are none.
    pub(super) fn new(mut errors: Vec<RequirementError>) -> Option<Self> {
        // The sort is stable: errors at one position keep their order.
        errors.sort_by_key(|error| error.span.start);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// Returns the errors, in source order.
    pub fn iter(&self) -> std::slice::Iter<'_, RequirementError> {
        self.0.iter()
    }

    /// Returns the first error in source order.
    #[must_use]
    pub fn first(&self) -> &RequirementError {
        self.0.first().expect("never made without an error")
    }
}

impl std::error::Error for RequirementErrors {}

impl fmt::Display for RequirementErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl IntoIterator for RequirementErrors {
    type Item = RequirementError;
    type IntoIter = std::vec::IntoIter<RequirementError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a RequirementErrors {
    type Item = &'a RequirementError;
    type IntoIter = std::slice::Iter<'a, RequirementError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Maximum number of errors kept for one file, and likewise of warnings. Further ones are dropped;
/// a file with errors is refused anyway. The limit exists because each report costs a pass over the
/// file to find its line.
const MAX_REPORTS: usize = 100;

/// The errors and warnings of a file.
pub(super) struct Reports<'a> {
    file: &'a UnitFile,
    strictness: Strictness,
    errors: Vec<RequirementError>,
    warnings: Vec<RequirementWarning>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(file: &'a UnitFile, strictness: Strictness) -> Self {
        Self { file, strictness, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Records an error under either strictness.
    pub(super) fn refuse(&mut self, span: Span, kind: RequirementErrorKind) {
        if self.errors.len() < MAX_REPORTS {
            let location = self.file.location(span.start);
            self.errors.push(RequirementError::new(span, location, kind));
        }
    }

    /// Records an error that becomes a warning under [`Strictness::Warn`].
    pub(super) fn report_lenient(&mut self, span: Span, kind: RequirementErrorKind) {
        match self.strictness {
            Strictness::Refuse => self.refuse(span, kind),
            Strictness::Warn => self.warn(span, RequirementWarningKind::Ignored(kind)),
        }
    }

    /// Records a warning.
    pub(super) fn warn(&mut self, span: Span, kind: RequirementWarningKind) {
        if self.warnings.len() < MAX_REPORTS {
            let location = self.file.location(span.start);
            self.warnings.push(RequirementWarning::new(span, location, kind));
        }
    }

    /// Returns the line of a span, counted from one.
    pub(super) fn line(&self, span: Span) -> usize {
        self.file.location(span.start).line
    }

    /// Returns the warnings in source order, or the errors if there are any.
    pub(super) fn finish(mut self) -> Result<Vec<RequirementWarning>, RequirementErrors> {
        self.warnings.sort_by_key(|warning| warning.span.start);
        RequirementErrors::new(self.errors).map_or(Ok(self.warnings), Err)
    }
}

/// One warning about an `[X-Fleet]` section.
///
/// `Display` writes location, [message](Self::message) and [help](Self::help) on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The option adjusts a health check, and the unit has none.
    NoHealthCheck {
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
            RequirementWarningKind::NoHealthCheck { .. } => {
                "write a HealthCheck, or remove the option".into()
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
            Self::NoHealthCheck { option } => {
                write!(f, "{option} has no effect without HealthCheck")
            }
            Self::Ignored(kind) => write!(f, "ignored: {kind}"),
        }
    }
}
