//! From a source to all that it says, kept.

use std::borrow::Cow;

use crate::assignment::Assignment;
use crate::diagnostic::{Diagnostic, Severity};
use crate::grammar::{Flaw, Step, Steps};
use crate::index::Index;
use crate::text::{Source, Text};

/// How many diagnostics are kept. Past that, reading goes on and only a first error is added.
const MAX_DIAGNOSTICS: usize = 1000;

/// What was read from a source.
pub(crate) struct Parsed {
    pub(crate) text: Text,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Reads a source; where `strict`, only up to the first error, which is then the last diagnostic.
pub(crate) fn parse(source: &[u8], strict: bool) -> Parsed {
    let mut steps = Steps::new(source);
    let mut keeper = Keeper::default();
    for step in &mut steps {
        match step {
            Step::Comment(_) => {}
            Step::Section(Cow::Borrowed(_), span) => keeper.headers.push(span.start, None),
            Step::Section(Cow::Owned(name), span) => {
                keeper.headers.push(span.start, Some(&[&name]));
            }
            Step::Assignment(assignment) => keeper.option(&assignment),
            Step::Flaw(flaw) => {
                keeper.report(&flaw);
                if strict && flaw.kind.severity() == Severity::Error {
                    break;
                }
            }
        }
    }
    let Keeper { mut options, mut headers, diagnostics, .. } = keeper;
    options.close();
    headers.close();
    // Only now, when nothing is being joined any more: the copy may be most of the memory.
    let source = match steps.text() {
        Some(text) => Source::Text(text.into()),
        None => Source::Bytes(source.into()),
    };
    Parsed { text: Text { source, options, headers }, diagnostics }
}

#[derive(Default)]
struct Keeper {
    options: Index,
    headers: Index,
    diagnostics: Vec<Diagnostic>,
    has_error: bool,
}

impl Keeper {
    fn option(&mut self, assignment: &Assignment<'_>) {
        match assignment {
            Assignment::Plain(plain) => self.options.push(plain.span().start, None),
            Assignment::Joined(joined) => {
                let pieces = [joined.name(), "=", joined.value()];
                self.options.push(joined.span().start, Some(&pieces));
            }
        }
    }

    fn report(&mut self, flaw: &Flaw<'_>) {
        let is_error = flaw.kind.severity() == Severity::Error;
        let is_first_error = is_error && !self.has_error;
        if self.diagnostics.len() < MAX_DIAGNOSTICS || is_first_error {
            self.has_error |= is_error;
            self.diagnostics.push(flaw.diagnostic());
        }
    }
}
