//! Remarks on units that are accepted.

use std::fmt;

use super::accept::OptionGroup;
use super::support::OptionPosition;

/// A remark on a unit that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remark {
    /// The option concerned.
    pub position: OptionPosition,
    /// Text of the remark. It continues a sentence that begins with the option, such as
    /// `Service.Type is treated as simple`.
    pub text: String,
    /// Kind of the remark.
    pub kind: RemarkKind,
}

/// Kind of a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemarkKind {
    /// The option has no effect here, or a different one. The unit works without it.
    Difference,
    /// The unit runs without the option, because the operator accepts its loss. Contains the group
    /// of the option, if it has one.
    Accepted(Option<OptionGroup>),
    /// The option is not known here. It is probably newer than the table of options.
    Unknown,
}

impl Remark {
    /// Creates a remark on an option that has no effect here, or a different one.
    #[must_use]
    pub fn new(position: OptionPosition, text: impl Into<String>) -> Self {
        Self { position, text: text.into(), kind: RemarkKind::Difference }
    }

    /// Sets the kind of the remark.
    #[must_use]
    pub fn with_kind(self, kind: RemarkKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns whether the unit loses an option that confines its processes or changes their
    /// privileges.
    #[must_use]
    pub fn loses_sandboxing(&self) -> bool {
        self.kind == RemarkKind::Accepted(Some(OptionGroup::Sandboxing))
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.position, self.text)
    }
}
