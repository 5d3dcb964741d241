//! Options, owned or borrowed from a unit file.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::file::canonical::normalise;
use crate::file::index::Entry;
use crate::file::text::{Locator, Text};
use crate::syntax::assignment::Plain;
use crate::syntax::diagnostic::{Location, Span};

/// An owned option: section, name and value.
///
/// Two options are equal if their sections, names and [`verbatim`](Self::verbatim) values are
/// equal.
#[derive(Clone)]
pub struct UnitOption {
    section: Box<str>,
    name: Box<str>,
    value: Box<str>,
    /// The value as written, if it differs from `value`.
    verbatim: Option<Box<str>>,
    instance: usize,
}

impl UnitOption {
    /// Creates an option, which can then be added to a [`UnitFile`](crate::UnitFile).
    ///
    /// `value` is in unit file syntax, so it may continue on further lines after a backslash.
    /// Surrounding blanks are removed. The value is not checked here. A method that adds the option
    /// to a unit file returns an error if the value cannot be written.
    #[inline]
    pub fn new(section: impl AsRef<str>, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let (value, verbatim) = normalise(value.as_ref());
        Self {
            section: section.as_ref().into(),
            name: name.as_ref().into(),
            value: value.into(),
            verbatim: verbatim.map(String::into_boxed_str),
            instance: 0,
        }
    }

    /// Returns this option for an instance of its section, given by any number.
    ///
    /// This matters only for sections of networkd that may occur several times, such as `[Route]`:
    /// options with different numbers get headers of their own. Options of a parsed file have the
    /// number of their header. The number does not count when options are compared.
    #[must_use]
    pub fn in_instance(self, instance: usize) -> Self {
        Self { instance, ..self }
    }

    /// Returns the number of the [instance](Self::in_instance) of the section.
    pub fn instance(&self) -> usize {
        self.instance
    }

    /// Returns the name of the section, without brackets.
    #[inline]
    pub fn section(&self) -> &str {
        &self.section
    }

    /// Returns the name before the `=`.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value as systemd reads it, like [`OptionView::value`].
    #[inline]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the value as written, like [`OptionView::verbatim`].
    pub fn verbatim(&self) -> &str {
        self.verbatim.as_deref().unwrap_or(&self.value)
    }
}

impl From<OptionView<'_>> for UnitOption {
    fn from(option: OptionView<'_>) -> Self {
        let (value, verbatim) = (option.value(), option.verbatim());
        Self {
            section: option.section().into(),
            name: option.name().into(),
            value: value.into(),
            verbatim: (verbatim != value).then(|| verbatim.into()),
            instance: option.instance(),
        }
    }
}

impl PartialEq for UnitOption {
    fn eq(&self, other: &Self) -> bool {
        self.section == other.section
            && self.name == other.name
            && self.verbatim() == other.verbatim()
    }
}

impl Eq for UnitOption {}

impl Hash for UnitOption {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.section(), self.name(), self.verbatim()).hash(state);
    }
}

impl fmt::Debug for UnitOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}={:?}", self.section(), self.name(), self.verbatim())
    }
}

/// A view of an option in a [`UnitFile`](crate::UnitFile): section, name, value and their spans.
/// Copying a view is cheap. [`UnitOption::from`] creates an owned option.
///
/// Two options are equal if their sections, names and [`verbatim`](Self::verbatim) values are
/// equal. Spans are not compared.
#[derive(Clone, Copy)]
pub struct OptionView<'a> {
    text: &'a Text,
    parts: Plain<'a>,
    start: usize,
    is_joined: bool,
}

impl<'a> OptionView<'a> {
    #[inline]
    pub(crate) fn new(text: &'a Text, entry: &Entry<'a>) -> Self {
        let (parts, is_joined) = (text.assignment(entry), entry.joined.is_some());
        Self { text, parts, start: entry.start, is_joined }
    }

    /// Returns the name of the section, without brackets.
    #[inline]
    pub fn section(self) -> &'a str {
        self.text.section_at(self.start)
    }

    /// Returns the number of the instance of the section, like [`UnitOption::instance`].
    pub fn instance(self) -> usize {
        self.text.instance_at(self.start)
    }

    /// Returns the name before the `=`.
    #[inline]
    pub fn name(self) -> &'a str {
        self.parts.name()
    }

    /// Returns the value in the form in which systemd reads it. Continued lines are joined, with a
    /// space in place of each continuation backslash. Surrounding blanks are removed. Quotes,
    /// escapes and specifiers are not processed.
    #[inline]
    pub fn value(self) -> &'a str {
        self.parts.value()
    }

    /// Returns the value as written, including the backslashes and line feeds between its lines.
    ///
    /// The canonical text and the hash use this form. Comments between the lines are left out, and
    /// every line end is a line feed. The result is borrowed unless the value continues over
    /// several lines.
    pub fn verbatim(self) -> Cow<'a, str> {
        if self.is_joined {
            return Cow::Owned(self.text.joined(self.start).verbatim());
        }
        Cow::Borrowed(self.parts.verbatim())
    }

    /// Returns the line in which the option begins, counted from 1. The time is proportional to the
    /// offset of the option.
    pub fn line(self) -> usize {
        self.location().line
    }

    /// Returns the column at which the option begins, counted in characters from 1.
    pub fn column(self) -> usize {
        self.location().column
    }

    /// Returns the line and column at which the option begins.
    pub fn location(self) -> Location {
        Locator::new(self.text.marked()).location(self.span().start)
    }

    /// Returns the span of the option in the source, from its name to the end of its value.
    pub fn span(self) -> Span {
        if self.is_joined { self.text.joined(self.start).span() } else { self.parts.span() }
    }

    /// Returns the span of the value. If the value is empty, returns an empty span at the end of
    /// the option.
    pub fn value_span(self) -> Span {
        if self.is_joined {
            return self.text.joined(self.start).value_span();
        }
        self.parts.value_span()
    }
}

impl PartialEq for OptionView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.section() == other.section()
            && self.name() == other.name()
            && self.verbatim() == other.verbatim()
    }
}

impl Eq for OptionView<'_> {}

impl PartialEq<UnitOption> for OptionView<'_> {
    fn eq(&self, other: &UnitOption) -> bool {
        self.section() == other.section()
            && self.name() == other.name()
            && self.verbatim() == other.verbatim()
    }
}

impl PartialEq<OptionView<'_>> for UnitOption {
    fn eq(&self, other: &OptionView<'_>) -> bool {
        other == self
    }
}

impl fmt::Debug for OptionView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}={:?}", self.section(), self.name(), self.verbatim())
    }
}
