//! Findings of a check.

use std::fmt;

use super::code::FindingCode;
use super::render::FindingExcerpt;
use crate::diagnostic::{Diagnostic, Location, Severity, Span};

/// A result of a check: text that systemd refuses or ignores, or probably reads differently than
/// its author intended.
///
/// `Display` writes location, message and help on one line. [`render`](Self::render) also shows the
/// source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(super) code: FindingCode,
    pub(super) span: Span,
    pub(super) location: Location,
    pub(super) message: String,
    pub(super) help: String,
}

impl Finding {
    /// Returns the kind of the finding.
    pub fn code(&self) -> FindingCode {
        self.code
    }

    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Returns the affected bytes of the source. For a missing option, these are the bytes of the
    /// section header.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the line and column at which those bytes begin.
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns the description, with the names involved.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns how to correct the text.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Formats the finding for a terminal, with the file name, the source line, and a mark below
    /// the affected text. `source` must be the source that was checked.
    ///
    /// ```
    /// use fleet_unitfile::{UnitFile, UnitName, check};
    ///
    /// let name = UnitName::parse("web.service")?;
    /// let file = UnitFile::parse("[Service]\nExecStart=bin/web\n")?;
    /// let findings = check(&name, &file);
    /// assert_eq!(
    ///     findings[0].render("web.service", file.source()).to_string(),
    ///     r#"error[U0301]: ExecStart: "bin/web" is neither an absolute path nor a plain name
    ///  --> web.service:2:11
    ///   |
    /// 2 | ExecStart=bin/web
    ///   |           ^^^^^^^
    ///   = help: write an absolute path
    /// "#,
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn render<'a>(&'a self, file: &'a str, source: &'a [u8]) -> impl fmt::Display + 'a {
        FindingExcerpt { finding: self, file, source }
    }
}

impl From<&Diagnostic> for Finding {
    /// Converts a diagnostic of the grammar.
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            code: diagnostic.kind().into(),
            span: diagnostic.span(),
            location: diagnostic.location(),
            message: diagnostic.message(),
            help: diagnostic.help().to_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.message, self.help)
    }
}
