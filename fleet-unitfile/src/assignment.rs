//! Assignments: the name, the value and the places of both in the line that they stand in.

use std::borrow::Cow;
use std::ops::Range;

use crate::diagnostic::{DiagnosticKind, Span};
use crate::grammar::BLANKS;
use crate::join::{Logical, trimmed_end};
use crate::lines::{trim_end, trim_start};

/// An assignment with the line that it was read from.
///
/// Nearly all stand in one physical line, and those have to be small: they are handed on by the
/// million.
#[derive(Clone)]
pub(crate) enum Assignment<'a> {
    Plain(Plain<'a>),
    Joined(Box<Joined<'a>>),
}

impl<'a> Assignment<'a> {
    #[inline]
    pub(crate) fn name(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.name()),
            Self::Joined(joined) => Cow::Owned(joined.name().to_owned()),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.value()),
            Self::Joined(joined) => Cow::Owned(joined.value().to_owned()),
        }
    }

    /// The value as it is written.
    pub(crate) fn verbatim(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.verbatim()),
            Self::Joined(joined) => Cow::Owned(joined.verbatim()),
        }
    }

    /// From the name to the end of the value.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Plain(plain) => plain.span(),
            Self::Joined(joined) => joined.span(),
        }
    }

    /// The value; the end of the assignment, where the value is empty.
    pub(crate) fn value_span(&self) -> Span {
        match self {
            Self::Plain(plain) => plain.value_span(),
            Self::Joined(joined) => joined.value_span(),
        }
    }
}

/// An assignment in one physical line, where name and value stand as they read.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a> {
    /// From the name to the end of the value as it is written.
    text: &'a str,
    /// The offset of the name in the source.
    start: usize,
    // Lines are shorter than 1 MiB, so offsets in them fit.
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

impl<'a> Plain<'a> {
    /// Reads the text of a line from its first byte that is no blank on, which stands at the
    /// offset `start` of the source.
    #[inline]
    pub(crate) fn read(text: &'a str, start: usize) -> Result<Self, DiagnosticKind> {
        let places = Places::of(text.as_bytes())?;
        let offset = |at| u32::try_from(at).map_err(|_| DiagnosticKind::LineTooLong);
        Ok(Self {
            text: &text[..trimmed_end(text.as_bytes())],
            start,
            name_end: offset(places.name_end)?,
            value_start: offset(places.value.start)?,
            value_end: offset(places.value.end)?,
        })
    }

    #[inline]
    pub(crate) fn name(&self) -> &'a str {
        &self.text[..wide(self.name_end)]
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a str {
        &self.text[wide(self.value_start)..wide(self.value_end)]
    }

    /// The value with the blank that keeps a backslash at its end from continuing the line.
    pub(crate) fn verbatim(&self) -> &'a str {
        &self.text[wide(self.value_start)..]
    }

    #[inline]
    pub(crate) fn span(&self) -> Span {
        Span { start: self.start, end: self.start + wide(self.value_end) }
    }

    pub(crate) fn value_span(&self) -> Span {
        Span { start: self.start + wide(self.value_start), ..self.span() }
    }
}

/// An assignment that a backslash joined from several lines.
#[derive(Clone)]
pub(crate) struct Joined<'a> {
    logical: Logical<'a>,
    text: String,
    start: usize,
    places: Places,
}

impl<'a> Joined<'a> {
    /// Reads a joined line from the offset `start` of its text on, where the first byte stands
    /// that is no blank.
    #[inline]
    pub(crate) fn read(
        logical: Logical<'a>,
        text: String,
        start: usize,
    ) -> Result<Self, DiagnosticKind> {
        let places = Places::of(&text.as_bytes()[start..])?;
        Ok(Self { logical, text, start, places })
    }

    #[inline]
    pub(crate) fn name(&self) -> &str {
        &self.text[self.start..][..self.places.name_end]
    }

    #[inline]
    pub(crate) fn value(&self) -> &str {
        &self.text[self.start..][self.places.value.clone()]
    }

    pub(crate) fn verbatim(&self) -> String {
        const CUT: &str = "lines that make up a text when they are joined are text";
        let after_equals = self.start + self.places.equals + 1;
        // The text of a single line has no backslash that its end depends on.
        if self.logical.is_single() {
            let written = &self.text[after_equals..trimmed_end(self.text.as_bytes())];
            return written.trim_start_matches(BLANKS).to_owned();
        }
        String::from_utf8(self.logical.verbatim(after_equals)).expect(CUT)
    }

    #[inline]
    pub(crate) fn span(&self) -> Span {
        self.logical.span(self.start, self.start + self.places.value.end)
    }

    pub(crate) fn value_span(&self) -> Span {
        let Range { start, end } = self.places.value;
        if start == end {
            let Span { end, .. } = self.span();
            return Span { start: end, end };
        }
        self.logical.span(self.start + start, self.start + end)
    }
}

/// Where the parts of an assignment are in its text.
#[derive(Clone)]
struct Places {
    name_end: usize,
    equals: usize,
    /// At the end of the text, where it is empty.
    value: Range<usize>,
}

impl Places {
    /// Finds them in a text that begins with no blank.
    #[inline]
    fn of(text: &[u8]) -> Result<Self, DiagnosticKind> {
        let end = trim_end(text).len();
        let equals = text[..end].iter().position(|&byte| byte == b'=');
        let equals = equals.ok_or(DiagnosticKind::MissingEquals)?;
        let name_end = trim_end(&text[..equals]).len();
        if name_end == 0 {
            return Err(DiagnosticKind::EmptyName);
        }
        let value = trim_start(&text[equals + 1..end]).len();
        Ok(Self { name_end, equals, value: end - value..end })
    }
}

#[inline]
fn wide(offset: u32) -> usize {
    usize::try_from(offset).expect("32 bits fit a usize")
}
