//! Parsing of a whole source into an index.

use std::borrow::Cow;

use crate::assignment::Assignment;
use crate::diagnostic::{Diagnostic, Severity};
use crate::grammar::{Issue, SyntaxItem, SyntaxItems};
use crate::index::Index;
use crate::text::{Source, Text};

/// Maximum number of diagnostics that are kept. Beyond this maximum, only the first error is added,
/// and only if all kept diagnostics are warnings.
const MAX_DIAGNOSTICS: usize = 1000;

/// The result of parsing a source.
pub(crate) struct ParsedSource {
    pub(crate) text: Text,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Parses a source. If `strict` is true, parsing stops at the first error, and this error is the
/// last diagnostic.
pub(crate) fn parse(source: &[u8], strict: bool) -> ParsedSource {
    let mut items = SyntaxItems::new(source);
    let mut collector = Collector::default();
    for item in &mut items {
        match item {
            SyntaxItem::Comment(_) => {}
            SyntaxItem::Section(Cow::Borrowed(_), span) => collector.headers.push(span.start, None),
            SyntaxItem::Section(Cow::Owned(name), span) => {
                collector.headers.push(span.start, Some(&[&name]));
            }
            SyntaxItem::Assignment(assignment) => collector.option(&assignment),
            SyntaxItem::Issue(issue) => {
                collector.report(&issue);
                if strict && issue.kind.severity() == Severity::Error {
                    break;
                }
            }
        }
    }
    let Collector { mut options, mut headers, diagnostics, .. } = collector;
    options.close();
    headers.close();
    // Copies the source only after all joined lines are freed: the copy may be most of the memory.
    let source = match items.text() {
        Some(text) => Source::Text(text.into()),
        None => Source::Bytes(source.into()),
    };
    let text = Text { source, mark: items.mark(), options, headers };
    ParsedSource { text, diagnostics }
}

#[derive(Default)]
struct Collector {
    options: Index,
    headers: Index,
    diagnostics: Vec<Diagnostic>,
    has_error: bool,
}

impl Collector {
    fn option(&mut self, assignment: &Assignment<'_>) {
        match assignment {
            Assignment::Plain(plain) => self.options.push(plain.span().start, None),
            Assignment::ContinuedAssignment(joined) => {
                let pieces = [joined.name(), "=", joined.value()];
                self.options.push(joined.span().start, Some(&pieces));
            }
        }
    }

    fn report(&mut self, issue: &Issue<'_>) {
        let is_error = issue.kind.severity() == Severity::Error;
        let is_first_error = is_error && !self.has_error;
        if self.diagnostics.len() < MAX_DIAGNOSTICS || is_first_error {
            self.has_error |= is_error;
            self.diagnostics.push(issue.diagnostic());
        }
    }
}
