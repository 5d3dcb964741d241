//! All that is wrong with an `[X-Fleet]` section.

use std::fmt;

use super::RequirementError;

/// All that is wrong with an `[X-Fleet]` section, in the order of the file; never empty.
///
/// Of more than a hundred errors, the first hundred that were found.
///
/// It prints one line for each error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequirementErrors(Vec<RequirementError>);

impl RequirementErrors {
    /// The errors in the order of the file; `None` if there are none.
    pub(super) fn new(mut errors: Vec<RequirementError>) -> Option<Self> {
        errors.sort_by_key(|error| error.span.start); // stable, so of one place as they were found
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The errors, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, RequirementError> {
        self.0.iter()
    }

    /// The error that comes first in the file.
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
