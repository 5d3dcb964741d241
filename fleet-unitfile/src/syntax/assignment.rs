//! Logical lines, joined by trailing backslashes, and the assignments in them.

use std::borrow::Cow;
use std::ops::Range;

use crate::syntax::diagnostic::{DiagnosticKind, Span};
use crate::syntax::grammar::BLANKS;
use crate::syntax::lines::{
    Line, Lines, MAX_LINE, MarkedSource, ends_in_open_backslash, is_blank, trim_end, trim_start,
};

/// A physical line together with the lines that continue it. Comments between these lines are left
/// out.
///
/// The lines after the first are read from the source on each access. They are not stored, because
/// there can be a million of them.
#[derive(Clone, Debug)]
pub(crate) struct LogicalLine<'a> {
    pub(crate) first: Line<'a>,
    last: Line<'a>,
    after_first: Lines<'a>,
    len: usize,
    /// Whether the last line ends in a continuation backslash, but no further line follows
    /// (comments do not count).
    pub(crate) unfinished: bool,
}

impl<'a> LogicalLine<'a> {
    /// Reads the lines that continue `first`.
    pub(crate) fn starting_with(first: Line<'a>, lines: &mut Lines<'a>) -> Self {
        let (after_first, len) = (lines.clone(), first.text.len());
        let mut logical = Self { first, last: first, after_first, len, unfinished: false };
        while logical.last.continues() {
            let Some(line) = lines.find(|line| !line.is_comment()) else {
                logical.unfinished = true;
                break;
            };
            logical.last = line;
            logical.len = logical.len.saturating_add(line.text.len());
        }
        logical
    }

    /// Returns the logical line that begins at an offset of the source.
    pub(crate) fn at(source: MarkedSource<'a>, start: usize) -> Option<Self> {
        let mut lines = source.lines(start);
        lines.next().map(|first| Self::starting_with(first, &mut lines))
    }

    /// Makes a logical line of one physical line that does not continue.
    pub(crate) fn single(line: Line<'a>) -> Self {
        let (after_first, len) = (Lines::new(&[], 0), line.text.len());
        Self { first: line, last: line, after_first, len, unfinished: false }
    }

    pub(crate) fn last(&self) -> &Line<'a> {
        &self.last
    }

    /// Returns the lines after the first.
    pub(crate) fn rest(&self) -> ContinuationLines<'a> {
        let is_empty = self.last.start == self.first.start;
        ContinuationLines {
            lines: self.after_first.clone(),
            last: (!is_empty).then_some(self.last.start),
        }
    }

    /// Returns `true` if this is one physical line without a trailing backslash.
    pub(crate) fn is_single(&self) -> bool {
        self.last.start == self.first.start && !self.unfinished
    }

    /// Returns `true` if systemd refuses the line for its length. A joined line may have exactly
    /// the limit, but each physical line must be shorter.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > MAX_LINE
            || self.len == MAX_LINE && self.lines().any(|line| line.text.len() == MAX_LINE)
    }

    /// Returns `true` if the first non-blank character is the `[` of a section header.
    pub(crate) fn starts_like_header(&self) -> bool {
        let mut bytes = self.lines().flat_map(|line| {
            let continued = line.continues();
            let text = line.text.strip_suffix(b"\\").filter(|_| continued);
            text.unwrap_or(line.text)
        });
        bytes.find(|&&byte| !is_blank(byte)) == Some(&b'[')
    }

    /// Returns the line in the form in which systemd reads it: each continuing backslash is
    /// replaced by a space.
    ///
    /// Each physical line keeps its length. Therefore an offset in the result is also an offset in
    /// the concatenation of the physical lines, without their line ends.
    pub(crate) fn joined(&self) -> Vec<u8> {
        let mut joined = Vec::with_capacity(self.len);
        for line in self.lines() {
            joined.extend_from_slice(line.text);
            if line.continues() {
                joined.pop();
                joined.push(b' ');
            }
        }
        joined
    }

    /// Returns the length of the joined line.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Finds the byte at offset `at` of the joined line. Returns the physical line that contains
    /// the byte, and the offset of the byte in that line.
    pub(crate) fn locate(&self, mut at: usize) -> (Line<'a>, usize) {
        for line in self.lines() {
            if at < line.text.len() {
                return (line, at);
            }
            at -= line.text.len();
        }
        (self.last, self.last.text.len())
    }

    /// Returns the source span of the bytes `start..end` of the joined line.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        if self.is_single() || self.is_too_long() && end == self.len {
            let end = self.last.start + end - (self.len - self.last.text.len());
            let start = self.first.start + start;
            return Span { start, end };
        }
        let place = |at| {
            let (line, offset) = self.locate(at);
            line.start + offset
        };
        let last = if end > start { place(end - 1) + 1 } else { place(start) };
        Span { start: place(start), end: last }
    }

    /// Returns the text from offset `at` of the joined line as it is written, with its backslashes
    /// and line ends.
    ///
    /// Blanks at both ends are removed, except for one after a final backslash (`a\ `). Without
    /// that blank, the backslash would continue the line.
    ///
    /// If no text follows the last continuation backslash, the result ends in a line feed. Without
    /// it, the backslash would join the value with the line below it in any file to which the value
    /// is written.
    ///
    /// A line that only the byte order mark keeps from being a comment is joined with the one
    /// above.
    pub(crate) fn verbatim(&self, at: usize) -> Vec<u8> {
        let (first, offset) = self.locate(at);
        let mut text = trim_start(&first.text[offset..]).to_vec();
        for line in self.lines().skip_while(|line| line.start <= first.start) {
            if line.is_marked && line.starts_like_comment() {
                text.pop();
                text.push(b' ');
            } else {
                text.push(b'\n');
            }
            text.extend_from_slice(line.text);
        }
        text.drain(..text.len() - trim_start(&text).len());
        if self.unfinished {
            text.push(b'\n');
        }
        let end = trimmed_end(&text);
        text.truncate(end);
        text
    }

    fn lines(&self) -> impl Iterator<Item = Line<'a>> {
        std::iter::once(self.first).chain(self.rest())
    }
}

/// The lines of a logical line after its first.
#[derive(Clone)]
pub(crate) struct ContinuationLines<'a> {
    lines: Lines<'a>,
    /// Offset of the last line; `None` once that line was returned.
    last: Option<usize>,
}

impl<'a> Iterator for ContinuationLines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let last = self.last?;
        let line = self.lines.find(|line| !line.is_comment())?;
        self.last = (line.start < last).then_some(last);
        Some(line)
    }
}

/// Returns the length of `text` without the insignificant blanks at its end.
pub(crate) fn trimmed_end(text: &[u8]) -> usize {
    let end = trim_end(text).len();
    let guarded = end < text.len() && ends_in_open_backslash(&text[..end]);
    end + usize::from(guarded)
}

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
