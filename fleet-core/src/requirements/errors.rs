//! The collected errors of an `[X-Fleet]` section.

use std::fmt;

use super::RequirementError;

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
