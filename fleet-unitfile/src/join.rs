//! Logical lines: physical lines joined where a backslash says so.

use crate::diagnostic::Span;
use crate::lines::{Line, Lines, MAX_LINE, ends_in_open_backslash, is_blank, trim_end, trim_start};

/// A physical line with those that continue it; comments between them are left out.
///
/// Only where the lines begin and end is kept, since there can be a million of them in one.
#[derive(Clone, Debug)]
pub(crate) struct Logical<'a> {
    pub(crate) first: Line<'a>,
    last: Line<'a>,
    after_first: Lines<'a>,
    len: usize,
    /// Whether the source ends where another line was to follow.
    pub(crate) unfinished: bool,
}

impl<'a> Logical<'a> {
    /// Takes the lines that continue `first`.
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

    /// The logical line that begins at an offset of the source.
    pub(crate) fn at(source: &'a [u8], start: usize) -> Option<Self> {
        let mut lines = Lines::new(source, start);
        lines.next().map(|first| Self::starting_with(first, &mut lines))
    }

    /// One physical line, which does not continue.
    pub(crate) fn single(line: Line<'a>) -> Self {
        let (after_first, len) = (Lines::new(&[], 0), line.text.len());
        Self { first: line, last: line, after_first, len, unfinished: false }
    }

    pub(crate) fn last(&self) -> &Line<'a> {
        &self.last
    }

    /// The lines after the first.
    pub(crate) fn rest(&self) -> Rest<'a> {
        let is_empty = self.last.start == self.first.start;
        Rest { lines: self.after_first.clone(), last: (!is_empty).then_some(self.last.start) }
    }

    /// Whether this is one physical line that does not ask for another.
    pub(crate) fn is_single(&self) -> bool {
        self.last.start == self.first.start && !self.unfinished
    }

    /// Whether this is longer than a line may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.len >= MAX_LINE
    }

    /// Whether the first character that is not a blank would begin a section header.
    pub(crate) fn starts_like_header(&self) -> bool {
        let mut bytes = self.lines().flat_map(|line| {
            let continued = line.continues();
            let text = line.text.strip_suffix(b"\\").filter(|_| continued);
            text.unwrap_or(line.text)
        });
        bytes.find(|&&byte| !is_blank(byte)) == Some(&b'[')
    }

    /// The line as systemd sees it: each backslash that continues it is one space.
    ///
    /// A byte of it has the same place as the byte of the physical line that it comes from,
    /// counted over the physical lines without their ends.
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

    /// The length of the joined line.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The physical line, and the offset in it, of the byte at offset `at` of the joined line.
    pub(crate) fn locate(&self, mut at: usize) -> (Line<'a>, usize) {
        for line in self.lines() {
            if at < line.text.len() {
                return (line, at);
            }
            at -= line.text.len();
        }
        (self.last, self.last.text.len())
    }

    /// Where the bytes from offset `start` to `end` of the joined line stand in the source.
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

    /// The text from offset `at` of the joined line on, with backslashes and line ends kept.
    ///
    /// Blanks are trimmed at both ends. Where an empty line, or nothing at all, follows the last
    /// backslash, the line end stays: without it the backslash would take in what follows. For
    /// the same reason one blank stays after a backslash that it keeps from continuing the line.
    pub(crate) fn verbatim(&self, at: usize) -> Vec<u8> {
        let (first, offset) = self.locate(at);
        let mut text = trim_start(&first.text[offset..]).to_vec();
        for line in self.lines().skip_while(|line| line.start <= first.start) {
            text.push(b'\n');
            text.extend_from_slice(line.text);
        }
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
pub(crate) struct Rest<'a> {
    lines: Lines<'a>,
    /// Where the last line begins; none once that was told.
    last: Option<usize>,
}

impl<'a> Iterator for Rest<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let last = self.last?;
        let line = self.lines.find(|line| !line.is_comment())?;
        self.last = (line.start < last).then_some(last);
        Some(line)
    }
}

/// Where a text ends once the blanks at its end are gone that mean nothing.
pub(crate) fn trimmed_end(text: &[u8]) -> usize {
    let end = trim_end(text).len();
    let guarded = end < text.len() && ends_in_open_backslash(&text[..end]);
    end + usize::from(guarded)
}
