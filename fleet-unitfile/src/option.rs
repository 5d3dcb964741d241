//! One option: as it stands in a unit file, and by itself.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::assignment::Plain;
use crate::diagnostic::Span;
use crate::index::Entry;
use crate::text::Text;
use crate::write::normalise;

/// An option that is not taken from a unit file: its section, its name and its value.
///
/// Options are equal when section, name and [`verbatim`](Self::verbatim) value are.
#[derive(Clone)]
pub struct UnitOption {
    section: Box<str>,
    name: Box<str>,
    value: Box<str>,
    /// Where it differs from the value.
    verbatim: Option<Box<str>>,
}

impl UnitOption {
    /// An option to build a [`UnitFile`](crate::UnitFile) of, or to put into one.
    ///
    /// The value is written as in a unit file: it may go on in a further line where a backslash
    /// ends the one before. Blanks around it do not count. What cannot be written as one option
    /// is refused by [`UnitFile::from_options`](crate::UnitFile::from_options).
    #[inline]
    pub fn new(section: impl AsRef<str>, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let (value, verbatim) = normalise(value.as_ref());
        Self {
            section: section.as_ref().into(),
            name: name.as_ref().into(),
            value: value.into(),
            verbatim: verbatim.map(String::into_boxed_str),
        }
    }

    /// The name of the section, without brackets.
    #[inline]
    pub fn section(&self) -> &str {
        &self.section
    }

    /// What stands before the `=`.
    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value as systemd reads it, like [`OptionView::value`].
    #[inline]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The value as it is written, like [`OptionView::verbatim`].
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

/// An option as it stands in a [`UnitFile`](crate::UnitFile): the section, the name, the value and
/// their places. It costs nothing to copy; [`UnitOption::from`] makes one that stands alone.
///
/// Options are equal when section, name and [`verbatim`](Self::verbatim) value are; where they
/// stand does not count.
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

    /// The name of the section, without brackets.
    #[inline]
    pub fn section(self) -> &'a str {
        self.text.section_at(self.start)
    }

    /// What stands before the `=`.
    #[inline]
    pub fn name(self) -> &'a str {
        self.parts.name()
    }

    /// The value as systemd reads it: lines joined, a space in place of each backslash between
    /// them, trimmed. Quotes, escapes and specifiers are still in it.
    #[inline]
    pub fn value(self) -> &'a str {
        self.parts.value()
    }

    /// The value as it is written, backslashes and line feeds between its lines included.
    ///
    /// This is what the canonical text and the hash are made of. Comments between the lines
    /// are left out, and every line end is a line feed. It is borrowed, unless a backslash joined
    /// the lines.
    pub fn verbatim(self) -> Cow<'a, str> {
        if self.is_joined {
            return Cow::Owned(self.text.joined(self.start).verbatim());
        }
        Cow::Borrowed(self.parts.verbatim())
    }

    /// Where the option stands in the source, from its name to the end of its value.
    pub fn span(self) -> Span {
        if self.is_joined { self.text.joined(self.start).span() } else { self.parts.span() }
    }

    /// Where the value stands in the source; the end of the option, where the value is empty.
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
