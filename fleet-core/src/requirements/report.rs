//! The errors and warnings of one file, as they are found.

use fleet_unitfile::{Span, UnitFile};

use super::{
    RequirementError, RequirementErrorKind, RequirementErrors, RequirementWarning,
    RequirementWarningKind, Strictness,
};

/// How many errors and how many warnings are kept of one file; what is found after that is not
/// recorded, and the file stays refused. Each costs a walk over the file to find its line.
const MAX_REPORTS: usize = 100;

/// What is wrong or odd in a file.
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

    /// Records something that is wrong under either strictness.
    pub(super) fn refuse(&mut self, span: Span, kind: RequirementErrorKind) {
        if self.errors.len() < MAX_REPORTS {
            let location = self.file.location(span.start);
            self.errors.push(RequirementError::new(span, location, kind));
        }
    }

    /// Records something that the old program ignored.
    pub(super) fn object(&mut self, span: Span, kind: RequirementErrorKind) {
        match self.strictness {
            Strictness::Refuse => self.refuse(span, kind),
            Strictness::Warn => self.warn(span, RequirementWarningKind::Ignored(kind)),
        }
    }

    /// Records something odd.
    pub(super) fn warn(&mut self, span: Span, kind: RequirementWarningKind) {
        if self.warnings.len() < MAX_REPORTS {
            let location = self.file.location(span.start);
            self.warnings.push(RequirementWarning::new(span, location, kind));
        }
    }

    /// The line of a place, counted from one.
    pub(super) fn line(&self, span: Span) -> usize {
        self.file.location(span.start).line
    }

    /// The warnings in the order of the file, or the errors if there are any.
    pub(super) fn finish(mut self) -> Result<Vec<RequirementWarning>, RequirementErrors> {
        self.warnings.sort_by_key(|warning| warning.span.start);
        RequirementErrors::new(self.errors).map_or(Ok(self.warnings), Err)
    }
}
