//! Findings of a check.

use std::fmt;

use super::code::FindingCode;
use crate::diagnostic::{Diagnostic, Location, Severity, Span};
use crate::excerpt::Excerpt;

/// A result of a check: text that systemd refuses or ignores, or probably reads differently than
/// its author intended.
///
/// `Display` writes file, location, message and help on one line. [`render`](Self::render) also shows
/// the source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(super) file: String,
    pub(super) code: FindingCode,
    pub(super) span: Span,
    pub(super) location: Location,
    pub(super) message: String,
    pub(super) help: String,
    pub(super) excerpt: Excerpt,
}

impl Finding {
    /// Returns the name of the file: the name of the unit, or the path of the unit's part. For a
    /// diagnostic of the grammar, it is empty until [`in_file`](Self::in_file) sets it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Sets the name of the file, such as the path by which the user knows it.
    #[must_use]
    pub fn in_file(self, file: impl Into<String>) -> Self {
        Self { file: file.into(), ..self }
    }

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

    /// Formats the finding as compilers do, with the name of the file, the source line, and a mark
    /// below the affected text. The text ends in a line feed.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit: UnitFile = "[Service]\nExecStart=bin/web\n".parse()?;
    /// let findings = unit.check(&"web.service".parse()?);
    /// assert_eq!(
    ///     findings[0].render().to_string(),
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
    pub fn render(&self) -> impl fmt::Display + '_ {
        Rendered(self)
    }
}

struct Rendered<'a>(&'a Finding);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(finding) = self;
        let Location { line, column } = finding.location;
        let gutter = line.to_string().len();
        writeln!(f, "{}[{}]: {}", finding.severity(), finding.code, finding.message)?;
        writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", finding.file)?;
        finding.excerpt.write(f, line)?;
        writeln!(f, "{:gutter$} = help: {}", "", finding.help)
    }
}

impl From<&Diagnostic> for Finding {
    /// Converts a diagnostic of the grammar, about a file without a name.
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            file: String::new(),
            code: diagnostic.kind().into(),
            span: diagnostic.span(),
            location: diagnostic.location(),
            message: diagnostic.message(),
            help: diagnostic.help().to_owned(),
            excerpt: diagnostic.excerpt().clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}: ", self.file)?;
        }
        write!(f, "{}: {}: {}", self.location, self.message, self.help)
    }
}
