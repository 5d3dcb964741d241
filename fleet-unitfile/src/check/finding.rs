//! One thing that was found, and how it is shown.

use std::fmt;

use super::code::FindingCode;
use super::render::Rendered;
use crate::diagnostic::{Diagnostic, Location, Severity, Span};

/// One thing that systemd would refuse, ignore or take in another way than it looks.
///
/// `Display` is the place, the message and the help in one line; [`render`](Self::render) shows
/// the line that it is about as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub(super) code: FindingCode,
    pub(super) span: Span,
    pub(super) location: Location,
    pub(super) message: String,
    pub(super) help: String,
}

impl Finding {
    /// What kind of thing it is.
    pub fn code(&self) -> FindingCode {
        self.code
    }

    /// How much it weighs.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The bytes of the source that it is about; of what is missing, the header of the section.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where those bytes begin.
    pub fn location(&self) -> Location {
        self.location
    }

    /// What is wrong, with the names in question.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// How it is shown to a person: with the file's name, the line, and a mark below the text in
    /// question. The source is the one that was checked.
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
    ///   = help: write the whole path, from / on
    /// "#,
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn render<'a>(&'a self, file: &'a str, source: &'a [u8]) -> impl fmt::Display + 'a {
        Rendered { finding: self, file, source }
    }
}

impl From<&Diagnostic> for Finding {
    /// The same, as one of all that is wrong with a file.
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
