//! Collection of errors and warnings of one file.

use fleet_unitfile::{Span, UnitFile};

use super::{
    RequirementError, RequirementErrorKind, RequirementErrors, RequirementWarning,
    RequirementWarningKind, Strictness,
};

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
