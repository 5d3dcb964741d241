//! One thing that is wrong with a text, where, and what to write instead.

use std::fmt;

use fleet_unitfile::{Location, Severity, Span};

use super::Code;
use super::lines;

/// One thing that is wrong, or odd, in a file of stanzas or of central settings.
///
/// `Display` is the place, the message and the help in one line; the file is known to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitDiagnostic {
    /// What kind of thing it is.
    pub code: Code,
    /// The bytes of the file that it is about.
    pub span: Span,
    /// Where those begin.
    pub location: Location,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl InitDiagnostic {
    /// How much it weighs.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The line that it is about, and below it carets under the place.
    ///
    /// Of a long line, only what is near the place.
    #[must_use]
    pub fn excerpt(&self, source: &[u8]) -> String {
        let (text, skipped, marked) = lines::around(source, self.span);
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

/// A diagnostic whose line and column are not known yet.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) code: Code,
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: String,
}

/// All that is wrong with a text, in the order in which it was found.
#[derive(Debug, Default)]
pub(super) struct Problems {
    all: Vec<Problem>,
    errors: usize,
}

impl Problems {
    /// Adds one.
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

    /// How many of them are errors.
    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    /// What is wrong with the first of them.
    pub(super) fn first(&self) -> Option<&str> {
        self.all.first().map(|problem| problem.message.as_str())
    }

    /// Finds their places: in the order of the file, with one walk over it however many they are.
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

/// The first forty characters of a text, for a message; control characters are escaped.
pub(super) fn short(text: &str) -> String {
    const MOST: usize = 40;
    let mut short: String = text.chars().take(MOST).flat_map(printable).collect();
    if text.chars().nth(MOST).is_some() {
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
