//! Assignments: name, value and the offsets of both in their line.

use std::borrow::Cow;
use std::ops::Range;

use crate::continuation::{LogicalLine, trimmed_end};
use crate::diagnostic::{DiagnosticKind, Span};
use crate::grammar::BLANKS;
use crate::lines::{trim_end, trim_start};

/// An assignment `Name=value`, together with the line from which it was read.
///
/// The reader yields millions of assignments, and nearly all of them fit in one physical line. So
/// `Plain` is small and needs no allocation, and the rarer variant is boxed.
#[derive(Clone)]
pub(crate) enum Assignment<'a> {
    Plain(Plain<'a>),
    ContinuedAssignment(Box<ContinuedAssignment<'a>>),
}

impl<'a> Assignment<'a> {
    #[inline]
    pub(crate) fn name(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.name()),
            Self::ContinuedAssignment(joined) => Cow::Owned(joined.name().to_owned()),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.value()),
            Self::ContinuedAssignment(joined) => Cow::Owned(joined.value().to_owned()),
        }
    }

    /// Returns the value as written.
    pub(crate) fn verbatim(&self) -> Cow<'a, str> {
        match self {
            Self::Plain(plain) => Cow::Borrowed(plain.verbatim()),
            Self::ContinuedAssignment(joined) => Cow::Owned(joined.verbatim()),
        }
    }

    /// Returns the span from the name to the end of the value.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Plain(plain) => plain.span(),
            Self::ContinuedAssignment(joined) => joined.span(),
        }
    }

    /// Returns the span of the value. If the value is empty, returns an empty span at the end of
    /// the assignment.
    pub(crate) fn value_span(&self) -> Span {
        match self {
            Self::Plain(plain) => plain.value_span(),
            Self::ContinuedAssignment(joined) => joined.value_span(),
        }
    }
}

/// An assignment in one physical line. Its name and value appear literally in the source.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a> {
    /// The text from the name to the end of the value as written.
    text: &'a str,
    /// Offset of the name in the source.
    start: usize,
    // Lines have at most 1 MiB, so offsets in them fit in 32 bits.
    name_end: u32,
    value_start: u32,
    value_end: u32,
}

impl<'a> Plain<'a> {
    /// Parses `text`, which begins with the first non-blank byte of a line. `start` is the offset
    /// of that byte in the source.
    #[inline]
    pub(crate) fn read(text: &'a str, start: usize) -> Result<Self, DiagnosticKind> {
        let offsets = Offsets::of(text.as_bytes())?;
        let offset = |at| u32::try_from(at).map_err(|_| DiagnosticKind::LineTooLong);
        Ok(Self {
            text: &text[..trimmed_end(text.as_bytes())],
            start,
            name_end: offset(offsets.name_end)?,
            value_start: offset(offsets.value.start)?,
            value_end: offset(offsets.value.end)?,
        })
    }

    #[inline]
    pub(crate) fn name(&self) -> &'a str {
        &self.text[..to_usize(self.name_end)]
    }

    #[inline]
    pub(crate) fn value(&self) -> &'a str {
        &self.text[to_usize(self.value_start)..to_usize(self.value_end)]
    }

    /// Returns the value as written, without the blanks around it.
    ///
    /// If the value ends in a backslash and blanks, one blank stays. Without that blank, the
    /// backslash would continue the line.
    pub(crate) fn verbatim(&self) -> &'a str {
        &self.text[to_usize(self.value_start)..]
    }

    #[inline]
    pub(crate) fn span(&self) -> Span {
        Span { start: self.start, end: self.start + to_usize(self.value_end) }
    }

    pub(crate) fn value_span(&self) -> Span {
        Span { start: self.start + to_usize(self.value_start), ..self.span() }
    }
}

/// An assignment that backslashes continue over several lines.
#[derive(Clone)]
pub(crate) struct ContinuedAssignment<'a> {
    logical: LogicalLine<'a>,
    text: String,
    start: usize,
    offsets: Offsets,
}

impl<'a> ContinuedAssignment<'a> {
    /// Parses `text`, the joined text of `logical`, from offset `start`. The byte at `start` must
    /// be the first non-blank byte.
    #[inline]
    pub(crate) fn read(
        logical: LogicalLine<'a>,
        text: String,
        start: usize,
    ) -> Result<Self, DiagnosticKind> {
        let offsets = Offsets::of(&text.as_bytes()[start..])?;
        Ok(Self { logical, text, start, offsets })
    }

    #[inline]
    pub(crate) fn name(&self) -> &str {
        &self.text[self.start..][..self.offsets.name_end]
    }

    #[inline]
    pub(crate) fn value(&self) -> &str {
        &self.text[self.start..][self.offsets.value.clone()]
    }

    pub(crate) fn verbatim(&self) -> String {
        const CUT: &str = "lines that make up a text when they are joined are text";
        let after_equals = self.start + self.offsets.equals + 1;
        // In a single line, no backslash at the end continues it.
        if self.logical.is_single() {
            let written = &self.text[after_equals..trimmed_end(self.text.as_bytes())];
            return written.trim_start_matches(BLANKS).to_owned();
        }
        String::from_utf8(self.logical.verbatim(after_equals)).expect(CUT)
    }

    #[inline]
    pub(crate) fn span(&self) -> Span {
        self.logical.span(self.start, self.start + self.offsets.value.end)
    }

    pub(crate) fn value_span(&self) -> Span {
        let Range { start, end } = self.offsets.value;
        if start == end {
            let Span { end, .. } = self.span();
            return Span { start: end, end };
        }
        self.logical.span(self.start + start, self.start + end)
    }
}

/// Offsets of the parts of an assignment in its text.
#[derive(Clone)]
struct Offsets {
    name_end: usize,
    equals: usize,
    /// Range of the value. For an empty value, this is an empty range at the end of the text,
    /// before trailing blanks.
    value: Range<usize>,
}

impl Offsets {
    /// Finds the parts of `text`, which must not begin with a blank.
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
fn to_usize(offset: u32) -> usize {
    usize::try_from(offset).expect("32 bits fit a usize")
}
