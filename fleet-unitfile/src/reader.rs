//! A reader that borrows: one event at a time, and nothing kept.

use std::borrow::Cow;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::assignment::Assignment;
use crate::diagnostic::{Diagnostic, Span};
use crate::grammar::{Step, Steps};
use crate::option::UnitOption;

/// Reads a source event by event, without a copy of anything that stands in it as it reads.
///
/// It follows the same grammar as [`UnitFile`](crate::UnitFile), which is built on it, and goes on
/// after a line that cannot be read. It allocates only for a value or a header that goes on over
/// several lines, and for diagnostics. The source may be text or bytes.
///
/// ```
/// use fleet_unitfile::{Event, Reader};
///
/// let mut users = Reader::new("[Service]\nUser=web\nNice=5\n").filter_map(|event| match event {
///     Event::Option(option) if option.name() == "User" => Some(option.value()),
///     _ => None,
/// });
/// assert_eq!(users.next().as_deref(), Some("web"));
/// ```
pub struct Reader<'a> {
    steps: Steps<'a>,
    section: SectionName<'a>,
}

impl<'a> Reader<'a> {
    /// A reader at the start of the source.
    ///
    /// The source is checked for UTF-8 once, here.
    pub fn new<S: AsRef<[u8]> + ?Sized>(source: &'a S) -> Self {
        Self { steps: Steps::new(source.as_ref()), section: SectionName::Borrowed("") }
    }

    /// The options alone; what cannot be read is left out.
    #[inline]
    pub fn options(self) -> impl Iterator<Item = OptionRef<'a>> {
        self.filter_map(|event| match event {
            Event::Option(option) => Some(option),
            _ => None,
        })
    }
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// One thing that stands in a source, in the order of the source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A comment; those between the lines of one option are not told.
    Comment {
        /// The line with its mark; a comment may hold any bytes.
        text: &'a [u8],
        /// Where it stands.
        span: Span,
    },
    /// A section begins, maybe not for the first time.
    Section {
        /// The name between the brackets.
        name: Cow<'a, str>,
        /// Where the header stands, brackets included.
        span: Span,
    },
    /// An option of the section that began last.
    Option(OptionRef<'a>),
    /// What is wrong, or suspicious. Where a section header cannot be read, the options below it
    /// are left out: they belong to no section that is known.
    Diagnostic(Diagnostic),
}

/// An option as it stands in a source that is borrowed; [`UnitOption::from`] makes one that
/// stands alone.
#[derive(Clone)]
pub struct OptionRef<'a> {
    section: SectionName<'a>,
    assignment: Assignment<'a>,
}

impl<'a> OptionRef<'a> {
    /// The name of the section, without brackets.
    #[inline]
    pub fn section(&self) -> &str {
        self.section.as_str()
    }

    /// What stands before the `=`; borrowed, unless a backslash joined its lines.
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        self.assignment.name()
    }

    /// The value as systemd reads it; borrowed, unless a backslash joined its lines.
    #[inline]
    pub fn value(&self) -> Cow<'a, str> {
        self.assignment.value()
    }

    /// The value as it is written, like [`OptionView::verbatim`](crate::OptionView::verbatim).
    pub fn verbatim(&self) -> Cow<'a, str> {
        self.assignment.verbatim()
    }

    /// From the name to the end of the value.
    pub fn span(&self) -> Span {
        self.assignment.span()
    }

    /// Where the value stands; the end of the option, where the value is empty.
    pub fn value_span(&self) -> Span {
        self.assignment.value_span()
    }
}

impl From<OptionRef<'_>> for UnitOption {
    fn from(option: OptionRef<'_>) -> Self {
        Self::new(option.section(), option.name(), option.verbatim())
    }
}

impl fmt::Debug for OptionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (section, name) = (self.section(), self.name());
        write!(f, "[{section}] {name}={:?}", self.verbatim())
    }
}

/// A name that every option of the section holds, so it must be cheap to clone.
#[derive(Clone)]
enum SectionName<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl SectionName<'_> {
    #[inline]
    fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(name) => name,
            Self::Shared(name) => name,
        }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        Some(match self.steps.next()? {
            Step::Comment(line) => Event::Comment {
                text: line.text,
                span: Span { start: line.start, end: line.start + line.text.len() },
            },
            Step::Section(name, span) => {
                self.section = match &name {
                    Cow::Borrowed(name) => SectionName::Borrowed(name),
                    Cow::Owned(name) => SectionName::Shared(name.as_str().into()),
                };
                Event::Section { name, span }
            }
            Step::Assignment(assignment) => {
                Event::Option(OptionRef { section: self.section.clone(), assignment })
            }
            Step::Flaw(flaw) => Event::Diagnostic(flaw.diagnostic()),
        })
    }
}

impl FusedIterator for Reader<'_> {}
