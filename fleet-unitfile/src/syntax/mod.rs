//! The grammar of unit files, and a streaming reader that borrows from its source.

pub(crate) mod assignment;
pub(crate) mod diagnostic;
pub(crate) mod grammar;
pub(crate) mod lines;

use std::borrow::Cow;
use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::file::option::UnitOption;
use crate::syntax::assignment::Assignment;
use crate::syntax::diagnostic::{Diagnostic, Span};
use crate::syntax::grammar::{SyntaxItem, SyntaxItems};

/// A streaming reader: an iterator over the [events](Event) of a source, which borrows from the
/// source where possible.
///
/// The reader follows the same grammar as [`UnitFile`](crate::UnitFile), and continues after
/// invalid lines. It allocates memory only for diagnostics, and for values and headers that
/// continue over several lines. The source may be text or bytes.
///
/// ```
/// use fleet_unitfile::syntax::Event;
/// use fleet_unitfile::Reader;
///
/// let mut users = Reader::new("[Service]\nUser=web\nNice=5\n").filter_map(|event| match event {
///     Event::Option(option) if option.name() == "User" => Some(option.value()),
///     _ => None,
/// });
/// assert_eq!(users.next().as_deref(), Some("web"));
/// ```
pub struct Reader<'a> {
    items: SyntaxItems<'a>,
    section: SectionName<'a>,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of a source.
    ///
    /// This function checks whether the source is UTF-8, so its time is proportional to the length
    /// of the source.
    pub fn new<S: AsRef<[u8]> + ?Sized>(source: &'a S) -> Self {
        Self { items: SyntaxItems::new(source.as_ref()), section: SectionName::Borrowed("") }
    }

    /// Returns the options only, skipping everything else.
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

/// A syntactic element of a source. Events come in source order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A comment. Comments between the lines of one option are not reported.
    Comment {
        /// The line, including the comment mark. May hold any bytes.
        text: &'a [u8],
        /// Span of the comment.
        span: Span,
    },
    /// A section header. The same section can have several headers.
    Section {
        /// Name between the brackets.
        name: Cow<'a, str>,
        /// Span of the header, including the brackets.
        span: Span,
    },
    /// An option of the most recent section.
    Option(OptionRef<'a>),
    /// An error or warning. After an error in a section header, the options below the header are
    /// skipped, because their section is unknown.
    Diagnostic(Diagnostic),
}

/// An option borrowed from a source; [`UnitOption::from`] makes an owned one.
#[derive(Clone)]
pub struct OptionRef<'a> {
    section: SectionName<'a>,
    assignment: Assignment<'a>,
}

impl<'a> OptionRef<'a> {
    /// Returns the name of the section, without brackets.
    #[inline]
    pub fn section(&self) -> &str {
        self.section.as_str()
    }

    /// Returns the name before the `=`. The result is borrowed unless the name continues over
    /// several lines.
    #[inline]
    pub fn name(&self) -> Cow<'a, str> {
        self.assignment.name()
    }

    /// Returns the value in the form in which systemd reads it. The result borrows from the source,
    /// unless the value continues over several lines.
    #[inline]
    pub fn value(&self) -> Cow<'a, str> {
        self.assignment.value()
    }

    /// Returns the value as written, like [`OptionView::verbatim`](crate::OptionView::verbatim).
    pub fn verbatim(&self) -> Cow<'a, str> {
        self.assignment.verbatim()
    }

    /// Returns the span from the name to the end of the value.
    pub fn span(&self) -> Span {
        self.assignment.span()
    }

    /// Returns the span of the value. If the value is empty, returns an empty span at the end of
    /// the option.
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

/// A section name, which every option of the section holds; cheap to clone.
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
        Some(match self.items.next()? {
            SyntaxItem::Comment(line) => Event::Comment {
                text: line.text,
                span: Span { start: line.start, end: line.start + line.text.len() },
            },
            SyntaxItem::Section(name, span) => {
                self.section = match &name {
                    Cow::Borrowed(name) => SectionName::Borrowed(name),
                    Cow::Owned(name) => SectionName::Shared(name.as_str().into()),
                };
                Event::Section { name, span }
            }
            SyntaxItem::Assignment(assignment) => {
                Event::Option(OptionRef { section: self.section.clone(), assignment })
            }
            SyntaxItem::Issue(issue) => Event::Diagnostic(issue.diagnostic()),
        })
    }
}

impl FusedIterator for Reader<'_> {}
