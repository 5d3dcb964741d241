//! Diagnostics: errors and warnings with positions and remedies.

use std::fmt;

use fleet_unitfile::{Location, Severity, Span};

use super::Code;
use super::lines;

/// An error or a warning in a file of stanzas or central settings.
///
/// `Display` prints position, message and help in one line, without the file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitDiagnostic {
    /// Kind of the diagnostic.
    pub code: Code,
    /// Bytes of the file that the diagnostic concerns.
    pub span: Span,
    /// Line and column of the first of these bytes.
    pub location: Location,
    /// Description of the error.
    pub message: String,
    /// Suggested remedy.
    pub help: String,
}

impl InitDiagnostic {
    /// Returns the severity.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Returns the line that the diagnostic concerns, with carets below the position. Of a long
    /// line, returns only the part around the position.
    #[must_use]
    pub fn excerpt(&self, source: &[u8]) -> String {
        let (text, skipped, marked) = lines::excerpt(source, self.span);
        let number = self.location.line.to_string();
        let margin = " ".repeat(number.len());
        let (blanks, carets) = (" ".repeat(skipped), "^".repeat(marked));
        format!("{number} | {text}\n{margin} | {blanks}{carets}")
    }
}

impl fmt::Display for InitDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]: {}", self.location, self.message, self.code, self.help)
    }
}

/// A diagnostic without line and column.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) code: Code,
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: String,
}

/// Problems of a file, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    all: Vec<Problem>,
    errors: usize,
}

impl Problems {
    /// Adds a problem.
    pub(super) fn add(
        &mut self,
        code: Code,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.errors += usize::from(code.severity() == Severity::Error);
        self.all.push(Problem { code, span, message: message.into(), help: help.into() });
    }

    /// Returns the number of errors.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    /// Returns the message of the first problem.
    pub(super) fn first(&self) -> Option<&str> {
        self.all.first().map(|problem| problem.message.as_str())
    }

    /// Adds the line and the column to each problem in a single pass over the file. Returns the
    /// problems sorted by position.
    pub(super) fn locate(mut self, source: &[u8]) -> Vec<InitDiagnostic> {
        self.all.sort_by_key(|problem| (problem.span.start, problem.code));
        let mut locator = lines::Locator::new(source);
        let located = self.all.into_iter().map(|problem| {
            let Problem { code, span, message, help } = problem;
            InitDiagnostic { code, span, location: locator.location(span.start), message, help }
        });
        located.collect()
    }
}

/// Returns at most the first forty characters of a text, for use in a message. Control characters
/// are escaped.
pub(super) fn short(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let mut short: String = text.chars().take(MAX_CHARS).flat_map(printable).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        short.push('…');
    }
    short
}

fn printable(character: char) -> Vec<char> {
    if character.is_control() {
        return character.escape_default().collect();
    }
    vec![character]
}
