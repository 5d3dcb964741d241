//! From a source to all that it says, kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Severity};
use crate::grammar::{Assignment, Flaw, Step, Steps};
use crate::option::UnitOption;
use crate::text::{Parts, Place, Source, Text};

/// How many diagnostics are kept. Past that, reading goes on and only a first error is added.
const MAX_DIAGNOSTICS: usize = 1000;

/// What was read from a source.
pub(crate) struct Parsed {
    pub(crate) text: Arc<Text>,
    pub(crate) options: Box<[UnitOption]>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Reads a source; where `strict`, only up to the first error, which is then the last diagnostic.
pub(crate) fn parse(source: &[u8], strict: bool) -> Parsed {
    let steps = Steps::new(source);
    let mut keeper = Keeper::new(&steps);
    for step in steps {
        match step {
            Step::Comment(_) => {}
            Step::Section(name, _) => keeper.section = keeper.intern(name),
            Step::Assignment(assignment) => keeper.keep(&assignment),
            Step::Flaw(flaw) => {
                keeper.report(&flaw);
                if strict && flaw.kind.severity() == Severity::Error {
                    break;
                }
            }
        }
    }
    keeper.finish(source)
}

struct Keeper<'a> {
    /// Whether the source is text, so that options can be parts of it.
    is_text: bool,
    text: Text,
    names: BTreeMap<Cow<'a, str>, usize>,
    /// The section that is being read.
    section: usize,
    places: Vec<Place>,
    diagnostics: Vec<Diagnostic>,
    has_error: bool,
}

impl<'a> Keeper<'a> {
    fn new(steps: &Steps<'a>) -> Self {
        Self {
            is_text: steps.text().is_some(),
            text: Text::default(),
            names: BTreeMap::new(),
            section: 0,
            places: Vec::new(),
            diagnostics: Vec::new(),
            has_error: false,
        }
    }

    fn intern(&mut self, name: Cow<'a, str>) -> usize {
        if let Some(&known) = self.names.get(&name) {
            return known;
        }
        self.text.sections.push((*name).into());
        let index = self.text.sections.len() - 1;
        self.names.insert(name, index);
        index
    }

    fn keep(&mut self, assignment: &Assignment<'a>) {
        let (span, value_span) = (assignment.span(), assignment.value_span());
        let verbatim = assignment.verbatim();
        let parts = if self.is_text && assignment.is_plain() && verbatim.is_none() {
            let name_len = u32::try_from(assignment.name.len());
            Parts::InSource {
                name_len: name_len.expect("a name is shorter than a line may be"),
                value_start: value_span.start,
            }
        } else {
            let name = assignment.part(&assignment.name);
            let value = assignment.part(&assignment.value);
            let start = value_span.start;
            self.text.store(&name, &value, verbatim.as_deref(), start)
        };
        self.places.push(Place { start: span.start, end: span.end, section: self.section, parts });
    }

    fn report(&mut self, flaw: &Flaw<'a>) {
        let is_error = flaw.kind.severity() == Severity::Error;
        let is_first_error = is_error && !self.has_error;
        if self.diagnostics.len() < MAX_DIAGNOSTICS || is_first_error {
            self.has_error |= is_error;
            self.diagnostics.push(flaw.diagnostic());
        }
    }

    fn finish(mut self, source: &[u8]) -> Parsed {
        self.text.source = match str::from_utf8(source) {
            Ok(text) => Source::Text(text.into()),
            Err(_) => Source::Bytes(source.into()),
        };
        self.text.stored.shrink_to_fit();
        self.text.places.shrink_to_fit();
        let text = Arc::new(self.text);
        let option = |place| UnitOption::at(Arc::clone(&text), place);
        let options = self.places.into_iter().map(option).collect();
        Parsed { text, options, diagnostics: self.diagnostics }
    }
}
