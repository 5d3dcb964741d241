//! One option of a unit file.

use std::fmt;
use std::sync::Arc;

use crate::diagnostic::Span;
use crate::text::{Place, Text};
use crate::write::normalise;

/// One assignment: the section that it stands in, its name and its value.
///
/// Options are equal when section, name and [`verbatim`](Self::verbatim) value are; where they
/// stand does not count.
///
/// A clone shares its text with the option and with the unit file that it was read from, which
/// therefore stays in memory as long as one of its options does.
#[derive(Clone)]
pub struct UnitOption {
    text: Arc<Text>,
    place: Place,
}

impl UnitOption {
    /// An option that is not taken from a text, to build a [`UnitFile`](crate::UnitFile) of.
    ///
    /// The value is written as in a unit file: it may go on in a further line where a backslash
    /// ends the one before. Blanks around it do not count. What cannot be written as one option
    /// is refused by [`UnitFile::from_options`](crate::UnitFile::from_options).
    pub fn new(section: impl AsRef<str>, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let (value, verbatim) = normalise(value.as_ref());
        let mut text = Text::default();
        text.sections.push(section.as_ref().into());
        let parts = text.store(name.as_ref(), &value, verbatim.as_deref(), 0);
        let place = Place { start: 0, end: 0, section: 0, parts };
        Self::at(Arc::new(text), place)
    }

    pub(crate) fn at(text: Arc<Text>, place: Place) -> Self {
        Self { text, place }
    }

    /// The name of the section, without brackets.
    pub fn section(&self) -> &str {
        &self.text.sections[self.place.section]
    }

    /// What stands before the `=`.
    pub fn name(&self) -> &str {
        self.text.name(&self.place)
    }

    /// The value as systemd reads it: lines joined, a space in place of each backslash between
    /// them, trimmed. Quotes, escapes and specifiers are still in it.
    pub fn value(&self) -> &str {
        self.text.value(&self.place)
    }

    /// The value as it is written, backslashes and line feeds between its lines included.
    ///
    /// This is what the canonical text and the hash are made of. Comments between the lines
    /// are left out, and every line end is a line feed.
    pub fn verbatim(&self) -> &str {
        self.text.verbatim(&self.place)
    }

    /// Where the option stands in the source, from its name to the end of its value; empty for
    /// an option that is not taken from a source.
    pub fn span(&self) -> Span {
        Span { start: self.place.start, end: self.place.end }
    }

    /// Where the value stands in the source; the end of the option, where the value is empty.
    pub fn value_span(&self) -> Span {
        self.text.value_span(&self.place)
    }
}

impl PartialEq for UnitOption {
    fn eq(&self, other: &Self) -> bool {
        self.section() == other.section()
            && self.name() == other.name()
            && self.verbatim() == other.verbatim()
    }
}

impl Eq for UnitOption {}

impl fmt::Debug for UnitOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}={:?}", self.section(), self.name(), self.verbatim())
    }
}
