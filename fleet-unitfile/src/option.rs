//! One option of a unit file.

use std::fmt;
use std::sync::Arc;

use crate::diagnostic::Span;
use crate::write::normalise;

/// One assignment: the section that it stands in, its name and its value.
///
/// Options are equal when section, name and [`verbatim`](Self::verbatim) value are; where they
/// stand does not count.
#[derive(Clone)]
pub struct UnitOption {
    section: Arc<str>,
    /// The name and then the value; one allocation serves both.
    text: Box<str>,
    name_len: usize,
    /// The value as it is written, where it differs from how it reads.
    verbatim: Option<Box<str>>,
    span: Span,
    value_span: Span,
}

impl UnitOption {
    /// An option that is not taken from a text, to build a [`UnitFile`](crate::UnitFile) of.
    ///
    /// The value is written as in a unit file: it may go on in a further line where a backslash
    /// ends the one before. Blanks around it do not count. What cannot be written as one option
    /// is refused by [`UnitFile::from_options`](crate::UnitFile::from_options).
    pub fn new(section: impl AsRef<str>, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        let (value, verbatim) = normalise(value.as_ref());
        let verbatim = verbatim.as_deref();
        Self::from_parts(section.as_ref().into(), name.as_ref(), &value, verbatim)
    }

    pub(crate) fn from_parts(
        section: Arc<str>,
        name: &str,
        value: &str,
        verbatim: Option<&str>,
    ) -> Self {
        let mut text = String::with_capacity(name.len() + value.len());
        text.push_str(name);
        text.push_str(value);
        Self {
            section,
            text: text.into(),
            name_len: name.len(),
            verbatim: verbatim.map(Into::into),
            span: Span::default(),
            value_span: Span::default(),
        }
    }

    pub(crate) fn at(self, span: Span, value_span: Span) -> Self {
        Self {
            span,
            value_span,
            ..self
        }
    }

    /// The name of the section, without brackets.
    pub fn section(&self) -> &str {
        &self.section
    }

    /// What stands before the `=`.
    pub fn name(&self) -> &str {
        &self.text[..self.name_len]
    }

    /// The value as systemd reads it: lines joined, a space in place of each backslash between
    /// them, trimmed. Quotes, escapes and specifiers are still in it.
    pub fn value(&self) -> &str {
        &self.text[self.name_len..]
    }

    /// The value as it is written, backslashes and line feeds between its lines included.
    ///
    /// This is what the canonical text and the hash are made of. Comments between the lines
    /// are left out, and every line end is a line feed.
    pub fn verbatim(&self) -> &str {
        self.verbatim.as_deref().unwrap_or(self.value())
    }

    /// Where the option stands in the source, from its name to the end of its value; empty for
    /// an option that is not taken from a source.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the value stands in the source; the end of the option, where the value is empty.
    pub fn value_span(&self) -> Span {
        self.value_span
    }
}

impl PartialEq for UnitOption {
    fn eq(&self, other: &Self) -> bool {
        self.section == other.section
            && self.name() == other.name()
            && self.verbatim() == other.verbatim()
    }
}

impl Eq for UnitOption {}

impl fmt::Debug for UnitOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[{}] {}={:?}",
            self.section(),
            self.name(),
            self.verbatim()
        )
    }
}
